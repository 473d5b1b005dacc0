"""`python -m undertow`: the command `undertow`."""

import sys

from undertow.cli import main

sys.exit(main())

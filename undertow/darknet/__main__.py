"""`python -m undertow.darknet script.py ...`: runs a script written for Darknet's Python wrapper."""

from __future__ import annotations

import os
import runpy
import sys

from undertow.darknet.wrapper.install import install
from undertow.errors import UndertowError
from undertow.streams import run_to_end


def main(arguments: list[str]) -> int:
    """Run the script named first, with the other words as its own. Errors of files are one line, status 1."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m undertow.darknet SCRIPT [words of the script]")
        print("       import darknet and CDLL('libdarknet.so') then mean Undertow; the script runs unmodified")
        return 0 if arguments else 2
    script = arguments[0]
    if not os.path.exists(script):
        print(f"error: there is no script {script}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except UndertowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_to_end(lambda: main(sys.argv[1:])))

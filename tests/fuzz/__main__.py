"""python -m tests.fuzz FAMILY COUNT [SEED [FIRST]]: random inputs for the readers of darknet or caffe.

Prints how many gave what, and every finding with the number that repeats it (FIRST with COUNT 1). Exit status 1 when
there are findings.
"""

from __future__ import annotations

import faulthandler
import sys
import tempfile
from pathlib import Path

from tests.fuzz.engine import Target, fuzz
from undertow.streams import run_to_end


def targets(family: str) -> tuple[Target, ...]:
    """The targets of a family; imported here, for one may need packages that the other does not."""
    if family == "darknet":
        from tests.fuzz.darknet_targets import TARGETS
    else:
        from tests.fuzz.caffe_targets import TARGETS
    return TARGETS


def main() -> int:
    family, count = sys.argv[1], int(sys.argv[2])
    seed, first = (int(word) for word in [*sys.argv[3:], "0", "0"][:2])
    faulthandler.enable()
    chosen = targets(family)
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "at", "w+") as at:

        def before(target: str, number: int) -> None:
            at.seek(0)
            at.write(f"{target} {number}\n")
            at.flush()

        report = fuzz(chosen, count, seed, Path(name), first=first, before=before)
    print(f"{family}, seed {seed}", *report.lines(), sep="\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(run_to_end(main))

"""python -m tests.fuzz FAMILY COUNT [SEED [FIRST]]: random inputs for the readers of darknet or caffe.

Prints how many gave what, and every finding with the number that repeats it (FIRST with COUNT 1). Exit status 1 when
there are findings, 2 when the words are not these.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.engine import Target, fuzz
from undertow.streams import run_to_end

_AS_WRITTEN = argparse.RawDescriptionHelpFormatter


def targets(family: str) -> tuple[Target, ...]:
    """The targets of a family; imported here, for one may need packages that the other does not."""
    if family == "darknet":
        from tests.fuzz.darknet_targets import TARGETS
    else:
        from tests.fuzz.caffe_targets import TARGETS
    return TARGETS


def words(given: Sequence[str]) -> argparse.Namespace:
    """family, count, seed and first; the usage and an end of the program for words that are not these."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__, formatter_class=_AS_WRITTEN)
    parser.add_argument("family", metavar="FAMILY", choices=("darknet", "caffe"), help="darknet or caffe")
    parser.add_argument("count", metavar="COUNT", type=int, help="how many inputs")
    parser.add_argument("seed", metavar="SEED", type=int, nargs="?", default=0, help="of the inputs; 0 unless given")
    parser.add_argument("first", metavar="FIRST", type=int, nargs="?", default=0, help="number of the first input")
    return parser.parse_args(given)


def main() -> int:
    given = words(sys.argv[1:])
    family, count, seed, first = given.family, given.count, given.seed, given.first
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

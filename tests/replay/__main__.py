"""The command: one line per case, exit status 0 only when all hold."""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.replay import alexeyab, caffe, darknet
from tests.replay.compare import Comparison
from undertow.streams import run_to_end

FORMATS: dict[str, Any] = {"darknet": darknet, "alexeyab": alexeyab, "caffe": caffe}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description="Replay recorded traces.")
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("folder", type=Path, help="the folder that holds one folder per case")
    parser.add_argument("--case", help="only the case of this name")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every array that is off")
    options = parser.parse_args(arguments)
    found = case_folders(options.folder, options.format)
    cases = [folder for folder in found if options.case in (None, folder.name)]
    if not cases:
        print(f"no case{f' named {options.case}' if options.case else ''} in {options.folder}", file=sys.stderr)
        return 2
    failed = left = 0
    for folder in cases:
        result = replay(options.format, folder)
        if result is None:
            left += 1
            print(f"{folder.name:40}            not replayed yet")
            continue
        failed += not result.ok
        print_line(folder.name, result, options.verbose)
    print(f"{len(cases) - left - failed} of {len(cases) - left} cases hold", end="")
    print(f"; {left} not replayed yet" if left else "")
    return 1 if failed else 0


def case_folders(folder: Path, form: str = "darknet") -> list[Path]:
    """Folders with a recorded case, in order."""
    return FORMATS[form].case_folders(folder)


def replay(form: str, folder: Path) -> Comparison | None:
    """Replay one case; an exception is a problem of the case, told with its last line. None: no replay yet."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return FORMATS[form].replay(folder)
    except Exception as error:
        result = Comparison(0.0)
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        result.problems.append(f"{type(error).__name__}: {error} ({place})")
        return result


def print_line(name: str, result: Comparison, verbose: bool) -> None:
    verdict = "ok" if result.ok else "NOT OK"
    print(f"{name:40} {result.worst:9.2e}  {verdict:6}  {result.compared} arrays", end="")
    print(f"; {result.problems[0]}" if result.problems else f"; worst {result.worst_name}" if verbose else "")
    for problem in result.problems[1:] if verbose else ():
        print(f"{'':40} {problem}")


if __name__ == "__main__":
    sys.exit(run_to_end(main))

"""The command: one line per case, exit status 0 only when all hold."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from pathlib import Path

from tests.replay import darknet
from tests.replay.compare import Comparison

FORMATS = {"darknet": darknet}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description="Replay recorded traces.")
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("folder", type=Path, help="the folder that holds one folder per case")
    parser.add_argument("--case", help="only the case of this name")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every array that is off")
    options = parser.parse_args(arguments)
    cases = [folder for folder in case_folders(options.folder) if options.case in (None, folder.name)]
    if not cases:
        print(f"no case{f' named {options.case}' if options.case else ''} in {options.folder}", file=sys.stderr)
        return 2
    failed = 0
    for folder in cases:
        result = replay(options.format, folder)
        failed += not result.ok
        print_line(folder.name, result, options.verbose)
    print(f"{len(cases) - failed} of {len(cases)} cases hold")
    return 1 if failed else 0


def case_folders(folder: Path) -> list[Path]:
    """Folders with a recorded case, in order."""
    if (folder / "case.json").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/case.json"))


def replay(form: str, folder: Path) -> Comparison:
    """Replay one case; an exception is a problem of the case, told with its last line."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return FORMATS[form].replay(folder, case)
    except Exception as error:
        result = Comparison(0.0)
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        result.problems.append(f"{type(error).__name__}: {error} ({place})")
        return result


def print_line(name: str, result: Comparison, verbose: bool) -> None:
    verdict = "ok" if result.ok else "NOT OK"
    print(f"{name:32} {result.worst:9.2e}  {verdict:6}  {result.compared} arrays", end="")
    print(f"; {result.problems[0]}" if result.problems else f"; worst {result.worst_name}" if verbose else "")
    for problem in result.problems[1:] if verbose else ():
        print(f"{'':32} {problem}")


if __name__ == "__main__":
    sys.exit(main())

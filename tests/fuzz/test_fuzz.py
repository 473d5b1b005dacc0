"""Random inputs for every reader, in a process of its own: 2,000 of each family, 100,000 with --long."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import words
from tests.fuzz.damage import damaged
from tests.fuzz.engine import Report, Target, TooSlow, _feed
from undertow.errors import FormatError

NEEDS: dict[str, tuple[str, ...]] = {"darknet": (), "caffe": ("lmdb", "h5py")}


def run(family: str, count: int) -> str:
    """What `python -m tests.fuzz` prints; a crash of the process itself fails too."""
    for package in NEEDS[family]:
        pytest.importorskip(package)
    seed = 1 if "CI" in os.environ else random.SystemRandom().randrange(10**6)
    answer = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", family, str(count), str(seed)],
        env={**os.environ, "UNDERTOW_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert answer.returncode == 0, f"seed {seed}:\n{answer.stdout}{answer.stderr[-4000:]}"
    print(answer.stdout)
    return answer.stdout


def test_words_that_are_none_bring_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for given, status in ((["--help"], 0), ([], 2), (["darknet", "many"], 2), (["keras", "3"], 2)):
        with pytest.raises(SystemExit) as end:
            words(given)
        assert end.value.code == status
        said = capsys.readouterr()
        assert "usage: python -m tests.fuzz" in (said.err if status else said.out)
    assert vars(words(["caffe", "3", "7"])) == {"family": "caffe", "count": 3, "seed": 7, "first": 0}


@pytest.mark.parametrize("family", NEEDS)
def test_two_thousand_inputs(family: str) -> None:
    said = run(family, 2000)
    assert "\n2000 inputs\n" in said
    for line in re.findall(r"^.*: \d+ results, \d+ errors$", said, re.M):
        results, errors = map(int, re.findall(r"\d+(?= results)|\d+(?= errors)", line))
        assert results + errors > 30, line


@pytest.mark.long
@pytest.mark.parametrize("family", NEEDS)
def test_a_hundred_thousand_inputs(family: str) -> None:
    assert "\n100000 inputs\n" in run(family, 100_000)


def fed(use: object) -> Report:
    report = Report()
    _feed(Target("one", lambda draw, folder: use), 0, 0, Path("."), report)  # type: ignore[arg-type,return-value]
    return report


def test_the_engine_tells_results_errors_and_findings_apart() -> None:
    def refuse() -> None:
        raise FormatError("not this")

    def stumble() -> None:
        raise IndexError("inside")

    def late() -> None:
        raise TooSlow("more than 5 seconds")

    assert dict(fed(lambda: 1).results) == {"one": 1}
    assert dict(fed(refuse).errors) == {"one": 1}
    assert "IndexError: inside" in fed(stumble).findings[0].problem
    assert "TooSlow" in fed(late).findings[0].problem


def test_limits_end_what_takes_too_long_or_too_much() -> None:
    """In a process of its own: the limits stay."""
    program = (
        "import tempfile, pathlib, tests.fuzz.engine as e\n"
        "e.SECONDS = 0.2\n"
        "def spin():\n    while True: pass\n"
        "targets = [e.Target('slow', lambda *a: spin), e.Target('large', lambda *a: lambda: bytearray(2**30))]\n"
        "report = e.fuzz(targets, 2, 0, pathlib.Path(tempfile.gettempdir()))\n"
        "print([one.problem.split(':')[0] for one in report.findings])\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.stdout.strip() == "['TooSlow', 'MemoryError']", answer.stderr


def test_damage_changes_most_inputs() -> None:
    data = bytes(range(200))
    changed = [damaged(data, random.Random(number), [b"x" * 300]) for number in range(300)]
    assert sum(one != data for one in changed) > 280
    assert len({len(one) for one in changed}) > 50

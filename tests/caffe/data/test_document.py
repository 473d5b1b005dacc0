"""The page on data runs, and names what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import run_all
from undertow.cli.caffe import COMMANDS

PAGE = Path(__file__).parents[3] / "docs" / "caffe-data.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lmdb")
    monkeypatch.chdir(tmp_path)
    run_all(PAGE)


def test_the_tools_are_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("convert_imageset", "compute_image_mean", "convert_mnist"):
        assert f"undertow caffe {name} " in text
        assert f"caffe {name}" in {command.name for command in COMMANDS}

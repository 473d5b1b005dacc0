from __future__ import annotations

from pathlib import Path

import pytest

from tests.darknet.training.scenes import Scene, make_scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A small data set in its own folder, which is also the working folder."""
    monkeypatch.chdir(tmp_path)
    return make_scene(tmp_path / "scene")

"""A folder with a training that works, and a copy of it to spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.caffe.inputs import DATA, IMAGES, NET, SOLVER, WINDOW_LIST, WINDOWS, database, datum
from undertow.cli import main


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that works, and its snapshot."""
    pytest.importorskip("lmdb")
    folder = tmp_path_factory.mktemp("good")
    rng = np.random.default_rng(0)
    with h5py.File(folder / "rows.h5", "w") as file:
        file["data"] = rng.standard_normal((10, 5)).astype(np.float32)
        file["label"] = (np.arange(10) % 3).astype(np.float32)
    for name, text in {
        "list.txt": "rows.h5\n", "net.prototxt": NET, "solver.prototxt": SOLVER, "data.prototxt": DATA,
        "images.prototxt": IMAGES, "windows.prototxt": WINDOWS, "images.txt": "0.png 0\n1.png 1\n",
        "windows.txt": WINDOW_LIST,
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    for number in range(2):
        Image.fromarray(rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    database(folder, datum(), datum())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in ("train --solver=solver.prototxt", *(f"time --model={n}.prototxt --iterations=1" for n in
                        ("net", "data", "images", "windows"))):  # fmt: skip
            assert main(["caffe", *command.split()]) == 0
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the working folder."""
    shutil.copytree(good, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"

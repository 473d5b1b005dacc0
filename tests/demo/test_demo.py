"""`undertow demo` in a small form, and (with --long) as it is."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("sklearn", reason="the demo's digits come with scikit-learn")
pytest.importorskip("skimage", reason="the demo's photographs come with scikit-image")

from tests.cli.conftest import Answer, start
from undertow.cli import main
from undertow.darknet import load, read_cfg
from undertow.darknet.files.options import read_net_options
from undertow.demo.folder import cfg_text
from undertow.demo.sheet import contact_sheet

Command = Callable[..., Answer]
SMALL = ("-pictures", "12", "-tests", "5", "-iterations", "6")


@pytest.fixture
def undertow(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Answer:
        capfd.readouterr()
        status = main(arguments)
        return Answer(status, *capfd.readouterr())

    return run


def test_a_small_run_leaves_all_its_files(undertow: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = undertow("demo", *SMALL)
    assert answer.status == 0
    folder = tmp_path / "demo-run"
    names = {path.name for path in folder.iterdir()}
    assert {
        "README.txt", "chart.png", "predictions.jpg", "predictions", "train", "test", "train.txt", "test.txt",
        "digits.cfg", "digits.data", "digits.names", "digits_final.weights", "digits_best.weights", "digits.backup",
        "digits.backup.npz", "digits_log.csv", "digits_map.csv",
    } <= names  # fmt: skip
    assert not [name for name in names if name.endswith("00.weights")]
    assert len(list((folder / "train").glob("*.jpg"))) == 12
    assert len(list((folder / "predictions").iterdir())) == 5
    with Image.open(folder / "predictions.jpg") as sheet:
        assert sheet.width > 1900
    with open(folder / "digits_map.csv") as stream:
        assert [row["iteration"] for row in csv.DictReader(stream)] == ["1", "2", "3", "4", "5", "6"]
    assert "iteration 6/6: loss" in answer.out
    for words in ("mAP@0.5 on 5 pictures it has never seen", "open  demo-run/predictions.jpg", "demo-run/chart.png"):
        assert words in answer.out
    command = next(line for line in answer.out.splitlines() if line.startswith("next"))
    assert undertow(*command.split()[2:]).status == 0
    assert (tmp_path / "predictions.jpg").exists()


def test_two_runs_are_equal_to_the_byte(undertow: Command, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert undertow("demo", name, *SMALL).status == 0
    for file in ("digits_final.weights", "train/0003.jpg", "test/0001.txt", "predictions.jpg"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    undertow("demo", "c", *SMALL, "-seed", "1")
    assert (tmp_path / "a/train/0003.jpg").read_bytes() != (tmp_path / "c/train/0003.jpg").read_bytes()


def test_a_folder_of_its_own_is_used_again(undertow: Command, tmp_path: Path) -> None:
    assert undertow("demo", *SMALL).status == 0
    assert undertow("demo", "-pictures", "8", *SMALL[2:]).status == 0
    assert len(list((tmp_path / "demo-run/train").glob("*.jpg"))) == 8


def test_other_peoples_files_are_left_alone(undertow: Command, tmp_path: Path) -> None:
    (tmp_path / "demo-run").mkdir()
    (tmp_path / "demo-run" / "thesis.txt").write_text("three years of work")
    assert "holds other files" in undertow("demo", *SMALL).error
    assert [path.name for path in (tmp_path / "demo-run").iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("")
    assert "this is a file" in undertow("demo", "file").error


@pytest.mark.parametrize(("module", "package"), [("sklearn.datasets", "scikit-learn"), ("skimage", "scikit-image")])
def test_a_missing_package_is_one_message(
    undertow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    error = undertow("demo").error
    assert f"needs the package '{package}'" in error
    assert "pip install 'undertow[demo]'" in error
    assert not (tmp_path / "demo-run").exists()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start("demo", "-pictures", "12", "-tests", "4", "-iterations", "5000", cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("iteration 50/5000"):
            process.send_signal(signal.SIGINT)
            break
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    files = "demo-run/digits.data demo-run/digits.cfg demo-run/digits.backup"
    assert f"to go on: undertow darknet detector train {files} -map -no_flip" in err
    assert load(tmp_path / "demo-run/digits.cfg", tmp_path / "demo-run/digits.backup").batch_number >= 50


def test_another_length_moves_the_steps(tmp_path: Path) -> None:
    usual = tmp_path / "usual.cfg"
    usual.write_text(cfg_text())
    short = tmp_path / "short.cfg"
    short.write_text(cfg_text(360))
    net, other = read_net_options(read_cfg(usual)), read_net_options(read_cfg(short))
    assert other.max_batches == 360
    assert other.burn_in == 180 < net.burn_in
    assert other.steps == tuple(step * 360 // net.max_batches for step in net.steps)
    assert other.learning_rate == pytest.approx(net.learning_rate * 180 / net.burn_in)


def test_the_cfg_has_two_heads_a_shortcut_a_route_and_an_upsample(tmp_path: Path) -> None:
    cfg = tmp_path / "digits.cfg"
    cfg.write_text(cfg_text())
    types = [layer.type for layer in load(cfg).layers]
    assert types.count("yolo") == 2
    assert {"convolutional", "shortcut", "route", "upsample"} <= set(types)


def test_contact_sheet() -> None:
    pictures = [np.full((3, 4, 5), value, np.float32) for value in (0.1, 0.2, 0.3, 0.4, 0.5)]
    sheet = contact_sheet(pictures)
    assert sheet.shape == (3, 2 * (4 + 6) + 6, 4 * (5 + 6) + 6)
    np.testing.assert_array_equal(sheet[:, 6:10, 6:11], pictures[0])
    np.testing.assert_array_equal(sheet[:, 16:20, 6:11], pictures[4])
    assert (sheet[:, 16:20, 17:] == 1).all()


@pytest.mark.long
def test_the_demo_learns(tmp_path: Path) -> None:
    """The whole demo finds at least nine of ten, held-out pictures and all."""
    subprocess.run([sys.executable, "-m", "undertow", "demo"], cwd=tmp_path, check=True, timeout=1800, env=os.environ)
    with open(tmp_path / "demo-run/digits_map.csv") as stream:
        assert float(list(csv.DictReader(stream))[-1]["map"]) >= 0.9

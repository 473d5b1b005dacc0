"""What cannot be measured is said in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import undertow as ut
from benchmarks import __main__ as program
from benchmarks import accuracy
from benchmarks.kernels import step
from benchmarks.nets import config_of
from benchmarks.train import make_batch
from undertow.darknet.network import Network

HEAD = "[net]\nbatch=1\nwidth=32\nheight=32\nchannels=3\n\n[convolutional]\nfilters={}\nsize=3\nstride=2\npad=1\n"


def cfg(folder: Path, filters: int, end: str) -> str:
    file = folder / "own.cfg"
    file.write_text(HEAD.format(filters) + end)
    return str(file)


def refusal(*words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        program.main(list(words))
    text = str(caught.value)
    assert text.startswith("error: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "words",
    [
        "train",
        "inference",
        "memory",
        "scaling --out no.png",
        "digits nowhere",
        "convergence a.data b.cfg",
    ],
)
def test_without_torch(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    said = refusal(*words.split())
    assert said.endswith("needs the package 'torch', which is not installed. To mend it: pip install torch")


@pytest.mark.parametrize("words", [["--check"], [], ["--side", "torch"]])
def test_kernels_without_torch(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("sys.argv", ["step", "no.cfg", *words])
    with pytest.raises(SystemExit, match=r"error: .*pip install torch"):
        step.main()


@pytest.mark.parametrize("command", ["train", "inference", "memory", "loader", "accuracy"])
def test_an_unknown_net(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "require_torch", lambda what: None)
    said = refusal(command, "--net", "nosuch")
    assert "no net 'nosuch' and no file of that name" in said
    assert "yolov3-tiny" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("digits FOLDER", "train-images-idx3-ubyte.gz: No such file or directory"),
        ("convergence FOLDER/a.data FOLDER/b.cfg --sides fast", "a.data: No such file or directory"),
        ("scaling --out FOLDER/none/chart.png", "there is no folder"),
        ("scaling --out FOLDER/chart.xyz", "its name tells no format of a chart"),
    ],
)
def test_files_that_cannot_be_used(words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(program, "require_torch", lambda what: None)
    try:
        assert says in refusal(*words.replace("FOLDER", str(tmp_path)).split())
    finally:
        ut.set_threads(None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("loader --rounds 0", "'0' is no whole number from 1 on"),
        ("table --rounds -3", "'-3' is no whole number from 1 on"),
        ("table --threads x", "'x' is no whole number from 1 on"),
        ("table --only ,", "no row ','; there are train-tiny"),
        ("convergence a.data b.cfg --sides fast,swift", "no side 'swift'; there are fast, precise, reference, torch"),
    ],
)
def test_values_that_cannot_be(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        program.main(words.split())
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_boxes_are_of_classes_that_the_net_knows(tmp_path: Path) -> None:
    head = "\n[yolo]\nmask=0,1\nanchors=4,4,9,9\nclasses=2\nnum=2\n"
    name = cfg(tmp_path, 14, "activation=linear\n" + head)
    truth = make_batch(Network(config_of(name, 4, 32)), 0)[1]
    assert set(truth[:, 4:25:5].ravel()) == {0, 1}
    try:
        sides = [distance.side for distance in accuracy.compare(name, 2, 32, 1)]
    finally:
        ut.set_threads(None)
    assert sides == list(accuracy.SIDES)


def test_a_net_without_truth_to_make(tmp_path: Path) -> None:
    said = refusal("accuracy", "--net", cfg(tmp_path, 4, "activation=leaky\n"), "--size", "32")
    assert "ends in [convolutional]" in said
    assert "To mend it" in said

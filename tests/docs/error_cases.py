"""Cases in which Undertow refuses or warns, small enough to run; the page of errors shows what they say."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

import undertow as ut
from undertow.errors import UndertowError, UndertowWarning

CFG = """[net]
width=32
height=32
channels=3
batch=4
max_batches=10
learning_rate=0.001

[convolutional]
filters=8
size=3
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
filters=24
size=1
activation=linear

[yolo]
classes=3
num=3
anchors=4,4, 8,8, 16,16
"""
PROTOTXT = """name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "score" type: "InnerProduct" bottom: "conv1" top: "score" inner_product_param { num_output: 2 } }
"""


@dataclass(frozen=True)
class Case:
    """seen: what the user has done or sees, as a heading. cause: runs it. advice: what to do, beyond the message."""

    seen: str
    cause: Callable[[], object]
    advice: str


def message_of(case: Case) -> tuple[str, str]:
    """Run a case; the kind and the text of its error or warning. AssertionError when it has none."""
    told: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as told, _silence(), np.errstate(all="ignore"):
            warnings.simplefilter("always")
            case.cause()
    except (UndertowError, TypeError) as error:
        return type(error).__name__, str(error)
    found = [item for item in told if issubclass(item.category, UndertowWarning)]
    assert found, f"nothing is wrong with: {case.seen}"
    return "UndertowWarning", str(found[0].message)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _command(*words: str) -> Callable[[], None]:
    """An undertow command, whose one line of error counts."""

    def cause() -> None:
        from undertow.cli import main

        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            status = main(list(words))
        assert status == 2, f"undertow {words} gave {status}"
        line = next(line for line in told.getvalue().splitlines() if line.startswith("error: "))
        raise UndertowError(line.removeprefix("error: "))

    return cause


# --- Darknet's files ----------------------------------------------------------------------------------------


def _cfg(old: str = "", new: str = "") -> Callable[[], object]:
    def cause() -> object:
        from undertow import darknet

        assert old in CFG
        Path("my.cfg").write_text(CFG.replace(old, new, 1) if old else new)
        return darknet.load("my.cfg")

    return cause


def _weights(change: Callable[[bytes], bytes], before: tuple[str, str] = ("", "")) -> Callable[[], object]:
    def cause() -> object:
        from undertow import darknet

        Path("my.cfg").write_text(CFG)
        darknet.load("my.cfg").save_weights("my.weights")
        Path("my.weights").write_bytes(change(Path("my.weights").read_bytes()))
        Path("my.cfg").write_text(CFG.replace(*before))
        return darknet.load("my.cfg", "my.weights")

    return cause


def small_training(
    label: str | None = "0 0.5 0.5 0.4 0.4", cfg: str = CFG, strict: bool = False, **data: str
) -> Callable[[], object]:
    """Two photos, one of them with this label (None: without a label file), and a training on them."""

    def cause() -> object:
        from PIL import Image

        from undertow import darknet

        os.makedirs("photos", exist_ok=True)
        for number in range(2):
            Image.fromarray(np.full((40, 40, 3), 100 + number, np.uint8)).save(f"photos/{number}.jpg")
            Path(f"photos/{number}.txt").write_text("1 0.5 0.5 0.3 0.3\n")
        Path("photos/1.txt").unlink()
        if label is not None:
            Path("photos/1.txt").write_text(label + "\n")
        Path("train.txt").write_text("photos/0.jpg\nphotos/1.jpg\n")
        Path("my.names").write_text("circle\nsquare\ntriangle\n")
        given = {"classes": "3", "train": "train.txt", "names": "my.names", "backup": "backup"} | data
        Path("my.data").write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
        Path("my.cfg").write_text(cfg)
        return darknet.train("my.data", "my.cfg", strict=strict)

    return cause


def _finished() -> None:
    from undertow import darknet

    small_training(cfg=CFG.replace("max_batches=10", "max_batches=1"))()
    darknet.train("my.data", "my.cfg", "backup/my.backup")


def _broken_picture() -> None:
    from undertow import darknet

    Path("my.cfg").write_text(CFG)
    Path("photo.jpg").write_text("<!DOCTYPE html><html>not found</html>")
    darknet.load("my.cfg").detect("photo.jpg")


# --- Caffe's files ------------------------------------------------------------------------------------------


def _prototxt(old: str, new: str) -> Callable[[], object]:
    def cause() -> object:
        from undertow.caffe.net import Net

        assert old in PROTOTXT
        Path("my.prototxt").write_text(PROTOTXT.replace(old, new, 1))
        return Net("my.prototxt", "TEST")

    return cause


def _caffemodel(old: str = "", new: str = "", cut: int = 0) -> Callable[[], object]:
    def cause() -> object:
        from undertow.caffe.net import Net

        Path("my.prototxt").write_text(PROTOTXT)
        Net("my.prototxt", "TEST").save("my.caffemodel")
        content = Path("my.caffemodel").read_bytes()
        Path("my.caffemodel").write_bytes(content[: len(content) - cut])
        Path("my.prototxt").write_text(PROTOTXT.replace(old, new, 1))
        return Net("my.prototxt", "TEST", weights="my.caffemodel")

    return cause


def _solver(text: str) -> Callable[[], object]:
    def cause() -> object:
        from undertow.caffe.solver import Solver

        Path("my.prototxt").write_text(PROTOTXT)
        Path("solver.prototxt").write_text(f'net: "my.prototxt"\nbase_lr: 0.01\n{text}\n')
        return Solver("solver.prototxt")

    return cause


# --- Code of one's own --------------------------------------------------------------------------------------


class Cube(ut.Function):
    """y = x^3, differentiable once."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x**3)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return np.asarray(3 * self.input.data**2 * gy)


class Wrong(Cube):
    """The same, with a slip in the backward."""

    def backward(self, gy: np.ndarray) -> np.ndarray:
        return np.asarray(-3 * self.input.data**2 * gy)


def _value(*shape: int, name: str | None = None) -> ut.Variable:
    return ut.Variable(np.ones(shape, np.float32), name)


def _not_reached() -> object:
    return ut.grad(ut.square(_value(2, name="x")), _value(2, name="z"))


def _twice() -> object:
    x = _value(2, name="x")
    return ut.grad(Cube()(x), x, create_graph=True)


def _hooked() -> object:
    with ut.NaNHook():
        return ut.log(ut.Variable(np.array([1.0, -1.0])))


def _planned() -> object:
    w, kept = ut.Parameter(np.ones((2, 3), np.float32), name="w"), []

    def step(x: np.ndarray) -> ut.Variable:
        inner = ut.linear(ut.Variable(x, requires_grad=False), w)
        kept[:] = [inner]
        loss = ut.sum(ut.square(inner))
        loss.backward()
        return loss

    run = ut.plan(step)
    for _ in range(4):
        run(np.ones((4, 3), np.float32))
    return kept[0].data


def _missing_package() -> object:
    from undertow.data.small import digits

    with mock.patch.dict(sys.modules, {"sklearn.datasets": None}):
        return digits()


def _broken_database() -> None:
    from undertow.caffe.data import open_database

    Path("my_lmdb").mkdir()
    Path("my_lmdb/data.mdb").write_bytes(b"not a database" * 600)
    open_database("my_lmdb", "lmdb")


GROUPS: dict[str, list[Case]] = {
    "A cfg does not load": [
        Case(
            "a section that does not exist",
            _cfg("[maxpool]", "[maxpol]"),
            "Look at the suggestion; all sections are in [all options](options-darknet.md).",
        ),
        Case(
            "a key that does not exist (a warning; an error with `-strict`)",
            _cfg("filters=8", "filtres=8"),
            "The key has no effect as it stands: the layer has its default.",
        ),
        Case("a value that is no number", _cfg("size=3", "size=three"), "The line named holds it."),
        Case(
            "the number of filters before a [yolo]",
            _cfg("filters=24", "filters=255"),
            "The usual slip after changing `classes`: (classes + 5) times the number of anchors in `mask`.",
        ),
        Case(
            "batch and subdivisions", _cfg("batch=4", "batch=4\nsubdivisions=8"), "A batch is split into subdivisions."
        ),
        Case(
            "a layer that reads one that is not there",
            _cfg("[yolo]", "[route]\nlayers=-9\n\n[yolo]"),
            "Layers are counted from 0 without `[net]`; negative numbers count backwards.",
        ),
        Case(
            "layers of different sizes joined",
            _cfg("[yolo]", "[route]\nlayers=-1, 0\n\n[yolo]"),
            "Bring both to one size with `[maxpool]` or `[upsample]` before joining them.",
        ),
        Case(
            "no [net] at the beginning", _cfg("", "[convolutional]\nfilters=8\n"), "Often the file is not a cfg at all."
        ),
    ],
    "Weights do not fit": [
        Case(
            "the file ends too early",
            _weights(lambda content: content[:-40]),
            "It was cut off on the way, or belongs to another cfg.",
        ),
        Case(
            "the file is longer than the cfg asks for",
            _weights(lambda content: content + bytes(400)),
            "It belongs to another cfg; weights for the first layers only are cut with `undertow darknet partial`.",
        ),
        Case(
            "nothing but a download page",
            _weights(lambda content: b"<!DOCTYPE html><html>not found</html>"),
            "Look at the file with a text editor.",
        ),
    ],
    "Photos, labels and lists": [
        Case(
            "a class number beyond `classes` (the box is left out and counted; an error with `-strict`)",
            small_training("3 0.5 0.5 0.4 0.4", strict=True),
            "Classes are numbered from 0.",
        ),
        Case(
            "a label line that is no label",
            small_training("0 0.5 0.5 0.4"),
            "A line is `class x y width height`, all but the class as shares of the photo's size.",
        ),
        Case(
            "a box outside of its photo (left out and counted; an error with `-strict`)",
            small_training("0 1.5 0.5 0.4 0.4", strict=True),
            "Often pixels were written instead of shares.",
        ),
        Case(
            "a photo without a label file (counted; an error with `-strict`)",
            small_training(None, strict=True),
            "Right for photos without objects; give them an empty file, so that a lost one is noticed.",
        ),
        Case(
            "a list that is not there",
            small_training(train="trian.txt"),
            "Paths are looked up from the working folder, then beside the .data file.",
        ),
        Case("a picture that cannot be read", _broken_picture, "Copy it anew, or take it off the list."),
    ],
    "Training stops": [
        Case(
            "numbers that are not finite",
            small_training(cfg=CFG.replace("learning_rate=0.001", "learning_rate=1e30")),
            "Lower `learning_rate` first; then look at the photos named. The last good state is kept.",
        ),
        Case("nothing left to train", _finished, "Raise `max_batches` to train longer, or begin anew with `-clear`."),
        Case(
            "a key that would change training, of another program",
            small_training(cfg=CFG.replace("classes=3", "classes=3\nfocal_loss=1")),
            "Remove it where its effect is not wanted.",
        ),
    ],
    "A prototxt does not load": [
        Case(
            "a field that does not exist",
            _prototxt("kernel_size: 3", "kernal_size: 3"),
            "All fields are in [all fields of a prototxt](options-caffe.md).",
        ),
        Case(
            "a layer type that does not exist",
            _prototxt('type: "InnerProduct"', 'type: "InnerProducts"'),
            "A type of a fork: see [the list](caffe-nets.md#layer-types), or write it.",
        ),
        Case(
            "a bottom that nothing makes",
            _prototxt('bottom: "conv1"', 'bottom: "conv2"'),
            "Layers stand in the order in which they run.",
        ),
        Case(
            "a bracket that is not closed",
            _prototxt("kernel_size: 3 }", "kernel_size: 3"),
            "The line is that of the end: look for the opening one above.",
        ),
        Case(
            "an option that is missing", _prototxt("kernel_size: 3", ""), "The message names the fields that would do."
        ),
        Case(
            "a window larger than its input",
            _prototxt("kernel_size: 3", "kernel_size: 11"),
            "Padding, or a smaller window.",
        ),
    ],
    "A caffemodel or a solver does not fit": [
        Case(
            "another shape under the same layer name",
            _caffemodel("num_output: 4", "num_output: 5"),
            "To learn that layer anew, give it another name: unknown names are left as they are.",
        ),
        Case("a file that was cut off", _caffemodel(cut=30), "Copy it anew."),
        Case("a policy that does not exist", _solver('lr_policy: "steps"'), "The seven policies are Caffe's."),
        Case(
            "a policy without its numbers",
            _solver('lr_policy: "step"\nmax_iter: 10'),
            "Each policy has fields of its own.",
        ),
        Case("a database that is none", _broken_database, "Make it anew with `undertow caffe convert_imageset`."),
    ],
    "Your own code": [
        Case(
            "a number instead of an array",
            lambda: ut.Variable(0.5),
            "Only arrays are data, so that no type is guessed.",
        ),  # type: ignore[arg-type]
        Case(
            "shapes that do not fit", lambda: ut.matmul(_value(2, 3), _value(4, 5)), "Both shapes are in the message."
        ),
        Case(
            "images and filters that do not fit",
            lambda: ut.conv2d(_value(1, 3, 8, 8), _value(4, 2, 3, 3)),
            "Weights are (filters, channels / groups, height, width).",
        ),
        Case(
            "a gradient of something that plays no part",
            _not_reached,
            "It is never a silent zero: was the graph cut by `.data` or `no_grad`?",
        ),
        Case(
            "a second derivative of a function that has one only",
            _twice,
            "Write `backward_graph` in the place of `backward`.",
        ),
        Case(
            "a backward with a mistake",
            lambda: ut.check_gradients(lambda v: Wrong()(v), [np.array([1.0, 2.0])]),
            "The likely cause is found by comparing the two.",
        ),
        Case(
            "a number that is not finite, with `NaNHook`",
            _hooked,
            "The operation named is the first; look at what it was given.",
        ),
        Case("an inner value of a planned step", _planned, "See [plans](plans.md)."),
    ],
    "Packages": [
        Case(
            "a package that only some parts need",
            _missing_package,
            "The base installation is small on purpose; each extra names what it brings.",
        ),
    ],
    "The command line": [
        Case(
            "a command that does not exist",
            _command("darknet", "detector", "trian"),
            "`undertow darknet help` lists all.",
        ),
        Case(
            "a flag that does not exist",
            _command("darknet", "detector", "map", "a.data", "a.cfg", "a.weights", "-tresh", "0.3"),
            "One dash for Darknet's flags, one or two for Caffe's.",
        ),
        Case(
            "an argument that is missing",
            _command("darknet", "detector", "map", "a.data"),
            "The usage line tells the order.",
        ),
    ],
}

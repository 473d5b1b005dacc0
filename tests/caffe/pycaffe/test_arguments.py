"""Arguments of a wrong kind: each public call takes the value, or tells with an error of this project what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.pycaffe.nets import DEPLOY, RANDOM, write
from tests.caffe.pycaffe.test_pictures import files
from undertow.caffe import draw
from undertow.caffe.arguments import WrongKind, WrongValue
from undertow.caffe.proto.api import read_prototxt
from undertow.errors import UndertowError

BAD: tuple[Any, ...] = (
    None, "a", "x\0y", "", b"x", -1, 1.5, 10**30, float("nan"), float("inf"), True, 2, [], [[1]], [None], [[1], [1, 2]],
    ["a"], {}, {"a": 1}, object(), np.zeros((2, 2)), np.zeros(3, complex), np.array("a"),
)  # fmt: skip
SOLVER = """net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "m"
test_iter: 1 test_interval: 100 snapshot_after_train: false"""


class World:
    """One of each thing, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        write(folder, RANDOM)
        write(folder, SOLVER, "solver.prototxt")
        self.deploy = write(folder, DEPLOY, "deploy.prototxt")
        self.net = caffe.Net(self.deploy, caffe.TEST)
        self.solver = caffe.SGDSolver("solver.prototxt")
        self.message = read_prototxt(self.deploy)
        self.picture = np.random.default_rng(0).random((6, 6, 3)).astype(np.float32)
        model, weights = files(folder)
        self.classifier = caffe.Classifier(model, weights)
        self.detector = caffe.Detector(model, weights)
        self.pictures = model, weights
        self.transformer = caffe.io.Transformer({"data": (1, 3, 6, 6)})

    def make(self, *given: Any, **named: Any) -> caffe.Net:
        return caffe.Net(self.deploy, *given, **named)


CALLS: dict[str, Callable[[World, Any], object]] = {
    "Net(x)": lambda w, x: caffe.Net(x, caffe.TEST),
    "Net(f, x)": lambda w, x: w.make(x),
    "Net(level)": lambda w, x: w.make(caffe.TEST, x),
    "Net(stages)": lambda w, x: w.make(caffe.TEST, 0, x),
    "Net(weights)": lambda w, x: w.make(caffe.TEST, weights=x),
    "Net(seed)": lambda w, x: w.make(caffe.TEST, seed=x),
    "Net(fork)": lambda w, x: w.make(caffe.TEST, fork=x),
    "Net(dialect)": lambda w, x: w.make(caffe.TEST, dialect=x),
    "forward(blobs)": lambda w, x: w.net.forward(x),
    "forward(start)": lambda w, x: w.net.forward(start=x),
    "forward(end)": lambda w, x: w.net.forward(end=x),
    "forward(data)": lambda w, x: w.net.forward(data=x),
    "forward(nothing)": lambda w, x: w.net.forward(nothing=x),
    "backward(diffs)": lambda w, x: w.net.backward(x),
    "backward(start)": lambda w, x: w.net.backward(start=x),
    "backward(y)": lambda w, x: w.net.backward(y=x),
    "forward_all(data)": lambda w, x: w.net.forward_all(data=x),
    "forward_all(blobs)": lambda w, x: w.net.forward_all(x, data=np.zeros((4, 3))),
    "forward_backward_all(data)": lambda w, x: w.net.forward_backward_all(data=x),
    "forward_backward_all(diffs)": lambda w, x: w.net.forward_backward_all(diffs=x, data=np.zeros((4, 3))),
    "set_input_arrays": lambda w, x: w.net.set_input_arrays(x, x),
    "copy_from": lambda w, x: w.net.copy_from(x),
    "share_with": lambda w, x: w.net.share_with(x),
    "save": lambda w, x: w.net.save(x),
    "save_hdf5": lambda w, x: w.net.save_hdf5(x),
    "load_hdf5": lambda w, x: w.net.load_hdf5(x),
    "_forward": lambda w, x: w.net._forward(x, 1),
    "_backward": lambda w, x: w.net._backward(1, x),
    "_bottom_ids": lambda w, x: w.net._bottom_ids(x),
    "_top_ids": lambda w, x: w.net._top_ids(x),
    "before_forward": lambda w, x: w.make(caffe.TEST).before_forward(x),
    "after_backward": lambda w, x: w.make(caffe.TEST).after_backward(x),
    "infer_shapes": lambda w, x: caffe.infer_shapes(x),
    "net.Net.forward(start)": lambda w, x: w.net.net.forward(x) if x is not None else None,
    "net.Net.save": lambda w, x: w.net.net.save(x),
    "Blob(x)": lambda w, x: caffe.Blob(x),
    "Blob.reshape(x)": lambda w, x: caffe.Blob((2, 3)).reshape(x),
    "Blob.reshape(1, x)": lambda w, x: caffe.Blob((2, 3)).reshape(1, x),
    "get_solver": lambda w, x: caffe.get_solver(x),
    "SGDSolver": lambda w, x: caffe.SGDSolver(x),
    "step": lambda w, x: None if isinstance(x, int) else w.solver.step(x),
    "solve": lambda w, x: None if x is None else w.solver.solve(x),
    "restore": lambda w, x: w.solver.restore(x),
    "add_callback": lambda w, x: w.solver.add_callback(x, x),
    "share_weights": lambda w, x: w.solver.share_weights(x),
    "set_random_seed": lambda w, x: caffe.set_random_seed(x),
    "set_device": lambda w, x: caffe.set_device(x),
    "log": lambda w, x: caffe.log(x),
    "set_solver_rank": lambda w, x: caffe.set_solver_rank(x),
    "load_image": lambda w, x: caffe.io.load_image(x),
    "resize_image(x)": lambda w, x: caffe.io.resize_image(x, (3, 3)),
    "resize_image(size)": lambda w, x: caffe.io.resize_image(w.picture, x),
    "resize_image(order)": lambda w, x: caffe.io.resize_image(w.picture, (3, 3), x),
    "oversample(x)": lambda w, x: caffe.io.oversample(x, (2, 2)),
    "oversample(size)": lambda w, x: caffe.io.oversample([w.picture], x),
    "blobproto_to_array": lambda w, x: caffe.io.blobproto_to_array(x),
    "array_to_blobproto": lambda w, x: caffe.io.array_to_blobproto(x),
    "array_to_blobproto(diff)": lambda w, x: caffe.io.array_to_blobproto(np.zeros(3), x),
    "arraylist_to_blobprotovector_str": lambda w, x: caffe.io.arraylist_to_blobprotovector_str(x),
    "blobprotovector_str_to_arraylist": lambda w, x: caffe.io.blobprotovector_str_to_arraylist(x),
    "array_to_datum": lambda w, x: caffe.io.array_to_datum(x),
    "array_to_datum(label)": lambda w, x: caffe.io.array_to_datum(np.zeros((1, 2, 2)), x),
    "datum_to_array": lambda w, x: caffe.io.datum_to_array(x),
    "Transformer": lambda w, x: caffe.io.Transformer(x),
    "Transformer(shape)": lambda w, x: caffe.io.Transformer({"data": x}),
    "preprocess(name)": lambda w, x: w.transformer.preprocess(x, w.picture),
    "preprocess(x)": lambda w, x: w.transformer.preprocess("data", x),
    "deprocess": lambda w, x: w.transformer.deprocess("data", x),
    "set_transpose": lambda w, x: caffe.io.Transformer({"data": (1, 3, 6, 6)}).set_transpose("data", x),
    "set_channel_swap": lambda w, x: caffe.io.Transformer({"data": (1, 3, 6, 6)}).set_channel_swap("data", x),
    "set_raw_scale": lambda w, x: caffe.io.Transformer({"data": (1, 3, 6, 6)}).set_raw_scale("data", x),
    "set_input_scale": lambda w, x: caffe.io.Transformer({"data": (1, 3, 6, 6)}).set_input_scale("data", x),
    "set_mean": lambda w, x: caffe.io.Transformer({"data": (1, 3, 6, 6)}).set_mean("data", x),
    "Classifier(x)": lambda w, x: caffe.Classifier(x, w.pictures[1]),
    "Classifier(image_dims)": lambda w, x: caffe.Classifier(*w.pictures, image_dims=x),
    "Classifier(mean)": lambda w, x: caffe.Classifier(*w.pictures, mean=x),
    "Classifier(channel_swap)": lambda w, x: caffe.Classifier(*w.pictures, channel_swap=x),
    "predict": lambda w, x: w.classifier.predict(x),
    "predict([x])": lambda w, x: w.classifier.predict([x]),
    "Detector(context_pad)": lambda w, x: caffe.Detector(*w.pictures, context_pad=x),
    "detect_windows": lambda w, x: w.detector.detect_windows(x),
    "detect_windows([x])": lambda w, x: w.detector.detect_windows([x]),
    "detect_windows([(x, w)])": lambda w, x: w.detector.detect_windows([(x, [(0, 0, 3, 3)])]),
    "crop": lambda w, x: w.detector.crop(w.picture, x),
    "share_data": lambda w, x: caffe.Blob((2,)).share_data(x),
    "draw_net(x)": lambda w, x: draw.draw_net(x, "LR", "dot"),
    "draw_net(rankdir)": lambda w, x: draw.draw_net(w.message, x, "dot"),
    "draw_net(ext)": lambda w, x: draw.draw_net(w.message, "LR", x),
    "draw_net_to_file": lambda w, x: draw.draw_net_to_file(w.message, x),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("arguments")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return World(folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_every_value_is_taken_or_told(name: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    foreign = []
    for value in BAD:
        try:
            CALLS[name](world, value)
        except UndertowError:
            continue
        except Exception as error:
            foreign.append(f"{value!r}: {type(error).__name__}: {error}")
    assert foreign == []


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("save", "x\0y", ValueError, r"the file cannot be 'x\\x00y', which has a zero byte in it"),
        ("save", None, TypeError, "the file is a path, not None. To mend it: give a str or a pathlib.Path"),
        ("save", True, TypeError, "the file is a path, not bool True"),
        ("Blob.reshape(x)", "a", TypeError, "the length of an axis is a whole number, not str 'a'"),
        ("Blob.reshape(x)", [2, 3], TypeError, r"not list \[2, 3\]. To mend it: write blob.reshape\(2, 3\), or blob.r"),
        ("Blob.reshape(x)", 10**30, ValueError, "has more numbers than any memory"),
        ("step", 1.5, TypeError, "the number of iterations of step is a whole number, not float 1.5"),
        ("forward(blobs)", ["c"], KeyError, "there is no blob 'c'. To mend it: use one of data, h, t, y"),
        ("forward(blobs)", "t", TypeError, r"blobs is a list of names, not str 't'. To mend it: write \['t'\]"),
        ("forward(start)", "c", ValueError, "'c' is not a layer"),
        ("forward(data)", np.zeros((4, 3), complex), TypeError, r"not an array of shape \(4, 3\) and kind complex128"),
        ("before_forward", 5, TypeError, "a callback is a function, not int 5"),
        ("Net(level)", 10**30, ValueError, "level is from -2147483648 to 2147483647"),
        ("Net(dialect)", "a", ValueError, "there is no dialect 'a'. To mend it: there are exact, caffe"),
        ("set_random_seed", -1, ValueError, "the seed is at least 0, not -1"),
        ("load_image", 1, TypeError, "a picture is a path, not int 1"),
        ("resize_image(size)", (0, 3), ValueError, r"new_dims is 2 whole numbers of at least 1, not \(0, 3\)"),
        ("set_raw_scale", float("nan"), ValueError, "scale is a finite number, not nan"),
        ("set_transpose", (0, 0, 1), ValueError, r"order has each number from 0 on once, not \(0, 0, 1\)"),
        ("draw_net(rankdir)", "XX", ValueError, "rankdir is LR, TB, BT, RL, not 'XX'"),
        ("set_mean", [[1], [1, 2]], ValueError, "mean has lists of different lengths"),
    ],
)
def test_what_is_wrong_is_named(world: World, name: str, value: Any, kind: type, message: str) -> None:
    """With Python's own kind of error too, which scripts may catch."""
    with pytest.raises(kind, match=message) as told:
        CALLS[name](world, value)
    assert isinstance(told.value, UndertowError)


def test_what_pycaffe_takes_is_taken(world: World) -> None:
    blob = caffe.Blob((2, 3))
    for shape in ((4, 5), (np.int64(4), 5), (4.0, True), ()):
        blob.reshape(*shape)
        assert blob.data.shape == tuple(int(length) for length in shape)
    world.net.forward(blobs=("t",), data=[[0, 1, 2]] * 4)
    assert world.net._forward(np.int32(0), 1) == 0
    assert issubclass(WrongKind, TypeError)
    assert issubclass(WrongValue, ValueError)
    world.transformer.set_raw_scale("data", np.full((3, 1, 1), 255))

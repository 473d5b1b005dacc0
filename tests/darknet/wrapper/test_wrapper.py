"""Scripts for Darknet's Python wrapper: the module `darknet`, and the C library with a script's own structures."""

from __future__ import annotations

import ctypes as ct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from undertow import darknet as ours
from undertow.darknet.detection.detector import find_candidates
from undertow.darknet.detection.nms import do_nms_obj
from undertow.darknet.wrapper import install, module
from undertow.data.images import load_image
from undertow.errors import FormatError, ShapeError, UndertowError

CFG = """[net]
batch=1
width=32
height=32
channels=3

[convolutional]
filters=14
size=3
stride=4
pad=1
activation=linear

[yolo]
mask=0,1
anchors=6,9,12,10
num=2
classes=2
"""

# The structures and the order of calls of python/darknet.py of 2018.
SCRIPT = """
from ctypes import *
import sys
class BOX(Structure):
    _fields_ = [(n, c_float) for n in "xywh"]
class DETECTION(Structure):
    _fields_ = [("bbox", BOX), ("classes", c_int), ("prob", POINTER(c_float)), ("mask", POINTER(c_float)),
                ("objectness", c_float), ("sort_class", c_int)]
class IMAGE(Structure):
    _fields_ = [("w", c_int), ("h", c_int), ("c", c_int), ("data", POINTER(c_float))]
class METADATA(Structure):
    _fields_ = [("classes", c_int), ("names", POINTER(c_char_p))]
lib = CDLL("./libdarknet.so", RTLD_GLOBAL)
lib.load_network.argtypes, lib.load_network.restype = [c_char_p, c_char_p, c_int], c_void_p
lib.get_metadata.restype, lib.load_image_color.restype = METADATA, IMAGE
lib.network_predict_image.restype = POINTER(c_float)
lib.get_network_boxes.restype = POINTER(DETECTION)
net = lib.load_network(b"net.cfg", b"net.weights", 0)
meta = lib.get_metadata(b"net.data")
im = lib.load_image_color(b"picture.png", 0, 0)
lib.network_predict_image(net, im)
num = c_int(0)
dets = lib.get_network_boxes(net, im.w, im.h, c_float(float(sys.argv[1])), .5, None, 0, byref(num))
lib.do_nms_obj(dets, num, meta.classes, c_float(.45))
for j in range(num.value):
    for i in range(meta.classes):
        if dets[j].prob[i] > 0:
            b = dets[j].bbox
            print(meta.names[i].decode(), dets[j].prob[i], b.x, b.y, b.w, b.h)
lib.free_image(im)
lib.free_detections(dets, num)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.cfg").write_text(CFG)
    Path("net.names").write_text("cat\ndog\n")
    Path("net.data").write_text("classes=2\nnames=net.names\n")
    ours.load("net.cfg", seed=3).save_weights("net.weights")
    Image.fromarray(rng.integers(0, 256, (40, 56, 3), np.uint8)).save("picture.png")
    return tmp_path


@pytest.fixture
def installed() -> Iterator[Any]:
    install.install()
    import darknet  # type: ignore[import-not-found]

    yield darknet
    install.uninstall()


def expected(threshold: float) -> list[tuple[str, float, tuple[float, ...]]]:
    """By our own functions, with the suppression that the wrapper's detect uses."""
    net = ours.load("net.cfg", "net.weights", names="net.names")
    picture = load_image("picture.png")
    found = do_nms_obj(find_candidates(net, picture, threshold, 0), 0.45)
    return [(d.name, d.confidence, tuple(d.pixel_box)) for d in found.detections(net.names, threshold, (56, 40))]


def close(got: list[Any], wanted: list[Any]) -> None:
    assert len(wanted) > 3
    assert [one[0] for one in got] == [one[0] for one in wanted]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose([one[1], *one[2]], [other[1], *other[2]], rtol=1e-5)


@pytest.mark.parametrize("kind", [str, str.encode])
def test_the_names_of_2018(folder: Path, installed: Any, kind: Any) -> None:
    net = installed.load_net(kind("net.cfg"), kind("net.weights"), 0)
    meta = installed.load_meta(kind("net.data"))
    found = installed.detect(net, meta, kind("picture.png"), thresh=0.2)
    close([(n.decode(), p, b) for n, p, b in found], sorted(expected(0.2), key=lambda one: -one[1]))


def test_the_names_of_the_fork(folder: Path) -> None:
    net, names, colors = module.load_network("net.cfg", "net.data", "net.weights")
    assert names == ["cat", "dog"] == list(colors)
    pixels = np.asarray(Image.open("picture.png").resize((32, 32)))
    im = module.make_image(module.network_width(net), module.network_height(net), 3)
    module.copy_image_from_bytes(im, pixels.tobytes())
    found = module.detect_image(net, names, im, thresh=0.2)
    module.free_image(im)
    wanted = ours.load("net.cfg", "net.weights", names="net.names").detect(pixels, 0.2)
    want = [(d.name, str(round(d.confidence * 100, 2)), tuple(d.pixel_box)) for d in wanted]
    assert sorted(one[:2] for one in found) == sorted(one[:2] for one in want)
    boxes = [sorted(one[2] for one in some) for some in (found, want)]
    np.testing.assert_allclose(boxes[0], boxes[1], rtol=1e-5)


def test_a_batch_gives_what_single_pictures_give(folder: Path, rng: np.random.Generator) -> None:
    net = module.load_net_custom("net.cfg", "net.weights", 0, 2)
    batch = rng.random((2, 3, 32, 32), np.float32)
    im = module.IMAGE(32, 32, 3, batch.ctypes.data_as(module.FloatPtr))
    pairs = module.network_predict_batch(net, im, 2, 32, 32, 0.2, 0.5, None, 0, 0)
    single = ours.load("net.cfg", "net.weights")
    for i in range(2):
        wanted = find_candidates(single, batch[i], 0.2, 0)
        got = module.remove_negatives(pairs[i].dets, ["cat", "dog"], pairs[i].num)
        assert len(got) == np.count_nonzero(wanted.probabilities) > 3
        first = wanted.boxes[np.nonzero(wanted.probabilities)[0]] * 32
        np.testing.assert_allclose([one[2] for one in got], first, rtol=1e-4, atol=1e-4)
    module.free_batch_detections(pairs, 2)


def test_an_unmodified_script_with_its_own_structures(folder: Path) -> None:
    Path("script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "undertow.darknet", "script.py", "0.2"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    got = [(name, float(p), tuple(map(float, box))) for name, p, *box in lines]
    close(got, expected(0.2))


def test_a_missing_file_is_one_line(folder: Path) -> None:
    Path("script.py").write_text("import darknet\ndarknet.load_net('none.cfg', 'net.weights', 0)\n")
    command = [sys.executable, "-m", "undertow.darknet", "script.py"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("error: none.cfg")
    assert "Traceback" not in run.stderr


def test_a_real_darknet_module_wins(folder: Path) -> None:
    Path("darknet.py").write_text("mine = 7\n")
    Path("script.py").write_text("import darknet\nprint(darknet.mine)\n")
    command = [sys.executable, "-m", "undertow.darknet", "script.py"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "7\n"


def test_pictures_live_until_they_are_freed(folder: Path) -> None:
    before = len(module.lib.memory)
    im = module.load_image("picture.png", 0, 0)
    wanted = load_image("picture.png")
    shape = (im.c, im.h, im.w)
    assert np.array_equal(np.ctypeslib.as_array(im.data, shape), wanted)
    module.rgbgr_image(im)
    assert np.array_equal(np.ctypeslib.as_array(im.data, shape), wanted[::-1])
    boxed = module.letterbox_image(im, 20, 20)
    assert (boxed.w, boxed.h, boxed.c) == (20, 20, 3)
    assert len(module.lib.memory) == before + 2
    module.free_image(im)
    module.free_image(boxed)
    assert len(module.lib.memory) == before


def test_mistakes_are_answered(folder: Path) -> None:
    net = module.load_net("net.cfg", "net.weights", 0)
    im = module.make_image(4, 4, 3)
    with pytest.raises(FormatError, match=r"none\.png"):
        module.load_image("none.png", 0, 0)
    with pytest.raises(UndertowError, match="no network"):
        module.network_width(net + 1000)
    with pytest.raises(UndertowError, match="before a prediction"):
        module.get_network_boxes(net, 4, 4, 0.5, 0.5, None, 0, ct.pointer(ct.c_int()))
    with pytest.raises(ShapeError, match="48 values"):
        module.copy_image_from_bytes(im, b"short")
    im.w = 400
    with pytest.raises(ShapeError, match="48 were made"):
        module.predict_image(net, im)
    with pytest.raises(ShapeError, match="null pointer"):
        module.predict_image(net, module.IMAGE(4, 4, 3, None))
    with pytest.raises(ShapeError, match="no pixels"):
        module.make_image(0, 4, 3)
    with pytest.raises(AttributeError, match="undefined symbol: fly"):
        module.lib.fly(1)
    Path("net.weights").write_bytes(b"123")
    with pytest.raises(FormatError):
        module.load_net("net.cfg", "net.weights", 0)


def test_helpers() -> None:
    assert module.bbox2points((10, 10, 4, 6)) == (8, 7, 12, 13)
    assert list(module.c_array(ct.c_float, [1, 2])) == [1, 2]
    assert module.sample([0, 0, 3]) == 2


def test_yolov3_tiny_on_the_dog(reference_data: Path) -> None:
    folder = reference_data / "data" / "darknet" / "yolov3-tiny"
    picture = reference_data / "data" / "images" / "darknet" / "dog.jpg"
    net = module.load_net(str(folder / "yolov3-tiny.cfg"), str(folder / "yolov3-tiny.weights"), 0)
    names = (folder / "coco.names").read_text().splitlines()
    meta = module.METADATA(80, (ct.c_char_p * 80)(*(name.encode() for name in names)))
    found = module.detect(net, meta, str(picture))
    single = ours.load(folder / "yolov3-tiny.cfg", folder / "yolov3-tiny.weights", names=folder / "coco.names")
    wanted = sorted(single.detect(picture), key=lambda one: -one.confidence)
    assert {one[0] for one in found} >= {b"dog", b"car"}
    close([(n.decode(), p, b) for n, p, b in found], [(d.name, d.confidence, tuple(d.pixel_box)) for d in wanted])

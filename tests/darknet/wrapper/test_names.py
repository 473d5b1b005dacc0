"""Every name of both wrappers is there and does what it says; folders called `darknet` do not hide ours."""

from __future__ import annotations

import ctypes as ct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.darknet.wrapper.test_wrapper import CFG
from undertow import darknet as ours
from undertow.darknet.detection.detector import fit_picture
from undertow.darknet.detection.nms import do_nms_obj, do_nms_sort
from undertow.darknet.wrapper import module
from undertow.data.images import load_image
from undertow.data.resize import letterbox_image
from undertow.errors import UndertowError

# Module-level names of python/darknet.py of 2018 and of the fork's darknet.py.
NAMES = """
sample c_array BOX DETECTION IMAGE METADATA lib predict set_gpu make_image get_network_boxes make_network_boxes
free_detections free_ptrs network_predict reset_rnn load_net do_nms_obj do_nms_sort free_image letterbox_image load_meta
load_image rgbgr_image predict_image classify detect
FloatPtr IntPtr DETECTIONPtr DETNUMPAIR DETNUMPAIRPtr network_width network_height bbox2points class_colors load_network
print_detections draw_boxes decode_detection non_max_suppression_fast remove_negatives remove_negatives_faster
detect_image copy_image_from_bytes init_cpu free_batch_detections load_net_custom free_network_ptr
predict_image_letterbox network_predict_batch
"""

CLASSIFIER = """[net]
batch=1
width=8
height=8
channels=3
[convolutional]
filters=3
size=3
stride=2
activation=linear
[avgpool]
[softmax]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text, seed in (("net", CFG, 3), ("class", CLASSIFIER, 5)):
        Path(f"{name}.cfg").write_text(text)
        ours.load(f"{name}.cfg", seed=seed).save_weights(f"{name}.weights")
    Path("net.names").write_text("cat\ndog\n")
    Path("net.data").write_text("classes=2\nnames=net.names\n")
    Image.fromarray(rng.integers(0, 256, (40, 56, 3), np.uint8)).save("picture.png")
    return tmp_path


@pytest.fixture
def net() -> Iterator[int]:
    handle = module.load_net("net.cfg", "net.weights", 0)
    yield handle
    module.free_network_ptr(handle)


def predicted(net: int) -> tuple[Any, int]:
    """Detections of the picture in pixels, and how many."""
    im, count = module.load_image("picture.png", 0, 0), ct.c_int(0)
    module.predict_image(net, im)
    dets = module.get_network_boxes(net, im.w, im.h, 0.2, 0.5, None, 0, ct.pointer(count))
    module.free_image(im)
    return dets, count.value


def probabilities(dets: Any, count: int) -> np.ndarray:
    return np.array([[dets[j].prob[i] for i in range(2)] for j in range(count)])


def test_all_names_are_there() -> None:
    assert not [name for name in NAMES.split() if not hasattr(module, name)]


def test_classify_gives_all_classes_the_likeliest_first() -> None:
    net = module.load_net("class.cfg", "class.weights", 0)
    names = (ct.c_char_p * 3)(b"a", b"b", b"c")
    im = module.load_image("picture.png", 0, 0)
    found = module.classify(net, module.METADATA(3, names), im)
    plain = ours.load("class.cfg", "class.weights")
    wanted = plain.predict(fit_picture(plain, load_image("picture.png"))[None]).reshape(-1)
    order = np.argsort(-wanted)
    assert [name for name, _ in found] == [b"abc"[i : i + 1] for i in order]
    np.testing.assert_allclose([value for _, value in found], wanted[order], rtol=1e-5)


@pytest.mark.parametrize("name", ["predict", "network_predict"])
def test_predictions_of_values(net: int, name: str, rng: np.random.Generator) -> None:
    values = rng.random((3, 32, 32), np.float32)
    out = getattr(module, name)(net, values.ctypes.data_as(module.FloatPtr))
    wanted = ours.load("net.cfg", "net.weights").predict(values[None]).reshape(-1)
    np.testing.assert_allclose(np.ctypeslib.as_array(out, (wanted.size,)), wanted, rtol=1e-5, atol=1e-6)


def test_predict_image_letterbox_always_fits_with_bars(net: int) -> None:
    im = module.load_image("picture.png", 0, 0)
    out = module.predict_image_letterbox(net, im)
    picture = letterbox_image(load_image("picture.png"), 32, 32)
    wanted = ours.load("net.cfg", "net.weights").predict(picture[None]).reshape(-1)
    np.testing.assert_allclose(np.ctypeslib.as_array(out, (wanted.size,)), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "rule"), [("do_nms_obj", do_nms_obj), ("do_nms_sort", do_nms_sort)])
def test_suppression(net: int, name: str, rule: Callable[..., Any]) -> None:
    dets, count = predicted(net)
    plain = ours.load("net.cfg", "net.weights")
    plain.predict(fit_picture(plain, load_image("picture.png"))[None])
    candidates = plain.candidates((56, 40), 0.2, relative=False)
    np.testing.assert_allclose(probabilities(dets, count), candidates.probabilities, rtol=1e-5)
    getattr(module, name)(dets, count, 2, 0.3)
    wanted = rule(candidates, 0.3).probabilities
    left = probabilities(dets, count)
    assert 0 < np.count_nonzero(left) < np.count_nonzero(candidates.probabilities)
    np.testing.assert_allclose(np.sort(left[left > 0]), np.sort(wanted[wanted > 0]), rtol=1e-5)
    module.free_detections(dets, count)


def test_make_network_boxes_gives_room_for_those_above(net: int) -> None:
    dets, count = predicted(net)
    room, number = module.make_network_boxes(net, 0.2, ct.pointer(total := ct.c_int(0))), total.value
    assert number == count
    assert room[0].classes == 2
    module.free_detections(dets, count)
    module.free_detections(room, number)
    module.free_ptrs(ct.pointer(ct.c_void_p()), 0)


def test_the_best_class_of_each_box(net: int) -> None:
    dets, count = predicted(net)
    all_of_them = module.remove_negatives(dets, ["cat", "dog"], count)
    best = module.remove_negatives_faster(dets, ["cat", "dog"], count)
    values = probabilities(dets, count)
    assert len(all_of_them) == np.count_nonzero(values) > len(best) > 0
    np.testing.assert_allclose([one[1] for one in best], values.max(axis=1)[values.max(axis=1) > 0])


def test_a_freed_network_is_gone() -> None:
    handle = module.load_net("net.cfg", "net.weights", 0)
    assert (module.network_width(handle), module.network_height(handle)) == (32, 32)
    module.reset_rnn(handle)
    module.set_gpu(0)
    module.init_cpu()
    module.free_network_ptr(handle)
    with pytest.raises(UndertowError, match="no network"):
        module.network_width(handle)


def test_words_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    decoded = module.decode_detection([("cat", 0.61234, (1.0, 2.0, 3.0, 4.0))])
    assert decoded == [("cat", "61.23", (1.0, 2.0, 3.0, 4.0))]
    module.print_detections(decoded)
    module.print_detections(decoded, True)
    assert capsys.readouterr().out == (
        "\nObjects:\ncat: 61.23%\n\nObjects:\ncat: 61.23%    (left_x: 1   top_y:  2   width:   3   height:  4)\n"
    )
    colors = module.class_colors(["cat", "dog"])
    assert list(colors) == ["cat", "dog"]
    assert all(len(one) == 3 and 0 <= min(one) <= max(one) <= 255 for one in colors.values())


def test_suppression_by_covered_area() -> None:
    low, covered, apart = ("a", 1, None, (10, 30, 9, 9)), ("b", 2, None, (10, 29, 9, 9)), ("c", 3, None, (50, 10, 9, 9))
    assert module.non_max_suppression_fast([covered, apart, low], 0.5) == [low, apart]
    # 90 of the 100 pixels of `covered` lie in `low`.
    assert module.non_max_suppression_fast([covered, apart, low], 0.9) == [low, covered, apart]
    assert module.non_max_suppression_fast([], 0.5) == []


def test_draw_boxes_draws_frame_and_name() -> None:
    pytest.importorskip("cv2")
    picture = np.zeros((60, 80, 3), np.uint8)
    drawn = module.draw_boxes([("cat", "61.2", (40.0, 35.0, 20.0, 20.0))], picture, {"cat": (10, 20, 250)})
    assert drawn is picture
    for row, column in ((25, 40), (45, 40), (35, 30), (35, 50)):
        assert drawn[row, column].tolist() == [10, 20, 250]
    assert not drawn[35, 40].any()
    assert drawn[:24].any()  # the name, above the box


VIDEO = """
import queue, sys, threading
import cv2
import darknet

network, names, colors = darknet.load_network("net.cfg", "net.data", "net.weights")
width, height = darknet.network_width(network), darknet.network_height(network)
frames, ready = queue.Queue(2), queue.Queue(2)

def capture():
    video = cv2.VideoCapture(sys.argv[1])
    while True:
        there, frame = video.read()
        if not there:
            break
        small = cv2.resize(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), (width, height))
        image = darknet.make_image(width, height, 3)
        darknet.copy_image_from_bytes(image, small.tobytes())
        frames.put((frame, image))
    frames.put(None)

def infer():
    while (item := frames.get()) is not None:
        frame, image = item
        found = darknet.detect_image(network, names, image, thresh=0.2)
        darknet.free_image(image)
        ready.put((frame, found))
    ready.put(None)

threads = [threading.Thread(target=capture), threading.Thread(target=infer)]
for thread in threads:
    thread.start()
count = boxes = 0
while (item := ready.get()) is not None:
    frame, found = item
    darknet.draw_boxes(found, frame, colors)
    count, boxes = count + 1, boxes + len(found)
print(count, boxes)
"""


def test_a_video_in_three_threads(rng: np.random.Generator) -> None:
    """The way of the fork's darknet_video.py: pictures are made, looked at and drawn in threads of their own."""
    cv2 = pytest.importorskip("cv2")
    writer = cv2.VideoWriter("in.avi", cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for _ in range(9):
        writer.write(rng.integers(0, 256, (48, 64, 3), np.uint8))
    writer.release()
    Path("video.py").write_text(VIDEO)
    done = script("video.py", "in.avi")
    count, boxes = map(int, done.stdout.split())
    assert count == 9
    assert boxes > 9


def script(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "undertow.darknet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def test_a_folder_of_that_name_hides_nothing() -> None:
    """The C program's folder beside the script: no module, but what lies in it can be imported."""
    (Path("darknet") / "python").mkdir(parents=True)
    (Path("darknet") / "python" / "more.py").write_text("found = 5\n")
    Path("script.py").write_text(
        "import darknet\nfrom darknet.python import more\nnet = darknet.load_net('net.cfg', 'net.weights', 0)\n"
        "print(darknet.network_width(net), more.found)\n"
    )
    assert script("script.py").stdout == "32 5\n"


def test_a_package_of_that_name_wins() -> None:
    Path("darknet").mkdir()
    (Path("darknet") / "__init__.py").write_text("mine = 7\n")
    Path("script.py").write_text("import darknet\nprint(darknet.mine)\n")
    assert script("script.py").stdout == "7\n"

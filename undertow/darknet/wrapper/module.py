"""What `import darknet` gives: the names of Darknet's python wrapper, of 2018 and of AlexeyAB's fork.

Names of files and of classes may be str or bytes. `detect` and `classify` give names as bytes, as in 2018;
`load_network` and `detect_image` as str, as in the fork.
"""

from __future__ import annotations

import ctypes as ct
import random
from collections.abc import Mapping, Sequence
from ctypes import POINTER as POINTER
from ctypes import c_float as c_float
from ctypes import c_int as c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.wrapper.library import Library
from undertow.darknet.wrapper.structures import BOX as BOX
from undertow.darknet.wrapper.structures import DETECTION as DETECTION
from undertow.darknet.wrapper.structures import DETNUMPAIR as DETNUMPAIR
from undertow.darknet.wrapper.structures import IMAGE as IMAGE
from undertow.darknet.wrapper.structures import METADATA as METADATA
from undertow.darknet.wrapper.structures import FloatPtr as FloatPtr
from undertow.darknet.wrapper.structures import IntPtr as IntPtr
from undertow.errors import UndertowError

Bounds = tuple[float, float, float, float]
DETECTIONPtr, DETNUMPAIRPtr = POINTER(DETECTION), POINTER(DETNUMPAIR)

lib: Any = Library()
load_net = lib.load_network
load_net_custom = lib.load_network_custom
free_network_ptr = lib.free_network_ptr
load_meta = lib.get_metadata
network_width, network_height = lib.network_width, lib.network_height
set_gpu, init_cpu, reset_rnn = lib.cuda_set_device, lib.init_cpu, lib.reset_rnn
predict, network_predict = lib.network_predict, lib.network_predict
predict_image, predict_image_letterbox = lib.network_predict_image, lib.network_predict_image_letterbox
network_predict_batch = lib.network_predict_batch
get_network_boxes, make_network_boxes = lib.get_network_boxes, lib.make_network_boxes
do_nms_obj, do_nms_sort = lib.do_nms_obj, lib.do_nms_sort
free_detections, free_batch_detections, free_ptrs = lib.free_detections, lib.free_batch_detections, lib.free_ptrs
make_image, load_image, free_image = lib.make_image, lib.load_image_color, lib.free_image
letterbox_image, rgbgr_image, copy_image_from_bytes = lib.letterbox_image, lib.rgbgr_image, lib.copy_image_from_bytes


def sample(probs: Sequence[float]) -> int:
    """A random index, each as likely as its number says; they need not sum to 1."""
    left = random.uniform(0, sum(probs))
    for i, value in enumerate(probs):
        left -= value
        if left <= 0:
            return i
    return len(probs) - 1


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """The values as a C array."""
    return (ctype * len(values))(*values)


def classify(net: int, meta: METADATA, im: IMAGE) -> list[tuple[bytes, float]]:
    """(name, probability) of every class, the likeliest first."""
    out = predict_image(net, im)
    return sorted(((meta.names[i], out[i]) for i in range(meta.classes)), key=lambda pair: -pair[1])


def detect(
    net: int, meta: METADATA, image: str | bytes, thresh: float = 0.5, hier_thresh: float = 0.5, nms: float = 0.45
) -> list[tuple[bytes, float, Bounds]]:
    """(name, confidence, (x, y, w, h) in pixels) of what is in a picture file, the surest first."""
    im = load_image(image, 0, 0)
    try:
        names = [meta.names[i] for i in range(meta.classes)]
        return sorted(_detected(net, names, im, thresh, hier_thresh, nms, do_nms_obj), key=lambda found: -found[1])
    finally:
        free_image(im)


def detect_image(
    network: int,
    class_names: Sequence[str],
    image: IMAGE,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
) -> list[tuple[str, str, Bounds]]:
    """(name, confidence in percent as text, (x, y, w, h) in pixels), sorted by that text as the fork does."""
    found = _detected(network, class_names, image, thresh, hier_thresh, nms, do_nms_sort)
    return sorted(decode_detection(found), key=lambda one: one[1])


def _detected(
    net: int, names: Sequence[Any], im: IMAGE, thresh: float, hier: float, nms: float, suppress: Any
) -> list[Any]:
    count = ct.c_int(0)
    predict_image(net, im)
    dets = get_network_boxes(net, im.w, im.h, thresh, hier, None, 0, ct.pointer(count))
    try:
        if nms:
            suppress(dets, count.value, len(names), nms)
        return remove_negatives(dets, names, count.value)
    finally:
        free_detections(dets, count.value)


def load_network(
    config_file: str, data_file: str, weights: str, batch_size: int = 1
) -> tuple[int, list[str], dict[str, tuple[int, int, int]]]:
    """(network, names of the classes, a colour for each)."""
    network = load_net_custom(config_file, weights, 0, batch_size)
    meta = load_meta(data_file)
    names = [meta.names[i].decode("utf-8", "surrogateescape") for i in range(meta.classes)]
    return network, names, class_colors(names)


def class_colors(names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """A random colour (blue, green, red) for each name."""
    return {name: (random.randint(0, 255), random.randint(0, 255), random.randint(0, 255)) for name in names}


def bbox2points(bbox: Bounds) -> tuple[int, int, int, int]:
    """(x, y, w, h) -> left, top, right, bottom as whole pixels."""
    x, y, w, h = bbox
    return round(x - w / 2), round(y - h / 2), round(x + w / 2), round(y + h / 2)


def decode_detection(detections: Sequence[tuple[Any, float, Bounds]]) -> list[tuple[str, str, Bounds]]:
    """Confidences of 0..1 as text in percent."""
    return [(str(label), str(round(confidence * 100, 2)), bbox) for label, confidence, bbox in detections]


def non_max_suppression_fast(detections: Sequence[tuple[Any, ...]], overlap_thresh: float) -> list[tuple[Any, ...]]:
    """The tuples of (name, confidence, anything, (x, y, w, h)) left when each, from the lowest on the picture upwards,
    removes those it covers by more than this share of their own area. Pixels count: sides are one longer.
    """
    left = sorted(range(len(detections)), key=lambda i: _sides(detections[i][3])[3])
    kept = []
    while left:
        best = left.pop()
        kept.append(detections[best])
        left = [i for i in left if _covered(detections[i][3], detections[best][3]) <= overlap_thresh]
    return kept


def _sides(box: Bounds) -> Bounds:
    x, y, w, h = box
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def _covered(box: Bounds, other: Bounds) -> float:
    """The share of a box that another one covers."""
    (left, top, right, bottom), (l2, t2, r2, b2) = _sides(box), _sides(other)
    across, down = min(right, r2) - max(left, l2) + 1, min(bottom, b2) - max(top, t2) + 1
    return max(across, 0) * max(down, 0) / ((right - left + 1) * (bottom - top + 1))


def remove_negatives(detections: Any, class_names: Sequence[Any], num: int) -> list[tuple[Any, float, Bounds]]:
    """(name, confidence, box) of every class above 0 in the first `num` boxes."""
    return [
        (name, detections[j].prob[i], _bounds(detections[j].bbox))
        for j in range(num)
        for i, name in enumerate(class_names[: detections[j].classes])
        if detections[j].prob[i] > 0
    ]


def remove_negatives_faster(detections: Any, class_names: Sequence[Any], num: int) -> list[tuple[Any, float, Bounds]]:
    """(name, confidence, box) of the best class of each box that has one."""
    best = [(detections[j], detections[j].best_class_idx) for j in range(num)]
    return [(class_names[i], one.prob[i], _bounds(one.bbox)) for one, i in best if i != -1]


def _bounds(box: BOX) -> Bounds:
    return box.x, box.y, box.w, box.h


def print_detections(detections: Sequence[tuple[str, str, Bounds]], coordinates: bool = False) -> None:
    """A line for each on stdout, with its box if wanted, in the fork's form."""
    print("\nObjects:")
    for label, confidence, (x, y, w, h) in detections:
        where = f"    (left_x: {x:.0f}   top_y:  {y:.0f}   width:   {w:.0f}   height:  {h:.0f})" if coordinates else ""
        print(f"{label}: {confidence}%{where}")


def draw_boxes(
    detections: Sequence[tuple[str, Any, Bounds]],
    image: NDArray[np.uint8],
    colors: Mapping[str, tuple[int, int, int]],
) -> NDArray[np.uint8]:
    """Draw boxes and names into the picture (h, w, 3), and return it. Raises UndertowError without OpenCV."""
    try:
        import cv2
    except ImportError:
        remedy = "pip install opencv-python-headless"
        raise UndertowError("draw_boxes draws with OpenCV, which is not installed", remedy=remedy) from None
    for label, confidence, bbox in detections:
        left, top, right, bottom = bbox2points(bbox)
        cv2.rectangle(image, (left, top), (right, bottom), colors[label], 1)
        text, place = f"{label} [{float(confidence):.2f}]", (left, top - 5)
        cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, colors[label], 2)
    return image

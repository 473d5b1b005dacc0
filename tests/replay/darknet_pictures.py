"""Replaying what Darknet does to pictures and boxes: loading, sizes, colours, augmentation, box arithmetic, trees."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.replay.compare import Comparison
from undertow.darknet.detection.boxes import box_iou, box_rmse
from undertow.darknet.files.tree import read_tree
from undertow.data import augment, colour, resize, rotate
from undertow.data.augment import ClassifierOptions, Colours, DetectionOptions
from undertow.data.crand import GlibcRandom
from undertow.data.images import load_image

Arrays = dict[str, np.ndarray]
Case = dict[str, Any]
Operation = Callable[..., np.ndarray]

# The standard leaves JPEG's inverse transform and chroma interpolation to the decoder: two decoders of the original
# differ by up to 2 grey levels from each other.
JPEG = 2.0001 / 255
AUGMENT_SEED = 77  # srand() before each of the loaders

_NUMBER = r"(-?\d*\.?\d+)"


def replay_images(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """FILE/cN/load_image: pictures read with N channels; FOLDER/resize_WxH and letterbox_WxH of FOLDER/image."""
    for name, recorded in arrays.items():
        file, _, rest = name.partition("/")
        channels = re.fullmatch(r"c(\d)/load_image(?:_stb)?", rest)
        sized = re.fullmatch(r"(resize|letterbox)_(\d+)x(\d+)", rest)
        if channels:
            lossy = Path(file).suffix in (".jpg", ".jpeg")
            found = load_image(folder / file, int(channels[1]))
            result.arrays(name, found, recorded, tolerance=JPEG / float(recorded.max()) if lossy else None)
        elif sized:
            function = resize.resize_image if sized[1] == "resize" else resize.letterbox_image
            result.arrays(name, function(arrays[f"{file}/image"], int(sized[2]), int(sized[3])), recorded)


def replay_operations(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """Every array is named by the operation that gives it, with its arguments; it starts from `image`."""
    tree = read_tree(folder / "net.tree")
    for name, recorded in arrays.items():
        part, _, rest = name.rpartition("/")
        if part == "box" and rest != "xywh":
            result.arrays(name, BOXES[rest](arrays["box/xywh"]), recorded)
        elif part == "tree" and hasattr(tree, rest) and rest != "predictions":
            result.arrays(name, getattr(tree, rest), recorded)
        elif part == "" and name != "image":
            result.arrays(name, _picture(name, arrays["image"]), recorded)
    given = arrays["tree/predictions"]
    result.arrays("tree/hierarchy", tree.predictions(given), arrays["tree/hierarchy"])
    result.arrays("tree/leaves_only", tree.predictions(given, only_leaves=True), arrays["tree/leaves_only"])
    top = [tree.top_prediction(given, float(threshold)) for threshold in arrays["tree/top_thresh"]]
    result.text("tree/top", top, arrays["tree/top"].tolist())


def _picture(name: str, image: np.ndarray) -> np.ndarray:
    """The picture that an operation's name asks for."""
    for pattern, operation in PICTURES.items():
        match = re.fullmatch(pattern, name)
        if match:
            return operation(image, *[float(group) for group in match.groups() if group is not None])
    raise KeyError(f"no operation is known for '{name}'")


def _integers(function: Callable[..., np.ndarray]) -> Operation:
    return lambda image, *numbers: function(image, *map(int, numbers))


def _placed(image: np.ndarray, width: float, height: float, dx: float, dy: float, w: float, h: float) -> np.ndarray:
    canvas = np.full((len(image), int(h), int(w)), 0.5, np.float32)
    resize.place_image(image, int(width), int(height), int(dx), int(dy), canvas)
    return canvas


def _turned(image: np.ndarray, width: float, height: float, times: float) -> np.ndarray:
    return resize.rotate_image_cw(resize.center_crop_image(image, int(width), int(height)), int(times))


def _rotated(image: np.ndarray, angle: float, scale: float, width: float, height: float, *rest: float) -> np.ndarray:
    return rotate.rotate_crop_image(image, angle, scale, int(width), int(height), *rest)


# By the form of the name; numbers in it are the arguments.
PICTURES: dict[str, Operation] = {
    "flip_image": resize.flip_image,
    "rgb_to_hsv": colour.rgb_to_hsv,
    "hsv_round_trip": lambda image: colour.hsv_to_rgb(colour.rgb_to_hsv(image)),
    f"distort_h{_NUMBER}_s{_NUMBER}_v{_NUMBER}": colour.distort_image,
    "rgbgr_image": colour.rgbgr_image,
    "normalize_image": colour.normalize_image,
    r"center_crop_(\d+)x(\d+)_rotate_image_cw_(\d)": _turned,
    r"resize_max_(\d+)": _integers(resize.resize_max),
    r"resize_min_(\d+)": _integers(resize.resize_min),
    r"center_crop_(\d+)x(\d+)": _integers(resize.center_crop_image),
    r"crop_(?:outside_)?(-?\d+)_(-?\d+)_(\d+)x(\d+)": _integers(resize.crop_image),
    rf"rotate_crop_r{_NUMBER}_s{_NUMBER}_(\d+)x(\d+)(?:_dx{_NUMBER}_dy{_NUMBER}_a{_NUMBER})?": _rotated,
    rf"rotate_image_{_NUMBER}": rotate.rotate_image,
    "grayscale_image": colour.grayscale_image,
    rf"threshold_image_{_NUMBER}": colour.threshold_image,
    r"place_(\d+)x(\d+)_(-?\d+)_(-?\d+)_on_(\d+)x(\d+)": _placed,
}


def _corrected(boxes: np.ndarray, flip: bool) -> np.ndarray:
    """correct_boxes with dx=.1, dy=-.2, sx=1.3, sy=.7; one box lies on the corner, to show what becomes of it."""
    boxes = boxes.copy()
    boxes[3, :2] = 0
    return augment.correct_boxes(boxes, 0.1, -0.2, 1.3, 0.7, flip)


BOXES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "iou": lambda boxes: box_iou(boxes[:, None], boxes),
    "rmse": lambda boxes: box_rmse(boxes[:, None], boxes),
    "correct": lambda boxes: _corrected(boxes, False),
    "correct_flip": lambda boxes: _corrected(boxes, True),
}


def replay_augmentation(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """The C library's numbers, then NAME/X and NAME/y of loaders that draw from them; options are in case.json."""
    random = GlibcRandom(AUGMENT_SEED)
    result.arrays("rand", [random.rand() for _ in arrays["rand"]], arrays["rand"])
    for name in sorted({key.partition("/")[0] for key in arrays if "/" in key}):
        options, random = case[name], GlibcRandom(AUGMENT_SEED)
        paths = [folder / case["paths"][random.index(len(case["paths"]))] for _ in range(options["n"])]
        if "jitter" in options:
            samples = [_detected(path, options, random) for path in paths]
        else:
            labels = options.get("labels") or case["classify"]["labels"]
            samples = [_classified(path, options, labels, random) for path in paths]
        for key, parts in zip(("X", "y"), zip(*samples, strict=True), strict=True):
            result.arrays(f"{name}/{key}", np.stack(parts), arrays[f"{name}/{key}"])


def _colours(options: Case) -> Colours:
    return Colours(options["hue"], options["saturation"], options["exposure"])


def _detected(path: Path, options: Case, random: GlibcRandom) -> tuple[np.ndarray, np.ndarray]:
    text = (path.parent.parent / "labels" / path.name).with_suffix(".txt").read_text(encoding="utf-8")
    rows = [[float(word) for word in line.split()] for line in text.splitlines()]
    boxes = np.array([[x, y, w, h, label] for label, x, y, w, h in rows], np.float32)
    chosen = DetectionOptions(options["jitter"], _colours(options))
    size = options["w"], options["h"]
    return augment.augment_detection(load_image(path), boxes, size, chosen, random, options["boxes"])


def _classified(path: Path, options: Case, labels: list[str], random: GlibcRandom) -> tuple[np.ndarray, np.ndarray]:
    chosen = ClassifierOptions(
        options["min"],
        options["max"],
        options["size"],
        options["angle"],
        options["aspect"],
        _colours(options),
        bool(options["center"]),
    )
    picture = augment.augment_classifier(load_image(path), chosen, random)
    return picture, np.array([label in str(path.name) for label in labels], np.float32)

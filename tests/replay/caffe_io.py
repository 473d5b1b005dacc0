"""Replaying caffe.io: pictures, resizing, Transformer, oversample, messages. `io_classifier` is a plain pass."""

from __future__ import annotations

import functools
from pathlib import Path
from unittest import mock

import numpy as np

from tests.replay.caffe import Arrays, Closeness, load_trace
from undertow.caffe import io
from undertow.caffe.proto import parse_bytes
from undertow.caffe.proto.schema import get_schema


def replay_io(folder: Path, result: Closeness) -> None:
    """Every function with the inputs that the case names, from its files or its arrays."""
    arrays = load_trace(folder)
    for name in (key for key in arrays if key.startswith("load_image/")):
        _, file, color = name.split("/")
        result.arrays(name, io.load_image(file, color == "color"), arrays[name])
    rgb, grey = io.load_image("rgb.png"), io.load_image("gray.png", False)
    for kind, smooth in (("anti_aliasing_default", True), ("anti_aliasing_off", False)):
        with mock.patch.object(io, "resize_image", functools.partial(io.resize_image, anti_aliasing=smooth)):
            _resizes(f"{kind}/resize_image/", rgb, grey, arrays, result)
            _transforms(f"{kind}/transformer/", rgb, arrays, result)
    result.arrays("zoom", io.resize_image(arrays["zoom/in"], (9, 5)), arrays["zoom/resize_image_5ch"])
    result.arrays("oversample/odd", io.oversample([rgb], (7, 9)), arrays["oversample/odd"])
    result.arrays("oversample/even", io.oversample([rgb, rgb[::-1]], (6, 8)), arrays["oversample/even"])
    plain = io.Transformer({"data": (1, 3, 11, 14)})
    _set(plain, arrays["transformer/full_mean"])
    result.arrays("no_resize", plain.preprocess("data", rgb), arrays["transformer/no_resize"])
    _messages(arrays, result)


def _resizes(prefix: str, rgb: np.ndarray, grey: np.ndarray, arrays: Arrays, result: Closeness) -> None:
    constant = np.full((5, 5, 3), np.float32(0.3))
    calls = {
        "constant": (constant, (2, 3), 1),
        "down": (rgb, (6, 7), 1),
        "nearest": (rgb, (5, 20), 0),
        "one_channel": (grey, (6, 7), 1),
        "same": (rgb, (11, 14), 1),
        "up": (rgb, (17, 25), 1),
    }
    for name, (image, size, order) in calls.items():
        result.arrays(prefix + name, io.resize_image(image, size, order), arrays[prefix + name])


def _set(transformer: io.Transformer, mean: np.ndarray, input_scale: float | None = None) -> None:
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 1, 0))
    transformer.set_raw_scale("data", 255)
    transformer.set_mean("data", mean)
    if input_scale is not None:
        transformer.set_input_scale("data", input_scale)


def _transforms(prefix: str, rgb: np.ndarray, arrays: Arrays, result: Closeness) -> None:
    transformer = io.Transformer({"data": (1, 3, 8, 9)})
    transformer.set_mean("data", arrays["transformer/mean_in"])
    result.arrays(f"{prefix}mean", transformer.mean["data"], arrays[f"{prefix}resized_mean"])
    _set(transformer, np.array([104.0, 117.0, 123.0]), 0.017)
    result.arrays(f"{prefix}preprocess", transformer.preprocess("data", rgb), arrays[f"{prefix}preprocess"])
    back = transformer.deprocess("data", arrays[f"{prefix}preprocess"])
    result.arrays(f"{prefix}deprocess", back, arrays[f"{prefix}deprocess"])


def _messages(arrays: Arrays, result: Closeness) -> None:
    """Each from the original's bytes, and the original's bytes from each (protobuf's classes write them)."""
    for kind in ("legacy", "shape"):
        blob = parse_bytes(Path(f"{kind}_blob.binaryproto").read_bytes(), get_schema()["BlobProto"])
        for what in ("data", "diff"):
            ours = io.blobproto_to_array(blob, return_diff=what == "diff").astype(np.float32)
            result.arrays(f"{kind} {what}", ours, arrays[f"blobproto/{kind}_{what}"])
    made = io.array_to_blobproto(arrays["blobproto/shape_data"], arrays["blobproto/shape_diff"])
    result.text("blob", made.SerializeToString() == Path("shape_blob.binaryproto").read_bytes(), True)
    text = Path("vector.binaryproto").read_bytes()
    vector = [arrays["blobprotovector/0"], arrays["blobprotovector/1"]]
    for ours, recorded in zip(io.blobprotovector_str_to_arraylist(text), vector, strict=True):
        result.arrays("vector", ours.astype(np.float32), recorded)
    result.text("vector", io.arraylist_to_blobprotovector_str(vector) == text, True)
    for kind in ("uint8", "float"):
        text = Path(f"datum_{kind}.pb").read_bytes()
        datum = parse_bytes(text, get_schema()["Datum"])
        array = io.datum_to_array(datum)
        result.arrays(f"datum {kind}", array.astype(np.float32), arrays[f"datum/{kind}"])
        again = io.array_to_datum(array, datum.label)
        result.text(f"datum {kind}", again.SerializeToString() == text, True)

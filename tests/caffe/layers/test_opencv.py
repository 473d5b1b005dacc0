"""Layers of forks against OpenCV's importer of Caffe nets, an independent reader and computer of the same files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.net.texts import layer
from undertow.caffe.net import Net
from undertow.caffe.proto import write_caffemodel

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed: pip install 'opencv-python-headless>=4.8,<5'")
if not hasattr(cv2.dnn, "readNetFromCaffe"):
    pytest.skip("this OpenCV has no importer of Caffe nets: install opencv-python-headless below 5",
                allow_module_level=True)  # fmt: skip

Shape = tuple[int, ...]


def both(
    folder: Path, values: dict[str, np.ndarray], *layers: str, theirs_given: dict[str, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The blob y of the same prototxt and caffemodel, computed here and by OpenCV (from its own inputs, if given)."""
    head = [
        f'input: "{name}" input_shape {{ {" ".join(f"dim: {length}" for length in value.shape)} }}'
        for name, value in values.items()
    ]
    text, weights = folder / "net.prototxt", folder / "net.caffemodel"
    text.write_text("\n".join(['name: "n"', *head, *layers]), encoding="utf-8")
    ours, rng = Net(text, "TEST", seed=1), np.random.default_rng(5)
    for blob in (blob for blobs in ours.params.values() for blob in blobs):
        blob.data[...] = rng.uniform(0.5, 1.5, blob.shape)
    write_caffemodel(ours.to_message(), weights)
    theirs = cv2.dnn.readNetFromCaffe(str(text), str(weights))
    for name, value in values.items():
        ours.blobs[name].data[...] = value
        theirs.setInput(np.ascontiguousarray((theirs_given or values)[name]), name)
    ours.forward()
    return ours.blobs["y"].data, theirs.forward("y")


ONE_BOTTOM = [
    ("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    ("Normalize", "norm_param { across_spatial: false channel_shared: false }"),
    ("Normalize", "norm_param { across_spatial: true channel_shared: true }"),
    ("Flatten", "flatten_param { axis: 1 }"),
    ("Flatten", "flatten_param { axis: 2 end_axis: 3 }"),
    ("ReLU6", ""),
    ("ShuffleChannel", "shuffle_channel_param { group: 3 }"),
    ("Interp", "interp_param { height: 7 width: 9 }"),
    ("Interp", "interp_param { height: 2 width: 3 }"),
    ("Interp", "interp_param { zoom_factor: 2 }"),
    ("ConvolutionDepthwise", "convolution_param { num_output: 6 kernel_size: 3 pad: 1 stride: 2 }"),
    ("Convolution", "convolution_param { num_output: 6 group: 6 kernel_size: 3 dilation: 2 pad: 2 }"),
    ("Deconvolution", "convolution_param { num_output: 6 group: 6 kernel_size: 4 stride: 2 pad: 1 bias_term: false }"),
]


@pytest.mark.parametrize(("kind", "options"), ONE_BOTTOM, ids=lambda value: value[:40])
def test_one_bottom(kind: str, options: str, rng: np.random.Generator, tmp_path: Path) -> None:
    x = (rng.standard_normal((2, 6, 4, 5)) * 4).astype(np.float32)
    ours, theirs = both(tmp_path, {"x": x}, layer("y", kind, "x", rest=options))
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_axpy(rng: np.random.Generator, tmp_path: Path) -> None:
    values = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in {"a": (1, 6, 1, 1), "x": (1, 6, 4, 5), "z": (1, 6, 4, 5)}.items()
    }
    # OpenCV takes a z + x where SENet's axpy_layer.hpp, the origin of this layer, has a x + z.
    swapped = {"a": values["a"], "x": values["z"], "z": values["x"]}
    ours, theirs = both(tmp_path, values, layer("y", "Axpy", "a x z"), theirs_given=swapped)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("extra", ["", "step: 8 offset: 0.25", "step_h: 20 step_w: 31"])
@pytest.mark.parametrize("clip", ["true", "false"])
def test_default_boxes(extra: str, clip: str, tmp_path: Path) -> None:
    values = {"x": np.zeros((1, 6, 4, 5), np.float32), "data": np.zeros((1, 3, 100, 150), np.float32)}
    options = (
        f"prior_box_param {{ min_size: 30 max_size: 60 aspect_ratio: 2 aspect_ratio: 3 flip: true clip: {clip} "
        f"variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 {extra} }}"
    )
    ours, theirs = both(tmp_path, values, layer("y", "PriorBox", "x data", rest=options))
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("code", ["CENTER_SIZE", "CORNER"])
@pytest.mark.parametrize("limits", ["keep_top_k: 10 confidence_threshold: 0.2", "keep_top_k: 200"])
def test_detections(code: str, limits: str, rng: np.random.Generator, tmp_path: Path) -> None:
    count = 40
    corners = rng.uniform(0, 0.6, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.4, (count, 2))], 1)
    values = {
        "loc": rng.standard_normal((2, count * 4)) * 0.3,
        "conf": rng.dirichlet(np.ones(3), (2, count)).reshape(2, -1),
        "prior": np.stack([boxes.reshape(-1), np.tile([0.1, 0.1, 0.2, 0.2], count)])[None],
    }
    options = (
        "detection_output_param { num_classes: 3 share_location: true background_label_id: 0 "
        f"nms_param {{ nms_threshold: 0.45 top_k: 50 }} code_type: {code} {limits} }}"
    )
    singles = {name: value.astype(np.float32) for name, value in values.items()}
    ours, theirs = both(tmp_path, singles, layer("y", "DetectionOutput", "loc conf prior", rest=options))
    # OpenCV fills up with rows of zeros to keep_top_k per image.
    found = theirs.reshape(-1, 7)
    found = found[found.any(1)]
    assert len(found) == len(ours[0, 0]) > 10
    np.testing.assert_allclose(by_rank(ours[0, 0]), by_rank(found), rtol=1e-5, atol=1e-5)


def by_rank(rows: np.ndarray) -> np.ndarray:
    """The rows by image, class and falling score."""
    return rows[np.lexsort((-rows[:, 2], rows[:, 1], rows[:, 0]))]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }"),
        ("PSROIPooling", "psroi_pooling_param { output_dim: 2 group_size: 2 spatial_scale: 0.5 }"),
    ],
)
def test_regions(kind: str, options: str, rng: np.random.Generator, tmp_path: Path) -> None:
    values = {
        "x": rng.standard_normal((1, 8, 6, 7)).astype(np.float32),
        "r": np.array([[0, 0, 0, 9, 7], [0, 4, 3, 5, 3], [0, 2, 1, 12, 11]], np.float32),
    }
    ours, theirs = both(tmp_path, values, layer("y", kind, "x r", rest=options))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

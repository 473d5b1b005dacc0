"""Against OpenCV's own reader of Darknet's files, where an OpenCV before 5 is installed (`readNetFromDarknet`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet.detection.decode import get_network_boxes
from undertow.darknet.dialect import ALEXEYAB
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.layers.layers_loss import HeadLayer
from undertow.darknet.network import Network
from undertow.kernels.reference.batchnorm import BatchNormRule, Scaling

OPENCV = replace(ALEXEYAB, batch_norm=BatchNormRule(Scaling(1e-6, "inside", "N-1")))


@pytest.mark.reference
@pytest.mark.parametrize("case", ["maxpool_spp_wide", "route_csp", "sam_branch", "yolo_new_coords", "e2e_yolov4_tiny"])
def test_outputs(case: str, tmp_path: Path, reference_data: Path) -> None:
    """The wide pooling too, of which the recorded program misses a part."""
    dnn = pytest.importorskip("cv2").dnn
    if not hasattr(dnn, "readNetFromDarknet"):
        pytest.skip("OpenCV 5 no longer reads Darknet's files")
    folder = reference_data / "goldens" / "alexeyab" / case
    cfg = tmp_path / "net.cfg"
    cfg.write_text((folder / "net.cfg").read_text().partition("[cost]")[0])  # which OpenCV does not know
    with np.load(folder / "trace.npz") as archive:
        images = archive["infer/input" if "infer/input" in archive.files else "it0/input"]
    theirs = dnn.readNetFromDarknet(str(cfg), str(folder / "init.weights"))
    theirs.setInput(images)
    names = theirs.getUnconnectedOutLayersNames()
    ours = Network(read_cfg(cfg), OPENCV)
    ours.load_weights(folder / "init.weights")
    ours.predict(images)
    for name, expected in zip(names, theirs.forward(names), strict=True):
        layer = ours.layers[int(name.rpartition("_")[2])]
        found = _boxes(ours, layer, len(images)) if isinstance(layer, HeadLayer) else layer.output
        expected = expected.reshape(found.shape)
        shown = expected != 0  # OpenCV leaves out what is not probable
        assert shown.any()
        np.testing.assert_allclose(found[shown], expected[shown], rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def _boxes(net: Network, layer: HeadLayer, batch: int) -> np.ndarray:
    """All boxes of a head in OpenCV's form: x, y, w, h, objectness, probabilities."""
    size = net.w, net.h
    parts = [get_network_boxes([layer.head()], size, size, -1.0, letterbox=False, index=i) for i in range(batch)]
    rows = [np.concatenate([p.boxes, p.objectness[:, None], p.probabilities], axis=1) for p in parts]
    return np.concatenate(rows)

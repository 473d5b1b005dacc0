"""Nets with recorded numbers of the original programs: every layer's story is told, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from undertow.inspect.explain import explain
from undertow.inspect.story import story
from undertow.scope.document import document
from undertow.scope.recording import Request, record

DARKNET = ("act_leaky", "conv_xnor", "crnn", "gru", "local", "detection", "e2e_yolov2", "e2e_yolov3_cut", "deconv")
CAFFE = (
    "arch_resnet", "layer_lstm_static", "layer_rnn_state_carried", "layer_lrn_across", "loss_hinge_l2_weight",
    "layer_crop_center_offsets", "layer_eltwise_prod", "layer_softmax_2d", "net_shared_permissive",
)  # fmt: skip


@pytest.mark.parametrize("name", [f"darknet/{name}/net.cfg" for name in DARKNET] + [
    f"caffe/{name}/net.prototxt" for name in CAFFE
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_every_layers_story(name: str, reference_data: Path) -> None:
    path = reference_data / "goldens" / name
    if not path.exists():
        pytest.skip("this net is not among the reference data")
    found = explain(path)
    errors = []
    for layer in found.records:
        told = "\n".join(story(found, layer.index))
        errors += [float(x) for x in re.findall(r"largest relative difference between the two: (\S+)", told)]
    assert errors
    assert max(errors) < 1e-4
    told = document(record(Request(str(path))), live=False)
    assert len(told["layers"]) == len(found.records)

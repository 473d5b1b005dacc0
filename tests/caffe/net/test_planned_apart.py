"""Nets with layers that no plan can have: a plan up to the first of them, then layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.net.texts import inputs, layer
from undertow.caffe.layer import Layer
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text
from undertow.caffe.table import LAYER_TYPES, LayerType, register_layer

FILL = 'weight_filler { type: "gaussian" std: 0.3 }'


def conv(name: str, bottom: str, outputs: int = 4) -> str:
    rest = f"convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 {FILL} }}"
    return layer(name, "Convolution", bottom, rest=rest)


def head(name: str, outputs: int) -> str:
    return "\n".join((
        conv(name, "c1", outputs),
        layer(f"{name}_perm", "Permute", name, rest="permute_param { order: 0 order: 2 order: 3 order: 1 }"),
        layer(f"{name}_flat", "Flatten", f"{name}_perm"),
    ))  # fmt: skip


DETECTOR = "\n".join((
    inputs(data=(2, 3, 8, 8)), conv("c1", "data"), layer("relu", "ReLU", "c1", "c1"), head("loc", 4), head("conf", 3),
    layer("prior", "PriorBox", "c1 data", rest="prior_box_param { min_size: 3 variance: 0.1 }"),
    layer("softmax", "Softmax", "conf_flat"),
    layer("found", "DetectionOutput", "loc_flat softmax prior", rest="""detection_output_param { num_classes: 3
        confidence_threshold: 0.0053 nms_param { nms_threshold: 0.4 } code_type: CENTER_SIZE }"""),
))  # fmt: skip


class Choosy(caffe.Layer):
    """Gives the items whose sum is above 0, and counts its calls: another shape in each pass."""

    calls: list[str] = []  # noqa: RUF012

    def setup(self, bottom, top):
        self.calls.append("setup")
        self.seen = 0

    def reshape(self, bottom, top):
        self.calls.append("reshape")
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        self.calls.append(f"forward {self.seen}")
        self.seen += 1
        chosen = bottom[0].data[bottom[0].data.sum(axis=(1, 2, 3)) > 0]
        top[0].reshape(max(1, len(chosen)), *bottom[0].shape[1:])
        top[0].data[...] = chosen if len(chosen) else 0


def made(text: str, keep_all: bool = True) -> Net:
    net = Net(parse_text(text, "NetParameter"), "TEST", seed=1, python=lambda module, name: Choosy)
    net.plans.keep_all = keep_all
    return net


def fill(net: Net, turn: int) -> None:
    rng = np.random.default_rng(turn)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape) * (1 + turn)


def hold(planned: Net, plain: Net, run: Callable[[Net], float], names: list[str]) -> set[tuple[int, ...]]:
    """The shapes of the output in four passes, which are equal in both nets."""
    shapes = set()
    for turn in range(4):
        fill(planned, turn)
        fill(plain, turn)
        loss = run(planned)
        np.testing.assert_allclose(loss, plain.forward_from_to(0, len(plain.layers) - 1), rtol=1e-5)
        for name in names:
            np.testing.assert_allclose(planned.blobs[name].data, plain.blobs[name].data, rtol=1e-4, atol=1e-5)
        shapes.add(planned.blobs[planned.outputs[-1]].shape)
    assert len(planned.plans._plans) == 1
    return shapes


@pytest.mark.parametrize("keep_all", [True, False])
def test_detections_come_after_a_plan(keep_all: bool) -> None:
    planned, plain = made(DETECTOR, keep_all), made(DETECTOR)
    names = list(plain.blobs) if keep_all else ["data", "loc_flat", "softmax", "prior", "found"]
    assert len(hold(planned, plain, Net.evaluate, names)) > 1


@pytest.mark.parametrize("run", [Net.evaluate, Net.forward])
def test_python_in_the_middle_is_called_as_layer_by_layer(run: Callable[[Net], float]) -> None:
    text = "\n".join((
        inputs(data=(6, 3, 4, 4)), conv("c1", "data"), conv("c2", "c1"),
        layer("choosy", "Python", "c2", rest='python_param { module: "m" layer: "Choosy" }'),
        conv("c3", "choosy"), layer("relu", "ReLU", "c3", "c3"), layer("sum", "Reduction", "c3"),
        layer("out", "Power", "c3"),
    ))  # fmt: skip
    text = f"{text} layer {{ name: 'quiet' type: 'Silence' bottom: 'sum' }}"
    calls = []
    for net in (made(text), made(text)):
        Choosy.calls.clear()
        for turn in range(4):
            fill(net, turn)
            if not calls:
                net.forward_from_to(0, len(net.layers) - 1)
            else:
                run(net)
        calls.append(list(Choosy.calls))
    assert calls[0] == calls[1]
    if run is Net.evaluate:  # in phase TEST too layers with parameters could be asked for a way back
        assert len(hold(made(text), made(text), run, ["c1", "c2", "choosy", "c3", "out"])) > 1


class Doubled(Layer):
    """y = 2 x."""

    def compute(self, bottom, params):
        return bottom[0] * 2


@pytest.fixture
def doubled() -> Iterator[None]:
    register_layer("Doubled", LayerType(Doubled))
    yield
    del LAYER_TYPES["Doubled"]


def test_types_of_the_users_run_by_themselves(doubled: None) -> None:
    text = "\n".join((inputs(data=(2, 3, 8, 8)), conv("c1", "data"), layer("y", "Doubled", "c1"), conv("z", "y")))
    hold(made(text), made(text), Net.evaluate, ["c1", "y", "z"])


def test_a_way_back_after_such_a_pass(doubled: None) -> None:
    text = "\n".join((
        "force_backward: true", inputs(data=(2, 3, 8, 8)), conv("c1", "data"), layer("y", "Doubled", "c1"),
        conv("z", "y"), layer("sum", "Reduction", "z", rest="loss_weight: 1 reduction_param { operation: SUMSQ }"),
    ))  # fmt: skip
    nets = made(text), made(text)
    for net in nets:
        fill(net, 0)
    nets[0].evaluate()
    assert nets[0].plans._plans
    nets[1].forward_from_to(0, len(nets[1].layers) - 1)
    for net in nets:
        net.backward()
    for mine, theirs in zip(nets[0].learnable_params, nets[1].learnable_params, strict=True):
        np.testing.assert_allclose(mine.diff, theirs.diff, rtol=1e-4, atol=1e-6)
        assert mine.diff.any()


def test_a_training_with_such_a_layer_has_no_plan() -> None:
    net = made("force_backward: true " + inputs(data=(2, 3, 8, 8)) + conv("c1", "data") + layer(
        "choosy", "Python", "c1", rest='python_param { module: "m" layer: "Choosy" }'))  # fmt: skip
    fill(net, 0)
    assert net.plans.reason is not None
    assert "is Python code" in net.plans.reason
    net.forward_backward()
    assert not net.plans._plans

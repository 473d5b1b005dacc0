"""A net's passes as a plan give what the layers give one by one, and blobs can be read and written as ever."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow.caffe.layer import Layer
from undertow.caffe.net import Net
from undertow.core.modes import precision
from undertow.errors import GraphError, ShapeError

DATA = """
layer {{ name: "data" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: 6 dim: {channels} dim: {size} dim: {size} }} shape {{ dim: 6 }} }} }}
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "out" bottom: "label" top: "loss" }'
FILL = 'weight_filler { type: "gaussian" std: 0.2 } bias_filler { type: "uniform" min: -0.3 max: 0.3 }'


def conv(name, bottom, outputs=8, size=3, more=""):
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
        f"convolution_param {{ num_output: {outputs} kernel_size: {size} {FILL} {more} }} }}"
    )


def dense(name, bottom, outputs=5):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" '
        f"inner_product_param {{ num_output: {outputs} {FILL} }} }}"
    )


def simple(kind, bottom, top, more="", name=None):
    return f'layer {{ name: "{name or top + kind}" type: "{kind}" bottom: "{bottom}" top: "{top}" {more} }}'


POOL = "pooling_param { pool: %s kernel_size: 3 stride: 2 }"
NETS = {
    "conv, pooling, relu in place": [
        conv("c1", "data", 8, 5),
        simple("Pooling", "c1", "p1", POOL % "MAX"),
        simple("ReLU", "p1", "p1"),
        conv("c2", "p1", 12, more="pad: 1"),
        simple("ReLU", "c2", "c2"),
        simple("Pooling", "c2", "p2", POOL % "AVE"),
        dense("f1", "p2", 20),
        simple("ReLU", "f1", "f1", "relu_param { negative_slope: 0.1 }"),
        dense("out", "f1"),
    ],
    "branches": [
        conv("c1", "data", 8, more="pad: 1"),
        simple("ReLU", "c1", "c1"),
        conv("a", "c1", 4, 1),
        conv("b", "c1", 4, 3, "pad: 1 group: 2"),
        simple("LRN", "b", "n"),
        'layer { name: "j" type: "Concat" bottom: "a" bottom: "n" top: "j" }',
        'layer { name: "s" type: "Eltwise" bottom: "j" bottom: "c1" top: "s" }',
        simple("ReLU", "s", "s"),
        'layer { name: "m" type: "Eltwise" bottom: "s" bottom: "c1" top: "m" eltwise_param { operation: MAX } }',
        'layer { name: "cut" type: "Slice" bottom: "m" top: "x" top: "y" }',
        simple("Sigmoid", "x", "x2"),
        'layer { name: "p" type: "Eltwise" bottom: "x2" bottom: "y" top: "p" eltwise_param { operation: PROD } }',
        dense("out", "p"),
    ],
    "batch norm, scale, dropout in place": [
        conv("c1", "data", 8, more="bias_term: false"),
        simple("BatchNorm", "c1", "c1"),
        simple("Scale", "c1", "c1", "scale_param { bias_term: true }"),
        simple("ReLU", "c1", "c1"),
        simple("Dropout", "c1", "c1"),
        simple("Deconvolution", "c1", "d", f"convolution_param {{ num_output: 4 kernel_size: 2 stride: 2 {FILL} }}"),
        simple("PReLU", "d", "d2"),
        dense("f", "d2", 12),
        simple("TanH", "f", "f"),
        dense("out", "f"),
    ],
    "batch norm everywhere": [
        conv("c1", "data", 8, more="bias_term: false"),
        simple("BatchNorm", "c1", "c1"),
        simple("Scale", "c1", "c1", "scale_param { bias_term: true filler { value: 0.7 } bias_filler { value: 0.1 } }"),
        simple("ReLU", "c1", "c1", "relu_param { negative_slope: 0.2 }"),
        conv("c2", "c1", 8, more="pad: 1 bias_term: false"),
        simple("BatchNorm", "c2", "b2"),
        simple("Scale", "b2", "b2", "scale_param { bias_term: true }"),
        simple("ReLU", "b2", "b2"),
        conv("c3", "b2", 8, more="pad: 1 bias_term: false"),
        simple("BatchNorm", "c3", "c3", "batch_norm_param { use_global_stats: true }"),
        simple("Scale", "c3", "c3", "scale_param { filler { value: 1.5 } }"),
        'layer { name: "sum" type: "Eltwise" bottom: "c3" bottom: "b2" top: "sum" }',
        simple("ReLU", "sum", "sum"),
        simple("BatchNorm", "sum", "n"),
        conv("c4", "n", 8, more="bias_term: false"),
        simple("BatchNorm", "c4", "c4"),
        simple("ReLU", "c4", "c4"),
        dense("out", "c4"),
    ],
    "several tops and losses": [
        'layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" param { lr_mult: 0 } param { lr_mult: 1 } '
        f"convolution_param {{ num_output: 6 kernel_size: 3 {FILL} }} }}",
        'layer { name: "p" type: "Pooling" bottom: "c1" top: "p" top: "mask" '
        "pooling_param { pool: MAX kernel_size: 2 stride: 2 } }",
        simple("Silence", "mask", "", name="quiet").replace('top: ""', ""),
        simple("Flatten", "p", "flat"),
        dense("out", "flat"),
        dense("other", "flat", 3),
        'layer { name: "e" type: "Reduction" bottom: "other" top: "e" loss_weight: 0.3 '
        "reduction_param { operation: SUMSQ } }",
        'layer { name: "accuracy" type: "Accuracy" bottom: "out" bottom: "label" top: "accuracy" }',
    ],
    "shared parameters": [
        simple("InnerProduct", "data", "f1", f'param {{ name: "w" }} inner_product_param {{ num_output: 7 {FILL} }}'),
        simple("Sigmoid", "data", "s"),
        simple("InnerProduct", "s", "f2", f'param {{ name: "w" }} inner_product_param {{ num_output: 7 {FILL} }}'),
        'layer { name: "d" type: "Eltwise" bottom: "f1" bottom: "f2" top: "d" eltwise_param { coeff: 1 coeff: -1 } }',
        dense("out", "d"),
    ],
}


def build(tmp_path, layers, dialect="exact", phase="TRAIN", size=12, loss=LOSS, extra=""):
    path = tmp_path / "net.prototxt"
    path.write_text("\n".join([extra, DATA.format(channels=3, size=size), *layers, loss]))
    net = Net(path, phase, dialect=dialect, seed=3)
    for layer in net.layers:
        if layer.type == "BatchNorm":
            for blob, value in zip(layer.blobs, (0.1, 1.5, 1), strict=True):
                blob.data[...] = value
    rng = np.random.default_rng(5)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
    net.blobs["label"].data[...] = rng.integers(0, 5, 6)
    return net


def one_by_one(net: Net) -> float:
    loss = net.forward_from_to(0, len(net.layers) - 1)
    net.backward()
    return loss


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / (np.abs(b).max() + 1e-12)) if a.size else 0.0


def assert_same(planned: Net, plain: Net, tolerance=2e-5):
    for name, blob in plain.blobs.items():
        assert distance(planned.blobs[name].data, blob.data) < tolerance, f"data of {name}"
        assert distance(planned.blobs[name].diff, blob.diff) < tolerance, f"diff of {name}"
    for name, blobs in plain.params.items():
        for index, blob in enumerate(blobs):
            assert distance(planned.params[name][index].diff, blob.diff) < tolerance, f"diff of {name}[{index}]"
            assert distance(planned.params[name][index].data, blob.data) < tolerance, f"data of {name}[{index}]"


@pytest.fixture
def pair(tmp_path):
    def make(name, dialect="exact", **options):
        return [build(tmp_path, NETS[name], dialect, **options) for _ in range(2)]

    return make


@pytest.mark.parametrize("dialect", ["exact", "caffe"])
@pytest.mark.parametrize("name", NETS)
def test_every_blob_is_what_the_layers_give_one_by_one(pair, name, dialect):
    planned, plain = pair(name, dialect)
    for passes in (1, 1, 2):
        for net in (planned, plain):
            net.clear_param_diffs()
        for _ in range(passes):
            loss = planned.forward_backward()
            assert loss == pytest.approx(one_by_one(plain), rel=1e-5)
        assert_same(planned, plain, 5e-5)  # the loss falls fast: of 1 - p, where gradients come from, little is left
        for net in (planned, plain):
            for blob in net.learnable_params:
                blob.data[...] -= 0.05 * blob.diff
    assert planned.plans.reason is None
    assert len(planned.plans._plans) == 1


@pytest.mark.parametrize("name", NETS)
def test_evaluating_is_a_forward_pass(pair, name):
    planned, plain = pair(name, "caffe", phase="TEST")
    rng = np.random.default_rng(1)
    for _ in range(2):
        for name in planned.params:
            for mine, other in zip(planned.params[name], plain.params[name], strict=True):
                other.data[...] = np.abs(rng.standard_normal(other.shape)) + 0.5
                mine.data[...] = other.data
        assert planned.evaluate() == pytest.approx(plain.forward(), rel=1e-5, abs=1e-6)
        assert len(planned.plans._plans) == 1
        assert_same(planned, plain)
    for net in (planned, plain):
        net.backward()
    assert_same(planned, plain, tolerance=1e-4)


def test_a_planned_pass_is_a_replay_not_the_layers(pair, monkeypatch):
    planned, _ = pair("conv, pooling, relu in place")
    ran = []
    forward = Layer.forward
    monkeypatch.setattr(Layer, "forward", lambda self, *args: (ran.append(self.name), forward(self, *args))[1])
    planned.forward_backward()
    assert ran == ["loss"]


def test_arrays_taken_before_a_pass_are_the_blobs_after_it(pair):
    planned, plain = pair("branches")
    one_by_one(plain)
    planned.forward_backward()
    held = {name: (blob.data, blob.diff) for name, blob in planned.blobs.items()}
    weights = {name: [blob.diff for blob in blobs] for name, blobs in planned.params.items()}
    for net in (planned, plain):
        net.blobs["data"].data[...] *= -0.5
        net.clear_param_diffs()
    planned.forward_backward()
    one_by_one(plain)
    for name, blob in plain.blobs.items():
        assert distance(held[name][0], blob.data) < 2e-5
        assert distance(held[name][1], blob.diff) < 2e-5
        assert np.shares_memory(held[name][0], planned.blobs[name].data)
    for name, blobs in plain.params.items():
        assert all(distance(a, b.diff) < 2e-5 for a, b in zip(weights[name], blobs, strict=True))


def test_edited_parameters_and_loss_weights_count(pair):
    planned, plain = pair("several tops and losses")
    planned.forward_backward()
    for net in (planned, plain):
        net.clear_param_diffs()
        net.params["c1"][1].data[...] += 1
        net.params["out"][0].data[0] = 0
        net.blobs["loss"].diff[...] = 3
    assert planned.forward_backward() == pytest.approx(one_by_one(plain), rel=1e-5)
    assert_same(planned, plain)


@pytest.mark.parametrize(("name", "start"), [
    ("conv, pooling, relu in place", "f1ReLU"), ("batch norm, scale, dropout in place", "fTanH"),
])  # fmt: skip
def test_a_backward_pass_after_a_planned_one(pair, name, start):
    planned, plain = pair(name)
    for _ in range(2):
        one_by_one(plain)
        planned.forward_backward()
        for net in (planned, plain):
            net.clear_param_diffs()
            net.blobs[start.removesuffix("ReLU").removesuffix("TanH")].diff[...] = 1
            net.backward(start=start)
        assert_same(planned, plain)


def test_new_shapes_make_new_plans(pair):
    planned, plain = pair("branches")
    planned.forward_backward()
    for net in (planned, plain):
        net.blobs["data"].reshape(2, 3, 12, 12)
        net.blobs["label"].reshape(2)
        net.clear_param_diffs()
    assert planned.forward_backward() == pytest.approx(one_by_one_after_reshape(plain), rel=1e-5)
    assert_same(planned, plain)
    assert len(planned.plans._plans) == 2


def one_by_one_after_reshape(net):
    net.reshape()
    return one_by_one(net)


def test_gradients_of_inputs_where_they_are_asked_for(tmp_path):
    nets = [build(tmp_path, NETS["branches"], extra="force_backward: true") for _ in range(2)]
    for net in nets:
        net.clear_param_diffs()
    nets[0].forward_backward()
    one_by_one(nets[1])
    assert np.abs(nets[1].blobs["data"].diff).max() > 0
    assert_same(*nets)


@pytest.mark.parametrize("mode", ["fast", "precise"])
def test_precisions(pair, mode):
    planned, plain = pair("conv, pooling, relu in place")
    with precision(mode):
        planned.forward_backward()
    with precision("reference"):
        one_by_one(plain)
    assert_same(planned, plain, tolerance=1e-4)


def test_what_asks_to_see_the_layers_runs_them(pair):
    planned, _ = pair("branches")
    seen = []
    planned.after_forward.append(seen.append)
    planned.forward_backward()
    assert seen == list(range(len(planned.layers)))
    planned.after_forward.clear()
    with precision("reference"):
        planned.forward_backward()
    with ut.TimerHook() as timer:
        planned.forward_backward()
    assert timer.calls["Conv"] > 0
    assert not planned.plans._plans


def test_a_wrong_label_is_told_with_its_layer_and_the_next_pass_is_right(pair):
    planned, plain = pair("branches")
    planned.forward_backward()
    planned.blobs["label"].data[2] = 77
    with pytest.raises(ShapeError, match="label 77") as caught:
        planned.forward_backward()
    assert "'loss' (SoftmaxWithLoss)" in str(caught.value)
    planned.blobs["label"].data[2] = plain.blobs["label"].data[2]
    for net in (planned, plain):
        net.clear_param_diffs()
    assert planned.forward_backward() == pytest.approx(one_by_one(plain), rel=1e-5)
    assert_same(planned, plain)


def test_a_layer_in_place_on_shared_memory_is_not_planned_in_dialect_caffe(tmp_path):
    layers = [
        conv("c1", "data"),
        simple("ReLU", "c1", "r"),
        simple("Flatten", "c1", "flat"),
        simple("ReLU", "flat", "flat", name="inside"),
        simple("Flatten", "r", "flat2"),
        'layer { name: "j" type: "Concat" bottom: "flat" bottom: "flat2" top: "j" }',
        dense("out", "j"),
    ]
    net = build(tmp_path, layers, "caffe")
    assert "in place" in net.plans.reason
    net.forward_backward()
    assert build(tmp_path, layers, "exact").plans.reason is None


def test_a_net_without_backward_is_planned_at_forward(tmp_path, monkeypatch):
    softmax = simple("Softmax", "out", "prob")
    nets = [build(tmp_path, NETS["branches"], phase="TEST", loss=softmax) for _ in range(2)]
    found = nets[0].forward()
    assert len(nets[0].plans._plans) == 1
    assert nets[1].forward_from_to(0, len(nets[1].layers) - 1) == found == 0
    assert_same(*nets)
    nets[0].forward(start="f") if "f" in nets[0].layer_names else nets[0].forward(start="cut")
    assert_same(*nets)


def test_a_checked_plan(pair, monkeypatch):
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "2")
    planned, plain = pair("batch norm, scale, dropout in place")
    for _ in range(4):
        for net in (planned, plain):
            net.clear_param_diffs()
        assert planned.forward_backward() == pytest.approx(one_by_one(plain), rel=1e-5)
    assert_same(planned, plain)
    planned.forward_backward()
    backward = Layer.backward

    def spoiled(layer, top, bottom):
        backward(layer, top, bottom)
        if layer.name == "out":
            layer.blobs[0].diff[...] *= 2

    monkeypatch.setattr(Layer, "backward", spoiled)
    with pytest.raises(GraphError, match="parameter 0 of layer 'out'"):
        planned.forward_backward()

"""What users do between planned passes: looking, holding, writing, reshaping, sharing, interrupting."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest

from tests.caffe.net.test_planned import (
    NETS,
    assert_same,
    build,
    conv,
    dense,
    one_by_one,
    one_by_one_after_reshape,
    simple,
)
from undertow.caffe.layer import Layer
from undertow.caffe.net import Net
from undertow.caffe.planned import PassPlan
from undertow.caffe.table import LAYER_TYPES, LayerType, register_layer
from undertow.errors import ShapeError
from undertow.plans.unit_conv_pool import ConvPoolUnit


@pytest.fixture
def pair(tmp_path):
    def make(layers, dialect="exact", **options):
        layers = NETS[layers] if isinstance(layers, str) else layers
        return [build(tmp_path, layers, dialect, **options) for _ in range(2)]

    return make


def hold_equal(planned: Net, plain: Net, run=one_by_one) -> None:
    for net in (planned, plain):
        net.clear_param_diffs()
    assert planned.forward_backward() == pytest.approx(run(plain), rel=1e-5)
    assert_same(planned, plain)


def test_shapes_that_come_back(pair):
    nets = pair("branches")
    rng = np.random.default_rng(0)
    for batch in (6, 2, 6, 1, 2):
        images, labels = rng.standard_normal((batch, 3, 12, 12)), rng.integers(0, 5, batch)
        for net in nets:
            net.blobs["data"].reshape(*images.shape)
            net.blobs["label"].reshape(batch)
            net.blobs["data"].data[...] = images
            net.blobs["label"].data[...] = labels
        hold_equal(*nets, one_by_one_after_reshape)
        assert nets[0].shapes == nets[1].shapes
    assert len(nets[0].plans._plans) == 3


def test_blobs_between_that_a_user_has_reshaped(pair):
    planned, plain = pair("branches")
    hold_equal(planned, plain)
    for name, shape in {"s": (1, 1), "out": (2, 2, 2), "loss": (1,)}.items():
        planned.blobs[name].reshape(*shape)
    hold_equal(planned, plain)
    assert planned.shapes == plain.shapes


def test_views_of_blobs_follow_the_passes(pair):
    planned, plain = pair("branches")
    hold_equal(planned, plain)
    row, every_other = planned.blobs["c1"].data[1, 2], planned.blobs["c1"].diff.reshape(-1)[::2]
    bytes_of_m = memoryview(planned.blobs["m"].data)
    for net in (planned, plain):
        net.blobs["data"].data[...] *= 2
    hold_equal(planned, plain)
    np.testing.assert_allclose(row, plain.blobs["c1"].data[1, 2], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(every_other, plain.blobs["c1"].diff.reshape(-1)[::2], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.array(bytes_of_m), plain.blobs["m"].data, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dialect", ["exact", "caffe"])
def test_a_blob_written_into_and_passes_from_there(pair, dialect):
    planned, plain = pair("conv, pooling, relu in place", dialect)
    hold_equal(planned, plain)
    for net in (planned, plain):
        net.clear_param_diffs()
        net.blobs["p1"].data[...] = np.arange(net.blobs["p1"].count).reshape(net.blobs["p1"].shape) % 7 - 3
        net.forward(start="c2")
    assert_same(planned, plain)
    for net in (planned, plain):
        net.backward()
    assert_same(planned, plain)
    hold_equal(planned, plain)


@pytest.mark.parametrize("dialect", ["exact", "caffe"])
@pytest.mark.parametrize("name", NETS)
def test_backward_after_evaluate(pair, name, dialect):
    planned, plain = pair(name, dialect)
    for _ in range(2):
        assert planned.evaluate() == pytest.approx(plain.forward(), rel=1e-5)
        for net in (planned, plain):
            net.clear_param_diffs()
            net.backward()
        assert_same(planned, plain, tolerance=1e-4)


def in_place_on_data(pair):
    return pair(
        [
            simple("Scale", "data", "data", "scale_param { filler { value: 0.7 } }"),
            simple("Sigmoid", "data", "data"),
            dense("out", "data"),
        ]
    )


def test_layers_in_place_on_an_input_find_their_own_result_the_next_time(pair):
    planned, plain = in_place_on_data(pair)
    for _ in range(2):
        planned.forward_backward()
        one_by_one(plain)
    assert_same(planned, plain)


def test_the_second_run_of_layers_begins_with_what_the_input_was(pair):
    planned, plain = in_place_on_data(pair)
    assert planned.evaluate() == pytest.approx(plain.forward(), rel=1e-5)
    for net in (planned, plain):
        net.backward()
    assert_same(planned, plain)


def test_states_that_a_recurrent_layer_carries_move_once(tmp_path):
    text = """
    layer {{ name: "x" type: "Input" top: "x" top: "cont" top: "t"
      input_param {{ shape {{ dim: 3 dim: 2 dim: 4 }} shape {{ dim: 3 dim: 2 }} shape {{ dim: 3 dim: 2 dim: 5 }} }} }}
    layer {{ name: "r" type: "{kind}" bottom: "x" bottom: "cont" top: "r" recurrent_param {{ num_output: 5
      weight_filler {{ type: "gaussian" std: 0.5 }} }} }}
    layer {{ name: "loss" type: "EuclideanLoss" bottom: "r" bottom: "t" top: "loss" }}
    """
    for kind in ("LSTM", "RNN"):
        path = tmp_path / f"{kind}.prototxt"
        path.write_text(text.format(kind=kind))
        planned, plain = (Net(path, "TRAIN", seed=1) for _ in range(2))
        for net in (planned, plain):
            net.blobs["x"].data[...] = np.random.default_rng(2).standard_normal((3, 2, 4))
            net.blobs["cont"].data[...] = 1
        for _ in range(3):
            assert planned.evaluate() == pytest.approx(plain.forward(), rel=1e-5)
            for net in (planned, plain):
                net.clear_param_diffs()
                net.backward()
            assert_same(planned, plain)
            for mine, theirs in zip(planned.layer_dict["r"].state, plain.layer_dict["r"].state, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_nets_that_share_parameters_and_their_gradients(pair):
    first, second = pair("branches"), pair("branches")
    for a, b in zip(first, second, strict=True):
        for mine, theirs in zip(b.param_blobs, a.param_blobs, strict=True):
            mine.share_data(theirs)
            mine.share_diff(theirs)
        b.blobs["data"].data[...] *= 2
    for _ in range(2):
        for net in first:
            net.clear_param_diffs()
        for nets in (first, second):
            assert nets[0].forward_backward() == pytest.approx(one_by_one(nets[1]), rel=1e-5)
        assert_same(*first)
        assert_same(*second)
        for net in first:
            for blob in net.param_blobs:
                blob.data[...] -= 0.05 * blob.diff


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_pass_that_is_interrupted_leaves_cleared_gradients_cleared(pair, monkeypatch, direction):
    planned, plain = pair("branches")
    hold_equal(planned, plain)
    planned.clear_param_diffs()
    own = getattr(Layer, direction)

    def interrupted(layer, first, second):
        if layer.name == "loss":
            raise KeyboardInterrupt
        return own(layer, first, second)

    with monkeypatch.context() as patch:
        patch.setattr(Layer, direction, interrupted)
        with pytest.raises(KeyboardInterrupt):
            planned.forward_backward()
    assert not any(blob.diff.any() for blob in planned.learnable_params)
    hold_equal(planned, plain)


def test_a_copy_of_a_net_has_plans_of_its_own(pair):
    planned, plain = pair("branches")
    planned.forward_backward()
    other = copy.deepcopy(planned)
    for blob in planned.param_blobs:
        blob.data[...] = 0
    planned.forward_backward()
    hold_equal(other, plain)


def test_a_copy_of_a_net_has_the_gradients_that_nobody_has_looked_at(pair):
    pool = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
    planned, plain = pair([conv("c1", "data", 6), simple("Pooling", "c1", "p1", pool), dense("out", "p1")])
    planned.forward_backward()
    one_by_one(plain)
    assert any(isinstance(unit, ConvPoolUnit) for unit in next(iter(planned.plans._plans.values()))._program.units)
    other = copy.deepcopy(planned)
    for net in (other, planned):
        np.testing.assert_allclose(net.blobs["c1"].diff, plain.blobs["c1"].diff, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(net.blobs["c1"].data, plain.blobs["c1"].data, rtol=1e-4, atol=1e-6)
    assert plain.blobs["c1"].diff.any()
    planned.forward_backward()
    hold_equal(other, plain)


def test_weights_copied_in_the_middle(pair, tmp_path):
    planned, plain = pair("batch norm everywhere")
    planned.save(tmp_path / "start.caffemodel")
    for net in (planned, plain):
        net.forward_backward()
        for blob in net.param_blobs:
            blob.data[...] *= 0.9
        net.copy_from(tmp_path / "start.caffemodel")
    hold_equal(planned, plain)


@pytest.mark.parametrize("dialect", ["exact", "caffe"])
@pytest.mark.parametrize("name", NETS)
def test_a_batch_of_one(pair, name, dialect):
    nets = pair(name, dialect)
    for net in nets:
        net.blobs["data"].reshape(1, 3, 12, 12)
        net.blobs["label"].reshape(1)
    hold_equal(*nets, one_by_one_after_reshape)


def test_an_empty_batch_is_answered_as_by_the_layers(pair):
    nets = pair("branches")
    messages = []
    for net, run in zip(nets, (Net.forward_backward, one_by_one_after_reshape), strict=True):
        net.blobs["data"].reshape(0, 3, 12, 12)
        net.blobs["label"].reshape(0)
        with pytest.raises(ShapeError) as caught:
            run(net)
        messages.append(str(caught.value))
        net.blobs["data"].reshape(6, 3, 12, 12)
        net.blobs["label"].reshape(6)
        net.reshape()
    assert messages[0] == messages[1]
    hold_equal(*nets)


def test_three_hundred_layers(pair):
    layers = [conv("c0", "data", 4, 1)]
    for i in range(1, 300):
        layers.append(simple("Scale", f"c{i - 1}", f"c{i}", "scale_param { filler { value: 1.001 } bias_term: true }"))
    layers.append(dense("out", "c299"))
    hold_equal(*pair(layers))


def test_too_little_memory_is_told_with_the_layer(pair, monkeypatch):
    planned, plain = pair("branches")

    def full(*arguments):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(PassPlan, "_leaf", full)
        with pytest.raises(ShapeError, match=r"'data' \(Input\).*not enough memory"):
            planned.forward_backward()
    hold_equal(planned, plain)
    monkeypatch.setattr(Layer, "_store", full)
    with pytest.raises(ShapeError, match=r"'c1' \(Convolution\).*not enough memory"):
        plain.forward()


class Doubled(Layer):
    """A user's layer."""

    def compute(self, bottom, params):
        return bottom[0] * 2


def test_a_users_layer_under_a_known_name_is_not_taken_for_the_known_one(pair):
    known = LAYER_TYPES["Sigmoid"]
    register_layer("Sigmoid", LayerType(Doubled))
    try:
        planned, plain = pair([simple("Sigmoid", "data", "s"), dense("out", "s")])
    finally:
        register_layer("Sigmoid", known)
    assert "registered by the user" in planned.plans.reason
    hold_equal(planned, plain)


FORBIDDEN = {
    "in place after another": [
        conv("c1", "data"),
        'layer { name: "cut" type: "Slice" bottom: "c1" top: "x" top: "y" }',
        simple("BatchNorm", "y", "y", "propagate_down: false"),
        simple("Scale", "y", "y"),
        'layer { name: "join" type: "Concat" bottom: "x" bottom: "y" top: "j" }',
        dense("out", "j"),
    ],
    "in place": [
        conv("c1", "data"),
        'layer { name: "cut" type: "Slice" bottom: "c1" top: "x" top: "y" }',
        simple("PReLU", "y", "y", "propagate_down: false"),
        'layer { name: "join" type: "Concat" bottom: "x" bottom: "y" top: "j" }',
        dense("out", "j"),
    ],
    "one diff": [
        conv("c1", "data"),
        simple("Flatten", "c1", "flat", "propagate_down: false"),
        dense("out", "flat"),
        simple("Reduction", "c1", "e", "loss_weight: 0.1"),
    ],
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_gradient_that_is_forbidden_and_handed_on_all_the_same(pair, name):
    planned, plain = pair(FORBIDDEN[name])
    assert "propagate_down forbids" in planned.plans.reason
    hold_equal(planned, plain)


@pytest.mark.parametrize("kind", ["Sigmoid", "InnerProduct"])
def test_propagate_down_asks_for_a_gradient_that_goes_no_further(pair, kind):
    ask = "propagate_down: true"
    last = simple(kind, "a", "out", ask + (" inner_product_param { num_output: 5 }" if kind == "InnerProduct" else ""))
    layers = [simple("AbsVal", "data", "a"), last, *([dense("out2", "out")] if kind == "Sigmoid" else [])]
    loss = f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{"out2" if kind == "Sigmoid" else "out"}" '
    nets = pair(layers, loss=loss + 'bottom: "label" top: "loss" }')
    hold_equal(*nets)
    hold_equal(*nets)


LATER = ("Dropout", "Sigmoid", "Exp", "ELU")


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("first", ["Sigmoid", "TanH", "ReLU", "Softmax", "Pooling", "Eltwise", "LRN"])
def test_the_caffe_dialect_computes_with_what_is_left_in_the_blob(pair, first, later):
    if first == "Eltwise":
        made = 'layer { name: "a" type: "Eltwise" bottom: "c1" bottom: "c1" top: "a" }'
    else:
        made = simple(first, "c1", "a", POOL if first == "Pooling" else "")
    hold = partial(hold_equal, *pair([conv("c1", "data"), made, simple(later, "a", "a"), dense("out", "a")], "caffe"))
    hold()
    hold()


POOL = "pooling_param { pool: AVE kernel_size: 3 stride: 2 }"


def detector() -> str:
    """A small SSD: two maps with boxes of their own, joined, and MultiBoxLoss."""
    order = "permute_param { order: 0 order: 2 order: 3 order: 1 }"
    dims = "shape { dim: 2 dim: 3 dim: 16 dim: 16 } shape { dim: 1 dim: 1 dim: 3 dim: 8 }"
    lines = [
        f'layer {{ name: "in" type: "Input" top: "data" top: "boxes" input_param {{ {dims} }} }}',
        conv("c1", "data", 8, more="pad: 1 stride: 2"),
        simple("ReLU", "c1", "c1"),
        simple(
            "Normalize", "c1", "m0", 'norm_param { across_spatial: false scale_filler { type: "constant" value: 5 } }'
        ),
        conv("m1", "c1", 8, more="pad: 1 stride: 2"),
    ]
    for i in (0, 1):
        for kind, outputs in (("loc", 16), ("conf", 12)):
            lines += [
                conv(f"{kind}{i}", f"m{i}", outputs, more="pad: 1"),
                simple("Permute", f"{kind}{i}", f"{kind}{i}p", order),
                simple("Flatten", f"{kind}{i}p", f"{kind}{i}f"),
            ]
        lines.append(
            f'layer {{ name: "prior{i}" type: "PriorBox" bottom: "m{i}" bottom: "data" top: "prior{i}" prior_box_param '
            f"{{ min_size: {4 + 4 * i} max_size: {8 + 4 * i} aspect_ratio: 2 flip: true }} }}"
        )
    for kind, axis in (("loc", 1), ("conf", 1), ("prior", 2)):
        end = "" if kind == "prior" else "f"
        lines.append(
            f'layer {{ name: "{kind}" type: "Concat" bottom: "{kind}0{end}" bottom: "{kind}1{end}" top: "{kind}" '
            f"concat_param {{ axis: {axis} }} }}"
        )
    lines.append(
        'layer { name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "prior" bottom: "boxes" '
        'top: "loss" propagate_down: true propagate_down: true propagate_down: false propagate_down: false '
        "multibox_loss_param { num_classes: 3 neg_overlap: 0.5 } }"
    )
    return "\n".join(lines)


@pytest.mark.parametrize("dialect", ["exact", "caffe"])
def test_a_detector(tmp_path, dialect):
    (tmp_path / "ssd.prototxt").write_text(detector())
    nets = [Net(tmp_path / "ssd.prototxt", "TRAIN", dialect=dialect, seed=1) for _ in range(2)]
    for net in nets:
        net.blobs["data"].data[...] = np.random.default_rng(2).standard_normal(net.blobs["data"].shape)
        net.blobs["boxes"].data[0, 0, :, 0] = 0, 1, 1
        net.blobs["boxes"].data[0, 0, :, 1] = 1, 2, 1
        net.blobs["boxes"].data[0, 0, :, 3:7] = (0.1, 0.1, 0.5, 0.4), (0.3, 0.4, 0.8, 0.9), (0.0, 0.5, 0.4, 1.0)
    assert nets[0].plans.reason is None
    for _ in range(3):
        hold_equal(*nets)
        assert np.abs(nets[0].blobs["c1"].diff).max() > 0
        for net in nets:
            for blob in net.learnable_params:
                blob.data[...] -= 0.01 * blob.diff


def test_shapes_that_depend_on_values_are_not_planned(pair):
    layers = [
        conv("c1", "data"),
        'layer { name: "f" type: "Filter" bottom: "c1" bottom: "label" top: "f" }',
        simple("Reduction", "f", "e", "loss_weight: 1 reduction_param { operation: SUMSQ }"),
    ]
    planned, plain = pair(layers, loss="")
    assert "'f' (Filter)" in planned.plans.reason
    hold_equal(planned, plain)

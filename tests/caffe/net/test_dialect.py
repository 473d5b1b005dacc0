"""The fields of a dialect are differences that can be seen: in `caffe` the gradient is not the derivative."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.net.texts import NetCall, inputs, layer, net
from tests.replay import caffe as replayer
from tests.replay.__main__ import replay
from undertow.caffe.dialect import CAFFE, EXACT, Dialect, dialect_named
from undertow.caffe.net import Net
from undertow.core.gradcheck import GradientCheckError, check_gradients

IP = "inner_product_param {{ num_output: {} weight_filler {{ type: \"xavier\" }} }}"  # fmt: skip


def in_place(dialect: str) -> tuple[Net, list[str], list[str]]:
    before = layer("h", "InnerProduct", "x", rest=IP.format(3))
    return net(inputs(x=(2, 3)), before, layer("b", "BNLL", "h", "h"), dialect=dialect), ["x"], ["h"]


def squares(dialect: str) -> tuple[Net, list[str], list[str]]:
    op = layer("p", "Power", "h", "h", "power_param { scale: 3 }")
    after = layer("y", "InnerProduct", "h", rest=IP.format(2))
    return net(inputs(x=(2, 3)), layer("h", "TanH", "x"), op, after, dialect=dialect), ["x"], ["y"]


def sharing(dialect: str) -> tuple[Net, list[str], list[str]]:
    """A Split of the user's, one of whose tops is written over."""
    parts = (layer("s", "Split", "x", "a b"), layer("e", "Exp", "a", "a"), layer("t", "TanH", "b"))
    return net(inputs(x=(2, 3)), *parts, dialect=dialect), ["x"], ["a", "t"]


def mvn(dialect: str) -> tuple[Net, list[str], list[str]]:
    return (
        net(inputs(x=(2, 3, 2, 2)), layer("y", "MVN", "x", rest="mvn_param { eps: 0.3 }"), dialect=dialect),
        ["x"],
        ["y"],
    )


def contrastive(dialect: str) -> tuple[Net, list[str], list[str]]:
    op = layer("y", "ContrastiveLoss", "x z s", rest="contrastive_loss_param { margin: 5 }")
    return net(inputs(x=(2, 3), z=(2, 3), s=(2,)), op, dialect=dialect), ["x", "z"], ["y"]


def clamped(dialect: str) -> tuple[Net, list[str], list[str]]:
    """A probability of 1e-60: cut off in the value, not in the gradient."""
    return net(inputs(x=(2, 2), t=(2,)), layer("y", "SoftmaxWithLoss", "x t"), dialect=dialect), ["x"], ["y"]


def second_top(dialect: str) -> tuple[Net, list[str], list[str]]:
    op = layer("l", "InfogainLoss", "x t h", "l p", "loss_weight: 1 loss_weight: 1")
    built = net(inputs(x=(2, 2), t=(2,), h=(2, 2)), op, dialect=dialect)
    built.layer_dict["l"].bottom_need_backward = [True, False, False]
    built.blobs["h"].data[...] = [[1, 0.2], [0, 1]]
    return built, ["x"], ["l", "p"]


def exposed(dialect: str) -> tuple[Net, list[str], list[str]]:
    rest = 'recurrent_param { num_output: 2 expose_hidden: true weight_filler { type: "xavier" } }'
    built = net(inputs(x=(2, 1, 2), cont=(2, 1), h0=(1, 1, 2)), layer("r", "RNN", "x cont h0", "y h", rest),
                dialect=dialect)  # fmt: skip
    built.blobs["cont"].data[...] = 1
    return built, ["x", "h0"], ["y", "h"]


def half_continued(dialect: str) -> tuple[Net, list[str], list[str]]:
    built = net(
        inputs(c=(1, 1, 2), x=(1, 1, 8), cont=(1, 1)), layer("u", "LSTMUnit", "c x cont", "n h"), dialect=dialect
    )
    built.blobs["cont"].data[...] = 0.5
    return built, ["c", "x"], ["n", "h"]


def zero_divided(dialect: str) -> tuple[Net, list[str], list[str]]:
    rest = "eltwise_param { operation: PROD stable_prod_grad: false }"
    return net(inputs(x=(2, 3), z=(2, 3)), layer("y", "Eltwise", "x z", rest=rest), dialect=dialect), ["x", "z"], ["y"]


def parameter_twice(dialect: str) -> tuple[Net, list[str], list[str]]:
    op = layer("p", "Parameter", "", "p", "parameter_param { shape { dim: 2 dim: 3 } }")
    return net(inputs(x=(2, 3)), op, layer("y", "Eltwise", "p x"), dialect=dialect), ["x"], ["y"]


def variance_in_target(dialect: str) -> tuple[Net, list[str], list[str]]:
    rest = "multibox_loss_param { num_classes: 2 encode_variance_in_target: true mining_type: NONE }"
    shapes = inputs(x=(1, 4), z=(1, 2), p=(1, 2, 4), t=(1, 1, 1, 8))
    built = net(shapes, layer("y", "MultiBoxLoss", "x z p t", rest=rest), dialect=dialect)
    built.blobs["p"].data[...] = [[[0.1, 0.1, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]]]
    built.blobs["t"].data[...] = [0, 1, 0, 0.1, 0.1, 0.4, 0.5, 0]
    return built, ["x", "z"], ["y"]


SHOWN = {
    "multibox_ignores_variance": variance_in_target,
    "in_place_reads_result": in_place,
    "in_place_squares_slope": squares,
    "share_memory": sharing,
    "mvn_ignores_eps": mvn,
    "contrastive_epsilon": contrastive,
    "loss_clamps_forward_only": clamped,
    "prob_top_gradient": second_top,
    "exposed_state_gradient": exposed,
    "cont_derivative": half_continued,
    "division_gradients": zero_divided,
}


def values_for(name: str, built: Net, names: list[str]) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    values = [rng.standard_normal(blob.shape) for blob in (*(built.blobs[n] for n in names), *built.learnable_params)]
    if name == "loss_clamps_forward_only":
        values[0] = np.array([[-140.0, 0], [1, 2]])
    if name == "division_gradients":
        values[0][0, 0] = 0
    return values


def check(name: str, dialect: str) -> None:
    built, names, outputs = SHOWN[name](dialect)
    call = NetCall(built, names, outputs)
    values = values_for(name, built, names)
    check_gradients(lambda *xs: NetCall(call.net, call.names, call.outputs_)(*xs), values, rtol=1e-5)


@pytest.mark.parametrize("name", SHOWN)
def test_exact_is_the_derivative(name: str) -> None:
    check(name, "exact")


@pytest.mark.parametrize("name", SHOWN)
def test_caffe_is_not(name: str) -> None:
    with pytest.raises(GradientCheckError):
        check(name, "caffe")


def test_a_parameters_diff_is_overwritten_in_caffe() -> None:
    found = {}
    for dialect in ("exact", "caffe"):
        built, _, _ = parameter_twice(dialect)
        built.forward()
        for _ in range(2):
            built.blobs["y"].diff[...] = 1
            built.backward()
        found[dialect] = float(built.params["p"][0].diff[0, 0])
    assert found == {"exact": 2, "caffe": 1}


def test_every_field_is_shown_and_documented() -> None:
    names = {field.name for field in fields(Dialect)} - {"name"}
    assert names == {*SHOWN, "parameter_shares_diff"}
    text = (Path(__file__).parents[3] / "docs" / "caffe-differences.md").read_text(encoding="utf-8")
    assert names <= set(re.findall(r"`(\w+)`", text))
    for name in names:
        assert getattr(EXACT, name) != getattr(CAFFE, name)
        assert f"    {name}: " in (Dialect.__doc__ or "")


# Recorded cases that show a difference; all others are the same in both dialects.
DIFFERENT = {
    "arch_siamese", "layer_bnll_inplace", "layer_clip_inplace", "layer_log_inplace", "layer_lstm_expose",
    "layer_lstm_expose_hidden_diff", "layer_mvn_eps", "layer_power_inplace", "layer_rnn_expose",
    "layer_rnn_expose_hidden_diff", "loss_contrastive", "loss_multinomial_logistic", "loss_softmax_saturated",
}  # fmt: skip


@pytest.mark.reference
def test_exact_differs_from_the_recordings_only_where_caffe_is_not_exact(
    reference_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayer, "Net", lambda *args, **options: Net(*args, **{**options, "dialect": "exact"}))
    found, compared = set(), 0
    for folder in replayer.case_folders(reference_data / "goldens" / "caffe"):
        if folder.name.startswith(("layer_", "loss_", "net_", "arch_", "old_")) and not list(folder.glob("solver*")):
            result = replay("caffe", folder)
            compared += result is not None
            if result is not None and not result.ok:
                found.add(folder.name)
    assert compared > 200
    assert found == DIFFERENT


def test_names() -> None:
    assert dialect_named("caffe") is CAFFE
    assert dialect_named(EXACT) is EXACT
    with pytest.raises(ValueError, match="there are exact, caffe"):
        dialect_named("darknet-cpu")

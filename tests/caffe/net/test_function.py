"""The net as one differentiable function: the same numbers, gradients of anything, twice if wanted."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from tests.caffe.net.texts import inputs, layer, net
from undertow.core.gradcheck import check_gradients
from undertow.errors import GraphError

IP = "inner_product_param {{ num_output: {} weight_filler {{ type: \"xavier\" }} }}"  # fmt: skip


def small():  # type: ignore[no-untyped-def]
    built = net(
        inputs(x=(4, 2, 5, 5), label=(4,)),
        layer("c", "Convolution", "x", rest="convolution_param { num_output: 3 kernel_size: 3 "
              "weight_filler { type: \"xavier\" } }"),
        layer("n", "BatchNorm", "c", "c"),
        layer("s", "Scale", "c", "c", "scale_param { bias_term: true }"),
        layer("r", "TanH", "c", "c"),
        layer("p", "Pooling", "c", rest="pooling_param { pool: AVE kernel_size: 2 stride: 2 }"),
        layer("ip", "InnerProduct", "p", rest=IP.format(3)),
        layer("aux", "Reduction", "p", rest="reduction_param { operation: SUMSQ } loss_weight: 0.1"),
        layer("loss", "SoftmaxWithLoss", "ip label", "loss", "loss_weight: 2"),
        force=False,
    )  # fmt: skip
    built.blobs["label"].data[...] = [0, 2, 1, 1]
    return built


def test_it_gives_what_forward_and_backward_give() -> None:
    built = small()
    x = np.random.default_rng(0).standard_normal((4, 2, 5, 5))
    built.blobs["x"].data[...] = x
    loss = built.forward()
    built.backward()
    function = built.as_function()
    values = function(x=x)
    assert float(values.loss) == pytest.approx(loss, rel=1e-12)
    values.loss.backward()
    for name, parameters in function.parameters.items():
        if name != "n":
            for parameter, blob in zip(parameters, built.params[name], strict=True):
                np.testing.assert_allclose(parameter.grad, blob.diff, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(values["ip"].data, built.blobs["ip"].data)


def test_gradients_with_respect_to_the_input() -> None:
    built = small()
    function = built.as_function()
    x = np.random.default_rng(0).standard_normal((4, 2, 5, 5))
    check_gradients(lambda v: function(x=v).loss, [x], rtol=1e-5)


def test_twice() -> None:
    built = net(inputs(x=(2, 3)), layer("a", "TanH", "x"), layer("b", "Power", "a", rest="power_param { power: 3 }"))
    function = built.as_function()
    x = np.random.default_rng(0).standard_normal((2, 3))
    check_gradients(lambda v: function(x=v)["b"], [x], second_order=True, rtol=1e-5)


def test_parameters_look_at_the_nets_memory() -> None:
    built = small()
    function = built.as_function()
    function.parameters["ip"][0].data[0, 0] = 7
    assert built.params["ip"][0].data[0, 0] == 7
    assert function(x=np.ones((4, 2, 5, 5)))["ip"].shape == (4, 3)


def test_shared_parameters_are_one_variable() -> None:
    share = IP.format(3) + 'param { name: "w" } param { name: "b" }'
    built = net(
        inputs(x=(2, 3)), layer("a", "InnerProduct", "x", rest=share), layer("c", "InnerProduct", "a", rest=share)
    )
    function = built.as_function()
    assert function.parameters["a"][0] is function.parameters["c"][0]
    ut.sum(function(x=np.ones((2, 3)))["c"]).backward()
    built.blobs["x"].data[...] = 1
    built.forward()
    built.blobs["c"].diff[...] = 1
    built.backward()
    np.testing.assert_allclose(function.parameters["a"][0].grad, built.params["a"][0].diff)


def test_layers_may_have_one_name() -> None:
    built = net(inputs(x=(2, 3)), layer("a", "InnerProduct", "x", "h", IP.format(3)),
                layer("a", "InnerProduct", "h", "y", IP.format(2)))  # fmt: skip
    built.blobs["x"].data[...] = 1
    built.forward()
    np.testing.assert_allclose(built.as_function()(x=np.ones((2, 3)))["y"].data, built.blobs["y"].data)


def test_unknown_inputs_are_named() -> None:
    with pytest.raises(GraphError, match=r"y: not the top of a data layer.*give x, label"):
        small().as_function()(y=np.ones(3))

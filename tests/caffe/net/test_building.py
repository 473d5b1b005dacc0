"""Building nets: phases, splits, in place, shared parameters, what a backward pass computes, and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.memory import bytes_needed, check_memory
from undertow.caffe.net import Net, infer_shapes
from undertow.caffe.proto import parse_text
from undertow.errors import FormatError, ShapeError, UndertowError, UndertowWarning

IP = "inner_product_param { num_output: 3 weight_filler { type: \"xavier\" } }"  # fmt: skip


def file(folder: Path, text: str) -> Path:
    path = folder / "net.prototxt"
    path.write_text(text)
    return path


# --- shapes without memory ------------------------------------------------------------------------------


def test_shapes_need_neither_weights_nor_memory() -> None:
    text = "\n".join([
        inputs(data=(1000, 3, 10_000, 10_000)),
        layer("c", "Convolution", "data", rest="convolution_param { num_output: 64 kernel_size: 3 stride: 2 }"),
        layer("ip", "InnerProduct", "c", rest="inner_product_param { num_output: 100000 }"),
    ])  # fmt: skip
    shapes = infer_shapes(parse_text(text, "NetParameter"))
    assert shapes["c"] == (1000, 64, 4999, 4999)
    assert shapes["ip"] == (1000, 100_000)


# --- phases and rules -----------------------------------------------------------------------------------

RULES = """
layer { name: "d" type: "DummyData" top: "data" include { phase: TRAIN } dummy_data_param { shape { dim: 4 dim: 2 } } }
layer { name: "d" type: "DummyData" top: "data" include { phase: TEST } dummy_data_param { shape { dim: 2 dim: 2 } } }
layer { name: "acc" type: "InnerProduct" bottom: "data" top: "y" inner_product_param { num_output: 3 }
        exclude { phase: TRAIN stage: "x" } }
"""


def test_include_and_exclude() -> None:
    message = parse_text(RULES, "NetParameter")
    assert Net(message, "TRAIN").shapes == {"data": (4, 2), "y": (4, 3)}
    assert Net(message, "TEST").shapes == {"data": (2, 2), "y": (2, 3)}
    assert Net(message, "TRAIN", stages=["x"]).layer_names == ["d"]
    assert Net(message, "TEST", stages=["x", "z"]).layer_names == ["d", "acc"]


def test_levels() -> None:
    text = inputs(x=(1, 2)) + layer("a", "ReLU", "x", rest='include { min_level: 1 max_level: 2 not_stage: "off" }')
    message = parse_text(text, "NetParameter")
    alive = [len(Net(message, level=level).layers) for level in range(4)]
    assert alive == [1, 2, 2, 1]
    assert len(Net(message, level=1, stages=["off"]).layers) == 1


# --- splits ---------------------------------------------------------------------------------------------


def test_splits_are_named_as_in_caffe() -> None:
    built = net(inputs(x=(2, 3)), layer("h", "TanH", "x"), layer("a", "ReLU", "h"), layer("b", "ReLU", "h"))
    assert built.layer_names == ["in_x", "h", "h_h_0_split", "a", "b"]
    assert built.bottom_names["b"] == ["h_h_0_split_1"]
    assert built.outputs == ["a", "b"]
    assert built.blobs["h_h_0_split_0"].data.base is built.blobs["h"].data.base


def test_a_loss_weight_counts_as_a_reader() -> None:
    built = net(
        inputs(x=(2, 3)), layer("h", "TanH", "x", rest="loss_weight: 0.5"), layer("a", "ReLU", "h"), force=False
    )
    assert built.layer_names[2] == "h_h_0_split"
    assert dict(zip(built.blob_names, built.blob_loss_weights, strict=True))["h_h_0_split_0"] == 0.5
    assert built.bottom_names["a"] == ["h_h_0_split_1"]


def test_readers_behind_a_layer_in_place() -> None:
    """Case 82: a and b read what the ReLU made; the gradient of s is 5 times that of e, through the ReLU, times s'."""
    built = net(
        inputs(data=(1, 1, 8, 8)),
        layer("s", "Sigmoid", "data"),
        layer("r", "ReLU", "s", "s"),
        layer("a", "Power", "s", rest="power_param { scale: 2 }"),
        layer("b", "Power", "s", rest="power_param { scale: 3 }"),
        layer("e", "Eltwise", "a b"),
    )
    x = np.linspace(-3, 3, 64).reshape(1, 1, 8, 8)
    built.blobs["data"].data[...] = x
    built.forward()
    built.blobs["e"].diff[...] = gradient = np.cos(x)
    built.backward()
    s = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(built.blobs["e"].data, 5 * s)
    np.testing.assert_allclose(built.blobs["s"].diff, 5 * gradient)
    np.testing.assert_allclose(built.blobs["data"].diff, 5 * gradient * s * (1 - s))


# --- parameters -----------------------------------------------------------------------------------------


def test_shared_parameters_are_one_memory() -> None:
    built = net(
        inputs(x=(2, 3)),
        layer("a", "InnerProduct", "x", rest=IP + 'param { name: "w" lr_mult: 2 } param { name: "b" }'),
        layer("c", "InnerProduct", "a", rest=IP + 'param { name: "w" } param { name: "b" decay_mult: 0 }'),
    )
    assert len(built.learnable_params) == 2
    assert built.params_lr == [2, 1]
    assert built.params_weight_decay == [1, 0]
    built.params["a"][0].data[0, 0] = 7
    assert built.params["c"][0].data[0, 0] == 7
    assert built.param_owners == [-1, -1, 0, 1]


def test_a_shared_parameter_has_its_owners_filler() -> None:
    ip = 'inner_product_param {{ num_output: 3 weight_filler {{ value: {} }} }} param {{ name: "w" }}'
    built = net(inputs(x=(2, 3)), layer("a", "InnerProduct", "x", rest=ip.format(5)),
                layer("c", "InnerProduct", "a", rest=ip.format(7)))  # fmt: skip
    assert (built.params["c"][0].data == 5).all()


def test_memory_is_checked_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (inputs(x=(2, 3)), layer("big", "InnerProduct", "x", rest="inner_product_param { num_output: 1000 }"))
    built = net(*parts)
    # weights 3000, biases 1000, blobs 6 and 2000, each with a gradient, eight bytes each
    assert bytes_needed(built) == 2 * 8 * (4000 + 6 + 2000)
    monkeypatch.setattr("undertow.caffe.memory.physical_memory", lambda: 90_000)
    with pytest.raises(ShapeError, match=r"needs 0\.0 GiB.*\(2, 1000\)") as caught:
        net(*parts)
    assert caught.value.layer == "'big' (InnerProduct)"
    check_memory(built, available=100_000)


def test_permissive_sharing_asks_for_as_many_values() -> None:
    share = 'inner_product_param {{ num_output: {} bias_term: false }} param {{ name: "w" {} }}'
    parts = (inputs(x=(2, 3), z=(2, 2)), layer("a", "InnerProduct", "x", rest=share.format(2, "")))
    built = net(*parts, layer("c", "InnerProduct", "z", rest=share.format(3, "share_mode: PERMISSIVE")))
    assert built.params["c"][0].shape == (3, 2)
    with pytest.raises(FormatError, match=r"owned by layer 'a'.*2 3 \(6\).*PERMISSIVE"):
        net(*parts, layer("c", "InnerProduct", "z", rest=share.format(3, "")))


# --- what a backward pass computes ----------------------------------------------------------------------


def chain(*rest: str) -> tuple[str, ...]:
    return (
        inputs(x=(2, 3), t=(2, 3)),
        layer("a", "InnerProduct", "x", rest=IP + rest[0]),
        layer("b", "InnerProduct", "a", rest=IP + rest[1]),
        layer("l", "EuclideanLoss", "b t"),
    )


def test_nothing_is_computed_below_the_first_layer_that_learns() -> None:
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    built = net(*chain(frozen, ""), force=False)
    assert dict(zip(built.layer_names, built.layer_need_backward, strict=True)) == {
        "in_x": False, "in_t": False, "a": False, "b": True, "l": True,
    }  # fmt: skip
    assert built.bottom_need_backward == [[], [], [False], [False], [True, False]]
    assert built.param_propagate_down[3] == [True, True]
    built.forward()
    built.backward()
    assert not built.params["a"][0].diff.any()


def test_force_backward() -> None:
    built = net(*chain("param { lr_mult: 0 }", ""))
    assert all(built.layer_need_backward)
    assert built.bottom_need_backward[2] == [True]
    assert built.param_propagate_down[2] == [True, True]


def test_propagate_down_stops_a_gradient() -> None:
    built = net(*chain("", "propagate_down: false"), force=False)
    assert built.layer_dict["a"].need_backward is False
    built = net(*chain("propagate_down: true", ""), force=False)
    assert built.bottom_need_backward[2] == [True]


def test_what_reaches_no_loss_is_left_out() -> None:
    built = net(*chain("", ""), layer("side", "InnerProduct", "a", rest=IP), force=False)
    assert built.layer_dict["side"].need_backward is False
    assert built.layer_dict["a"].need_backward is True


def test_a_loss_that_is_switched_off_adds_nothing() -> None:
    """Case 83."""
    losses = [layer(name, "SoftmaxWithLoss", "data l", rest=f"loss_weight: {weight}")
              for name, weight in (("bad", 0), ("good", 1))]  # fmt: skip
    both, good = (net(inputs(data=(1, 3), l=(1,)), *parts) for parts in (losses, losses[1:]))
    for built in (both, good):
        built.blobs["data"].data[...] = [[1, -2, 0.5]]
        built.blobs["l"].data[...] = 2
        built.loss = built.forward()
        built.backward()
    assert both.loss == good.loss
    assert np.array_equal(both.blobs["data"].diff, good.blobs["data"].diff)


# --- refusals -------------------------------------------------------------------------------------------

REFUSED = [
    ("unknown type", layer("a", "Relu", "x"), "unknown layer type 'Relu'", "did you mean 'ReLU'"),
    ("unknown bottom", layer("a", "ReLU", "y"), "unknown bottom blob 'y'", "use one of these: x"),
    ("bottom later", layer("a", "ReLU", "b") + layer("b", "ReLU", "x"), "unknown bottom", "below the one that makes"),
    ("top twice", layer("a", "Power", "x", "y") + layer("b", "Power", "x", "y"), "'y' is made twice.*'a'", "another"),
    ("both rules", layer("a", "ReLU", "x", rest="include { phase: TRAIN } exclude { phase: TEST }"),
     "not both", "not_stage"),
    ("params", layer("a", "ReLU", "x", rest="param { lr_mult: 1 }"), "1 param are given, the layer has 0", "surplus"),
    ("even window", layer("a", "LRN", "x", rest="lrn_param { local_size: 4 }"), "must be odd", "local_size: 5 or 3"),
    ("count", layer("a", "Eltwise", "x"), "takes at least 2 bottom blobs, got 1", ""),
    ("propagate_down", layer("a", "ReLU", "x", rest="propagate_down: true propagate_down: true"),
     "once per bottom", ""),
    ("in place", layer("a", "AbsVal", "x", "x"), "cannot work in place", "another name"),
    ("in place, other shape", layer("a", "Pooling", "x", "x", "pooling_param { kernel_size: 2 }"),
     "in place", "a name"),
    ("filler", layer("a", "InnerProduct", "x",
                     rest="inner_product_param { num_output: 1 weight_filler { type: \"he\" } }"),
     "unknown filler 'he'", "xavier"),
    ("python", layer("a", "Python", "x", rest="python_param { module: \"os\" layer: \"system\" }"),
     "not allowed", "trust"),
    ("no num_output", layer("a", "Convolution", "x", rest="convolution_param { kernel_size: 3 }"), "num_output", "20"),
    ("window too large", layer("a", "Convolution", "x", rest="convolution_param { num_output: 1 kernel_size: 9 }"),
     "9x9.*does not fit", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason", "remedy"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals_say_where_why_and_what_to_do(tmp_path: Path, text: str, reason: str, remedy: str) -> None:
    path = file(tmp_path, f'name: "n"\n{inputs(x=(2, 3, 4, 4))}\n\n{text}')
    with pytest.raises(UndertowError, match=reason) as caught:
        Net(path)
    error = caught.value
    assert error.file == str(path)
    assert error.line == 4
    assert error.layer is not None
    assert remedy in (error.remedy or "")


def test_in_place_with_a_second_reader_is_explained(tmp_path: Path) -> None:
    text = "\n".join([inputs(x=(2, 3)), layer("a", "Power", "x", "y"), layer("s", "Silence", "y", "-"),
                      layer("r", "ReLU", "y", "y")])  # fmt: skip
    with pytest.raises(FormatError, match="cannot be changed in place") as caught:
        Net(file(tmp_path, text))
    assert caught.value.line == 4


def test_a_layer_of_two_kinds_of_shapes_is_refused_at_reshape() -> None:
    built = net(inputs(x=(2, 3)), layer("a", "InnerProduct", "x", rest=IP))
    built.blobs["x"].reshape(5, 3)
    built.reshape()
    assert built.blobs["a"].shape == (5, 3)
    built.blobs["x"].reshape(5, 4)
    with pytest.raises(ShapeError, match="made for 3") as caught:
        built.forward()
    assert caught.value.layer == "'a' (InnerProduct)"


@pytest.mark.reference
def test_recorded_cases_of_prototxts(reference_data: Path) -> None:
    cases = reference_data / "cases"
    shapes = infer_shapes(cases / "77-prototxt-pooling-ceil" / "a.prototxt")
    assert [shapes[name][2:] for name in "pqf"] == [(4, 4), (5, 5), (3, 3)]
    assert infer_shapes(cases / "79-prototxt-repeated-kernel" / "a.prototxt")["c"] == (1, 2, 8, 8)
    legacy = Net(cases / "73-prototxt-v1-layers" / "a.prototxt")
    assert [part.type for part in legacy.layers] == ["Input", "Convolution", "ReLU"]
    assert (legacy.params_lr, legacy.params_weight_decay) == ([1, 2], [1, 0])
    with pytest.raises(FormatError, match="'y' is made twice: by layer 'a'") as caught:
        Net(cases / "80-prototxt-duplicate-top" / "a.prototxt")
    assert caught.value.line == 4
    with pytest.raises(FormatError, match="local_size must be odd") as caught:
        Net(cases / "86-prototxt-lrn-even-size" / "a.prototxt")
    assert caught.value.line == 3


def test_a_stride_far_beyond_the_image_costs_nothing() -> None:
    """Only one window fits, so the stride plays no part."""
    options = "convolution_param { num_output: 2 kernel_size: 2 stride: 1000000 weight_filler { value: 1 } }"
    for kind in ("Convolution", "Deconvolution"):
        side = 4 if kind == "Convolution" else 1
        built = net(inputs(x=(1, 1, side, side)), layer("y", kind, "x", rest=options), dtype=np.float32)
        built.blobs["x"].data[...] = 1
        built.forward()
        assert (built.blobs["y"].data == (4 if kind == "Convolution" else 1)).all()
        built.blobs["y"].diff[...] = 1
        built.backward()
        # Two filters: each hands one to the window's pixels, or takes four from the one pixel.
        assert (built.blobs["x"].diff[..., :2, :2] == (2 if kind == "Convolution" else 8)).all()
        assert not built.blobs["x"].diff[..., 2:, :].any()


def test_padding_beyond_all_memory_is_told(tmp_path: Path) -> None:
    """Few windows, but the image with its padding would have 4e12 pixels."""
    options = "convolution_param { num_output: 2 kernel_size: 3 pad: 1000000 stride: 1000000 }"
    built = Net(file(tmp_path, inputs(x=(1, 1, 4, 4)) + layer("y", "Convolution", "x", rest=options)))
    assert built.blobs["y"].shape == (1, 2, 3, 3)
    with pytest.raises(ShapeError, match="not enough memory"):
        built.forward()


def test_a_layer_of_a_fork_in_a_net_read_without_it() -> None:
    text = inputs(x=(1, 2)) + 'layer { name: "p" type: "Permute" bottom: "x" top: "y" }'
    message = parse_text(text, "NetParameter", fork=None)
    with pytest.raises(FormatError, match=r'Permute needs the field permute_param.*fork="ssd"'):
        Net(message, "TEST", fork=None)


def test_a_net_without_layers_is_told(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    for text in ("", 'layer { name: "a" type: "Input" top: "x" include { phase: TRAIN } }'):
        path.write_text(text)
        with pytest.warns(UndertowWarning, match=r"net.prototxt: the net has no layers in phase TEST\. To mend it"):
            assert Net(path, "TEST").layers == []

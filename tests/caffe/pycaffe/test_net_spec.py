"""NetSpec and coordinate maps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow.caffe as caffe
from undertow.caffe import coord_map
from undertow.caffe import layers as L
from undertow.caffe import params as P
from undertow.caffe.coord_map import (
    AxisMismatchException,
    UndefinedMapException,
    compose,
    coord_map_from_to,
    crop,
    inverse,
)
from undertow.caffe.net_spec import assign_proto, param_name_dict
from undertow.caffe.proto import Message, new_message, parse_text
from undertow.errors import FormatError


def small(batch: int = 2) -> Any:
    n = caffe.NetSpec()
    n.data, n.label = L.DummyData(shape=[{"dim": [batch, 1, 8, 8]}, {"dim": [batch]}], ntop=2)
    n.conv = L.Convolution(n.data, kernel_size=3, num_output=4, weight_filler={"type": "xavier"})
    n.pool = L.Pooling(n.conv, kernel_size=2, stride=2, pool=P.Pooling.AVE)
    n.relu = L.ReLU(n.pool, in_place=True)
    n["ip/1"] = L.InnerProduct(n.relu, num_output=3, param=[{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}])
    n.loss = L.SoftmaxWithLoss(n["ip/1"], n.label, ignore_label=255, loss_weight=0.5)
    return n


def test_a_net_that_caffe_builds(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(str(small().to_proto()))
    net = caffe.Net(str(path), caffe.TRAIN)
    assert net._layer_names == ["data", "conv", "pool", "relu", "ip/1", "loss"]
    assert net.blobs["pool"].data.shape == (2, 4, 3, 3)
    assert net.blob_loss_weights["loss"] == 0.5
    assert net.layer_dict["loss"].message.loss_param.ignore_label == 255
    net.forward()


def test_fields_go_where_they_belong() -> None:
    layers = {layer.name: layer for layer in parse_text(str(small().to_proto()), "NetParameter").layer}
    assert layers["pool"].pooling_param.pool == "AVE"
    assert list(layers["conv"].convolution_param.kernel_size) == [3]
    assert [p.lr_mult for p in layers["ip/1"].param] == [1, 2]
    assert list(layers["relu"].bottom) == list(layers["relu"].top) == ["pool"]


def test_names_are_made_where_none_is_given() -> None:
    top = L.Sigmoid(L.InnerProduct(L.InnerProduct(L.Input(shape={"dim": [2, 3]}), num_output=2), num_output=2))
    net = parse_text(str(caffe.to_proto(top)), "NetParameter")
    assert [layer.name for layer in net.layer] == ["Input1", "InnerProduct1", "InnerProduct2", "Sigmoid1"]
    assert str(top.to_proto()) == str(caffe.to_proto(top))


def test_layers_without_tops_and_with_names_of_their_own() -> None:
    n = caffe.NetSpec()
    n.data, n.other = L.DummyData(shape={"dim": 3}, ntop=2)
    n.quiet = L.Silence(n.data, ntop=0)
    n.third = L.Silence(n.other, ntop=0, name="hush")
    names = [layer.name for layer in parse_text(str(n.to_proto()), "NetParameter").layer]
    assert names == ["data", "quiet", "hush"]
    assert list(n.tops) == ["data", "other", "quiet", "third"]


def test_what_the_ssd_fork_adds() -> None:
    n = small()
    assert "conv" in n
    assert "none" not in n
    assert n.keys() == ["data", "label", "conv", "pool", "relu", "ip/1", "loss"]
    assert n[n.keys()[-1]] is n.vals()[-1] is n.loss
    del n["loss"]
    assert "loss" not in n
    n.update("conv", {"dilation": 2})
    layers = parse_text(str(n.to_proto()), "NetParameter").layer
    assert list(layers[1].convolution_param.dilation) == [2]


def test_wrong_uses_are_told() -> None:
    two = L.DummyData(ntop=2)
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
        L.Silence(two, ntop=0)
    with pytest.raises(AttributeError, match="LayerParameter has no field kernal_size"):
        L.Convolution(two[0], kernal_size=3).to_proto()
    n = caffe.NetSpec()
    n.down = L.Pooling(two[0], pad=6 / 2)
    with pytest.raises(FormatError, match=r"layer down: PoolingParameter.pad: 3.0 .* To mend it: write 3, or //"):
        n.to_proto()
    with pytest.raises(AttributeError, match="PoolingParameter has no value MIN; it has MAX, AVE"):
        _ = P.Pooling.MIN
    assert param_name_dict()["InnerProduct"] == "inner_product"
    assert P.Pooling.STOCHASTIC == 2


def test_without_protobuf_the_text_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_protobuf = str(small().to_proto())
    from undertow.errors import MissingPackage

    def missing(message: Message) -> object:
        raise MissingPackage("protobuf", "caffe", "caffe_pb2")

    monkeypatch.setattr(sys.modules["undertow.caffe.net_spec"], "to_protobuf", missing)
    without = small().to_proto()
    assert isinstance(without, Message)
    assert str(without) == parse_text(with_protobuf, "NetParameter").to_text()


@pytest.mark.parametrize("own", [True, False])
def test_assign_proto(own: bool) -> None:
    if own:
        layer: Any = new_message("LayerParameter")
    else:
        pytest.importorskip("google.protobuf")
        layer = caffe.proto.caffe_pb2.LayerParameter()
    assign_proto(layer, "bottom", "a")
    assign_proto(layer, "param", [{"lr_mult": 2}, {"lr_mult": 0}])
    assign_proto(layer, "convolution_param", {"kernel_size": [3, 5], "weight_filler": {"type": "msra"}})
    assert list(layer.bottom) == ["a"]
    assert [p.lr_mult for p in layer.param] == [2, 0]
    assert list(layer.convolution_param.kernel_size) == [3, 5]
    assert layer.convolution_param.weight_filler.type == "msra"


# --- coordinate maps --------------------------------------------------------------------------------------


def chain(stride: Any = 1, pad: Any = 0, kernel: Any = 3, pool: int = 2, up: int = 2, up_pad: int = 0) -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [2, 1, 100, 100]})
    n.conv = L.Convolution(n.data, num_output=10, kernel_size=kernel, stride=stride, pad=pad)
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=pool, stride=pool, pad=0)
    n.up = L.Deconvolution(n.pool, num_output=10, kernel_size=2 * up, stride=up, pad=up_pad)
    return n


@pytest.mark.parametrize(("pool", "pad", "up_pad", "shift"), [(2, 0, 0, 0), (4, 0, 0, -1), (2, 4, 0, -4), (2, 0, 4, 4)])
def test_maps_through_convolutions(pool: int, pad: int, up_pad: int, shift: int) -> None:
    n = chain(pool=pool, up=pool, pad=pad, up_pad=up_pad)
    axis, scale, found = coord_map_from_to(n.up, n.data)
    assert (axis, scale, found) == (1, 1, shift)


def test_a_map_agrees_with_where_values_go(tmp_path: Path) -> None:
    """A single bright pixel, carried through a strided, padded, dilated convolution with a box filter."""
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 41, 41]})
    n.conv = L.Convolution(n.data, convolution_param={
        "num_output": 1, "kernel_size": 3, "stride": 2, "pad": 1, "dilation": 2,
        "weight_filler": {"type": "constant", "value": 1},
    })  # fmt: skip
    axis, scale, shift = coord_map_from_to(n.conv, n.data)
    path = tmp_path / "net.prototxt"
    path.write_text(str(n.to_proto()))
    net = caffe.Net(str(path), caffe.TEST)
    net.blobs["data"].data[...] = 0
    net.blobs["data"].data[0, 0, 21, 21] = 1
    rows = np.nonzero(net.forward()["conv"][0, 0])[0]
    # From positions in `conv` to those in `data`: the middle of what has lit up lies on the pixel.
    assert axis == 1
    np.testing.assert_allclose(rows.mean() * scale + shift, 21)
    _, scale, shift = coord_map_from_to(n.data, n.conv)
    np.testing.assert_allclose(21 * scale + shift, rows.mean())


def test_layers_that_keep_positions_and_crops() -> None:
    n = chain()
    n.relu = L.ReLU(n.up)
    assert coord_map_from_to(n.relu, n.data) == coord_map_from_to(n.up, n.data)
    n.cut = L.Crop(n.up, n.data, axis=2, offset=3)
    assert coord_map_from_to(n.cut, n.data) == (1, 1, 3)
    layer = crop(n.up, n.data).fn
    assert layer.params == {"crop_param": {"axis": 2, "offset": [0]}}


def test_two_axes_are_mapped_as_each_alone() -> None:
    both = coord_map_from_to(*(lambda n: (n.up, n.data))(chain(kernel=[3, 5], stride=[1, 2], pad=[0, 10])))
    for index, single in enumerate((chain(), chain(kernel=5, stride=2, pad=10))):
        _, scale, shift = coord_map_from_to(single.up, single.data)
        assert both[1][index] == scale
        assert both[2][index] == shift


def test_what_cannot_be_mapped() -> None:
    n = chain()
    n.ip = L.InnerProduct(n.up, num_output=10)
    with pytest.raises(RuntimeError, match="connected by spatial layers"):
        coord_map_from_to(n.ip, n.data)
    with pytest.raises(UndefinedMapException):
        coord_map.coord_map(n.ip.fn)
    with pytest.raises(AssertionError, match="scale mismatch"):
        crop(*(lambda m: (m.up, m.data))(chain(pool=3)))
    with pytest.raises(AssertionError, match="negative offset"):
        crop(*(lambda m: (m.up, m.data))(chain(up_pad=10)))
    with pytest.raises(AxisMismatchException):
        compose((1, 1, 0), (2, 1, 0))
    assert inverse((1, 2.0, 6.0)) == (1, 0.5, -3.0)

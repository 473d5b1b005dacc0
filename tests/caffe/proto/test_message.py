"""Message objects: attributes, defaults, presence, checks."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.caffe.proto import Message, UnknownField, new_message, walk
from undertow.errors import FormatError, UndertowError


@pytest.fixture
def layer() -> Message:
    return new_message("LayerParameter", name="conv1", type="Convolution")


def test_unset_fields_read_as_defaults(layer: Message) -> None:
    assert layer.convolution_param.bias_term is True
    assert layer.convolution_param.engine == "DEFAULT"
    assert layer.phase == "TRAIN"
    assert layer.bottom == []
    assert layer.convolution_param.pad == ()
    assert new_message("BlobProto").data.shape == (0,)
    assert layer.field_names() == ["name", "type"]


def test_defaults_of_an_unset_message_cannot_be_changed_by_accident(layer: Message) -> None:
    with pytest.raises(UndertowError, match="use owner"):
        layer.convolution_param.num_output = 3
    with pytest.raises(UndertowError, match="use owner"):
        layer.convolution_param.mutable("weight_filler")
    with pytest.raises(UndertowError, match="use owner"):
        layer.convolution_param.clear_field("num_output")
    layer.mutable("convolution_param").num_output = 3
    assert layer.convolution_param.num_output == 3
    assert new_message("LayerParameter").convolution_param.num_output == 0


def test_presence(layer: Message) -> None:
    assert layer.has_field("name")
    assert not layer.has_field("phase")
    assert not layer.has_field("bottom")
    layer.phase = "TRAIN"
    layer.bottom.append("data")
    assert layer.has_field("phase")
    assert layer.has_field("bottom")
    layer.clear_field("phase")
    del layer.bottom
    assert layer.field_names() == ["name", "type"]
    for name in ("has_field", "clear_field", "mutable", "add"):
        with pytest.raises(AttributeError, match="LayerParameter has no field nam; did you mean name"):
            getattr(layer, name)("nam")


def test_reading_a_list_does_not_set_it(layer: Message) -> None:
    before = layer.to_bytes()
    assert list(layer.top) == []
    assert not layer.has_field("top")
    assert layer.to_bytes() == before
    assert layer == new_message("LayerParameter", name="conv1", type="Convolution")


def test_mistyped_names(layer: Message) -> None:
    with pytest.raises(AttributeError, match="LayerParameter has no field botom; did you mean bottom"):
        layer.botom  # noqa: B018
    with pytest.raises(AttributeError, match="no field botom"):
        layer.botom = ["x"]
    with pytest.raises(AttributeError, match="no field botom"):
        Message(layer.descriptor, botom=["x"])
    assert not hasattr(layer, "no_such_field")
    assert "convolution_param" in dir(layer)


def test_enums_by_name_or_number() -> None:
    pooling = new_message("PoolingParameter", pool=1)
    assert pooling.pool == "AVE"
    pooling.pool = "MAX"
    assert pooling.pool == "MAX"
    for wrong in ("AVG", 9, True, 1.0, None):
        with pytest.raises(FormatError, match=r"PoolMethod has no value .*MAX, AVE, STOCHASTIC"):
            pooling.pool = wrong


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        ("LayerParameter", "name", 5),
        ("LayerParameter", "name", None),
        ("ConvolutionParameter", "num_output", -1),
        ("ConvolutionParameter", "num_output", 2**32),
        ("ConvolutionParameter", "num_output", 1.0),
        ("ConvolutionParameter", "num_output", True),
        ("ConvolutionParameter", "bias_term", 2),
        ("ConvolutionParameter", "bias_term", "true"),
        ("ReLUParameter", "negative_slope", "1"),
        ("ReLUParameter", "negative_slope", 1j),
        ("ReLUParameter", "negative_slope", np.complex64(1)),
        ("Datum", "data", "text"),
        ("Datum", "label", np.float32(1)),
    ],
)
def test_values_that_do_not_fit(message: str, name: str, value: object) -> None:
    with pytest.raises(FormatError, match=rf"{message}\.{name}: "):
        setattr(new_message(message), name, value)


def test_values_that_fit() -> None:
    datum = new_message("Datum", channels=np.int64(3), data=bytearray(b"ab"), encoded=np.True_, label=np.uint8(7))
    assert (datum.channels, datum.data, datum.encoded, datum.label) == (3, b"ab", True, 7)
    assert new_message("NetParameter", name=b"caf\xc3\xa9").name == "café"
    assert new_message("ReLUParameter", negative_slope=np.float64(0.1)).negative_slope == np.float32(0.1)
    assert new_message("ReLUParameter", negative_slope=-1e300).negative_slope == -np.inf


def test_repeated_fields_check_everything_put_in(layer: Message) -> None:
    layer.bottom = ["a"]
    layer.bottom += ["b"]
    layer.bottom.extend("cd")
    layer.bottom.insert(0, "z")
    layer.bottom[1] = b"A"
    layer.bottom[3:] = ["C"]
    assert layer.bottom == ["z", "A", "b", "C"]
    for change in (
        lambda: layer.bottom.append(1),
        lambda: layer.bottom.extend(["x", 1]),
        lambda: layer.bottom.insert(0, 1),
        lambda: layer.bottom.__setitem__(0, 1),
        lambda: layer.bottom.__setitem__(slice(0, 1), [1]),
        lambda: layer.bottom.__iadd__([1]),
    ):
        with pytest.raises(FormatError):
            change()
    assert layer.bottom == ["z", "A", "b", "C"]


def test_messages_in_messages(layer: Message) -> None:
    layer.param.add(lr_mult=1)
    layer.add("param", lr_mult=2, name="w")
    layer.pooling_param = {"pool": "AVE"}
    layer.relu_param = new_message("ReLUParameter", negative_slope=0.5)
    assert [param.lr_mult for param in layer.param] == [1, 2]
    assert layer.pooling_param.pool == "AVE"
    with pytest.raises(UndertowError, match="takes a PoolingParameter, not int"):
        layer.pooling_param = 5
    with pytest.raises(UndertowError, match="takes a PoolingParameter, not Message"):
        layer.pooling_param = new_message("ReLUParameter")
    with pytest.raises(UndertowError, match="does not hold a list"):
        layer.add("pooling_param")
    with pytest.raises(UndertowError, match="does not hold a single message"):
        layer.mutable("param")


def test_arrays() -> None:
    values = np.arange(6, dtype=np.float32)
    blob = new_message("BlobProto", data=values)
    assert np.shares_memory(blob.data, values)
    blob.data = [[1, 2], [3, 4]]
    assert blob.data.dtype == np.float32
    assert blob.data.tolist() == [1, 2, 3, 4]
    blob.double_data = (1, 2)
    assert blob.double_data.dtype == np.float64
    with pytest.raises(UndertowError, match="takes numbers"):
        blob.data = ["a"]
    with pytest.raises(UndertowError, match="takes numbers"):
        blob.data = np.array([1j])


def test_equality() -> None:
    assert new_message("BlobProto", data=[np.nan]) == new_message("BlobProto", data=[np.nan])
    assert new_message("BlobProto", data=[1]) != new_message("BlobProto", data=[2])
    assert new_message("ReLUParameter", negative_slope=np.nan) == new_message("ReLUParameter", negative_slope=np.nan)
    assert new_message("ReLUParameter") != new_message("ReLUParameter", negative_slope=0)
    assert new_message("ReLUParameter") != new_message("TanHParameter")
    assert new_message("ReLUParameter") != 5
    with_unknown = new_message("ReLUParameter")
    with_unknown.keep_unknown(UnknownField(9, 0, b"\x48\x01"))
    assert with_unknown != new_message("ReLUParameter")
    assert with_unknown.copy() == with_unknown
    with pytest.raises(TypeError, match="unhashable"):
        hash(with_unknown)


def test_copies_share_nothing_that_can_change(layer: Message) -> None:
    layer.blobs.add(data=np.ones(3, np.float32), shape={"dim": [3]})
    other = layer.copy()
    other.blobs[0].data[0] = 5
    other.blobs[0].shape.dim[0] = 4
    other.top.append("x")
    assert layer.blobs[0].data[0] == 1
    assert layer.blobs[0].shape.dim == [3]
    assert layer.top == []
    layer.copy_from(other)
    assert layer == other
    layer.copy_from(layer)
    assert layer == other
    with pytest.raises(UndertowError, match="cannot merge NetParameter into LayerParameter"):
        layer.merge_from(new_message("NetParameter"))


def test_walk_names_every_message() -> None:
    net = new_message("NetParameter", layer=[{"blobs": [{"shape": {"dim": [1]}}]}], state={"level": 1})
    assert [path for path, _ in walk(net)] == ["", "state", "layer[0]", "layer[0].blobs[0]", "layer[0].blobs[0].shape"]


def test_representations(layer: Message) -> None:
    assert repr(layer) == "<LayerParameter 'conv1': name, type>"
    assert str(layer) == 'name: "conv1"\ntype: "Convolution"\n'

"""The table of messages: Caffe's facts, forks, collisions, own fields."""

from __future__ import annotations

import pytest

from undertow.caffe.proto import get_schema, known_forks, new_message, parse_bytes, parse_text, register_fork
from undertow.caffe.proto.notation import read_notation
from undertow.caffe.proto.schema import Field, forks_with
from undertow.caffe.proto.upgrade import _V1_TYPES
from undertow.errors import FormatError, UndertowError


def field(path: str, fork: str | tuple[str, ...] | None = None) -> Field:
    message, name = path.split(".")
    return get_schema(fork)[message].by_name[name]


def test_size_of_caffes_own_part() -> None:
    messages = get_schema(None).messages
    assert len(messages) == 63
    assert len(messages["LayerParameter"].fields) == 60
    assert len(messages["SolverParameter"].fields) == 42
    assert len(messages["V1LayerParameter"].enums["LayerType"].numbers) == 40


@pytest.mark.parametrize(
    ("path", "number", "kind", "default"),
    [
        ("NetParameter.layer", 100, "message", None),
        ("NetParameter.layers", 2, "message", None),
        ("BlobProto.data", 5, "float", 0),
        ("SolverParameter.type", 40, "string", "SGD"),
        ("SolverParameter.solver_mode", 17, "enum", "GPU"),
        ("SolverParameter.delta", 31, "float", 9.99999993922529e-09),
        ("SolverParameter.random_seed", 20, "int64", -1),
        ("NetState.phase", 1, "enum", "TEST"),
        ("NetStateRule.phase", 1, "enum", "TRAIN"),
        ("LayerParameter.batch_norm_param", 139, "message", None),
        ("LossParameter.normalization", 3, "enum", "VALID"),
        ("HingeLossParameter.norm", 1, "enum", "L1"),
        ("WindowDataParameter.crop_mode", 11, "string", "warp"),
        ("ConvolutionParameter.bias_term", 2, "bool", True),
        ("EltwiseParameter.operation", 1, "enum", "SUM"),
        ("V0LayerParameter.hdf5_output_param", 1001, "message", None),
    ],
)
def test_facts(path: str, number: int, kind: str, default: object) -> None:
    known = field(path)
    assert (known.number, known.kind, known.default) == (number, kind, default)


def test_packing_required_and_deprecated() -> None:
    assert field("BlobShape.dim").packed
    assert field("BlobProto.double_diff").packed
    assert not field("Datum.float_data").packed
    assert not field("LayerParameter.loss_weight").packed
    assert field("ClipParameter.max").required
    assert field("NetParameter.input_dim").deprecated
    assert not field("NetParameter.layer").deprecated


def test_every_v1_type_has_a_current_name() -> None:
    assert set(_V1_TYPES) == set(get_schema(None)["V1LayerParameter"].enums["LayerType"].numbers)


@pytest.mark.parametrize(
    ("path", "fork", "number"),
    [
        ("LayerParameter.permute_param", "ssd", 202),
        ("LayerParameter.detection_output_param", "ssd", 204),
        ("LayerParameter.norm_param", "ssd", 206),
        ("LayerParameter.upsample_param", "ssd", 149),
        ("LayerParameter.interp_param", "pspnet", 143),
        ("LayerParameter.bn_param", "segnet", 45),
        ("LayerParameter.roi_pooling_param", "fast-rcnn", 8266711),
        ("BlobProto.raw_data", "nvidia", 12),
        ("TransformationParameter.resize_param", "nvidia", 208),
    ],
)
def test_fields_of_forks(path: str, fork: str, number: int) -> None:
    message, name = path.split(".")
    assert name not in get_schema(None)[message].by_name
    assert field(path, fork).number == number
    assert field(path, fork).source == fork


@pytest.mark.parametrize("fork", [None, *known_forks()])
def test_every_fork_still_has_all_of_caffe(fork: str | None) -> None:
    schema = get_schema(fork)
    for message in get_schema(None).messages.values():
        for known in message.fields:
            assert known.name in schema[message.name].by_name


def test_colliding_numbers_name_both_sides() -> None:
    with pytest.raises(
        FormatError, match=r"field 149 \(mine\) of 'me' collides with field 149 \(upsample_param\) of 'ssd'"
    ):
        get_schema().extended("LayerParameter\n  149 mine int32", "me")
    with pytest.raises(FormatError, match=r"field 99 \(name\) of 'me' collides with field 1 \(name\) of 'caffe'"):
        get_schema().extended("NetParameter\n  99 name string", "me")
    with pytest.raises(FormatError, match=r"'segnet' collides with .*'pspnet'"):
        get_schema(("pspnet", "segnet"))
    with pytest.raises(FormatError, match=r"MINE = 2 of 'me' collides with STOCHASTIC = 2 of 'caffe'"):
        get_schema().extended("PoolingParameter\n  enum PoolMethod MINE=2", "me")


def test_the_same_field_twice_is_no_collision() -> None:
    schema = get_schema().extended("NetParameter\n  1 name string", "me")
    assert schema["NetParameter"].by_name["name"].source == "caffe"


def test_own_fields_for_one_reading() -> None:
    schema = get_schema().extended(
        """
LayerParameter
  5000 my_param MyParameter
MyParameter
  enum Mode SLOW=0 FAST=4
  1 mode Mode = FAST
  2 factor float = 0.5   # a comment
  3 part PoolingParameter.PoolMethod*
""",
        "mine",
    )
    net = parse_text('layer { name: "m" my_param { factor: 2 part: [AVE, MAX] } }', fork=schema)
    mine = net.layer[0].my_param
    assert (mine.mode, mine.factor, mine.part) == ("FAST", 2, ["AVE", "MAX"])
    assert parse_bytes(net.to_bytes(), schema["NetParameter"]) == net
    assert net.layer[0].pooling_param.pool == "MAX"


def test_registered_fork() -> None:
    text = "LayerParameter\n  5001 registered_param ReLUParameter"
    register_fork("test-registered", text)
    register_fork("test-registered", text)
    assert "test-registered" in known_forks()
    assert forks_with("LayerParameter", "registered_param") == ["test-registered"]
    assert forks_with("LayerParameter", 5001) == ["test-registered"]
    layer = new_message("LayerParameter", ("ssd", "test-registered"), registered_param={"negative_slope": 1})
    assert layer.registered_param.negative_slope == 1
    with pytest.raises(UndertowError, match="registered already"):
        register_fork("test-registered", "NetParameter\n  99 other int32")
    with pytest.raises(FormatError, match="collides"):
        register_fork("test-colliding", "NetParameter\n  1 other int32")
    assert "test-colliding" not in known_forks()


def test_unknown_names() -> None:
    with pytest.raises(UndertowError, match=r"no fork named 'sdd'.*did you mean 'ssd'"):
        get_schema("sdd")
    with pytest.raises(UndertowError, match="did you mean NetParameter"):
        get_schema()["NetParametr"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("  1 name string", 1, "cannot understand '1 name string'"),
        ("Mine\n  name string", 2, "cannot understand 'name string'"),
        ("Mine\n  0 a int32", 2, "cannot understand"),
        ("Mine\n  536870912 a int32", 2, "cannot understand"),
        ("Mine\n  1 a int32[]", 2, "cannot understand"),
        ("Mine\n  enum A", 2, "cannot understand"),
        ("Mine\n  - two words here", 2, "cannot understand"),
        ("two words", 1, "cannot understand"),
        ("enum A B", 1, "cannot understand"),
    ],
)
def test_bad_notation_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read_notation(text, "mine")
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Mine\n  1 a Missing", "there is no type Missing"),
        ("Mine\n  1 a PoolingParameter.Missing", "there is no type PoolingParameter.Missing"),
        ("Mine\n  1 a Phase = MAYBE", "Phase has no value MAYBE"),
        ("Mine\n  1 to_text string", "cannot be named to_text"),
        ("Mine\n  1 _hidden string", "cannot be named _hidden"),
    ],
)
def test_bad_declarations(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        get_schema().extended(text, "mine")

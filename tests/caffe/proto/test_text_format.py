"""The grammar of prototxt: what is accepted, with which values, and what is refused, where and why."""

from __future__ import annotations

import math

import pytest

from undertow.caffe.proto import Message, TextFormatError, UnknownField, new_message, parse_text, protobuf

# Texts of a NetParameter and the same in the plainest form.
ACCEPTED = [
    ("", ""),
    ("  \n\t\r\v\f # nothing but a comment", ""),
    ('name:"x"force_backward:true', 'name: "x" force_backward: true'),
    ("""name: "a" 'b'\n # between\n"c" """, 'name: "abc"'),
    (r"""name: '\x41\101\n\t\r\a\b\f\v\'\"\\'""", 'name: "AA\\012\\011\\015\\007\\010\\014\\013\\047\\042\\134"'),
    (r'name: "\u00e9\U0001F600"', 'name: "é😀"'),
    ('name: "é"', r'name: "\303\251"'),
    ("""name: 'it"s'""", r'name: "it\"s"'),
    ('layer: { name: "x" }', 'layer { name: "x" }'),
    ('layer < name: "x" >', 'layer { name: "x" }'),
    ('layer: < name: "x" >,layer{};', 'layer { name: "x" } layer { }'),
    ('name: "x", layer { name: "y"; type: "z", }', 'name: "x" layer { name: "y" type: "z" }'),
    ("input_dim: [1, 2, 3], input_dim: 4", "input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4"),
    ("input_dim: []", ""),
    ('layer: [{name: "a"}, <name: "b">]', 'layer { name: "a" } layer { name: "b" }'),
    ('layer [{name: "a"}]', 'layer { name: "a" }'),
    ("state { level: 0x1F }", "state { level: 31 }"),
    ("state { level: 017 }", "state { level: 15 }"),
    ("state { level: 0 }", "state { level: 00 }"),
    ("state { level: -2147483648 }", "state { level: -0x80000000 }"),
    ("state { phase: 0 }", "state { phase: TRAIN }"),
    ("force_backward: t", "force_backward: true"),
    ("force_backward: True", "force_backward: 1"),
    ("force_backward: f", "force_backward: false"),
    ("force_backward: False", "force_backward: 0"),
    ("layer { propagate_down: [true, 0, f] }", "layer { propagate_down: 1 propagate_down: 0 propagate_down: false }"),
    ("layer { loss_weight: 1.5f loss_weight: 1F loss_weight: 2e3f }", "layer { loss_weight: [1.5, 1, 2000] }"),
    ("layer { loss_weight: 1. loss_weight: .5 loss_weight: 1E-2 }", "layer { loss_weight: [1.0, 0.5, 0.01] }"),
    ("layer { loss_weight: inf loss_weight: -Infinity }", "layer { loss_weight: 1e39 loss_weight: -1e400 }"),
    ("layer { loss_weight: 18446744073709551616 }", "layer { loss_weight: 1.8446744e19 }"),
    ("layer { blobs { data: [1, 2.5] data: -3 } }", "layer { blobs { data: 1 data: 2.5 data: -3 } }"),
]


@pytest.mark.parametrize(("text", "plain"), ACCEPTED)
def test_accepted(text: str, plain: str) -> None:
    assert parse_text(text) == parse_text(plain)


@pytest.mark.parametrize("text", [text for pair in ACCEPTED for text in pair])
def test_protobuf_reads_the_same(text: str) -> None:
    text_format = pytest.importorskip("google.protobuf.text_format")
    theirs = text_format.Parse(text, protobuf.protobuf_names()["NetParameter"]())
    assert protobuf.from_protobuf(theirs) == parse_text(text)


def test_values_beyond_protobufs_python_parser() -> None:
    """Caffe is C++: a sign may stand apart, and any byte may be written with an escape."""
    assert parse_text("state { level: - # sign\n 5 }").state.level == -5
    assert parse_text(r'name: "\xff\377\?"').name.encode("utf-8", "surrogateescape") == b"\xff\xff?"
    assert math.isnan(parse_text("layer { loss_weight: -nan }").layer[0].loss_weight[0])


REFUSED = [
    ('name: "a', 7, "a string does not end"),
    ("name: 'a\nb'", 7, "a string does not end"),
    (r'name: "C:\data"', 10, r"\\d is no escape sequence"),
    (r'name: "\ud800"', 7, "not a character"),
    ('name "x"', 6, "expected ':' after name"),
    ("name: x", 7, "expected a string in quotes for name, found 'x'"),
    ('name: ["x"]', 7, "name takes one value, not a list"),
    ('layer { name: "x" >', 19, "'>' closes nothing"),
    ("layer { name: 'x'", 18, "expected '}' for the bracket of line 2, found the end of the file"),
    ("}", 1, "'}' closes nothing"),
    (", name: 'x'", 1, "expected the name of a field"),
    ("layer { };;", 11, "expected the name of a field"),
    ("// comment", 1, "comments begin with #"),
    ("[some.extension] { }", 1, "extensions"),
    ("input_dim: [1,]", 15, "expected a whole number for input_dim"),
    ("input_dim: [1 2]", 15, "expected ',' or ']'"),
    ("state { level: 08 }", 16, "octal"),
    ("state { level: 5.0 }", 16, "expected a whole number for level, found '5.0'"),
    ("state { level: 2147483648 }", 16, "lies between -2147483648 and 2147483647"),
    ("layer { convolution_param { pad: -1 } }", 34, "lies between 0 and 4294967295, not -1"),
    ("layer { convolution_param { kernel_size: 3x3 } }", 42, "3x3 is not a number"),
    ("state { phase: train }", 16, "phase cannot be train .*use one of TRAIN, TEST"),
    ("state { phase: -1 }", 16, "phase cannot be -1"),
    ('state { phase: "TEST" }', 16, "expected a value for phase"),
    ("force_backward: yes", 17, "expected true or false"),
    ("force_backward: 2", 17, "expected true or false"),
    ("layer { loss_weight: 0x10 }", 22, "decimal number"),
    ("layer { loss_weight: 00.5 }", 22, "octal"),
    ("layer { loss_weight: 1e }", 22, "1e is not a number"),
    ("layer { loss_weight: 1.5.2 }", 22, "is not a number"),
    ("layer { loss_weight: high }", 22, "expected a number for loss_weight"),
    ("layer { clip_param { min: 0 } }", 20, "ClipParameter lacks max"),
    ("name: 'a' name: 'b'", 11, "`name` is not repeated but given twice"),
    ("state { } state { }", 11, "`state` is not repeated but given twice"),
    ("name: “x”", 7, r"unexpected character U\+201C.*typographic quotes"),
    ("name\u00a0: 'x'", 5, r"U\+00A0"),
    ("name: 'x' \x01", 11, "unexpected character"),
    ("state 5", 7, "expected '{' after state"),
]


@pytest.mark.parametrize(("text", "column", "message"), REFUSED)
def test_refused_with_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(TextFormatError, match=message) as caught:
        parse_text("# first line\n" + text, file="some.prototxt")
    assert caught.value.column == column
    assert str(caught.value).startswith(f"some.prototxt:{caught.value.line}: ")
    assert caught.value.line in (2, 3)


def test_deep_nesting_does_not_end_in_a_recursion_error() -> None:
    with pytest.raises(TextFormatError, match="no field deep"):
        parse_text("deep { " * 100_000 + "}" * 100_000)
    with pytest.raises(TextFormatError, match="never closed"):
        parse_text("deep { " * 100_000)


def test_endless_numbers_and_words() -> None:
    with pytest.raises(TextFormatError, match="a number of 5000 characters"):
        parse_text(f"input_dim: {'9' * 5000}")
    with pytest.raises(TextFormatError, match="9 is not a number"):
        parse_text(f"input_dim: {'9' * 1_000_000}x")
    with pytest.raises(TextFormatError, match="a number of"):
        parse_text(f"layer {{ loss_weight: 1e{'9' * 5000} }}")


def test_mistyped_field_gets_the_nearest_name() -> None:
    with pytest.raises(TextFormatError, match=r"has no field kernel_sise; layer c, type Convolution.*mean kernel_size"):
        parse_text('layer { name: "c" convolution_param { kernel_sise: 3 } type: "Convolution" }')


def test_all_unknown_fields_are_named_at_once() -> None:
    with pytest.raises(TextFormatError, match=r"has no field one .*also unknown: two \(line 2\), three \(line 3\)"):
        parse_text("one: 1\ntwo { x: 'y' 'z' }\nlayer { three: [1, 2] }")


@pytest.mark.parametrize("value", [": 5", ": -x", ': "a" "b"', "{ a < b: [1] > }", ": { }", "[{ }, { }]", ": 1.5"])
def test_unknown_fields_are_kept_with_their_text(value: str) -> None:
    net = parse_text(f'name: "n"\nmine{value}, layer {{ name: "l" }}', unknown="keep")
    assert [(item.name, item.raw.decode(), item.line) for item in net.unknown_fields] == [("mine", f"mine{value}", 2)]
    assert net.layer[0].name == "l"
    assert parse_text(net.to_text(), unknown="keep") == net


@pytest.mark.parametrize("text", ["mine", "mine:", "mine: }", "mine: { ]", "mine 5"])
def test_unknown_fields_must_still_be_well_formed(text: str) -> None:
    with pytest.raises(TextFormatError):
        parse_text(text, unknown="keep")


def test_lines_of_messages_and_fields() -> None:
    net = parse_text('name: "n"\nlayer {\n  name: "a"\n  bottom: "x"\n  bottom: "y"\n}\nlayer { }')
    assert net.line_of("name") == 1
    assert [layer.line_of() for layer in net.layer] == [2, 7]
    assert net.layer[0].line_of("bottom") == 5
    assert net.layer[1].line_of("name") is None


def test_numbers_are_kept_as_float32() -> None:
    assert parse_text("base_lr: 0.1", "SolverParameter").base_lr == 0.10000000149011612


def test_text_unknown_fields_cannot_be_stored_in_binary() -> None:
    net = parse_text("mine: 5", unknown="keep")
    assert isinstance(net.unknown_fields[0], UnknownField)
    with pytest.warns(UserWarning, match="line 1: mine is in no schema"):
        assert net.to_bytes() == b""


def written(**values: object) -> str:
    return new_message("FillerParameter", **values).to_text().removeprefix("value: ").rstrip("\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"), (0.1, "0.1"), (1e-5, "1e-05"), (1 / 3, "0.33333334"), (16777216, "16777216"), (1e30, "1e+30"),
        (1.4e-45, "1.4013e-45"), (3.4028235e38, "3.4028235e+38"), (-0.0, "-0"), (math.inf, "inf"), (-math.inf, "-inf"),
        (math.nan, "nan"), (0.1 + 0.2, "0.3"), (123456789, "1.2345679e+08"),
    ],
)  # fmt: skip
def test_floats_are_written_as_short_as_they_read_back(value: float, text: str) -> None:
    assert written(value=value) == text


def test_long_arrays_are_cut_only_in_str() -> None:
    blob = parse_text(f"data: {list(range(100))}", "BlobProto")
    assert blob.to_text().count("data:") == 100
    assert str(blob).count("data:") == 16
    assert "# 84 more values of data" in str(blob)
    assert isinstance(parse_text(str(blob), "BlobProto"), Message)

"""Binary protobuf: every wire form, merging, unknown fields, and damage reported with offset and path."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest

from undertow.caffe.proto import Message, blob_array, get_schema, new_message, parse_bytes
from undertow.caffe.proto.wire_writer import to_chunks, varint
from undertow.errors import FormatError


def parse(data: bytes, message: str = "NetParameter") -> Message:
    return parse_bytes(data, get_schema()[message])


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def delimited(number: int, data: bytes) -> bytes:
    return tag(number, 2) + varint(len(data)) + data


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\0"),
        (1, b"\1"),
        (127, b"\x7f"),
        (300, b"\xac\2"),
        (-1, b"\xff" * 9 + b"\1"),
        (2**64 - 1, b"\xff" * 9 + b"\1"),
    ],
)
def test_varints(value: int, data: bytes) -> None:
    assert varint(value) == data


def test_numbers_of_all_kinds() -> None:
    schema = get_schema(None).extended(
        """
        All
          1 a sint32
          2 b sint64
          3 c fixed32
          4 d sfixed32
          5 e fixed64
          6 f sfixed64
          7 g double
          8 h uint64
          9 i int64
          10 j sint32* packed
          11 k sfixed64* packed
        """.replace("\n        ", "\n"),
        "test",
    )
    data = (
        b"\x08\x03\x10\x04" + b"\x1d\1\0\0\0" + b"\x25\xff\xff\xff\xff" + b"\x29" + struct.pack("<Q", 2**63)
        + b"\x31" + struct.pack("<q", -5) + b"\x39" + struct.pack("<d", 1.5) + b"\x40" + varint(2**64 - 1)
        + b"\x48" + varint(-7) + b"\x52\x02\x01\x02" + b"\x5a\x08" + struct.pack("<q", -9)
    )  # fmt: skip
    message = parse_bytes(data, schema["All"])
    assert (message.a, message.b, message.c, message.d) == (-2, 2, 1, -1)
    assert (message.e, message.f, message.g, message.h, message.i) == (2**63, -5, 1.5, 2**64 - 1, -7)
    assert (message.j, message.k) == ([-1, 1], [-9])
    assert message.to_bytes() == data


def test_large_varints_are_cut_as_protobuf_cuts_them() -> None:
    assert parse(tag(4, 0) + varint(2**32 + 5)).input_dim == [5]
    assert parse(tag(5, 0) + varint(2**40)).force_backward is True
    assert parse(tag(1, 0) + varint(2**33 + 2), "ConvolutionParameter").num_output == 2


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("count", [1, 3, 200])
def test_floats_packed_or_not_are_views(packed: bool, count: int) -> None:
    values = np.arange(count, dtype="<f4")
    data = b"".join(tag(5, 5) + value.tobytes() for value in values)
    message = parse(delimited(5, values.tobytes()) if packed else data, "BlobProto")
    np.testing.assert_array_equal(message.data, values)
    assert not message.data.flags.writeable
    assert not message.data.flags.owndata


def test_floats_in_pieces_are_joined_in_order() -> None:
    one = struct.pack("<f", 1)
    data = tag(5, 5) + one + delimited(5, one * 2) + tag(6, 5) + one + (tag(5, 5) + one) * 40 + tag(6, 5) + one
    message = parse(data, "BlobProto")
    assert (len(message.data), len(message.diff)) == (43, 2)


def test_unpacked_floats_are_written_unpacked_where_the_schema_says_so() -> None:
    datum = new_message("Datum", float_data=[1, 2])
    assert datum.to_bytes() == b"".join(tag(6, 5) + struct.pack("<f", value) for value in (1, 2))


def test_last_single_value_wins_and_messages_merge() -> None:
    data = delimited(1, b"a") + delimited(1, b"b") + delimited(6, b"\x08\x00") + delimited(6, b"\x10\x03")
    net = parse(data)
    assert (net.name, net.state.phase, net.state.level) == ("b", "TRAIN", 3)


def test_fields_are_written_by_number_and_unknown_ones_last() -> None:
    unknown = delimited(77, b"xyz") + tag(78, 0) + varint(5) + tag(79, 1) + bytes(8) + tag(80, 5) + bytes(4)
    net = parse(unknown[:6] + delimited(100, b"") + delimited(1, b"n") + unknown[6:])
    assert net.to_bytes() == delimited(1, b"n") + delimited(100, b"") + unknown
    assert [(item.number, item.wire_type) for item in net.unknown_fields] == [(77, 2), (78, 0), (79, 1), (80, 5)]
    assert net.unknown_fields[0].offset == 0


def test_groups_are_kept_whole() -> None:
    group = tag(9, 3) + delimited(1, b"in") + tag(10, 3) + tag(10, 4) + tag(9, 4)
    net = parse(group + delimited(1, b"n"))
    assert (net.name, net.unknown_fields[0].raw) == ("n", group)


def test_value_of_another_form_and_enum_without_a_name_are_kept() -> None:
    data = tag(1, 0) + b"\5" + tag(6, 2) + b"\2" + b"\x08\x09"
    net = parse(data)
    assert not net.has_field("name")
    assert not net.state.has_field("phase")
    assert len(net.unknown_fields) == len(net.state.unknown_fields) == 1
    assert net.to_bytes() == delimited(6, b"\x08\x09") + tag(1, 0) + b"\5"


def test_strings_that_are_not_utf8_keep_their_bytes() -> None:
    data = delimited(1, b"\xc4\xe3\xff")
    assert parse(data).to_bytes() == data


# Damage: bytes of a NetParameter, the offset that the error names, and what it says.
DAMAGED = [
    (delimited(100, delimited(7, tag(5, 2) + varint(2**31)))[:-1], 2, "field 100 claims 8 bytes, 7 left"),
    (
        delimited(100, delimited(7, tag(5, 2) + b"\x09" + bytes(9))),
        7,
        r"9 bytes are no whole number of floats \(layer\[0\]\.blobs\[0\]\.data\)",
    ),
    (
        delimited(1, b"x") + delimited(100, delimited(1, b"ab") + tag(2, 2) + b"\7"),
        11,
        r"field 2 claims 7 bytes, 0 left \(layer\[0\]\.type\)",
    ),
    (delimited(100, tag(5, 5) + b"\0\0"), 4, "field 5 needs 4 bytes, 2 left"),
    (b"\xff" * 10 + b"\1", 0, "longer than ten bytes"),
    (b"\x80", 0, "a field number has no end"),
    (tag(4, 0) + b"\x80", 1, "the value of field 4 has no end"),
    (b"\x00\x01", 0, "0 is no field number"),
    (varint(1 << 35), 0, "is no field number"),
    (tag(9, 4), 0, "end of a group that did not begin"),
    (tag(9, 3) + tag(8, 4), 1, "end of a group that did not begin"),
    (tag(9, 3), 1, "the group of field 9 has no end"),
    (tag(9, 3) * 101, 100, "too many groups"),
    (tag(9, 6), 0, "there is no wire type 6"),
    (tag(9, 1) + bytes(7), 0, "field 9 is cut off"),
    (delimited(100, delimited(148, tag(1, 5) + bytes(4))), 11, "ClipParameter lacks max"),
]


@pytest.mark.parametrize(("data", "offset", "message"), DAMAGED)
def test_damage(data: bytes, offset: int, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        parse(data)
    assert caught.value.offset == offset
    assert "another copy" in (caught.value.remedy or "")


def test_own_messages_inside_each_other() -> None:
    schema = get_schema().extended("Node\n  1 next Node", "test")
    data = b""
    for _ in range(100):
        data = delimited(1, data)
    assert parse_bytes(data, schema["Node"]).has_field("next")
    with pytest.raises(FormatError, match="more than 100 deep"):
        parse_bytes(delimited(1, data), schema["Node"])


def refused_with_memory(data: bytes) -> int:
    """The most memory taken while data that claims too much is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"claims|a blob of shape"):
            blob_array(parse(data).layer[0].blobs[0])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        tag(100, 2) + varint(2**40),
        delimited(100, delimited(7, tag(5, 2) + varint(2**62))),
        delimited(100, delimited(7, delimited(7, delimited(1, varint(2**40) * 3)) + delimited(5, bytes(8)))),
    ],
)
def test_claimed_sizes_take_no_memory(data: bytes) -> None:
    assert refused_with_memory(data) < 100_000


def test_large_arrays_are_written_without_copies() -> None:
    values = np.zeros(100_000, np.float32)
    net = new_message("NetParameter", layer=[{"blobs": [{"data": values}]}])
    large = [chunk for chunk in to_chunks(net) if len(chunk) > 4096]
    assert len(large) == 1
    assert np.shares_memory(np.frombuffer(large[0], np.uint8), values)


def test_missing_required_field_is_not_written() -> None:
    with pytest.raises(FormatError, match="ClipParameter lacks max"):
        new_message("ClipParameter", min=0).to_bytes()

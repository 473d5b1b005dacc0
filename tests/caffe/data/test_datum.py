"""Datum records: sizes, encoded pictures, damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.caffe.data.samples import pictures
from undertow.caffe.data import datum_from_pixels, datum_pixels, encode_picture, parse_datum
from undertow.caffe.data.datum import _raw_record, encoded_datum
from undertow.caffe.proto import Message, new_message
from undertow.errors import FormatError, UndertowError, UndertowWarning


def test_bytes_and_floats_come_back() -> None:
    image = pictures(1)[0]
    datum = parse_datum(datum_from_pixels(image, 7).to_bytes())
    np.testing.assert_array_equal(datum_pixels(datum), image)
    assert datum.label == 7
    floats = (image / 7).astype(np.float32)
    np.testing.assert_array_equal(datum_pixels(parse_datum(datum_from_pixels(floats).to_bytes())), floats)


def test_encoded_ones_are_decoded() -> None:
    image = pictures(1)[0]
    datum = parse_datum(encoded_datum(encode_picture(image, "png"), 3).to_bytes())
    np.testing.assert_array_equal(datum_pixels(datum), image)
    assert datum_pixels(datum, False).shape == (1, 6, 8)


@pytest.mark.parametrize("size", [(3, 6, 9), (0, 0, 0), (-3, -6, 8), (2**31 - 1, 2**31 - 1, 2**31 - 1)])
def test_sizes_that_the_record_does_not_bear_out(size: tuple[int, int, int]) -> None:
    datum = new_message("Datum", channels=size[0], height=size[1], width=size[2], data=bytes(144))
    with pytest.raises(FormatError, match=r"record '42'.*the record holds 144"):
        datum_pixels(datum, key=b"42")


def test_surplus_values_are_named() -> None:
    datum = new_message("Datum", channels=1, height=2, width=2, data=b"abcdef")
    with pytest.warns(UndertowWarning, match="2 values too many"):
        assert datum_pixels(datum).tobytes() == b"abcd"


def test_damaged_bytes_name_record_file_and_offset() -> None:
    with pytest.raises(FormatError, match=r"somewhere: byte 1: record '7'.*claims"):
        parse_datum(b"\x22\xff\xff\xff\xff\x0fshort", key=b"7", file="somewhere")


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda tail: b"\x08\x01\x10\x02\x18\x02\x22" + tail))
@settings(max_examples=300, deadline=None)
@pytest.mark.filterwarnings("ignore::undertow.errors.UndertowWarning")
def test_any_bytes(data: bytes) -> None:
    try:
        pixels = datum_pixels(parse_datum(data))
    except UndertowError:
        return
    assert pixels.size <= len(data) or parse_datum(data).encoded


small = st.integers(1, 4)
datums = st.builds(
    lambda c, h, w, extra, label, encoded, floats: new_message(
        "Datum",
        channels=c,
        height=h,
        width=w,
        data=bytes(range(c * h * w)) + extra,
        **({} if label is None else {"label": label}),
        **({} if encoded is None else {"encoded": encoded}),
        **({"float_data": [1.0]} if floats else {}),
    ),
    small, small, small, st.sampled_from([b"", b"", b"x"]), st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.booleans(), st.booleans(),
)  # fmt: skip


@given(datums, st.binary(max_size=6))
@settings(max_examples=300, deadline=None)
@pytest.mark.filterwarnings("ignore::undertow.errors.UndertowWarning")
def test_the_short_way_equals_the_long_one(datum: Message, tail: bytes) -> None:
    for data in (datum.to_bytes(), datum.to_bytes() + tail, tail + datum.to_bytes(), datum.to_bytes()[:-1]):
        short = _raw_record(memoryview(data))
        if short is not None:
            again = parse_datum(data)
            np.testing.assert_array_equal(short.pixels, datum_pixels(again))
            assert short.label == again.label


def test_the_short_way_is_taken() -> None:
    record = _raw_record(memoryview(datum_from_pixels(pictures(1)[0], 300).to_bytes()))
    assert record is not None
    assert record.label == 300

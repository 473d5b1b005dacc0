"""Numbers in cfg values against C's own atoi and atof."""

from __future__ import annotations

import ctypes
import math
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from undertow.darknet.files.cfg import Section, parse_cfg
from undertow.darknet.files.values import (
    choice_value,
    flag_value,
    float_value,
    floats_value,
    integer_value,
    integers_value,
    suggestion,
)
from undertow.errors import FormatError, UndertowWarning

# No `x`, `i` or `n`: atof also reads hexadecimal numbers, infinity and nan, which mean nothing in a cfg.
_NUMBERISH = st.text("0123456789+-.eEa,", min_size=1, max_size=12)


@pytest.fixture(scope="module")
def libc() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(None)
        library.atof.restype, library.atof.argtypes = ctypes.c_double, [ctypes.c_char_p]
        library.atoi.restype, library.atoi.argtypes = ctypes.c_int, [ctypes.c_char_p]
    except (OSError, AttributeError, TypeError):
        pytest.skip("no C library to compare with")
    return library


def section(value: str, **options: bool) -> Section:
    return parse_cfg(f"[net]\nkey={value}\n", "test.cfg", **options).net


@given(text=_NUMBERISH)
def test_integers_as_atoi_reads_them(libc: ctypes.CDLL, text: str) -> None:
    text = text[:9]  # longer ones may leave 32 bits, which atoi does not define
    expected = libc.atoi(text.encode())
    read = section(text, original=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert integer_value(read, read.entries[0]) == expected


@given(text=_NUMBERISH)
def test_numbers_as_atof_reads_them(libc: ctypes.CDLL, text: str) -> None:
    expected = libc.atof(text.encode())
    assume(math.isfinite(expected) and abs(expected) < 3e38)
    read = section(text, original=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert float_value(read, read.entries[0]) == expected


def test_text_after_a_number_is_told() -> None:
    read = section("2.9")
    with pytest.warns(UndertowWarning, match=r"test\.cfg:2: '\.9' after the number"):
        assert integer_value(read, read.entries[0]) == 2
    strict = section("2.9", strict=True)
    with pytest.raises(FormatError, match="after the number"):
        integer_value(strict, strict.entries[0])


def test_words_are_no_numbers() -> None:
    read = section("many")
    for convert in (integer_value, float_value, flag_value, integers_value, floats_value):
        with pytest.raises(FormatError, match="key=many is not a") as caught:
            convert(read, read.entries[0])
        assert caught.value.line == 2


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "9" * 1000])
def test_integers_beyond_32_bits(text: str) -> None:
    read = section(text)
    with pytest.raises(FormatError, match="32 bits"):
        integer_value(read, read.entries[0])


@pytest.mark.parametrize("text", ["1e39", "-4e38", "1e999999999", "9" * 1000])
def test_numbers_beyond_float32(text: str) -> None:
    read = section(text)
    with pytest.raises(FormatError, match="too large"):
        float_value(read, read.entries[0])


def test_lists() -> None:
    read = section("10, 13,  16,30")
    assert integers_value(read, read.entries[0]) == (10, 13, 16, 30)
    read = section(".1,1e-2")
    assert floats_value(read, read.entries[0]) == (0.1, 0.01)


@pytest.mark.parametrize(
    ("text", "reason"), [("1,2,", "ended with a comma"), (",1", "value 1 of the list"), ("1,,2", "value 2")]
)
def test_lists_with_holes(text: str, reason: str) -> None:
    read = section(text)
    with pytest.raises(FormatError, match=reason):
        integers_value(read, read.entries[0])
    original = section(text, original=True)
    with pytest.warns(UndertowWarning, match="takes 0"):
        assert 0 in integers_value(original, original.entries[0])


def test_flags_are_integers() -> None:
    assert [flag_value(section(text), section(text).entries[0]) for text in ("0", "1", "2", "-1")] == [
        False, True, True, True
    ]  # fmt: skip


def test_choices() -> None:
    read = section("leeky")
    with pytest.raises(FormatError, match="did you mean 'leaky'"):
        choice_value(read, read.entries[0], ("leaky", "relu"), "relu")
    original = section("leeky", original=True)
    with pytest.warns(UndertowWarning, match="the original takes relu"):
        assert choice_value(original, original.entries[0], ("leaky", "relu"), "relu") == "relu"


def test_suggestions_come_only_from_near_names() -> None:
    assert suggestion("filtres", ("filters", "size")) == "did you mean 'filters'?"
    assert suggestion("qqq", ("filters", "size")) is None

"""Thousands of texts, broken at random: what protobuf's own parser accepts is accepted, with the same values.

protobuf's parser for Python is laxer than the one for C++, which Caffe uses and we follow, in some places, and stricter
in others; those are told apart by their pattern.
"""

from __future__ import annotations

import random
import re

import pytest

from tests.caffe.proto.test_text_format import ACCEPTED, REFUSED
from undertow.caffe.proto import parse_text, protobuf
from undertow.errors import UndertowError

SEEDS = [text for pair in ACCEPTED for text in pair if text.strip()] + [text for text, _, _ in REFUSED]
WORDS = r"""{ } < > [ ] : , ; "x" 'y' name layer input_dim type state level phase TRAIN TEST 1 -1 0x1F 017 08 0x 1.5
1.5f 1e3 1e .5 - -inf inf nan true f 99999999999 loss_weight blobs data [foo.bar] $ / \ é 2"""
PIECES = [*WORDS.split(), "# c\n", "\n", " ", '"', "'", '"a" "b"', "\x01"]
# Escapes, a plus sign, a blank that only Python takes; for C++ alone a sign apart, 0x0 as a truth value.
PYTHON_ONLY = re.compile(r"\\[^abfnrtvxuU0-7'\"?\\]|\+|\u00a0")
CPP_ONLY = re.compile(r"-\s|-#|\b0[x0-7][01]*\b", re.IGNORECASE)


def broken(rng: random.Random) -> str:
    """A text with one to three pieces put in, taken out or exchanged."""
    pieces = re.findall(r"\s+|\"[^\"]*\"|'[^']*'|[\w.+-]+|.", rng.choice(SEEDS), re.DOTALL)
    for _ in range(rng.randint(1, 3)):
        place, what = rng.randrange(len(pieces) + 1), rng.random()
        if what < 0.4 or place == len(pieces):
            pieces.insert(place, rng.choice(PIECES))
        elif what < 0.7:
            del pieces[place]
        else:
            pieces[place] = rng.choice(PIECES)
    return "".join(pieces)


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@pytest.mark.parametrize("seed", range(4))
def test_the_same_is_accepted(seed: int) -> None:
    text_format = pytest.importorskip("google.protobuf.text_format")
    message, rng, accepted, refused = protobuf.protobuf_names()["NetParameter"], random.Random(seed), 0, 0
    for _ in range(700):
        text = broken(rng)
        try:
            ours = parse_text(text)
        except UndertowError:
            ours = None
        try:
            theirs = text_format.Parse(text, message())
            theirs = theirs if theirs.IsInitialized() else None  # C++ looks for required fields at once
        except (text_format.ParseError, UnicodeError):
            theirs = None
        if ours is not None and theirs is not None:
            accepted += 1
            assert protobuf.from_protobuf(theirs) == ours, repr(text)
        elif ours is None and theirs is None:
            refused += 1
        else:
            allowed = CPP_ONLY if theirs is None else PYTHON_ONLY
            assert allowed.search(text), repr(text)
    assert accepted > 15
    assert refused > 400

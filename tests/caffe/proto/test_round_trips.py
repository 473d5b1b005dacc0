"""Random messages survive text and binary form, ours and protobuf's."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.caffe.proto.strategies import SCHEMA, message_of, messages
from undertow.caffe.proto import Message, parse_bytes, parse_text, protobuf

# Strings of files may hold bytes that are not UTF-8; they appear as lone surrogates.
ANY_BYTES = st.binary(max_size=12).map(lambda data: data.decode("utf-8", "surrogateescape"))
UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def read_text(message: Message) -> Message:
    return parse_text(message.to_text(), message.descriptor.name, fork=SCHEMA)


@settings(max_examples=300)
@given(messages(ANY_BYTES))
def test_text(message: Message) -> None:
    assert read_text(message) == message


@settings(max_examples=300)
@given(messages(ANY_BYTES))
def test_binary(message: Message) -> None:
    data = message.to_bytes()
    again = parse_bytes(data, message.descriptor)
    assert again == message
    assert again.to_bytes() == data


@settings(max_examples=100)
@given(messages(ANY_BYTES))
def test_copies_are_equal_and_independent(message: Message) -> None:
    other = copy.deepcopy(message)
    assert other == message
    before = message.to_bytes()
    for name in other.field_names():
        other.clear_field(name)
    assert message.to_bytes() == before


@settings(max_examples=150, deadline=None)
@given(messages(UNICODE))
def test_protobuf_reads_and_writes_the_same(message: Message) -> None:
    text_format = pytest.importorskip("google.protobuf.text_format")
    theirs = protobuf.to_protobuf(message)
    assert protobuf.from_protobuf(theirs, SCHEMA) == message
    from_our_text = text_format.Parse(message.to_text(), type(theirs)())
    assert protobuf.from_protobuf(from_our_text, SCHEMA) == message
    from_their_text = parse_text(text_format.MessageToString(theirs), message.descriptor.name, fork=SCHEMA)
    assert from_their_text == message


@settings(max_examples=150, deadline=None)
@given(messages(UNICODE, depth=2), st.data())
def test_merging_is_protobufs_merging(message: Message, data: st.DataObject) -> None:
    pytest.importorskip("google.protobuf")
    other = data.draw(message_of(message.descriptor, UNICODE, 2))
    theirs = protobuf.to_protobuf(message)
    theirs.MergeFrom(protobuf.to_protobuf(other))
    # In binary form, two messages one after the other are one merged message.
    joined = parse_bytes(message.to_bytes() + other.to_bytes(), message.descriptor)
    message.merge_from(other)
    assert protobuf.from_protobuf(theirs, SCHEMA) == message == joined

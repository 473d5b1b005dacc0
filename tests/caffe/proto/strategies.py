"""Random messages of all types, for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from undertow.caffe.proto import Message, get_schema
from undertow.caffe.proto.schema import Field, MessageType
from undertow.caffe.proto.values import ARRAY_DTYPES, RANGES

SCHEMA = get_schema(("ssd", "fast-rcnn"))


@st.composite
def messages(draw: st.DrawFn, text: st.SearchStrategy[str], depth: int = 3) -> Message:
    """A message of any type with any fields set; `text` draws its strings."""
    name = draw(st.sampled_from(sorted(SCHEMA.messages)))
    return draw(message_of(SCHEMA[name], text, depth))


@st.composite
def message_of(draw: st.DrawFn, descriptor: MessageType, text: st.SearchStrategy[str], depth: int) -> Message:
    """A message of one type."""
    usable = [field for field in descriptor.fields if depth or field.message is None]
    chosen = draw(st.lists(st.sampled_from(usable), unique_by=lambda field: field.name, max_size=6)) if usable else []
    message = Message(descriptor)
    for field in {field.name: field for field in (*chosen, *descriptor.required)}.values():
        setattr(message, field.name, draw(_value(field, text, depth)))
    return message


def _value(field: Field, text: st.SearchStrategy[str], depth: int) -> st.SearchStrategy[object]:
    if field.array:
        width = 32 if field.kind == "float" else 64
        values = st.lists(st.floats(width=width), max_size=5)
        return values.map(lambda items: np.array(items, ARRAY_DTYPES[field.kind]))
    single = _single(field, text, depth)
    return st.lists(single, max_size=3) if field.repeated else single


def _single(field: Field, text: st.SearchStrategy[str], depth: int) -> st.SearchStrategy[object]:
    if field.message is not None:
        return message_of(field.message, text, depth - 1)
    if field.enum is not None:
        return st.sampled_from(list(field.enum.numbers))
    if field.kind in RANGES:
        return st.integers(*RANGES[field.kind])
    return {
        "float": st.floats(width=32),
        "double": st.floats(),
        "bool": st.booleans(),
        "string": text,
        "bytes": st.binary(max_size=20),
    }[field.kind]

"""Reading protobuf's text format (prototxt), exactly as Caffe's parser takes it.

Comments from `#` to the end of the line; messages in `{}` or `<>`, with or without a colon before them; fields may be
followed by `,` or `;`; lists `[1, 2]` for repeated fields; adjacent strings are joined; numbers may be decimal, hex or
octal, floats may end in `f`; booleans are true, True, t, 1 and their opposites; enums by name or number.
"""

from __future__ import annotations

import math
import os
from typing import Literal

from undertow.caffe.proto.message import Message, UnknownField, new_message
from undertow.caffe.proto.schema import DEFAULT_FORK, Field, ForkLike, MessageType, forks_with, get_schema
from undertow.caffe.proto.text_tokens import Source, TextFormatError, Token, Tokens, describe, unquote
from undertow.caffe.proto.values import RANGES, float32

OnUnknown = Literal["error", "keep"]

_TRUE = frozenset(("true", "True", "t"))
_FALSE = frozenset(("false", "False", "f"))
_CLOSING = {"{": "}", "<": ">", "[": "]"}
_DEEPEST = 100


def parse_text(
    text: str,
    message: str = "NetParameter",
    *,
    file: str | os.PathLike[str] | None = None,
    fork: ForkLike = DEFAULT_FORK,
    unknown: OnUnknown = "error",
) -> Message:
    """The message written in a text; nothing is upgraded.

    message: its type. unknown: "error" refuses fields that the schema does not have; "keep" goes on and keeps their
    text in `unknown_fields` of the message they stand in. Raises TextFormatError with line and column.
    """
    parser = _Parser(Source(text.removeprefix("\ufeff"), file), unknown)
    result = new_message(message, fork)
    parser.read_body(result, closing="", start=0, depth=0)
    parser.report_unknown()
    return result


class _Parser:
    def __init__(self, source: Source, unknown: OnUnknown) -> None:
        self.source = source
        self.tokens = Tokens(source)
        self.unknown = unknown
        self.layer: Message | None = None
        self.refused: list[tuple[Token, MessageType, Message | None]] = []

    def read_body(self, message: Message, closing: str, start: int, depth: int) -> None:
        """The fields of a message up to its closing bracket, or to the end of the file."""
        tokens = self.tokens
        if depth > _DEEPEST:
            raise self.source.error(
                f"messages inside each other more than {_DEEPEST} deep", start, "look for a { that is not closed"
            )
        lines = {"": self.source.line(start)}
        object.__setattr__(message, "_lines", lines)
        while not (tokens.current.kind == "end" or (closing and tokens.looking_at(closing))):
            self._read_field(message, lines, depth)
            tokens.take_symbol(",;")
        if closing and not tokens.take_symbol(closing):
            line = self.source.line(start)
            raise self._unexpected(f"'{closing}' for the bracket of line {line}", "close every { with }")
        self._finish(message, start)

    def _finish(self, message: Message, start: int) -> None:
        descriptor = message.descriptor
        for name, value in message._values.items():
            if descriptor.by_name[name].array:
                setattr(message, name, value)
        for field in descriptor.required:
            if not message.has_field(field.name):
                raise self.source.error(
                    f"{descriptor.name} lacks {field.name}, which it must have", start, f"write {field.name}: ..."
                )

    def _read_field(self, message: Message, lines: dict[str, int], depth: int) -> None:
        name = self.tokens.current
        if name.kind != "name":
            raise self._field_name_expected(name)
        self.tokens.take()
        field = message.descriptor.by_name.get(name.text)
        if field is None:
            self._read_unknown(message, name)
            return
        if not field.repeated and message.has_field(field.name):
            raise self.source.error(
                f"`{field.name}` is not repeated but given twice", name.start,
                f"remove one (the first stands in line {lines.get(field.name)})",
            )  # fmt: skip
        lines[field.name] = self.source.line(name.start)
        colon = self.tokens.take_symbol(":")
        if field.message is None and not colon:
            raise self._unexpected(f"':' after {field.name}", f"write {field.name}: VALUE")
        if self.tokens.looking_at("["):
            self._read_list(message, field, depth)
        else:
            self._read_value(message, field, depth)

    def _read_list(self, message: Message, field: Field, depth: int) -> None:
        if not field.repeated:
            raise self.source.error(
                f"{field.name} takes one value, not a list", self.tokens.current.start, "remove the brackets"
            )
        self.tokens.take()
        if self.tokens.take_symbol("]"):
            return
        while True:
            self._read_value(message, field, depth)
            if self.tokens.take_symbol("]"):
                return
            if not self.tokens.take_symbol(","):
                raise self._unexpected(f"',' or ']' in the list of {field.name}", "write [1, 2, 3]")

    def _read_value(self, message: Message, field: Field, depth: int) -> None:
        if field.message is not None:
            self._read_message(message, field, depth)
        elif field.array:
            message._values.setdefault(field.name, []).append(self._scalar(field))
        elif field.repeated:
            list.append(getattr(message, field.name), self._scalar(field))
        else:
            message._values[field.name] = self._scalar(field)

    def _read_message(self, message: Message, field: Field, depth: int) -> None:
        start = self.tokens.current.start
        opening = self.tokens.take_symbol("{<")
        if not opening:
            raise self._unexpected(f"'{{' after {field.name}", f"write {field.name} {{ ... }}")
        child = message.add(field.name) if field.repeated else message.mutable(field.name)
        outer = self.layer
        if child.descriptor.name in ("LayerParameter", "V1LayerParameter"):
            self.layer = child
        self.read_body(child, _CLOSING[opening], start, depth + 1)
        self.layer = outer

    # Values.

    def _scalar(self, field: Field) -> object:
        kind = field.kind
        if kind in RANGES:
            return self._integer(field)
        if kind in ("float", "double"):
            value = self._float(field)
            return float32(value) if kind == "float" else value
        if kind in ("string", "bytes"):
            data = self._string(field)
            return data if kind == "bytes" else data.decode("utf-8", "surrogateescape")
        return self._bool(field) if kind == "bool" else self._enum(field)

    def _integer(self, field: Field) -> int:
        start = self.tokens.current.start
        negative = bool(self.tokens.take_symbol("-"))
        token = self.tokens.current
        if token.kind != "integer":
            raise self._unexpected(
                f"a whole number for {field.name}", "write it in digits, without quotes, point and exponent"
            )
        self.tokens.take()
        value = _whole(token.text)
        value = -value if negative else value
        low, high = RANGES[field.kind]
        if not low <= value <= high or (negative and low == 0):
            raise self.source.error(
                f"{field.name} ({field.kind}) lies between {low} and {high}, not {value}", start,
                f"write a number from {low} on" if value < low else f"write a number up to {high}",
            )  # fmt: skip
        return value

    def _float(self, field: Field) -> float:
        sign = -1.0 if self.tokens.take_symbol("-") else 1.0
        token = self.tokens.current
        text = token.text.lower()
        if token.kind == "integer" and len(text) > 1 and text[0] == "0":
            raise self.source.error(
                f"{field.name} takes a decimal number, not the octal or hex {text}", token.start,
                f"write {_whole(text)}",
            )  # fmt: skip
        if token.kind in ("integer", "float"):
            value = float(text.rstrip("f"))
        elif token.kind == "name" and text in ("inf", "infinity", "nan"):
            value = math.nan if text == "nan" else math.inf
        else:
            raise self._unexpected(f"a number for {field.name}", "write it without quotes, such as 0.01 or 5e-4")
        self.tokens.take()
        return sign * value

    def _string(self, field: Field) -> bytes:
        if self.tokens.current.kind != "string":
            raise self._unexpected(f"a string in quotes for {field.name}", f'write {field.name}: "..."')
        parts = []
        while self.tokens.current.kind == "string":
            parts.append(unquote(self.tokens.take(), self.source))
        return b"".join(parts)

    def _bool(self, field: Field) -> bool:
        token = self.tokens.current
        truth = token.text in _TRUE or (token.kind == "integer" and _whole(token.text) == 1)
        falsehood = token.text in _FALSE or (token.kind == "integer" and _whole(token.text) == 0)
        if not truth and not falsehood:
            raise self._unexpected(f"true or false for {field.name}", "write true or false, without quotes")
        self.tokens.take()
        return truth

    def _enum(self, field: Field) -> str:
        start = self.tokens.current.start
        sign = -1 if self.tokens.take_symbol("-") else 1
        token = self.tokens.current
        enum = field.enum
        if enum is None or token.kind not in ("name", "integer"):
            raise self._unexpected(f"a value for {field.name}", _choices(field))
        self.tokens.take()
        if token.kind == "name" and sign == 1 and token.text in enum.numbers:
            return token.text
        number = sign * _whole(token.text) if token.kind == "integer" else None
        if number in enum.names:
            return enum.names[number]
        written = self.source.text[start : token.end]
        raise self.source.error(f"{field.name} cannot be {written:.40}", start, _choices(field))

    # Fields that the schema does not have.

    def _read_unknown(self, message: Message, name: Token) -> None:
        self._skip_value(name)
        if self.unknown == "error":
            self.refused.append((name, message.descriptor, self.layer))
            return
        raw = self.source.text[name.start : self.tokens.previous_end].encode("utf-8", "surrogateescape")
        line = self.source.line(name.start)
        message.keep_unknown(UnknownField(0, -1, raw, name.start, name.text, line))

    def _skip_value(self, name: Token) -> None:
        colon = self.tokens.take_symbol(":")
        if self.tokens.looking_at("{<["):
            self._skip_brackets()
        elif not colon:
            raise self._unexpected(f"':' or '{{' after {name.text:.80}", "write NAME: VALUE or NAME { ... }")
        else:
            self.tokens.take_symbol("-")
            token = self.tokens.current
            if token.kind in ("symbol", "end"):
                raise self._unexpected(f"a value for {name.text:.80}", "write a number, a word or a string in quotes")
            self.tokens.take()
            while token.kind == "string" and self.tokens.current.kind == "string":
                self.tokens.take()

    def _skip_brackets(self) -> None:
        open_ones: list[Token] = []
        while True:
            token = self.tokens.take()
            if token.kind == "end":
                raise self.source.error("this bracket is never closed", open_ones[-1].start, "close every { with }")
            if token.kind != "symbol":
                continue
            if token.text in _CLOSING:
                open_ones.append(token)
            elif token.text in "}>]":
                if _CLOSING[open_ones[-1].text] != token.text:
                    raise self.source.error(
                        f"'{token.text}' closes '{open_ones[-1].text}'", token.start,
                        f"write '{_CLOSING[open_ones[-1].text]}'",
                    )  # fmt: skip
                open_ones.pop()
                if not open_ones:
                    return

    def report_unknown(self) -> None:
        """Raise for the first refused field, counting the others; said last, when the layer's name is known."""
        if not self.refused:
            return
        name, descriptor, layer = self.refused[0]
        reason = f"{descriptor.name} has no field {name.text:.80}"
        forks = forks_with(descriptor.name, name.text)
        near = descriptor.nearest(name.text)
        if forks or not near:
            reason += " (a field of a Caffe fork)" if forks else " (perhaps a field of a Caffe fork)"
        if layer is not None:
            reason += f"; layer {layer.name or 'without name'}, type {layer.type}"
        others = [f"{item.text:.80} (line {self.source.line(item.start)})" for item, _, _ in self.refused[1:]]
        if others:
            reason += f"; also unknown: {', '.join(others[:8])}" + (" ..." if len(others) > 8 else "")
        other = _OTHER_FILES.get(descriptor.name)
        if other is not None and get_schema()[other[0]].by_name.get(name.text) is not None:
            raise self.source.error(reason, name.start, other[1])
        raise self.source.error(reason, name.start, _remedy_for_unknown(near, forks))

    # Errors.

    def _unexpected(self, wanted: str, remedy: str) -> TextFormatError:
        token = self.tokens.current
        return self.source.error(f"expected {wanted}, found {describe(token)}", token.start, remedy)

    def _field_name_expected(self, token: Token) -> TextFormatError:
        if token.text in ("}", ">"):
            return self.source.error(f"'{token.text}' closes nothing", token.start, "remove it, or open it earlier")
        if token.text == "[":
            return self.source.error(
                "extensions in [brackets] are not part of Caffe's formats", token.start, "remove it"
            )
        remedy = "comments begin with #" if token.text == "/" else "write NAME: VALUE or NAME { ... }"
        if self.source.text.lstrip().startswith("<"):
            remedy = "this is a web page, so the download went wrong; download the file again"
        return self._unexpected("the name of a field", remedy)


_OTHER_FILES = {
    "NetParameter": ("SolverParameter", "this looks like a solver; give the prototxt of its net here"),
    "SolverParameter": ("NetParameter", "this looks like a net; give the prototxt of a solver here"),
}


def _remedy_for_unknown(near: str | None, forks: list[str]) -> str:
    ways = []
    if forks:
        ways.append(f"read with fork={' or '.join(map(repr, forks))}")
    elif near:
        ways.append(f"did you mean {near}?")
    ways.append('register the field with register_fork, or read with unknown="keep" to skip it')
    return "; ".join(ways)


def _choices(field: Field) -> str:
    return f"use one of {', '.join(field.enum.numbers)}" if field.enum else "write a word without quotes"


def _whole(text: str) -> int:
    """The value of an integer token, in protobuf's notation: 0x is hex, a leading 0 octal."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8 if text[0] == "0" else 10)

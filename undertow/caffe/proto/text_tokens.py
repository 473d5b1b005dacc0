"""The tokens of protobuf's text format, and errors that point into the text."""

from __future__ import annotations

import bisect
import os
import re
from typing import NamedTuple

from undertow.errors import FormatError

_SPACE = re.compile(r"(?:[ \t\r\n\v\f]+|#[^\n]*)+")
_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<symbol>[{}<>\[\]:;,/-])
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
      | (?P<integer>0[xX][0-9a-fA-F]++(?![\w.])|[0-9]++(?![\w.]))
      | (?P<float>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fF]?(?![\w.]))""",
    re.VERBOSE,
)
# Python itself refuses to convert much longer ones.
_LONGEST_NUMBER = 1000
_BAD_OCTAL = re.compile(r"0[0-9]+[^0-9]|0[0-9]*[89]")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = {
    "a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v",
    "\\": b"\\", "'": b"'", '"': b'"', "?": b"?",
}  # fmt: skip


class TextFormatError(FormatError):
    """An error in a prototxt, with `line` and `column` (both from 1)."""

    def __init__(
        self,
        reason: str,
        *,
        column: int,
        line: int,
        file: str | os.PathLike[str] | None = None,
        remedy: str | None = None,
    ) -> None:
        self.column = column
        super().__init__(f"{reason} (column {column})", file=file, line=line, remedy=remedy)


class Token(NamedTuple):
    """kind: "name", "symbol", "string", "integer", "float" or "end"; text as written; start and end in the text."""

    kind: str
    text: str
    start: int
    end: int


class Source:
    """A text with its name, for turning positions into lines and columns."""

    def __init__(self, text: str, file: str | os.PathLike[str] | None = None) -> None:
        self.text = text
        self.file = file
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def line(self, position: int) -> int:
        """The line number (from 1) of a position."""
        return bisect.bisect_right(self._line_starts, position)

    def error(self, reason: str, position: int, remedy: str) -> TextFormatError:
        """An error that points at a position."""
        line = self.line(position)
        column = position - self._line_starts[line - 1] + 1
        return TextFormatError(reason, line=line, column=column, file=self.file, remedy=remedy)


class Tokens:
    """The tokens of a text one after another; `current` is the next one not yet taken."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.previous_end = 0
        self.current = self._read(0)

    def take(self) -> Token:
        """The current token; moves on to the next."""
        token = self.current
        self.previous_end = token.end
        self.current = self._read(token.end)
        return token

    def take_symbol(self, symbols: str) -> str:
        """Take the current token if it is one of some symbols; "" if it is not."""
        token = self.current
        if token.kind == "symbol" and token.text in symbols:
            self.take()
            return token.text
        return ""

    def looking_at(self, symbols: str) -> bool:
        return self.current.kind == "symbol" and self.current.text in symbols

    def _read(self, position: int) -> Token:
        text = self.source.text
        space = _SPACE.match(text, position)
        if space:
            position = space.end()
        if position == len(text):
            return Token("end", "the end of the file", position, position)
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise self._bad_token(position)
        if match.lastgroup in ("integer", "float"):
            self._check_number(match[0], position)
        return Token(match.lastgroup, match[0], position, match.end())

    def _check_number(self, text: str, position: int) -> None:
        if len(text) > _LONGEST_NUMBER:
            raise self.source.error(f"a number of {len(text)} characters", position, "no field holds as many digits")
        if _BAD_OCTAL.match(text):
            raise self.source.error(
                f"{text} begins with 0, so it is octal: a whole number of digits 0-7", position,
                f"write {text.lstrip('0') or '0'}",
            )  # fmt: skip

    def _bad_token(self, position: int) -> TextFormatError:
        text = self.source.text
        character = text[position]
        if character in "\"'":
            return self.source.error("a string does not end on its line", position, f"close it with {character}")
        if character.isascii() and (character.isdigit() or character == "."):
            word = re.compile(r"[\w.+-]+").match(text, position)
            return self.source.error(
                f"{word[0] if word else character:.40} is not a number", position,
                "write digits alone, such as 12, 0.5 or 5e-4; words go into quotes",
            )  # fmt: skip
        if not character.isascii():
            code = f"U+{ord(character):04X}"
            remedy = "outside strings and comments only ASCII is allowed; look for typographic quotes and wide spaces"
            return self.source.error(f"an unexpected character {code}", position, remedy)
        return self.source.error(f"an unexpected character {character!r}", position, "remove it, or put it into quotes")


def describe(token: Token) -> str:
    """A token as it is named in a message."""
    return token.text if token.kind == "end" else f"'{token.text:.40}'"


def unquote(token: Token, source: Source) -> bytes:
    """The bytes that a string token stands for."""

    def replace(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, simple = match.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if hexadecimal:
            return chr(int(hexadecimal, 16))
        if short or long:
            return _code_point(int(short or long, 16)).decode("latin-1")
        known = _SIMPLE_ESCAPES.get(simple)
        if known is None:
            remedy = "write \\\\ for a backslash (in Windows paths too, or use /)"
            raise source.error(f"\\{simple} is no escape sequence", token.start + 1 + match.start(), remedy)
        return known.decode("latin-1")

    def _code_point(code: int) -> bytes:
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise source.error(f"U+{code:04X} is not a character", token.start, "write the character itself")
        return chr(code).encode()

    body = token.text[1:-1]
    if "\\" not in body:
        return body.encode("utf-8", "surrogateescape")
    # Escapes stand for bytes, so the rest is taken as bytes too; latin-1 keeps each as one character meanwhile.
    as_bytes = body.encode("utf-8", "surrogateescape").decode("latin-1")
    return _ESCAPE.sub(replace, as_bytes).encode("latin-1")

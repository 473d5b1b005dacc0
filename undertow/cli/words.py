"""The words of a command line as Darknet takes them: flags with one dash, anywhere between the other words."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undertow.errors import UndertowError

Kind = Literal["switch", "whole", "number", "text", "list"]
_LARGEST = 2**63 - 1  # whole numbers are kept in 64 bits
_WHAT: dict[Kind, str] = {
    "switch": "no value, or true or false",
    "whole": "a whole number",
    "number": "a number",
    "text": "a word",
    "list": "whole numbers with commas between them",
}
# An empty one is none in the C program's functions; those that need it say so.
_NONE_IF_EMPTY = "WEIGHTS"
_YES, _NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


class UsageError(UndertowError):
    """A command line that cannot be understood."""


def _switch(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError
    return text.lower() in _YES


def _whole(text: str) -> int:
    if "_" in text:  # Python allows it within numbers; people who write it mean a name
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if "_" in text or not math.isfinite(value):
        raise ValueError
    return value


def _list(text: str) -> tuple[int, ...]:
    values = tuple(_whole(part) for part in text.split(","))
    if min(values) < 0:
        raise ValueError
    return values


_READERS: dict[Kind, Callable[[str], Any]] = {
    "switch": _switch,
    "whole": _whole,
    "number": _number,
    "text": str,
    "list": _list,
}


@dataclass(frozen=True)
class Flag:
    """One flag. value: what stands for its value in the help. default: when it is not given (switches: False); a text
    without one must not be empty. A list is read as a tuple of numbers.

    least, most: smallest and largest number allowed. choices: words allowed. answer: said when the flag is given, for
    flags that have no effect here.
    """

    name: str
    kind: Kind
    help: str
    value: str = ""
    default: Any = None
    least: float | None = None
    most: float | None = None
    choices: Sequence[str] = ()
    answer: str | None = None

    @property
    def usage(self) -> str:
        return f"-{self.name} {self.value}".strip()

    def read(self, text: str) -> Any:
        """The value of the flag. Raises UsageError."""
        try:
            value = _READERS[self.kind](text)
        except ValueError:
            raise UsageError(f"-{self.name} takes {_WHAT[self.kind]}, not '{text[:64]}'", remedy=self.usage) from None
        if self.kind == "text" and not text and self.default is None:
            raise UsageError(f"-{self.name} is given nothing ('')", remedy=f"{self.usage}, or leave the flag out")
        if self.least is not None and not value >= self.least:
            raise UsageError(f"-{self.name} {text}: at least {self.least:g}", remedy=self.usage)
        if self.kind == "whole" and abs(value) > _LARGEST:
            raise UsageError(f"-{self.name} {text[:64]}: at most {_LARGEST}", remedy=self.usage)
        if self.most is not None and not value <= self.most:
            percent = self.most == 1 and value <= 100  # a share, given in percent
            remedy = f"-{self.name} {value / 100:g} is {value:g} %" if percent else self.usage
            raise UsageError(f"-{self.name} {text}: at most {self.most:g}", remedy=remedy)
        if self.choices and value not in self.choices:
            raise UsageError(
                f"-{self.name} {text}: there is {', '.join(self.choices)}", remedy=nearest(text, self.choices)
            )
        return value


@dataclass(frozen=True)
class Words:
    """A command line taken apart: plain words by their names ("" for optional ones left out), and flags.

    more: the words that follow, of a command that takes any number.
    """

    words: dict[str, str]
    flags: dict[str, Any]
    given: tuple[Flag, ...]
    more: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.words[name] if name in self.words else self.flags[name]


@dataclass(frozen=True)
class Command:
    """One command. words: names of its plain words, optional ones in square brackets; a last one that ends in `...`
    stands for any number more. run: does it; the exit status.
    """

    name: str
    words: tuple[str, ...]
    flags: tuple[Flag, ...]
    summary: str
    run: Callable[[Words], int] = field(repr=False)

    @property
    def usage(self) -> str:
        return " ".join([self.name, *self.words, "[flags]"] if self.flags else [self.name, *self.words])

    def parse(self, arguments: Sequence[str]) -> Words:
        """Take a command line apart. Raises UsageError that names the word and what was probably meant."""
        flags: dict[str, Any] = {flag.name: _default(flag) for flag in self.flags}
        plain: list[str] = []
        given: list[Flag] = []
        texts: dict[str, str] = {}
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if not _is_flag(word):
                plain.append(word)
                continue
            flag, value = self._flag(word)
            if value is None and flag.kind == "switch":
                value = "true"
            if value is None:
                if not rest:
                    raise UsageError(f"{word} needs a value", remedy=flag.usage)
                value = rest.pop(0)
            flags[flag.name] = flag.read(value)
            if flag.name not in texts:
                given.append(flag)
            if (before := texts.setdefault(flag.name, value)) != value:
                raise UsageError(
                    f"-{flag.name} stands twice, as '{before[:64]}' and '{value[:64]}'", remedy="give it once"
                )
        names = [name for name in self.words if not name.endswith("...")]
        more = tuple(plain[len(names) :]) if len(names) < len(self.words) else ()
        taken = tuple(flag for flag in given if flag.kind != "switch" or flags[flag.name])
        return Words(self._named(names, plain[: len(plain) - len(more)]), flags, taken, more)

    def leading(self, arguments: Sequence[str]) -> int:
        """How many words before the first plain one: flags and their values. Raises UsageError for an unknown flag."""
        count = 0
        while count < len(arguments) and _is_flag(arguments[count]):
            flag, value = self._flag(arguments[count])
            count += 1 if value is not None or flag.kind == "switch" else 2
        return min(count, len(arguments))

    def _flag(self, word: str) -> tuple[Flag, str | None]:
        name, equals, value = word.lstrip("-").partition("=")
        known = {flag.name: flag for flag in self.flags}
        if name not in known:
            raise UsageError(
                f"{self.name} has no flag '{word}'",
                remedy=nearest(name, known, "-") or f"the flags are {_listed(known)}",
            )
        return known[name], value if equals else None

    def _named(self, words: list[str], plain: list[str]) -> dict[str, str]:
        needed = [name for name in words if not name.startswith("[")]
        if len(plain) < len(needed):
            raise UsageError(f"{self.name}: {needed[len(plain)]} is missing", remedy=f"undertow {self.usage}")
        if len(plain) > len(words):
            raise UsageError(
                f"{self.name}: '{plain[len(words)]}' is one word too many", remedy=f"undertow {self.usage}"
            )
        empty = next(
            (name for name, text in zip(needed, plain, strict=False) if not text and name != _NONE_IF_EMPTY), None
        )
        if empty is not None:
            raise UsageError(f"{self.name}: {empty} is empty ('')", remedy=f"undertow {self.usage}")
        names = [name.strip("[]") for name in words]
        return dict.fromkeys(names, "") | dict(zip(names, plain, strict=False))


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str | None:
    """A question about the known word that is most like this one; None when none is."""
    close = difflib.get_close_matches(word.lower()[:64], {name.lower(): name for name in known}, n=1, cutoff=0.6)
    names = {name.lower(): name for name in known}
    return f"did you mean {prefix}{names[close[0]]}?" if close else None


def _is_flag(word: str) -> bool:
    """A dash and a letter; `-0.5` and `-` are plain words."""
    return len(word) > 1 and word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _default(flag: Flag) -> Any:
    return False if flag.kind == "switch" else flag.default


def _listed(known: Iterable[str]) -> str:
    return ", ".join(f"-{name}" for name in known)

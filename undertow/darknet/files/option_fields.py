"""How a section's keys become a frozen dataclass: each field knows its key, type, default and limits."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from undertow.darknet.files.cfg import Entry, Section
from undertow.darknet.files.values import (
    choice_value,
    flag_value,
    float_value,
    floats_value,
    integer_value,
    integers_value,
    text_value,
    value_error,
)

# Stands for "depends on other options"; `__post_init__` of the class puts the value in its place.
UNSET: Any = None

_CONVERTERS: dict[Any, Callable[[Section, Entry], Any]] = {
    int: integer_value,
    int | None: integer_value,
    float: float_value,
    bool: flag_value,
    str: text_value,
    tuple[int, ...]: integers_value,
    tuple[float, ...]: floats_value,
}


@dataclass(frozen=True)
class Problem:
    """What does not fit among the options of one section.

    keys: where to point, the first of them that is given. for_original: also a problem in original reading, because
    the original would crash or read foreign memory. in_fork: what a cfg of AlexeyAB's fork becomes all the same, so
    that it is told and not refused; None: refused there too.
    """

    keys: tuple[str, ...]
    reason: str
    remedy: str | None = None
    for_original: bool = True
    in_fork: str | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of all sections' options. Field defaults are the original's; a field's cfg key is `key_of(field)`."""

    def problems(self) -> Iterator[Problem]:
        """What is wrong with the values taken together; nothing by default."""
        return iter(())

    def _resolve(self, **values: Any) -> None:
        """Give fields that are still UNSET their values."""
        for name, value in values.items():
            if getattr(self, name) is UNSET:
                object.__setattr__(self, name, value)


@dataclass(frozen=True)
class OptionField:
    """One option: the field's name, the key in the cfg and how its value is read and checked.

    fork: a key of AlexeyAB's fork; fork_choices: words of the fork. Reading as the 2018 program knows neither.
    """

    name: str
    key: str
    type: Any
    choices: tuple[str, ...] = ()
    fallback: str = ""
    least: float | None = None
    file_name: bool = False
    fork: bool = False
    fork_choices: tuple[str, ...] = ()

    def read(self, section: Section, entry: Entry) -> Any:
        """The typed value of an entry. Raises FormatError at its line."""
        if self.choices:
            choices = self.choices if section.original else (*self.choices, *self.fork_choices)
            return choice_value(section, entry, choices, self.fallback)
        if self.file_name:
            return entry.raw or entry.value
        value = _CONVERTERS[self.type](section, entry)
        if self.least is not None:
            self._check_least(section, entry, value)
        return value

    def _check_least(self, section: Section, entry: Entry, value: Any) -> None:
        smallest = min(value) if isinstance(value, tuple) else value
        if smallest < self.least:
            raise value_error(
                section, entry, f"{self.key}={smallest} in [{section.name}] is too small", f"give at least {self.least}"
            )


def option(
    default: Any,
    *,
    key: str | None = None,
    choices: Sequence[str] = (),
    fallback: str = "",
    least: float | None = None,
    file_name: bool = False,
    fork: bool = False,
    fork_choices: Sequence[str] = (),
) -> Any:
    """A dataclass field for one cfg key.

    key: the cfg's name for it where it differs from the field's. choices, fallback: words, and what the original
    takes for an unknown one. least: smallest allowed value. file_name: keep blanks as written. fork, fork_choices: see
    `OptionField`.
    """
    metadata = {
        "key": key, "choices": tuple(choices), "fallback": fallback, "least": least, "file_name": file_name,
        "fork": fork, "fork_choices": tuple(fork_choices),
    }  # fmt: skip
    return field(default=default, metadata=metadata)


def option_fields(options: type[Options]) -> dict[str, OptionField]:
    """All options of a class, by cfg key."""
    cached: Callable[[Any], dict[str, OptionField]] = _option_fields
    return cached(options)


@functools.cache
def _option_fields(options: Any) -> dict[str, OptionField]:
    types = typing.get_type_hints(options)
    result = {}
    for item in dataclasses.fields(options):
        values = dict(item.metadata)
        key = values.pop("key") or item.name
        result[key] = OptionField(item.name, key, types[item.name], **values)
    return result


def key_of(options: type[Options], name: str) -> str:
    """The cfg key of a field. Raises KeyError for a name that is none."""
    return next(key for key, item in option_fields(options).items() if item.name == name)

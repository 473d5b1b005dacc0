"""Arguments of the functions that scripts call: told by name where they are of a wrong kind.

Both errors are Python's own as well (TypeError, ValueError), which is what pycaffe raises in such places.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import numpy as np

from undertow.errors import UndertowError

Array = np.ndarray[Any, Any]


class WrongKind(UndertowError, TypeError):
    """An argument of a kind that the call cannot take."""


class WrongValue(UndertowError, ValueError):
    """An argument of the right kind that the call cannot use."""


def shown(value: object) -> str:
    """What a message says an argument is: its kind, and its value where that is short."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and kind {value.dtype}"
    if value is None or not isinstance(value, str | bytes | bool | int | float | list | tuple | dict):
        return "None" if value is None else f"of kind {kind}"
    text = repr(value)
    return f"{kind} {text if len(text) <= 40 else text[:37] + '...'}"


def as_path(value: object, what: str = "the file") -> str:
    """A path as text, whatever stands in it. Raises WrongKind for what is none."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise WrongKind(f"{what} is a path, not {shown(value)}", remedy="give a str or a pathlib.Path")
    return path


def path_of(value: object, what: str = "the file") -> str:
    """A path as text. Raises WrongKind for what is none, WrongValue for an empty one or one with a zero byte."""
    path = as_path(value, what)
    if not path or "\0" in path:
        reason = "an empty path" if not path else f"{path!r}, which has a zero byte in it"
        raise WrongValue(f"{what} cannot be {reason}", remedy="give the path of a file")
    return path


def whole(value: object, what: str, least: int | None = None, most: int | None = None) -> int:
    """A whole number, Python's or NumPy's. Raises WrongKind for anything else, WrongValue outside of the limits."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        remedy = "divide with //, or use int(...)" if isinstance(value, float) else "give an int"
        raise WrongKind(f"{what} is a whole number, not {shown(value)}", remedy=remedy) from None
    if (least is not None and number < least) or (most is not None and number > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise WrongValue(f"{what} is {limits}, not {number}", remedy="give a number in these limits")
    return number


def number_of(value: object, what: str) -> float:
    """A finite number. Raises WrongKind for anything else, WrongValue for NaN and infinities."""
    single = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    if not isinstance(single, int | float):
        raise WrongKind(f"{what} is a number, not {shown(value)}", remedy="give an int or a float")
    if not abs(single) < 1e300:  # NaN is not either
        raise WrongValue(f"{what} is a finite number, not {single}", remedy="give a finite one")
    return float(single)


def array_of(value: object, what: str) -> Array:
    """An array of real numbers, made from lists where needed; the array itself where it is one.

    Raises WrongKind for anything else, WrongValue for lists of different lengths.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise WrongValue(
            f"{what} has lists of different lengths", remedy="give an array, or lists of one length"
        ) from None
    if array.dtype.kind not in "biuf":
        raise WrongKind(
            f"{what} is an array of real numbers, not {shown(value)}", remedy="give a NumPy array of numbers"
        )
    return array


def text_of(value: object, what: str) -> str:
    """A text. Raises WrongKind for anything else."""
    if not isinstance(value, str):
        raise WrongKind(f"{what} is a str, not {shown(value)}", remedy="put it in quotes")
    return value


def texts_of(value: object, what: str) -> list[str]:
    """A list of texts; none for None. Raises WrongKind for a single text and for anything else."""
    if value is None:
        return []
    if isinstance(value, str):
        raise WrongKind(f"{what} is a list of names, not str {value!r}", remedy=f"write [{value!r}]")
    if not is_sequence(value) or not all(isinstance(item, str) for item in value):
        raise WrongKind(f"{what} is a list of names, not {shown(value)}", remedy="give a list of str")
    return list(value)


def function_of(value: object, what: str) -> Callable[..., object]:
    """Something to call. Raises WrongKind for anything else."""
    if not callable(value):
        raise WrongKind(f"{what} is a function, not {shown(value)}", remedy="give a function, without calling it")
    return value


def is_sequence(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether it can be gone through; arrays without axes cannot."""
    return isinstance(value, Iterable) and not (isinstance(value, np.ndarray) and not value.ndim)


def lengths_of(value: object, what: str, count: int | None = None, least: int = 0) -> tuple[int, ...]:
    """Lengths of axes from a sequence or an array; floats that are whole are taken.

    Raises WrongKind for what is no sequence of numbers, WrongValue for lengths below `least` and other numbers of them.
    """
    if isinstance(value, str | bytes | dict) or not is_sequence(value):
        raise WrongKind(f"{what} is a sequence of whole numbers, not {shown(value)}", remedy="give such as (3, 4)")
    lengths = tuple(_length(item, what) for item in value)
    if (count is not None and len(lengths) != count) or any(length < least for length in lengths):
        wanted = f"{count} whole numbers" if count is not None else "whole numbers"
        raise WrongValue(f"{what} is {wanted} of at least {least}, not {lengths}", remedy="give such as (3, 4)")
    return lengths


def _length(value: object, what: str) -> int:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return whole(value, f"a length in {what}")

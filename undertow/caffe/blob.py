"""Blob: an array and its gradient, in memory that stays where it is."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.caffe.arguments import WrongKind, is_sequence, shown
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

MAX_AXES = 32


class Later:
    """Numbers that a blob will hold as soon as somebody looks: `write` puts `count` of them into an array."""

    __slots__ = ("count", "write")

    def __init__(self, count: int, write: Callable[[Array], object]) -> None:
        self.count, self.write = count, write


class Memory:
    """A run of numbers that several blobs may look at; set aside at the first look, filled with zeros.

    array: the numbers, None before the first look. later: what is to be written into it at the next look.
    """

    __slots__ = ("array", "later", "seen")

    def __init__(self) -> None:
        self.array: Array | None = None
        self.later: Later | None = None
        self.seen = False

    def room(self, count: int, dtype: np.dtype[Any]) -> Array:
        """At least so many numbers."""
        self.seen = True
        later, self.later = self.later, None
        needed = count if later is None else max(count, later.count)
        if self.array is None or self.array.size < needed:
            self.array = np.zeros(needed, dtype)
        if later is not None:
            later.write(self.array[: later.count])
        return self.array

    @property
    def is_held(self) -> bool:
        """Whether anybody but this object has the array."""
        return self.array is not None and sys.getrefcount(self.array) > 2


class Blob:
    """A value and its gradient, both C-contiguous arrays that a user may write into.

    data, diff: arrays of `shape`. They are the same memory at every look, until `reshape` needs more of it, so what is
    written into them is what the net computes with. shape: any number of axes; () is a single number.
    """

    __slots__ = ("_data", "_diff", "_views", "dtype", "shape")

    def __init__(self, shape: Sequence[int] = (0,), dtype: Any = np.float32) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape: Shape = ()
        self._data, self._diff = Memory(), Memory()
        self._views: dict[str, tuple[Array, Array]] = {}
        if isinstance(shape, str | bytes) or not is_sequence(shape):
            raise WrongKind(f"the shape of a blob is a sequence of lengths, not {shown(shape)}", remedy="Blob((2, 3))")
        self.reshape(*shape)

    @property
    def data(self) -> Array:
        """The value."""
        return self._view("data", self._data)

    @property
    def diff(self) -> Array:
        """The gradient."""
        return self._view("diff", self._diff)

    def memory(self, name: str) -> Memory:
        """What is behind "data" or "diff"."""
        return self._data if name == "data" else self._diff

    def fill_later(self, name: str, later: Later) -> None:
        """Let "data" or "diff" have other numbers: written when somebody looks, or at once where somebody does."""
        memory = self.memory(name)
        memory.later = None
        if memory.seen:
            self._views.pop(name, None)
            memory.seen = memory.is_held
        if memory.seen:
            later.write(memory.room(later.count, self.dtype)[: later.count])
        else:
            memory.later = later

    def forget_later(self) -> None:
        """Other numbers are on the way: those that nobody has looked at yet are not needed any more."""
        for memory in (self._data, self._diff):
            if memory.later is not None and memory.later.write is not _zero:
                memory.later = None

    def clear_diff(self) -> None:
        """Set the gradient to 0."""
        self.fill_later("diff", Later(self.count, _zero))

    def take_over_diff(self) -> bool:
        """Whether the gradient is 0 and nobody has looked at it since; it then need not be set to 0 any more."""
        later = self._diff.later
        cleared = later is not None and later.write is _zero
        if cleared:
            self._diff.later = None
        return cleared

    def _view(self, name: str, memory: Memory) -> Array:
        known = self._views.get(name)
        if known is not None and known[0] is memory.array and memory.later is None:
            memory.seen = True
            return known[1]
        whole = memory.room(self.count, self.dtype)
        view = whole[: self.count].reshape(self.shape)
        self._views[name] = (whole, view)
        return view

    def reshape(self, *shape: int) -> None:
        """Take another shape; the memory stays if it is large enough, and with it the numbers in it."""
        shape = lengths(shape)
        if len(shape) > MAX_AXES or any(length < 0 for length in shape):
            raise ShapeError(f"a blob has at most {MAX_AXES} axes, none of them negative, got {shape}")
        if math.prod(shape) >= 2**48:
            raise ShapeError(f"a blob of shape {shape} has more numbers than any memory", remedy="look at its lengths")
        if shape != self.shape or not self._views:
            self.shape = shape
            self._views = {}

    def __getstate__(self) -> object:
        """A copy has the numbers that are still to come: what would make them stays with this blob."""
        for memory in (self._data, self._diff):
            if memory.later is not None and memory.later.write is not _zero:
                memory.room(self.count, self.dtype)
        return super().__getstate__()

    def share_data(self, other: Blob) -> None:
        """From now on look at the value of another blob, in this blob's shape."""
        self._check_count(other)
        if self._data is not other._data:
            self._data = other._data
            self._views.pop("data", None)

    def share_diff(self, other: Blob) -> None:
        """From now on look at the gradient of another blob, in this blob's shape."""
        self._check_count(other)
        if self._diff is not other._diff:
            self._diff = other._diff
            self._views.pop("diff", None)

    def shares_data(self, other: Blob) -> bool:
        """Whether both look at one memory."""
        return self._data is other._data

    def own_data(self) -> None:
        """Stop sharing: a value of its own, zeros."""
        self._data = Memory()
        self._views.pop("data", None)

    def _check_count(self, other: Blob) -> None:
        if not isinstance(other, Blob):
            raise WrongKind(f"a blob shares the memory of a Blob, not {shown(other)}", remedy="give net.blobs[name]")
        if other.count != self.count or other.dtype != self.dtype:
            raise ShapeError(f"a blob of shape {self.shape} cannot share the memory of one of shape {other.shape}")

    @property
    def count(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)

    @property
    def num(self) -> int:
        """Length of axis 0, of a blob with at most four axes; 1 where there is none. So are the next three."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Length of axis 1, as `num` of axis 0."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Length of axis 2, as `num` of axis 0."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Length of axis 3, as `num` of axis 0."""
        return self._legacy(3)

    def _legacy(self, axis: int) -> int:
        return legacy_length(self.shape, axis)

    def __repr__(self) -> str:
        return f"<Blob {shape_text(self.shape)}>"


def lengths(given: Sequence[object]) -> Shape:
    """The lengths of a blob's axes; floats that are whole are taken. Raises WrongKind, a TypeError, or ShapeError."""
    found = []
    for length in given:
        if isinstance(length, float | np.floating):
            if not float(length).is_integer():
                raise ShapeError(f"the lengths of a blob's axes are whole numbers, got {tuple(given)}",
                                 remedy="divide with //")  # fmt: skip
            length = int(length)
        elif not isinstance(length, int | np.integer):
            raise WrongKind(f"the length of an axis is a whole number, not {shown(length)}",
                            remedy="write blob.reshape(2, 3), or blob.reshape(*shape)")  # fmt: skip
        found.append(int(length))
    return tuple(found)


def _zero(array: Array) -> None:
    array.fill(0)


def legacy_length(shape: Shape, axis: int) -> int:
    """The length of an axis by its old name (num, channels, height, width): at most four axes, missing ones are 1."""
    if len(shape) > 4:
        raise ShapeError(f"num, channels, height and width need at most 4 axes, the blob has {len(shape)}: {shape}")
    return shape[axis] if axis < len(shape) else 1


def shape_text(shape: Sequence[int]) -> str:
    """A shape as Caffe prints it: the lengths, and their product in parentheses."""
    return "".join(f"{length} " for length in shape) + f"({math.prod(shape)})"


def weighted_sum(values: Array, weights: Array) -> float:
    """The sum of values times weights, two arrays of one shape; products as they are, added up in float64."""
    products = values * weights
    # NumPy's sum of a single number takes ten times as long as this.
    return float(products) if products.ndim == 0 else float(products.sum(dtype=np.float64))

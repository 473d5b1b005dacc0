"""Activations on float32 arrays of any shape. Results have the memory order of the input."""

from __future__ import annotations

import numpy as np

from undertow.errors import ShapeError, UndertowError
from undertow.kernels.cpu.memory import empty
from undertow.kernels.cpu.raw import activation as raw
from undertow.kernels.cpu.raw.activation import BROKEN_LINES, CURVES, FROM_OUTPUT, BrokenLine

Array = np.ndarray


def knows(name: str, from_output: bool = False) -> bool:
    """Whether there is a kernel for the activation, and for its slope taken from the output."""
    return name in BROKEN_LINES or name in (FROM_OUTPUT if from_output else CURVES)


def activate(x: Array, name: str) -> Array:
    """y = f(x) for one of relu, leaky (.1), relie, ramp, logistic, tanh, elu, mish, swish."""
    if name in BROKEN_LINES:
        return broken_line(x, *BROKEN_LINES[name])
    _find(name)
    x = _dense(x)
    y = _like(x)
    raw.curve(name, x.ctypes.data, y.ctypes.data, x.size)
    return y


def activate_backward(gy: Array, saved: Array, name: str, from_output: bool = False) -> Array:
    """gx = gy * f'(x). saved: the input x, or with from_output the output, from which Darknet takes f'."""
    if name in BROKEN_LINES:
        return broken_line_backward(gy, saved, *BROKEN_LINES[name])
    _find(name, from_output)
    gy, saved = _same_order(gy, saved)
    gx = _like(gy)
    raw.curve_backward(name, gy.ctypes.data, saved.ctypes.data, gx.ctypes.data, gy.size, from_output=from_output)
    return gx


def broken_line(x: Array, above: float, below: float) -> Array:
    """y = above * x for x > 0, below * x else: leaky of any slope."""
    x = _dense(x)
    y = _like(x)
    raw.broken_line(x.ctypes.data, y.ctypes.data, x.size, BrokenLine(above, below))
    return y


def broken_line_backward(gy: Array, saved: Array, above: float, below: float) -> Array:
    """gx = gy * above where saved > 0, gy * below else. saved: input or output (same signs)."""
    gy, saved = _same_order(gy, saved)
    gx = _like(gy)
    raw.broken_line_backward(gy.ctypes.data, saved.ctypes.data, gx.ctypes.data, gy.size, BrokenLine(above, below))
    return gx


def _find(name: str, from_output: bool = False) -> None:
    if not knows(name, from_output):
        raise UndertowError(f"there is no compiled activation '{name}'")


def _order(x: Array) -> tuple[int, ...] | None:
    """The axes from the outermost to the innermost in memory, or None where there are gaps."""
    axes = tuple(sorted(range(x.ndim), key=lambda a: (-x.strides[a], a)))
    return axes if x.transpose(axes).flags.c_contiguous else None


def _dense(x: Array) -> Array:
    return x if _order(x) is not None else np.ascontiguousarray(x)


def _like(x: Array) -> Array:
    """An uninitialised array of x's shape and memory order."""
    axes = _order(x)
    if axes is None or axes == tuple(range(x.ndim)):
        return empty(x.shape)
    return empty(tuple(x.shape[a] for a in axes)).transpose(np.argsort(axes))


def _same_order(a: Array, b: Array) -> tuple[Array, Array]:
    """Both without gaps and in the memory order of b."""
    if a.shape != b.shape:
        raise ShapeError(f"a gradient of shape {a.shape} does not belong to an activation of shape {b.shape}")
    b = _dense(b)
    if a.strides != b.strides:
        copy = _like(b)
        copy[...] = a
        a = copy
    return a, b

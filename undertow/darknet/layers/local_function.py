"""A convolution with weights of its own at each place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LocalWindows:
    """size, stride of the windows; pad: zeros on each side; out: (height, width) of the result."""

    size: int
    stride: int
    pad: int
    out: tuple[int, int]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def by_hand(windows: LocalWindows, x: Array, w: Array, b: Array) -> Array:
        y = np.array(np.broadcast_to(b, (len(x), *b.shape)))
        for i, f, p, q in np.ndindex(*y.shape):
            for c, u, v in np.ndindex(x.shape[1], windows.size, windows.size):
                row, column = p * windows.stride - windows.pad + u, q * windows.stride - windows.pad + v
                if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                    place, tap = p * windows.out[1] + q, (c * windows.size + u) * windows.size + v
                    y[i, f, p, q] += w[place, f, tap] * x[i, c, row, column]
        return y

    def sample(x: tuple[int, ...], windows: LocalWindows, filters: int, note: str) -> Sample:
        places = windows.out[0] * windows.out[1]
        w = rng.standard_normal((places, filters, x[1] * windows.size**2))
        arrays = rng.standard_normal(x), w, rng.standard_normal((filters, *windows.out))
        return Sample(
            arrays,
            lambda x, w, b: locally_connected(x, w, b, windows),
            lambda x, w, b: by_hand(windows, x, w, b),
            note,
        )

    return [
        sample((2, 2, 4, 3), LocalWindows(3, 1, 1, (4, 3)), 2, "3x3 with padding"),
        sample((1, 3, 5, 4), LocalWindows(2, 2, 0, (2, 2)), 1, "2x2, stride 2, a row left over"),
    ]


@register(
    "locally_connected",
    gradient="once",
    forward="y[i,f,p,q] = b[f,p,q] + sum over c,u,v of w[pq,f,cuv] x[i,c, p s - pad + u, q s - pad + v]",
    backward="gx = the windows of w^T gy laid back and added, gw = gy times the windows of x, gb = sum of gy",
    samples=_samples,
)
class LocallyConnected(Function):
    """`locally_connected` for given windows."""

    def __init__(self, windows: LocalWindows) -> None:
        self.windows = windows

    def forward(self, x: Array, w: Array, b: Array) -> Array:
        y = np.matmul(w, self._columns(x))  # (places, filters, batch)
        return y.transpose(2, 1, 0).reshape(len(x), *b.shape) + b

    def backward(self, gy: Array) -> tuple[Array | None, Array, Array]:
        x, w = self.inputs[0].data, self.inputs[1].data
        by_place = np.ascontiguousarray(gy.reshape(*gy.shape[:2], -1).transpose(2, 1, 0))
        gw = np.matmul(by_place, self._columns(x).transpose(0, 2, 1))
        gx = self._laid_back(np.matmul(w.transpose(0, 2, 1), by_place), x) if self.needs_input_grad[0] else None
        return gx, gw, gy.sum(axis=0)

    def _columns(self, x: Array) -> Array:
        """(places, channels*size*size, batch)."""
        o, (height, width) = self.windows, self.windows.out
        padded = np.pad(x, ((0, 0), (0, 0), (o.pad, o.pad), (o.pad, o.pad)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (o.size, o.size), (2, 3))
        views = views[:, :, : height * o.stride : o.stride, : width * o.stride : o.stride]
        return views.transpose(2, 3, 1, 4, 5, 0).reshape(height * width, -1, len(x))

    def _laid_back(self, columns: Array, x: Array) -> Array:
        o, (height, width) = self.windows, self.windows.out
        batch, channels, rows, wide = x.shape
        padded = np.zeros((batch, channels, rows + 2 * o.pad, wide + 2 * o.pad), x.dtype)
        taps = columns.reshape(height, width, channels, o.size, o.size, batch).transpose(5, 2, 0, 1, 3, 4)
        for u, v in np.ndindex(o.size, o.size):
            bottom, right = u + height * o.stride, v + width * o.stride
            padded[:, :, u : bottom : o.stride, v : right : o.stride] += taps[..., u, v]
        return padded[:, :, o.pad : o.pad + rows, o.pad : o.pad + wide]


def locally_connected(x: Operand, w: Operand, b: Operand, windows: LocalWindows) -> Variable:
    """x: (batch, c, h, w). w: (places, filters, c*size*size), place = row*width + column. b: (filters, *out)."""
    return LocallyConnected(windows)(x, w, b)

"""Pooling and resampling, all threads."""

from __future__ import annotations

from typing import NamedTuple

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.tensor import Tensor
from undertow.kernels.cpu.threads import team
from undertow.kernels.geometry import Pair

_pooling = Kernels("pooling")


class Pool(NamedTuple):
    """Window, stride (vertical, horizontal) and where the first window starts: (-top, -left)."""

    kh: int
    kw: int
    sy: int
    sx: int
    top: int
    left: int


def _halves(x: Tensor, y: Tensor, pool: Pool) -> bool:
    """Whether all windows are 2x2 with stride 2 and inside the image: the case that has its own kernels."""
    return pool == (2, 2, 2, 2, 0, 0) and 2 * y.h <= x.h and 2 * y.w <= x.w


def max_forward(x: Tensor, y: Tensor, indexes: int, pool: Pool) -> None:
    """indexes: address of int32 [N][Ho][Wo][C] for the winners, or 0."""
    if _halves(x, y, pool):
        team().run(
            y.n * y.h,
            lambda t, a, b: _pooling.max_forward_2x2(
                x.address, x.stride, x.h, x.w, y.address, y.stride, indexes, y.h, y.w, x.c, a, b
            ),
        )
        return
    team().run(
        y.n * y.h,
        lambda t, a, b: _pooling.max_forward(
            x.address, x.stride, x.h, x.w, y.address, y.stride, indexes, y.h, y.w, *pool, x.c, a, b
        ),
    )


def tiled(size: Pair, out: Pair, pool: Pool) -> bool:
    """Whether the windows are 2x2 with stride 2 and tile the image, as `max_backward_from` needs.

    size, out: (height, width) of input and output.
    """
    return pool == (2, 2, 2, 2, 0, 0) and size == (2 * out[0], 2 * out[1])


def max_backward_from(gy: Tensor, x: Tensor, gx: Tensor, *, accumulate: bool = False) -> None:
    """gx = or += gradient of the input x, where the windows are `tiled`; the winners are looked for in x."""
    team().run(
        gy.n * gy.h,
        lambda t, a, b: _pooling.max_backward_from_2x2(
            gy.address, gy.stride, x.address, x.stride, gy.h, gy.w, gx.address, gx.stride, gx.h, gx.w, gx.c, a, b,
            accumulate,
        ),
    )  # fmt: skip


def max_backward(gy: Tensor, indexes: int, gx: Tensor, pool: Pool, *, accumulate: bool = False) -> None:
    """gx = gradient of the input, or gx += it."""
    if tiled((gx.h, gx.w), (gy.h, gy.w), pool):
        team().run(
            gy.n * gy.h,
            lambda t, a, b: _pooling.max_backward_2x2(
                gy.address, gy.stride, indexes, gy.h, gy.w, gx.address, gx.stride, gx.h, gx.w, gx.c, a, b, accumulate
            ),
        )
        return
    team().run(
        gx.n * gx.h,
        lambda t, a, b: _pooling.max_backward(
            gy.address, gy.stride, indexes, gy.h, gy.w, gx.address, gx.stride, gx.h, gx.w, *pool, gx.c, a, b,
            accumulate,
        ),
    )  # fmt: skip


def average_forward(x: Tensor, y: Tensor, cells_y: int, cells_x: int, pool: Pool) -> None:
    """cells_y, cells_x: addresses of float32 tables; a window's sum is divided by their product."""
    team().run(
        y.n * y.h,
        lambda t, a, b: _pooling.average_forward(
            x.address, x.stride, x.h, x.w, y.address, y.stride, y.h, y.w, cells_y, cells_x, *pool, x.c, a, b
        ),
    )


def _even(x: Tensor, y: Tensor, pool: Pool) -> bool:
    """Whether the windows tile the image, with a number of cells by which float32 is divided without rounding."""
    kh, kw, cells = pool.kh, pool.kw, pool.kh * pool.kw
    tiled = pool == (kh, kw, kh, kw, 0, 0) and (x.h, x.w) == (kh * y.h, kw * y.w)
    return tiled and cells & (cells - 1) == 0


def average_backward(
    gy: Tensor, gx: Tensor, cells_y: int, cells_x: int, pool: Pool, *, accumulate: bool = False
) -> None:
    """gx = gradient of the input, or gx += it."""
    if _even(gx, gy, pool):
        replicate(gy, gx, pool.kh, pool.kw, 1 / (pool.kh * pool.kw), accumulate=accumulate)
        return
    team().run(
        gx.n * gx.h,
        lambda t, a, b: _pooling.average_backward(
            gy.address, gy.stride, gy.h, gy.w, gx.address, gx.stride, gx.h, gx.w, cells_y, cells_x, *pool, gx.c, a,
            b, accumulate,
        ),
    )  # fmt: skip


def replicate(x: Tensor, y: Tensor, fy: int, fx: int, scale: float, *, accumulate: bool = False) -> None:
    """Every pixel of x, times scale, to an fy x fx block of y."""
    team().run(
        x.n * x.h,
        lambda t, a, b: _pooling.replicate(
            x.address, x.stride, x.h, x.w, y.address, y.stride, fy, fx, scale, x.c, a, b, accumulate
        ),
    )


def block_sum(x: Tensor, y: Tensor, fy: int, fx: int, scale: float, *, accumulate: bool = False) -> None:
    """The sum of every fy x fx block of x, times scale, to a pixel of y."""
    team().run(
        y.n * y.h,
        lambda t, a, b: _pooling.block_sum(
            x.address, x.stride, y.h, y.w, y.address, y.stride, fy, fx, scale, y.c, a, b, accumulate
        ),
    )

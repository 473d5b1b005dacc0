"""Updates of parameters, one pass over values, accumulators and gradients instead of one per operation."""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    claim,
    fma,
    load,
    load_float,
    load_part,
    splat,
    store_part,
    tell_nan,
    zero,
)

AHEAD = 2048  # bytes: by the time they are written, no other processor has a copy that must be given up


@kernel(floats=("factor",))
def accumulate(updates, gradient, factor, i0, i1):
    """updates -= factor * gradient: floats i0..i1."""
    f = splat(factor)
    for i in range(i0, i1, LANES):
        n = i1 - i
        v = load_part(updates + 4 * i, n) - load_part(gradient + 4 * i, n) * f
        store_part(updates + 4 * i, v, n)


@kernel
def darknet(values, updates, numbers, i0, i1):
    """updates -= decay * values (unless decay is 0); values += rate * updates; updates *= momentum.

    numbers: decay, rate, momentum.
    """
    decay = load_float(numbers)
    d, r, m = splat(decay), splat(load_float(numbers + 4)), splat(load_float(numbers + 8))
    for i in range(i0, i1, LANES):
        n = i1 - i
        claim(values + 4 * i + AHEAD)
        claim(updates + 4 * i + AHEAD)
        w, u = load_part(values + 4 * i, n), load_part(updates + 4 * i, n)
        if decay != 0:
            u = u - w * d
        store_part(values + 4 * i, w + u * r, n)
        store_part(updates + 4 * i, u * m, n)


@inline
def _four(numbers):
    """Scale, decay, rate, momentum."""
    return (
        splat(load_float(numbers)), splat(load_float(numbers + 4)),
        splat(load_float(numbers + 8)), splat(load_float(numbers + 12)),
    )  # fmt: skip


@kernel
def momentum(values, gradient, velocity, numbers, i0, i1):
    """velocity = momentum * velocity + scale * gradient + decay * values; values -= rate * velocity."""
    s, d, r, m = _four(numbers)
    for i in range(i0, i1, LANES):
        n = i1 - i
        claim(values + 4 * i + AHEAD)
        claim(velocity + 4 * i + AHEAD)
        w = load_part(values + 4 * i, n)
        v = load_part(velocity + 4 * i, n) * m + (load_part(gradient + 4 * i, n) * s + w * d)
        store_part(velocity + 4 * i, v, n)
        store_part(values + 4 * i, w - v * r, n)


@kernel
def caffe(values, gradient, history, numbers, i0, i1):
    """h = momentum * h + rate * (scale * gradient + decay * values), h the history; gradient = h; values -= h."""
    s, d, r, m = _four(numbers)
    decays = load_float(numbers + 4) != 0
    for i in range(i0, i1, LANES):
        n = i1 - i
        claim(values + 4 * i + AHEAD)
        claim(history + 4 * i + AHEAD)
        claim(gradient + 4 * i + AHEAD)
        w = load_part(values + 4 * i, n)
        g = load_part(gradient + 4 * i, n) * s
        if decays:
            g = g + w * d
        step = load_part(history + 4 * i, n) * m + g * r
        store_part(history + 4 * i, step, n)
        store_part(gradient + 4 * i, step, n)
        store_part(values + 4 * i, w - step, n)


@kernel
def find_infinite(x, i0, i1, found):
    """The int64 at `found` becomes 1 where a NaN or an infinity is among floats i0..i1.

    A sum of 0 * x is 0 as long as all x are finite.
    """
    nothing = zero()
    a, b, c, d = zero(), zero(), zero(), zero()
    i = i0
    while i + 4 * LANES <= i1:
        p = x + 4 * i
        a = fma(load(p), nothing, a)
        b = fma(load(p + VBYTES), nothing, b)
        c = fma(load(p + 2 * VBYTES), nothing, c)
        d = fma(load(p + 3 * VBYTES), nothing, d)
        i += 4 * LANES
    while i < i1:
        a = fma(load_part(x + 4 * i, i1 - i), nothing, a)
        i += LANES
    tell_nan((a + b) + (c + d), found)

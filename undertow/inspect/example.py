"""A small numeric example of an operation: computed by the engine on a tiny slice, and checked by differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.backward import grad
from undertow.core.modes import enable_grad, precision
from undertow.core.registry import Sample
from undertow.core.variable import Variable
from undertow.errors import UndertowError
from undertow.functions.conv import Conv
from undertow.functions.linalg import Linear
from undertow.inspect.record import Array, Call
from undertow.kernels.geometry import ConvGeometry

STEP = 1e-5
# Slopes on both sides of a place that differ by more than this, relative to the larger, are those of a kink.
KINK = 1e-2
_TRIED = 8
# Of an operand with more elements than this so many are compared, evenly spaced.
MOST, SOME = 64, 8
# A sample of about this size is read at a glance.
HANDY = 10
Compute = Callable[..., Any]


@dataclass(frozen=True)
class Example:
    """arrays: the operands; gy: of the result y, random. gradients: by the engine, None where there is none.

    y: of several results the loss, where one of them is a single number, else the first. differences: gradients by
    central differences of sum(gy * y), NaN where they were not taken. origin: where the numbers come from.
    """

    arrays: tuple[Array, ...]
    y: Array
    gy: Array
    gradients: tuple[Array | None, ...]
    differences: tuple[Array | None, ...]
    origin: str

    @property
    def largest_error(self) -> float:
        """The largest difference between both, relative to the largest gradient (at least 1)."""
        largest = 0.0
        for gradient, difference in zip(self.gradients, self.differences, strict=True):
            if gradient is not None and difference is not None and not np.isnan(difference).all():
                scale = max(1.0, float(np.max(np.abs(gradient))))
                largest = max(largest, float(np.nanmax(np.abs(gradient - difference))) / scale)
        return largest


def example(call: Call, seed: int = 0) -> Example | None:
    """An example of this operation; None for one without a gradient.

    It is this call cut down to a few values, where the operation allows that, else a small sample that the registry
    keeps for tests, one whose gradient is not 0 everywhere if there is one. float64, reference kernels.
    """
    entry = call.entry
    if entry is not None and entry.gradient in ("none", "estimate"):
        return None
    rng = np.random.default_rng(seed)
    empty = None
    for arrays, compute, origin in _candidates(call, rng):
        try:
            with np.errstate(all="ignore"):
                found = _computed(arrays, compute, origin, rng)
        except (UndertowError, ValueError, IndexError, TypeError, NotImplementedError):
            continue
        if found is None or not all(np.isfinite(g).all() for g in (*found.gradients, found.y) if g is not None):
            continue
        if any(g is not None and g.any() for g in found.gradients):
            return found
        empty = empty or found
    return empty


def _candidates(call: Call, rng: np.random.Generator) -> list[tuple[tuple[Array, ...], Compute, str]]:
    found = []
    cut = _cut(call)
    # Values that are all 0, such as a state at its beginning, show nothing, and lie on the kink of a rectifier.
    if cut is not None and cut[0][0].any():
        found.append((*cut, "values of this layer, cut to a corner"))
    entry = call.entry
    if entry is not None:
        samples = sorted(entry.samples(rng), key=lambda sample: _handiness(sample, call))
        found += [(sample.args, sample.call, f"a sample of the operation {entry.name}") for sample in samples[:_TRIED]]
    return found


def _handiness(sample: Sample, call: Call) -> tuple[bool, float]:
    """Samples that grow or shrink as this call does come first, then those of a handy size."""
    sizes = [a.size for a in sample.args]
    size = abs(math.log(max(sum(sizes), 1) / HANDY))
    if len(call.in_shapes) != 1 or len(call.out_shapes) != 1:
        return (False, size)
    grows = math.prod(call.out_shapes[0]) - math.prod(call.in_shapes[0])
    try:
        with np.errstate(all="ignore"):
            result = sample.call(*[Variable(a, requires_grad=False) for a in sample.args])
    except (UndertowError, ValueError, IndexError, TypeError, NotImplementedError):
        return (True, size)
    made = result.size if isinstance(result, Variable) else 0
    return (int(np.sign(grows)) != int(np.sign(made - sizes[0])), size)


def _cut(call: Call) -> tuple[tuple[Array, ...], Compute] | None:
    """Operands cut to a corner, and the operation for them."""
    xs = [np.asarray(x.data) for x in call.operands]
    function = call.function
    if isinstance(function, Conv) and isinstance(function.geometry, ConvGeometry):
        dy, dx = function.geometry.dilation
        kh, kw = xs[1].shape[2:]
        high, wide = (kh - 1) * dy + 2, (kw - 1) * dx + 2
        x, w = xs[0][:1, :1, :high, :wide], xs[1][:1, :1]
        geometry = ConvGeometry(dilation=function.geometry.dilation)
        return (_double(x), _double(w), *[_double(b[:1]) for b in xs[2:]]), lambda *vs: Conv(geometry)(*vs)
    if isinstance(function, Linear) and xs[0].ndim == 2:
        x, w = xs[0][:2, :3], xs[1][:2, :3]
        return (_double(x), _double(w), *[_double(b[:2]) for b in xs[2:]]), lambda *vs: function._fresh()(*vs)
    same = xs[0].ndim > 0 and len({x.shape for x in xs}) == 1 and call.out_shapes == (xs[0].shape,)
    if same and all(x.dtype.kind == "f" for x in xs) and call.name not in ("batch_norm", "max_pool2d", "avg_pool2d"):
        corner = (*(slice(0, 1) for _ in xs[0].shape[:-1]), slice(0, 5))
        return tuple(_double(x[corner]) for x in xs), lambda *vs: function._fresh()(*vs)
    return None


def _double(x: Array) -> Array:
    return np.array(x, np.float64)


def _computed(arrays: tuple[Array, ...], compute: Compute, origin: str, rng: np.random.Generator) -> Example | None:
    floats = [a.dtype.kind == "f" for a in arrays]
    if not any(floats):
        return None
    with enable_grad(), precision("reference"):
        variables = [Variable(a, requires_grad=f) for a, f in zip(arrays, floats, strict=True)]
        result = compute(*variables)
        results = _several(result)
        told = next((i for i, y in enumerate(results[1:], 1) if y.size == 1 and y.requires_grad), 0)
        y = results[told]
        if not y.requires_grad:
            return None
        gy = np.round(rng.standard_normal(y.shape), 2)
        wanted = [v for v, f in zip(variables, floats, strict=True) if f]
        engine = iter(grad(y, wanted, gy))
        gradients = tuple(next(engine).data if f else None for f in floats)

        def loss(*xs: Array) -> float:
            again = compute(*[Variable(x, requires_grad=False) for x in xs])
            return float(np.sum(gy * _several(again)[told].data))

        differences = tuple(None if g is None else _central(loss, arrays, i, g) for i, g in enumerate(gradients))
    return Example(arrays, y.data, gy, gradients, differences, origin)


def _several(result: Any) -> Sequence[Variable]:
    return result if isinstance(result, tuple | list) else (result,)


def _central(loss: Callable[..., float], arrays: tuple[Array, ...], index: int, gradient: Array) -> Array:
    """(L(x + h) - L(x - h)) / 2h for the elements of one operand; NaN where they were not taken.

    Of a large operand they are taken at some places, where the gradient is not 0 if there are enough of those; never
    at a kink, where the slopes of both sides differ.
    """
    x = arrays[index]
    found = np.full(x.shape, np.nan)
    every = np.arange(x.size)
    if x.size > MOST:
        telling = np.flatnonzero(gradient)
        every = telling if len(telling) >= SOME else every
        every = every[:: -(-len(every) // SOME)]
    middle = loss(*arrays)
    for place in (np.unravel_index(i, x.shape) for i in every):
        moved = []
        for step in (STEP, -STEP):
            changed = x.copy()
            changed[place] += step
            moved.append(loss(*arrays[:index], changed, *arrays[index + 1 :]))
        above, below = (moved[0] - middle) / STEP, (middle - moved[1]) / STEP
        if abs(above - below) <= KINK * max(1.0, abs(above), abs(below)):
            found[place] = (moved[0] - moved[1]) / (2 * STEP)
    return found

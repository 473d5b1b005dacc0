"""A small numeric example of an operation: computed by the engine on a tiny slice, and checked by differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.backward import grad
from undertow.core.function import Function
from undertow.core.modes import enable_grad, precision
from undertow.core.registry import Sample
from undertow.core.variable import Variable
from undertow.errors import UndertowError
from undertow.inspect.cutting import cut, fitted_to, own_function, settings_of
from undertow.inspect.record import Array, Call, Recorder

STEP = 1e-5
# Slopes on both sides of a place that differ by more than this, relative to the larger, are those of a kink.
KINK = 1e-2
_TRIED = 8
# Of an operand with more elements than this so many are compared, evenly spaced.
MOST, SOME = 64, 8
# A sample of about this size is read at a glance.
HANDY = 10


@dataclass(frozen=True)
class Example:
    """arrays: the operands; gy: of the result y, random. gradients: by the engine, None where there is none.

    y: of several results the loss, where one of them is a single number, else the first. differences: gradients by
    central differences of sum(gy * y), NaN where they were not taken. origin: where the numbers come from. settings: of
    the operation in the example.
    """

    arrays: tuple[Array, ...]
    y: Array
    gy: Array
    gradients: tuple[Array | None, ...]
    differences: tuple[Array | None, ...]
    origin: str
    settings: str

    @property
    def largest_error(self) -> float:
        """The largest difference between both, relative to the largest gradient (at least 1)."""
        largest = 0.0
        for gradient, difference in zip(self.gradients, self.differences, strict=True):
            if gradient is not None and difference is not None and not np.isnan(difference).all():
                scale = max(1.0, float(np.max(np.abs(gradient))))
                largest = max(largest, float(np.nanmax(np.abs(gradient - difference))) / scale)
        return largest


@dataclass(frozen=True)
class _Candidate:
    """arrays and which of them get a gradient; a function that has not run; see `Example` for the rest."""

    arrays: tuple[Array, ...]
    function: Function
    wanted: tuple[bool, ...]
    origin: str
    settings: str


def example(call: Call, seed: int = 0) -> Example | None:
    """An example of this operation; None for one without a gradient.

    It is this call cut down to a few values, where the operation allows that; else a small sample that the registry
    keeps for tests, computed with this call's settings if they fit it, else with its own, of the same variant if there
    is one; one whose gradient is not 0 everywhere if there is one. float64, reference kernels.
    """
    entry = call.entry
    if entry is not None and entry.gradient in ("none", "estimate"):
        return None
    rng = np.random.default_rng(seed)
    empty = None
    for candidate in _candidates(call, rng):
        if empty is not None and candidate.settings != settings_of(call.function):
            return empty
        try:
            with np.errstate(all="ignore"):
                found = _computed(candidate, rng)
        except (UndertowError, ValueError, IndexError, TypeError, NotImplementedError):
            continue
        if found is None or not all(np.isfinite(g).all() for g in (*found.gradients, found.y) if g is not None):
            continue
        if any(g is not None and g.any() for g in found.gradients):
            return found
        empty = empty or found
    return empty


def _candidates(call: Call, rng: np.random.Generator) -> Iterator[_Candidate]:
    own = cut(call)
    settings = settings_of(call.function)
    # Values that are all 0, such as a state at its beginning, show nothing, and lie on the kink of a rectifier.
    if own is not None and own[0][0].any():
        whole = tuple(a.shape for a in own[0]) == call.in_shapes
        shown = settings_of(own[1])
        part = "" if whole else ", cut to a corner" if shown == settings else ", cut to a corner of some of its groups"
        origin = f"values of this layer{part}"
        yield _Candidate(tuple(own[0]), own[1], _floats(own[0]), origin, shown)
        # The truth of a loss is a constant, whose gradient cannot even be asked for.
        yield _Candidate(tuple(own[0]), own[1], call.wanted, origin, shown)
    entry = call.entry
    if entry is None:
        return
    samples = [made for sample in entry.samples(rng) if (made := _run(sample, call)) is not None]
    samples.sort(key=lambda made: (settings_of(made.function) != settings, *_handiness(made, call)))
    origin = f"a sample of the operation {entry.name}"
    own_settings = f"{origin} with this layer's settings" if settings else origin
    for made in samples[:_TRIED]:
        if len(made.operands) == len(call.operands):
            xs, function = fitted_to(call.function, [_double(x.data) for x in made.operands])
            yield _Candidate(tuple(xs), function, made.wanted, own_settings, settings)
    for made in samples[:_TRIED]:
        told = settings_of(made.function)
        where = origin if told == settings else f"{origin} with settings of its own"
        arrays = tuple(_double(x.data) for x in made.operands)
        yield _Candidate(arrays, own_function(made.function), made.wanted, where, told)


def _run(sample: Sample, call: Call) -> Call | None:
    """What a sample calls of this operation; None where it does not, or cannot be run."""
    recorder = Recorder()
    recorder.enter()
    try:
        with np.errstate(all="ignore"), enable_grad(), recorder:
            sample.call(*[Variable(a, requires_grad=a.dtype.kind == "f") for a in sample.args])
    except (UndertowError, ValueError, IndexError, TypeError, NotImplementedError):
        return None
    return next((made for made in recorder.calls[0] if type(made.function) is type(call.function)), None)


def _handiness(made: Call, call: Call) -> tuple[bool, float]:
    """Samples that grow or shrink as this call does come first, then those of a handy size."""
    size = abs(math.log(max(sum(x.size for x in made.operands), 1) / HANDY))
    return (_growth(made) != _growth(call), size)


def _growth(call: Call) -> int:
    if len(call.in_shapes) != 1 or len(call.out_shapes) != 1:
        return 0
    return int(np.sign(math.prod(call.out_shapes[0]) - math.prod(call.in_shapes[0])))


def _floats(arrays: Sequence[Array]) -> tuple[bool, ...]:
    return tuple(a.dtype.kind == "f" for a in arrays)


def _double(x: Array) -> Array:
    return np.array(x, np.float64) if x.dtype.kind == "f" else x


def _computed(candidate: _Candidate, rng: np.random.Generator) -> Example | None:
    arrays, wanted = candidate.arrays, candidate.wanted
    if not any(wanted):
        return None

    def compute(*xs: Variable) -> Any:
        return candidate.function._fresh()(*xs)

    with enable_grad(), precision("reference"):
        variables = [Variable(a, requires_grad=f) for a, f in zip(arrays, wanted, strict=True)]
        results = _several(compute(*variables))
        told = next((i for i, y in enumerate(results[1:], 1) if y.size == 1 and y.requires_grad), 0)
        y = results[told]
        if not y.requires_grad:
            return None
        gy = np.round(rng.standard_normal(y.shape), 2)
        engine = iter(grad(y, [v for v, f in zip(variables, wanted, strict=True) if f], gy))
        given = [next(engine) if f else None for f in wanted]
        gradients = tuple(None if g is None else g.data for g in given)

        def loss(*xs: Array) -> float:
            """Less that of the example: huge values that stay would swallow the change of the others."""
            again = compute(*[Variable(x, requires_grad=False) for x in xs])
            return float(np.sum(gy * (_several(again)[told].data - y.data)))

        differences = tuple(None if g is None else _central(loss, arrays, i, g) for i, g in enumerate(gradients))
    return Example(arrays, y.data, gy, gradients, differences, candidate.origin, candidate.settings)


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

"""From recorded calls to units: operations with kernels of their own, fused where they follow one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from undertow.functions.arithmetic import Add
from undertow.functions.conv import Conv
from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.join import Concat
from undertow.functions.linalg import Linear
from undertow.functions.norm_batch import BatchNorm
from undertow.functions.pooling import AvgPool2d, MaxPool2d
from undertow.functions.rectifiers import LeakyRelu, Relu
from undertow.functions.resample import Upsample
from undertow.functions.shape import Reshape
from undertow.kernels.geometry import ConvGeometry
from undertow.plans.ordinary import Ordinary
from undertow.plans.record import Call
from undertow.plans.unit import Unit
from undertow.plans.unit_conv import Chain, ConvUnit
from undertow.plans.unit_conv_pool import ConvPoolUnit, PooledChain, can_pool
from undertow.plans.unit_folded import FoldedUnit
from undertow.plans.unit_images import (
    AddUnit,
    AveragePoolUnit,
    ConcatUnit,
    LineUnit,
    MaxPoolUnit,
    PassUnit,
    RowsUnit,
    UpsampleUnit,
)

if TYPE_CHECKING:
    from undertow.plans.program import Program

# Darknet's activations made of two lines through 0, the upper one of slope 1: the slope of the lower one.
_DARKNET_SLOPES = {"leaky": 0.1, "relu": 0.0, "relie": 0.01}


def lower(program: Program) -> list[Unit]:
    """The units that a program consists of, in the order in which they run."""
    matcher = _Matcher(program)
    units: list[Unit] = []
    for number, call in enumerate(program.calls):
        if number in matcher.taken:
            continue
        unit = matcher.unit(number, call)
        matcher.taken.update(unit.calls)
        units.append(unit)
    return sorted(units, key=lambda unit: max(unit.calls))


class _Matcher:
    """Finds what can be fused."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.taken: set[int] = set()
        self.readers: dict[int, list[int]] = {}
        for number, call in enumerate(program.calls):
            for x in call.inputs:
                self.readers.setdefault(program.root(x), []).append(number)
        self.ends = set(program.returned) | program.kept_gradients()
        for walk in program.walks:
            for root, seed in walk.roots:
                self.ends.add(root)
                if seed is not None:
                    self.ends.add(program.root(seed))

    def unit(self, number: int, call: Call) -> Unit:
        """The unit that begins with a call."""
        kind = type(call.function)
        program, calls = self.program, (number,)
        if call.precision == "reference" or not all(self._is_image(x) for x in call.outputs):
            return Ordinary(program, calls)
        if getattr(kind, "passes_on", False) and self._is_image(call.inputs[0]):
            return PassUnit(program, calls)
        if (kind is Conv and self._is_convolution(call)) or (kind is Linear and self._is_linear(call)):
            chain = self._chain(number, call)
            if self._is_trained(chain):
                pooled = self._pooled(chain)
                return ConvUnit(program, chain) if pooled is None else ConvPoolUnit(program, pooled)
            return Ordinary(program, calls) if self._is_read_once(call, chain) else FoldedUnit(program, chain)
        maker = _MAKERS.get(kind)
        if maker is not None and all(self._is_image(x) for x in call.inputs):
            found = maker(program, number, call)
            if found is not None:
                return found
        slope = slope_of(call)
        if slope is not None and self._is_image(call.inputs[0]) and call.outputs[0] not in program.kept_gradients():
            return LineUnit(program, calls, slope)
        return Ordinary(program, calls)

    def _is_image(self, number: int) -> bool:
        """Whether kernels can read a value: images, or rows of features, which are images of one pixel."""
        value = self.program.values[number]
        return len(value.shape) in (2, 4) and value.dtype == np.float32 and 0 not in value.shape

    def _is_convolution(self, call: Call) -> bool:
        values = self.program.values
        return (
            isinstance(cast(Conv, call.function).geometry, ConvGeometry)
            and self._is_image(call.inputs[0])
            and self._is_image(call.inputs[1])
            and len(values[call.inputs[0]].shape) == 4
            and all(values[b].dtype == np.float32 for b in call.inputs[2:])
        )

    def _is_linear(self, call: Call) -> bool:
        values = self.program.values
        rows = all(self._is_image(number) and len(values[number].shape) == 2 for number in call.inputs[:2])
        return rows and all(values[b].dtype == np.float32 for b in call.inputs[2:])

    def _is_read_once(self, call: Call, chain: Chain) -> bool:
        """Whether a linear map is a product of its weights with one row: just to tell that they are the same as when
        they were packed takes longer than that."""
        rows = self.program.values[call.inputs[0]].shape[0]
        return type(call.function) is Linear and chain.norm is None and rows == 1

    def _is_trained(self, chain: Chain) -> bool:
        """Whether anything of a chain is needed again: by a walk back, or as statistics of the batch."""
        if any(not set(chain.calls).isdisjoint(walk.functions) for walk in self.program.walks):
            return True
        norm = None if chain.norm is None else cast(BatchNorm, self.program.calls[chain.norm].function)
        return norm is not None and not norm.given

    def _chain(self, number: int, call: Call) -> Chain:
        """The convolution and what can be done in one go with it."""
        (output,) = call.outputs
        last = self._last_in_place(output)
        chain = self._grown(number, hidden=last is not None)
        if last is None or self.program.calls[chain.calls[-1]].outputs == (last,):
            return chain
        return Chain(number)

    def _grown(self, number: int, hidden: bool) -> Chain:
        """As long a chain as there can be. hidden: of the convolution's output at most the gradient is asked for."""
        chain = Chain(number)
        after = self._only_reader(number, number, seen=False if hidden else None)
        if after is not None and self._is_norm(after):
            chain = Chain(number, norm=after)
            after = self._only_reader(after, number)
        if after is not None and (slope := slope_of(self.program.calls[after])) is not None:
            chain = Chain(number, chain.norm, after, slope)
            after = self._only_reader(after, number)
        if after is not None and not hidden and (chain.norm is not None or not self.program.walks):
            residual = self._residual(after, chain.calls[-1])
            if residual is not None:
                chain = Chain(number, chain.norm, chain.activation, chain.slope, after, residual)
        return chain

    def _pooled(self, chain: Chain) -> PooledChain | None:
        """A chain with the max pooling that alone reads its result, and an activation behind that."""
        program = self.program
        (last,) = program.calls[chain.calls[-1]].outputs
        is_root = any(last == root for walk in program.walks for root, _ in walk.roots)
        pool = None if is_root else self._only_reader(chain.calls[-1], chain.conv, seen=False)
        if pool is None or not can_pool(program, chain, pool):
            return None
        if last != program.calls[chain.conv].outputs[0] and last in program.kept_gradients():
            return None
        after = None
        if chain.activation is None and last not in program.returned:
            after = self._only_reader(pool, chain.conv)
        slope = None if after is None else slope_of(program.calls[after])
        if slope is None:
            return PooledChain(chain, pool, slope=chain.slope)
        return PooledChain(chain, pool, after, slope)

    def _last_in_place(self, output: int) -> int | None:
        """The value that layers working in place have made of one whose gradient is kept."""
        last = self.program.ends_as(output)
        return None if last == output or output in self.program.returned else last

    def _only_reader(self, number: int, first: int, seen: bool | None = None) -> int | None:
        """The one call that reads the output of a call, if nothing else can see that output."""
        (output,) = self.program.calls[number].outputs
        readers = self.readers.get(output, [])
        seen = output in self.ends if seen is None else seen
        if len(readers) != 1 or seen or readers[0] in self.taken:
            return None
        if not self._same_walks(number, readers[0]):
            return None
        reader = self.program.calls[readers[0]]
        if reader.precision == "reference" or self.program.values[reader.outputs[0]].dtype != np.float32:
            return None
        # A walk between two operations would want the gradient of what lies between them.
        if any(first < walk.position <= readers[0] for walk in self.program.walks):
            return None
        return readers[0]

    def _same_walks(self, a: int, b: int) -> bool:
        """Whether two calls take part in the same walks; one that wants no gradient takes part in none."""
        wants_nothing = not any(self.program.calls[a].wanted)
        return wants_nothing or all((a in walk.functions) == (b in walk.functions) for walk in self.program.walks)

    def _is_norm(self, number: int) -> bool:
        """Whether a call is a batch norm that can be fused: with the batch's statistics, or given ones at inference."""
        call = self.program.calls[number]
        if type(call.function) is not BatchNorm or (call.function.given and any(call.wanted)):
            return False
        channels = self.program.values[call.inputs[0]].shape[1:2]
        values = self.program.values
        return all(values[p].shape == channels and values[p].dtype == np.float32 for p in call.inputs[1:])

    def _residual(self, number: int, before: int) -> int | None:
        """What is added to the output of the call before, if that is all that a call does."""
        call = self.program.calls[number]
        (output,) = self.program.calls[before].outputs
        if type(call.function) is not Add or call.inputs[0] == call.inputs[1]:
            return None
        other = call.inputs[1] if call.inputs[0] == output else call.inputs[0]
        fits = self._is_image(other) and self.program.values[other].shape == self.program.values[output].shape
        return other if fits and output in call.inputs and self.program.root(other) != output else None


def slope_of(call: Call) -> float | None:
    """The slope, 0 or more, that an activation has below 0, which is x above 0; None for other operations."""
    function = call.function
    if type(function) is Relu:
        return 0.0
    if type(function) is LeakyRelu:  # with a slope below 0 the sign of the result tells nothing of that of x
        return float(function.slope) if function.slope >= 0 else None
    if type(function) is DarknetActivation:
        return _DARKNET_SLOPES.get(function.name)
    return None


def _make_add(program: Program, number: int, call: Call) -> Unit | None:
    shapes = {program.values[x].shape for x in call.inputs}
    return AddUnit(program, (number,)) if len(shapes) == 1 and call.inputs[0] != call.inputs[1] else None


def _make_concat(program: Program, number: int, call: Call) -> Unit | None:
    return ConcatUnit(program, (number,)) if cast(Concat, call.function).axis == 1 else None


def _make_rows(program: Program, number: int, call: Call) -> Unit | None:
    x, y = (program.values[n] for n in (*call.inputs, *call.outputs))
    flattens = len(x.shape) == 4 and len(y.shape) == 2 and x.shape[0] == y.shape[0]
    # An array from outside needs no copy to be looked at in another shape.
    return RowsUnit(program, (number,)) if flattens and not x.is_leaf else None


_MAKERS: dict[type, Callable[[Program, int, Call], Unit | None]] = {
    Add: _make_add,
    Concat: _make_concat,
    AvgPool2d: lambda program, number, call: AveragePoolUnit(program, (number,)),
    MaxPool2d: lambda program, number, call: MaxPoolUnit(program, (number,)),
    Reshape: _make_rows,
    Upsample: lambda program, number, call: UpsampleUnit(program, (number,)),
}

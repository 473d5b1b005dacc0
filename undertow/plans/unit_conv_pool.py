"""Convolution of few input channels with the 2x2 max pooling behind it, and an activation before or after that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from undertow.functions.pooling import MaxPool2d
from undertow.kernels.cpu.raw import plan_norm, plan_unpack, pooling, rows_pool
from undertow.kernels.cpu.raw.parts import Epilogue
from undertow.kernels.cpu.raw.pooling import Pool
from undertow.kernels.cpu.raw.tensor import scratch
from undertow.kernels.cpu.threads import begin
from undertow.plans.arena import Slot
from undertow.plans.unit import Unit
from undertow.plans.unit_conv import Chain, kernel_of

if TYPE_CHECKING:
    from undertow.plans.program import Program

Array = np.ndarray


@dataclass(frozen=True)
class PooledChain:
    """Recorded calls that become one unit: a convolution, perhaps with an activation; its pooling; an activation.

    There is one activation at most. slope: for negative values, 1 for none.
    """

    chain: Chain
    pool: int
    after: int | None = None
    slope: float = 1.0

    @property
    def calls(self) -> tuple[int, ...]:
        return (*self.chain.calls, self.pool) if self.after is None else (*self.chain.calls, self.pool, self.after)


def can_pool(program: Program, chain: Chain, pool: int) -> bool:
    """Whether there are kernels for a chain, read by a max pooling: its input then gets no gradient."""
    call, pooled = program.calls[chain.conv], program.calls[pool]
    if chain.norm is not None or chain.residual is not None or (call.wanted[0] and program.wants(call.inputs[0])):
        return False
    if type(pooled.function) is not MaxPool2d or not program.wants(call.inputs[1]) or not call.wanted[1]:
        return False
    geometry = pooled.function.geometry
    y, z = program.shape(pooled.inputs[0]), program.shape(pooled.outputs[0])
    window = Pool(*geometry.size, *geometry.stride, *geometry.pad)
    kernel = kernel_of(program, call)
    fits = kernel.by_rows and rows_pool.fits(kernel.layer.window)
    return fits and pooling.tiled((y[2], y[3]), (z[2], z[3]), window)


class ConvPoolUnit(Unit):
    """z = pool(activation(conv(x, w) + b)).

    What lies between is written only where it, or its gradient, is read after the step.
    """

    def __init__(self, program: Program, pooled: PooledChain) -> None:
        super().__init__(program, pooled.calls)
        conv = program.calls[pooled.chain.conv]
        self.x, self.w = conv.inputs[0], conv.inputs[1]
        self.b = conv.inputs[2] if len(conv.inputs) == 3 else None
        self.wants_b = self.b is not None and conv.wanted[2] and program.wants(self.b)
        self.y, self.z = conv.outputs[0], program.calls[pooled.calls[-1]].outputs[0]
        self.before = program.calls[pooled.pool].inputs[0]
        self.slope = pooled.slope
        self.layer = kernel_of(program, conv).layer

    # --- memory -----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        program = self.program
        n, c, h, w = program.shape(self.z)
        self.x_slot, self.z_slot = program.read_slot(self.x), program.make_slot(self.z)
        self.winners = program.add_slot(Slot((n, rows_pool.winner_bytes(c) // 4, h, w)))
        self.full_slot = program.make_slot(self.before) if program.root(self.before) in program.returned else None
        program.gradient(self.z)
        self.keeps_y = program.keeps_gradient(self.y)
        if self.keeps_y:
            program.gradient(self.y)
            program.pin(self.z)

    def working_slots(self, walk: int | None) -> tuple[Slot, ...]:
        slots = [self.winners]
        if walk is None and self.full_slot is not None:
            slots.append(self.full_slot)
        if walk is not None and self.keeps_y:
            slots.append(self.program.gradient(self.y).slot)
        return tuple(slots)

    def lasting_slots(self) -> tuple[Slot, ...]:
        return (self.winners,) if self.keeps_y else ()

    def reads_back(self, number: int) -> bool:
        return number == self.x or (number == self.z and self.slope != 1)

    def bind(self) -> None:
        program = self.program
        self.tx, self.tz = self.x_slot.tensor, self.z_slot.tensor
        self.full = None if self.full_slot is None else self.full_slot.tensor
        self.gz = program.gradient(self.z)
        self.tgz = self.gz.slot.tensor
        self.gy = program.gradient(self.y) if self.keeps_y else None

    # --- running ----------------------------------------------------------------------------------------

    def forward(self) -> None:
        program = self.program
        program.ready(self.x)
        weights = np.ascontiguousarray(program.array(self.w))
        bias = None if self.b is None else np.ascontiguousarray(program.array(self.b))
        self.play("forward", (_at(weights), _at(bias)), lambda: self._compute(weights, bias))

    def _compute(self, weights: Array, bias: Array | None) -> None:
        layer, memory = self.layer, scratch()
        then = Epilogue(bias=_at(bias), slope=self.slope)
        with memory.frame():
            packed = memory.take(layer.packed_size)
            layer.pack(_at(weights), packed, memory)
            winners = self.winners.tensor.address
            rows_pool.forward(self.tx, packed, self.tz, winners, layer.window, memory, then, self.full)

    def backward(self, walk: int) -> None:
        if not self.gz.written:
            return
        program = self.program
        sink = program.sink(self.w)
        gw = program.gradient_buffer(self.w) if sink is None else sink
        gb = program.gradient_buffer(self.b) if self.b is not None and self.wants_b else None
        if self.gy is not None:
            self.gy.claim()
            self.gy.late = self._spread
        key = _at(gw), sink is not None, _at(gb)
        self.play("backward", key, lambda: self._compute_back(gw, sink is not None, gb))
        if self.b is not None and gb is not None:
            program.give(self.b, gb)
        if sink is None:
            program.give(self.w, gw)

    def _compute_back(self, gw: Array, subtract: bool, gb: Array | None) -> None:
        layer, memory, winners = self.layer, scratch(), self.winners.tensor.address
        with memory.frame():
            packed = memory.take(layer.packed_size)
            sums = rows_pool.backward_weights(
                self.tx, self.tgz, self.tz, winners, self.slope, packed, layer.window, memory
            )
            if subtract:
                plan_unpack.subtract(packed, layer.inputs, layer.outputs, layer.taps, _at(gw), memory)
            else:
                layer.unpack(packed, _at(gw), memory)
            if gb is not None:
                plan_norm.total(*sums, layer.outputs, _at(gb))

    def _spread(self) -> None:
        """The convolution's own gradient, which nothing in the step needs."""
        begin()
        target = self.program.gradient(self.y).slot.tensor
        rows_pool.spread(self.tgz, self.tz, self.winners.tensor.address, self.slope, target)


def _at(array: Array | None) -> int:
    return 0 if array is None else int(array.ctypes.data)

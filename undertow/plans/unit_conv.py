"""Convolution with what follows it: batch norm, an activation with one slope, a sum with another value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from undertow.functions.conv import Conv
from undertow.functions.norm_batch import BatchNorm
from undertow.kernels.cpu.raw import batchnorm as raw
from undertow.kernels.cpu.raw import direct, packing, plan_norm, plan_pool
from undertow.kernels.cpu.raw.batchnorm import Slope
from undertow.kernels.cpu.raw.parts import SLOTS, Epilogue, Front
from undertow.kernels.cpu.raw.plan_depthwise import Ahead
from undertow.kernels.cpu.raw.tensor import Tensor, scratch
from undertow.kernels.geometry import ConvGeometry
from undertow.plans.arena import Slot
from undertow.plans.kernels import ConvKernel
from undertow.plans.norm import Norm
from undertow.plans.unit import Unit
from undertow.plans.unit_depthwise import reader, sweeps
from undertow.plans.unit_images import MaxPoolUnit

if TYPE_CHECKING:
    from undertow.plans.program import Program
    from undertow.plans.record import Call

Array = np.ndarray

# In-place batch norm finds x_hat again as (y - beta) / gamma; beyond this ratio it would lose too many digits.
_LARGEST_RATIO = 100.0
_SMALLEST_GAMMA = 1e-6


@dataclass(frozen=True)
class Chain:
    """Recorded calls that become one unit, each the only reader of the one before.

    slope: of the activation for negative values; 1 for none. residual: the other operand of the sum.
    """

    conv: int
    norm: int | None = None
    activation: int | None = None
    slope: float = 1.0
    add: int | None = None
    residual: int | None = None

    @property
    def calls(self) -> tuple[int, ...]:
        members = (self.conv, self.norm, self.activation, self.add)
        return tuple(n for n in members if n is not None)


def kernel_of(program: Program, call: Call) -> ConvKernel:
    """The kernel of a convolution, or of a linear map, which is one of 1x1 windows on images of one pixel."""
    geometry = call.function.geometry if isinstance(call.function, Conv) else ConvGeometry()
    x, w = call.inputs[:2]
    return ConvKernel(program.shape(x), program.shape(w), cast(ConvGeometry, geometry), call.precision)


class ConvUnit(Unit):
    """z = activation(batch_norm(conv(x, w))) + residual, or activation(conv(x, w) + b).

    With batch norm, y, the convolution's result, is kept beside z for the way back; or, where the activation can be
    undone and nothing is added, z is written over y (in place), and y is found again from z. A 2x2 max pooling that
    alone reads z is computed here as well, and z is not written at all, see `_fused_pool`. Nor is it where a depthwise
    convolution alone reads it, see `unit_depthwise`: y is in its place.
    """

    def __init__(self, program: Program, chain: Chain) -> None:
        super().__init__(program, chain.calls)
        self.chain = chain
        conv = program.calls[chain.conv]
        self.x, self.w = conv.inputs[0], conv.inputs[1]
        self.b = conv.inputs[2] if len(conv.inputs) == 3 else None
        self.z = program.calls[chain.calls[-1]].outputs[0]
        self.y = conv.outputs[0]
        self.kernel = kernel_of(program, conv)
        self.norm: Norm | None = None
        self.wants_x, self.wants_w, self.wants_b = (
            wanted and program.wants(number)
            for wanted, number in zip((*conv.wanted, False)[:3], (*conv.inputs, self.x)[:3], strict=True)
        )
        if chain.norm is not None:
            self.batch_norm = cast(BatchNorm, program.calls[chain.norm].function)
            _, self.gamma, self.beta = program.calls[chain.norm].inputs
            n, c, h, w = program.shape(self.y)
            self.norm = Norm(self.batch_norm.rule, c, n * h * w)
        channels = program.shape(self.y)[1]
        self._ones, self._zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        self._gbias = np.zeros(channels, np.float32)

    # --- memory -----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        program, chain = self.program, self.chain
        self.x_slot = program.read_slot(self.x)
        self.z_slot = program.make_slot(self.z)
        self.residual_slot = None if chain.residual is None else program.read_slot(chain.residual)
        self.trained = program.backwards(self) > 0
        self.sweeps, self.reader = sweeps(program, self), reader(program, self)
        self.pool = self._fused_pool()
        self.share = self._share()
        self.by_rows = self._made_by_rows()
        maker = program.makers.get(self.x)
        self.ahead = maker if isinstance(maker, ConvUnit) and maker.reader is self else None
        unwritten = self.pool is not None or self.reader is not None
        fits = self.norm is not None and chain.residual is None and not unwritten
        self.guarded = (fits or self.pool is not None) and self.trained and chain.slope != 0
        recovers = self.guarded and self.calls[0] not in program.avoid
        self.in_place = fits and (not self.trained or recovers)
        self.from_pooled = recovers and self.pool is not None
        self.from_z = self.in_place and self.trained
        if self.norm is None or self.in_place or unwritten:
            self.y_slot = self.z_slot
        else:
            self.y_slot = program.add_slot(Slot(program.shape(self.y)))
        self.g_slot: Slot | None = None
        if self.trained:
            over_y = self._may_lose_y()
            if self.pool is not None and (self.by_rows or over_y):
                program.hollow_gradient(self.z)
            gradient = program.gradient(self.z)
            if self.wants_x:
                program.gradient(self.x)
            self.shares = False
            if chain.residual is not None and program.wants(chain.residual):
                program.gradient(chain.residual)
                self.shares = program.share_gradient(chain.residual, self.z, self)
            changes = not self.by_rows and (self.norm is not None or chain.slope != 1)
            if self.reader is not None:
                self.sums_slot = program.add_slot(Slot((SLOTS, 4 * program.shape(self.y)[1], 1, 1)))
            stays = (chain.residual is not None and not self.by_rows) or (changes and program.keeps_gradient(self.z))
            if over_y and (stays or self.pool is not None):
                self.g_slot = self.y_slot
            elif stays:
                self.g_slot = program.add_slot(Slot(program.shape(self.y)))
            else:
                self.g_slot = gradient.slot
            if self.y != self.z and program.keeps_gradient(self.y):
                # Without batch norm it is written over that of z, or into g_slot.
                program.same_gradient(self.y, self.z)

    def _may_lose_y(self) -> bool:
        """Whether its gradient may be written over y, which then is in cache: batch norm alone reads y, no other walk
        needs it, and nobody looks for the gradient.
        """
        alone = self.pool is not None or (self.norm is not None and self.y_slot is not self.z_slot)
        once = self.program.backwards(self) == 1 and not self.program.keeps_gradient(self.y)
        return alone and once and not self.by_rows

    def _share(self) -> float:
        """Of the values of y's gradient those that are not 0: behind a max pooling alone only the winners' are."""
        readers = self.program.consumers.get(self.z, [])
        if self.norm is not None or len(readers) != 1 or not isinstance(readers[0], MaxPoolUnit):
            return 1.0
        pool = readers[0].pool
        return 1 / (pool.kh * pool.kw) if pool.sy >= pool.kh and pool.sx >= pool.kw else 1.0

    def _fused_pool(self) -> MaxPoolUnit | None:
        """The pooling whose two passes are done within those of the batch norm, so that z is never written."""
        program = self.program
        readers = program.consumers.get(self.z, [])
        fits = self.norm is not None and self.chain.residual is None and self.trained
        if not fits or len(readers) != 1 or not isinstance(readers[0], MaxPoolUnit):
            return None
        pool = readers[0]
        seen = self.z in program.returned or program.keeps_gradient(self.z)
        seen = seen or any(self.z == root for walk in program.walks for root, _ in walk.roots)
        if seen or not pool.tiled or not program.always_together(self, pool):
            return None
        pool.fused = True
        return pool

    def _made_by_rows(self) -> bool:
        """Whether the gradient of y is made row by row while that of the weights is summed up, and never stands whole.

        So it is where nothing but these weights has a use for it: in a first layer.
        """
        apart = self.norm is not None and self.trained and self.wants_w and not self.wants_x and not self.wants_b
        return apart and self.kernel.by_rows and not self.program.keeps_gradient(self.y)

    def working_slots(self, walk: int | None) -> tuple[Slot, ...]:
        slots = [] if walk is None or self.g_slot is None else [self.g_slot]
        if walk is None or not (self.norm is None or self.from_z):
            slots.append(self.y_slot)
        if walk is not None:
            slots += [unit.sums_slot for unit in (self, self.ahead) if unit is not None and unit.reader is not None]
        if self.pool is not None:
            if walk is None or self.from_pooled:
                slots.append(self.pool.y_slot)
            if walk is not None:
                slots.append(self.program.gradient(self.pool.output).slot)
        return tuple(slots)

    def reads_back(self, number: int) -> bool:
        if number == self.x:
            return self.wants_w
        return number == self.z and (self.from_z or (self.norm is None and self.chain.slope != 1))

    def may_stay(self) -> bool:
        """Whether in-place batch norm is accurate enough for the present gamma and beta."""
        if not self.guarded:
            return True
        gamma, beta = np.abs(self.program.array(self.gamma)), np.abs(self.program.array(self.beta))
        return bool((gamma >= _SMALLEST_GAMMA).all() and (beta <= _LARGEST_RATIO * gamma).all())

    def bind(self) -> None:
        self.tx, self.ty, self.tz = self.x_slot.tensor, self.y_slot.tensor, self.z_slot.tensor
        self.tr = None if self.residual_slot is None else self.residual_slot.tensor
        self.tg: Any = None if self.g_slot is None else self.g_slot.tensor
        if self.trained:
            self.gz = self.program.gradient(self.z)
            self.tgz = self.gz.slot.tensor

    # --- forward ----------------------------------------------------------------------------------------

    def forward(self) -> None:
        program = self.program
        program.ready(self.x)
        if self.chain.residual is not None:
            program.ready(self.chain.residual)
        weights = np.ascontiguousarray(program.array(self.w))
        bias = None if self.b is None else np.ascontiguousarray(program.array(self.b))
        if self.norm is not None:
            self._convolve(self.norm, weights, bias)
            self._normalise(self.norm)
            return

        def note() -> None:
            then = Epilogue(bias=0 if bias is None else _at(bias), slope=self.chain.slope)
            self.kernel.forward(self.tx, _at(weights), self.ty, then, self._front())

        self.play("forward", (_at(weights), 0 if bias is None else _at(bias)), note)

    def _convolve(self, norm: Norm, weights: Array, bias: Array | None) -> None:
        """y, and the statistics of its channels."""
        memory = scratch()

        def note() -> None:
            with memory.frame():
                sums = norm.cleared_sums(memory)
                then = Epilogue(bias=0 if bias is None else _at(bias), sums=sums)
                self.kernel.forward(self.tx, _at(weights), self.ty, then, self._front())
                norm.take_sums(sums, self.kernel.groups)
                norm.take_statistics(self.ty, memory)

        self.play("forward", (_at(weights), 0 if bias is None else _at(bias)), note)

    def _front(self) -> Front | None:
        """What is done to x while it is read."""
        return None if self.ahead is None else self.ahead.as_front()

    def as_front(self) -> Front:
        """What the reader does to y while it reads it."""
        norm = cast(Norm, self.norm)
        return Front(norm.scale, norm.shift, self.chain.slope)

    def _normalise(self, norm: Norm) -> None:
        function, program = self.batch_norm, self.program
        gamma, beta = _floats(program.array(self.gamma)), _floats(program.array(self.beta))
        running = function.running
        moves = running is not None and norm.moves(running)

        def note() -> None:
            norm.set_affine(_at(gamma), _at(beta))
            if self.pool is None and self.reader is None:
                raw.affine(self.ty, self.tz, norm.scale, norm.shift, self.chain.slope, self.tr)
            elif self.pool is not None:
                plan_pool.affine(self.ty, self.pool.y_slot.tensor, norm.scale, norm.shift, self.chain.slope)
            if running is not None and moves:
                norm.move(running)

        moved = (_at(running.mean), _at(running.variance)) if running is not None and moves else ()
        self.play("normalise", (_at(gamma), _at(beta), *moved), note)
        function.count, function.mean, function.variance = norm.count, norm.mean, norm.variance
        if running is not None and not moves:
            program.finish()
            running.take(function.mean, function.variance, norm.count, norm.rule.forward.divisor)

    # --- backward ---------------------------------------------------------------------------------------

    def backward(self, walk: int) -> None:
        if not self.gz.written or self.tg is None:
            return
        program = self.program
        residual = self._residual_gradient()
        weights, sink = np.ascontiguousarray(program.array(self.w)), None
        gw = gx = None
        if self.wants_w:
            sink = program.sink(self.w)
            gw = program.gradient_buffer(self.w) if sink is None else sink
        if self.wants_x:
            gx = program.gradient(self.x)
        target = None if gw is None else _at(gw)
        ruined = 0 if sink is None else program.ruined
        adds = gx is not None and gx.claim()
        affine: tuple[Array, ...] = ()
        if self.norm is not None:
            affine = _floats(program.array(self.gamma)), _floats(program.array(self.beta))

        def note() -> None:
            if residual is not None and not self.shares:
                packing.copy(self.tgz, residual[0], accumulate=residual[1])
            self._to_convolution(*affine)
            if self.sweeps and gx is not None and target is not None:
                ahead = None if self.ahead is None else self.ahead.as_ahead()
                self.kernel.backward_both(
                    self.tg, self.tx, ahead, _at(weights), gx.slot.tensor, target, accumulate=adds,
                    subtract=sink is not None, ruined=ruined,
                )  # fmt: skip
                return

            def to_input() -> None:
                if gx is not None:
                    self.kernel.backward_data(self.tg, _at(weights), gx.slot.tensor, accumulate=adds, share=self.share)

            if self.kernel.data_first:
                to_input()
            if target is not None:
                make = self._row_maker() if self.by_rows else None
                gy = self.ty if self.by_rows else self.tg  # of the former only the shape counts
                self.kernel.backward_weights(
                    self.tx, gy, target, subtract=sink is not None, ruined=ruined, make=make
                )
            if not self.kernel.data_first:
                to_input()

        adds_residual = residual is not None and residual[1]
        key = (_at(weights), target or 0, sink is not None, adds, adds_residual, *(_at(array) for array in affine))
        self.play("backward", key, note)
        if sink is not None:
            program.searched.add(id(sink))
        self._hand_over(None if sink is not None else gw)

    def _residual_gradient(self) -> tuple[Tensor, bool] | None:
        """Where the gradient goes on to the other operand of the sum, and whether it is added there."""
        residual = self.chain.residual
        if residual is None or not self.program.wants(residual):
            return None
        gradient = self.program.gradient(residual)
        return gradient.slot.tensor, gradient.claim()

    def _to_convolution(self, gamma: Array | None = None, beta: Array | None = None) -> None:
        """From the gradient of z to that of y, and to those of batch norm and bias."""
        memory = scratch()
        if self.norm is not None:
            self._through_norm(self.norm, _at(cast(Array, gamma)), _at(cast(Array, beta)))
        elif self.chain.slope != 1:
            # Only the sign counts: the output has that of the input.
            slope = Slope(self.chain.slope, _at(self._ones), _at(self._zeros))
            raw.backward(self.tgz, self.tz, self.tg, _at(self._ones), _at(self._zeros), _at(self._zeros), slope)
        elif self.tg != self.tgz:
            packing.copy(self.tgz, self.tg)
        if self.wants_b:
            with memory.frame():
                parts = direct.bias_gradient(self.tg, memory)
                plan_norm.total(*parts, self.tg.c, _at(self._gbias))

    def _through_norm(self, norm: Norm, gamma: int, beta: int) -> None:
        if self.pool is not None:
            self._through_pool(norm, self.pool, gamma, beta)
            return
        memory, slope = scratch(), Slope(self.chain.slope, norm.scale, norm.shift, self.from_z)
        if self.reader is not None:
            norm.set_gradient(gamma, self.sums_slot.tensor.address)
        else:
            if self.from_z:
                norm.set_hat_from_output(gamma, beta)
            else:
                norm.set_hat_from_input()
            with memory.frame():
                sums = norm.cleared_sums(memory)
                raw.backward_sums(self.tgz, self.ty, norm.k1, norm.k0, sums, memory, slope)
                norm.set_gradient(gamma, sums)
        if not self.by_rows:
            raw.backward(self.tgz, self.ty, self.tg, norm.c1, norm.c2, norm.c3, slope)

    def as_ahead(self) -> Ahead:
        """What the reader needs on the way back to take the sums for `_through_norm`."""
        norm, sums = cast(Norm, self.norm), self.sums_slot.tensor.address
        norm.set_hat_from_input()
        plan_norm.clear(sums, 2 * SLOTS * norm.channels)
        return Ahead(self.as_front(), norm.k1, norm.k0, sums)

    def _through_pool(self, norm: Norm, pool: MaxPoolUnit, gamma: int, beta: int) -> None:
        """From the gradient of what was pooled. The winners, all that the sums need, are found again from the pooled
        values, a quarter of y.
        """
        memory, slope, line = scratch(), self.chain.slope, (norm.scale, norm.shift)
        gy = self.program.gradient(pool.output).slot.tensor
        with memory.frame():
            sums = norm.cleared_sums(memory)
            if self.from_pooled:
                norm.set_hat_from_output(gamma, beta)
                won = pool.y_slot.tensor
                raw.backward_sums(gy, won, norm.k1, norm.k0, sums, memory, Slope(slope, *line, from_z=True))
            norm.set_hat_from_input()
            if not self.from_pooled:
                plan_pool.backward_sums(gy, self.ty, *line, norm.k1, norm.k0, sums, memory, slope)
            norm.set_gradient(gamma, sums)
            if not self.by_rows:
                plan_pool.backward(gy, self.ty, self.tg, *line, norm.c1, norm.c2, norm.c3, slope)

    def _row_maker(self) -> direct.Make:
        """What writes rows of the gradient of y, once batch norm's numbers are there."""
        norm = cast(Norm, self.norm)
        numbers = norm.c1, norm.c2, norm.c3
        if self.pool is not None:
            gy, line = self.program.gradient(self.pool.output).slot.tensor, (norm.scale, norm.shift)
            return partial(plan_pool.backward_rows, gy, self.ty, *line, *numbers, self.chain.slope)
        slope = Slope(self.chain.slope, norm.scale, norm.shift, self.from_z)
        return partial(raw.backward_rows, self.tgz, self.ty, *numbers, slope)

    def _hand_over(self, gw: Array | None) -> None:
        """Gradients of parameters to the program."""
        program = self.program
        if self.norm is not None:
            self._give(self.gamma, self.norm.ggamma)
            self._give(self.beta, self.norm.gbeta)
        if self.wants_b and self.b is not None:
            self._give(self.b, self._gbias)
        if gw is not None:
            program.give(self.w, gw)

    def _give(self, number: int, gradient: Array) -> None:
        """A small gradient, subtracted from its sink, or copied into the array of every replay: what reads it then
        finds it where it was.
        """
        program = self.program
        if not program.wants(number):
            return
        sink = program.sink(number)
        if sink is not None:
            program.waiting.after(lambda: np.subtract(sink, gradient, out=sink))
        else:
            buffer = program.gradient_buffer(number)
            program.waiting.after(lambda: np.copyto(buffer, gradient))
            program.give(number, buffer)


def _floats(array: Array) -> Array:
    """For kernels, which take contiguous float32."""
    return np.ascontiguousarray(array, np.float32)


def _at(array: Array) -> int:
    return int(array.ctypes.data)

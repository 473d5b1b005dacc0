"""Units on images without weights: joining, adding, passing on, pooling, enlarging, activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from undertow.functions.pooling import AvgPool2d, MaxPool2d
from undertow.functions.resample import Upsample
from undertow.kernels.cpu.pooling import cells
from undertow.kernels.cpu.raw import batchnorm as raw
from undertow.kernels.cpu.raw import packing, pooling
from undertow.kernels.cpu.raw.batchnorm import Slope
from undertow.kernels.cpu.raw.pooling import Pool
from undertow.plans.arena import Slot
from undertow.plans.transfer import copy_in
from undertow.plans.unit import Unit

if TYPE_CHECKING:
    from undertow.plans.program import Program


class ImageUnit(Unit):
    """From images to one image; gradients of inputs are handed on by copies where they cannot share memory."""

    def __init__(self, program: Program, calls: tuple[int, ...]) -> None:
        super().__init__(program, calls)
        self.output = self.outputs[0]
        self.wanted = [program.wants(x) for x in self.inputs]

    def prepare(self) -> None:
        program = self.program
        self.trained = program.backwards(self) > 0
        self.x_slots = [program.read_slot(x) for x in self.inputs]
        self.y_slot = self._output_slot()
        if self.trained:
            program.gradient(self.output)
            for x, wanted in zip(self.inputs, self.wanted, strict=True):
                if wanted:
                    program.gradient(x)

    def _output_slot(self) -> Slot:
        return self.program.make_slot(self.output)

    def reads_back(self, number: int) -> bool:
        return False

    def bind(self) -> None:
        self.tx = [slot.tensor for slot in self.x_slots]
        self.ty = self.y_slot.tensor
        if self.trained:
            self.gy = self.program.gradient(self.output)
            self.gx = [self.program.gradient(x) if w else None for x, w in zip(self.inputs, self.wanted, strict=True)]
            self.tgy = self.gy.slot.tensor

    def forward(self) -> None:
        for x in self.inputs:
            self.program.ready(x)
        self.play("forward", (), self.compute)

    def compute(self) -> None:
        """The output from the inputs, which are in their slots; only calls kernels."""
        raise NotImplementedError(f"{type(self).__name__} has no compute")

    def backward(self, walk: int) -> None:
        if self.gy.written:
            adds = tuple([gx is not None and gx.claim() for gx in self.gx])
            self.play("backward", adds, lambda: self.compute_back(adds))

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        """The gradients of the inputs from that of the output; only calls kernels.

        adds: for each input, whether its gradient is added to what is there.
        """
        raise NotImplementedError(f"{type(self).__name__} has no compute_back")


class PassUnit(ImageUnit):
    """y = x: the same memory."""

    def _output_slot(self) -> Slot:
        return self.program.alias_slot(self.output, self.inputs[0])

    def prepare(self) -> None:
        super().prepare()
        self.shares = self.trained and self.program.share_gradient(self.inputs[0], self.output, self)

    def compute(self) -> None:
        """Nothing is to be done."""

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        gx = self.gx[0]
        if gx is not None and not self.shares:
            packing.copy(self.tgy, gx.slot.tensor, accumulate=adds[0])


class RowsUnit(ImageUnit):
    """Every image as one row of values, channel after channel."""

    def compute(self) -> None:
        x, y = self.tx[0], self.ty
        if y.stride == 4 * y.c:
            packing.to_nchw(x, y.address)
            return
        for i in range(x.n):  # the rows lie within longer ones
            packing.to_nchw(x.image(i), y.address + i * y.stride)

    def backward(self, walk: int) -> None:
        gx = self.gx[0]
        if not self.gy.written or gx is None:
            return
        adds = gx.claim()
        if self.gy.slot.is_dense and not adds:
            target = gx.slot.tensor
            self.play("backward", (), lambda: packing.to_nhwc(self.tgy.address, target))
        else:
            self.program.finish()
            rows = self.gy.slot.view(self.program.memory.memory)
            images = rows.reshape(self.program.shape(self.inputs[0]))
            copy_in(images, gx.slot, accumulate=adds)


class AddUnit(ImageUnit):
    """y = a + b for images of one shape."""

    def prepare(self) -> None:
        super().prepare()
        self.shares = [False, False]
        if self.trained:
            first = self.program.share_gradient(self.inputs[0], self.output, self)
            self.shares = [first, not first and self.program.share_gradient(self.inputs[1], self.output, self)]
        channels = self.program.values[self.output].shape[1]
        self._ones, self._zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)

    def compute(self) -> None:
        a, b = self.tx
        raw.affine(a, self.ty, self._ones.ctypes.data, self._zeros.ctypes.data, 1.0, b)

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        for gx, shares, add in zip(self.gx, self.shares, adds, strict=True):
            if gx is not None and not shares:
                packing.copy(self.tgy, gx.slot.tensor, accumulate=add)


class ConcatUnit(ImageUnit):
    """Channels one after the other: inputs are written into their place at once where nothing speaks against."""

    def prepare(self) -> None:
        super().prepare()
        program = self.program
        self.firsts: list[int] = []
        channel = 0
        for x in self.inputs:
            self.firsts.append(channel)
            channel += program.values[x].shape[1]
        self.placed = [
            program.place_value(x, self.output, first) for x, first in zip(self.inputs, self.firsts, strict=True)
        ]
        self.shares = [
            self.trained and program.share_gradient(x, self.output, self, first)
            for x, first in zip(self.inputs, self.firsts, strict=True)
        ]

    def compute(self) -> None:
        for x, first, placed in zip(self.tx, self.firsts, self.placed, strict=True):
            if not placed:
                packing.copy(x, self.ty.channels(first, x.c))

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        for gx, first, shares, add in zip(self.gx, self.firsts, self.shares, adds, strict=True):
            if gx is not None and not shares:
                target = gx.slot.tensor
                packing.copy(self.tgy.channels(first, target.c), target, accumulate=add)


class MaxPoolUnit(ImageUnit):
    """Max pooling; the winners are looked for again on the way back instead of being kept.

    fused: the unit before it does its work.
    """

    def __init__(self, program: Program, calls: tuple[int, ...]) -> None:
        super().__init__(program, calls)
        self.fused = False
        geometry = cast(MaxPool2d, self.functions[0]).geometry
        self.pool = Pool(*geometry.size, *geometry.stride, *geometry.pad)
        x, y = (program.shape(number) for number in (self.inputs[0], self.output))
        self.tiled = pooling.tiled((x[2], x[3]), (y[2], y[3]), self.pool)

    def prepare(self) -> None:
        super().prepare()
        needed = self.trained and not self.tiled
        self.indexes = self.program.add_slot(Slot(self.program.shape(self.output))) if needed else None

    def reads_back(self, number: int) -> bool:
        return True

    def working_slots(self, walk: int | None) -> tuple[Slot, ...]:
        return () if walk is None or self.indexes is None else (self.indexes,)

    def compute(self) -> None:
        if not self.fused:
            pooling.max_forward(self.tx[0], self.ty, 0, self.pool)

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        gx = self.gx[0]
        if gx is None or self.fused:
            return
        if self.indexes is None:
            pooling.max_backward_from(self.tgy, self.tx[0], gx.slot.tensor, accumulate=adds[0])
        else:
            indexes = self.indexes.tensor.address
            pooling.max_forward(self.tx[0], self.ty, indexes, self.pool)
            pooling.max_backward(self.tgy, indexes, gx.slot.tensor, self.pool, accumulate=adds[0])


class AveragePoolUnit(ImageUnit):
    """Average pooling."""

    def __init__(self, program: Program, calls: tuple[int, ...]) -> None:
        super().__init__(program, calls)
        geometry = cast(AvgPool2d, self.functions[0]).geometry
        self.pool = Pool(*geometry.size, *geometry.stride, *geometry.pad)
        self._cells = cells(program.shape(self.inputs[0]), geometry)

    def compute(self) -> None:
        cells_y, cells_x = self._cells
        pooling.average_forward(self.tx[0], self.ty, cells_y.ctypes.data, cells_x.ctypes.data, self.pool)

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        gx = self.gx[0]
        if gx is not None:
            target, (cells_y, cells_x) = gx.slot.tensor, self._cells
            pooling.average_backward(
                self.tgy, target, cells_y.ctypes.data, cells_x.ctypes.data, self.pool, accumulate=adds[0]
            )


class UpsampleUnit(ImageUnit):
    """Every pixel repeated."""

    def __init__(self, program: Program, calls: tuple[int, ...]) -> None:
        super().__init__(program, calls)
        function = cast(Upsample, self.functions[0])
        self.factor, self.scale = function.factor, function.scale

    def compute(self) -> None:
        pooling.replicate(self.tx[0], self.ty, self.factor, self.factor, self.scale)

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        gx = self.gx[0]
        if gx is not None:
            target = gx.slot.tensor
            pooling.block_sum(self.tgy, target, self.factor, self.factor, self.scale, accumulate=adds[0])


class LineUnit(ImageUnit):
    """y = x where positive, else slope x; in the input's memory where nobody needs the input again."""

    def __init__(self, program: Program, calls: tuple[int, ...], slope: float) -> None:
        super().__init__(program, calls)
        self.slope = slope
        channels = program.values[self.output].shape[1]
        self._ones, self._zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)

    def _output_slot(self) -> Slot:
        if self.program.may_overwrite(self.inputs[0], self):
            return self.program.alias_slot(self.output, self.inputs[0])
        return self.program.make_slot(self.output)

    def prepare(self) -> None:
        super().prepare()
        self.shares = self.trained and self.program.share_gradient(self.inputs[0], self.output, self)

    def reads_back(self, number: int) -> bool:
        return number == self.output

    def compute(self) -> None:
        raw.affine(self.tx[0], self.ty, self._ones.ctypes.data, self._zeros.ctypes.data, self.slope)

    def compute_back(self, adds: tuple[bool, ...]) -> None:
        gx = self.gx[0]
        if gx is None:
            return
        one, zero = self._ones.ctypes.data, self._zeros.ctypes.data
        slope = Slope(self.slope, one, zero)
        raw.backward(self.tgy, self.ty, self.tgy if adds[0] else gx.slot.tensor, one, zero, zero, slope)
        if adds[0]:
            packing.copy(self.tgy, gx.slot.tensor, accumulate=True)

"""A yolo head's outputs, truths and gradient in a few passes: what `YoloLoss` of Darknet's layers does in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from undertow.kernels.cpu import memory
from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import SLOTS, ceil_div
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, scratch
from undertow.kernels.cpu.threads import begin, team

Array = np.ndarray

_yolo = Kernels("yolo")
_UNIT = 32  # pixels; a thread gets whole units
_FOUND = 11  # numbers that `assign` finds, in the order of `YoloNumbers`, and whether it refused


def _empty(shape: tuple[int, ...], kind: type = np.float32) -> Array:
    return memory.empty(shape) if kind is np.float32 else np.empty(shape, kind)


class YoloNumbers(NamedTuple):
    """Sums over a pass; cells: how many are asked for more than objectness."""

    loss: float
    cost: float
    iou: float
    class_score: float
    objectness: float
    no_objectness: float
    recall50: float
    recall75: float
    answers: float
    cells: float


class YoloFound(NamedTuple):
    """What a pass asks of the outputs y, (batch, n * values, h, w) as NHWC.

    weight, target: of the objectness, (batch, n, h, w). cells: int64 (4, room): image, anchor, row, column of the
    `numbers.cells` first ones; cell_target, cell_weight: (room, values).
    """

    y: Array
    weight: Array
    target: Array
    cells: Array
    cell_target: Array
    cell_weight: Array
    numbers: YoloNumbers


class YoloHead:
    """The settings of a head, as the kernels read them.

    anchors: (num, 2) in pixels of the network's input of net_size (width, height); mask: this head's. class_map:
    class of each class of the truths. reset: see `YoloRule.reset_by_zero_delta`.
    """

    def __init__(
        self,
        anchors: Array,
        mask: Sequence[int],
        classes: int,
        net_size: tuple[int, int],
        thresholds: tuple[float, float],
        class_map: Array | None,
        reset: bool,
    ) -> None:
        """thresholds: `ignore_threshold` and `truth_threshold`."""
        self.n, self.values, self.net_size, self.reset = len(mask), 5 + classes, net_size, reset
        self._anchors = np.ascontiguousarray(anchors[list(mask)], np.float32)
        self._sizes = np.ascontiguousarray(anchors / np.array(net_size), np.float32)
        self._ours = np.full(len(anchors), -1, np.int64)
        self._ours[list(mask[::-1])] = np.arange(len(mask))[::-1]
        self._thresholds = np.array(thresholds)
        self._map = np.empty(0, np.int64) if class_map is None else np.ascontiguousarray(class_map, np.int64)

    def forward(self, x: Array, truth: Array, most: int) -> YoloFound | None:
        """Outputs, what is asked of them and the loss; None where the NumPy version has to look at it.

        x: float32 (batch, n * values, h, w). truth: float32 (batch, 5 * most or more).
        """
        begin()
        x, truth = memory.as_nhwc(x), np.ascontiguousarray(truth)
        source = memory.view(x)
        boxes, room = (source.n, self.n, source.h, source.w), source.n * most
        y = memory.empty_nhwc(*x.shape)
        asked, cells = _empty((2, *boxes)), _empty((4, room), np.int64)
        rows, found = _empty((2, room, self.values)), _empty((_FOUND,), np.float64)
        with scratch().frame() as taken:
            parts = min(SLOTS, source.pixels)
            sums = taken.take(32 * parts)
            self._activate(source, y, asked, sums, parts, taken)
            width, height = self.net_size
            _yolo.assign(
                source.address, source.stride, y.ctypes.data, source.n, source.h, source.w, self.n, self.values,
                height, width, self._anchors.ctypes.data, self._sizes.ctypes.data, len(self._sizes),
                self._ours.ctypes.data, self._map.ctypes.data if len(self._map) else 0, len(self._map),
                self._thresholds.ctypes.data, self.reset, truth.ctypes.data, truth.strides[0], most, sums, parts,
                asked.ctypes.data, asked[1].ctypes.data, cells.ctypes.data, rows.ctypes.data, rows[1].ctypes.data,
                found.ctypes.data,
            )  # fmt: skip
        *numbers, refused = found.tolist()
        return None if refused else YoloFound(y, asked[0], asked[1], cells, rows[0], rows[1], YoloNumbers(*numbers))

    def _activate(self, x: Tensor, y: Array, asked: Array, sums: int, parts: int, taken: Scratch) -> None:
        tmp, step = taken.take_each(64, team().size)
        weight, target, area = asked[0].ctypes.data, asked[1].ctypes.data, x.h * x.w

        def task(thread: int, low: int, high: int) -> None:
            for s in range(low, high):
                _yolo.activate(
                    x.address, x.stride, y.ctypes.data, self.n, self.values, area, weight, target, sums + 32 * s,
                    tmp + step * thread, x.pixels * s // parts, x.pixels * (s + 1) // parts,
                )  # fmt: skip

        team().run(parts, task)

    def backward(self, found: YoloFound, factor: float, place: Array | None = None) -> Array:
        """factor times Darknet's delta, in the shape of y; in `place`, if there is one, which lies as NHWC."""
        begin()
        gx = memory.empty_nhwc(*found.y.shape) if place is None else place
        target = memory.view(gx)

        def task(thread: int, low: int, high: int) -> None:
            _yolo.spread(
                found.y.ctypes.data, self.n, self.values, target.h, target.w, found.weight.ctypes.data,
                found.target.ctypes.data, found.cells.ctypes.data, found.cells.shape[1], int(found.numbers.cells),
                found.cell_target.ctypes.data, found.cell_weight.ctypes.data, target.address, target.stride, factor,
                low * _UNIT, min(target.pixels, high * _UNIT),
            )  # fmt: skip

        team().run(ceil_div(target.pixels, _UNIT), task)
        return gx

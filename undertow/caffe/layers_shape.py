"""Layers that move values without changing them: joining, cutting, reshaping, picking, repeating."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import undertow.functions as F
from undertow.caffe.blob import Blob, Shape
from undertow.caffe.indexes import whole_numbers
from undertow.caffe.layer import IndexBottom, Layer, Results, Shapes
from undertow.caffe.proto.message import Message
from undertow.core.variable import Variable

Variables = Sequence[Variable]


class Sharing(Layer):
    """A layer whose tops hold the bottom's values in other shapes, and share its memory.

    Where a later layer works in place on one of the shares, the dialect says whether the others see it.
    """

    @property
    def shares(self) -> bool:
        """Whether top and bottom are one memory."""
        return self.dialect.share_memory or not self.overwritten

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        for blob in top:
            if self.shares:
                blob.share_data(bottom[0])
            elif blob.shares_data(bottom[0]):
                # While the net was being built nobody knew yet of the layer in place.
                blob.own_data()
        if len(top) == 1 and self.shares:
            top[0].share_diff(bottom[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self.reshape(bottom, top)
        if not self.shares:
            for blob in top:
                blob.data[...] = bottom[0].data.reshape(blob.shape)
        return self.loss_of(top)

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        if not self._needs(1)[0]:
            return
        diff = bottom[0].diff
        if len(top) == 1:
            if not self.shares:
                diff[...] = top[0].diff.reshape(diff.shape)
            return
        np.add(top[0].diff.reshape(diff.shape), top[1].diff.reshape(diff.shape), out=diff)
        for blob in top[2:]:
            diff += blob.diff.reshape(diff.shape)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        shapes = self.top_shapes([bottom[0].shape])
        return [bottom[0] if bottom[0].shape == shape else bottom[0].reshape(tuple(shape)) for shape in shapes]


class Split(Sharing):
    """The same values for several readers; their gradients add up."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return [bottom[0]] * len(self.message.top)


class Flatten(Sharing):
    """The axes from `axis` to `end_axis` made one."""

    in_place = False

    def top_shapes(self, bottom: Shapes) -> Shapes:
        o, shape = self.message.flatten_param, tuple(bottom[0])
        start = self.axis(o.axis, len(shape), "flatten_param")
        end = self.axis(o.end_axis, len(shape), "flatten_param")
        if end < start:
            raise self.error(
                f"end_axis {o.end_axis} lies before axis {o.axis}",
                field="flatten_param",
                remedy=f"write end_axis: -1, or an axis from {o.axis} on",
            )
        return [(*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])]


class Reshape(Sharing):
    """Another shape for the same values: 0 keeps an axis, -1 is what is left."""

    in_place = False

    def setup(self, bottom: Shapes, tops: int) -> None:
        if sum(length == -1 for length in self.message.reshape_param.shape.dim) > 1:
            raise self.refusal(
                "at most one dim can be -1, the one that is worked out", "give all others a number", "reshape_param"
            )

    def top_shapes(self, bottom: Shapes) -> Shapes:
        o, shape = self.message.reshape_param, tuple(bottom[0])
        start, end = self._range(o, shape)
        lengths = list(o.shape.dim)
        for i, length in enumerate(lengths):
            if length == 0:
                if start + i >= len(shape):
                    raise self.error(
                        f"dim {i} is 0, but the bottom {shape} has no axis {start + i} to keep",
                        remedy="write a length, or -1 for what is left",
                    )
                lengths[i] = shape[start + i]
        if -1 in lengths:
            known = math.prod(n for n in lengths if n != -1) * math.prod(shape[:start]) * math.prod(shape[end:])
            if known <= 0 or math.prod(shape) % known:
                raise self.error(
                    f"the {math.prod(shape)} values of the bottom {shape} cannot be divided into {known} equal parts",
                    remedy="use dims whose product divides the number of values",
                    field="reshape_param",
                )
            lengths[lengths.index(-1)] = math.prod(shape) // known
        result = (*shape[:start], *lengths, *shape[end:])
        if math.prod(result) != math.prod(shape) or any(length < 0 for length in result):
            raise self.error(
                f"the shape {result} holds {math.prod(result)} values, the bottom {shape} {math.prod(shape)}",
                remedy="set one dim to -1 to have it worked out",
                field="reshape_param",
            )
        return [result]

    def _range(self, o: Message, shape: Shape) -> tuple[int, int]:
        start = o.axis if o.axis >= 0 else len(shape) + o.axis + 1
        end = len(shape) if o.num_axes == -1 else start + o.num_axes
        if o.num_axes < -1 or not 0 <= start <= end <= len(shape):
            raise self.error(
                f"axis: {o.axis} with num_axes: {o.num_axes} does not lie inside a bottom of shape {shape}",
                field="reshape_param",
                remedy="write axis: 0 num_axes: -1 to reshape all of it",
            )
        return start, end


def axis_option(layer: Layer, options: Message, old: str, ndim: int, field: str) -> int:
    """`axis`, or its old name, which counts from the front only."""
    if options.has_field(old):
        if options.has_field("axis"):
            raise layer.refusal(f"either axis or {old} can be given, not both", f"remove {old}", field)
        return layer.axis(getattr(options, old), ndim, field)
    return layer.axis(options.axis, ndim, field)


class Concat(Layer):
    """The bottoms one after the other along an axis."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        axis = axis_option(self, self.message.concat_param, "concat_dim", len(bottom[0]), "concat_param")
        for i, shape in enumerate(bottom):
            others = [n for j, n in enumerate(shape) if j != axis]
            if len(shape) != len(bottom[0]) or others != [n for j, n in enumerate(bottom[0]) if j != axis]:
                raise self.error(
                    f"bottom {i} of shape {shape} does not fit bottom 0 of shape {bottom[0]}: "
                    f"only axis {axis} may differ",
                    remedy="bring the bottoms to one size, or choose another axis",
                )
        return [(*bottom[0][:axis], sum(shape[axis] for shape in bottom), *bottom[0][axis + 1 :])]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        options = self.message.concat_param
        return F.concat(bottom, axis_option(self, options, "concat_dim", bottom[0].ndim, "concat_param"))


class Slice(Layer):
    """The bottom cut along an axis, at slice_points or into equal parts."""

    def _cuts(self, shape: Shape) -> tuple[int, list[int]]:
        o = self.message.slice_param
        axis = axis_option(self, o, "slice_dim", len(shape), "slice_param")
        length, tops, points = shape[axis], len(self.message.top), list(o.slice_point)
        if not points:
            if length % tops:
                raise self.error(
                    f"{tops} tops do not divide axis {axis} of length {length} evenly",
                    remedy=f"give {tops - 1} slice_points",
                )
            points = [length // tops * i for i in range(1, tops)]
        elif len(points) != tops - 1:
            raise self.error(
                f"{tops} tops need {tops - 1} slice_points, got {len(points)}",
                field="slice_param",
                remedy=f"give {tops - 1}, or none for equal parts",
            )
        if any(b <= a for a, b in zip([0, *points], [*points, length], strict=True)):
            raise self.error(
                f"slice_points {points} must rise, inside axis {axis} of length {length}",
                field="slice_param",
                remedy=f"write rising numbers from 1 to {length - 1}",
            )
        return axis, points

    def top_shapes(self, bottom: Shapes) -> Shapes:
        shape = tuple(bottom[0])
        axis, points = self._cuts(shape)
        ends = zip([0, *points], [*points, shape[axis]], strict=True)
        return [(*shape[:axis], b - a, *shape[axis + 1 :]) for a, b in ends]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        axis, points = self._cuts(bottom[0].shape)
        return F.split(bottom[0], points, axis) if points else F.Reshape(bottom[0].shape)(bottom[0])


class Silence(Layer):
    """Takes blobs that nobody else reads; their gradient is 0."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return []

    def compute(self, bottom: Variables, params: Variables) -> Results:
        return ()


class Tile(Layer):
    """The bottom repeated along an axis."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.tile_param
        if not o.has_field("tiles") or o.tiles < 1:
            raise self.refusal("the number of tiles must be given, 1 or more", "write tile_param { tiles: 2 }")

    def top_shapes(self, bottom: Shapes) -> Shapes:
        o, shape = self.message.tile_param, tuple(bottom[0])
        axis = self.axis(o.axis, len(shape), "tile_param")
        return [(*shape[:axis], shape[axis] * o.tiles, *shape[axis + 1 :])]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        o = self.message.tile_param
        return F.concat([bottom[0]] * o.tiles, self.axis(o.axis, bottom[0].ndim))


class Crop(Layer):
    """The part of bottom 0 that has the size of bottom 1 in the axes from `axis` on, beginning at `offset`.

    Bottom 1 gives only its size: its gradient is 0.
    """

    def _starts(self, shape: Shape, size: Shape) -> tuple[int, list[int]]:
        o = self.message.crop_param
        axis = self.axis(o.axis, len(shape), "crop_param")
        count = len(shape) - axis
        offsets = list(o.offset)
        if len(offsets) not in (0, 1, count):
            raise self.error(
                f"offset is given once, or for each of the {count} axes from {axis} on",
                field="crop_param",
                remedy=f"give one offset, or {count}",
            )
        starts = offsets * count if len(offsets) == 1 else offsets or [0] * count
        if len(size) != len(shape):
            raise self.error(
                f"bottom 1 of shape {size} must have as many axes as bottom 0 of shape {shape}",
                remedy="put a Reshape before it",
            )
        for i, start in enumerate(starts, axis):
            if start + size[i] > shape[i]:
                raise self.error(
                    f"on axis {i} the crop of length {size[i]} at offset {start} reaches past bottom 0, which has "
                    f"length {shape[i]}",
                    remedy="use a smaller offset, or a larger bottom 0",
                )
        return axis, starts

    def top_shapes(self, bottom: Shapes) -> Shapes:
        axis, _ = self._starts(bottom[0], bottom[1])
        return [(*bottom[0][:axis], *bottom[1][axis:])]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        axis, starts = self._starts(bottom[0].shape, bottom[1].shape)
        ends = (start + n for start, n in zip(starts, bottom[1].shape[axis:], strict=True))
        cut = tuple(slice(a, b) for a, b in zip(starts, ends, strict=True))
        return bottom[0][(slice(None),) * axis + cut]


class BatchReindex(IndexBottom):
    """Items of bottom 0, along axis 0, in the order that bottom 1 lists."""

    forced = True

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if len(bottom[1]) != 1:
            raise self.error(
                f"bottom 1, the indexes, must have one axis, it has shape {bottom[1]}", remedy="put a Reshape before it"
            )
        return [(bottom[1][0], *bottom[0][1:])]

    def compute(self, bottom: Variables, params: Variables) -> Results:
        indexes, count = whole_numbers(self, bottom[1].data, "an index"), bottom[0].shape[0]
        if indexes.size and not (indexes.min() >= 0 and indexes.max() < count):
            raise self.error(
                f"the indexes lie from {indexes.min()} to {indexes.max()}, the batch has {count} items",
                remedy=f"give indexes from 0 to {count - 1}",
            )
        return bottom[0][indexes]


class Filter(IndexBottom):
    """Of every bottom but the last, the items (along axis 0) where the last bottom is not 0.

    Until the first forward pass the tops have the size of the bottoms, for the values are not known yet.
    """

    forced = True

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._chosen: np.ndarray | None = None

    def is_index(self, index: int) -> bool:
        return index == len(self.message.bottom) - 1

    def top_shapes(self, bottom: Shapes) -> Shapes:
        selector = bottom[-1]
        self.axis(0, len(selector))
        if len(self.message.top) != len(bottom) - 1:
            raise self.error(
                f"{len(bottom)} bottoms, the last of them the selector, need {len(bottom) - 1} tops",
                remedy=f"name {len(bottom) - 1} tops",
            )
        if any(length != 1 for length in selector[1:]):
            raise self.error(
                f"the selector, the last bottom, must have length 1 but on axis 0, it has shape {selector}",
                remedy=f"reshape it to ({selector[0]},)",
            )
        for i, shape in enumerate(bottom[:-1]):
            if not shape or shape[0] != selector[0]:
                raise self.error(
                    f"bottom {i} of shape {shape} and the selector {selector} differ in axis 0",
                    remedy="give one number of the selector for each item",
                )
        count = selector[0] if self._chosen is None else len(self._chosen)
        return [(count, *shape[1:]) for shape in bottom[:-1]]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self._chosen = np.flatnonzero(bottom[-1].data.reshape(-1))
        self._bottom_shapes = None
        return super().forward(bottom, top)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        chosen = np.flatnonzero(bottom[-1].data.reshape(-1))
        return [x[chosen] for x in bottom[:-1]]

"""Layers that bring values into a net: Input, DummyData, MemoryData."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.caffe.blob import Blob, Shape
from undertow.caffe.fillers import fill
from undertow.caffe.layer import Layer, Results, Shapes
from undertow.caffe.proto.message import Message, new_message
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]


class Source(Layer):
    """A layer without bottoms, whose tops keep their values until somebody changes them."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        """Nothing is computed."""
        return self.loss_of(top)

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        """Nothing lies below."""

    def compute(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> Results:
        raise self.refusal(f"a {self.type} layer computes nothing: its tops are given", remedy="remove its bottoms")


class Input(Source):
    """Blobs that the user fills: `net.blobs["data"].data[...] = images`."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        if len(self.message.input_param.shape) not in (0, 1, tops):
            raise self.refusal(
                f"shape is given once, or once for each of the {tops} tops",
                "write one for all tops, or one for each",
                "input_param",
            )

    def top_shapes(self, bottom: Shapes) -> Shapes:
        shapes = [tuple(shape.dim) for shape in self.message.input_param.shape] or [()]
        count = len(self.message.top)
        return shapes if len(shapes) == count else shapes * count

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The shape of the prototxt at first; afterwards the user's."""
        if self._bottom_shapes is None:
            super().reshape(bottom, top)


class DummyData(Source):
    """Blobs from fillers: constant ones are filled once, others anew in every forward pass."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.dummy_data_param
        if len(o.data_filler) not in (0, 1, tops):
            raise self.refusal(
                f"data_filler is given 0, 1 or {tops} times, not {len(o.data_filler)}",
                remedy="write one for all tops, or one for each",
            )
        old = [getattr(o, name) for name in ("num", "channels", "height", "width")]
        if any(old):
            if o.shape:
                raise self.refusal(
                    "either shape or num, channels, height and width can be given, not both", remedy="keep shape"
                )
            if any(len(lengths) not in (1, tops) for lengths in old):
                raise self.refusal(
                    f"num, channels, height and width are given once, or once for each of {tops} tops",
                    remedy="write one shape { dim: ... } for each top",
                )
            self._shapes: list[Shape] = [tuple(n[0 if len(n) == 1 else i] for n in old) for i in range(tops)]
        else:
            if len(o.shape) not in (1, tops):
                raise self.refusal(
                    f"shape is given once, or once for each of the {tops} tops",
                    "write one for all tops, or one for each",
                    "dummy_data_param",
                )
            self._shapes = [tuple(o.shape[0 if len(o.shape) == 1 else i].dim) for i in range(tops)]
        fillers = list(o.data_filler) or [new_message("FillerParameter")]
        self._data_fillers: list[Message] = fillers * tops if len(fillers) == 1 else fillers

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return self._shapes

    def start(self, top: Sequence[Blob]) -> None:
        """Fill the constant tops."""
        super().start(top)
        self._fill(top, constant=True)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self.reshape(bottom, top)
        self._fill(top, constant=False)
        return self.loss_of(top)

    def _fill(self, top: Sequence[Blob], constant: bool) -> None:
        for blob, filler in zip(top, self._data_fillers, strict=True):
            if (filler.type == "constant") == constant:
                blob.data[...] = fill(filler, blob.shape, self.rng)


class MemoryData(Source):
    """Batches from arrays given by `set_input_arrays`, in order and round again."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.memory_data_param
        self.shape = (o.batch_size, o.channels, o.height, o.width)
        if min(self.shape) < 1:
            raise self.refusal(
                f"batch_size, channels, height and width must be given and at least 1, got {self.shape}",
                field="memory_data_param",
                remedy="write all four",
            )
        self._arrays: tuple[Array, Array] | None = None
        self._position = 0

    def set_input_arrays(self, data: Array, labels: Array) -> None:
        """Take batches from these arrays; they are looked at, not copied.

        data: (n, channels, height, width). labels: n values. n must be a multiple of the batch size.
        """
        batch = self.shape[0]
        if data.ndim != 4 or data.shape[1:] != self.shape[1:] or len(data) != labels.size:
            raise self.error(f"data of shape (n, {self.shape[1]}, {self.shape[2]}, {self.shape[3]}) and n labels are "
                             f"needed, got {data.shape} and {labels.shape}",
                             remedy="reshape them, or change memory_data_param")  # fmt: skip
        if not len(data) or len(data) % batch:
            raise self.error(
                f"{len(data)} items are not a multiple of the batch size {batch}",
                remedy="leave some out, or repeat some",
            )
        self._arrays, self._position = (data, labels.reshape(-1)), 0

    def set_batch_size(self, batch: int) -> None:
        """From the next forward pass on, batches of this size."""
        if batch < 1:
            raise self.error(f"a batch size is at least 1, got {batch}", remedy="give a whole number from 1 on")
        self.shape = (batch, *self.shape[1:])

    def top_shapes(self, bottom: Shapes) -> Shapes:
        return [self.shape, (self.shape[0],)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        if self._arrays is None:
            raise self.refusal(
                "a MemoryData layer has no data yet", "call set_input_arrays(data, labels) before forward"
            )
        batch, (data, labels) = self.shape[0], self._arrays
        # As in the original, labels have four axes once there is data.
        self.shape_tops(bottom, top, [self.shape, (batch, 1, 1, 1)])
        chosen = slice(self._position, self._position + batch)
        top[0].data[...] = data[chosen]
        top[1].data[...] = labels[chosen].reshape(-1, 1, 1, 1)
        self._position = (self._position + batch) % len(data)
        return self.loss_of(top)

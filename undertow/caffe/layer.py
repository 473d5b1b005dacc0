"""What all layers have in common: options, parameters, and running forward and backward on blobs.

A layer is written as one differentiable computation, `compute`, over Variables. From it `forward` and `backward` are
made: forward runs it on Variables that look at the memory of the bottom blobs and copies the results into the top
blobs; backward walks the recorded graph from the diffs of the tops, overwrites the diffs of the bottoms and adds to
those of the parameters. The results' Variables then look at the tops' memory, so a backward pass computes with what
stands in the blobs, also where a user or a layer in place has written over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.caffe.blob import Blob, Shape, weighted_sum
from undertow.caffe.dialect import Dialect
from undertow.caffe.fillers import fill
from undertow.caffe.proto.message import Message, new_message
from undertow.core.modes import enable_grad, no_grad
from undertow.core.variable import Variable
from undertow.errors import FormatError, ShapeError, UndertowError

Array = np.ndarray[Any, Any]
Shapes = Sequence[Shape]
Result = Variable | Array
Results = Result | Sequence[Result]
PythonLoader = Callable[[str, str], Any]


@dataclass(frozen=True)
class Context:
    """What a layer knows about its net.

    phase: "TRAIN" or "TEST". dtype: of all blobs. rng: for fillers, dropout and random data. file: the prototxt.
    python: from (module, class) to the class of a Python layer; None where they are not allowed.
    """

    phase: str
    dialect: Dialect
    dtype: np.dtype[Any]
    rng: np.random.Generator
    file: str | os.PathLike[str] | None = None
    python: PythonLoader | None = None


class Layer:
    """One layer of a net; subclasses write `setup`, `top_shapes` and `compute`.

    message: its LayerParameter. blobs: its parameters. loss_weights: one per top.
    bottom_need_backward, param_propagate_down, need_backward: what a backward pass computes; set by the net.
    forgotten: its last pass was a plan's; before its backward it has to run again.
    state: what it carries over from pass to pass, None for most; replaced, never changed.
    keeps_bottom: the original keeps a copy of a bottom that it overwrites in place.
    """

    loss = False
    keeps_bottom = False
    in_place = True
    auto_tops = False

    def __init__(self, message: Message, context: Context) -> None:
        self.message, self.context = message, context
        self.name, self.type = str(message.name), str(message.type)
        self.phase = str(message.phase if message.has_field("phase") else context.phase)
        self.dialect, self.rng = context.dialect, context.rng
        self.blobs: list[Blob] = []
        self.fillers: list[Message] = []
        self.param_propagate_down: list[bool] = []
        self.bottom_need_backward: list[bool] = []
        self.need_backward = True
        self.loss_weights: list[float] = []
        self.overwritten: set[int] = set()
        self._bottom_shapes: list[Shape] | None = None
        self._xs: list[Variable] = []
        self._ws: list[Variable] = []
        self._ys: list[Result] | None = None
        self.forgotten = False
        self.state: Any = None

    # --- what subclasses write --------------------------------------------------------------------------

    def setup(self, bottom: Shapes, tops: int) -> None:
        """Check the options and declare the parameters; `bottom` are shapes, no values are needed."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        """The shapes of the tops for these bottoms. Raises ShapeError where they do not fit."""
        return [bottom[0]]

    def compute(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> Results:
        """The tops from the bottoms and parameters, over Variables."""
        raise NotImplementedError(f"{self.type} has no compute")

    def allow_force_backward(self, index: int) -> bool:
        """Whether `force_backward` asks for the gradient of this bottom."""
        return True

    def check_backward(self) -> None:
        """Refuse gradients that the layer does not have, given what the net asks for."""

    # --- parameters and errors --------------------------------------------------------------------------

    def add_parameter(self, shape: Shape, filler: Message | None = None) -> None:
        """Declare a parameter; `fill_parameters` gives it its first values."""
        self.blobs.append(Blob(shape, self.context.dtype))
        self.fillers.append(filler if filler is not None else new_message("FillerParameter"))
        self.param_propagate_down.append(True)

    def fill_parameters(self) -> None:
        """Give every parameter its first values, as its filler says."""
        for blob, filler in zip(self.blobs, self.fillers, strict=True):
            try:
                blob.data[...] = fill(filler, blob.shape, self.rng)
            except UndertowError as error:
                raise self.placed(error) from error

    def start(self, top: Sequence[Blob]) -> None:
        """First values of the parameters, and the loss weights in the diffs of the tops."""
        self.fill_parameters()
        for blob, weight in zip(top, self.loss_weights, strict=False):
            if weight:
                blob.diff[...] = weight

    def error(self, reason: str, remedy: str | None = None, field: str | None = None) -> ShapeError:
        """An error about this layer, with file, line and name."""
        line = (self.message.line_of(field) if field else None) or self.message.line_of()
        return ShapeError(reason, file=self.context.file, line=line, layer=self._label, remedy=remedy)

    def refusal(self, reason: str, remedy: str | None = None, field: str | None = None) -> FormatError:
        """The same for options that are wrong whatever the shapes."""
        line = (self.message.line_of(field) if field else None) or self.message.line_of()
        return FormatError(reason, file=self.context.file, line=line, layer=self._label, remedy=remedy)

    def placed(self, error: UndertowError) -> UndertowError:
        """An error from below, told with this layer's place."""
        if error.layer is not None:
            return error
        line = error.line or self.message.line_of()
        return type(error)(error.reason, file=self.context.file, line=line, layer=self._label, remedy=error.remedy)

    @property
    def _label(self) -> str:
        return f"'{self.name}' ({self.type})"

    def axis(self, axis: int, ndim: int, field: str | None = None) -> int:
        """An axis counted from 0; negative ones count from the end. Raises ShapeError beyond the blob's axes."""
        if not -ndim <= axis < ndim:
            raise self.error(
                f"axis {axis} is out of range for a blob with {ndim} axes",
                remedy=f"use an axis from {-ndim} to {ndim - 1}" if ndim else "give it a blob with axes",
                field=field,
            )
        return axis % ndim

    # --- running ----------------------------------------------------------------------------------------

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops the shapes that belong to the bottoms' shapes."""
        shapes = [blob.shape for blob in bottom]
        if shapes != self._bottom_shapes:
            self._bottom_shapes = shapes
            self._ys = None
            try:
                found = self.top_shapes(shapes)
            except UndertowError as error:
                raise self.placed(error) from error
            self.shape_tops(bottom, top, found)

    def shape_tops(self, bottom: Sequence[Blob], top: Sequence[Blob], shapes: Shapes) -> None:
        """Reshape the tops; a top that carries a loss weight holds it in its diff."""
        for index, (blob, shape) in enumerate(zip(top, shapes, strict=True)):
            if any(blob is other for other in bottom) and blob.shape != tuple(shape):
                raise self.error(
                    f"cannot work in place: the result has shape {tuple(shape)}, the bottom {blob.shape}",
                    remedy="give the top a name of its own",
                    field="top",
                )
            changed = blob.shape != tuple(shape)
            blob.reshape(*shape)
            if changed and index < len(self.loss_weights) and self.loss_weights[index]:
                blob.diff[...] = self.loss_weights[index]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        """Compute the tops from the bottoms; returns the weighted loss of the tops."""
        self.reshape(bottom, top)
        ys = self._run(bottom, top)
        for index, (y, blob) in enumerate(zip(ys, top, strict=True)):
            self._store(y, blob, index)
        return self.loss_of(top)

    def forget_pass(self) -> None:
        """The tops came from elsewhere: let go of what a backward pass would need."""
        self._xs, self._ws, self._ys = [], [], None

    def loss_of(self, top: Sequence[Blob]) -> float:
        """The sum of loss weight times value over the tops."""
        weighted = [blob for blob, weight in zip(top, self.loss_weights, strict=False) if weight]
        return sum(weighted_sum(blob.data, blob.diff) for blob in weighted)

    def _run(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> list[Result]:
        wanted = self.need_backward
        self._xs = [
            Variable(self._seen(blob, top), None, wanted and need)
            for blob, need in zip(bottom, self._needs(len(bottom)), strict=True)
        ]
        self._ws = [
            Variable(blob.data, None, wanted and need)
            for blob, need in zip(self.blobs, self.param_propagate_down, strict=True)
        ]
        with enable_grad() if wanted else no_grad():
            found = self.computed(self._xs, self._ws)
        self._ys = found if wanted else None
        return found

    def computed(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> list[Result]:
        """What `compute` gives; errors are told with this layer's place."""
        try:
            return as_list(self.compute(bottom, params))
        except UndertowError as error:
            raise self.placed(error) from error
        except MemoryError as error:
            raise self.no_room() from error

    def no_room(self) -> ShapeError:
        """The error for a layer that needs more memory than there is."""
        return self.error("there is not enough memory for this layer", "use a smaller batch or image")

    def _needs(self, count: int) -> list[bool]:
        return self.bottom_need_backward if len(self.bottom_need_backward) == count else [True] * count

    def _seen(self, blob: Blob, top: Sequence[Blob]) -> Array:
        """What the computation looks at: the blob's memory, or a copy of what will be written over."""
        if not any(blob is other for other in top):
            return blob.data
        keep = self.keeps_bottom or not self.dialect.in_place_reads_result
        return blob.data.copy() if keep and self.need_backward else blob.data

    def _store(self, y: Result, blob: Blob, index: int) -> None:
        if not isinstance(y, Variable):
            np.copyto(blob.data, y.reshape(blob.shape), casting="same_kind")
            return
        np.copyto(blob.data, y.data.reshape(blob.shape), casting="same_kind")
        kept = index in self.overwritten and not self.dialect.in_place_reads_result
        if y.creator is not None and not kept and y.dtype == blob.dtype:
            y.data = blob.data.reshape(y.shape)

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        """From the tops' diffs: overwrite those of the bottoms, add to those of the parameters."""
        self.check_backward()
        if self._ys is None:
            self._run(bottom, top)
        for y, blob in zip(self._ys or (), top, strict=True):
            if isinstance(y, Variable) and y.creator is not None:
                y.grad = blob.diff.reshape(y.shape)
                y.backward()
                y.clear_grad()
        for x, blob, need in zip(self._xs, bottom, self._needs(len(bottom)), strict=True):
            if need:
                blob.diff[...] = 0 if x.grad is None else x.grad.reshape(blob.shape)
                x.clear_grad()
        for w, blob, need in zip(self._ws, self.blobs, self.param_propagate_down, strict=True):
            if need and w.grad is not None:
                diff = blob.diff
                diff += w.grad.reshape(blob.shape)
                w.clear_grad()

    def to_message(self, diff: bool = False) -> Message:
        """The LayerParameter with the parameters' values in it (and their gradients, with diff)."""
        from undertow.caffe.proto.blobs import blob_from_array

        message = self.message.copy()
        message.clear_field("blobs")
        # What the original writes down while it builds a net.
        message.phase = self.phase
        if self.loss and not message.loss_weight:
            message.loss_weight = [1.0]
        for blob in self.blobs:
            message.blobs.append(blob_from_array(blob.data.copy(), blob.diff.copy() if diff else None))
        return message

    def __repr__(self) -> str:
        return f"<{self.type} layer {self.name!r}>"


class NoGradient(Layer):
    """A layer whose original has no backward pass; asking for one is an error there too."""

    def check_backward(self) -> None:
        if any(self.bottom_need_backward):
            raise self.refusal(
                f"{self.type} has no backward pass, and the gradient of bottom {self.bottom_need_backward.index(True)} "
                "is asked for",
                remedy="take force_backward out of the net, or keep this layer out of this phase (include, exclude)",
                field="propagate_down",
            )


class IndexBottom(Layer):
    """A layer with bottoms that hold labels or indexes, which have no gradient.

    index_bottoms: which. forced: whether `force_backward` asks for their gradient all the same, as the original does.
    """

    index_bottoms: tuple[int, ...] = (1,)
    forced = False

    def is_index(self, index: int) -> bool:
        """Whether this bottom has no gradient."""
        return index in self.index_bottoms

    def allow_force_backward(self, index: int) -> bool:
        return self.forced or not self.is_index(index)

    def check_backward(self) -> None:
        for index, need in enumerate(self.bottom_need_backward):
            if need and self.is_index(index):
                raise self.refusal(
                    f"{self.type} cannot hand a gradient to bottom {index}, which holds labels or indexes",
                    remedy="add propagate_down lines to the layer, with false for this bottom; force_backward in the "
                    "net overrules them, so take that out",
                    field="propagate_down",
                )


def as_list(ys: Results) -> list[Result]:
    """The results of `compute`, one or several, as a list."""
    if isinstance(ys, np.generic):
        return [np.asarray(ys)]
    return [ys] if isinstance(ys, Variable | np.ndarray) else list(ys)


def integers(values: Array) -> Array:
    """Labels or indexes, which blobs hold as floats, cut to whole numbers as C does."""
    return np.trunc(values).astype(np.int64)

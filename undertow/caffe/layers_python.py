"""Layers written in Python and named in a prototxt: python_param { module: "m" layer: "Class" }."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.caffe.arguments import text_of
from undertow.caffe.blob import Blob
from undertow.caffe.layer import Layer, Results, Shapes
from undertow.caffe.proto.message import Message
from undertow.core.function import Function
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]


class PythonLayer:
    """Base class of layers that users write: setup, reshape, forward and backward on blobs.

    param_str: the text of python_param. phase: 0 in TRAIN, 1 in TEST. blobs: the layer's parameters, which `setup` may
    append to with `self.blobs.add_blob(*shape)`.
    """

    param_str: str
    phase: int
    blobs: Any

    def __init__(self, message: Message) -> None:
        self.param_str = message.python_param.param_str
        self.phase = int(message.phase == "TEST")
        self.type = "Python"
        self.name = message.name

    @property
    def param_str_(self) -> str:
        """What `param_str` was called in Caffe's releases before 2015."""
        return self.param_str

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the options; called once."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops their shapes: `top[0].reshape(*bottom[0].shape)`."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Fill `top[i].data`."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(bottom, top)")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Fill `bottom[i].diff` where propagate_down[i], from `top[i].diff`."""


class ParameterList(list[Blob]):
    """The parameters of a Python layer."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self._dtype = dtype

    def add_blob(self, *shape: int) -> Blob:
        """Append a parameter of this shape, filled with zeros."""
        self.append(Blob(shape, self._dtype))
        return self[-1]


def import_layer(module: str, name: str) -> Any:
    """The class of a Python layer, from an importable module; hand it to a net as `python`."""
    return getattr(importlib.import_module(text_of(module, "a module")), text_of(name, "a class"))


class Python(Layer):
    """Runs a class of the user's. It is imported only where the net's caller has allowed it."""

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.python_param
        if self.context.python is None:
            raise self.refusal(
                f"the layer runs the Python class {o.module}.{o.layer}, which is not allowed here",
                remedy="if you trust the file, build the net with python=undertow.caffe.import_layer",
                field="python_param",
            )
        message = self.message.copy()
        message.phase = self.phase
        try:
            self.layer = self.context.python(o.module, o.layer)(message)
        except (ImportError, AttributeError) as error:
            raise self.refusal(
                f"the Python class {o.module}.{o.layer} cannot be loaded: {error}",
                remedy="put the module on PYTHONPATH, and check both names",
                field="python_param",
            ) from error
        self.layer.blobs = parameters = ParameterList(self.context.dtype)
        self.blobs = parameters
        self._started = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self._started:
            self._started = True
            self.layer.setup(bottom, top)
            self.param_propagate_down = [True] * len(self.blobs)
        self.layer.reshape(bottom, top)
        self._ys = None

    def fill_parameters(self) -> None:
        """The user's setup has filled them."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> float:
        self.reshape(bottom, top)
        self.layer.forward(bottom, top)
        return self.loss_of(top)

    def backward(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        self.layer.backward(top, self._needs(len(bottom)), bottom)

    def compute(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> Results:
        return PythonCall(self)(*bottom, *params)


class PythonCall(Function):
    """A user's layer as one operation, on blobs of its own."""

    def __init__(self, layer: Python) -> None:
        self.layer = layer

    def forward(self, *xs: Array) -> tuple[Array, ...]:
        message = self.layer.message
        self._bottom = [_filled(x) for x in xs[: len(message.bottom)]]
        self._top = [Blob((0,), xs[0].dtype if xs else np.float32) for _ in message.top]
        self.layer.layer.reshape(self._bottom, self._top)
        self.layer.layer.forward(self._bottom, self._top)
        return tuple(blob.data.copy() for blob in self._top)

    def backward(self, *gys: Array) -> tuple[Array | None, ...]:
        for blob, gy in zip(self._top, gys, strict=True):
            blob.diff[...] = gy
        before = [blob.diff.copy() for blob in self.layer.blobs]
        for blob in self.layer.blobs:
            blob.diff[...] = 0
        wanted = list(self.needs_input_grad[: len(self._bottom)])
        self.layer.layer.backward(self._top, wanted, self._bottom)
        found = [blob.diff.copy() for blob in self.layer.blobs]
        for blob, old in zip(self.layer.blobs, before, strict=True):
            blob.diff[...] = old
        return (*(blob.diff if want else None for blob, want in zip(self._bottom, wanted, strict=True)), *found)


def _filled(x: Array) -> Blob:
    blob = Blob(x.shape, x.dtype)
    blob.data[...] = x
    return blob

"""Recording a step without computing it, for steps known not to depend on the values they compute with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from undertow.core.function import Function
from undertow.core.hooks import Arrays, Walk
from undertow.core.variable import Variable
from undertow.functions.arithmetic import Add
from undertow.functions.conv import Conv
from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.join import Concat
from undertow.functions.linalg import Linear
from undertow.functions.norm_batch import BatchNorm
from undertow.functions.pooling import MaxPool2d
from undertow.functions.rectifiers import LeakyRelu, Relu
from undertow.functions.resample import Upsample
from undertow.kernels.geometry import output_shape
from undertow.plans.record import Recorder
from undertow.plans.snapshot import Thing, parts

Shape = tuple[int, ...]


class NotDry(Exception):
    """An operation must not run twice: it draws random numbers, or may change something."""


class DryRecorder(Recorder):
    """A recorder that lets the well-known operations pass without work: their results are zeros of the right shape.

    Other operations run, on these zeros. Walks backward are noted, not made.
    Raises NotDry, before its forward, at an operation that holds objects of unknown kind.
    """

    looks = False

    def instead_of_forward(self, function: Function, inputs: Arrays) -> Any:
        rule = _SHAPES.get(type(function))
        if rule is not None:
            return np.broadcast_to(np.zeros((), inputs[0].dtype), rule(function, [x.shape for x in inputs]))
        if self._pending and any(isinstance(p, Thing) for taken in self._pending[-1][2].values() for p in parts(taken)):
            raise NotDry(function.label)
        return None

    def before_walk(self, walk: Walk) -> bool:
        super().before_walk(walk)
        self._walking = False
        self.walks[-1].functions.extend(sorted(self._behind([y for y, _ in walk.roots]), reverse=True))
        return True

    def _behind(self, roots: list[Variable]) -> set[int]:
        """Numbers of the calls that a walk from these roots visits."""
        found: set[int] = set()
        waiting = [y.creator for y in roots]
        while waiting:
            function = waiting.pop()
            if function is None:
                continue
            number = self._functions.get(id(function))
            if number is None:
                self._object("the walk backward reaches an operation from before the step")
            elif number not in found:
                found.add(number)
                waiting.extend(x.creator for x in function.inputs if x.requires_grad)
        return found


def _conv(function: Function, shapes: list[Shape]) -> Shape:
    (n, _, *spatial), (filters, _, *kernel) = shapes[0], shapes[1]
    return (n, filters, *output_shape(spatial, kernel, cast(Conv, function).geometry))


def _concat(function: Function, shapes: list[Shape]) -> Shape:
    axis = cast(Concat, function).axis
    return tuple(sum(s[i] for s in shapes) if i == axis else n for i, n in enumerate(shapes[0]))


def _upsample(function: Function, shapes: list[Shape]) -> Shape:
    n, c, h, w = shapes[0]
    factor = cast(Upsample, function).factor
    return n, c, h * factor, w * factor


def _like_input(function: Function, shapes: list[Shape]) -> Shape:
    return shapes[0]


_SHAPES: dict[type, Callable[[Function, list[Shape]], Shape]] = {
    Conv: _conv,
    BatchNorm: _like_input,
    Relu: _like_input,
    LeakyRelu: _like_input,
    DarknetActivation: _like_input,
    Add: lambda function, shapes: np.broadcast_shapes(*shapes),
    Concat: _concat,
    Linear: lambda function, shapes: (*shapes[0][:-1], shapes[1][0]),
    MaxPool2d: lambda function, shapes: (*shapes[0][:2], *cast(MaxPool2d, function).geometry.out),
    Upsample: _upsample,
}

"""The connected and convolutional layers inside recurrent ones, called once for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.core.variable import Variable
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import ConnectedOptions, ConvolutionalOptions
from undertow.darknet.layers.layer import BuildContext, Layer, Pass
from undertow.darknet.layers.layers_weighted import Connected, Convolutional, WeightedLayer
from undertow.errors import GraphError

Array = np.ndarray[Any, Any]


class InnerNames(MutableMapping[str, Any]):
    """What an inner layer calls `weights` is `input_layer/weights` in the layer around it: a view of the latter's."""

    def __init__(self, outer: Layer, place: str, prefix: str) -> None:
        self.outer, self.place, self.prefix = outer, place, prefix

    def _whole(self) -> MutableMapping[str, Any]:
        whole: MutableMapping[str, Any] = getattr(self.outer, self.place)
        return whole

    def __getitem__(self, name: str) -> Any:
        return self._whole()[self.prefix + name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._whole()[self.prefix + name] = value

    def __delitem__(self, name: str) -> None:
        del self._whole()[self.prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self.prefix) for name in self._whole() if name.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Inner:
    """One inner layer: its parameters under Darknet's names, and output and delta over all steps of the last pass.

    layer: computes one step. Arrays come from Variables in a pass that was unrolled, or from `shown` where one
    operation went through all steps.
    """

    def __init__(self, layer: WeightedLayer) -> None:
        self.layer = layer
        self.shown: tuple[Callable[[], Array], Callable[[], Array]] | None = None
        self._outputs: list[Variable] = []
        self._deltas: list[Variable] = []

    def begin(self) -> None:
        """Forget the last pass."""
        self.shown = None
        self._outputs, self._deltas = [], []

    def __call__(self, x: Variable, run: Pass) -> Variable:
        y = self.layer.forward(x, run)
        at = self.layer.delta_place(y)
        if run.keep:
            at.retain_grad()
        self._outputs.append(y)
        self._deltas.append(at)
        return y

    def show(self, output: Callable[[], Array], delta: Callable[[], Array]) -> None:
        """Where output and delta are found, each (steps * sequences, ...)."""
        self.shown = output, delta

    @property
    def output(self) -> Array:
        if self.shown is not None:
            return self.shown[0]()
        if not self._outputs:
            raise GraphError("nothing went through the layer yet", layer=self.layer.index)
        return np.concatenate([y.data for y in self._outputs])

    @property
    def delta(self) -> Array:
        """Minus the gradient before activation, bias and normalisation; 0 when no gradient went back."""
        return self.shown[1]() if self.shown is not None else stacked_deltas(self._deltas)

    def __getattr__(self, name: str) -> Any:
        if name == "layer":
            raise AttributeError(name)
        return getattr(self.layer, name)


def stacked_deltas(places: list[Variable]) -> Array:
    """Minus the gradients that were kept, one step after another."""
    return np.concatenate([np.zeros_like(v.data) if v.grad is None else -v.grad for v in places])


def connected(outer: Layer, name: str, inputs: int, activation: str, normalized: bool, context: BuildContext) -> Inner:
    """A connected layer from so many values to the outputs of the layer around it."""
    shape = replace(
        outer.shape,
        type="connected",
        inputs=inputs,
        in_shape=(0, 0, 0),
        out_shape=(outer.outputs, 1, 1),
        parameters=(),
    )
    options = ConnectedOptions(output=outer.outputs, activation=activation, batch_normalize=normalized)
    return _adopted(outer, name, Connected(options, shape, context))


@dataclass(frozen=True)
class Window:
    """Of a convolution that keeps the size: an odd size, dilation and groups."""

    size: int = 3
    dilation: int = 1
    groups: int = 1


def convolutional(
    outer: Layer,
    name: str,
    image: tuple[int, int, int],
    filters: int,
    activation: str,
    normalized: bool,
    context: BuildContext,
    window: Window = Window(),
) -> Inner:
    """A convolution of an image (channels, height, width) that keeps its size, 3x3 unless `window` says otherwise."""
    _, height, width = image
    shape: LayerShape = replace(
        outer.shape,
        type="convolutional",
        inputs=int(np.prod(image)),
        outputs=filters * height * width,
        in_shape=image,
        out_shape=(filters, height, width),
        parameters=(),
    )
    options = ConvolutionalOptions(
        filters=filters,
        size=window.size,
        dilation=window.dilation,
        groups=window.groups,
        pad=True,
        activation=activation,
        batch_normalize=normalized,
    )
    return _adopted(outer, name, Convolutional(options, shape, context))


def _adopted(outer: Layer, name: str, layer: WeightedLayer) -> Inner:
    """Hand the layer's arrays over to the one around it."""
    prefix = f"{name}/"
    for parameter in layer.parameters.values():
        parameter.name = f"layer{outer.index}.{prefix}{str(parameter.name).rpartition('.')[2]}"
    for place in ("parameters", "buffers", "updates"):
        view = InnerNames(outer, place, prefix)
        view.update(getattr(layer, place))
        setattr(layer, place, view)
    return Inner(layer)

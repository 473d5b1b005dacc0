"""Noticing numbers that are not finite although no loss, gradient or parameter shows them.

Three things are looked at, each of them cheap: in every pass the statistics of batch normalisation, which every value
that is normalised goes into; whenever parameters have changed, the bounds of all other values (see `bounds`); and the
pictures, where bounds begin with them. Only where a bound is too large to tell, all values of a pass are searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.darknet.learning.bounds import doubtful_layer, largest

if TYPE_CHECKING:
    from undertow.core.function import Function
    from undertow.core.variable import Variable
    from undertow.darknet.layers.layer import Layer
    from undertow.darknet.network import Network

Array = np.ndarray[Any, Any]
_STATISTICS = ("rolling_mean", "rolling_variance")
# Pictures may become so many times larger before bounds are computed anew.
_MARGIN = 16.0


class HiddenValues:
    """Watches one network. It keeps what is proven until parameters change or pictures are larger."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self._proven_at: tuple[int, int] | None = None
        # The largest value of pictures that the proof allows; None where it does not depend on them.
        self._allowed: float | None = None

    def is_doubtful(self, images: Array) -> bool:
        """Whether a pass with these pictures may hold a value that is not finite and shows nowhere."""
        now = self.net.updates_done, id(self.net.layers)
        if self._proven_at == now and (self._allowed is None or largest(images) <= self._allowed):
            return False
        self._allowed = None

        def pictures() -> float:
            self._allowed = _MARGIN * max(largest(images), 1.0)
            return self._allowed

        doubtful = doubtful_layer(self.net, pictures) is not None
        self._proven_at = None if doubtful else now
        return doubtful


def ruined_statistics(net: Network) -> tuple[Layer, str, Array] | None:
    """The first rolling statistics that are not finite, with their layer; None without any."""
    found = [
        (layer, name, layer.buffers[name]) for layer in net.layers for name in layer.buffers if _is_statistic(name)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(float(array.sum()) for _, _, array in found)
    if np.isfinite(total):
        return None
    return next((entry for entry in found if not np.isfinite(entry[2]).all()), None)


def _is_statistic(name: str) -> bool:
    return name.endswith(_STATISTICS)


def values_on_the_way(layer: Layer, before: set[int]) -> Iterator[tuple[str, Array]]:
    """What a layer computed between its input and its output, in that order, as the recorded graph still holds it.

    before: ids of the Variables that are not its own: outputs of layers before it.
    """
    found: dict[int, tuple[Function, Variable]] = {}
    waiting = [layer.output_variable]
    while waiting:
        function = waiting.pop().creator
        if function is None:
            continue
        for given in function.inputs:
            if id(given) in before or id(given) in found or given.creator is None:
                continue
            found[id(given)] = function, given
            waiting.append(given)
    for function, given in sorted(found.values(), key=lambda entry: entry[1].generation):
        yield f"input of {function.label}", given.data

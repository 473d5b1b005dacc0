"""DarknetSGD: momentum and decay as Darknet's CPU code applies them, with its accumulators under its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.core import Parameter
from undertow.errors import ShapeError, UndertowError
from undertow.optimizers.rules import darknet_update


@dataclass(frozen=True)
class DarknetParameter:
    """One array that Darknet learns.

    name: as in the traces, e.g. "layer00/weights". decays: True for weights, False for biases and scales.
    rate: the layer's `learning_rate=` multiplier. learns: False for one that no update touches, nor its accumulator.
    """

    name: str
    parameter: Parameter
    decays: bool
    rate: float = 1.0
    learns: bool = True


class DarknetSGD:
    """Darknet's update over all layers: `accumulate()` after every backward, `update()` after the last subdivision.

    updates: from name to the accumulator (`weight_updates` and so on): minus the gradient of the cost, summed over
    images, on top of momentum times what the last update used. They carry over from pass to pass until `update`.
    """

    def __init__(self, parameters: Sequence[DarknetParameter], *, momentum: float = 0.9, decay: float = 0.0001) -> None:
        self.entries = {entry.name: entry for entry in parameters}
        if len(self.entries) != len(parameters):
            raise UndertowError("two parameters of a Darknet net have the same name")
        self.momentum, self.decay = momentum, decay
        self.updates = {name: np.zeros_like(entry.parameter.data) for name, entry in self.entries.items()}

    def accumulate(self, factor: float = 1.0, clear: bool = True) -> None:
        """Take the gradients into the accumulators, updates -= factor * grad, and clear them (unless told not to).

        factor: from the gradient of the documented loss to Darknet's sum over images (the batch where the loss is a
        mean). Parameters without a gradient keep their accumulator.
        """
        for name, entry in self.entries.items():
            gradient = entry.parameter.grad
            if gradient is not None:
                self.updates[name] -= gradient if factor == 1.0 else factor * gradient
                if clear:
                    entry.parameter.clear_grad()

    def update(self, rate: float, batch: int) -> None:
        """Move all parameters. rate: from the policy. batch: images per update, `net.batch * subdivisions`."""
        for name, entry in self.entries.items():
            if entry.learns:
                darknet_update(
                    entry.parameter.data,
                    self.updates[name],
                    rate=rate * entry.rate,
                    batch=batch,
                    momentum=self.momentum,
                    decay=self.decay if entry.decays else 0.0,
                )

    def state(self) -> dict[str, np.ndarray]:
        """Copies of the accumulators by name."""
        return {name: array.copy() for name, array in self.updates.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take accumulators that `state()` gave. Raises UndertowError, ShapeError; nothing is changed then."""
        missing, surplus = self.updates.keys() - state.keys(), state.keys() - self.updates.keys()
        if missing or surplus:
            raise UndertowError(
                f"the accumulators do not fit this net; missing: {', '.join(sorted(missing)) or 'none'}; "
                f"not in this net: {', '.join(sorted(surplus)) or 'none'}"
            )
        for name, array in self.updates.items():
            if state[name].shape != array.shape:
                raise ShapeError(f"the accumulator '{name}' has shape {state[name].shape}, its parameter {array.shape}")
        for name, array in self.updates.items():
            array[...] = state[name]

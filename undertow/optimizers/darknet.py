"""Darknet's update rules, with its accumulators under its names: DarknetSGD, and DarknetAdam of its GPU code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.core import Parameter
from undertow.errors import ShapeError, UndertowError
from undertow.kernels import select
from undertow.optimizers.rules import adam


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
        self._together = select.Together("darknet")
        self.updates = {name: np.zeros_like(entry.parameter.data) for name, entry in self.entries.items()}

    def accumulate(self, factor: float = 1.0, clear: bool = True) -> None:
        """Take the gradients into the accumulators, updates -= factor * grad, and clear them (unless told not to).

        factor: from the gradient of the documented loss to Darknet's sum over images (the batch where the loss is a
        mean). Parameters without a gradient keep their accumulator.
        """
        for name, entry in self.entries.items():
            gradient = entry.parameter.grad
            if gradient is not None:
                select.darknet_accumulate(self.updates[name], gradient, factor)
                if clear:
                    entry.parameter.clear_grad()

    def update(self, rate: float, batch: int) -> None:
        """Move all parameters. rate: from the policy. batch: images per update, `net.batch * subdivisions`."""
        learning = {name: entry for name, entry in self.entries.items() if entry.learns}
        if learning:
            self._together(
                [(entry.parameter.data, self.updates[name]) for name, entry in learning.items()],
                [
                    (self.decay * batch if entry.decays else 0.0, rate * entry.rate / batch, self.momentum)
                    for entry in learning.values()
                ],
            )

    def state(self) -> dict[str, np.ndarray]:
        """Copies of what is carried from update to update, by name."""
        return {name: array.copy() for name, array in self._memories().items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take what `state()` gave. Raises UndertowError, ShapeError; nothing is changed then."""
        memories = self._memories()
        missing, surplus = memories.keys() - state.keys(), state.keys() - memories.keys()
        if missing or surplus:
            raise UndertowError(
                f"the accumulators do not fit this net; missing: {', '.join(sorted(missing)) or 'none'}; "
                f"not in this net: {', '.join(sorted(surplus)) or 'none'}"
            )
        for name, array in memories.items():
            if state[name].shape != array.shape:
                raise ShapeError(f"the accumulator '{name}' has shape {state[name].shape}, its parameter {array.shape}")
        for name, array in memories.items():
            array[...] = state[name]

    def _memories(self) -> dict[str, np.ndarray]:
        """The arrays that make up the state."""
        return self.updates


class DarknetAdam(DarknetSGD):
    """Adam as Darknet's GPU code has it (`adam=1`; blas_kernels.cu, adam_update_gpu).

    d = updates - decay B w, for biases and scales too; m = B1 m + (1 - B1) d; v = B2 v + (1 - B2) d^2;
    w += rate m^ / (sqrt(v^) + eps), and the updates are cleared. The rate is not divided by the batch B.

    steps: updates so far, shape (). means, squares: m (with the sign of the gradient) and v, by name.
    """

    def __init__(
        self,
        parameters: Sequence[DarknetParameter],
        *,
        decay: float = 0.0001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-7,
    ) -> None:
        super().__init__(parameters, momentum=0.0, decay=decay)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.steps = np.zeros((), np.int64)
        self.means = {name: np.zeros_like(array) for name, array in self.updates.items()}
        self.squares = {name: np.zeros_like(array) for name, array in self.updates.items()}

    def update(self, rate: float, batch: int) -> None:
        self.steps += 1
        for name, entry in self.entries.items():
            if not entry.learns:
                continue
            values, updates = entry.parameter.data, self.updates[name]
            adam(
                values,
                self.decay * batch * values - updates,
                self.means[name],
                self.squares[name],
                int(self.steps),
                rate * entry.rate,
                self.beta1,
                self.beta2,
                self.epsilon,
            )
            updates[...] = 0

    def _memories(self) -> dict[str, np.ndarray]:
        memories = {**self.updates, "steps": self.steps}
        for name in self.updates:
            memories[f"{name}/m"], memories[f"{name}/v"] = self.means[name], self.squares[name]
        return memories

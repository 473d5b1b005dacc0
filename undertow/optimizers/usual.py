"""The usual optimisers; each rule and its formula stand in `undertow.optimizers.rules`."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.kernels import select
from undertow.optimizers import rules
from undertow.optimizers.optimizer import Move, Optimizer, Target
from undertow.optimizers.policies import Policy

Memory = dict[str, np.ndarray]


class SGD(Optimizer):
    """Gradient descent, with momentum when it is not 0: v = momentum v + g;  w -= rate v.

    nesterov: look ahead, w -= rate (g + momentum v). `**options`: those of Optimizer.
    """

    slots: tuple[str, ...] = ("velocity",)

    def __init__(
        self, target: Target, rate: float | Policy = 0.01, momentum: float = 0.0, nesterov: bool = False, **options: Any
    ) -> None:
        super().__init__(target, rate, **options)
        self.momentum, self.nesterov = momentum, nesterov
        self._together = select.Together("momentum")
        if momentum == 0:
            if nesterov:
                raise ValueError("nesterov needs a momentum above 0")
            self.slots = ()

    def _move_all(self, moves: list[Move], scale: float) -> None:
        plain = self.l1_decay == 0 and self.clip_value is None and self.momentum != 0 and not self.nesterov
        if not plain or any(move.parameter.grad.shape != move.parameter.shape for move in moves):
            super()._move_all(moves, scale)
            return
        # Decay and rule in one pass over the parameters.
        self._together(
            [(move.parameter.data, move.parameter.grad, move.memory["velocity"]) for move in moves],
            [(scale, self.weight_decay * move.decay, move.rate, self.momentum) for move in moves],
        )

    def _update_one(self, w: np.ndarray, g: np.ndarray, memory: Memory, rate: float) -> None:
        if self.momentum == 0:
            rules.sgd(w, g, rate)
        elif self.nesterov:
            rules.nesterov(w, g, memory["velocity"], rate, self.momentum)
        else:
            rules.momentum_sgd(w, g, memory["velocity"], rate, self.momentum)


class AdaGrad(Optimizer):
    """s += g^2;  w -= rate g / (sqrt(s) + eps)."""

    slots = ("squares",)

    def __init__(self, target: Target, rate: float | Policy = 0.01, eps: float = 1e-10, **options: Any) -> None:
        super().__init__(target, rate, **options)
        self.eps = eps

    def _update_one(self, w: np.ndarray, g: np.ndarray, memory: Memory, rate: float) -> None:
        rules.adagrad(w, g, memory["squares"], rate, self.eps)


class AdaDelta(Optimizer):
    """Steps in the units of the parameter: d = sqrt(u + eps) / sqrt(s + eps) g;  w -= rate d."""

    slots = ("squares", "steps")

    def __init__(
        self, target: Target, rate: float | Policy = 1.0, rho: float = 0.95, eps: float = 1e-6, **options: Any
    ) -> None:
        super().__init__(target, rate, **options)
        self.rho, self.eps = rho, eps

    def _update_one(self, w: np.ndarray, g: np.ndarray, memory: Memory, rate: float) -> None:
        rules.adadelta(w, g, memory["squares"], memory["steps"], rate, self.rho, self.eps)


class RMSProp(Optimizer):
    """s = decay s + (1 - decay) g^2;  w -= rate g / (sqrt(s) + eps)."""

    slots = ("squares",)

    def __init__(
        self, target: Target, rate: float | Policy = 0.01, decay: float = 0.99, eps: float = 1e-8, **options: Any
    ) -> None:
        super().__init__(target, rate, **options)
        self.decay, self.eps = decay, eps

    def _update_one(self, w: np.ndarray, g: np.ndarray, memory: Memory, rate: float) -> None:
        rules.rmsprop(w, g, memory["squares"], rate, self.decay, self.eps)


class Adam(Optimizer):
    """Mean and mean square of the gradients, corrected for their start at 0: w -= rate m^ / (sqrt(s^) + eps).

    Every parameter counts its own updates, so one whose gradient comes late is corrected as well.
    """

    slots = ("mean", "squares", "updates")

    def __init__(
        self,
        target: Target,
        rate: float | Policy = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        **options: Any,
    ) -> None:
        super().__init__(target, rate, **options)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def _first_memory(self, slot: str, w: np.ndarray) -> np.ndarray:
        return np.zeros((), np.int64) if slot == "updates" else np.zeros_like(w)

    def _update_one(self, w: np.ndarray, g: np.ndarray, memory: Memory, rate: float) -> None:
        memory["updates"] += 1
        t = int(memory["updates"])
        rules.adam(w, g, memory["mean"], memory["squares"], t, rate, self.beta1, self.beta2, self.eps)


class AdamW(Adam):
    """Adam with weight decay beside the rule instead of inside the gradient: first w *= 1 - rate weight_decay.

    Loshchilov and Hutter 2017; `weight_decay` is an option of Optimizer (0.01 here when not given).
    """

    decoupled_decay = True

    def __init__(self, target: Target, rate: float | Policy = 0.001, *args: Any, **options: Any) -> None:
        super().__init__(target, rate, *args, **{"weight_decay": 0.01, **options})

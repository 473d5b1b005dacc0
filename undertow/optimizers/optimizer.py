"""Optimizer: what all update rules share: parameters by name, rates, decay, clipping, state."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from undertow.core import Parameter
from undertow.errors import NonFiniteError, ShapeError, UndertowError
from undertow.optimizers.policies import Policy, as_policy


@runtime_checkable
class HasParameters(Protocol):
    """A Module, or anything else that names its parameters."""

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]: ...


Target = HasParameters | Mapping[str, Parameter] | Iterable[Parameter]


@dataclass(frozen=True)
class Multipliers:
    """Factors on the rate and on both weight decays, for the parameters whose name fits a pattern."""

    rate: float = 1.0
    decay: float = 1.0


class Move(NamedTuple):
    """What is to happen to one parameter in an update. decay: a factor on the decays."""

    parameter: Parameter
    memory: dict[str, np.ndarray]
    decay: float
    rate: float


class Optimizer:
    """Base of all optimisers: `update()` moves every parameter that has a gradient, in place.

    target: a Module, a mapping from names to Parameters, or an iterable of Parameters (then named by their `name`,
    else "0", "1", ... in order).
    rate: the learning rate, a number or a Policy; a policy is asked with the number of updates done before.
    weight_decay: L2, adds weight_decay * w to the gradient. l1_decay: L1, adds l1_decay * sign(w).
    clip_value: gradients are cut to [-clip_value, clip_value]. clip_norm: when the norm of all gradients together
    is larger, all are scaled by clip_norm / norm. Both come before the decays, value before norm.
    multipliers: from patterns of names (as in a shell: "*.bias") to Multipliers; the first that fits counts.

    Nothing is written into the gradients. Raises UndertowError when a pattern fits no parameter.
    """

    slots: tuple[str, ...] = ()
    decoupled_decay: ClassVar[bool] = False

    def __init__(
        self,
        target: Target,
        rate: float | Policy,
        *,
        weight_decay: float = 0.0,
        l1_decay: float = 0.0,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        multipliers: Mapping[str, Multipliers] | None = None,
    ) -> None:
        self.policy = as_policy(rate)
        self.weight_decay, self.l1_decay = weight_decay, l1_decay
        self.clip_value, self.clip_norm = clip_value, clip_norm
        self.iteration = 0
        self.parameters = named(target)
        self.multipliers = _assign(self.parameters, multipliers or {})
        self.memory: dict[str, dict[str, np.ndarray]] = {}

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.policy(self.iteration)

    def clear_grads(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters.values():
            parameter.clear_grad()

    def update(self) -> None:
        """Move the parameters against their gradients; those without a gradient stay.

        Raises UndertowError when no parameter has a gradient, NonFiniteError when the rate or the norm to clip by is
        not a finite number; the parameters are then as before.
        """
        moving = {name: p for name, p in self.parameters.items() if p.grad is not None}
        if not moving:
            raise UndertowError(
                "no parameter has a gradient", remedy="call backward() on a loss computed from them before update()"
            )
        rate = self.rate
        if not math.isfinite(rate):
            raise NonFiniteError(f"the learning rate at iteration {self.iteration} is {rate} ({self.policy})")
        scale = self._norm_scale(moving.values())
        moves = []
        for name, parameter in moving.items():
            factors = self.multipliers[name]
            moves.append(Move(parameter, self._memory_of(name, parameter), factors.decay, rate * factors.rate))
        self._move_all(moves, scale)
        self.iteration += 1

    def _move_all(self, moves: list[Move], scale: float) -> None:
        """All parameters, each by `_move`. scale: a factor on all gradients."""
        for move in moves:
            self._move(move.parameter, move.memory, scale, move.decay, move.rate)

    def _move(
        self, parameter: Parameter, memory: dict[str, np.ndarray], scale: float, decay: float, rate: float
    ) -> None:
        """Clip, decay, and the rule, for one parameter. scale, decay: factors on the gradient and on the decays."""
        gradient = self._prepared(parameter, scale, decay)
        if self.decoupled_decay and self.weight_decay:
            parameter.data *= 1 - rate * self.weight_decay * decay
        self._update_one(parameter.data, gradient, memory, rate)

    def _update_one(self, w: np.ndarray, g: np.ndarray, memory: dict[str, np.ndarray], rate: float) -> None:
        """The rule, on one parameter; `memory` holds the arrays named in `slots`."""
        raise NotImplementedError(f"{type(self).__name__} has no rule: write _update_one(self, w, g, memory, rate)")

    def _norm_scale(self, parameters: Iterable[Parameter]) -> float:
        """The factor that brings the norm of all gradients down to clip_norm."""
        if self.clip_norm is None:
            return 1.0
        squares = [np.square(self._value_clipped(p.grad), dtype=np.float64).sum() for p in parameters]
        norm = math.sqrt(math.fsum(squares))
        if not math.isfinite(norm):
            raise NonFiniteError(
                f"the norm of the gradients at iteration {self.iteration} is {norm}",
                remedy="lower the learning rate, or run a step inside NaNHook() to see where it starts",
            )
        return self.clip_norm / norm if norm > self.clip_norm else 1.0

    def _value_clipped(self, gradient: np.ndarray) -> np.ndarray:
        return gradient if self.clip_value is None else gradient.clip(-self.clip_value, self.clip_value)

    def _prepared(self, parameter: Parameter, scale: float, decay_factor: float) -> np.ndarray:
        """The gradient after clipping and decay."""
        gradient = self._value_clipped(parameter.grad)
        if gradient.shape != parameter.shape:
            raise ShapeError(f"a gradient of shape {gradient.shape} for a parameter of shape {parameter.shape}")
        if scale != 1.0:
            gradient = gradient * scale
        if self.weight_decay and decay_factor and not self.decoupled_decay:
            gradient = gradient + self.weight_decay * decay_factor * parameter.data
        if self.l1_decay and decay_factor:
            gradient = gradient + self.l1_decay * decay_factor * np.sign(parameter.data)
        return gradient

    def _memory_of(self, name: str, parameter: Parameter) -> dict[str, np.ndarray]:
        if name not in self.memory:
            self.memory[name] = {slot: self._first_memory(slot, parameter.data) for slot in self.slots}
        return self.memory[name]

    def _first_memory(self, slot: str, w: np.ndarray) -> np.ndarray:
        """What a slot starts from."""
        return np.zeros_like(w)

    # --- state ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Copies of all that an exact continuation needs: "iteration", and "slot/parameter name" for each memory."""
        state = {"iteration": np.array(self.iteration, dtype=np.int64)}
        for name, slots in self.memory.items():
            state.update({f"{slot}/{name}": array.copy() for slot, array in slots.items()})
        return state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `state()` gave.

        Raises UndertowError naming what is missing, unknown or of another shape; nothing is changed then.
        """
        memory: dict[str, dict[str, np.ndarray]] = {}
        for key, array in state.items():
            if key == "iteration":
                continue
            slot, _, name = key.partition("/")
            self._check_entry(key, slot, name, array)
            memory.setdefault(name, {})[slot] = array.copy()
        missing = [f"{slot}/{name}" for name, found in memory.items() for slot in self.slots if slot not in found]
        if "iteration" not in state:
            missing.insert(0, "iteration")
        if missing:
            raise UndertowError(f"the state of this {type(self).__name__} lacks {', '.join(missing)}")
        self.iteration, self.memory = int(state["iteration"]), memory

    def _check_entry(self, key: str, slot: str, name: str, array: np.ndarray) -> None:
        if slot not in self.slots or name not in self.parameters:
            raise UndertowError(
                f"'{key}' is not part of the state of this {type(self).__name__}",
                remedy="load it into the kind of optimiser that wrote it, over a model with the same parameter names",
            )
        data = self.parameters[name].data
        expected = None if data is None else self._first_memory(slot, data).shape
        if expected is not None and expected != array.shape:
            raise ShapeError(f"'{key}' has shape {array.shape}, this optimiser needs {expected}")


def named(target: Target) -> dict[str, Parameter]:
    """The parameters of a target by name, each once, in order."""
    if isinstance(target, HasParameters):
        pairs = list(target.named_parameters())
    elif isinstance(target, Mapping):
        pairs = list(target.items())
    else:
        pairs = [(p.name or str(index), p) for index, p in enumerate(target)]
    found = dict(pairs)
    if not found:
        raise UndertowError("there are no parameters to optimise")
    if len(found) != len(pairs):
        raise UndertowError("two parameters have the same name", remedy="pass a mapping from names to parameters")
    for name, parameter in found.items():
        if not isinstance(parameter, Parameter):
            raise TypeError(f"'{name}' is a {type(parameter).__name__}, an optimiser takes Parameters")
    return found


def _assign(parameters: Iterable[str], patterns: Mapping[str, Multipliers]) -> dict[str, Multipliers]:
    """For every name the factors of the first pattern that fits it."""
    names = list(parameters)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise UndertowError(
                f"the pattern '{pattern}' fits no parameter", remedy=f"the names are {', '.join(names[:20])}"
            )
    chosen: dict[str, Multipliers] = {}
    for name in names:
        fits = (factors for pattern, factors in patterns.items() if fnmatch.fnmatchcase(name, pattern))
        chosen[name] = next(fits, Multipliers())
    return chosen

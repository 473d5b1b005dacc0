"""A recorded step made ready to be replayed: units in order, their memory, and the way of values and gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from undertow.core.variable import Variable
from undertow.plans.arena import Slot, arena, arrange
from undertow.plans.gone import withdraw
from undertow.plans.lower import lower
from undertow.plans.record import Alias, Argument, Made, Outside, Recorder
from undertow.plans.results import Leaf, Result, build, leaves
from undertow.plans.transfer import copy_in, copy_out
from undertow.plans.unit import Unit


class Stale(Exception):
    """A parameter is not what it was when the step was recorded: other shape, type or requires_grad."""


class Event(NamedTuple):
    """One thing to do: a unit's forward (walk None) or its backward in a walk."""

    unit: Unit
    walk: int | None


@dataclass
class Gradient:
    """A gradient in a slot. written: something has arrived in this walk."""

    slot: Slot
    written: bool = False
    sharers: list[Gradient] = field(default_factory=list)

    def claim(self) -> bool:
        """Whether to add to what is there; from now on something is."""
        before, self.written = self.written, True
        return before


class Program:
    """A step that can be replayed.

    values, calls, walks: as recorded. lasting: numbers of leaves that are the same Variable in every step.
    kept: name -> (value, value whose gradient is kept), for what is to be readable after the step.
    avoid: units (by their first call) that may not normalise in place.
    """

    def __init__(
        self,
        recorder: Recorder,
        result: Result,
        lasting: frozenset[int],
        kept: dict[str, tuple[int, int]],
        buffers: dict[int, np.ndarray],
    ) -> None:
        self.values, self.calls, self.walks = recorder.values, recorder.calls, recorder.walks
        self.layout = result.layout
        self.lasting = lasting
        self.kept = kept
        self.buffers = buffers
        self.avoid: set[int] = set()
        self.returned = {leaf.value for leaf in leaves(self.layout) if leaf.kind != "grad"} | {
            d for d, _ in kept.values()
        }
        self.returned = {self.root(number) for number in self.returned}
        self._grads_returned = {leaf.value for leaf in leaves(self.layout) if leaf.kind == "grad"}
        self._grads_kept = {g for _, g in kept.values()}
        self._variables = [self._own_variable(number) for number in range(len(self.values))]
        self._awake = False
        self._lower()

    def _own_variable(self, number: int) -> Variable:
        value = self.values[number]
        if number in self.lasting:
            return value.variable
        data = value.source.taken.array if isinstance(value.source, Outside) else None
        return Variable(data, value.variable.name, value.requires_grad)

    # --- preparing --------------------------------------------------------------------------------------

    def _lower(self) -> None:
        """Units, their order and their memory."""
        self.slots: dict[int, Slot] = {}
        self.gradients: dict[int, Gradient] = {}
        self._arrays: dict[int, np.ndarray] = {}
        self._grads: dict[int, np.ndarray] = {}
        self._own_sums: set[int] = set()
        self._saved_grads: dict[int, np.ndarray] = {}
        self._pinned: set[int] = set()
        self._extra: list[Slot] = []
        self._version = -1
        self.units = lower(self)
        self.schedule = self._schedule()
        self.consumers: dict[int, list[Unit]] = {}
        for unit in self.units:
            for number in dict.fromkeys(unit.inputs):
                self.consumers.setdefault(number, []).append(unit)
        for unit in self.units:
            unit.prepare()
        self._count_uses()
        self.bytes = arrange([*self.slots.values(), *(g.slot for g in self.gradients.values()), *self._extra])

    def _schedule(self) -> list[Event]:
        """Forward units and walks in the order of recording."""
        owner = {number: unit for unit in self.units for number in unit.calls}
        events: list[Event] = []
        waiting = list(self.units)
        for index, walk in enumerate(self.walks):
            while waiting and max(waiting[0].calls) < walk.position:
                events.append(Event(waiting.pop(0), None))
            order = dict.fromkeys(owner[number] for number in walk.functions)
            events.extend(Event(unit, index) for unit in order)
        events.extend(Event(unit, None) for unit in waiting)
        return events

    def event_of(self, unit: Unit, walk: int | None) -> int:
        """When a unit runs forward, or backward in a walk; -1 when it does not."""
        return next((n for n, event in enumerate(self.schedule) if event == (unit, walk)), -1)

    def _count_uses(self) -> None:
        """Lifetimes: values from where they are made to where they are last read, gradients likewise."""
        end = len(self.schedule)
        for n, (unit, walk) in enumerate(self.schedule):
            for number in (*unit.inputs, *unit.outputs):
                slot = self.slots.get(self.root(number))
                if slot is not None and (walk is None or unit.reads_back(number)):
                    slot.use(n)
                if walk is not None and number in self.gradients:
                    self.gradients[number].slot.use(n)
            for slot in unit.working_slots(walk):
                slot.use(n)
        for number in self._pinned | self.returned:
            if number in self.slots:
                self.slots[number].use(end)
            if number in self.gradients:
                self.gradients[number].slot.use(end)
        for index, taken in enumerate(self.walks):
            start = next((n for n, event in enumerate(self.schedule) if event.walk == index), end)
            for number, _ in taken.roots:
                if number in self.gradients:
                    self.gradients[number].slot.use(start)
        for number in self._grads_kept:
            if number in self.gradients:
                self.gradients[number].slot.use(end)

    # --- what units ask for -----------------------------------------------------------------------------

    def root(self, number: int) -> int:
        """The value that has the array: leaves made on an earlier result are that result."""
        source = self.values[number].source
        while isinstance(source, Alias):
            number = source.value
            source = self.values[number].source
        return number

    def pin(self, number: int) -> None:
        """Keep a value's memory to the end of the step: something outside the plan's sight may look at it."""
        self._pinned.add(self.root(number))
        self._pinned.add(number)

    def add_slot(self, slot: Slot) -> Slot:
        """Memory for a unit's own use; `working_slots` says when."""
        self._extra.append(slot)
        return slot

    def wants(self, number: int) -> bool:
        """Whether the gradient of a value is of use to anybody."""
        value = self.values[number]
        if not value.requires_grad:
            return False
        return isinstance(value.source, Made) or number in self.lasting | self._grads_returned | self._grads_kept

    def variable(self, number: int) -> Variable:
        """The Variable that stands for a value in replays."""
        return self._variables[number]

    def is_outside(self, number: int) -> bool:
        """Whether a value is a leaf that the plan only reads."""
        return isinstance(self.values[number].source, Outside)

    # --- while it runs ----------------------------------------------------------------------------------

    def array(self, number: int) -> np.ndarray:
        """A value as an array, NCHW."""
        number = self.root(number)
        source = self.values[number].source
        if isinstance(source, Made):
            return self._arrays[number]
        if isinstance(source, Argument):
            return source.of(self.arguments[source.index])
        return self._variables[number].data

    def put(self, number: int, array: np.ndarray) -> None:
        """Set a value that an ordinary operation made."""
        self._arrays[number] = array
        self._variables[number].data = array

    def give(self, number: int, gradient: np.ndarray) -> None:
        """A gradient arrives at a value; gradients add up."""
        kept = self.gradients.get(number)
        if kept is not None:
            copy_in(gradient, kept.slot, accumulate=kept.claim())
        elif number not in self._grads:
            self._grads[number] = gradient
        elif number in self._own_sums and self._grads[number].dtype == gradient.dtype:
            self._grads[number] += gradient
        else:
            self._grads[number] = np.asarray(self._grads[number] + gradient)
            self._own_sums.add(number)

    def take_gradient(self, number: int) -> np.ndarray | None:
        """The gradient of a value as an array, for an ordinary operation; None when none arrived."""
        kept = self.gradients.get(number)
        if kept is None:
            found = self._grads.pop(number, None)
            if number in self._grads_kept and found is not None:
                self._saved_grads[number] = found
            return found
        return kept.slot.view(arena.memory) if kept.written else None

    def gradient_buffer(self, number: int) -> np.ndarray:
        """An array for the gradient of a leaf: the one used in every replay, if nobody holds it."""
        variable = self._variables[number]
        key = id(variable)
        shape = self.values[number].shape
        if number in self.lasting and variable.grad is None and number not in self._grads:
            buffer = self.buffers.get(key)
            if buffer is None or sys.getrefcount(buffer) > 3 or buffer.shape != shape:
                buffer = self.buffers[key] = np.empty(shape, self.values[number].dtype)
            return buffer
        return np.empty(shape, self.values[number].dtype)

    def run(self, arguments: Sequence[Any]) -> Any:
        """Replay the step. Raises Stale where a parameter no longer fits."""
        with arena.lock:
            self._check_leaves()
            self._wake()
            self.arguments = arguments
            self._load()
            walk: int | None = None
            try:
                for event in self.schedule:
                    if event.walk != walk:
                        self._end_walk(walk)
                        walk = event.walk
                        self._begin_walk(walk)
                    if event.walk is None:
                        event.unit.forward()
                    else:
                        event.unit.backward(event.walk)
                self._end_walk(walk)
                return build(self.layout, self._returned)
            finally:
                self._let_go()

    def keep_into(self, store: Any) -> None:
        """Hand the kept values and gradients of the last replay to store(name, value, gradient or None)."""
        for name, (data, grad) in self.kept.items():
            gradient = self.gradients.get(grad)
            found = self._saved_grads.get(grad)
            if gradient is not None and gradient.written:
                found = gradient.slot.view(arena.memory)
            store(name, self.array(data), found)

    def _check_leaves(self) -> None:
        for number in self.lasting:
            value, variable = self.values[number], self._variables[number]
            data = variable.data
            if data.shape != value.shape or data.dtype != value.dtype or variable.requires_grad != value.requires_grad:
                raise Stale

    def _wake(self) -> None:
        """Before the first replay, take the Functions over and withdraw the recorded Variables; bind where needed."""
        arena.reserve(self.bytes)
        if self._version == arena.version:
            return
        if not self._awake:
            self._take_over()
        self._version = arena.version
        base = arena.memory.ctypes.data
        for slot in (*self.slots.values(), *(g.slot for g in self.gradients.values()), *self._extra):
            slot.root.base = base
        for number, slot in self.slots.items():
            if isinstance(self.values[number].source, Made):
                self._arrays[number] = self._variables[number].data = slot.view(arena.memory)
        for unit in self.units:
            unit.bind()

    def _take_over(self) -> None:
        self._awake = True
        for number, value in enumerate(self.values):
            recorded, value.array = value.variable, None
            value.variable = self._variables[number]
            if recorded is not self._variables[number] and not isinstance(value.source, Outside):
                withdraw(recorded)

    def _load(self) -> None:
        for number, value in enumerate(self.values):
            if isinstance(value.source, Argument):
                self._variables[number].data = self.array(number)
        self._saved_grads = {}

    def _begin_walk(self, walk: int | None) -> None:
        if walk is None:
            return
        for gradient in self.gradients.values():
            gradient.written = False
        for number in self.walks[walk].cleared:
            self._variables[number].clear_grad()
        for number, seed in self.walks[walk].roots:
            y = self.array(number)
            self.give(
                number, np.ones(y.shape, y.dtype) if seed is None else self.array(seed).astype(y.dtype, copy=False)
            )

    def _end_walk(self, walk: int | None) -> None:
        """Add the gradients of leaves to what they hold."""
        if walk is None:
            return
        for number, gradient in self._grads.items():
            variable = self._variables[number]
            if variable.grad is not None:
                variable.grad = variable.grad + gradient
            elif gradient is self.buffers.get(id(variable)):
                variable.grad = gradient
            else:
                variable.grad = np.array(gradient, order="C")
            if number in self._grads_kept:
                self._saved_grads[number] = np.asarray(variable.grad)
        self._grads.clear()
        self._own_sums.clear()

    def _returned(self, leaf: Leaf) -> Any:
        if leaf.kind == "grad":
            grad = self._variables[leaf.value].grad
            return None if grad is None else grad.copy()
        copy = copy_out(self.array(leaf.value))
        if leaf.kind == "array":
            return copy
        return Variable(copy, self._variables[leaf.value].name, requires_grad=False)

    def _let_go(self) -> None:
        """Forget arguments and what ordinary operations made; slots stay where they are."""
        self._grads.clear()
        self._own_sums.clear()
        for number, value in enumerate(self.values):
            if number in self.slots or isinstance(value.source, Outside):
                continue
            if number in self.lasting:
                continue
            self._variables[number].clear_grad()
            if number not in self._kept_values():
                self._arrays.pop(number, None)
                self._variables[number].data = None

    def _kept_values(self) -> Iterable[int]:
        return {self.root(data) for data, _ in self.kept.values()}

"""A recorded step made ready to be replayed: units in order, their memory, and the way of values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.core.variable import Variable
from undertow.plans.arena import Arena, Slot, arena, arrange
from undertow.plans.buffers import Buffers
from undertow.plans.gone import withdraw
from undertow.plans.gradient import Gradient
from undertow.plans.handed import Handing
from undertow.plans.lower import lower
from undertow.plans.ordinary import Ordinary
from undertow.plans.record import Alias, Argument, Made, Outside, Recorder
from undertow.plans.results import Leaf, Result, build, leaves
from undertow.plans.transfer import copy_in, copy_out
from undertow.plans.unit import Unit
from undertow.plans.waiting import Waiting

Store = Callable[[str, np.ndarray, np.ndarray | None], None]


class Stale(Exception):
    """A parameter is not what it was when the step was recorded: other shape, type or requires_grad."""


class NoRoom(MemoryError):
    """There was not enough memory for an operation, the recorded call of this number."""

    def __init__(self, call: int) -> None:
        super().__init__(call)
        self.call = call


class Event(NamedTuple):
    """One thing to do: a unit's forward (walk None) or its backward in a walk."""

    unit: Unit
    walk: int | None


class Program:
    """A step that can be replayed.

    values, calls, walks: as recorded. lasting: numbers of leaves that are the same Variable in every step.
    kept: name -> (value, value whose gradient is kept), for what is to be readable after the step.
    memory: where its buffers lie; what is kept stays readable there until the next replay of any program in it.
    avoid: units (by their first call) that may not normalise in place.
    """

    def __init__(
        self,
        recorder: Recorder,
        result: Result,
        lasting: frozenset[int],
        kept: dict[str, tuple[int, int]],
        buffers: Buffers,
        memory: Arena = arena,
    ) -> None:
        self.values, self.calls, self.walks = recorder.values, recorder.calls, recorder.walks
        self.layout = result.layout
        self.lasting = lasting
        self.kept = kept
        self.buffers = buffers
        self.memory = memory
        self._homes: Mapping[int, np.ndarray] = {}
        self.avoid: set[int] = set()
        self.waiting = Waiting()
        self._ruined, self.searched = np.zeros(1, np.int64), set[int]()
        self.returned = {leaf.value for leaf in leaves(self.layout) if leaf.kind != "grad"} | {
            d for d, _ in kept.values()
        }
        self.returned = {self.root(number) for number in self.returned}
        self._grads_returned = {leaf.value for leaf in leaves(self.layout) if self._has_gradient(leaf)}
        self._handing = Handing(self)
        self._grads_kept = {g for _, g in kept.values()}
        self._variables = [self._own_variable(number) for number in range(len(self.values))]
        self._awake = False
        self._lower()

    def _has_gradient(self, leaf: Leaf) -> bool:
        """Whether the gradient of a leaf that the step has made is returned, by itself or in its Variable."""
        value = self.values[leaf.value]
        return leaf.kind == "grad" or (leaf.kind == "variable" and value.is_leaf and value.requires_grad)

    def stays(self, number: int) -> bool:
        """Whether the Variable of a recorded value is left as it is."""
        return number in self.lasting or self.is_outside(number)

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
        self._arranged = False
        self.imports: dict[int, Slot] = {}
        self._imported: set[int] = set()
        self.units = lower(self)
        self.schedule = self._schedule()
        self.makers = {number: unit for unit in self.units for number in unit.outputs}
        self.consumers: dict[int, list[Unit]] = {}
        for unit in self.units:
            for number in dict.fromkeys(unit.inputs):
                self.consumers.setdefault(number, []).append(unit)
        self._events = {(id(unit), walk): n for n, (unit, walk) in enumerate(self.schedule)}
        for unit in self.units:
            unit.prepare()
        self._count_uses()
        self.bytes = arrange(self._all_slots())
        self._arranged = True

    def _all_slots(self) -> list[Slot]:
        gradients = [gradient.slot for gradient in self.gradients.values()]
        return [*self.slots.values(), *self.imports.values(), *gradients, *self._extra]

    def _schedule(self) -> list[Event]:
        """Forward units in the order of recording; the way back in that order too where nothing is fused.

        Else in the opposite of the forward order, in which a value's later readers come first: then gradients of
        joined and summed values can share memory.
        """
        plain = all(isinstance(unit, Ordinary) for unit in self.units)
        owner = {number: unit for unit in self.units for number in unit.calls}
        events: list[Event] = []
        waiting = list(self.units)
        for index, walk in enumerate(self.walks):
            while waiting and max(waiting[0].calls) < walk.position:
                events.append(Event(waiting.pop(0), None))
            order = list(dict.fromkeys(owner[number] for number in walk.functions))
            if not plain:
                order.sort(key=lambda unit: -max(unit.calls))
            events.extend(Event(unit, index) for unit in order)
        events.extend(Event(unit, None) for unit in waiting)
        return events

    def _count_uses(self) -> None:
        """Lifetimes: values from where they are made to where they are last read, gradients likewise."""
        end = len(self.schedule)
        for n, (unit, walk) in enumerate(self.schedule):
            for number in (*unit.inputs, *unit.outputs):
                root = self.root(number)
                slot = self.slots.get(root) or self.imports.get(root)
                if slot is not None and (walk is None or unit.reads_back(number)):
                    slot.use(n)
                if walk is not None and number in self.gradients:
                    self.gradients[number].slot.use(n)
            for slot in unit.working_slots(walk):
                slot.use(n)
        for slot in (slot for unit in self.units for slot in unit.lasting_slots()):
            slot.use(end)
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
        for number, gradient in self.gradients.items():
            if number in self._grads_kept or self.values[number].is_leaf:  # the latter is read at the end of a walk
                gradient.slot.use(end)

    # --- what units ask for -----------------------------------------------------------------------------

    def root(self, number: int) -> int:
        """The value that has the array: leaves made on an earlier result are that result."""
        source = self.values[number].source
        while isinstance(source, Alias):
            number = source.value
            source = self.values[number].source
        return number

    def shape(self, number: int) -> tuple[int, int, int, int]:
        """A value's shape as an image's, NCHW; rows of features are images of one pixel."""
        n, c, *size = self.values[number].shape
        h, w = size or (1, 1)
        return n, c, h, w

    def pin(self, number: int) -> None:
        """Keep a value's memory to the end of the step: something outside the plan's sight may look at it."""
        self._pinned.add(self.root(number))
        self._pinned.add(number)

    def make_slot(self, number: int) -> Slot:
        """Memory for a value that a unit makes."""
        return self.slots.setdefault(number, Slot(self.shape(number)))

    def alias_slot(self, number: int, other: int) -> Slot:
        """Let a value have the memory of another."""
        self.slots[number] = slot = self.read_slot(other)
        return slot

    def read_slot(self, number: int) -> Slot:
        """The slot of a value that a unit reads; a copy is made in each replay where it has none by itself."""
        root = self.root(number)
        if root in self.slots:
            return self.slots[root]
        return self.imports.setdefault(root, Slot(self.shape(root)))

    def gradient(self, number: int) -> Gradient:
        """The gradient of a value, in a slot; asked for while preparing, it is made."""
        if number not in self.gradients and not self._arranged:
            self.gradients[number] = Gradient(Slot(self.shape(number)))
        return self.gradients[number]

    def hollow_gradient(self, number: int) -> None:
        """Let a value's gradient only be told of as written: it never stands in memory."""
        self.gradients[number] = Gradient(Slot((0, 1, 1, 1)))

    def same_gradient(self, number: int, other: int) -> None:
        """Let the gradient of a value be found where, in the end, that of another lies."""
        self.gradients[number] = self.gradient(other)

    def ends_as(self, number: int) -> int | None:
        """The last value of the name under which the gradient of this one is kept: a layer in place makes two."""
        return next((data for data, grad in self.kept.values() if grad == number), None)

    def backwards(self, unit: Unit) -> int:
        """The number of walks that a unit takes part in."""
        return sum(not set(unit.calls).isdisjoint(walk.functions) for walk in self.walks)

    def always_together(self, unit: Unit, reader: Unit) -> bool:
        """Whether no walk comes between two units' forward, and each walk takes both back or neither."""
        first, last = max(unit.calls), max(reader.calls)
        both = (set(unit.calls), set(reader.calls))
        return not any(first < walk.position <= last for walk in self.walks) and all(
            len({calls.isdisjoint(walk.functions) for calls in both}) == 1 for walk in self.walks
        )

    def kept_gradients(self) -> set[int]:
        """Values whose gradient is read after the step."""
        return self._grads_kept | self._grads_returned

    def keeps_gradient(self, number: int) -> bool:
        """Whether the gradient of a value is read after the step."""
        return number in self._grads_kept or number in self._grads_returned

    def may_overwrite(self, number: int, reader: Unit) -> bool:
        """Whether a reader may put its result over a value: nobody else needs it any more."""
        root = self.root(number)
        maker = self.makers.get(root)
        if maker is None or root not in self.slots or root in self.returned or self.keeps_gradient(root):
            return False
        alone = all(unit is reader for n, units in self.consumers.items() if self.root(n) == root for unit in units)
        shared = sum(slot is self.slots[root] for slot in self.slots.values()) > 1
        return alone and not shared and not (self.backwards(maker) > 0 and maker.reads_back(root))

    def place_value(self, number: int, whole: int, channel: int) -> bool:
        """Let a value be made as channels of another one; False where it has a place already."""
        slot = self.slots.get(self.root(number))
        if slot is None or slot.inside is not None or slot.root is self.slots[whole].root:
            return False
        slot.place_inside(self.slots[whole], channel)
        return True

    def share_gradient(self, number: int, whole: int, unit: Unit, channel: int = 0) -> bool:
        """Let the gradient of a value lie in that of `whole`, which `unit` makes from it.

        Possible where the unit is the first to hand the value a gradient: what others add comes when the gradient of
        `whole` has been used.
        """
        if not self.wants(number) or number not in self.gradients or unit.inputs.count(number) != 1:
            return False
        slot, target = self.gradients[number].slot, self.gradients[whole].slot
        is_root = any(number == root for walk in self.walks for root, _ in walk.roots)
        if slot.inside is not None or slot is target.root or is_root:
            return False
        if self.keeps_gradient(number) or self.keeps_gradient(whole):
            return False
        for walk in range(len(self.walks)):
            own = self._events.get((id(unit), walk))
            for other in self.consumers.get(number, []):
                event = self._events.get((id(other), walk))
                if other is not unit and event is not None and (own is None or event < own):
                    return False
        slot.place_inside(target, channel)
        return True

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

    def finish(self) -> None:
        """Called before anything but a unit's kernels reads or writes what kernels have computed or will read."""
        self.waiting.finish()

    def array(self, number: int) -> np.ndarray:
        """A value as an array, NCHW."""
        number = self.root(number)
        source = self.values[number].source
        if isinstance(source, Made):
            return self._arrays[number]
        if isinstance(source, Argument):
            return source.of(self.arguments[source.index])
        return self._variables[number].data

    def ready(self, number: int) -> None:
        """Called before a unit reads a slot: copies in what an ordinary operation made, or an argument."""
        root = self.root(number)
        if root in self.imports and root not in self._imported:
            self._imported.add(root)
            self.finish()
            copy_in(self.array(root), self.imports[root])

    def put(self, number: int, array: np.ndarray) -> None:
        """Set a value that an ordinary operation made."""
        self._arrays[number] = array
        self._variables[number].data = array

    def give(self, number: int, gradient: np.ndarray) -> None:
        """A gradient arrives at a value; gradients add up."""
        kept = self.gradients.get(number)
        if kept is not None:
            self.finish()
            copy_in(gradient, kept.slot, accumulate=kept.claim())
            return
        if number not in self._grads:
            self._grads[number] = gradient
            return
        self.finish()
        if number in self._own_sums and self._grads[number].dtype == gradient.dtype:
            self._grads[number] += gradient
        else:
            self._grads[number] = np.asarray(self._grads[number] + gradient)
            self._own_sums.add(number)

    def gradient_place(self, number: int) -> np.ndarray | None:
        """Where an ordinary operation may put a value's gradient before it gives it; None where there is no place."""
        kept = self.gradients.get(number)
        return None if kept is None or kept.written else self._view(number, kept.slot)

    def take_gradient(self, number: int) -> np.ndarray | None:
        """The gradient of a value as an array, for an ordinary operation; None when none arrived."""
        kept = self.gradients.get(number)
        if kept is None:
            found = self._grads.pop(number, None)
            if number in self._grads_kept and found is not None:
                self._saved_grads[number] = found
            return found
        return self._view(number, kept.slot) if kept.written else None

    def _view(self, number: int, slot: Slot) -> np.ndarray:
        """A slot as an array of a value's shape."""
        return slot.view(self.memory.memory).reshape(self.values[number].shape)

    def gradient_buffer(self, number: int) -> np.ndarray:
        """An array for the gradient of a leaf: the one used in every replay, if nobody holds it."""
        variable = self._variables[number]
        shape = self.values[number].shape
        home = self._homes.get(id(variable))
        if home is not None and variable.grad is None and number not in self._grads:
            return home
        if number in self.lasting and variable.grad is None and number not in self._grads:
            return self.buffers.take(variable, shape, self.values[number].dtype)
        return np.empty(shape, self.values[number].dtype)

    def sink(self, number: int) -> np.ndarray | None:
        """Where a leaf's gradient is to be subtracted in this replay instead of going to its `.grad`."""
        return self._sinks.get(id(self._variables[number])) if number in self.lasting else None

    @property
    def ruined(self) -> int:
        """The address of an int64 that kernels let become 1 where numbers they leave in a sink are not finite.

        A unit whose kernels look at all of a sink in its backward adds the sink's id to `searched` each time.
        """
        return int(self._ruined.ctypes.data)

    def finite_sinks(self) -> set[int]:
        """The ids of sinks that the last replay has searched, if it found nothing."""
        return set() if self._ruined[0] else self.searched

    def run(
        self,
        arguments: Sequence[Any],
        sinks: Mapping[int, np.ndarray] | None = None,
        before_walk: Callable[[], None] | None = None,
        homes: Mapping[int, np.ndarray] | None = None,
        store: Store | None = None,
    ) -> Any:
        """Replay the step. Raises Stale where a parameter no longer fits, NoRoom where an operation needs too much.

        sinks: by id of a parameter, C-contiguous float32 arrays from which its gradient may be subtracted at once,
        and then does not appear in `.grad`. before_walk: called before each walk backward; it may raise.
        homes: likewise, arrays whose values are of no more use, in which the gradient is put where that saves a copy;
        `.grad` then is that array. store: see `keep_into`, called before another thread can replay in this memory.
        """

        def replay() -> Any:
            self._sinks, self._homes = sinks or {}, homes or {}
            self._ruined[0], self.searched = 0, set()
            self._before_walk = before_walk
            self._check_leaves()
            self.arguments = arguments
            self._keep_accurate()
            self._wake()
            self._load()
            try:
                self._walk_through()
                result = build(self.layout, self._handing.out)
                if store is not None:
                    self.keep_into(store)
                return result
            finally:
                self._let_go()

        return self.memory.alone(replay)

    def _walk_through(self) -> None:
        walk: int | None = None
        for event in self.schedule:
            if event.walk != walk:
                self.finish()
                self._end_walk(walk)
                walk = event.walk
                self._begin_walk(walk)
            self._do(event)
        self.finish()
        self._end_walk(walk)

    @staticmethod
    def _do(event: Event) -> None:
        try:
            if event.walk is None:
                event.unit.forward()
            else:
                event.unit.backward(event.walk)
        except MemoryError as error:
            raise NoRoom(event.unit.calls[0]) from error

    def keep_into(self, store: Store, finished: bool = True) -> None:
        """Hand the kept values and gradients of the last replay to store(name, value, gradient or None).

        finished: else `gradients` may have some that are only made when their `finish` is called.
        """
        for name, (data, grad) in self.kept.items():
            if finished and grad in self.gradients:
                self.gradients[grad].finish()
            store(name, self.array(data), self.kept_gradient(grad))
        self.arguments = ()

    def kept_gradient(self, number: int) -> np.ndarray | None:
        """The gradient of a kept value after a replay, readable until the next; None where none arrived."""
        gradient = self.gradients.get(number)
        if gradient is not None and gradient.written:
            return self._view(number, gradient.slot)
        return self._saved_grads.get(number)

    def _check_leaves(self) -> None:
        for number in self.lasting:
            value, variable = self.values[number], self._variables[number]
            data = variable.data
            if data.shape != value.shape or data.dtype != value.dtype or variable.requires_grad != value.requires_grad:
                raise Stale

    def _keep_accurate(self) -> None:
        """Lower again without the shortcuts that present parameters do not allow, and with those they allow again.

        The present parameters alone decide: a training that goes on in another process computes the same digits.
        """
        refused = {unit.calls[0] for unit in self.units if not unit.may_stay()}
        if refused != self.avoid:
            self.avoid = refused
            self._lower()

    def _wake(self) -> None:
        """Before the first replay, take the Functions over and withdraw the recorded Variables; bind where needed."""
        self.memory.reserve(self.bytes)
        if self._version == self.memory.version:
            return
        if not self._awake:
            self._take_over()
        self._version = self.memory.version
        base = self.memory.memory.ctypes.data
        for slot in self._all_slots():
            slot.root.base = base
        for number, slot in self.slots.items():
            if isinstance(self.values[number].source, Made):
                self._arrays[number] = self._variables[number].data = self._view(number, slot)
        for unit in self.units:
            unit.forget_scripts()
            unit.bind()

    def _take_over(self) -> None:
        self._awake = True
        for unit in self.units:
            unit.take_over()
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
        self._imported.clear()
        self._grads.clear()  # an interrupted replay may have left some
        self._own_sums.clear()

    def _begin_walk(self, walk: int | None) -> None:
        if walk is None:
            return
        if self._before_walk is not None:
            self._before_walk()
        for gradient in self.gradients.values():
            gradient.clear()
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
        for number, kept in self.gradients.items():
            if kept.written and self.values[number].is_leaf:
                self._grads[number] = copy_out(self._view(number, kept.slot))
        for number, gradient in self._grads.items():
            variable = self._variables[number]
            if variable.grad is not None:
                variable.grad = variable.grad + gradient
            elif gradient is self._homes.get(id(variable)) or self.buffers.own(variable, gradient):
                variable.grad = gradient
            else:
                variable.grad = np.array(gradient, order="C")
            if number in self._grads_kept:
                self._saved_grads[number] = np.asarray(variable.grad)
        self._grads.clear()
        self._own_sums.clear()

    def _let_go(self) -> None:
        """Forget arguments and what ordinary operations made; slots stay where they are."""
        self.waiting.clear()
        self._homes = {}
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

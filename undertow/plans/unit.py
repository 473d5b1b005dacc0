"""What a program is made of: units that run forward and, once per walk, backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from undertow.core.function import Function
from undertow.kernels.cpu.scripts import Script

if TYPE_CHECKING:
    from undertow.plans.arena import Slot
    from undertow.plans.program import Program


class Unit:
    """One operation, or several fused.

    calls: numbers of the recorded calls it stands for. inputs, outputs: numbers of values.
    where: the source line of the first of them.
    """

    def __init__(self, program: Program, calls: tuple[int, ...]) -> None:
        self.program = program
        self.calls = calls
        recorded = [program.calls[n] for n in calls]
        self.functions: list[Function] = [call.function for call in recorded]
        made = [y for call in recorded for y in call.outputs]
        read = [x for call in recorded for x in call.inputs]
        self.inputs = tuple(x for x in read if x not in made)
        self.outputs = tuple(y for y in made if y not in read) or tuple(made[-1:])
        self.where = recorded[0].where
        self._scripts: dict[str, tuple[tuple[int, ...], Script]] = {}
        self._before: dict[str, tuple[tuple[int, ...], Script]] = {}  # gradients may lie in two places in turn

    def play(self, name: str, key: tuple[int, ...], note: Callable[[], None]) -> None:
        """Let kernels run, at the latest in `Program.finish`: those that `note` calls, noted the first time and
        whenever the key is another one.

        name: of this one among the unit's scripts. key: addresses and choices in `note` that differ between replays;
        slots need not be among them. `note` holds the arrays at the addresses, so that they live until then.
        """
        kept = self._scripts.get(name)
        if kept is not None and kept[0] != key:
            last, kept = kept, self._before.get(name)
            self._before[name] = last
            if kept is not None:
                self._scripts[name] = kept
        if kept is None or kept[0] != key:
            self.program.finish()  # noting may move the scratch memory, which scripts that wait have noted
            kept = key, self._noted(name, key, note)
        self.program.waiting.add(kept[1], lambda: self._noted(name, key, note))

    def _noted(self, name: str, key: tuple[int, ...], note: Callable[[], None]) -> Script:
        script = Script(note)
        self._scripts[name] = key, script
        return script

    def forget_scripts(self) -> None:
        """Called when the memory has other addresses."""
        self._scripts.clear()
        self._before.clear()

    def reads_back(self, number: int) -> bool:
        """Whether the backward reads this value again."""
        return True

    def working_slots(self, walk: int | None) -> tuple[Slot, ...]:
        """Slots of its own that it needs in its forward (walk None) or in its backward."""
        return ()

    def lasting_slots(self) -> tuple[Slot, ...]:
        """Slots of its own that it needs after the step, to make what is read then."""
        return ()

    def take_over(self) -> None:
        """Called before the first replay: let go of what the recorded run left on the Functions."""
        for number, function in zip(self.calls, self.functions, strict=True):
            function.inputs, function._outputs = (), ()
            for name in self.program.calls[number].results:
                setattr(function, name, None)

    def may_stay(self) -> bool:
        """Asked before every replay: whether this unit's shortcut is allowed; where not, it is lowered without."""
        return True

    def prepare(self) -> None:
        """Called once all units are known: ask the program for memory."""

    def bind(self) -> None:
        """Called when the memory has its addresses."""

    def forward(self) -> None:
        """From the values of `inputs` to those of `outputs`."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, walk: int) -> None:
        """From the gradients of `outputs` to those of `inputs`."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

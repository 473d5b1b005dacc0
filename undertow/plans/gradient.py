"""A gradient that is handed from unit to unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from undertow.plans.arena import Slot


@dataclass
class Gradient:
    """A gradient in a slot. written: something has arrived in this walk.

    late: puts it there, where only those who look at it after the step need it.
    """

    slot: Slot
    written: bool = False
    late: Callable[[], None] | None = None

    def claim(self) -> bool:
        """Whether to add to what is there; from now on something is."""
        before, self.written = self.written, True
        return before

    def clear(self) -> None:
        """A walk begins: nothing has arrived."""
        self.written, self.late = False, None

    def finish(self) -> None:
        """Called before it is read after the step."""
        late, self.late = self.late, None
        if late is not None:
            late()

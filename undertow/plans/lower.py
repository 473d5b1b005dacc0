"""From recorded calls to units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.plans.ordinary import Ordinary
from undertow.plans.unit import Unit

if TYPE_CHECKING:
    from undertow.plans.program import Program


def lower(program: Program) -> list[Unit]:
    """The units that a program consists of, in the order in which they run."""
    return [Ordinary(program, (number,)) for number in range(len(program.calls))]

"""What depthwise convolutions of a plan do in one pass, and when: both gradients, the batch norm in front of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undertow.plans.program import Program
    from undertow.plans.unit_conv import ConvUnit

_MOST_TAPS = 9  # that meet a pixel of the input: each normalises it anew


def sweeps(program: Program, unit: ConvUnit) -> bool:
    """Whether both gradients of a convolution are made in one pass over the images."""
    return unit.kernel.depthwise and unit.wants_x and unit.wants_w and program.backwards(unit) > 0


def reader(program: Program, unit: ConvUnit) -> ConvUnit | None:
    """The depthwise convolution that normalises what it reads of a unit, whose z then is written nowhere.

    On the way back it takes the sums of the unit's batch norm from the gradient that it makes.
    """
    z = unit.z
    readers = [other for number, units in program.consumers.items() if program.root(number) == z for other in units]
    if unit.norm is None or unit.chain.residual is not None or len(readers) != 1:
        return None
    other = readers[0]
    if type(other) is not type(unit) or other.x != z or other.inputs.count(z) != 1 or not sweeps(program, other):
        return None
    ends = {number for walk in program.walks for end in walk.roots for number in end if number is not None}
    if z in program.returned or z in {program.root(number) for number in ends}:
        return None
    window = other.kernel.layer.window
    few = window.taps <= _MOST_TAPS * min(window.sy, window.kh) * min(window.sx, window.kw)
    return other if few and program.always_together(unit, other) else None

"""Functions that users write: they may keep what they are given, and attributes from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undertow.core.function import Function
from undertow.plans.snapshot import ENGINE_FIELDS, ArrayTaken, parts, same, take


def is_ours(function: Function) -> bool:
    """Whether an operation belongs to this package, whose operations keep nothing that a replay changes."""
    return type(function).__module__.startswith("undertow.")


def changed_in_place(taken: Mapping[str, Any], now: Mapping[str, Any]) -> frozenset[str]:
    """Attributes that are the same objects as before a run, but hold something else."""
    return frozenset(key for key, before in taken.items() if key in now and _differ(before, take(now[key])))


def _differ(before: Any, after: Any) -> bool:
    sums = [[part.checksum for part in parts(one) if isinstance(part, ArrayTaken)] for one in (before, after)]
    return sums[0] != sums[1] or not same(before, after).equal


def set_back(function: Function, before: Mapping[str, Any]) -> None:
    """Let a Function have the attributes that it had before its recorded run, as one made anew would."""
    own = vars(function)
    for key in [key for key in own if key not in before and key not in ENGINE_FIELDS]:
        del own[key]
    own.update(before)

"""Python numbers among a step's arguments that are others in every call: each makes a plan that is never replayed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

_MANY = 16  # values in a row without a replay, from which on a number counts as one that always changes
_MOST = 256  # calls remembered then


class Changing:
    """Watches calls that no plan fits. reason: a line about the arguments that keep changing, once it is known."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._in_vain = 0
        self._last: dict[Hashable, dict[int, float]] = {}
        self._met: OrderedDict[Hashable, None] = OrderedDict()

    def replayed(self) -> None:
        """A plan has been of use."""
        self._in_vain = 0

    def is_worth_recording(self, key: Hashable, arguments: tuple[object, ...]) -> bool:
        """Asked before a new key is recorded. False for the first call with it, where numbers always change."""
        if self.reason is None:
            self._look_at(key, arguments)
            return True
        if key in self._met:
            del self._met[key]
            return True
        self._met[key] = None
        if len(self._met) > _MOST:
            self._met.popitem(last=False)
        return False

    def _look_at(self, key: Hashable, arguments: tuple[object, ...]) -> None:
        numbers = {i: a for i, a in enumerate(arguments) if isinstance(a, (int, float)) and not isinstance(a, bool)}
        if not numbers:
            return
        rest = tuple(part for part in key if not _is_number(part))  # type: ignore[attr-defined]
        before = self._last.get(rest)
        self._last[rest] = numbers
        if before is None:
            return
        self._in_vain += 1
        if self._in_vain >= _MANY:
            others = [str(i) for i, number in numbers.items() if before.get(i) != number]
            self._last.clear()
            self.reason = (
                f"argument {' and '.join(others)} is a Python number that is another in every call, and each makes a "
                "plan of its own: pass it as an array of shape ()"
            )


def _is_number(part: object) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and part[0] in (int, float)

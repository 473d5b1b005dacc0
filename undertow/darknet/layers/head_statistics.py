"""What heads tell about a pass of training."""

from __future__ import annotations

from typing import Protocol


class HeadStatistics(Protocol):
    """Sums over one pass, of whatever kind of head."""

    count: int

    def line(self, layer: int) -> str:
        """Darknet's line for the head with this number."""
        ...

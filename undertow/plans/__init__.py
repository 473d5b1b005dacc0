"""Plans: a step of define-by-run code, recorded, lowered into kernel calls on fixed memory, and replayed."""

from undertow.plans.arena import arena
from undertow.plans.keep import Kept
from undertow.plans.planned import Planned, plan

__all__ = ["Kept", "Planned", "plan", "release_memory"]


def release_memory() -> None:
    """Give the memory that plans share back to the system until the next replay."""
    arena.release()

"""Modes: context managers, local to a thread; nothing here is process-wide.

no_grad       operations are computed but not recorded, so nothing can be differentiated through them
test_mode     layers that behave differently in training (dropout, batch norm) act as at inference
precision     which kernels may be used: "fast", "precise" or "reference"
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from undertow.core.hooks import FunctionHook

Precision = Literal["fast", "precise", "reference"]
PRECISIONS: tuple[Precision, ...] = ("fast", "precise", "reference")


class _Modes(threading.local):
    """The state of one thread; a new thread starts with these values."""

    recording: bool = True
    training: bool = True
    precision: Precision = "fast"
    hooks: tuple[FunctionHook, ...] = ()
    draws: np.random.SeedSequence | None = None


modes = _Modes()


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Compute without recording the graph: less memory, no gradients."""
    before, modes.recording = modes.recording, False
    try:
        yield
    finally:
        modes.recording = before


@contextlib.contextmanager
def enable_grad() -> Iterator[None]:
    """Record again inside a `no_grad` block."""
    before, modes.recording = modes.recording, True
    try:
        yield
    finally:
        modes.recording = before


@contextlib.contextmanager
def test_mode() -> Iterator[None]:
    """Dropout passes everything, batch norm uses its running statistics."""
    before, modes.training = modes.training, False
    try:
        yield
    finally:
        modes.training = before


# Pytest collects functions called test_*; this one is not a test.
test_mode.__test__ = False  # type: ignore[attr-defined]


@contextlib.contextmanager
def train_mode() -> Iterator[None]:
    """Undo `test_mode` inside its block."""
    before, modes.training = modes.training, True
    try:
        yield
    finally:
        modes.training = before


@contextlib.contextmanager
def precision(level: Precision) -> Iterator[None]:
    """Choose the kernels: "fast" (Winograd F(4x4), F(5x5)), "precise" (F(2x2), direct), "reference" (NumPy)."""
    if level not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {level!r}")
    before, modes.precision = modes.precision, level
    try:
        yield
    finally:
        modes.precision = before


@contextlib.contextmanager
def same_draws(entropy: int) -> Iterator[None]:
    """Inside, `fresh_generator` gives the same generators, in the same order, for the same entropy."""
    before, modes.draws = modes.draws, np.random.SeedSequence(entropy)
    try:
        yield
    finally:
        modes.draws = before


def fresh_generator() -> np.random.Generator:
    """The generator of an operation that was given none: another one each time."""
    return np.random.default_rng(None if modes.draws is None else modes.draws.spawn(1)[0])


def is_recording() -> bool:
    """Whether operations are being recorded in this thread."""
    return modes.recording


def is_training() -> bool:
    """Whether layers act as in training in this thread (the default) or as at inference."""
    return modes.training


def current_precision() -> Precision:
    """The precision chosen in this thread."""
    return modes.precision

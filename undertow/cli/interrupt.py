"""Ctrl-C and SIGTERM during a training: finish the pass, save, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from undertow.darknet.learning.trainer import Trainer

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Interruption:
    """Which signal asked to stop, if any."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def status(self) -> int:
        """The exit status that shells expect: 130 after Ctrl-C, 143 after SIGTERM, else 0."""
        return 0 if self.signal is None else 128 + self.signal


@contextlib.contextmanager
def stopping(trainer: Trainer) -> Iterator[Interruption]:
    """Within, the first signal asks the trainer to stop with everything saved; a second one stops at once."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # only the main thread may set handlers
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interruption.signal = signal.Signals(number)
        trainer.request_stop(_NAMES[interruption.signal])
        for one, usual in before.items():
            signal.signal(one, usual)
        text = f"{_NAMES[interruption.signal]}: stopping after this pass and saving; once more stops without saving\n"
        os.write(2, text.encode())  # a print may be under way: streams must not be entered again

    before = {one: signal.getsignal(one) for one in _NAMES}
    for one in _NAMES:
        signal.signal(one, handle)
    try:
        yield interruption
    finally:
        for one, usual in before.items():
            signal.signal(one, usual)

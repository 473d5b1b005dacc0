"""Ctrl-C, SIGTERM and a reader of the output that went away during a training: finish the pass, save, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, cast

from undertow.streams import READER_GONE

if TYPE_CHECKING:
    from undertow.darknet.learning.trainer import Trainer

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_PIPE = READER_GONE - 128


class Interruption:
    """Which signal asked to stop, if any; that of a broken pipe where the output's reader is gone."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def status(self) -> int:
        """The exit status that shells expect: 130 after Ctrl-C, 143 after SIGTERM, 141 without a reader, else 0."""
        return 0 if self.signal is None else 128 + self.signal


class _Guarded:
    """A stream that falls silent when its reader is gone, and tells so once, instead of raising BrokenPipeError."""

    def __init__(self, stream: TextIO, tell: Callable[[], object]) -> None:
        self._stream, self._tell, self._lost = stream, tell, False

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, action: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            action()
        except BrokenPipeError:
            self._lost = True
            self._tell()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def without_reader(tell: Callable[[], object]) -> Iterator[None]:
    """Within, prints go on when whoever read stdout or stderr is gone (`| head`); `tell` is called then."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Guarded(stream, tell)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def stopping(trainer: Trainer) -> Iterator[Interruption]:
    """Within, the first signal asks the trainer to stop with everything saved; a second one stops at once.

    So does the loss of the output's reader: a training that nobody sees any more is not to go on for ever.
    """
    interruption = Interruption()

    def lost() -> None:
        interruption.signal = _PIPE
        trainer.request_stop("the reader of the output is gone")

    with without_reader(lost), _answering_signals(trainer, interruption):
        yield interruption


@contextlib.contextmanager
def _answering_signals(trainer: Trainer, interruption: Interruption) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return

    def handle(number: int, frame: FrameType | None) -> None:
        name = _NAMES[signal.Signals(number)]
        interruption.signal = number
        trainer.request_stop(name)
        for one, usual in before.items():
            signal.signal(one, usual)
        text = f"{name}: stopping after this pass and saving; once more stops without saving\n"
        os.write(2, text.encode())  # a print may be under way: streams must not be entered again

    before = {one: signal.getsignal(one) for one in _NAMES}
    for one in _NAMES:
        signal.signal(one, handle)
    try:
        yield
    finally:
        for one, usual in before.items():
            signal.signal(one, usual)

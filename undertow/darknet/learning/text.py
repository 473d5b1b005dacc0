"""Training a recurrent net on a text: the flow of the C program (examples/rnn.c), with exact resuming."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from undertow.darknet.files.issues import Issue
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.files.textfiles import LARGEST_TEXT, read_text, show, telling_system_errors
from undertow.darknet.layers.layers_recurrent import RecurrentLayer
from undertow.darknet.learning.dataset import Sample
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.darknet.learning.trainer import Trainer
from undertow.data.crand import CounterRandom
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]
# After each pass a stream goes on, or in one of so many cases begins elsewhere.
_STAYS = 64


def read_characters(path: PathLike, inputs: int) -> Array:
    """The bytes of a text as numbers below `inputs`. Raises FormatError for other bytes, and for less than two."""
    file = os.fspath(path)
    with telling_system_errors(file, "read"), open(path, "rb") as stream:
        data = stream.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise FormatError(f"more than {LARGEST_TEXT:,} bytes", file=file, remedy="split the text")
    tokens = np.frombuffer(data, np.uint8).astype(np.int64)
    bad = np.flatnonzero((tokens == 0) | (tokens >= inputs))
    if len(bad):
        offset = int(bad[0])
        remedy = (
            "give a text" if not tokens[offset] else f"set inputs={int(tokens.max()) + 1} or more, 256 for any text"
        )
        reason = f"the byte {tokens[offset]} is no character, the net takes 1 to {inputs - 1}"
        raise FormatError(reason, file=file, offset=offset, remedy=remedy)
    return _long_enough(tokens, file)


def read_tokenized(path: PathLike, inputs: int) -> Array:
    """Numbers below `inputs` with blanks between them. Raises FormatError for anything else."""
    file = os.fspath(path)
    words = read_text(path).split()
    bad = next((w for w in words if not (w.isascii() and w.isdigit() and len(w) < 10 and int(w) < inputs)), None)
    if bad is not None:
        reason = f"'{show(bad)}' is no token, the net takes numbers from 0 to {inputs - 1}"
        raise FormatError(reason, file=file, remedy="give numbers with blanks between them, or leave out -tokenized")
    return _long_enough(np.array([int(word) for word in words], np.int64), file)


def _long_enough(tokens: Array, file: str) -> Array:
    if len(tokens) < 2:
        raise FormatError(f"a text of {len(tokens)} characters", file=file, remedy="give a longer one")
    return tokens


class TextSet:
    """Several streams through a text, which a recurrent net follows from pass to pass.

    A stream is at a place in the text; each pass takes `steps` characters of it, each with the one after it as the
    truth. After a pass it goes on there, in one of 64 cases it begins elsewhere. Where it is in any pass follows from
    (seed, stream, pass) alone. tokens: of the text. size: values of an input, one for each token.
    """

    def __init__(self, file: PathLike, tokens: Array, size: int, streams: int, steps: int, seed: int = 0) -> None:
        self.file, self.tokens, self.size = os.fspath(file), tokens, size
        self.streams, self.steps, self.seed = streams, steps, seed
        # What a run that goes on must find again: the text itself, not only its name.
        self.paths: tuple[str, ...] = (hashlib.blake2b(tokens.tobytes(), digest_size=16).hexdigest(),)
        self._last: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def skipped(self) -> list[Issue]:
        """Nothing of a text is ever skipped."""
        return []

    def jumps(self, stream: int, number: int) -> bool:
        """Whether a stream begins elsewhere in pass `number`."""
        return number == 0 or self._random(stream, number).index(_STAYS) == 0

    def place(self, stream: int, number: int) -> int:
        """Where a stream is at the beginning of pass `number`."""
        last = self._last.get(stream)
        if last is not None and last[0] == number - 1 and not self.jumps(stream, number):
            found = (last[1] + self.steps) % len(self.tokens)
        else:
            jump = number
            while not self.jumps(stream, jump):
                jump -= 1
            random = self._random(stream, jump)
            random.rand()
            start = (random.rand() << 31 | random.rand()) % len(self.tokens)
            found = (start + (number - jump) * self.steps) % len(self.tokens)
        self._last[stream] = number, found
        return found

    def sample(self, number: int, size: tuple[int, int] = (0, 0)) -> Sample:
        """Pass `number` as one sample: image and truth are (steps * streams, size), step by step."""
        places = np.array([self.place(stream, number) for stream in range(self.streams)])
        at = (np.arange(self.steps)[:, None] + places).reshape(-1)
        rows = np.arange(len(at))
        x, y = np.zeros((2, len(at), self.size), np.float32)
        x[rows, self.tokens[at % len(self.tokens)]] = 1
        y[rows, self.tokens[(at + 1) % len(self.tokens)]] = 1
        return Sample(x, y, f"{self.file} (characters from {', '.join(map(str, places[:8]))})")

    def _random(self, stream: int, number: int) -> CounterRandom:
        return CounterRandom(self.seed, number * self.streams + stream)


class RnnTrainer(Trainer):
    """Trains a recurrent network on a TextSet; arguments and errors as for `Trainer`."""

    pictures: TextSet

    def _sizes_vary(self) -> bool:
        return False

    def _samples(self) -> Prefetcher[Sample]:
        start = self._passes_done
        return Prefetcher(lambda number: self.pictures.sample(start + number), workers=1, ahead=2)

    @property
    def _passes_done(self) -> int:
        return self.net.seen // self.net.batch

    def _next(self, samples: Prefetcher[Sample]) -> list[Sample]:
        return [next(samples)]

    def _stacked(self, batch: list[Sample]) -> tuple[Array, Array]:
        return batch[0].image, batch[0].truth

    def _pass(self, batch: list[Sample], iteration: int) -> float:
        cost = super()._pass(batch, iteration)
        if self.net.dialect.carried_states:
            number = self._passes_done
            for stream in range(self.pictures.streams):
                if self.pictures.jumps(stream, number):
                    self._forget(stream)
        return cost

    def _forget(self, stream: int) -> None:
        """States of a stream that begins elsewhere; the CPU program lets them go on (reset_network_state)."""
        for layer in self.net.layers:
            if isinstance(layer, RecurrentLayer) and not self.net.dialect.recurrent_backward:
                layer.reset_sequence(stream)

    def _keeps_weights(self, number: int) -> bool:
        return number % (self.options.save_every or 10000) == 0


def check_text_net(shapes: NetworkShapes) -> None:
    """Raise FormatError when a net cannot learn which character follows which."""
    if shapes.net.channels:
        raise FormatError(
            "a net for texts takes characters, this one takes pictures",
            file=shapes.file,
            line=shapes.line,
            remedy="set inputs=256 in [net], without width=, height= and channels=",
        )
    if shapes.truths != shapes.inputs:
        raise FormatError(
            f"a net for texts gives as many values as it takes, here {shapes.truths} and {shapes.inputs}",
            file=shapes.file,
            line=shapes.output.line,
            layer=shapes.output.index,
            remedy="set inputs=256 in [net], and let the layer before [softmax] give 256",
        )

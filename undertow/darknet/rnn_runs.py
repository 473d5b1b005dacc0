"""Recurrent nets on texts, from files: training, writing on, measuring (examples/rnn.c)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undertow.darknet.dialect import Dialect
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.choice import choose_dialect
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.files.textfiles import lines_of, read_text
from undertow.darknet.layers.layers_loss import Softmax
from undertow.darknet.learning.saver import Output
from undertow.darknet.learning.text import RnnTrainer, TextSet, check_text_net, read_characters, read_tokenized
from undertow.darknet.learning.trainer import TrainingWatcher, TrainOptions
from undertow.darknet.network import Network
from undertow.darknet.runs import base_name, network_to_train
from undertow.data.crand import GlibcRandom, RandomSource
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]
_SMALLEST = 0.0001  # less likely characters are never drawn


def rnn_training(
    cfg: PathLike,
    text: PathLike,
    weights: PathLike | None = None,
    options: TrainOptions | None = None,
    *,
    folder: PathLike = "backup",
    tokenized: bool = False,
    dialect: Dialect | None = None,
    watcher: TrainingWatcher | None = None,
    strict: bool = False,
) -> RnnTrainer:
    """A trainer for a text, ready to `run`.

    text: its bytes are the characters; when tokenized, numbers with blanks between them. folder: for weights. Other
    arguments and errors as for `undertow.darknet.runs.training`.
    """
    options, watcher = options or TrainOptions(), watcher or TrainingWatcher()
    net, begun = network_to_train(
        cfg, weights, options, dialect, watcher, strict, lambda net: check_text_net(net.shapes)
    )
    steps = net.options.time_steps
    tokens = (read_tokenized if tokenized else read_characters)(text, net.inputs)
    streams = TextSet(text, tokens, net.inputs, net.batch // steps, steps, options.seed)
    watcher.note(f"{len(tokens)} characters to learn from, in {streams.streams} streams of {steps} at a time")
    return RnnTrainer(net, streams, Output(Path(folder), base_name(cfg)), options, watcher=watcher).begin_with(begun)


def load_writer(
    cfg: PathLike,
    weights: PathLike | None = None,
    *,
    temperature: float = 1.0,
    dialect: Dialect | None = None,
    strict: bool = False,
) -> Network:
    """The network of a cfg that takes one character at a time, whatever batch and time_steps the cfg has for training.

    temperature: of its softmax layers; below 1 the likeliest characters become likelier.
    Raises FormatError for files that cannot be used.
    """
    config = read_cfg(cfg, strict).with_values(0, {"batch": 1, "subdivisions": 1, "time_steps": 1})
    chosen, why = (dialect, "") if dialect else choose_dialect(config, weights)
    net = Network(config, chosen)
    net.dialect_reason = why
    check_text_net(net.shapes)
    if weights is not None:
        net.load_weights(weights, strict=strict)
    for layer in net.layers:
        if isinstance(layer, Softmax):
            layer.temperature = temperature
    net.replan()
    return net


@dataclass
class Writer:
    """A net that reads a text and goes on with it."""

    net: Network

    def read(self, token: int) -> Array:
        """Take one character; (inputs,): how likely each one is to follow.

        Raises FormatError for one that the net does not know.
        """
        if not 0 <= token < self.net.inputs:
            raise FormatError(
                f"character {token}, but the net takes 0 to {self.net.inputs - 1}",
                file=self.net.config.file,
                remedy="write the beginning in characters of the text that was learned",
            )
        x = np.zeros((1, self.net.inputs), np.float32)
        x[0, token] = 1
        return np.array(self.net.predict(x).reshape(-1), np.float32)

    def generate(self, beginning: Sequence[int], count: int, random: RandomSource) -> Iterator[int]:
        """The beginning, then so many characters that follow it (test_char_rnn)."""
        last = 0
        for place, token in enumerate(beginning):
            if place < len(beginning) - 1:
                self.read(token)
            last = token
            yield token
        for _ in range(count):
            likely = self.read(last)
            last = sample(np.where(likely < np.float32(_SMALLEST), np.float32(0), likely), random)
            yield last

    def surprise(self, text: Iterable[int]) -> Iterator[tuple[int, float]]:
        """Each character of a text after the first, with the binary logarithm of how likely it was."""
        characters = iter(text)
        before = next(characters, None)
        for token in characters:
            assert before is not None
            with np.errstate(divide="ignore"):
                yield token, float(np.log2(np.float64(self.read(before)[token])))
            before = token


def sample(likely: Array, random: RandomSource) -> int:
    """A place drawn by its weight, in the original's float32 steps (utils.c sample_array)."""
    likely = likely.astype(np.float32)
    total = np.cumsum(likely, dtype=np.float32)[-1]
    scaled = likely * np.float32(1 / float(total)) if total else likely
    left = np.subtract.accumulate(np.concatenate([[random.uniform(0, 1)], scaled]).astype(np.float32))[1:]
    below = np.flatnonzero(left <= 0)
    return int(below[0]) if len(below) else len(likely) - 1


def seeded(seed: int, shapes: NetworkShapes) -> GlibcRandom:
    """The C program's random numbers after `srand(seed)` and making this network, whose first weights it draws."""
    uniform = sum(layer.nweights for layer in shapes if layer.type in ("connected", "rnn", "gru", "lstm", "local"))
    normal = sum(layer.nweights for layer in shapes if layer.type in ("convolutional", "deconvolutional", "crnn"))
    random = GlibcRandom(seed)
    random.skip(uniform + (normal + 1) // 2 * 2)  # normal ones come in pairs
    return random


def read_tokens(path: PathLike) -> Callable[[int], bytes]:
    """How tokens are written, from a file with one on each line, followed by a blank; `<NEWLINE>` is a line's end."""
    words = [line if line != "<NEWLINE>" else "\n" for line in lines_of(read_text(path))]

    def written(token: int) -> bytes:
        if token >= len(words):
            raise FormatError(
                f"the net writes token {token}, the file has {len(words)}", file=path, remedy="give the net's own file"
            )
        return f"{words[token]} ".encode("utf-8", "surrogateescape")

    return written

"""`undertow darknet rnn`: train, generate, valid and vec, with the words and flags of the C program."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from undertow.cli.messages import put, say
from undertow.cli.shared import BACKUP_EVERY, COMMON, GPUS_IDLE, computing, dialect_of, introduce, tell_random
from undertow.cli.trainings import options_of, run_training
from undertow.cli.words import Command, Flag, UsageError, Words


def train(words: Words) -> int:
    """rnn train CFG [WEIGHTS]"""
    from undertow.cli.progress import RnnLines
    from undertow.darknet.rnn_runs import rnn_training

    make = partial(
        rnn_training, words["CFG"], words["file"], words["WEIGHTS"] or None, options_of(words, seed=words["srand"]),
        folder=words["backup"], tokenized=words["tokenized"],
    )  # fmt: skip
    return run_training(words, "darknet rnn train", make, ("CFG",), lines=RnnLines)


def generate(words: Words) -> int:
    """rnn generate CFG [WEIGHTS]"""
    from undertow.darknet.rnn_runs import read_tokens, seeded

    written = read_tokens(words["tokens"]) if words["tokens"] else None
    with computing(words):
        writer = _writer(words, words["temp"])
        seed = int(time.time()) if words["srand"] is None else words["srand"]
        if words["srand"] is None:
            say(f"-srand {seed} gives this text again")
        for token in writer.generate(_bytes(words["seed"]), words["len"], seeded(seed, writer.net.shapes)):
            put(written(token) if written else bytes([token % 256]))
        put(b"\n")
    return 0


def valid(words: Words) -> int:
    """rnn valid CFG [WEIGHTS]: a text is read from stdin."""
    with computing(words):
        writer = _writer(words, 1.0)
        for token in _bytes(words["seed"]):
            writer.read(token)
        count, total, spaces = 0, 0.0, 1
        for token, logarithm in writer.surprise(_stdin()):
            count += 1
            spaces += token in b" \n\t"
            total += logarithm
            print(
                f"{count} BPC: {-total / count:4.4f}   Perplexity: {_power(-total / count):4.4f}    "
                f"Word Perplexity: {_power(-total / spaces):4.4f}"
            )
    if not count:
        raise UsageError("rnn valid: no text on stdin", remedy="undertow darknet rnn valid CFG WEIGHTS < text.txt")
    return 0


def vec(words: Words) -> int:
    """rnn vec CFG [WEIGHTS]: lines are read from stdin."""
    with computing(words):
        writer = _writer(words, 1.0)
        for line in sys.stdin.buffer:
            text = line.translate(None, b" \t\n")  # as the original's strip does
            writer.net.reset_state()
            for token in (*_bytes(words["seed"]), *text, ord(" ")):
                writer.read(token)
            values = "".join(f",{value:g}" for value in writer.net.layers[0].output.reshape(-1))
            put(text + values.encode() + b"\n")
    return 0


def _writer(words: Words, temperature: float) -> Any:
    from undertow.darknet.rnn_runs import Writer, load_writer
    from undertow.darknet.runs import base_name

    net = load_writer(
        words["CFG"], words["WEIGHTS"] or None,
        temperature=temperature, dialect=dialect_of(words), strict=words["strict"],
    )  # fmt: skip
    tell_random(words)
    introduce(net)
    say(base_name(words["CFG"]))
    return Writer(net)


def _stdin() -> Iterator[int]:
    for line in sys.stdin.buffer:
        yield from line


def _bytes(text: str) -> bytes:
    return os.fsencode(text)


def _power(exponent: float) -> float:
    return float("inf") if exponent > 1000 else 2.0**exponent


_SEED = Flag("seed", "text", "what the text begins with (two line ends)", "TEXT", "\n\n")
COMMANDS = (
    Command(
        "darknet rnn train",
        ("CFG", "[WEIGHTS]"),
        (
            Flag("file", "text", "the text to learn from (data/shakespeare.txt)", "FILE", "data/shakespeare.txt"),
            Flag("tokenized", "switch", "the file holds numbers with blanks between them"),
            Flag("clear", "switch", "count from iteration 0 again, whatever the weights have seen"),
            Flag("backup", "text", "folder for the weights (backup)", "FOLDER", "backup"),
            Flag("srand", "whole", "of the first weights and of all draws (0)", "N", 0, least=0),
            Flag("save_every", "whole", "keep NAME_N.weights every N iterations (10,000)", "N", least=1),
            Flag("chart", "text", "where the chart goes (chart_NAME.png in the folder of -backup)", "FILE"),
            Flag("plain", "switch", "Darknet's lines on a terminal too"),
            BACKUP_EVERY,
            GPUS_IDLE,
            *COMMON,
        ),
        "learn which character follows which; a NAME.backup given as WEIGHTS goes on exactly",
        train,
    ),
    Command(
        "darknet rnn generate",
        ("CFG", "[WEIGHTS]"),
        (
            _SEED,
            Flag("len", "whole", "how many characters (1000)", "N", 1000, least=0),
            Flag("temp", "number", "temperature: lower is more careful (0.7)", "X", 0.7, least=1e-3),
            Flag("srand", "whole", "seed of the draws; the same gives the same text (the time)", "N", least=0),
            Flag("tokens", "text", "words of the tokens, one on each line; <NEWLINE> is a line's end", "FILE"),
            GPUS_IDLE,
            *COMMON,
        ),
        "write a text",
        generate,
    ),
    Command(
        "darknet rnn valid",
        ("CFG", "[WEIGHTS]"),
        (_SEED, GPUS_IDLE, *COMMON),
        "read a text from stdin and say how well each character was foreseen (bits per character, perplexity)",
        valid,
    ),
    Command(
        "darknet rnn vec",
        ("CFG", "[WEIGHTS]"),
        (_SEED, GPUS_IDLE, *COMMON),
        "read lines from stdin; print each without its blanks, and what the first layer gives after it",
        vec,
    ),
)

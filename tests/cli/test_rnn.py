"""rnn train, generate, valid and vec through the command line."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Answer
from undertow.darknet import load
from undertow.darknet.learning.text import TextSet
from undertow.darknet.learning.trainer import Trainer
from undertow.darknet.rnn_runs import sample
from undertow.data.crand import GlibcRandom

Command = Callable[..., Answer]
CFG = """[net]
inputs={inputs}
batch=3
subdivisions=1
time_steps=4
momentum=0.9
decay=0.0
learning_rate=.5
policy=constant
max_batches={max_batches}

[{kind}]
output=12

[connected]
output={inputs}
activation=linear

[softmax]
"""
TEXT = "the cat sat on the mat\n" * 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    write_cfg(tmp_path)
    return tmp_path


def write_cfg(folder: Path, kind: str = "gru", max_batches: int = 8, inputs: int = 256) -> None:
    (folder / "net.cfg").write_text(CFG.format(kind=kind, max_batches=max_batches, inputs=inputs))


TRAIN = ("darknet", "rnn", "train", "net.cfg")
FILE = ("-file", "text.txt")


def test_train_prints_darknets_lines(undertow: Command, folder: Path) -> None:
    answer = undertow(*TRAIN, *FILE, "-gpus", "0,1")
    assert answer.status == 0
    assert "net\nLearning Rate: 0.5, Momentum: 0.9, Decay: 0, Inputs: 256 12 4\n" in answer.err
    lines = [line for line in answer.err.splitlines() if re.match(r"\d+: ", line)]
    for number, line in enumerate(lines, start=1):
        epochs = f"{number * 12 / len(TEXT):.6f}"
        assert re.fullmatch(
            rf"{number}: \d\.\d{{6}}, \d\.\d{{6}} avg, 0\.500000 rate, \d+\.\d{{6}} seconds, {epochs} epochs", line
        )
    assert len(lines) == 8
    assert (folder / "backup" / "net_final.weights").exists()
    assert "-gpus: there is no GPU here" in answer.err


@pytest.mark.parametrize("dialect", ["exact", "darknet-cpu", "darknet-gpu"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_a_training_that_was_stopped_goes_on_exactly(
    undertow: Command, folder: Path, kind: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that go on from pass to pass included; in `exact` each pass begins with none."""
    write_cfg(folder, kind)
    monkeypatch.setattr("undertow.darknet.learning.text._STAYS", 3)
    words = (*TRAIN, *FILE, "-dialect", dialect)
    assert undertow(*words).status == 0
    final = folder / "backup" / "net_final.weights"
    whole = final.read_bytes()
    final.unlink()
    usual = Trainer._complete

    def stopping(trainer: Trainer, seconds: float, waited: float) -> None:
        usual(trainer, seconds, waited)
        if trainer.iteration == 5:
            trainer.request_stop("test")

    monkeypatch.setattr(Trainer, "_complete", stopping)
    stopped = undertow(*words)
    assert (
        f"to go on: undertow darknet rnn train net.cfg backup/net.backup -file text.txt -dialect {dialect}"
        in stopped.err
    )
    monkeypatch.setattr(Trainer, "_complete", usual)
    assert "going on exactly" in undertow(*words[:4], "backup/net.backup", *words[4:]).err
    assert final.read_bytes() == whole


def test_it_learns_and_writes(undertow: Command, folder: Path) -> None:
    write_cfg(folder, "lstm", max_batches=500)
    assert undertow(*TRAIN, *FILE).status == 0
    words = ("darknet", "rnn", "generate", "net.cfg", "backup/net_final.weights", "-len", 40, "-seed", "the ")
    one = undertow(*words, "-srand", 5, "-temp", 0.2)
    assert one.out.startswith("the ")
    assert len(one.out) == 45
    assert set(one.out) <= set(TEXT)
    assert undertow(*words, "-srand", 5, "-temp", 0.2).out == one.out
    assert undertow(*words, "-srand", 6, "-temp", 3).out != one.out
    assert re.search(r"^-srand \d+ gives this text again$", undertow(*words).err, re.MULTILINE)


def test_tokens(undertow: Command, folder: Path) -> None:
    write_cfg(folder, inputs=4)
    (folder / "numbers").write_text("0 1 2 3 2 1 " * 9)
    (folder / "words").write_text("one\ntwo\nthree\n<NEWLINE>\n")
    assert undertow(*TRAIN, "-file", "numbers", "-tokenized").status == 0
    words = ("darknet", "rnn", "generate", "net.cfg", "backup/net_final.weights", "-len", 9, "-seed", "", "-srand", 1)
    assert set(undertow(*words, "-tokens", "words").out[:-1].split(" ")) <= {"one", "two", "three", "\n", ""}
    (folder / "words").write_text("one\n")
    assert "the file has 1. To mend it: give the net's own file" in undertow(*words, "-tokens", "words").error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TRAIN], "data/shakespeare.txt: cannot be read"),
        ([*TRAIN, *FILE, "-tokenized"], "'the' is no token, the net takes numbers from 0 to 255"),
        ([*TRAIN, "-file", "binary"], "byte 2: the byte 0 is no character"),
        ([*TRAIN, "-file", "short"], "a text of 1 characters"),
        (["darknet", "rnn", "generate", "net.cfg", "-temp", "0"], "-temp 0: at least 0.001"),
        (
            ["darknet", "rnn", "generate", "net.cfg", "-seed", "\N{CAT FACE}"],
            "character 240, but the net takes 0 to 199",
        ),
        (["darknet", "rnn", "validtactic", "net.cfg"], "of the C program is not offered. To mend it: rnn valid"),
    ],
)
def test_what_cannot_be_done_is_told(undertow: Command, folder: Path, words: list[str], message: str) -> None:
    (folder / "binary").write_bytes(b"ab\0c")
    (folder / "short").write_text("a")
    if "generate" in words:
        write_cfg(folder, inputs=200)
    assert message in undertow(*words).error


def test_nets_that_do_not_give_what_they_take_are_refused(undertow: Command, folder: Path) -> None:
    cfg = folder / "net.cfg"
    cfg.write_text(cfg.read_text().replace("output=256", "output=255"))
    assert "a net for texts gives as many values as it takes, here 255 and 256" in undertow(*TRAIN, *FILE).error


class Bytes(io.TextIOWrapper):
    """stdin with these bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))


def test_valid_and_vec(undertow: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("net.cfg", seed=2).save_weights("some.weights")
    monkeypatch.setattr(sys, "stdin", Bytes(b"the cat"))
    lines = undertow("darknet", "rnn", "valid", "net.cfg", "some.weights").out.splitlines()
    assert len(lines) == 6
    bits, perplexity = map(float, re.findall(r"BPC: (\S+)   Perplexity: (\S+)", lines[-1])[0])
    assert perplexity == pytest.approx(2**bits, rel=1e-3)
    monkeypatch.setattr(sys, "stdin", Bytes(b"a cat\na cat\ndog\n"))
    one, again, other = undertow("darknet", "rnn", "vec", "net.cfg", "some.weights").out.splitlines()
    assert one == again != other
    assert one.startswith("acat,")
    assert one.count(",") == 12
    monkeypatch.setattr(sys, "stdin", Bytes(b""))
    assert "no text on stdin" in undertow("darknet", "rnn", "valid", "net.cfg", "some.weights").error


def test_streams_are_the_same_wherever_one_begins() -> None:
    tokens = np.arange(50) % 7
    whole = TextSet("t", tokens, 7, streams=3, steps=4, seed=2)
    passes = [whole.sample(number) for number in range(200)]
    later = TextSet("t", tokens, 7, streams=3, steps=4, seed=2).sample(150)
    assert np.array_equal(passes[150].image, later.image)
    for one in passes[:20]:
        inputs, truth = (array.reshape(4, 3, 7).argmax(axis=2) for array in (one.image, one.truth))
        assert np.array_equal(truth[:-1], inputs[1:])
    jumps = sum(whole.jumps(stream, number) for stream in range(3) for number in range(1, 2000))
    assert 6000 / 64 * 0.6 < jumps < 6000 / 64 * 1.4


def test_drawing_by_weight() -> None:
    random, weights = GlibcRandom(3), np.array([0.1, 0, 0.5, 0.2], np.float32)
    counts = np.bincount([sample(weights, random) for _ in range(4000)], minlength=4) / 4000
    assert np.allclose(counts, weights / 0.8, atol=0.03)


@pytest.mark.parametrize("seed", [1, 77, 2**31 + 5])
@pytest.mark.parametrize("count", [0, 1, 31, 1000, 4097])
def test_numbers_of_the_c_library_can_be_left_out(seed: int, count: int) -> None:
    one, other = GlibcRandom(seed), GlibcRandom(seed)
    for random in (one, other):
        random.rand()
    for _ in range(count):
        one.rand()
    other.skip(count)
    assert [one.rand() for _ in range(80)] == [other.rand() for _ in range(80)]


@pytest.mark.darknet_program
@pytest.mark.skipif(shutil.which("darknet") is None, reason="the original darknet program is not installed")
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_the_original_program_writes_the_same_text(undertow: Command, folder: Path, kind: str) -> None:
    write_cfg(folder, kind, max_batches=60)
    assert undertow(*TRAIN, *FILE).status == 0
    cfg = folder / "one.cfg"
    cfg.write_text(
        (folder / "net.cfg").read_text().replace("batch=3", "batch=1").replace("time_steps=4", "time_steps=1")
    )
    words = ["rnn", "generate", "one.cfg", "backup/net_final.weights", "-srand", "9", "-len", "80", "-seed", "th"]
    theirs = subprocess.run(["darknet", *words], capture_output=True, timeout=60, check=True, env=os.environ).stdout
    assert undertow("darknet", *words).out.encode("utf-8", "surrogateescape") == theirs


def test_a_text_of_a_net_whose_numbers_overflow_is_told(undertow: Command, folder: Path) -> None:
    net = load("net.cfg")
    net.layers[1].weights[...] = np.inf
    net.save_weights("inf.weights")
    answer = undertow("darknet", "rnn", "generate", "net.cfg", "inf.weights", "-len", 5, "-srand", 1)
    assert answer.status == 0
    assert "RuntimeWarning" not in answer.err
    assert sum("the output of the net holds NaN" in line for line in answer.warnings) == 1

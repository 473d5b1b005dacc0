"""Trainings of classifiers and recurrent nets that are killed and gone on with end with the same weights."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_classifier import Pictures
from tests.cli.test_rnn import CFG, TEXT
from tests.darknet.training.killed import fork
from undertow.darknet import TrainOptions, load
from undertow.darknet.classifier_runs import classifier_training
from undertow.darknet.dialect import DARKNET_GPU
from undertow.darknet.learning.trainer import Trainer
from undertow.darknet.rnn_runs import rnn_training

ITERATIONS = 120
OPTIONS = TrainOptions(seed=3, workers=2, backup_every=1)
Begin = Callable[[Path | None], Trainer]


@pytest.fixture(params=["classifier", "lstm"])
def begin(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Makes a trainer that goes on from weights; of the lstm, whose state goes on from pass to pass."""
    monkeypatch.chdir(tmp_path)
    if request.param == "classifier":
        pictures = Pictures(tmp_path / "set")
        pictures.write_cfg(max_batches=ITERATIONS)
        return lambda weights: classifier_training(pictures.data, pictures.cfg, weights, OPTIONS)
    (tmp_path / "net.cfg").write_text(CFG.format(kind="lstm", max_batches=ITERATIONS, inputs=128))
    (tmp_path / "text.txt").write_text(TEXT)
    return lambda weights: rnn_training("net.cfg", "text.txt", weights, OPTIONS, dialect=DARKNET_GPU)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_killed_at_random_moments(begin: Begin) -> None:
    draws = random.Random(5)
    first = begin(None)
    first.run()
    whole = first.output.final.read_bytes()
    for file in first.output.folder.iterdir():
        file.unlink()
    kills, lives = 0, 0
    while not first.output.final.exists():
        lives += 1
        assert lives < 60, "the training does not get on"
        child = fork(lambda: begin(first.output.backup if first.output.backup.exists() else None).run() and None)
        if kills < 20:
            time.sleep(draws.uniform(0.005, 0.06))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status)
    assert kills >= 5
    assert first.output.final.read_bytes() == whole
    assert load(first.net.config.file, first.output.final).batch_number == ITERATIONS

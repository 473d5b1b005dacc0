"""A batch norm that sees one value of each channel cannot be trained, and is told before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.darknet import Network
from undertow.darknet.files.batch_norms import check_batch_norms
from undertow.darknet.files.cfg import parse_cfg
from undertow.errors import ShapeError

RATE = "learning_rate=.1\npolicy=constant\nmax_batches=2\n"
PICTURES = "[net]\nbatch={batch}\nsubdivisions={parts}\nwidth=4\nheight=4\nchannels=3\n" + RATE
POOLED = "[avgpool]\n[connected]\nbatch_normalize=1\noutput=2\n[softmax]\n"
BLURRED = "[convolutional]\nbatch_normalize=1\nfilters=2\nsize=3\nantialiasing=1\nstride=2\n[avgpool]\n[softmax]\n"
TEXTS = (
    "[net]\ninputs=6\nbatch={batch}\ntime_steps={steps}\n" + RATE + "[{kind}]\nbatch_normalize=1\noutput=6\n[softmax]\n"
)


def network(text: str, **values: Any) -> Network:
    return Network(parse_cfg(text.format(**values), "net.cfg"))


def learn(net: Network) -> None:
    images = np.random.default_rng(0).random((net.batch, net.inputs), np.float32)
    net.train_datum(images, np.zeros((net.batch, net.truths), np.float32))


@pytest.mark.parametrize(
    ("text", "values", "place", "remedy"),
    [
        (
            PICTURES + POOLED,
            {"batch": 4, "parts": 4},
            "net.cfg:12: layer 1",
            "give batch=8 or more in [net], or batch_",
        ),
        (
            TEXTS,
            {"kind": "rnn", "batch": 1, "steps": 3},
            "net.cfg:9: layer 0",
            "give batch=2 or more in [net], or batch_",
        ),
        (TEXTS, {"kind": "connected", "batch": 1, "steps": 1}, "net.cfg:9: layer 0", "or more time_steps in [net], or"),
    ],
)
def test_one_value_has_no_variance(text: str, values: dict[str, Any], place: str, remedy: str) -> None:
    net = network(text, **values)
    with pytest.raises(ShapeError) as told:
        learn(net)
    said = str(told.value)
    assert said.startswith(f"{place}: cannot train: batch norm in [")
    assert remedy in said
    assert net.seen == 0
    net.predict(np.ones((net.batch, net.inputs), np.float32))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (PICTURES + POOLED, {"batch": 4, "parts": 2}),
        (PICTURES + BLURRED, {"batch": 1, "parts": 1}),
        (TEXTS, {"kind": "rnn", "batch": 2, "steps": 1}),
        (TEXTS, {"kind": "connected", "batch": 1, "steps": 2}),
    ],
)
def test_two_values_are_enough(text: str, values: dict[str, Any]) -> None:
    net = network(text, **values)
    check_batch_norms(net.config, net.shapes, net.dialect)
    learn(net)
    assert np.isfinite(net.output).all()

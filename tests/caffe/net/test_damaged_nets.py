"""Prototxts with random mistakes: they run, or are refused by one of the project's errors."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow.caffe.net import Net
from undertow.caffe.proto import Message, read_prototxt, walk
from undertow.errors import UndertowError

GOLDENS = Path(__file__).parents[2] / "goldens" / "caffe"
NUMBERS = [0, 1, 2, 3, 5, 7, -1, -2, -3, 100, 255, 10**6, 2**31 - 1, -(2**31)]
REALS = [0.0, 1.0, -1.0, 0.5, 1e30, math.nan, math.inf, 2.5, -0.3]
WORDS = ["x", "y", "h", "op", "", "ReLU", "Split", "t", "Scale", "Pooling", "Softmax", "Concat"]
LARGEST_RUN = 300_000


def mistake(message: Message, rng: random.Random) -> None:
    """Change one field somewhere inside a message."""
    _, part = rng.choice(list(walk(message)))
    names = (part.field_names() if rng.random() < 0.7 else None) or list(part.descriptor.by_name)
    field = part.descriptor.by_name[rng.choice(names)]
    if field.repeated:
        values = getattr(part, field.name)
        if isinstance(values, list):
            _change_list(values, rng, field)
    elif field.message is not None:
        part.mutable(field.name) if rng.random() < 0.5 else part.clear_field(field.name)
    else:
        setattr(part, field.name, _value(field, rng))


def _change_list(values: list[Any], rng: random.Random, field: Any) -> None:
    if values and rng.random() < 0.3:
        del values[rng.randrange(len(values))]
    elif field.message is not None:
        values.extend(value.copy() for value in values[:1])
    elif values and rng.random() < 0.6:
        values[rng.randrange(len(values))] = _value(field, rng)
    else:
        values.append(_value(field, rng))


def _value(field: Any, rng: random.Random) -> Any:
    if field.enum is not None:
        return rng.choice(list(field.enum.numbers))
    kinds = {"string": WORDS, "bool": [True, False], "float": REALS, "double": REALS}
    return rng.choice(kinds.get(field.kind, NUMBERS))


def attempt(message: Message, phase: str) -> bool:
    """Build, and run where that is quick; whether it was accepted."""
    try:
        net = Net(message, phase, fill=False)
        if sum(blob.count for blob in (*net.blob_list, *net.param_blobs)) > LARGEST_RUN:
            return True
        net = Net(message, phase, seed=1)
        for blob in net.blob_list:
            blob.data[...] = np.random.default_rng(0).integers(0, 3, blob.shape)
        net.forward()
        net.backward()
    except UndertowError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::undertow.errors.UndertowWarning")
@pytest.mark.parametrize("seed", range(8))
def test_a_result_or_an_error_of_ours(seed: int) -> None:
    rng = random.Random(seed)
    texts = [read_prototxt(path) for path in sorted(GOLDENS.glob("*/net.prototxt"))]
    files = {"Python", "Data", "HDF5Data", "HDF5Output", "ImageData", "WindowData", "InfogainLoss"}
    texts = [net for net in texts if not files & {layer.type for layer in net.layer}]
    accepted = 0
    for _ in range(120):
        message = rng.choice(texts).copy()
        for _ in range(rng.choice([1, 1, 2, 3])):
            try:
                mistake(message, rng)
            except UndertowError:
                continue  # the field itself does not take the value
        accepted += attempt(message, rng.choice(["TRAIN", "TEST"]))
    assert 10 < accepted < 110

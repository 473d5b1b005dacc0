"""What the page is told of a Caffe detector: default boxes that answer, pulls of each term, boxes found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.scope.networks import SSD, SSD_TEST
from undertow.scope.document import document
from undertow.scope.recording import Request, record


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def ssd_heads(folder: Path, *, code: str = "CENTER_SIZE", mining: str = "MAX_NEGATIVE", dialect: str = "exact") -> Any:
    """The heads of a small SSD that saw one picture with two objects, and the norms of what its loss sends back."""
    net = written(folder, "ssd.prototxt", SSD.replace("CENTER_SIZE", code).replace("MAX_NEGATIVE", mining))
    rng = np.random.default_rng(0)
    objects = [[0, 1, 0, 0.1, 0.2, 0.4, 0.5, 0], [0, 2, 0, 0.55, 0.6, 0.95, 0.9, 0]]
    np.savez(
        folder / "data.npz",
        data=rng.random((1, 3, 32, 32), np.float32),
        label=np.array(objects, np.float32).reshape(1, 1, -1, 8),
    )
    run = record(Request(net, data=folder / "data.npz", dialects=(dialect,))).runs[0]
    assert run.heads is not None
    loss = next(layer.index for layer in run.trace.layers if layer.type == "MultiBoxLoss")
    return run.heads, sorted(run.sent[loss].values())[-2:]


@pytest.mark.parametrize("code", ["CENTER_SIZE", "CORNER"])
@pytest.mark.parametrize("mining", ["MAX_NEGATIVE", "NONE"])
def test_the_pulls_of_an_ssd_are_what_its_loss_sends_back(tmp_path: Path, code: str, mining: str) -> None:
    heads, sent = ssd_heads(tmp_path, code=code, mining=mining)
    totals: dict[str, float] = {}
    for head in heads.heads:
        for name, value in head.totals.items():
            totals[name] = math.hypot(totals.get(name, 0.0), value)
    places = math.hypot(*(value for name, value in totals.items() if not name.startswith("classes")))
    classes = math.hypot(totals["classes of objects"], totals["classes of background"])
    assert sorted([places, classes]) == pytest.approx(sent, rel=1e-5)


def test_an_ssd_tells_which_default_box_answers_and_what_is_wanted_of_it(tmp_path: Path) -> None:
    heads, _ = ssd_heads(tmp_path)
    assert heads.word == "default box"
    assert heads.truths[:, 4].tolist() == [1, 2]
    assert [head.grid for head in heads.heads] == [(8, 8), (4, 4)]
    ones = [(head, one) for head in heads.heads for one in head.responsible]
    assert {one.truth for _, one in ones} == {0, 1}
    for head, one in ones:
        rows, columns = head.grid
        # A default box stands in the middle of its cell, and what it is asked for is the truth itself.
        assert one.anchor[:2] == pytest.approx(((one.column + 0.5) / columns, (one.row + 0.5) / rows))
        assert one.wanted == pytest.approx(heads.truths[one.truth, :4], abs=1e-5)
        for term in one.terms:  # SmoothL1: the pull is the difference, cut off at 1, times 1 / number of matches
            asked = np.clip(term.target - term.output, -1, 1) * heads.unit
            assert term.pull == pytest.approx(asked, abs=1e-6)
        for term in one.classes:  # softmax: what is wanted minus what is there
            assert term.pull == pytest.approx((term.target - term.output) * heads.unit, abs=1e-6)
        assert {term.name for term in one.classes if term.target == 1} == {f"{heads.truths[one.truth, 4]:.0f}"}
    assert heads.unit == pytest.approx(1 / len(ones))


def test_detections_of_an_ssd_are_shown_without_a_loss(tmp_path: Path) -> None:
    net = written(tmp_path, "ssd.prototxt", SSD_TEST)
    Image.new("RGB", (40, 30), "green").save(tmp_path / "green.png")
    recording = record(Request(net, data=tmp_path / "green.png"))
    heads = recording.runs[0].heads
    assert heads is not None
    assert heads.heads == []
    assert len(heads.found) > 0
    assert (heads.found[:, 5] > 0.05).all()
    assert recording.picture is not None
    assert recording.picture[1].mean() > 0.4  # green, as it is, whatever the net gets
    assert document(recording, live=False)["runs"][0]["heads"]["heads"] == []

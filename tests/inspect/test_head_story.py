"""The story of a detector's loss: its own boxes, with the delta that the layer keeps and what it sends back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.scope.networks import DETECTOR, GRID, REGION
from undertow.darknet import DIALECTS
from undertow.inspect.batches import darknet_batch
from undertow.inspect.darknet_run import open_network, run_darknet, walk_darknet
from undertow.inspect.explain import explain
from undertow.inspect.story import story

NETS = {"yolo": DETECTOR, "region": REGION, "detection": GRID, "softmax": GRID + "softmax=1\n"}


def rows_of(lines: list[str]) -> list[dict[str, float]]:
    """The tables of a story: a dict for each row, under "of" whether its box answers for an object."""
    found: list[dict[str, float]] = []
    answers, head = False, []
    for line in lines:
        if line.startswith("    image "):
            answers = "answers for an object" in line
        elif line.startswith("      value "):
            head = ["x", "y", "target", "weight", "delta", "gx", "by differences"]
        elif line.startswith("      ") and head and "more" not in line:
            words = line.split()
            numbers = [float("nan") if word == "-" else float(word) for word in words[-len(head) :]]
            found.append(dict(zip(head, numbers, strict=True), answers=answers))
    return found


@pytest.mark.parametrize("dialect", ["exact", "darknet-cpu", "darknet-gpu"])
@pytest.mark.parametrize("kind", list(NETS))
def test_deltas_and_gradients_are_those_of_the_run(kind: str, dialect: str, tmp_path: Path) -> None:
    cfg = tmp_path / "net.cfg"
    cfg.write_text(NETS[kind])
    found = explain(cfg, dialect=dialect)
    lines = story(found, -1)
    rows = rows_of(lines)
    assert any(row["answers"] for row in rows)
    assert not all(row["answers"] for row in rows)
    sent = not (kind == "region" and dialect == "darknet-cpu")
    for row in rows:
        assert row["delta"] == pytest.approx(row["weight"] * (row["target"] - row["y"]), abs=1e-4)
        if sent:
            assert row["gx"] == pytest.approx(row["by differences"], abs=2e-5)
        else:
            assert np.isnan(row["gx"])

    net = open_network(cfg, dialect=DIALECTS[dialect])
    run = run_darknet(net, darknet_batch(net, None, None, count=1))
    walk_darknet(run)
    head = net.layers[-1]
    deltas = np.asarray(head.delta).reshape(-1)
    assert all(np.abs(deltas - row["delta"]).min() < 1e-5 for row in rows)
    told = "\n".join(lines)
    straight = dialect != "exact"
    assert ("without dy/dx" in told) == straight
    assert ("gx = -gloss delta" in told) == straight
    assert ("C program's CPU code sends none back from [region]" in told) == (not sent)


@pytest.mark.parametrize(("section", "operation"), [("softmax", "darknet_softmax"), ("logistic", "darknet_logistic")])
@pytest.mark.parametrize("dialect", ["exact", "darknet-cpu"])
def test_losses_of_classifiers_in_the_straight_through_dialect(
    section: str, operation: str, dialect: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    cfg = tmp_path / "net.cfg"
    cfg.write_text(f"[net]\ninputs=4\nbatch=1\n\n[connected]\noutput=3\nactivation=linear\n\n[{section}]\n")
    found = explain(cfg, dialect=dialect)
    told = "\n".join(story(found, -1))
    straight = dialect != "exact"
    assert ("gx = -gloss delta + gp, delta = truth - p" in told) == straight
    assert ("Darknet keeps delta = truth - p" in told) == straight
    (call,) = [call for call in found.find(-1).calls if call.name == operation]
    p, truth, gp = call.outputs[0].data, call.operands[1].data, rng.standard_normal((1, 3)).astype(np.float32)
    gx = call.function.backward(gp, np.float32(2))[0]
    assert np.allclose(gx, 2 * (p - truth) + gp, atol=1e-6) == straight


def test_scores_that_hang_together_are_shown_on_a_sample(tmp_path: Path) -> None:
    cfg = tmp_path / "net.cfg"
    cfg.write_text(REGION + "background=1\n")
    told = "\n".join(story(explain(cfg), -1))
    assert "in numbers, a sample of the operation region_loss" in told
    assert "of this layer:" not in told


def test_a_head_without_an_object_of_its_own_says_so(tmp_path: Path) -> None:
    cfg = tmp_path / "net.cfg"
    cfg.write_text(
        DETECTOR.replace("mask=0,1,2", "mask=0").replace("filters=21", "filters=7").replace("8,8,", "900,900,")
    )
    lines = story(explain(cfg), -1)
    assert not any("which answers for an object" in line for line in lines)
    assert any("where no object is" in line for line in lines)
    assert "    no object of this batch belongs to this layer: other heads answer for them" in lines

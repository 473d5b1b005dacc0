"""MultiBoxLoss is told as one layer, with the numbers that it sent back."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.scope.networks import SSD
from undertow.caffe.layers_multibox import MultiBoxLoss
from undertow.inspect.caffe_inputs import fill_inputs
from undertow.inspect.caffe_run import open_net, run_caffe
from undertow.inspect.explain import explain
from undertow.inspect.story import story

VARIANTS = {
    "": ("smooth L1 and softmax", ["clip(d, -1, 1)", "softmax(s) - onehot", "at most 3 for each matched box"]),
    "loc_loss_type: L2": ("half squares", ["e(d) = d^2 / 2\n", "gp = d gy / divisor"]),
    "conf_loss_type: LOGISTIC": ("sigmoids", ["sigmoid(s) - onehot", "log(1 + exp(-|s|))"]),
    "mining_type: NONE": ("no mining", ["none: every box that is not matched counts as background"]),
    "mining_type: HARD_EXAMPLE sample_size: 8": ("hard examples", ["the 8 boxes with the largest loss count"]),
    "loc_weight: 2": ("a weight", ["2 clip(d, -1, 1) gy / divisor"]),
    "encode_variance_in_target: true": ("variance", ["d = (p - t) / variance", "dd/dp = 1 / variance"]),
    "code_type: CORNER": ("corners", ["corner of the object - corner of the default box", "left"]),
    "match_type: BIPARTITE": ("one each", ["the best pairs first"]),
}


def written(folder: Path, options: str, loss_param: str = "") -> Path:
    text = SSD
    for name in re.findall(r"(\w+):", options):
        text = re.sub(rf"(multibox_loss_param .*){name}: \w+", r"\1", text)
    text = text.replace("multibox_loss_param {", f"{loss_param} multibox_loss_param {{ {options}")
    (folder / "ssd.prototxt").write_text(text)
    return folder / "ssd.prototxt"


def numbers(lines: list[str], head: str) -> list[list[float]]:
    """The last two columns of the tables with this head: the gradient, and central differences."""
    found, inside = [], False
    for line in lines:
        words = line.split()
        inside = words[0] == head if words and words[0] in ("offset", "score") else inside and line.startswith("      ")
        if inside and words[0] != head and words[0] != "and":
            found.append([float(word) for word in words[-2:]])
    return found


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("dialect", ["exact", "caffe"])
def test_gradients_are_the_slopes_of_the_formula(options: str, dialect: str, tmp_path: Path) -> None:
    lines = story(explain(written(tmp_path, options), dialect=dialect), "loss")
    told = "\n".join(lines)
    for text in VARIANTS[options][1]:
        if dialect == "exact":
            assert text in told
    scores, offsets = numbers(lines, "score"), numbers(lines, "offset")
    assert scores
    assert all(abs(g - slope) < 2e-5 for g, slope in scores)
    assert any(g != 0 for g, _ in scores)
    if "variance" in options and dialect == "caffe":
        assert "leaves out the division by the variance on the way back" in told
        assert any(abs(g - slope) > 1e-3 for g, slope in offsets)
    else:
        assert all(abs(g - slope) < 2e-5 for g, slope in offsets)


def test_counts_and_divisors_are_those_of_the_layer(tmp_path: Path) -> None:
    path = written(tmp_path, "", "loss_param { normalization: BATCH_SIZE }")
    net, has_loss = open_net(path, dialect="exact", usual=1)
    run = run_caffe(net, fill_inputs(net, None), has_loss)
    index = next(i for i, layer in enumerate(net.layers) if isinstance(layer, MultiBoxLoss))
    told = "\n".join(run.layers[index].story)
    scores = np.asarray(net.bottoms(index)[1].diff).reshape(-1, 3)
    offsets = np.asarray(net.bottoms(index)[0].diff).reshape(-1, 4)
    matched = int(np.any(offsets != 0, axis=1).sum())
    count = int(np.any(scores != 0, axis=1).sum())
    assert f"{matched} of 160 default boxes answer for 3 objects, {count - matched} count as background" in told
    assert "divisor   1: the pictures of the batch (normalization BATCH_SIZE)" in told
    assert f"y = {run.loss:.6g}" in told
    assert f"score gradient 1x480 = (softmax(s) - onehot(label)) gy / divisor at {count} boxes, else 0" in (
        run.layers[index].formula
    )


def test_objects_that_are_not_there_leave_nothing_to_count(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    net, has_loss = open_net(path, dialect="exact", usual=1)
    fill_inputs(net, None)
    net.blobs["label"].data[...] = -1
    run = run_caffe(net, "", has_loss)
    told = "\n".join(run.layers[-1].story)
    assert "0 of 160 default boxes answer for 0 objects" in told
    assert "no box of this batch counts, y = 0" in told

"""What the page about one network is told: numbers of trace, formulas of explain, addends, folds, maps, boxes."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import json
import math
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.inspect.yolov3 import yolov3_cfg
from tests.scope.networks import BRANCHES, DETECTOR, GRID, LENET, REGION, RESIDUAL, ROWS
from undertow.cli import main
from undertow.errors import FormatError, ShapeError, UndertowError
from undertow.inspect.explain import explain
from undertow.inspect.report import trace_rows
from undertow.inspect.story import story
from undertow.inspect.trace_nets import trace_caffe, trace_darknet
from undertow.scope.app import routes_for
from undertow.scope.assets import VENDOR
from undertow.scope.document import document
from undertow.scope.folding import Fold, branches, folds, joined
from undertow.scope.heads import told_classes
from undertow.scope.pictures import chosen_channels, sheet
from undertow.scope.recording import BINS, Request, histogram, record


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def decoded(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",", 1)[1]))))


@pytest.fixture
def residual(tmp_path: Path) -> str:
    return written(tmp_path, "residual.cfg", RESIDUAL)


def test_numbers_are_those_of_trace_in_every_dialect(residual: str) -> None:
    told = document(record(Request(residual)), live=False)
    assert [run["name"] for run in told["runs"]] == ["exact", "darknet-cpu"]
    for run in told["runs"]:
        traced = trace_darknet(residual, dialect=run["name"])
        assert [tuple(layer["cells"]) for layer in run["layers"]] == trace_rows(traced)
        assert [layer["gradient"]["norm"] for layer in run["layers"]] == pytest.approx(
            [layer.gradient.norm for layer in traced.layers], nan_ok=True
        )
        assert run["loss"] == traced.loss


def test_formulas_and_stories_are_those_of_explain(residual: str) -> None:
    told = document(record(Request(residual, batch=2)), live=False)
    explained = explain(residual, batch=2)
    assert [layer["formula"] for layer in told["layers"]] == [row.formula for row in explained.rows[::-1]]
    assert told["layers"][1]["story"] == story(explained, 1)


def test_each_dialect_tells_its_own_formulas_and_reasons(residual: str) -> None:
    found = document(record(Request(residual, dialects=("exact", "darknet-cpu"))), live=False)
    exact, darknet = explain(residual, batch=2), explain(residual, batch=2, dialect="darknet-cpu")
    for row, before in zip(darknet.rows, exact.rows, strict=True):
        told = found["runs"][1]["layers"][row.index]["told"]
        if (row.formula, row.skipped) == (before.formula, before.skipped):
            assert told is None
        else:
            assert (told["formula"], told["skipped"]) == (row.formula, row.skipped)
            assert told["story"] == story(darknet, row.index)
    reasons = [text for layer in found["runs"][1]["layers"] if layer["told"] for text in layer["told"]["skipped"]]
    assert "gradient to layer 0 lost: layer 1 (1x1 convolution) overwrites it, dialect darknet-cpu" in reasons
    assert all(layer["told"] is None for layer in found["runs"][0]["layers"])


def test_addends_are_told_and_the_lost_one(residual: str) -> None:
    exact, cpu = record(Request(residual)).runs
    # Layer 0 is read by the convolution after it and by the shortcut; the C program loses what the latter sends.
    assert exact.sent[1][0] > 0
    assert exact.sent[3][0] == pytest.approx(exact.trace.layers[3].gradient.norm)
    assert cpu.sent[1][0] > 0
    assert cpu.sent[3][0] == 0
    assert cpu.trace.layers[0].gradient.norm == pytest.approx(cpu.sent[1][0])
    # The sum of two vectors is no longer than both together, and no shorter than their difference.
    one, two, total = exact.sent[1][0], exact.sent[3][0], exact.trace.layers[0].gradient.norm
    assert abs(one - two) <= total <= one + two


def test_addends_of_a_caffe_net_meet_where_the_split_reads(tmp_path: Path) -> None:
    net = written(tmp_path, "branches.prototxt", BRANCHES)
    found = record(Request(net))
    names = {row.name: row.index for row in found.rows}
    split = next(row.index for row in found.rows if row.type == "Split")
    conv, relu, both = names["conv1"], names["relu"], names["sum"]
    assert found.aside == {split}
    assert found.reads[relu] == [conv]
    assert found.reads[both] == [conv, relu]
    run = found.runs[0]
    traced = trace_caffe(net)
    assert run.sent[both][conv] == pytest.approx(traced.layers[both].gradient.norm)
    assert run.sent[relu][conv] < run.sent[both][conv]
    assert traced.layers[conv].gradient.norm <= run.sent[relu][conv] + run.sent[both][conv]


def test_residual_blocks_of_yolov3_fold_and_every_path_is_told(tmp_path: Path) -> None:
    cfg = written(tmp_path, "yolov3.cfg", yolov3_cfg(2))
    recording = record(Request(cfg, size=64, batch=1))
    told = document(recording, live=False)
    run = recording.runs[0]
    for layer in range(105):
        arriving = [sent[layer] for sent in run.sent.values() if layer in sent]
        gradient = run.trace.layers[layer].gradient.norm
        if len(arriving) == 1 and not math.isnan(gradient):
            assert arriving[0] == pytest.approx(gradient, rel=1e-6), layer
    residual = [fold for fold in told["folds"] if fold["kinds"] == ["conv 1x1", "conv 3x3", "shortcut"]]
    assert [fold["times"] for fold in residual] == [2, 8, 8, 4]
    lost = [path for path in told["comparisons"][0]["paths"] if path["lost"]]
    assert len(lost) == 23
    assert all(path["type"] == "shortcut" and path["one"] > 0 and path["other"] == 0 for path in lost)


def test_branches() -> None:
    # 0 -> three times (conv, flat) -> 7 joins them; 9 joins one of another kind, and two that 8 reads too.
    reads = {0: [], 1: [0], 2: [1], 3: [0], 4: [3], 5: [0], 6: [5], 7: [2, 4, 6], 8: [7], 9: [7, 8]}
    kinds = {i: "conv" if i in (1, 3, 5) else "flat" if i in (2, 4, 6) else str(i) for i in reads}
    assert branches(reads, kinds) == [[[1, 2], [3, 4], [5, 6]]]
    assert branches(reads, kinds | {5: "pool"}) == []
    # Joins of joins are no branches: they gather what should be seen.
    gathering = {0: [], **{i: [0] for i in range(1, 10)}, 10: [1, 2, 3], 11: [4, 5, 6], 12: [7, 8, 9], 13: [10, 11, 12]}
    found = branches(gathering, dict.fromkeys(gathering, "x"))
    assert found == [[[1], [2], [3]], [[4], [5], [6]], [[7], [8], [9]]]


def test_branches_that_leave_from_the_same_layers_are_joined_to_heads() -> None:
    # Three layers, 1 to 3; of each a branch (4, 5), (7, 8), (10, 11) for 13 and one layer for 14.
    reads = {1: [0], 2: [1], 3: [2], 4: [1], 5: [4], 6: [1], 7: [2], 8: [7], 9: [2], 10: [3], 11: [10], 12: [3],
             13: [5, 8, 11], 14: [6, 9, 12]}  # fmt: skip
    groups = [[[4, 5], [7, 8], [10, 11]], [[6], [9], [12]]]
    assert joined(groups, reads) == [[[4, 5, 6], [7, 8, 9], [10, 11, 12]]]
    assert joined(groups, reads | {12: [1]}) == groups


def test_blocks_begin_with_what_has_weights() -> None:
    # The end of a block stands before the first whole one.
    signs = "bcabcabcabc"
    assert folds(signs, [sign == "a" for sign in signs]) == [Fold(2, 3, 3)]
    assert folds(signs) == [Fold(0, 3, 3)]
    # Not where it would be repeated less often.
    assert folds("bcabca", [sign == "a" for sign in "bcabca"]) == [Fold(0, 3, 2)]


def _chain(*widths: int) -> str:
    """Convolution, BatchNorm, Scale and ReLU for each width."""
    text, below = (
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n',
        "data",
    )
    for number, width in enumerate(widths):
        name = f"c{number}"
        text += f'''layer {{ name: "{name}" type: "Convolution" bottom: "{below}" top: "{name}"
          convolution_param {{ num_output: {width} kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "{name}/bn" type: "BatchNorm" bottom: "{name}" top: "{name}" }}
        layer {{ name: "{name}/scale" type: "Scale" bottom: "{name}" top: "{name}" }}
        layer {{ name: "{name}/relu" type: "ReLU" bottom: "{name}" top: "{name}" }}
        '''
        below = name
    return text


def test_long_nets_fold_by_kinds_where_sizes_differ(tmp_path: Path) -> None:
    short = document(record(Request(written(tmp_path, "short.prototxt", _chain(2, 3, 4)))), live=False)
    assert short["folds"] == []  # it is read as it is
    net = written(tmp_path, "long.prototxt", _chain(*range(2, 13)))
    (fold,) = document(record(Request(net, dialects=("exact",))), live=False)["folds"]
    assert (fold["times"], fold["size"]) == (11, 4)
    assert fold["kinds"] == ["Convolution 3x3", "BatchNorm", "Scale", "ReLU"]


@pytest.mark.parametrize(
    ("signs", "found"),
    [
        ("aabb", []),
        ("abab", [Fold(0, 2, 2)]),
        ("xababababy", [Fold(1, 2, 4)]),
        ("aaaa", [Fold(0, 1, 4)]),
        ("abcabcdede", [Fold(0, 3, 2), Fold(6, 2, 2)]),
        ("", []),
    ],
)
def test_folds(signs: str, found: list[Fold]) -> None:
    assert folds(signs) == found


def test_histograms_count_every_finite_value(rng: np.random.Generator) -> None:
    values = rng.standard_normal(1000).astype(np.float32)
    found = histogram(values)
    assert found.counts.sum() == 1000
    assert len(found.counts) == BINS
    assert found.low <= values.min() < 0 < values.max() <= found.high
    edges = np.linspace(found.low, found.high, BINS + 1)
    assert np.abs(edges).min() < 1e-6 * (found.high - found.low)
    values[:3] = np.nan, np.inf, -np.inf
    assert histogram(values).counts.sum() == 997
    assert histogram(np.zeros(5, np.float32)).counts.sum() == 5


_TOP = float(np.finfo(np.float64).max)
ONE, HUGE = np.float32(1), np.float32(3e38)


@pytest.mark.parametrize(
    "values",
    [
        np.array([ONE, np.nextafter(ONE, HUGE)]),  # one step of float32 apart
        np.array([1 - 1e-7, 1, 1], np.float32),  # a saturated sigmoid
        np.full(7, 2e5, np.float32),
        np.full(7, -3e38, np.float32),
        np.array([-3e38, 3e38, 1], np.float32),
        np.array([0, 1e-45, 5e-45], np.float32),
        np.array([-1e-45, 4e-45], np.float32),
        np.array([1.0, np.nextafter(1.0, 2)]),
        np.full(3, 1e300),
        np.array([0, 5e-324]),
        np.array([-5e-324, 1e-323]),
        np.array([-_TOP, 0, _TOP]),
        np.array([_TOP, _TOP]),
        np.array([1, 2, 3], np.float16),
        np.array([np.nan, np.inf], np.float32),
        np.array([-0.3, 1e-30, 0.7]) * 1e-310,
    ],
)
def test_histograms_of_any_range(values: np.ndarray) -> None:
    """Ranges of a few steps of the precision, constants, subnormal and the largest numbers."""
    with np.errstate(over="ignore"):
        found = histogram(values)
    finite = values[np.isfinite(values)]
    assert found.counts.sum() == finite.size
    assert np.isfinite([found.low, found.high]).all()
    if finite.size:
        assert found.low <= finite.min() <= finite.max() <= found.high


def test_histogram_tells_apart_what_the_precision_can() -> None:
    """Steps of float32 near 1 lie in bins of their own."""
    values = np.array([1, 1 + 2.0**-23, 1 + 2.0**-22, 1 + 3 * 2.0**-23], np.float32)
    assert sorted(histogram(values).counts)[-4:] == [1, 1, 1, 1]


def test_sheets_hold_the_chosen_maps(rng: np.random.Generator) -> None:
    maps = rng.standard_normal((1, 20, 8, 6)).astype(np.float32)
    maps[0, 3] *= 50
    channels = chosen_channels(maps, None)
    assert len(channels) == 16
    assert 3 in channels
    found = sheet(maps, channels)
    pixels = decoded(found.address).astype(float)
    assert pixels.shape == (8, 16 * 6)
    place = channels.index(3)
    back = (pixels[:, place * found.stride : place * found.stride + 6] - 128) / 127 * found.limit
    assert np.abs(back - maps[0, 3]).max() < 0.6 * found.limit / 127


def test_thumbnails_are_small(tmp_path: Path) -> None:
    cfg = written(tmp_path, "net.cfg", RESIDUAL.replace("width=16", "width=160").replace("height=16", "height=160"))
    told = document(record(Request(cfg)), live=False)
    for run in told["runs"]:
        for layer, numbers in zip(told["layers"], run["layers"], strict=True):
            assert len(layer["channels"]) <= 16
            for maps in numbers["maps"].values():
                assert maps in (None, "same") or max(maps["size"]) <= 64


def test_more_dialects_show_fewer_channels(tmp_path: Path) -> None:
    cfg = written(tmp_path, "net.cfg", RESIDUAL.replace("filters=8", "filters=32"))
    names = ("exact", "darknet-cpu", "darknet-gpu")
    for count, most in ((1, 16), (2, 16), (3, 10)):
        told = document(record(Request(cfg, dialects=names[:count])), live=False)
        assert max(len(layer["channels"]) for layer in told["layers"]) == most


def test_a_detector_tells_who_answers_and_how_hard_each_term_pulls(tmp_path: Path) -> None:
    cfg = written(tmp_path, "detector.cfg", DETECTOR)
    truth = np.array([[0.3, 0.6, 0.3, 0.3, 1.0]], np.float32)
    np.savez(tmp_path / "data.npz", images=np.full((1, 3, 64, 64), 0.5, np.float32), truth=truth)
    run = record(Request(cfg, data=tmp_path / "data.npz")).runs[0]
    assert run.heads is not None
    (head,) = run.heads.heads
    (one,) = head.responsible
    # 0.3 of 32 cells is the tenth column; a box of 19 pixels is most like the anchor of 20.
    assert (one.row, one.column, one.number, one.truth) == (19, 9, 1, 0)
    assert one.wanted == pytest.approx(truth[0, :4], abs=1e-5)
    assert one.anchor == pytest.approx((9.5 / 32, 19.5 / 32, 20 / 64, 20 / 64))
    weight = 2 - 0.3 * 0.3
    terms = {term.name: term for term in one.terms}
    assert terms["x"].target == pytest.approx(0.3 * 32 - 9, abs=1e-5)
    assert terms["w"].target == pytest.approx(math.log(0.3 * 64 / 20), abs=1e-5)
    for name in ("x", "y", "w", "h"):
        assert terms[name].pull == pytest.approx(weight * (terms[name].target - terms[name].output), abs=1e-5)
    assert terms["objectness"].pull == pytest.approx(1 - terms["objectness"].output, abs=1e-5)
    assert {term.name: term.target for term in one.classes} == {"0": 0, "1": 1}
    # All pulls together are the gradient that leaves the head.
    total = math.sqrt(sum(value**2 for value in head.totals.values()))
    assert total == pytest.approx(run.sent[2][1], rel=1e-5)


def head_for(folder: Path, cfg: str, truth: np.ndarray) -> tuple[Any, float]:
    """The head of a detector that saw one picture, and the norm of the gradient that leaves it."""
    images = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
    np.savez(folder / "data.npz", images=images, truth=truth.reshape(1, -1))
    run = record(Request(written(folder, "head.cfg", cfg), data=folder / "data.npz")).runs[0]
    assert run.heads is not None
    return run.heads.heads[0], run.sent[2][1]


def test_a_region_layers_pulls_are_its_gradient(tmp_path: Path) -> None:
    head, gradient = head_for(tmp_path, REGION, np.array([0.3, 0.6, 0.3, 0.3, 1.0], np.float32))
    (one,) = head.responsible
    assert (one.row, one.column, one.number, one.truth) == (19, 9, 1, 0)
    assert one.anchor == pytest.approx((9.5 / 32, 19.5 / 32, 10 / 32, 10 / 32))
    assert one.wanted == pytest.approx((0.3, 0.6, 0.3, 0.3), abs=1e-5)
    assert math.hypot(*head.totals.values()) == pytest.approx(gradient, rel=1e-5)


def test_a_detection_layers_boxes_share_the_classes_of_their_cell(tmp_path: Path) -> None:
    truth = np.zeros((9, 7), np.float32)
    truth[3] = 1, 0, 1, 0.4, 0.6, 0.3, 0.3  # whether, two classes, x and y within the cell, w, h
    head, gradient = head_for(tmp_path, GRID, truth)
    (one,) = head.responsible
    assert (one.row, one.column) == (1, 0)
    assert one.wanted == pytest.approx((0.4 / 3, 1.6 / 3, 0.3, 0.3), abs=1e-5)
    assert one.anchor is None
    assert {term.name: term.target for term in one.classes} == {"0": 0, "1": 1}
    assert math.hypot(*head.totals.values()) == pytest.approx(gradient, rel=1e-5)


def test_labels_move_with_the_grey_bars_of_their_picture(tmp_path: Path) -> None:
    cfg = written(tmp_path, "detector.cfg", DETECTOR)
    Image.new("RGB", (128, 64), "green").save(tmp_path / "wide.png")
    label = written(tmp_path, "wide.txt", "1 0.25 0.5 0.5 1.0\n")
    run = record(Request(cfg, data=tmp_path / "wide.png", truth=label)).runs[0]
    assert run.heads is not None
    # 128x64 becomes 64x32 in the middle of 64x64: heights halve.
    assert run.heads.truths[0] == pytest.approx([0.25, 0.5, 0.5, 0.5, 1])


def test_a_function_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(
        tmp_path,
        "scope_model.py",
        "import undertow as ut\n\n\ndef model(x):\n    y = ut.tanh(x)\n    return ut.sum(ut.mul(y, y) + y)\n",
    )
    found = record(Request("scope_model:model", shapes=[(2, 3)]))
    names = [row.type for row in found.rows]
    tanh = names.index("tanh")
    addends = [run[tanh] for run in found.runs[0].sent.values() if tanh in run]
    assert len(addends) == 2
    assert found.runs[0].trace.layers[tanh].gradient.norm <= sum(addends)
    with pytest.raises(ShapeError, match="cannot be called with no arguments"):
        record(Request("scope_model:model"))


def reply(routes: Any, query: dict[str, str]) -> Any:
    return json.loads(routes["/maps"](query).body)


def test_each_parameter_of_a_function_shows_its_gradient_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dotted_names.py").write_text(
        "import numpy as np, undertow as ut\n"
        "a, b, c, d = (ut.Parameter(np.full((3, 3), 0.5, np.float32), name=name)\n"
        "              for name in ('fc.weight', 'up.weight', 'same', 'same'))\n"
        "k = ut.Parameter(np.ones((4, 3), np.float32))\n"
        "def f(x):\n    return ut.sum(ut.linear(x, k) @ (k @ (a * b) @ (c * d) @ k.T)) + ut.sum(a * a)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = document(record(Request("dotted_names:f", shapes=[(4, 3)])), live=False)
    names = []
    for layer, seen in zip(found["layers"], found["runs"][0]["layers"], strict=True):
        assert list(layer["parameters"]) == list(seen["parameters"])
        assert all(gradient > 0 for _, gradient, _ in seen["parameters"].values())
        names += layer["parameters"]
    assert {"fc.weight", "up.weight", "same", "same (2)", "operand 1"} <= set(names)


def test_full_maps_come_from_the_server(residual: str) -> None:
    recording = record(Request(residual))
    routes = routes_for(recording)
    found = reply(routes, {"run": "0", "layer": "0", "kind": "output", "channels": "2,5"})
    pixels = (decoded(found["image"]).astype(float) - 128) / 127 * found["limit"]
    output = recording.runs[0].outputs[0][0]
    assert found["size"] == [16, 16]
    for place, channel in enumerate((2, 5)):
        shown = pixels[:16, place * found["stride"] : place * found["stride"] + 16]
        assert np.abs(shown - output[channel]).max() < found["limit"] / 100
    for wrong in ({"run": "7"}, {"layer": "-1"}, {"layer": "x"}, {"channels": "99"}, {"channels": ""}, {"kind": "no"}):
        with pytest.raises(UndertowError):
            routes["/maps"]({"run": "0", "layer": "0", "kind": "output", "channels": "0"} | wrong)


def test_the_command_writes_one_page_without_addresses_outside(
    residual: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scope", residual, "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    data = re.search(r'<script type="text/plain" id="data" data-packed>(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(zlib.decompress(base64.b64decode(data[1])))["live"] is False
    outside = set(re.findall(r"https?://[^\s\"'<)]+", re.sub(r"data:[^\"']+", "", text)))
    assert outside <= {"http://www.w3.org/2000/svg"}
    assert "written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["net.cfg", "--dialects", "exact,c"], "there is no dialect 'c'"),
        (["net.cfg", "--dialect", "exact", "--dialects", "exact"], "one of them"),
        (["net.cfg", "--dialects", ","], "there is no name"),
        (["net.cfg", "other.cfg"], "other.cfg"),
        (["missing.cfg"], "missing.cfg"),
        (["net.cfg", "--port", "70000"], "65535"),
    ],
)
def test_bad_words_are_answered(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scope", *words]) == 2
    assert said in capsys.readouterr().err


def test_lenet_has_maps_values_and_a_picture(tmp_path: Path) -> None:
    told = document(record(Request(written(tmp_path, "lenet.prototxt", LENET))), live=False)
    by_name = {layer["name"]: layer["index"] for layer in told["layers"]}
    numbers = told["runs"][0]["layers"]
    assert told["picture"].startswith("data:image/png")
    assert numbers[by_name["conv1"]]["maps"]["gradient"]["size"] == (24, 24)
    assert len(numbers[by_name["ip2"]]["values"]["gradient"]) == 10
    with pytest.raises(FormatError):
        record(Request(str(tmp_path / "absent.prototxt")))


@pytest.mark.filterwarnings("error")
def test_a_caffe_net_takes_a_picture(tmp_path: Path) -> None:
    net = written(tmp_path, "lenet.prototxt", LENET)
    pixels = np.zeros((28, 28), np.uint8)
    pixels[4:24, 12:16] = 255
    Image.fromarray(pixels).save(tmp_path / "one.png")
    found = record(Request(net, data=tmp_path / "one.png"))
    assert found.picture is not None
    assert np.array_equal(found.picture[0], pixels / 255)
    assert np.array_equal(found.runs[0].outputs[0][0, 0], pixels / 255)
    # The corner of the picture is black: the pooling's example is a sample of the tests, one of handy values.
    pooling = "\n".join(found.stories[2])
    assert "a sample of the operation max_pool2d" in pooling
    assert "inf" not in pooling
    with pytest.raises(FormatError, match="no input for a picture"):
        record(Request(written(tmp_path, "rows.prototxt", ROWS), data=tmp_path / "one.png"))


def test_vendored_libraries_are_as_they_were_fetched_with_their_licences() -> None:
    versions, *sums = (VENDOR / "VERSIONS").read_text().splitlines()
    assert re.fullmatch(r"@dagrejs/dagre [\d.]+, uplot [\d.]+", versions)
    for line in sums:
        stated, name = line.split()
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == stated
    scripts = {path.stem for path in VENDOR.glob("*.js")}
    assert scripts == {Path(line.split()[1]).stem for line in sums} == {path.stem for path in VENDOR.glob("*.LICENSE")}
    for licence in VENDOR.glob("*.LICENSE"):
        assert "Permission is hereby granted, free of charge" in licence.read_text()


def test_the_command_serves_until_it_is_interrupted(residual: str) -> None:
    words = [sys.executable, "-m", "undertow", "scope", residual, "--no-open"]

    def heed_interrupts() -> None:
        """Where the tests run in the background, a shell has had them ignored, and children inherit that."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_interrupts
    ) as running:
        assert running.stderr is not None
        try:
            address = next(
                found[0] for line in running.stderr if (found := re.findall(r"http://127\.0\.0\.1:\d+/", line))
            )
            port = int(address.split(":")[2].strip("/"))
            for host, status in ((None, 200), ("evil.example", 403)):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connection.request("GET", "/", headers={"Host": host} if host else {})
                assert connection.getresponse().status == status
                connection.close()
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=20) == 130
        finally:
            running.kill()


def test_of_many_classes_the_wanted_one_is_always_told() -> None:
    wanted = np.zeros(20)
    wanted[7] = 1
    pulls = -np.linspace(0.5, 0.9, 20)
    pulls[7] = 0.1
    assert told_classes(pulls, wanted) == [7, 19, 18, 17, 16, 15]
    assert told_classes(pulls, np.zeros(20)) == [19, 18, 17, 16, 15, 14]
    assert told_classes(np.zeros(0), np.zeros(0)) == []

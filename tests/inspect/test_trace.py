"""Traces against independent NumPy computing, planted faults, files, comparisons."""

from __future__ import annotations

import io
import math
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from tests.inspect.nets import CLASSIFIER, RESIDUAL
from undertow.cli import main
from undertow.darknet import DIALECTS, load
from undertow.errors import FormatError, ShapeError
from undertow.inspect.batches import Batch, darknet_batch, read_arrays
from undertow.inspect.compare import compare, distance
from undertow.inspect.report import HEAD, head_lines, trace_rows
from undertow.inspect.statistics import FIELDS, saturated_share, statistics_of
from undertow.inspect.text import number_text
from undertow.inspect.trace import SAMPLES, sampled
from undertow.inspect.trace_file import load_trace, save_trace
from undertow.inspect.trace_nets import trace_caffe, trace_darknet, trace_network


@pytest.fixture
def cfg(tmp_path: Path) -> Path:
    path = tmp_path / "residual.cfg"
    path.write_text(RESIDUAL)
    return path


@pytest.fixture
def prototxt(tmp_path: Path) -> Path:
    path = tmp_path / "small.prototxt"
    path.write_text(CLASSIFIER)
    return path


# --- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_statistics_are_numpys(rng: np.random.Generator, dtype: type, offset: float) -> None:
    x = (rng.standard_normal((3, 4, 7, 5)) + offset).astype(dtype)
    x[x < offset - 0.5] = 0
    found, exact = statistics_of(x), x.astype(np.float64)
    assert found.mean == pytest.approx(exact.mean(), rel=1e-6)
    assert found.deviation == pytest.approx(exact.std(), rel=1e-6)
    assert (found.minimum, found.maximum) == (exact.min(), exact.max())
    assert found.zeros == pytest.approx((exact == 0).mean())
    assert found.norm == pytest.approx(np.linalg.norm(exact.reshape(-1)), rel=1e-6)
    assert found.rms == pytest.approx(np.sqrt((exact**2).mean()), rel=1e-6)
    assert found.bad == 0
    assert math.isnan(found.saturated)


def test_a_small_spread_far_from_zero_is_not_lost(rng: np.random.Generator) -> None:
    x = (1e4 + rng.standard_normal(5000)).astype(np.float64)
    assert statistics_of(x).deviation == pytest.approx(x.std(), rel=1e-9)


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    found = statistics_of(np.array([1.0, np.nan, 3.0, np.inf, -np.inf]))
    assert (found.bad, found.mean, found.maximum) == (3, 2.0, 3.0)
    assert statistics_of(np.array([np.nan])).bad == 1
    with warnings.catch_warnings(action="error"):
        assert statistics_of(np.array([3e38, np.inf, -3e38], np.float32)).bad == 1
        assert statistics_of(np.array([1e200, 1e200])).bad == 0
    assert math.isnan(statistics_of(np.zeros(0)).mean)


def test_dead_channels_are_those_that_are_zero_throughout() -> None:
    x = np.ones((2, 4, 3, 3))
    x[:, 1] = 0
    x[0, 2] = 0
    assert statistics_of(x).dead == 0.25
    assert statistics_of(np.array([[0.0, 1.0]])).dead == 0  # one value a channel tells nothing
    assert statistics_of(np.zeros((1, 3))).dead == 1


@pytest.mark.parametrize(
    ("name", "function", "slope"),
    [
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2 / 0.25),
        ("tanh", np.tanh, lambda x: 1 / np.cosh(x) ** 2),
        ("loggy", lambda x: 2 / (1 + np.exp(-x)) - 1, lambda x: 4 * np.exp(-x) / (1 + np.exp(-x)) ** 2),
        ("ReLU", lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
        ("hardtan", lambda x: np.clip(x, -1, 1), lambda x: (np.abs(x) < 1) * 1.0),
        ("relu6", lambda x: np.clip(x, 0, 6), lambda x: ((x > 0) & (x < 6)) * 1.0),
        ("hard_sigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), lambda x: (np.abs(x) < 3) * 1.0),
    ],
)
def test_saturated_units_are_those_whose_slope_is_below_a_hundredth(rng, name, function, slope) -> None:
    x = rng.standard_normal(4000) * 5
    assert saturated_share(function(x), name) == pytest.approx((slope(x) < 0.01).mean(), abs=1e-12)
    assert math.isnan(saturated_share(x, "leaky"))


def test_samples_are_spaced_evenly(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 100, 100))
    assert sampled(x).size <= SAMPLES
    np.testing.assert_array_equal(sampled(x), x.reshape(-1)[::8])
    assert sampled(x[:1, :10]).size == 1000


# --- networks ---------------------------------------------------------------------------------------------------


def test_a_trace_holds_the_numbers_of_a_pass(cfg: Path) -> None:
    """Against the network run by hand, its arrays measured with NumPy."""
    found = trace_darknet(cfg, batch=2, rate=0.5)
    net = load(cfg)
    batch = darknet_batch(net, None, None, count=2)
    net.forward(batch.images, batch.truth)
    net.backward()
    assert found.loss == pytest.approx(float(net.loss.data))
    for layer, seen in zip(net.layers, found.layers, strict=True):
        assert seen.output.mean == pytest.approx(layer.output.mean(dtype=np.float64), rel=1e-5, abs=1e-9)
        assert seen.output.norm == pytest.approx(np.linalg.norm(layer.output), rel=1e-5)
        for name, parameter in layer.parameters.items():
            weight, slope = np.linalg.norm(parameter.data), np.linalg.norm(parameter.grad)
            got = seen.parameters[name]
            assert got.gradient == pytest.approx(slope, rel=1e-5)
            # Two samples: the update divides the summed gradient by 2.
            assert math.isnan(got.update) if weight == 0 else got.update == pytest.approx(0.25 * slope / weight)
    # Maxpool's delta is the gradient of its output with the other sign; so is that of a shortcut.
    for index in (3, 4):
        assert found.layers[index].gradient.norm == pytest.approx(np.linalg.norm(net.layers[index].delta), rel=1e-5)
    assert found.layers[3].sent == {0: pytest.approx(np.linalg.norm(net.layers[3].delta), rel=1e-5)}


def test_a_caffe_trace_holds_the_blobs_of_a_pass(prototxt: Path) -> None:
    from undertow.caffe.net import Net
    from undertow.inspect.caffe_inputs import fill_inputs

    found = {layer.name: layer for layer in trace_caffe(prototxt, batch=2).layers}
    net = Net(prototxt, "TRAIN", seed=0)
    fill_inputs(net, None)
    loss = net.forward()
    net.clear_param_diffs()
    net.backward()
    assert found["loss"].output.mean == pytest.approx(loss)
    assert found["ip"].gradient.norm == pytest.approx(np.linalg.norm(net.blobs["ip"].diff), rel=1e-5)
    gradient = np.linalg.norm(net.params["conv1"][0].diff)
    assert found["conv1"].parameters["weights"].gradient == pytest.approx(gradient, rel=1e-6)
    assert math.isnan(found["conv1"].parameters["bias"].gradient)  # lr_mult: 0
    # relu1 works in place: what conv1 gave is seen before it is written over.
    assert found["conv1"].output.minimum < 0 == found["relu1"].output.minimum
    assert found["aside"].gradient.norm != found["aside"].gradient.norm


def kinds(trace) -> set[tuple[str, int]]:
    return {(mark.kind, mark.layer) for mark in trace.marks}


def planted(cfg: Path, change) -> set[tuple[str, int]]:
    net = load(cfg)
    change(net)
    return kinds(trace_network(net, darknet_batch(net, None, None, count=2)))


def test_a_healthy_network_has_no_marks(cfg: Path) -> None:
    assert planted(cfg, lambda net: None) == set()


def test_a_dead_layer_is_marked_where_it_is_dead(cfg: Path) -> None:
    def kill(net) -> None:
        net.layers[1].biases[...] = -1e3

    assert ("dead", 1) in planted(cfg, kill)


def test_zeros_given_to_a_network_kill_none_of_its_layers(cfg: Path, tmp_path: Path) -> None:
    net = load(cfg)
    batch = darknet_batch(net, None, None, count=2)
    batch.images[...] = 0
    found = trace_network(net, batch)
    assert "dead" not in {kind for kind, _ in kinds(found)}
    save_trace(found, tmp_path / "zeros.npz")
    assert kinds(load_trace(tmp_path / "zeros.npz")) == kinds(found)


def test_exploding_weights_are_marked_where_the_values_begin_to_grow(cfg: Path) -> None:
    def blow(net) -> None:
        net.layers[2].weights[...] *= 1e7

    found = planted(cfg, blow)
    assert ("exploding", 2) in found
    assert {layer for kind, layer in found if kind == "exploding"} <= {1, 2}


def test_a_nan_is_marked_at_its_layer(cfg: Path) -> None:
    def spoil(net) -> None:
        net.layers[2].weights[0, 0, 0, 0] = np.nan

    net = load(cfg)
    spoil(net)
    found = trace_network(net, darknet_batch(net, None, None, count=2))
    first = found.marks[0]
    assert (first.kind, first.layer) == ("non-finite", 2)
    outputs = [mark for mark in found.marks if "its output are" in mark.text]
    assert [mark.layer for mark in outputs] == [2]
    assert found.layers[1].output.bad == 0


def test_what_is_not_finite_is_told_as_such_in_every_row(cfg: Path) -> None:
    """Never as "-", which stands for what is not there."""
    net = load(cfg)
    batch = darknet_batch(net, None, None, count=2)
    batch.images[...] = np.nan
    found = trace_network(net, batch)
    assert "loss nan" in head_lines(found)[1]
    rows = {row[0]: dict(zip(HEAD, row, strict=True)) for row in trace_rows(found)}
    first = rows["0"]
    for column in ("mean", "min", "zeros", "|output|", "|gradient|", "|their gradient|", "update/weight"):
        assert first[column] == "nan", column
    assert first["|parameters|"] == number_text(math.hypot(*(p.norm for p in found.layers[0].parameters.values())))
    assert first["mark"] == "non-finite"
    assert rows["3"]["mark"].startswith("not finite; gradient of the finite ")
    assert rows["3"]["|parameters|"] == "-"


def test_a_row_tells_of_how_many_values_its_numbers_are() -> None:
    x = np.arange(80, dtype=np.float32).reshape(8, 10)
    x[:4, :4] = np.inf
    w = ut.Parameter(np.array([2.0, np.nan], np.float32), name="w")
    with ut.trace() as found:
        ut.mean(ut.square(ut.Variable(x)) + ut.sum(w)).backward()
    marks = [row[HEAD.index("mark")] for row in trace_rows(found)]
    assert marks[0].startswith("non-finite; output of the finite 64")
    assert "parameters of the finite 1" in marks[1]
    assert marks[-1] == "not finite"  # a single number: nan itself stands there


def test_a_vanishing_gradient_is_marked_where_it_vanishes(tmp_path: Path) -> None:
    path = tmp_path / "chain.cfg"
    path.write_text(RESIDUAL.replace("[shortcut]\nfrom=-3\nactivation=linear\n", ""))

    def shrink(net) -> None:
        net.layers[2].weights[...] *= 1e-7

    found = planted(path, shrink)
    assert ("vanishing", 1) in found
    assert not any(kind == "vanishing" and layer >= 2 for kind, layer in found)


def test_a_network_without_loss_gets_a_random_gradient(tmp_path: Path) -> None:
    path = tmp_path / "bare.cfg"
    path.write_text(RESIDUAL.replace("[softmax]\n", ""))
    found = trace_darknet(path)
    assert "no loss" in found.notes[0]
    assert found.layers[0].gradient.norm > 0


# --- comparisons ------------------------------------------------------------------------------------------------


def test_the_lost_residual_gradient_is_shown(cfg: Path) -> None:
    found = compare(trace_darknet(cfg, dialect="exact"), trace_darknet(cfg, dialect="darknet-cpu"))
    assert [(path.layer, path.source, path.lost) for path in found.paths] == [(3, 0, True)]
    assert found.paths[0].one > 0 == found.paths[0].other
    assert found.forward is None
    assert found.same_batch
    assert found.layers[0].gradient > 0.01


def test_a_changed_layer_is_the_first_that_parts(cfg: Path) -> None:
    one, net = trace_darknet(cfg), load(cfg)
    net.layers[2].weights[...] *= 1.1
    found = compare(one, trace_network(net, darknet_batch(net, None, None, count=2)))
    assert found.forward is not None
    assert found.forward.one.index == 2
    a, b = one.layers[2].samples["output"], found.other.layers[2].samples["output"]
    expected = np.linalg.norm(a - b) / max(np.linalg.norm(a), np.linalg.norm(b))
    assert found.forward.output == pytest.approx(expected, rel=1e-5)


def test_equal_runs_do_not_part(cfg: Path) -> None:
    found = compare(trace_darknet(cfg), trace_darknet(cfg), 0.0)
    assert found.forward is None
    assert found.backward is None


def test_other_batches_are_told_and_other_networks_matched(cfg: Path) -> None:
    assert not compare(trace_darknet(cfg), trace_darknet(cfg, seed=1)).same_batch
    short = cfg.with_name("short.cfg")
    short.write_text(RESIDUAL.replace("[softmax]\n", ""))
    shorter = compare(trace_darknet(cfg), trace_darknet(short))
    assert [layer.one.name for layer in shorter.layers] == [layer.other.name for layer in shorter.layers]
    assert len(shorter.layers) == 6
    with pytest.raises(ShapeError, match="same batch"):
        compare(trace_darknet(cfg), trace_darknet(cfg, batch=3))


def test_distances() -> None:
    a = np.array([3.0, 4.0])
    assert distance(a, a) == 0
    assert distance(a, 0 * a) == 1
    assert distance(a, np.array([3.0, np.nan])) == math.inf
    assert distance(0 * a, 0 * a) == 0
    assert distance(a, np.array([3.0, 4.5])) == pytest.approx(0.5 / np.hypot(3, 4.5))
    assert math.isnan(distance(None, None))
    assert distance(a, None) == math.inf


# --- files ------------------------------------------------------------------------------------------------------


def test_a_trace_comes_back_from_its_file(cfg: Path, tmp_path: Path) -> None:
    before, path = trace_darknet(cfg), tmp_path / "a.npz"
    save_trace(before, path)
    after = load_trace(path)
    assert (after.source, after.how, after.about, after.rate) == (before.source, before.how, before.about, before.rate)
    for a, b in zip(after.layers, before.layers, strict=True):
        assert (a.name, a.type, a.shape, a.activation, a.computes, a.sent) == (
            b.name, b.type, b.shape, b.activation, b.computes, b.sent,
        )  # fmt: skip
        np.testing.assert_array_equal(a.output.as_row(), b.output.as_row())
        np.testing.assert_array_equal(a.gradient.as_row(), b.gradient.as_row())
        assert a.parameters.keys() == b.parameters.keys()
    assert kinds(after) == kinds(before)
    found = compare(before, after, 0.0)
    assert found.same_batch
    assert found.forward is None is found.backward


def changed(path: Path, **arrays) -> Path:
    found = read_arrays(path)
    found.update(arrays)
    np.savez(path, **{name: array for name, array in found.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": np.array("something")}, "this is no trace"),
        ({"names": None}, "'names' is missing"),
        ({"output": np.zeros((7, 2))}, "'output'"),
        ({"output": np.zeros((3, len(FIELDS)))}, "'output'"),
        ({"types": np.zeros(7)}, "'types'"),
        ({"parameter_layers": np.full(10, 99)}, "'parameter_names'|speaks of layer 99"),
        ({"sent": np.array([[0.5, 0, 1.0]])}, "speaks of layer 0.5"),
        ({"sent": np.zeros((1, 2))}, "columns"),
        ({"sample/99/output": np.zeros(3)}, "speaks of layer 99"),
        ({"sample/x/output": np.zeros(3)}, "belongs to no layer"),
        ({"sample/0/output": np.zeros(SAMPLES + 1)}, "at most"),
        ({"names": np.array(["x" * 2000] * 7)}, "letters"),
    ],
)
def test_damaged_traces_are_told(cfg: Path, tmp_path: Path, change: dict, message: str) -> None:
    path = tmp_path / "a.npz"
    save_trace(trace_darknet(cfg), path)
    with pytest.raises(FormatError, match=message):
        load_trace(changed(path, **change))


def test_files_that_are_no_arrays_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for name in ("a.npz", "lenet.prototxt", "a.npy"):
        (tmp_path / name).write_bytes(b"name: 'not an archive'")
        with pytest.raises(FormatError, match=r"this is no trace: .*To mend it: write one with undertow trace .*--out"):
            load_trace(tmp_path / name)
    np.savez(path, format=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FormatError, match="cannot be read"):
        load_trace(path)
    buffer = io.BytesIO()
    np.savez(buffer, format=np.zeros(1000))
    path.write_bytes(buffer.getvalue()[:500])
    with pytest.raises(FormatError, match="cannot be read"):
        load_trace(path)


def test_archives_that_claim_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=np.zeros(100_000))
    monkeypatch.setattr("undertow.inspect.batches.MOST_BYTES", 1000)
    with pytest.raises(FormatError, match="unpacks to"):
        read_arrays(path)


# --- data -------------------------------------------------------------------------------------------------------


def test_batches_come_from_arrays_and_pictures(cfg: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    from PIL import Image

    net = load(cfg)
    images, truth = rng.random((3, 3, 16, 16), np.float32), np.eye(5, dtype=np.float32)[:3]
    np.savez(tmp_path / "b.npz", images=images, truth=truth)
    batch = darknet_batch(net, tmp_path / "b.npz", None, count=2)
    np.testing.assert_array_equal(batch.images, images)
    np.testing.assert_array_equal(batch.truth, truth)
    Image.fromarray(np.full((20, 30, 3), 128, np.uint8)).save(tmp_path / "p.png")
    batch = darknet_batch(net, tmp_path / "p.png", None, count=2)
    assert batch.images.shape == (1, 3, 16, 16)
    assert batch.about.endswith("p.png (30x20 fitted into 16x16 with grey bars, RGB, 0 to 1), random truth")
    assert batch.images[0, :, 0, 0] == pytest.approx([0.5] * 3)  # a grey bar
    np.savez(tmp_path / "bytes.npz", images=np.arange(3 * 256).reshape(1, 3, 16, 16) % 256)
    assert darknet_batch(net, tmp_path / "bytes.npz", None, count=1).about.endswith(
        "(as it is, 0 to 255), random truth"
    )
    stretching = load(cfg, dialect=DIALECTS["alexeyab"])
    batch = darknet_batch(stretching, tmp_path / "p.png", None, count=1)
    assert "p.png (30x20 stretched to 16x16, RGB, 0 to 1)" in batch.about
    assert batch.images == pytest.approx(128 / 255)
    np.savez(tmp_path / "t.npz", truth=np.zeros((2, 9)))
    with pytest.raises(ShapeError, match="the truth of 3 samples"):
        darknet_batch(net, tmp_path / "b.npz", tmp_path / "t.npz", count=2)
    np.savez(tmp_path / "c.npz", pictures=images)
    with pytest.raises(FormatError, match="no array 'images'"):
        darknet_batch(net, tmp_path / "c.npz", None, count=2)


def test_the_pictures_of_a_data_file_are_traced_with_their_labels(tmp_path: Path) -> None:
    from tests.darknet.training.scenes import make_scene

    scene = make_scene(tmp_path / "scene")
    scene.write_cfg(max_batches=2, rate=0.01)
    net = load(scene.cfg)
    batch = darknet_batch(net, scene.data, None, count=3)
    assert batch.images.shape[0] == len(batch.truth) == 3
    assert np.any(batch.truth != 0)
    size = f"{net.w}x{net.h}"
    assert batch.about.endswith(f"drawn as for training, fitted at a random place on grey into {size}, RGB, 0 to 1)")
    assert isinstance(trace_network(net, batch).loss, float)
    assert isinstance(batch, Batch)


# --- commands ---------------------------------------------------------------------------------------------------


def test_the_command_prints_compares_and_writes(cfg: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.npz"
    assert main(["trace", str(cfg), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "random batch of 2, seed 0 (give --data for a real one)" in printed.out
    assert "nothing vanishes" in printed.out
    assert main(["trace", str(cfg), "--compare", str(out), "--precision", "reference"]) == 0
    assert "no layer's output parts by more than 0.001" in capsys.readouterr().out
    assert main(["trace", str(cfg), "--dialects", "exact,darknet-cpu"]) == 0
    printed = capsys.readouterr()
    assert "1 of 1 in shortcut layers" in printed.out
    assert main(["trace", str(cfg), "--dialects", "exact,nothing"]) == 2
    assert "there is no dialect 'nothing'" in capsys.readouterr().err
    assert main(["trace", str(cfg), "--dialects", ","]) == 2
    assert main(["trace", str(cfg), "--rate", "-1"]) == 2
    capsys.readouterr()
    for data in ("batch.npz", "photo.JPG"):
        assert main(["trace", str(cfg), "--data", data, "--batch", "2"]) == 2
        assert "-batch is for a random batch or a .data file" in capsys.readouterr().err


def test_the_command_traces_a_prototxt(prototxt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(prototxt)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["conv1", "Convolution"] in [line.split()[:2] for line in lines]


# --- from Python ------------------------------------------------------------------------------------------------


def test_user_code_is_traced(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((4, 3)).astype(np.float32), ut.Parameter(rng.standard_normal((5, 3)), name="fc.weight")
    with ut.trace(rate=0.1) as found:
        hidden = ut.relu(ut.linear(x, w))
        loss = ut.sum(ut.square(hidden))
        loss.backward()
    assert [layer.type for layer in found.layers] == ["linear", "relu", "square", "sum"]
    assert found.layers[0].name == "fc"
    pre = x @ w.data.T
    post = np.maximum(pre, 0)
    assert found.loss == pytest.approx((post**2).sum())
    assert found.layers[1].output.zeros == pytest.approx((post == 0).mean())
    assert found.layers[1].gradient.norm == pytest.approx(np.linalg.norm(2 * post))
    gw = (2 * post).T @ x
    seen = found.layers[0].parameters["weight"]
    assert seen.gradient == pytest.approx(np.linalg.norm(gw))
    assert seen.update == pytest.approx(0.1 * np.linalg.norm(gw) / np.linalg.norm(w.data))


def test_a_trace_prints_as_the_table_of_the_command() -> None:
    w = ut.Parameter(np.ones((2, 3)), name="fc.weight")
    with ut.trace() as found:
        y = ut.sum(ut.linear(ut.Variable(np.ones((4, 3))), w))
    assert "no loss" in str(found)
    with ut.trace() as found:
        y = ut.sum(ut.linear(ut.Variable(np.ones((4, 3))), w))
        y.backward()
    lines = str(found).splitlines()
    assert lines[:2] == ["user code", "loss 24, rate 0.01 behind update/weight"]
    assert lines[3].startswith("layer  type")
    assert lines[-1] == "nothing vanishes, explodes or is dead; all values are finite"
    assert repr(found) == "<Trace of user code, 2 layers>"


def test_a_loss_that_was_cut_off_is_told() -> None:
    with ut.trace() as found:
        y = ut.sum(ut.square(ut.Variable(np.ones(3))))
        ut.Variable(y.data).backward()
    assert str(found).endswith("no gradient arrived at any layer: nothing leads from them to the loss")


def test_a_nan_in_user_code_is_marked_where_it_begins() -> None:
    with np.errstate(invalid="ignore"), ut.trace() as found:
        y = ut.sum(ut.log(ut.sin(ut.Variable(np.array([1.0, 4.0])))))
        y.backward()
    outputs = [mark for mark in found.marks if mark.kind == "non-finite"]
    assert outputs[0].layer == 1
    assert found.layers[1].type == "log"


def test_a_parameters_gradient_that_is_not_finite_is_counted_and_marked() -> None:
    w = ut.Parameter(np.ones((2, 3)), name="w")
    with np.errstate(all="ignore"), ut.trace() as found:
        ut.sum(ut.sqrt(ut.linear(ut.Variable(np.zeros((2, 3))), w))).backward()
    assert np.isnan(w.grad).all()
    seen = found.layers[0].parameters["w"]
    assert (seen.bad, seen.bad_gradient) == (6, 6)
    # At the linear's output it is infinite; times the input, which is 0, NaN.
    assert [(mark.layer, mark.text) for mark in found.marks if mark.kind == "non-finite"] == [
        (0, "4 values of its output's gradient are not finite")
    ]
    w.clear_grad()
    with np.errstate(all="ignore"), ut.trace() as found:
        ut.sum(ut.linear(ut.Variable(np.array([[np.inf, 1.0, 1.0]])), w) * 0.0).backward()
    assert "2 values of the gradient of w are not finite" in [mark.text for mark in found.marks if mark.layer == 0]


def test_phase_test_is_the_pass_of_detection(cfg: Path) -> None:
    net = load(cfg)
    images = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
    for _ in range(3):  # statistics of its own
        net.forward(images)
    weights, data = cfg.with_suffix(".weights"), cfg.with_suffix(".npz")
    net.save_weights(weights)
    np.savez(data, images=images)
    found = trace_darknet(cfg, weights, data=data, phase="TEST")
    assert found.how == "exact, TEST"
    assert "truth" not in found.about
    assert found.layers[-1].output.norm == pytest.approx(np.linalg.norm(net.predict(images)), rel=1e-4)
    assert found.layers[0].gradient.norm > 0


@pytest.mark.parametrize(("width", "there"), [("100", False), ("200", True)])
def test_a_terminal_gets_a_table_that_fits(
    cfg: Path, width: str, there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for words in (["trace", str(cfg)], ["explain", str(cfg)], ["trace", str(cfg), "--dialects", "exact,darknet-cpu"]):
        assert main(words) == 0
        printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        assert max(map(len, printed.splitlines())) <= int(width)
        assert "shortcut" in printed
        if words == ["trace", str(cfg)]:
            assert any("deviation" in line and "layer" in line for line in printed.splitlines()) == there
            assert ("left out" in printed) != there


def test_what_computes_in_place_on_the_data_gets_its_gradient(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text("""
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "scale" type: "Scale" bottom: "data" top: "data" scale_param { filler { value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
""")
    scale = trace_caffe(net).layers[1]
    assert scale.gradient.norm > 0
    assert scale.parameters["weights"].gradient > 0

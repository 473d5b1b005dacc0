"""explain: the sizes it states against real arrays, what is skipped and why, and its numeric examples."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from tests.inspect.nets import CLASSIFIER, RESIDUAL
from undertow.cli import main
from undertow.core.registry import operations
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.shapes import infer_shapes
from undertow.errors import FormatError
from undertow.functions.conv import Conv
from undertow.inspect.example import example
from undertow.inspect.explain import Explanation, explain, explain_function
from undertow.inspect.formulas import products
from undertow.inspect.record import Call, Recorder
from undertow.inspect.trace_nets import trace_caffe
from undertow.kernels.geometry import ConvGeometry


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


def recorded(compute) -> list[Call]:
    recorder = Recorder()
    recorder.enter()
    with recorder:
        compute()
    return recorder.calls[0]


def row_of(explanation: Explanation, name: str):
    return next(row for row in explanation.rows if row.name == name)


@pytest.mark.parametrize("groups", [1, 2])
def test_the_products_of_a_convolution_are_those_that_give_its_gradients(rng: np.random.Generator, groups: int) -> None:
    """The stated matrices, built with im2col, multiplied: they have the stated sizes and give the gradients."""
    x = ut.Variable(rng.standard_normal((3, 4, 6, 5)))
    w = ut.Variable(rng.standard_normal((6, 4 // groups, 3, 2)))
    out = []
    (call,) = recorded(lambda: out.append(ut.conv2d(x, w, stride=(1, 2), pad=1, groups=groups)))
    gy = rng.standard_normal(out[0].shape)
    out[0].grad = gy
    out[0].backward()
    forward, to_weights, to_data = products(call)
    padded = np.pad(x.data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, :, ::2]
    per_group, filters = 4 // groups, 6 // groups
    gw, y = np.zeros_like(w.data), np.zeros_like(out[0].data)
    for g in range(groups):
        weights = w.data[g * filters : (g + 1) * filters].reshape(filters, -1)
        for i in range(3):
            part = windows[i, g * per_group : (g + 1) * per_group]
            columns = part.transpose(0, 3, 4, 1, 2).reshape(weights.shape[1], -1)
            gradient = gy[i, g * filters : (g + 1) * filters].reshape(filters, -1)
            assert (weights.shape, columns.shape) == ((forward.m, forward.k), (forward.k, forward.n))
            assert (gradient.shape, columns.T.shape) == ((to_weights.m, to_weights.k), (to_weights.k, to_weights.n))
            assert (weights.T.shape, gradient.shape) == ((to_data.m, to_data.k), (to_data.k, to_data.n))
            y[i, g * filters : (g + 1) * filters] = (weights @ columns).reshape(filters, *y.shape[2:])
            gw[g * filters : (g + 1) * filters] += (gradient @ columns.T).reshape(filters, *w.shape[1:])
    np.testing.assert_allclose(y, out[0].data, atol=1e-12)
    np.testing.assert_allclose(gw, w.grad, atol=1e-12)
    assert forward.multiply_adds == y.size * w.data[0].size
    assert to_weights.multiply_adds == to_data.multiply_adds == forward.multiply_adds


def test_the_products_of_linear_and_matmul_have_the_sizes_of_their_arrays(rng: np.random.Generator) -> None:
    x, w = ut.Variable(rng.standard_normal((7, 5))), ut.Variable(rng.standard_normal((3, 5)))
    linear, matmul = recorded(lambda: (ut.linear(x, w), x @ w.T))[0], recorded(lambda: x @ w.T)[-1]
    _, to_weights, to_data = products(linear)
    gy = np.ones((7, 3))
    assert (gy.T @ x.data).shape == (to_weights.m, to_weights.n) == w.shape
    assert (gy @ w.data).shape == (to_data.m, to_data.n) == x.shape
    assert (to_weights.k, to_data.k) == (7, 3)
    forward, to_a, to_b = products(matmul)
    assert [(p.m, p.k, p.n) for p in (forward, to_a, to_b)] == [(7, 5, 3), (7, 3, 5), (5, 7, 3)]


def test_a_transposed_convolution_states_the_sizes_of_its_gradients(rng: np.random.Generator) -> None:
    x, w = ut.Variable(rng.standard_normal((1, 4, 3, 3))), ut.Variable(rng.standard_normal((4, 2, 3, 3)))
    (call,) = recorded(lambda: ut.deconv2d(x, w, stride=2))
    forward, to_weights, to_data = products(call)
    assert (to_weights.m, to_weights.n) == (4, 2 * 9)
    assert (to_data.m, to_data.n) == (4, 9)
    assert (forward.m, forward.n) == (2 * 9, 9)


def test_lenets_second_convolution_reads_as_in_the_article(reference_data: Path) -> None:
    found = explain(reference_data / "data" / "caffe" / "lenet" / "lenet.prototxt")
    row = row_of(found, "conv2")
    assert row.formula[0] == "weight gradient 50x500 = output gradient 50x64 times columns 64x500"
    assert row.formula[1].startswith("column gradient 500x64 = weights transposed 500x50 times output gradient 50x64")
    assert row.multiply_adds_forward == 50 * 500 * 64 + 50 * 64
    assert row_of(found, "conv1").skipped == ("input gradient: first layer",)
    assert [row.name for row in found.rows][:2] == ["prob", "ip2"]


def test_a_cfg_is_told_in_order_of_the_backward_pass(cfg: Path) -> None:
    found = explain(cfg)
    assert [row.index for row in found.rows] == [6, 5, 4, 3, 2, 1, 0]
    first = row_of(found, "0")
    assert first.skipped == ("input gradient: first layer",)
    assert first.inputs == ((1, 3, 16, 16),)
    assert first.outputs == ((1, 8, 16, 16),)
    assert not any("column gradient" in line for line in first.formula)
    assert any("column gradient" in line for line in row_of(found, "2").formula)
    assert row_of(found, "3").inputs == ((1, 8, 16, 16), (1, 8, 16, 16))
    assert row_of(found, "5").formula[0] == "weight gradient 5x512 = output gradient transposed 5x1 times input 1x512"


def test_the_lost_residual_gradient_is_told(cfg: Path) -> None:
    assert row_of(explain(cfg), "3").skipped == ()
    lost = row_of(explain(cfg, dialect="darknet-cpu"), "3").skipped
    assert lost == ("gradient to layer 0 lost: layer 1 (1x1 convolution) overwrites it, dialect darknet-cpu",)


def test_layers_behind_a_stopbackward_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "stopped.cfg"
    path.write_text(RESIDUAL.replace("filters=4\n", "filters=4\nstopbackward=1\n"))
    found = explain(path)
    for name in ("0", "1"):
        row = row_of(found, name)
        assert row.skipped == ("all gradients: stopbackward in layer 1, nothing flows past it",)
        assert row.multiply_adds_backward == row.kept == 0
        assert row.formula == ()


def test_a_prototxt_tells_what_is_frozen_first_or_without_loss(prototxt: Path) -> None:
    found = explain(prototxt)
    assert row_of(found, "aside").skipped == ("all gradients: no loss above",)
    assert row_of(found, "conv1").skipped == ("input gradient: first layer", "frozen: parameter 1 (lr_mult: 0)")
    assert not any("bias" in line for line in row_of(found, "conv1").formula)
    assert row_of(found, "loss").skipped == ("gradient of the labels: they are indexes",)
    assert row_of(found, "data").skipped == ("all gradients: data",)


def test_data_layers_give_way_to_a_shape(tmp_path: Path) -> None:
    path = tmp_path / "trained.prototxt"
    text = CLASSIFIER.replace('type: "Input"', 'type: "Data"')
    path.write_text(re.sub(r"input_param \{.*\} \} \}", 'data_param { source: "nowhere" batch_size: 4 } }', text))
    with pytest.raises(FormatError, match=r"give --shape"):
        explain(path)
    assert row_of(explain(path, shapes=[(1, 8, 8)]), "conv1").inputs == ((1, 1, 8, 8),)


def test_a_recurrent_net_gets_as_many_samples_as_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "recurrent.cfg"
    path.write_text("[net]\nbatch=1\ntime_steps=3\ninputs=4\n\n[rnn]\noutput=5\n\n[softmax]\n")
    found = explain(path)
    assert found.about.endswith("batch 3, dialect exact")
    assert row_of(found, "0").inputs == ((3, 4),)


def test_the_way_back_begins_below_a_layer_without_a_gradient(tmp_path: Path) -> None:
    path = tmp_path / "deploy.prototxt"
    text = CLASSIFIER.replace('top: "label"', "").replace("shape { dim: 2 } }", "}")
    lines = [line for line in text.splitlines() if "aside" not in line and "loss" not in line]
    path.write_text("\n".join(lines) + '\nlayer { name: "best" type: "ArgMax" bottom: "ip" top: "best" }\n')
    found = explain(path)
    assert row_of(found, "best").skipped == ("all gradients: the layer has none",)
    assert row_of(found, "best").formula == ()
    assert trace_caffe(path).layers[-2].gradient.norm > 0
    assert row_of(found, "conv1").skipped[0] == "input gradient: first layer"


def test_multiply_adds_are_half_of_the_operations_that_darknet_prints(cfg: Path) -> None:
    shapes = infer_shapes(read_cfg(cfg))
    for row in explain(cfg).rows:
        if row.type == "convolutional":
            products_alone = sum(p.multiply_adds for p in _forward_products(cfg, row.index))
            assert products_alone == round(shapes[row.index].bflops * 1e9 / 2)
            assert 0 <= row.multiply_adds_forward - products_alone <= 3 * math.prod(row.outputs[0])


def _forward_products(cfg: Path, layer: int):
    return [products(call)[0] for call in explain(cfg).find(layer).calls if products(call)]


def test_memory_kept_counts_each_array_once(rng: np.random.Generator) -> None:
    def twice(x):
        return ut.sin(x) + ut.cos(x)

    found = explain_function(twice, [(10, 10)])
    # x once for sin and cos, then both results for the sum.
    assert sum(row.kept for row in found.rows) == 3 * 400
    assert [row.kept for row in found.rows] == [800, 0, 400]


def test_a_function_is_explained_by_the_registry() -> None:
    found = explain("undertow.functions:softmax", shapes=[(2, 3)])
    (row,) = found.rows
    assert row.type == "softmax"
    assert row.formula == ("softmax: gx = y (gy - sum of gy y) (gy 2x3, gx 2x3)",)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_such_module:f", "cannot be imported"),
        ("undertow.functions:nothing", "has no 'nothing'"),
        ("nowhere", "name a .cfg"),
        ("undertow:__version__", "is no function"),
    ],
)
def test_what_cannot_be_explained_is_an_error(source: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        explain(source, shapes=[(2,)])


def test_examples_agree_with_central_differences(rng: np.random.Generator) -> None:
    """Of every differentiable operation: what the engine computes is what differences of the loss say."""
    checked = 0
    for entry in operations():
        if entry.gradient in ("none", "estimate"):
            continue
        sample = min(entry.samples(rng), key=lambda s: sum(a.size for a in s.args))
        arrays = [ut.Variable(a, requires_grad=a.dtype.kind == "f") for a in sample.args]
        calls = [call for call in recorded(lambda s=sample, a=arrays: s.call(*a)) if call.name == entry.name]
        found = example(calls[0]) if calls else None
        if found is not None:
            checked += 1
            assert found.largest_error < 1e-4, entry.name
    assert checked > 80


def test_an_example_is_computed_and_not_canned(rng: np.random.Generator) -> None:
    x, w = ut.Variable(rng.standard_normal((1, 2, 6, 6))), ut.Variable(rng.standard_normal((3, 2, 3, 3)))
    (call,) = recorded(lambda: ut.conv2d(x, w, pad=1))
    found = example(call)
    assert found is not None
    assert found.settings == "stride 1, pad 1, dilation 1, groups 1"
    corner, kernel = np.pad(x.data[0, 0, :2, :2], 1), w.data[0, 0]
    windows = np.lib.stride_tricks.sliding_window_view(corner, (3, 3))
    np.testing.assert_allclose(found.y[0, 0], (windows * kernel).sum((2, 3)))
    np.testing.assert_allclose(found.gradients[1][0, 0], np.einsum("pq,pquv->uv", found.gy[0, 0], windows))


def test_a_wrong_backward_is_seen_in_its_example(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    x, w = ut.Variable(rng.standard_normal((1, 1, 5, 5))), ut.Variable(rng.standard_normal((1, 1, 3, 3)))
    (call,) = recorded(lambda: Conv(ConvGeometry())(x, w))
    right = Conv.backward
    monkeypatch.setattr(Conv, "backward", lambda self, gy: tuple(None if g is None else -g for g in right(self, gy)))
    found = example(call)
    assert found is not None
    assert found.largest_error > 0.1


def test_the_command_tells_table_and_story(cfg: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(cfg)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("residual.cfg: 7 layers, input 16x16x3, batch 1, dialect exact")
    assert any(line.startswith("2      convolutional  1x4x16x16 -> 1x8x16x16") for line in lines)
    assert main(["explain", str(cfg), "--layer", "2"]) == 0
    told = capsys.readouterr().out
    assert "computed in undertow/functions/conv.py:" in told
    assert "weight gradient 8x36 = output gradient 8x256 times columns 256x36" in told
    errors = [float(x) for x in re.findall(r"largest relative difference between the two: (\S+)", told)]
    assert errors
    assert max(errors) < 1e-8
    assert main(["explain", str(cfg), "--layer", "77"]) == 2
    assert "there is no layer '77'" in capsys.readouterr().err


def test_the_place_in_the_code_is_where_it_is_written(cfg: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(cfg), "--layer", "2"])
    places = re.findall(r"computed in (\S+):(\d+) \((\w+)\.(\w+)\)", capsys.readouterr().out)
    assert {place[2] for place in places} == {"Conv", "DarknetActivation"}
    for file, line, _, method in places:
        source = (Path(__file__).parents[2] / file).read_text().splitlines()
        assert source[int(line) - 1].strip().startswith(f"def {method}(")


def test_operations_are_counted_per_element_unless_they_are_products() -> None:
    found = explain_function(lambda x: ut.tanh(x), [(4, 5)])
    assert found.rows[0].multiply_adds_forward == math.prod((4, 5))

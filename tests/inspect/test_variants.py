"""Examples are of the variant that a layer runs, with its settings, and name things as the formulas do."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from tests.inspect.nets import RESIDUAL
from tests.inspect.test_specific import called
from undertow.core.registry import Operation, operations
from undertow.functions.norm_batch import RunningStatistics
from undertow.inspect.cutting import settings_of
from undertow.inspect.example import Example, example
from undertow.inspect.explain import explain, explain_function
from undertow.inspect.record import Call, Recorder
from undertow.inspect.specific import is_derivative
from undertow.inspect.story import _names_of, _result_of, story
from undertow.kernels.reference.batchnorm import DARKNET_CPU, BatchNormRule, Scaling

EPS = 1e-3
INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 4 dim: 9 dim: 9 } } }\n'


def variable(rng: np.random.Generator, *shape: int) -> ut.Variable:
    return ut.Variable(rng.standard_normal(shape), requires_grad=True)


def shown(call: Call) -> Example:
    found = example(call)
    assert found is not None
    return found


def normalised(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, found: Example) -> np.ndarray:
    axes = (1, -1) + (1,) * (x.ndim - 2)
    gamma, beta = (a.reshape(axes) for a in found.arrays[1:])
    return gamma * (x - mean.reshape(axes)) / np.sqrt(variance.reshape(axes) + EPS) + beta


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (5, 3), (1, 3)])
def test_a_batch_norm_of_the_batch_is_shown_with_the_statistics_of_its_example(
    shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    arrays = variable(rng, *shape), variable(rng, 3), variable(rng, 3)
    running = RunningStatistics(np.zeros(3), np.ones(3), 0.1)
    call = called(lambda: ut.functions.batch_norm(*arrays, rule=BatchNormRule(Scaling(EPS)), running=running))
    before = running.mean.copy()
    found = shown(call)
    x = found.arrays[0]
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(found.y, normalised(x, x.mean(axes), x.var(axes), found))
    assert found.settings == "mean and variance of the batch"
    np.testing.assert_allclose(found.gradients[0].sum(axes), 0, atol=1e-12)
    assert (running.mean == before).all()  # looking at a layer does not train it


def test_a_batch_norm_with_given_statistics_is_shown_with_those(rng: np.random.Generator) -> None:
    arrays = variable(rng, 2, 3, 4, 4), variable(rng, 3), variable(rng, 3)
    mean, variance = rng.standard_normal(3), rng.uniform(1, 2, 3)
    found = shown(called(lambda: ut.functions.fixed_batch_norm(*arrays, mean, variance, BatchNormRule(Scaling(EPS)))))
    channels = found.arrays[0].shape[1]
    np.testing.assert_allclose(found.y, normalised(found.arrays[0], mean[:channels], variance[:channels], found))
    scale = found.arrays[1] / np.sqrt(variance[:channels] + EPS)
    np.testing.assert_allclose(found.gradients[0], found.gy * scale.reshape(1, -1, 1, 1))


def test_the_story_of_a_batch_norm_agrees_with_its_formula(tmp_path: Path) -> None:
    (tmp_path / "net.cfg").write_text(RESIDUAL)
    told = "\n".join(story(explain(tmp_path / "net.cfg"), 0))
    assert "in numbers, values of this layer, cut to a corner (mean and variance of the batch):" in told
    assert "moving all x does nothing" in told
    net = INPUT + 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" batch_norm_param { %s } }\n'
    (tmp_path / "given.prototxt").write_text(net % "use_global_stats: true")
    told = "\n".join(story(explain(tmp_path / "given.prototxt"), "bn"))
    assert "backward  gx = gamma/s gy; ggamma" in told
    assert "mean and s are constants here" in told
    assert "moving all x does nothing" not in told
    assert "(given mean and variance):" in told


def test_darknets_own_way_back_is_no_derivative_and_says_so(rng: np.random.Generator) -> None:
    arrays = variable(rng, 2, 3, 4, 4), variable(rng, 3), variable(rng, 3)
    assert not is_derivative(called(lambda: ut.functions.batch_norm(*arrays, rule=DARKNET_CPU)))
    assert is_derivative(called(lambda: ut.functions.batch_norm(*arrays)))


def test_windows_are_shown_with_the_layers_own_settings(rng: np.random.Generator) -> None:
    x, w = variable(rng, 2, 4, 9, 9), variable(rng, 6, 2, 3, 3)
    found = shown(called(lambda: ut.conv2d(x, w, stride=2, pad=1, groups=2)))
    assert found.settings == "stride 2, pad 1, dilation 1, groups 2"
    rows = np.pad(found.arrays[0][0], ((0, 0), (1, 1), (1, 1)))
    for group in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(rows[group], (3, 3))[::2, ::2]
        np.testing.assert_allclose(found.y[0, group], (windows * found.arrays[1][group, 0]).sum((2, 3)))
    pooled = shown(called(lambda: ut.max_pool2d(x, 3, 2, 1)))
    assert pooled.settings.startswith("size 3, stride 2, pad 1")
    rows = np.pad(pooled.arrays[0][0, 0], ((1, 0), (1, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(rows, (3, 3))[::2, ::2]
    np.testing.assert_allclose(pooled.y[0, 0], windows.max((2, 3)))


def test_windows_of_any_number_of_dimensions_are_shown(rng: np.random.Generator) -> None:
    found = shown(called(lambda: ut.functions.convnd(variable(rng, 1, 2, 9), variable(rng, 4, 2, 3), stride=2, pad=1)))
    assert found.settings == "stride 2, pad 1, dilation 1, groups 1"
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(found.arrays[0][0, 0], 1), 3)[::2]
    np.testing.assert_allclose(found.y[0, 0], windows @ found.arrays[1][0, 0])


def every_sample() -> list[tuple[Operation, Call]]:
    found = []
    for entry in operations():
        for sample in entry.samples(np.random.default_rng(1)) if entry.gradient in ("once", "twice") else ():
            recorder = Recorder()
            recorder.enter()
            with recorder:
                sample.call(*[ut.Variable(a, requires_grad=a.dtype.kind == "f") for a in sample.args])
            found += [(entry, call) for call in recorder.calls[0] if type(call.function) is entry.function][:1]
    return found


def test_every_variant_of_every_operation_is_shown_as_it_runs() -> None:
    """What the tests know of each operation, shown: with its own settings, right, and never of another variant."""
    checked = 0
    for entry, call in every_sample():
        found = example(call)
        if found is None:
            continue
        checked += 1
        if is_derivative(call):
            assert found.largest_error < 1e-4, (entry.name, found.origin)
        own = settings_of(call.function)
        assert found.settings == own or "some of its groups" in found.origin, (entry.name, found.origin)
    assert checked > 200


def test_neighbours_are_shown_where_they_count(rng: np.random.Generator) -> None:
    x = variable(rng, 2, 8, 3, 3)
    found = shown(called(lambda: ut.functions.lrn(x, 5, alpha=0.5)))
    assert found.arrays[0].shape == (1, 6, 1, 1)
    assert found.settings == "size 5, alpha 0.5, beta 0.75, k 1, region across"
    found = shown(called(lambda: ut.functions.softmax(x, 1)))
    assert found.settings == "axis 1"
    np.testing.assert_allclose(found.y.sum(1), 1)
    assert found.y.shape[1] > 1


@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (9, 4), (2, 4, 9)])
@pytest.mark.parametrize("slopes", [(4,), ()])
def test_a_learned_slope_for_each_channel_or_one(
    shape: tuple[int, ...], slopes: tuple[int, ...], rng: np.random.Generator
) -> None:
    recorder = Recorder()
    recorder.enter()
    with recorder:
        ut.functions.prelu(variable(rng, *shape), variable(rng, *slopes))
    found = shown(recorder.calls[0][-1])
    assert found.origin.startswith("values of this layer")
    slope = found.arrays[1]
    np.testing.assert_allclose(found.y, np.where(found.arrays[0] > 0, found.arrays[0], slope * found.arrays[0]))
    assert found.largest_error < 1e-6


def test_the_originals_own_ways_back_are_no_derivatives(rng: np.random.Generator) -> None:
    from undertow.caffe.functions import MeanVariance

    x = variable(rng, 3, 5)
    assert is_derivative(called(lambda: MeanVariance(True, 0.1)(x)))
    assert not is_derivative(called(lambda: MeanVariance(True, 0.1, ignore_eps=True)(x)))


def test_a_loss_shows_its_truth(rng: np.random.Generator) -> None:
    from undertow.darknet.layers.loss_functions import softmax_loss

    x, truth = variable(rng, 2, 30), np.eye(30)[[3, 4]]
    call = called(lambda: softmax_loss(x, truth))
    found = shown(call)
    assert _result_of(call, found) == "loss"
    assert _names_of("darknet_softmax", "loss = - sum of truth log p of x", len(found.arrays)) == ("x", "truth")
    p = np.exp(found.arrays[0])
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(found.y, -(found.arrays[1] * np.log(p)).sum())
    few = shown(called(lambda: softmax_loss(variable(rng, 2, 5), np.eye(5)[[3, 4]])))
    assert few.origin == "values of this layer"
    assert few.gradients[1] is None  # the truth is a constant
    total = shown(called(lambda: ut.functions.sum(variable(rng, 2, 5))))
    assert total.settings == "axis all"


def test_dropout_is_shown_with_the_values_that_fell_out(rng: np.random.Generator) -> None:
    x = variable(rng, 4, 30)
    result = []
    found = shown(called(lambda: result.append(ut.functions.dropout(x, 0.4, rng=rng))))
    np.testing.assert_allclose(found.y, result[0].data[:1, :5])
    assert found.settings == "ratio 0.4"
    assert found.largest_error < 1e-8


def test_a_sample_with_other_settings_says_so(rng: np.random.Generator) -> None:
    x = variable(rng, 2, 3, 4, 40)
    found = shown(called(lambda: ut.functions.upsample(x, 2)))
    assert re.search(r"with this layer's settings$", found.origin)
    assert found.settings == "factor 2, scale 1"
    assert settings_of(called(lambda: ut.relu(x)).function) == ""


def test_one_operand_is_x_and_a_learned_slope_is_a() -> None:
    assert _names_of("softmax", "y_i = e^x_i / (e^x_0 + ... + e^x_n)", 1) == ("x",)
    assert _names_of("prelu", "y = x where x > 0, else a x", 2) == ("x", "a")
    assert _names_of("lstm", "", 6) == ("x", "h0", "c0", "w_x", "w_h", "b")


def test_a_pooling_of_values_that_are_all_0_is_shown_on_a_sample_that_it_fits() -> None:
    """The corner of a picture may be black; its example is a sample of another size, with windows for that size."""
    found = explain_function(lambda x: ut.max_pool2d(x * 0, 2), [(2, 3, 24, 24)])
    (call,) = found.find(1).calls
    shown = example(call)
    assert shown is not None
    assert shown.origin == "a sample of the operation max_pool2d with this layer's settings"
    (x,) = shown.arrays
    height, width = x.shape[2] // 2, x.shape[3] // 2
    assert np.array_equal(shown.y, x.reshape(*x.shape[:2], height, 2, width, 2).max((3, 5)))
    assert shown.largest_error < 1e-6


def test_differences_are_not_swallowed_by_huge_values_that_stay(rng: np.random.Generator) -> None:
    """Darknet's max pooling pads with the lowest number there is: its sum with anything is itself."""
    x = variable(rng, 1, 2, 3)
    found = shown(called(lambda: ut.pad(x, [(0, 0), (1, 1), (1, 1)], float(np.finfo(np.float32).min))))
    (difference,) = found.differences
    assert difference is not None
    assert np.abs(difference).min() > 0
    assert found.largest_error < 1e-6

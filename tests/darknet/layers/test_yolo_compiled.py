"""The compiled passes of yolo's loss against those in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cpu.guards import GuardedTensor
from undertow import precision
from undertow.core.variable import Variable
from undertow.darknet.layers.yolo_assignment import YoloRule
from undertow.darknet.layers.yolo_loss import YoloLoss
from undertow.errors import UndertowError
from undertow.kernels import cpu, select
from undertow.kernels.cpu import yolo

Array = np.ndarray[Any, Any]

ANCHORS = np.array([[20, 30], [60, 40], [90, 130], [160, 100], [90, 130]], np.float32)
NET = (288, 224)


def rule(**values: Any) -> YoloRule:
    given = {"mask": (2, 0, 1), "classes": 3, "ignore_threshold": 0.5, "truth_threshold": 1.0, "max_boxes": 90}
    return YoloRule(ANCHORS, net_size=NET, **{**given, **values})


def inputs(rng: np.random.Generator, batch: int, channels: int, height: int, width: int) -> Array:
    return rng.standard_normal((batch, channels, height, width)).astype(np.float32)


def objects(rng: np.random.Generator, batch: int, count: int, classes: int) -> Array:
    """Of the sizes of anchors, some in one cell, some of odd sizes or outside."""
    rows = np.zeros((batch, 92, 5), np.float32)
    for row in rows:
        for k in range(count):
            size = ANCHORS[rng.integers(4)] / NET * rng.uniform(0.7, 1.4, 2)
            row[k] = (*rng.uniform(0.01, 1, 2), *size, rng.integers(classes))
            if k % 4 == 1:
                row[k, :4] = row[k - 1, :4] + 1e-3
            if k % 9 == 5:
                row[k, :2] += rng.choice([-1, 1])
            if k % 9 == 7:
                row[k, 2:4] = rng.choice([1e-5, 3.0, 0.0], 2)
    return rows.reshape(batch, -1)


def passed(x: Array, truth: Array, options: YoloRule, straight_through: bool = False) -> tuple[YoloLoss, Array, float]:
    """The operation after its forward, its output and loss."""
    function = YoloLoss(options, straight_through)
    with np.errstate(all="ignore"):
        y, loss = function(Variable(x, requires_grad=True), truth)
    return function, y.data, float(loss.data)


def is_compiled(function: YoloLoss) -> bool:
    return function._asked is not None


def assert_same(x: Array, truth: Array, options: YoloRule, gy: Array | None = None, through: bool = False) -> None:
    function, y, loss = passed(x, truth, options, through)
    with precision("reference"):
        plain, plain_y, plain_loss = passed(x, truth, options, through)
    assert is_compiled(function)
    assert not is_compiled(plain)
    np.testing.assert_allclose(y, plain_y, rtol=1e-6, atol=2e-7)
    found, expected = function.assignment, plain.assignment
    np.testing.assert_array_equal(found.objectness_weight, expected.objectness_weight)
    np.testing.assert_array_equal(found.objectness_target, expected.objectness_target)
    for one, other in zip(found.cells, expected.cells, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(found.cell_target, expected.cell_target, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(found.cell_weight, expected.cell_weight, rtol=1e-6)
    for name, value in vars(expected.statistics).items():
        assert getattr(found.statistics, name) == pytest.approx(value, rel=1e-5, abs=1e-9, nan_ok=True), name
    assert loss == pytest.approx(plain_loss, rel=2e-5, abs=1e-6, nan_ok=True)
    assert function.cost == pytest.approx(plain.cost, rel=2e-5, abs=1e-9, nan_ok=True)
    np.testing.assert_allclose(function.delta, plain.delta, rtol=1e-5, atol=1e-5)
    gy = np.zeros_like(x) if gy is None else gy
    factor = np.array(0.5, np.float32)
    np.testing.assert_allclose(
        function.backward(gy, factor)[0], plain.backward(gy, factor)[0], rtol=1e-5, atol=1e-5
    )


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    batch=st.integers(1, 3),
    grid=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    mask=st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
    classes=st.integers(1, 40),
    count=st.sampled_from([0, 1, 4, 12, 60]),
    ignore=st.sampled_from([-1.0, 0.0, 0.02, 0.05, 0.2, 0.5, 0.7, 0.99]),
    nhwc=st.booleans(),
    mapped=st.booleans(),
)
def test_heads_of_all_shapes(
    seed: int,
    batch: int,
    grid: tuple[int, int],
    mask: list[int],
    classes: int,
    count: int,
    ignore: float,
    nhwc: bool,
    mapped: bool,
) -> None:
    rng = np.random.default_rng(seed)
    x = inputs(rng, batch, len(mask) * (5 + classes), *grid)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if nhwc else x
    names = rng.integers(0, classes, 7) if mapped else None
    options = rule(mask=tuple(mask), classes=classes, ignore_threshold=ignore, class_map=names)
    assert_same(x, objects(rng, batch, count, 7 if mapped else classes), options)


@pytest.mark.parametrize(
    "values", [{"max_boxes": 3}, {"max_boxes": 0}, {"reset_by_zero_delta": True}, {"truth_threshold": 1.5}]
)
def test_options(values: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    x = inputs(rng, 3, 24, 7, 9)
    x[:, 5::8] = 1000.0  # the first class's output is 1: asked for, its delta is 0
    assert_same(x, objects(rng, 3, 40, 3), rule(**values))


@pytest.mark.parametrize("through", [False, True])
def test_gradients_of_outputs_are_added(through: bool) -> None:
    rng = np.random.default_rng(6)
    x = inputs(rng, 2, 24, 7, 9)
    assert_same(x, objects(rng, 2, 9, 3), rule(), rng.standard_normal(x.shape).astype(np.float32), through)


def test_large_numbers() -> None:
    rng = np.random.default_rng(7)
    x = inputs(rng, 2, 24, 7, 9) * np.float32(60)
    x[0, 2:4] = 300  # a box without end
    x[1, 4] = -3e30
    assert_same(x, objects(rng, 2, 9, 3), rule(ignore_threshold=0.1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_left_to_numpy(bad: float) -> None:
    rng = np.random.default_rng(8)
    x = inputs(rng, 2, 24, 7, 9)
    x[1, 23, 6, 8] = bad
    assert not is_compiled(passed(x, objects(rng, 2, 3, 3), rule())[0])


def test_other_things_that_are_left_to_numpy() -> None:
    rng = np.random.default_rng(9)
    x, truth = inputs(rng, 2, 24, 7, 9), objects(rng, 2, 3, 3)
    assert is_compiled(passed(x, truth, rule())[0])
    assert not is_compiled(passed(x, truth, rule(truth_threshold=0.7))[0])
    assert not is_compiled(passed(x.astype(np.float64), truth, rule())[0])
    for place, value in ((0, np.nan), (2, np.inf), (3, np.nan)):
        odd = truth.copy()
        odd[1, place] = value
        assert not is_compiled(passed(x, odd, rule())[0])
    for label in (-1, 3, np.nan):
        truth[1, 9] = label
        with pytest.raises(UndertowError, match="the yolo layer knows 3"):
            passed(x, truth, rule())


def test_a_box_that_is_the_truth_itself() -> None:
    """Rounding may make its overlap more than 1, for which the NumPy version has a rule."""
    rng = np.random.default_rng(10)
    x, truth = inputs(rng, 1, 24, 7, 9), np.zeros((1, 10), np.float32)
    plain = passed(x, truth, rule())[1].reshape(3, 8, 7, 9)
    sides = np.exp(plain[1, 2:4, 3, 4]) * ANCHORS[0] / np.array(NET, np.float32)
    truth[0, :5] = ((plain[1, 0, 3, 4] + 4) / 9, (plain[1, 1, 3, 4] + 3) / 7, *sides, 1)
    weight = passed(x, truth, rule(ignore_threshold=0.999))[0].assignment.weight.reshape(3, 8, 7, 9)
    with precision("reference"):
        expected = passed(x, truth, rule(ignore_threshold=0.999))[0].assignment.weight.reshape(3, 8, 7, 9)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)


def test_nothing_outside_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a gradient may lie among the channels of something wider, as may the input."""
    blocks: list[tuple[Array, int]] = []

    def watched(shape: tuple[int, ...], kind: type = np.float32) -> Array:
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        blocks.append((np.full(size + 512, 0xA5, np.uint8), size))
        return blocks[-1][0][256 : 256 + size].view(kind).reshape(shape)

    rng = np.random.default_rng(11)
    backend = select.compiled(np.ones(1, np.float32))
    assert backend is cpu
    monkeypatch.setattr(yolo, "_empty", watched)
    monkeypatch.setattr(
        yolo.memory, "empty_nhwc", lambda n, c, h, w: watched((n, h, w, c)).transpose(0, 3, 1, 2)
    )
    for mask, classes in (((1,), 1), ((2, 0, 1), 9), ((0, 1), 30)):
        x, gx = (GuardedTensor(2, len(mask) * (5 + classes), 5, 7) for _ in range(2))
        x.array[...] = inputs(rng, *x.array.shape)
        truth = objects(rng, 2, 50, classes)
        options = rule(mask=mask, classes=classes)
        function, _, _ = passed(x.array, truth, options)
        assert is_compiled(function)
        given = function.backward_planned((gx.array, None), (None, np.array(2, np.float32)))[0]
        assert np.shares_memory(given, gx.array)
        np.testing.assert_allclose(gx.array, -2 * function.delta, rtol=1e-6)
        x.check()
        gx.check()
    for block, size in blocks:
        assert (block[:256] == 0xA5).all()
        assert (block[256 + size :] == 0xA5).all()


def test_threads_change_no_digit() -> None:
    rng = np.random.default_rng(12)
    x, truth = inputs(rng, 3, 24, 7, 9), objects(rng, 3, 20, 3)
    results = []
    try:
        for threads in (1, 2, 3, 7):
            cpu.set_threads(threads)
            function, y, loss = passed(x, truth, rule())
            gx = function.backward(np.zeros_like(x), np.array(1, np.float32))[0]
            results.append((y, gx, loss, function.cost, function.assignment.statistics))
    finally:
        cpu.set_threads(None)
    for y, gx, *numbers in results[1:]:
        np.testing.assert_array_equal(y, results[0][0])
        np.testing.assert_array_equal(gx, results[0][1])
        assert numbers == list(results[0][2:])

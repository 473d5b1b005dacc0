"""Yolo: what is asked of which output against the loops of yolo_layer.c, and the sums that leave out what is 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from tests.darknet.layers.small import Section, build, conv, net, samples
from undertow.core.variable import Variable
from undertow.darknet.detection.boxes import box_iou
from undertow.darknet.layers.yolo_assignment import Assignment, YoloRule, assign
from undertow.darknet.layers.yolo_loss import YoloLoss
from undertow.darknet.layers.yolo_overlaps import overlapping
from undertow.errors import UndertowError

Array = np.ndarray[Any, Any]

ANCHORS = np.array([[20.0, 30.0], [60.0, 40.0], [90.0, 130.0], [160.0, 100.0]])
GRID = (7, 9)  # rows, columns
CLASSES = 3


def rule(**values: Any) -> YoloRule:
    given = {"ignore_threshold": 0.5, "truth_threshold": 1.0, "max_boxes": 90, **values}
    return YoloRule(ANCHORS, (2, 0, 1), CLASSES, (288, 224), **given)


def outputs(seed: int, dtype: Any = np.float64, nhwc: bool = False, batch: int = 3) -> Array:
    """Of a head before the logistic, (batch, 3 * 8, rows, columns)."""
    shape = (batch, *GRID, 24) if nhwc else (batch, 24, *GRID)
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return x.transpose(0, 3, 1, 2) if nhwc else x


def truth(seed: int, count: int, batch: int = 3) -> Array:
    """Lists of up to `count` objects: of the sizes of anchors, some in one cell, some of odd sizes or outside."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((batch, 92, 5))
    for row in rows:
        for k in range(rng.integers(count // 2, count + 1)):
            size = ANCHORS[rng.integers(4)] / (288, 224) * rng.uniform(0.7, 1.4, 2)
            row[k] = (*rng.uniform(0.01, 1, 2), *size, rng.integers(CLASSES))
            if k % 4 == 1:
                row[k, :4] = row[k - 1, :4] + 1e-3
            if k % 9 == 5:
                row[k, :2] += rng.choice([-1, 1])
            if k % 9 == 7:
                row[k, 2:4] = rng.choice([1e-5, 3.0], 2)
    return rows.reshape(batch, -1)


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Loops:
    """yolo_layer.c, forward_yolo_layer, one value after another."""

    def __init__(self, x: Array, truth: Array, rule: YoloRule) -> None:
        self.rule = rule
        self.y = x.astype(np.float64).reshape(len(x), 3, 5 + CLASSES, *GRID)
        self.y = np.concatenate([logistic(self.y[:, :, :2]), self.y[:, :, 2:4], logistic(self.y[:, :, 4:])], axis=2)
        self.delta, self.labelled = np.zeros_like(self.y), np.zeros((len(x), 3, *GRID), bool)
        self.iou = self.objectness = self.class_score = 0.0
        self.count = self.recall50 = self.recall75 = 0
        for image, row in enumerate(truth.reshape(len(x), -1, 5)[:, : rule.max_boxes]):
            self._image(image, list(self._until_the_end(row)))

    @staticmethod
    def _until_the_end(rows: Array) -> Iterator[Array]:
        for box in rows:
            if box[0] == 0:
                return
            yield box

    def _image(self, image: int, truths: list[Array]) -> None:
        rows, columns = GRID
        for row, column, n in np.ndindex(rows, columns, 3):
            place = (image, n, slice(None), row, column)
            overlaps = [float(box_iou(self._box(place), t[:4])) for t in truths]
            best = max(overlaps, default=0.0)
            self.delta[image, n, 4, row, column] = -self.y[image, n, 4, row, column]
            if best > self.rule.ignore_threshold:
                self.delta[image, n, 4, row, column] = 0
            if best > self.rule.truth_threshold:
                self._ask(place, truths[overlaps.index(best)])
        for t in truths:
            row, column = int(t[1] * rows), int(t[0] * columns)
            best_n = int(np.argmax([float(box_iou(np.array([0, 0, *t[2:4]]), self._anchor(a))) for a in range(4)]))
            if best_n in self.rule.mask and 0 <= row < rows and 0 <= column < columns:
                self._count((image, self.rule.mask.index(best_n), slice(None), row, column), t)

    def _anchor(self, a: int) -> Array:
        return np.array([0, 0, *(ANCHORS[a] / self.rule.net_size)])

    def _box(self, place: tuple[Any, ...]) -> Array:
        _, n, _, row, column = place
        x, y, w, h = self.y[place][:4]
        size = np.exp([w, h]) * ANCHORS[self.rule.mask[n]] / self.rule.net_size
        return np.array([(column + x) / GRID[1], (row + y) / GRID[0], *size])

    def _count(self, place: tuple[Any, ...], t: Array) -> None:
        overlap = float(box_iou(self._box(place), t[:4]))
        self.iou, self.objectness = self.iou + overlap, self.objectness + self.y[place][4]
        self.class_score += self.y[place][5 + int(t[4])]
        self.count, self.recall50, self.recall75 = (
            self.count + 1,
            self.recall50 + (overlap > 0.5),
            self.recall75 + (overlap > 0.75),
        )
        self._ask(place, t)

    def _ask(self, place: tuple[Any, ...], t: Array) -> None:
        image, n, _, row, column = place
        y, delta, label = self.y[place], self.delta[place], 5 + int(t[4])
        size = np.log(t[2:4] * self.rule.net_size / ANCHORS[self.rule.mask[n]])
        wanted = np.array([t[0] * GRID[1] - column, t[1] * GRID[0] - row, *size])
        delta[:4], delta[4] = (2 - t[2] * t[3]) * (wanted - y[:4]), 1 - y[4]
        taken = delta[5] != 0 if self.rule.reset_by_zero_delta else self.labelled[image, n, row, column]
        if not taken:
            delta[5:] = -y[5:]
        delta[label] = 1 - y[label]
        self.labelled[image, n, row, column] = True


def of(x: Array, truth: Array, rule: YoloRule, straight_through: bool = False) -> YoloLoss:
    """The operation after its forward."""
    function = YoloLoss(rule, straight_through)
    outputs = function(Variable(x, requires_grad=True), truth)
    function.kept = outputs  # type: ignore[attr-defined]
    return function


def whole(found: Assignment) -> Array:
    """Deltas from dense targets and weights."""
    delta: Array = found.weight * (found.target - found.output)
    return delta


@pytest.mark.parametrize(
    ("count", "values"),
    [
        (0, {}),
        (1, {}),
        (6, {"ignore_threshold": 0.7}),
        (40, {"ignore_threshold": 0.2}),
        (40, {"max_boxes": 3}),
        (90, {"ignore_threshold": 0.02}),
        (12, {"truth_threshold": 0.4}),
        (40, {"ignore_threshold": 0.3, "truth_threshold": 0.15}),
        (20, {"ignore_threshold": -1.0}),
        (20, {"truth_threshold": 0.3, "reset_by_zero_delta": True}),
    ],
)
@pytest.mark.parametrize("nhwc", [False, True])
def test_deltas_and_statistics_are_those_of_the_original(count: int, values: dict[str, Any], nhwc: bool) -> None:
    x, boxes, options = outputs(count, nhwc=nhwc), truth(count + 1, count), rule(**values)
    if options.reset_by_zero_delta:
        x[:, 5::8] = 1000.0  # the first class's output is 1: asked for, its delta is 0
    loops, function = Loops(x, boxes, options), of(x, boxes, options)
    np.testing.assert_allclose(function.delta, loops.delta.reshape(x.shape), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(function.delta, whole(function.assignment).reshape(x.shape))
    found = function.assignment.statistics
    assert (found.count, found.recall50, found.recall75) == (loops.count, loops.recall50, loops.recall75)
    expected = (loops.iou, loops.objectness, loops.class_score, loops.y[:, :, 4].mean())
    np.testing.assert_allclose((found.iou, found.objectness, found.class_score, found.no_objectness), expected, 1e-9)
    assert function.cost == pytest.approx(np.sum(loops.delta**2), rel=1e-12)


def test_several_objects_in_a_cell() -> None:
    """The box is that of the last, the classes are all asked for."""
    boxes = np.zeros((1, 10))
    boxes[0] = (0.5, 0.5, 0.1, 0.1, 0, 0.51, 0.52, 0.12, 0.1, 2)
    found = of(outputs(1, batch=1), boxes, rule()).assignment
    assert [len(part) for part in found.cells] == [1] * 4
    assert found.cell_target[0, 4:].tolist() == [1, 1, 0, 1]
    assert found.cell_target[0, 0] == pytest.approx(0.51 * 9 - 4)
    assert found.statistics.count == 2


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.03, 0.05, 0.2, 0.5, 0.7, 0.95])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_overlap_is_overlooked(threshold: float, dtype: Any) -> None:
    """Against comparing everything, with boxes that fit exactly, are tiny or huge, or no numbers."""
    rng = np.random.default_rng(7)
    boxes = np.empty((4, 2, 3, *GRID), dtype)
    boxes[0] = (rng.random((2, 3, *GRID)) + np.arange(9)) / 9
    boxes[1] = (rng.random((2, 3, *GRID)) + np.arange(7)[:, None]) / 7
    boxes[2:] = rng.uniform(0.03, 0.4, (2, 2, 3, *GRID))
    boxes[2, 0, 0], boxes[3, 1, 1], boxes[2:, 0, 2, 3, 3] = 1e-7, np.inf, np.nan
    image, objects = rng.integers(0, 2, 200), np.empty((200, 5), dtype)
    for k, at in enumerate(image):
        objects[k, :4] = boxes[:, at, rng.integers(3), rng.integers(7), rng.integers(9)]
        if k % 3:
            objects[k, :2] += objects[k, 2:4] * rng.uniform(-0.3, 0.3, 2)
            objects[k, 2:4] *= rng.uniform(0.7, 1.5, 2)
    objects[:6, 2:4] = [[1e-5, 0.2], [0, 0], [-0.1, 0.2], [1e-20, 1e-20], [50, 70], [np.nan, 0.1]]
    with np.errstate(invalid="ignore"):
        found = [
            (int(place), float(share))
            for part in overlapping(boxes, image, objects, threshold)
            for place, share in zip(*part, strict=True)
        ]
        wanted = []
        for at, one in zip(image, objects, strict=True):
            every = np.nan_to_num(box_iou(np.moveaxis(boxes[:, at], 0, -1), one[:4])).reshape(-1)
            wanted += [(int(p) + int(at) * every.size, float(every[p])) for p in np.flatnonzero(every > threshold)]
    assert sorted(found) == sorted(wanted)
    assert len(wanted) > 40


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_is_the_sum_over_everything(dtype: Any) -> None:
    x, options = outputs(2, dtype), rule(truth_threshold=0.5)
    function = of(x, truth(3, 20), options)
    loss = function.kept[1].data  # type: ignore[attr-defined]
    found, raw = function.assignment, x.reshape(3, 3, 8, *GRID).astype(np.float64)
    target, weight = found.target.astype(np.float64), found.weight.astype(np.float64)
    entropy = weight * (np.logaddexp(0, raw) - target * raw)
    squares = 0.5 * weight * (target - raw) ** 2
    expected = entropy[:, :, :2].sum() + squares[:, :, 2:4].sum() + entropy[:, :, 4:].sum()
    assert loss.dtype == dtype
    assert float(loss) == pytest.approx(expected, rel=1e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("straight_through", [False, True])
def test_gradients_of_outputs_are_added(straight_through: bool) -> None:
    x, rng = outputs(4, nhwc=True), np.random.default_rng(4)
    function = of(x, truth(5, 10), rule(), straight_through)
    gy: Array = np.asarray(rng.standard_normal(x.shape))
    y: Any = function.kept[0].data.reshape(3, 3, 8, *GRID)  # type: ignore[attr-defined]
    slope: Any = np.ones_like(y) if straight_through else y * (1 - y)
    slope[:, :, 2:4] = 1
    expected = -0.5 * whole(function.assignment) + gy.reshape(y.shape) * slope
    half = np.asarray(0.5)
    np.testing.assert_allclose(function.backward(gy, half)[0], expected.reshape(x.shape), rtol=1e-12)
    without = function.backward(np.zeros_like(gy), half)[0]
    np.testing.assert_array_equal(without, -0.5 * function.delta)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("entry", [0, 2, 4, 6])
def test_what_is_not_finite_is_not_left_out(bad: float, entry: int) -> None:
    """Also where nothing is asked for: weight 0 times infinity is no number."""
    x = outputs(6)
    x[1, entry, 0, 0] = bad
    function = of(x, truth(7, 1), rule())
    with np.errstate(invalid="ignore"):
        expected = whole(function.assignment).reshape(x.shape)
        assert not function.finite
        np.testing.assert_array_equal(function.delta, expected)
        np.testing.assert_array_equal(
            np.isnan(function.backward(np.zeros_like(x), np.array(1.0))[0]), np.isnan(expected)
        )
        assert np.isnan(function.cost) == np.isnan(expected).any()
    loss = float(function.kept[1].data)  # type: ignore[attr-defined]
    assert np.isfinite(loss) == (entry in (0, 6))


def test_large_numbers_are_finite() -> None:
    """The sum of their squares is not."""
    x = outputs(8, np.float32)
    x[0, 5] = -3e30
    function = of(x, truth(9, 2), rule())
    assert function.finite
    assert np.isfinite(function.cost)


def head() -> list[Section]:
    return [net(), conv(14, activation="linear"), ("yolo", {"anchors": "2,3,5,4", "num": 2, "classes": 2})]


def test_the_input_is_searched_for_nan_only_where_it_may_hold_some() -> None:
    network = build(head())
    images = samples(network)[0]
    boxes = np.zeros((2, network.truths))
    boxes[0, :5] = (0.4, 0.6, 0.5, 0.5, 1)
    network.forward(images, boxes)
    convolution, layer = cast(tuple[Any, Any], network.layers)
    assert layer.loss_input is None
    assert network.cost == pytest.approx(np.sum(layer._function.delta**2), rel=1e-12)
    convolution.biases[3] = np.inf
    with np.errstate(invalid="ignore"):
        network.forward(images, boxes)
    found: Any = layer.loss_input
    assert np.isinf(found).any()


def test_truths_that_make_no_sense() -> None:
    boxes = truth(1, 2, batch=1)
    boxes[0, 4] = np.nan
    with pytest.raises(UndertowError, match="a truth has class nan, the yolo layer knows 3"):
        of(outputs(1, batch=1), boxes, rule())
    boxes[0, :5] = (np.nan, 0.5, 0.2, 0.2, 1)
    plain = np.delete(boxes, range(5), axis=1)
    expected = of(outputs(1, batch=1), plain, rule())
    np.testing.assert_array_equal(of(outputs(1, batch=1), boxes, rule()).delta, expected.delta)


def test_classes_are_mapped_in_a_copy() -> None:
    boxes = np.array([[0.5, 0.5, 0.2, 0.2, 0.0]])
    y = logistic(outputs(3, batch=1)).reshape(1, 3, 8, *GRID)
    found = assign(y, boxes, rule(class_map=np.array([2, 0, 1])))
    assert found.cell_target[0, 5:].tolist() == [0, 0, 1]
    assert boxes[0, 4] == 0

"""YOLOv1 from pictures: the grid of the truth, learning, measuring, and going on where it stopped."""

from __future__ import annotations

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_checkpoint import run, same
from undertow.darknet import validate
from undertow.data.augment import DetectionOptions, correct_boxes
from undertow.data.augment_grid import Grid, augment_grid, fill_truth_grid
from undertow.data.crand import CounterRandom

DETECTION = """[connected]
output=192
activation=linear

[detection]
classes=2
coords=4
side=4
num=2
rescore=1
sqrt=1
random={random}
object_scale=1
noobject_scale=.5
class_scale=1
coord_scale=5
"""


@pytest.fixture
def grid_scene(scene: Scene) -> Scene:
    text = scene.cfg.read_text()
    scene.cfg.write_text(text[: text.index("[convolutional]\nsize=1")] + DETECTION.format(random=0))
    return scene


def test_the_grid_by_hand() -> None:
    boxes = np.array(
        [
            [0.60, 0.30, 0.2, 0.4],  # cell (2, 1) of 4
            [0.55, 0.45, 0.5, 0.5],  # the same cell: the first has it
            [0.10, 0.90, 0.004, 0.5],  # too narrow
            [0.99, 0.01, 0.02, 0.005],  # the upper right cell; exactly as low as counts
            [999999, 999999, 999999, 999999],  # lost
        ],
        np.float32,
    )
    truth = fill_truth_grid(boxes, np.array([1, 0, 0, 2, 0]), Grid(4, 2))
    wanted = np.zeros((4, 4, 7))
    wanted[1, 2] = 1, 0, 1, 0.4, 0.2, 0.2, 0.4
    wanted[0, 3] = 1, 0, 0, 0.96, 0.04, 0.02, 0.005  # a class beyond the last leaves none
    np.testing.assert_allclose(truth.reshape(4, 4, 7), wanted, atol=1e-6)


# What correct_boxes and fill_truth_region of the C program (src/data.c, compiled by themselves, the order of the boxes
# kept) write for six boxes, 3 classes, 4 x 4 cells: flip, dx, dy, sx, sy, then the cells that are not zero by row and
# column: there, three classes, x, y, w, h.
BOXES = [[0.5, 0.5, 0.2, 0.3, 1], [0.52, 0.53, 0.4, 0.1, 0], [0.12, 0.81, 0.22, 0.3, 2], [0.93, 0.2, 0.3, 0.25, 1],
         [0.3, 0.3, 0.1, 0.1, 3], [0.31, 0.36, 0.002, 0.2, 2]]  # fmt: skip
ORIGINAL = [
    ((False, 0, 0, 1, 1), {
        (0, 3): (1, 0, 1, 0, 0.5599999, 0.8, 0.22, 0.25),
        (1, 1): (1, 0, 0, 0, 0.2, 0.2, 0.1, 0.1),
        (2, 2): (1, 0, 1, 0, 0, 0, 0.2, 0.3),
        (3, 0): (1, 0, 0, 1, 0.48, 0.24, 0.22, 0.3000001),
    }),
    ((True, 0, 0, 1, 1), {
        (0, 0): (1, 0, 1, 0, 0.4400001, 0.8, 0.22, 0.25),
        (1, 2): (1, 0, 0, 0, 0.8, 0.2, 0.1, 0.1),
        (2, 1): (1, 1, 0, 0, 0.9200001, 0.1199999, 0.4, 0.1),
        (2, 2): (1, 0, 1, 0, 0, 0, 0.2, 0.3),
        (3, 3): (1, 0, 0, 1, 0.52, 0.24, 0.22, 0.3000001),
    }),
    ((False, 0.125, -0.0625, 1.25, 0.875), {
        (0, 3): (1, 0, 1, 0, 0.6999998, 0.95, 0.15, 0.21875),
        (1, 1): (1, 0, 0, 0, 0, 0.3000001, 0.125, 0.08750004),
        (2, 2): (1, 0, 1, 0, 0, 0, 0.25, 0.2625),
        (3, 0): (1, 0, 0, 1, 0.325, 0.08500004, 0.1625, 0.2625),
    }),
    ((True, -0.1, 0.07, 0.8, 1.1), {
        (0, 0): (1, 0, 1, 0, 0.6239998, 0.6, 0.24, 0.275),
        (1, 1): (1, 0, 1, 0, 0.9999999, 0.92, 0.16, 0.33),
        (1, 2): (1, 0, 0, 0, 0.6399999, 0.04000008, 0.07999998, 0.11),
        (2, 1): (1, 1, 0, 0, 0.936, 0.05200005, 0.32, 0.1100001),
        (3, 3): (1, 0, 0, 1, 0.2160001, 0.2840002, 0.1760001, 0.3300002),
    }),
]  # fmt: skip


@pytest.mark.parametrize(("moved", "cells"), ORIGINAL)
def test_the_grid_is_that_of_the_original(
    moved: tuple[bool, float, float, float, float], cells: dict[tuple[int, int], tuple[float, ...]]
) -> None:
    flip, dx, dy, sx, sy = moved
    boxes = np.array(BOXES, np.float32)
    truth = fill_truth_grid(correct_boxes(boxes[:, :4], dx, dy, sx, sy, flip), boxes[:, 4], Grid(4, 3))
    wanted = np.zeros((4, 4, 8), np.float32)
    for place, values in cells.items():
        wanted[place] = values
    np.testing.assert_allclose(truth.reshape(4, 4, 8), wanted, atol=4e-7)


@pytest.mark.parametrize("counter", range(8))
def test_boxes_go_where_the_pixels_go(counter: int) -> None:
    """A bright rectangle is found again, by its pixels, where the truth says it is."""
    picture = np.zeros((3, 60, 80), np.float32)
    picture[:, 24:36, 32:52] = 1
    box = np.array([[42 / 80, 30 / 60, 20 / 80, 12 / 60, 1]], np.float32)
    view, truth = augment_grid(picture, box, (160, 160), DetectionOptions(), CounterRandom(3, counter), Grid(5, 2))
    assert view.shape == (3, 160, 160)
    (cell,) = np.flatnonzero(truth[:, 0])
    assert truth[cell, 1:3].tolist() == [0, 1]
    rows, columns = np.nonzero(view[0] > 0.5)
    x, y = (cell % 5 + truth[cell, 3]) / 5, (cell // 5 + truth[cell, 4]) / 5
    found = [(columns.min() + columns.max() + 1) / 320, (rows.min() + rows.max() + 1) / 320]
    np.testing.assert_allclose([x, y], found, atol=0.015)
    size = [(columns.max() + 1 - columns.min()) / 160, (rows.max() + 1 - rows.min()) / 160]
    np.testing.assert_allclose(truth[cell, 5:7], size, atol=0.02)


def test_a_stopped_run_goes_on_bit_for_bit(grid_scene: Scene) -> None:
    whole, told = run(grid_scene)
    run(grid_scene, stop_after=5)
    resumed, second = run(grid_scene, grid_scene.backup)
    assert any("going on exactly" in note for note in second.notes)
    assert same(whole.net, resumed.net)
    assert second.iterations[-1].loss == told.iterations[-1].loss


def test_boxes_by_chance_do_not_change_the_size(grid_scene: Scene) -> None:
    grid_scene.cfg.write_text(grid_scene.cfg.read_text().replace("random=0", "random=1"))
    _, told = run(grid_scene)
    assert told.sizes == []


def test_it_learns_and_is_measured(grid_scene: Scene) -> None:
    grid_scene.cfg.write_text(grid_scene.cfg.read_text().replace("max_batches=6", "max_batches=80"))
    _, told = run(grid_scene)
    losses = [iteration.loss for iteration in told.iterations]
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:5])
    evaluation = validate(grid_scene.data, grid_scene.cfg, grid_scene.backup.with_name("tiny_final.weights"))
    assert 0 <= evaluation.mean_average_precision <= 1
    assert sum(result.truths for result in evaluation.classes) == 12

"""detector calc_anchors through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Answer
from tests.darknet.training.scenes import Scene

Command = Callable[..., Answer]


def test_lines_and_files_are_the_forks(undertow: Command, scene: Scene, tmp_path: Path) -> None:
    answer = undertow(
        "darknet", "detector", "calc_anchors", scene.data, "-num_of_clusters", 3, "-width", 64, "-height", 64, "-show"
    )
    assert answer.status == 0
    assert " num_of_clusters = 3, width = 64, height = 64 " in answer.out
    assert " loaded \t image: 6 \t box: 12\n" in answer.out
    assert " avg IoU = " in answer.out
    text = (tmp_path / "anchors.txt").read_text()
    assert f"anchors = {text}\n" in answer.out
    sizes = [float(number) for number in text.split(",")]
    assert len(sizes) == 6
    assert all(8 / 56 * 64 - 1 <= width <= 20 / 56 * 64 + 1 for width in sizes[::2])
    assert (tmp_path / "counters_per_class.txt").read_text() == "counters_per_class = 6, 6"
    again = undertow(
        "darknet", "detector", "calc_anchors", scene.data, "-num_of_clusters", 3, "-width", 64, "-height", 64
    )
    assert again.out == answer.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-num_of_clusters", "90"], "90 anchors for boxes of 12 different sizes"),
        (["-width", "0"], "-width 0: at least 1"),
        (["-num_of_cluster", "3"], "did you mean -num_of_clusters?"),
    ],
)
def test_what_cannot_be_done_is_told(undertow: Command, scene: Scene, words: list[str], message: str) -> None:
    assert message in undertow("darknet", "detector", "calc_anchors", scene.data, *words).error


def test_pictures_without_labels_are_told(undertow: Command, scene: Scene) -> None:
    for number in range(6):
        scene.image(number).with_suffix(".txt").unlink()
    assert "no labels with boxes" in undertow("darknet", "detector", "calc_anchors", scene.data).error

"""Window files, and where windows lie in their results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.data.samples import make_images, pictures
from undertow.caffe.data.feed_windows import Placed, WindowFeed, WindowOptions, place
from undertow.caffe.data.windowfile import Window, read_window_file
from undertow.errors import FormatError, ShapeError

GOOD = "# 0\n0.png\n3\n6\n8\n3\n2 0.9 1 1 5 4\n7 0.2 2 0 7 5\n1 0.4 0 0 1 1\n# 1 1.png 3 6 8 1\n 1 0.5 0 0 7 5\n"


def written(folder: Path, text: str) -> Path:
    (folder / "w.txt").write_text(text)
    return folder / "w.txt"


def test_windows_by_their_overlap(tmp_path: Path) -> None:
    found = read_window_file(written(tmp_path, GOOD), 0.5, 0.3)
    assert found.images == ["0.png", "1.png"]
    assert found.foreground == [Window(0, 2, 1, 1, 5, 4), Window(1, 1, 0, 0, 7, 5)]
    assert found.background == [Window(0, 0, 2, 0, 7, 5)]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (GOOD.replace("# 1", "# 2"), 10, "'# 1' should begin"),
        (GOOD.replace("# 0", "0"), 1, "'# 0' should begin"),
        (GOOD.replace("2 0.9", "0 0.9"), 7, "class 0"),
        (GOOD.replace("0.2", "zero"), 8, "an overlap should be a number, not 'zero'"),
        (GOOD.replace("1 1 5 4", "1 1.5 5 4"), 7, "y1 should be a whole number"),
        (GOOD[:-4], 11, "ends where"),
        (GOOD.replace("\n3\n2 0.9", "\n3000000000\n2 0.9"), 6, "should be a whole number"),
    ],
)
def test_faults_with_their_lines(tmp_path: Path, text: str, line: int, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        read_window_file(written(tmp_path, text), 0.5, 0.3)
    assert caught.value.line == line


def test_lists_without_one_kind(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no background window"):
        read_window_file(written(tmp_path, GOOD), 0.5, 0.1)
    with pytest.raises(FormatError, match="no foreground window"):
        read_window_file(written(tmp_path, GOOD), 0.95, 0.3)


def options(**values: object) -> WindowOptions:
    return WindowOptions(batch_size=4, crop_size=10, **values)  # type: ignore[arg-type]


def test_where_windows_lie() -> None:
    """By hand: 4 wide and 2 high at (3, 4), with pad 1 grown by 10/8; as a square; beyond the edge; mirrored."""
    window = Window(0, 1, 3, 4, 6, 5)
    assert place(window, (20, 20), options(), False) == Placed(3, 4, 6, 5, 10, 10, 0, 0)
    # centre 5, 5; half sizes 2 * 1.25 = 2.5 and 1 * 1.25: x 2.5..7.5 -> 3..8 (halves away from zero), y 3.75..6.25
    assert place(window, (20, 20), options(context_pad=1), False) == Placed(3, 4, 8, 6, 10, 10, 0, 0)
    assert place(window, (20, 20), options(square=True), False) == Placed(3, 3, 7, 7, 10, 10, 0, 0)
    corner = Window(0, 1, 0, 0, 3, 3)
    # centre 2, 2; half sizes 2.5: -0.5 -> -1 .. 4.5 -> 5, seven wide, of which one column and row lie outside
    assert place(corner, (20, 20), options(context_pad=1), False) == Placed(0, 0, 5, 5, 9, 9, 1, 1)
    assert place(corner, (20, 20), options(context_pad=1), True) == Placed(0, 0, 5, 5, 9, 9, 1, 0)
    with pytest.raises(ShapeError, match="does not lie in a picture of 5 x 5"):
        place(window, (5, 5), options(), False)


def test_batches_are_background_first(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(2))
    windows = read_window_file(written(tmp_path, GOOD), 0.5, 0.3)
    feed = WindowFeed(windows, options(foreground_share=0.5, cache=True), lambda name: str(tmp_path / name))
    for _ in range(3):
        data, labels = feed.load()
        assert labels[:2].tolist() == [0, 0]
        assert set(labels[2:]) <= {1, 2}
        assert data.shape == (4, 3, 10, 10)
    uncached = WindowFeed(windows, options(foreground_share=0.5), lambda name: str(tmp_path / name))
    np.testing.assert_array_equal(uncached.load()[0], WindowFeed(windows, feed.options, feed.find).load()[0])


@pytest.mark.parametrize(
    "values",
    [{"context_pad": 5}, {"mean": np.zeros((3, 9, 12), np.float32)}, {"mean": np.zeros((2, 1, 1), np.float32)}],
)
def test_options_that_do_not_fit(tmp_path: Path, values: dict[str, object]) -> None:
    windows = read_window_file(written(tmp_path, GOOD), 0.5, 0.3)
    with pytest.raises(ShapeError):
        WindowFeed(windows, options(**values), str)

"""Class trees: the original's helpers, and what is no tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data import goldens
from undertow.darknet.files.tree import read_tree
from undertow.errors import FormatError


def test_tree_of_the_original() -> None:
    golden = goldens.load("darknet", "image_ops")
    tree = read_tree(golden.folder / "net.tree")
    for name in ("group_size", "group_offset", "parent", "child", "group", "leaf"):
        assert np.array_equal(getattr(tree, name), golden.arrays[f"tree/{name}"]), name
    given = golden.arrays["tree/predictions"]
    np.testing.assert_allclose(tree.predictions(given), golden.arrays["tree/hierarchy"], rtol=1e-6)
    np.testing.assert_allclose(tree.predictions(given, only_leaves=True), golden.arrays["tree/leaves_only"], rtol=1e-6)
    assert tree.names[3] == "cat"
    assert tree.groups == 3


def test_walking_down(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    path.write_text("animal -1\nthing -1\ncat 0\ndog 0\nsiamese 2\nmanx 2\n\n")
    tree = read_tree(path)
    conditional = np.array([0.9, 0.1, 0.8, 0.2, 0.3, 0.7])
    assert tree.path(5) == [5, 2, 0]
    assert tree.probability(conditional, 5) == pytest.approx(0.9 * 0.8 * 0.7)
    assert tree.predictions(conditional)[5] == pytest.approx(0.9 * 0.8 * 0.7)
    # The original multiplies whatever it is given along the way.
    assert [tree.top_prediction(conditional, t) for t in (0.5, 0.6, 0.8, 0.95)] == [5, 2, 0, 0]
    both = np.stack([conditional, conditional[::-1]], axis=1)
    assert tree.predictions(both).shape == (6, 2)
    assert tree.probability(both, 2)[0] == pytest.approx(0.72)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no classes"),
        ("a -1\nb 1\n", "2: '1' is no parent of class 1"),
        ("a -1\nb x\n", "2: 'x' is no parent"),
        ("a -1\n\nb -1\n", "2: a blank line"),
        ("a -1\nb 0\nc -1\n", "3: the children of class -1 stand in two places"),
        ("a -1\nb -1\nc 0\nd 1\ne 0\n", "5: the children of class 0"),
    ],
)
def test_what_is_no_tree(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.tree"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        read_tree(path)

"""im2col and col2im: the layout by Darknet's formulas, and that each is the adjoint of the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.reference import direct
from tests.kernels.reference.strategies import convolutions
from undertow.errors import ShapeError
from undertow.kernels.geometry import ConvGeometry
from undertow.kernels.reference.im2col import col2im, im2col


def test_rows_and_columns_stand_where_darknet_has_them():
    image = np.arange(1.0, 19.0).reshape(2, 3, 3)
    geometry = ConvGeometry(stride=(2, 1), pad=(1, 1, 1, 1))
    cols = im2col(image, (2, 3), geometry)
    out_h, out_w = geometry.output_size(3, 3, (2, 3))
    assert (out_h, out_w) == (2, 3)
    assert cols.shape == (2 * 2 * 3, 2 * 3)
    for c, ky, kx, y, x in np.ndindex(2, 2, 3, out_h, out_w):
        row, column = y * 2 - 1 + ky, x - 1 + kx
        inside = 0 <= row < 3 and 0 <= column < 3
        expected = image[c, row, column] if inside else 0
        assert cols[(c * 2 + ky) * 3 + kx, y * out_w + x] == expected


def test_a_known_matrix():
    cols = im2col(np.array([[[1.0, 2.0], [3.0, 4.0]]]), (2, 2), ConvGeometry(pad=(1, 0, 0, 1)))
    np.testing.assert_array_equal(cols, [[0, 0, 1, 2], [0, 0, 2, 0], [1, 2, 3, 4], [2, 0, 4, 0]])


def test_col2im_counts_how_often_a_pixel_is_read():
    geometry = ConvGeometry()
    counts = col2im(np.ones((9, 9)), (1, 5, 5), (3, 3), geometry)
    np.testing.assert_array_equal(counts[0], np.outer([1, 2, 3, 2, 1], [1, 2, 3, 2, 1]))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_each_is_the_adjoint_of_the_other(dims):
    @settings(max_examples=40, deadline=None)
    @given(convolutions(dims=dims, most=5), st.integers(0, 2**32 - 1))
    def holds(problem, seed):
        kernel = problem.w.shape[2:]
        cols = im2col(problem.x, kernel, problem.geometry)
        c = np.random.default_rng(seed).standard_normal(cols.shape)
        back = col2im(c, problem.x.shape, kernel, problem.geometry)
        assert back.shape == problem.x.shape
        scale = np.sum(np.abs(cols * c)) + 1
        assert abs(np.sum(cols * c) - np.sum(problem.x * back)) < 1e-13 * scale

    holds()


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_im2col_reads_every_window(problem):
    x, kernel = problem.x, problem.w.shape[2:]
    out = direct.out_size(x.shape[2:], kernel, problem.geometry)
    expected = np.zeros((*x.shape[:2], *kernel, *out))
    for position, offset, source in direct.windows(x.shape[2:], kernel, out, problem.geometry):
        expected[(..., *offset, *position)] = x[(..., *source)]
    np.testing.assert_array_equal(
        im2col(x, kernel, problem.geometry), expected.reshape(x.shape[0], -1, out[0] * out[1])
    )


def test_the_type_stays_and_the_image_is_not_changed():
    image = np.ones((1, 3, 3), np.float32)
    cols = im2col(image, (1, 1), ConvGeometry())
    assert cols.dtype == np.float32
    cols[...] = 5
    assert image.max() == 1
    assert col2im(cols, (1, 3, 3), (1, 1), ConvGeometry()).dtype == np.float32


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="does not fit"):
        im2col(np.ones((1, 2, 2)), (3, 3), ConvGeometry())
    with pytest.raises(ShapeError, match="channels"):
        im2col(np.ones((2, 2)), (1, 1), ConvGeometry())
    with pytest.raises(ShapeError, match="9x9"):
        col2im(np.ones((9, 8)), (1, 5, 5), (3, 3), ConvGeometry())

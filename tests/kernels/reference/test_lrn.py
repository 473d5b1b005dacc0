"""LRN against its sum written out, central differences and, where installed, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.reference.numeric import numeric_gradient
from undertow.errors import ShapeError
from undertow.kernels.reference.lrn import LrnOptions, lrn, lrn_backward

options_of = st.builds(
    LrnOptions,
    size=st.sampled_from([1, 3, 5, 7]),
    alpha=st.floats(0.01, 3),
    beta=st.floats(0.1, 2),
    k=st.floats(0.5, 3),
    region=st.sampled_from(["across", "within"]),
)
shapes = st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))


def written_out(x, options):
    """scale, one element at a time."""
    half = options.size // 2
    scale = np.empty(x.shape)
    for b, c, i, j in np.ndindex(x.shape):
        if options.region == "across":
            window = x[b, max(0, c - half) : c + half + 1, i, j]
            count = options.size
        else:
            window = x[b, c, max(0, i - half) : i + half + 1, max(0, j - half) : j + half + 1]
            count = options.size * options.size
        scale[b, c, i, j] = options.k + options.alpha / count * np.sum(window**2)
    return scale


@settings(max_examples=50, deadline=None)
@given(options_of, shapes, st.integers(0, 2**32 - 1))
def test_forward_equals_the_sum_and_backward_the_central_difference(options, shape, seed):
    rng = np.random.default_rng(seed)
    x, gy = rng.standard_normal((2, *shape))
    y, scale = lrn(x, options)
    np.testing.assert_allclose(scale, written_out(x, options), rtol=1e-12)
    np.testing.assert_allclose(y, x / written_out(x, options) ** options.beta, rtol=1e-12)
    gx = lrn_backward(gy, x, y, scale, options)
    expected = numeric_gradient(lambda x: lrn(x, options)[0], x, gy)
    np.testing.assert_allclose(gx, expected, rtol=0, atol=1e-7 * (1 + np.abs(expected).max()))


def test_pytorch_agrees(rng):
    torch = pytest.importorskip("torch")
    x = torch.tensor(rng.standard_normal((2, 7, 3, 4)), requires_grad=True)
    y = torch.nn.functional.local_response_norm(x, 5, alpha=0.7, beta=0.75, k=2.0)
    gy = torch.randn_like(y)
    y.backward(gy)
    options = LrnOptions(5, 0.7, 0.75, 2.0)
    array = x.detach().numpy()
    actual, scale = lrn(array, options)
    np.testing.assert_allclose(actual, y.detach().numpy(), rtol=1e-12)
    gx = lrn_backward(gy.numpy(), array, actual, scale, options)
    np.testing.assert_allclose(gx, x.grad.numpy(), rtol=1e-11, atol=1e-13)


def test_float32_stays_float32(rng):
    x = rng.standard_normal((1, 3, 2, 2)).astype(np.float32)
    y, scale = lrn(x, LrnOptions())
    assert {a.dtype for a in (y, scale, lrn_backward(x, x, y, scale, LrnOptions()))} == {np.dtype(np.float32)}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="must be odd"):
        LrnOptions(size=4)
    with pytest.raises(ShapeError, match="batch, channels"):
        lrn(np.ones((3, 4, 4)), LrnOptions())

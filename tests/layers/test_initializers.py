"""Initialisers: their statistics, exact structures, and the reference values of Caffe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from undertow.errors import ShapeError
from undertow.layers import initializers as init

SHAPE = (64, 48, 3, 3)  # fan_in 432, fan_out 576
VARIANCES = [
    (init.Xavier(), 2 / (432 + 576)),
    (init.Xavier(distribution="normal"), 2 / (432 + 576)),
    (init.MSRA(), 2 / 432),
    (init.MSRA(fan="out", distribution="uniform"), 2 / 576),
    (init.LeCun(), 1 / 432),
    (init.VarianceScaling(3.0, "average", "uniform"), 3 / 504),
    (init.Gaussian(0.5), 0.25),
    (init.Uniform(-0.3, 0.3), 0.6**2 / 12),
]


@pytest.mark.parametrize(("initializer", "variance"), VARIANCES, ids=lambda v: type(v).__name__)
def test_mean_and_variance(initializer: init.Initializer, variance: float, rng: np.random.Generator) -> None:
    values = initializer(SHAPE, rng, np.float64)
    count = values.size
    assert abs(values.mean()) < 5 * np.sqrt(variance / count)
    assert values.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / count))


def test_uniform_draws_fill_their_interval_and_no_more(rng: np.random.Generator) -> None:
    limit = np.sqrt(6 / (432 + 576))
    values = init.Xavier()(SHAPE, rng, np.float64)
    assert 0.999 * limit < np.abs(values).max() <= limit
    skewed = init.Uniform(2.0, 3.0)((1000,), rng)
    assert 2.0 <= skewed.min() < 2.01 < 2.99 < skewed.max() <= 3.0


def test_gaussian_draws_are_normal(rng: np.random.Generator) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = init.MSRA()((100, 50), rng, np.float64) / np.sqrt(2 / 50)
    assert stats.kstest(values.ravel(), "norm").pvalue > 0.01
    assert init.Gaussian(1.0, mean=7.0)((5000,), rng).mean() == pytest.approx(7.0, abs=0.08)


def test_fans_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for shape in [(7, 5), (8, 3, 5, 4), (6, 2, 3)]:
        theirs = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
        assert init.fans_of(shape) == theirs
    assert init.fans_of((9,)) == (1, 9)
    assert init.fans_of(()) == (1, 1)


def test_own_fans_replace_those_of_the_shape(rng: np.random.Generator) -> None:
    values = init.LeCun()((100, 100), rng, np.float64, fans=(4.0, 1.0))
    assert values.std() == pytest.approx(0.5, rel=0.05)


def test_the_same_seed_gives_the_same_values() -> None:
    first = init.LeCun()((3, 4), init.as_generator(5))
    np.testing.assert_array_equal(first, init.LeCun()((3, 4), init.as_generator(5)))
    assert not np.array_equal(first, init.LeCun()((3, 4), init.as_generator(6)))
    assert not np.array_equal(init.LeCun()((3, 4), init.as_generator(None)), first)
    shared = np.random.default_rng(1)
    assert init.as_generator(shared) is shared


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (6, 3, 2, 2)])
def test_orthogonal(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    matrix = init.Orthogonal(gain=2.0)(shape, rng, np.float64).reshape(shape[0], -1)
    small = min(matrix.shape)
    product = matrix @ matrix.T if matrix.shape[0] == small else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(small), atol=1e-12)


def test_orthogonal_covers_both_orientations() -> None:
    signs = [np.linalg.det(init.Orthogonal()((3, 3), np.random.default_rng(seed), np.float64)) for seed in range(40)]
    assert min(signs) == pytest.approx(-1)
    assert max(signs) == pytest.approx(1)


def test_identity_of_matrices_and_filters(rng: np.random.Generator) -> None:
    np.testing.assert_array_equal(init.Identity(3.0)((2, 4), rng), 3 * np.eye(2, 4))
    filters = init.Identity()((2, 2, 3, 3), rng)
    image = rng.normal(size=(2, 3, 3)).astype(np.float32)
    np.testing.assert_array_equal(np.einsum("fcij,cij->f", filters, image), image[:, 1, 1])


def test_constants_and_numbers(rng: np.random.Generator) -> None:
    assert (init.as_initializer(0.25)((2, 3), rng) == 0.25).all()
    assert init.as_initializer(init.LeCun()) == init.LeCun()
    assert init.Constant()((2,), rng).dtype == np.float32


@pytest.mark.reference
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_bilinear_kernels_of_caffe(size: int, rng: np.random.Generator, reference_data: Path) -> None:
    with np.load(reference_data / "goldens" / "caffe" / "fillers" / "trace.npz") as trace:
        expected = trace[f"bilinear/k{size}"]
    np.testing.assert_allclose(init.Bilinear()(expected.shape, rng), expected, rtol=1e-6)


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_bilinear_kernels_reproduce_a_plane(stride: int, rng: np.random.Generator) -> None:
    """Weights that overlap with this stride sum to 1 everywhere: a constant stays a constant."""
    size = 2 * stride - stride % 2
    kernel = init.Bilinear()((1, 1, size, size), rng, np.float64)[0, 0]
    for dy in range(stride):
        for dx in range(stride):
            assert kernel[dy::stride, dx::stride].sum() == pytest.approx(1)


def test_what_cannot_be_filled_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ShapeError, match="Orthogonal needs at least two axes"):
        init.Orthogonal()((3,), rng)
    with pytest.raises(ShapeError, match="Bilinear fills"):
        init.Bilinear()((1, 1, 3, 4), rng)
    with pytest.raises(ValueError, match="fan must be"):
        init.VarianceScaling(fan="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="distribution must be"):
        init.VarianceScaling(distribution="flat")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="Initializer has no values"):
        init.Initializer()((1,), rng)

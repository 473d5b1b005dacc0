"""Fillers: ranges, moments, exact kernels, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import zoom

from undertow.caffe.fillers import FILLERS, fill
from undertow.caffe.proto import new_message
from undertow.errors import FormatError, ShapeError, UndertowError

SHAPE = (50, 20, 5, 5)


def values(shape: tuple[int, ...] = SHAPE, **options: object) -> np.ndarray:
    return fill(new_message("FillerParameter", **options), shape, np.random.default_rng(0))


def test_constant_and_uniform() -> None:
    assert (values(value=3.0) == 3).all()
    spread = values(type="uniform", min=-2.0, max=1.0)
    assert -2 <= spread.min() < -1.99
    assert 0.99 < spread.max() <= 1


@pytest.mark.parametrize(("norm", "n"), [("FAN_IN", 500), ("FAN_OUT", 1250), ("AVERAGE", 875)])
def test_xavier_and_msra(norm: str, n: int) -> None:
    bound = np.sqrt(3 / n)
    xavier = values(type="xavier", variance_norm=norm)
    assert np.abs(xavier).max() <= bound
    assert xavier.var() == pytest.approx(bound**2 / 3, rel=0.03)
    assert values(type="msra", variance_norm=norm).var() == pytest.approx(2 / n, rel=0.03)


def test_gaussian_and_its_sparse_form() -> None:
    dense = values(type="gaussian", mean=1.0, std=0.5)
    assert dense.mean() == pytest.approx(1, abs=0.02)
    assert dense.std() == pytest.approx(0.5, rel=0.03)
    sparse = values(type="gaussian", sparse=10)
    assert (sparse != 0).mean() == pytest.approx(10 / 50, abs=0.01)


def test_rows_of_a_unit_ball_sum_to_one() -> None:
    rows = values((6, 10), type="positive_unitball")
    np.testing.assert_allclose(rows.sum(1), 1)
    assert rows.min() >= 0


def test_bilinear_upsamples_a_ramp_into_a_ramp() -> None:
    """Deconvolution with it doubles an image as linear interpolation does, away from the border."""
    from undertow.functions import deconv2d

    kernel = values((1, 1, 4, 4), type="bilinear")
    image = np.add.outer(np.arange(6.0), 2 * np.arange(6.0))[None, None]
    doubled = deconv2d(image, kernel, stride=2, pad=1).data[0, 0]
    expected = zoom(image[0, 0], 2, order=1, grid_mode=True, mode="nearest")
    np.testing.assert_allclose(doubled[2:-2, 2:-2], expected[2:-2, 2:-2])


@pytest.mark.parametrize(
    ("shape", "options", "reason"),
    [
        (SHAPE, {"type": "he"}, "unknown filler 'he'"),
        (SHAPE, {"type": "xavier", "sparse": 2}, "no `sparse`"),
        ((3, 3), {"type": "bilinear"}, "four axes"),
        ((1, 1, 3, 4), {"type": "bilinear"}, "square"),
        ((3, 0), {}, "nothing to fill"),
        ((3, 3), {"type": "uniform", "min": 2.0, "max": 1.0}, "min must not exceed"),
        ((3, 3), {"type": "gaussian", "sparse": 5}, "cannot be kept"),
    ],
)
def test_refusals(shape: tuple[int, ...], options: dict[str, object], reason: str) -> None:
    with pytest.raises((FormatError, ShapeError), match=reason):
        values(shape, **options)


@pytest.mark.parametrize("kind", [kind for kind in FILLERS if kind != "bilinear"])
def test_every_filler_takes_any_number_of_axes(kind: str) -> None:
    for shape in ((3,), (2, 3, 1), (1, 2, 3, 2, 2)):
        assert values(shape, type=kind).shape == shape
    with pytest.raises(UndertowError):
        values((0,), type=kind)

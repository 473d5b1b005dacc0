"""The fused update against the reference: the same but for the rounding of products that are added at once."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from undertow.errors import ShapeError
from undertow.kernels import cpu, reference, select


@pytest.mark.parametrize("size", [1, 7, 16, 1000, 40_000])
@pytest.mark.parametrize("decay", [0.0, 0.032])
def test_update_and_accumulation_equal_the_reference(size: int, decay: float) -> None:
    rng = np.random.default_rng(size)
    w, u, g = (rng.standard_normal(size).astype(np.float32) for _ in range(3))
    guard = np.full(8, 7, np.float32)
    ours, theirs = [np.concatenate([w, guard]), np.concatenate([u, guard])], [w.copy(), u.copy()]
    for factor in (1.0, 64.0):
        cpu.darknet_accumulate(ours[1][:size], g, factor)
        reference.darknet_accumulate(theirs[1], g, factor)
        cpu.darknet_update(ours[0][:size], ours[1][:size], decay, 0.001 / 64, 0.9)
        reference.darknet_update(theirs[0], theirs[1], decay, 0.001 / 64, 0.9)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a[:size], b, rtol=2e-6, atol=2e-6 * factor)
            np.testing.assert_array_equal(a[size:], guard)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ShapeError, match="does not belong"):
        cpu.darknet_update(np.ones(3, np.float32), np.ones(4, np.float32), 0.0, 1.0, 0.9)


def test_arrays_with_gaps_are_left_to_the_reference() -> None:
    w = np.ones((4, 4), np.float32)
    assert cpu.supports("darknet_update", w, w.copy(), 0.0, 1.0, 0.9)
    assert not cpu.supports("darknet_update", w[:, :2], w[:, :2].copy(), 0.0, 1.0, 0.9)


@pytest.mark.parametrize(("scale", "decay"), [(1.0, 0.0), (0.25, 0.0005), (1.0, 0.1)])
@pytest.mark.parametrize("size", [1, 37, 40000])
def test_momentum_matches_the_reference(size, scale, decay, rng):
    ours = [rng.standard_normal(size + 8).astype(np.float32) for _ in range(3)]
    theirs = [a.astype(np.float64)[:size] for a in ours]
    tails = [a[size:].copy() for a in ours]
    gradient = ours[1].copy()
    for _ in range(3):
        cpu.momentum_update(ours[0][:size], ours[1][:size], ours[2][:size], scale, decay, 0.01, 0.9)
        reference.momentum_update(theirs[0], theirs[1], theirs[2], scale, decay, 0.01, 0.9)
    np.testing.assert_allclose(ours[0][:size], theirs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[2][:size], theirs[2], rtol=1e-5, atol=1e-6)
    assert np.array_equal(ours[1], gradient)
    for array, tail in zip(ours, tails, strict=True):
        assert np.array_equal(array[size:], tail)
    with pytest.raises(ShapeError, match="accumulator"):
        cpu.momentum_update(np.ones(3, np.float32), np.ones(4, np.float32), np.ones(3, np.float32), 1.0, 0.0, 1.0, 0.9)


@pytest.mark.parametrize(("scale", "decay"), [(1.0, 0.0), (0.25, 0.0005), (1.0, 0.1)])
@pytest.mark.parametrize("size", [1, 37, 40000])
def test_caffes_rule_matches_the_reference(size, scale, decay, rng):
    ours = [rng.standard_normal(size + 8).astype(np.float32) for _ in range(3)]
    theirs = [a.astype(np.float64)[:size] for a in ours]
    tails = [a[size:].copy() for a in ours]
    gradient = ours[1].copy()
    for round_ in range(3):
        ours[1][:size] = gradient[:size] * (1 + round_)
        theirs[1][:] = gradient[:size] * (1 + round_)
        cpu.caffe_update(ours[0][:size], ours[1][:size], ours[2][:size], scale, decay, 0.01, 0.9)
        reference.caffe_update(theirs[0], theirs[1], theirs[2], scale, decay, 0.01, 0.9)
        assert np.array_equal(ours[1], np.concatenate([ours[2][:size], tails[1]]))
    for mine, other, tail in zip(ours, theirs, tails, strict=True):
        np.testing.assert_allclose(mine[:size], other, rtol=1e-5, atol=1e-6)
        assert np.array_equal(mine[size:], tail)
    with pytest.raises(ShapeError, match="accumulator"):
        cpu.caffe_update(np.ones(3, np.float32), np.ones(4, np.float32), np.ones(3, np.float32), 1.0, 0.0, 1.0, 0.9)


@pytest.mark.parametrize("size", [1, 37, 64, 40000])
def test_every_place_is_searched_for_what_is_not_finite(size, rng):
    """Huge finite values, whose sum overflows, are none."""
    x = (rng.standard_normal(size + 8) * 3e37).astype(np.float32)
    x[-1] = np.nan  # behind the end
    inner = x[:size]
    assert cpu.all_finite(inner)
    assert reference.all_finite(inner)
    for place in {0, size // 3, size - 1}:
        for bad in (np.nan, np.inf, -np.inf):
            before, inner[place] = inner[place], bad
            assert not cpu.all_finite(inner)
            assert not reference.all_finite(inner)
            inner[place] = before


@pytest.mark.parametrize(("rule", "count", "numbers"), [
    ("darknet", 2, (0.032, 0.01, 0.9)), ("momentum", 3, (0.5, 0.0005, 0.1, 0.9)), ("caffe", 3, (1.0, 0.0, 0.1, 0.9)),
])  # fmt: skip
def test_many_parameters_at_once_equal_one_after_the_other(rule, count, numbers, rng):
    """Also when arrays move elsewhere, another parameter comes, numbers change, or a copy goes on."""
    together = select.Together(rule)
    sizes = [(3,), (40_000,), (5, 7), (70_000,)]
    rows = [tuple(rng.standard_normal(s).astype(np.float32) for _ in range(count)) for s in sizes]
    alone = [tuple(a.copy() for a in arrays) for arrays in rows]
    for step in range(6):
        given = [tuple(number * (1 + 0.1 * step) for number in numbers) for _ in rows]
        together(rows, given)
        for arrays, own in zip(alone, given, strict=True):
            getattr(cpu, rule + "_update")(*arrays, *own)
        for made, right in zip(rows, alone, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(made, right, strict=True))
        if step == 2:
            rows[1] = tuple(a.copy() for a in rows[1])
        if step == 3:
            more = tuple(rng.standard_normal(11).astype(np.float32) for _ in range(count))
            rows, alone = [*rows, more], [*alone, tuple(a.copy() for a in more)]
        if step == 4:
            together = copy.deepcopy(together)
    with pytest.raises(ShapeError, match="accumulator"):
        together([(rows[0][0], *(a[:2] for a in rows[0][1:]))], [numbers])


def test_what_kernels_cannot_move_together_goes_to_the_reference(rng):
    rows = [tuple(rng.standard_normal(9) for _ in range(3)), tuple(rng.standard_normal(18)[::2] for _ in range(3))]
    alone = [tuple(a.copy() for a in arrays) for arrays in rows]
    select.Together("momentum")(rows, [(1.0, 0.1, 0.1, 0.9)] * 2)
    for arrays in alone:
        reference.momentum_update(*arrays, 1.0, 0.1, 0.1, 0.9)
    for made, right in zip(rows, alone, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(made, right, strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_found_in_many_arrays(bad: float) -> None:
    arrays = [np.ones(size, np.float32) for size in (1, 40000, 7)]
    finite = select.AllFinite()
    for _ in range(2):
        assert finite(arrays)
        for array in arrays:
            for place in (0, array.size // 2, -1):
                array[place] = bad
                assert not finite(arrays)
                array[place] = 0
    assert finite([])
    assert finite([a.astype(np.float64) for a in arrays]), "other types take the reference"
    assert copy.deepcopy(finite)(arrays)

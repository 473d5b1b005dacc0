"""Arrays of whole numbers (and of other floats) where an operation computes with real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import layers as L
from undertow.core.reals import as_reals
from undertow.core.registry import Operation, Sample, operations

TYPES = (np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64)
PRECISIONS: tuple[Any, ...] = ("fast", "precise", "reference")
REALS = [o for o in operations() if o.function.__module__.startswith("undertow.functions.") and not o.whole]
WHOLE = [o for o in operations() if o.function.__module__.startswith("undertow.functions.") and o.whole]
RANDOM = {"dropout"}


def _samples(operation: Operation) -> list[Sample]:
    """Those whose call does not take a type from its operands."""
    found = operation.samples(np.random.default_rng(7))
    return [s for s in found if not s.note.startswith("given statistics") and any(a.dtype.kind == "f" for a in s.args)]


def _variants(sample: Sample, dtype: Any) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """(arrays in which all, the first, or all but the first of the floats are of dtype, the same values in float64)."""
    floats = [i for i, a in enumerate(sample.args) if a.dtype.kind == "f"]
    found = []
    for chosen in (floats, floats[:1], floats[1:]):
        arrays = [np.asarray(a) for a in sample.args]
        for i in floats:
            values = np.asarray(np.clip(np.round(np.abs(arrays[i]) * 2), 0, 4))
            arrays[i] = values.astype(dtype if i in chosen else np.float32)
        exact = [a.astype(np.float64) if i in floats else a for i, a in enumerate(arrays)]
        found.append((arrays, exact))
    return found


def _run(sample: Sample, arrays: list[np.ndarray], precision: Any) -> list[np.ndarray]:
    with ut.precision(precision), ut.no_grad(), np.errstate(all="ignore"):
        ys = sample.call(*[ut.Variable(a.copy()) for a in arrays])
    return [y.data for y in (ys if isinstance(ys, tuple) else (ys,))]


def _gradients(sample: Sample, arrays: list[np.ndarray], precision: Any, wanted: list[bool]) -> list[np.ndarray]:
    """Of the operands that are wanted."""
    with ut.precision(precision), np.errstate(all="ignore"):
        variables = [ut.Variable(a.copy(), requires_grad=w) for a, w in zip(arrays, wanted, strict=True)]
        ys = sample.call(*variables)
        for y in ys if isinstance(ys, tuple) else (ys,):
            if y.requires_grad:
                y.grad = (np.cos(np.arange(y.size)).reshape(y.shape) + 1.5).astype(y.dtype)
                y.backward()
    return [x.grad for x, w in zip(variables, wanted, strict=True) if w and x.grad is not None]


def _close(found: np.ndarray, exact: np.ndarray, rounding: float, about: str) -> None:
    finite = np.isfinite(exact)
    scale = np.max(np.abs(exact[finite]), initial=1.0)
    np.testing.assert_allclose(
        np.asarray(found, np.float64)[finite], exact[finite], rtol=rounding, atol=rounding * scale, err_msg=about
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("operation", [o for o in REALS if o.name not in RANDOM], ids=lambda o: o.name)
def test_any_type_counts_for_its_value(operation: Operation) -> None:
    """Every precision gives what float64 gives, in one type, and so do the gradients of floats beside whole numbers."""
    for sample in _samples(operation):
        for dtype in TYPES:
            for arrays, exact in _variants(sample, dtype):
                about = f"{sample.note}: {[a.dtype.name for a in arrays]}"
                rounding = 2e-2 if np.float16 in [a.dtype for a in arrays] else 1e-4
                try:
                    expected = _run(sample, exact, "reference")
                except ValueError:  # values this operation refuses
                    continue
                results = [_run(sample, arrays, p) for p in PRECISIONS]
                for found in results:
                    assert [y.dtype for y in found] == [y.dtype for y in results[0]], about
                    for y, e in zip(found, expected, strict=True):
                        _close(y, e, rounding, about)
                wanted = [a.dtype.kind == "f" for a in arrays]
                if operation.gradient == "none" or not any(wanted):
                    continue
                right = _gradients(sample, exact, "reference", wanted)
                for p in PRECISIONS:
                    for g, e in zip(_gradients(sample, arrays, p, wanted), right, strict=True):
                        _close(g, e, rounding, f"gradient, {p}, {about}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("operation", WHOLE, ids=lambda o: o.name)
def test_arithmetic_of_whole_numbers_is_numpys(operation: Operation) -> None:
    """The same in every precision, and what the sample's definition in NumPy gives, its refusals included."""
    for sample in _samples(operation):
        for dtype in TYPES:
            for arrays, _ in _variants(sample, dtype):
                results = []
                for p in PRECISIONS:
                    try:
                        results.append([(y.dtype, y.tobytes()) for y in _run(sample, arrays, p)])
                    except (TypeError, ValueError, OverflowError) as refusal:
                        results.append([type(refusal)])
                assert results[0] == results[1] == results[2], f"{sample.note}: {[a.dtype.name for a in arrays]}"


def test_the_type_that_whole_numbers_take() -> None:
    single, double = np.ones(2, np.float32), np.ones(2)
    for beside, given, expected in (
        (single, np.uint8, np.float32),
        (single, np.bool_, np.float32),
        (single, np.int32, np.float64),
        (double, np.int64, np.float64),
    ):
        assert [a.dtype for a in as_reals((np.ones(2, given), beside))] == [expected, beside.dtype]
    assert as_reals((np.ones(2, np.uint8), None, 3))[0].dtype == np.float64
    labels = np.ones(2, np.int64)
    assert as_reals((np.ones(2, np.uint8), single, labels), (2,))[2] is labels
    assert as_reals((np.ones(2, np.uint8), single, labels), (2,))[0].dtype == np.float32


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16])
def test_pictures_of_whole_numbers_through_a_net_and_its_plan(dtype: Any) -> None:
    net = L.Sequential(
        L.Conv2d(4, 3, pad=1, rng=1),
        L.BatchNorm(),
        L.ReLU(),
        L.MaxPool2d(2),
        L.GlobalAvgPool2d(),
        L.Flatten(),
        L.Linear(2, rng=2),
    )
    pictures = [(np.random.default_rng(i).integers(0, 5, (2, 3, 6, 6))).astype(dtype) for i in range(5)]

    def step(x: np.ndarray) -> ut.Variable:
        net.clear_grads()
        loss = ut.mean(ut.square(net(ut.Variable(x, requires_grad=False))))
        loss.backward()
        return loss

    step(pictures[0].astype(np.float32))
    planned = ut.plan(step)
    for x in pictures:
        expected = step(x.astype(np.float32)).item()
        gradients = [p.grad.copy() for p in net.parameters()]
        loss = planned(x)
        np.testing.assert_allclose(loss.item(), expected, rtol=1e-3 if dtype is np.float16 else 1e-5)
        for p, g in zip(net.parameters(), gradients, strict=True):
            np.testing.assert_allclose(p.grad, g, rtol=2e-3, atol=2e-3 * max(np.abs(g).max(), 1e-2))

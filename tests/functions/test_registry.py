"""Every operation of the registry: its result, its gradients, its float type, its formulas."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import undertow
import undertow as ut
from undertow.core.function import Function
from undertow.core.hooks import FunctionHook
from undertow.core.registry import Operation, Sample, operations
from undertow.core.variable import Variable
from undertow.errors import MissingPackage

# Operations register where they are defined; those of Darknet's layers stand outside undertow.functions.
for module in pkgutil.walk_packages(undertow.__path__, "undertow."):
    if not module.name.endswith("__main__"):
        with contextlib.suppress(MissingPackage):
            importlib.import_module(module.name)

OPERATIONS = list(operations())
REFERENCED = [o for o in OPERATIONS if any(s.reference for s in o.samples(np.random.default_rng(0)))]
FUSED = [o for o in OPERATIONS if o.gradient == "twice" and o.function.backward is not Function.backward]


def _samples(operation: Operation) -> list[Sample]:
    samples = operation.samples(np.random.default_rng(7))
    assert samples, f"operation '{operation.name}' has no samples"
    return samples


def _run(sample: Sample, arrays: Sequence[np.ndarray]) -> tuple[Variable, ...]:
    variables = [Variable(a.copy(), requires_grad=a.dtype.kind == "f") for a in arrays]
    ys = sample.call(*variables)
    return ys if isinstance(ys, tuple) else (ys,)


def _seed(y: Variable) -> np.ndarray:
    """A gradient to start from that is different for each element."""
    return (np.cos(np.arange(y.size)).reshape(y.shape) + 1.5).astype(y.dtype)


def _floats(arrays: Sequence[np.ndarray], dtype: Any) -> list[np.ndarray]:
    return [a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays]


def over(*gradients: str) -> pytest.MarkDecorator:
    """Run a test for every operation with one of these gradient claims (all operations when none is given)."""
    chosen = [operation for operation in OPERATIONS if not gradients or operation.gradient in gradients]
    return pytest.mark.parametrize("operation", chosen, ids=lambda operation: operation.name)


class _Calls(FunctionHook):
    def __init__(self) -> None:
        self.functions: list[Function] = []

    def before_forward(self, function: Function, inputs: Any) -> None:
        self.functions.append(function)


@over()
def test_samples_run_the_operation(operation: Operation) -> None:
    with _Calls() as calls:
        for sample in _samples(operation):
            _run(sample, sample.args)
    assert operation.function in {type(function) for function in calls.functions}


@pytest.mark.parametrize("operation", REFERENCED, ids=lambda operation: operation.name)
def test_result_equals_the_reference(operation: Operation) -> None:
    for sample in _samples(operation):
        if sample.reference is None:
            continue
        expected = sample.reference(*sample.args)
        expected = expected if isinstance(expected, (tuple, list)) else (expected,)
        found = _run(sample, sample.args)
        assert len(found) == len(expected)
        for y, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(y.data, e, rtol=1e-12, atol=1e-13, strict=False, err_msg=sample.note)
            assert y.shape == np.shape(e), sample.note


@over("once", "twice")
def test_gradient_equals_differences(operation: Operation) -> None:
    for sample in _samples(operation):
        ut.check_gradients(sample.call, sample.args)


@over("twice")
def test_second_derivative_equals_differences(operation: Operation) -> None:
    for sample in _samples(operation):
        ut.check_gradients(sample.call, sample.args, second_order=True)


@over()
def test_gradient_claim_is_what_the_class_offers(operation: Operation) -> None:
    own_graph = operation.function.backward_graph is not Function.backward_graph
    own_array = operation.function.backward is not Function.backward
    assert own_graph == (operation.gradient == "twice")
    if operation.gradient == "none":
        assert not own_array
    if operation.gradient in ("once", "estimate"):
        assert own_array


@over("once", "estimate")
def test_once_differentiable_refuses_a_graph(operation: Operation) -> None:
    sample = _samples(operation)[0]
    y = _run(sample, sample.args)[0]
    with pytest.raises(ut.UndertowError, match="cannot be differentiated twice"):
        y.backward(create_graph=True)


@over("estimate")
def test_estimate_is_not_the_derivative(operation: Operation) -> None:
    sample = _samples(operation)[0]
    with pytest.raises(ut.GradientCheckError):
        ut.check_gradients(sample.call, sample.args)


@over("none")
def test_operation_without_gradient_gives_a_constant(operation: Operation) -> None:
    sample = _samples(operation)[0]
    for y in _run(sample, sample.args):
        assert not y.requires_grad
        with pytest.raises(ut.UndertowError, match="nothing to differentiate"):
            y.backward()


class _Backwards(FunctionHook):
    """Compares, for one class, the fused array backward with the one derived from backward_graph."""

    def __init__(self, kind: type[Function]) -> None:
        self.kind, self.compared = kind, 0

    def after_backward(self, function: Function, output_grads: Any, input_grads: Any) -> None:
        if type(function) is not self.kind:
            return
        derived = Function.backward(function, *output_grads)
        derived = derived if isinstance(derived, tuple) else (derived,)
        for fused, other, wanted in zip(input_grads, derived, function.needs_input_grad, strict=True):
            if wanted:
                np.testing.assert_allclose(fused, other, rtol=1e-11, atol=1e-12)
                self.compared += 1


@pytest.mark.parametrize("operation", FUSED, ids=lambda operation: operation.name)
def test_fused_backward_equals_the_derived_one(operation: Operation) -> None:
    with _Backwards(operation.function) as hook:
        for sample in _samples(operation):
            for y in _run(sample, sample.args):
                y.grad = _seed(y)
                y.backward()
    assert hook.compared


@over()
def test_float32_stays_and_agrees_with_float64(operation: Operation) -> None:
    for sample in _samples(operation):
        singles = _floats(sample.args, np.float32)
        doubles = _floats(singles, np.float64)
        for y, exact in zip(_run(sample, singles), _run(sample, doubles), strict=True):
            if exact.dtype.kind != "f":
                continue
            assert y.dtype == np.float32, f"{operation.name} ({sample.note})"
            _close(y.data, exact.data, sample.note)
        if operation.gradient != "none":
            for g, exact_g in zip(_gradients(sample, singles), _gradients(sample, doubles), strict=True):
                assert g.dtype == np.float32, f"gradient of {operation.name} ({sample.note})"
                _close(g, exact_g, sample.note)


def _gradients(sample: Sample, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    variables = [Variable(a.copy(), requires_grad=a.dtype.kind == "f") for a in arrays]
    ys = sample.call(*variables)
    ys = ys if isinstance(ys, tuple) else (ys,)
    found = ut.grad(ys, [x for x in variables if x.requires_grad], [_seed(y) for y in ys])
    return [g.data for g in found]


def _close(single: np.ndarray, double: np.ndarray, note: str) -> None:
    scale = np.max(np.abs(double), initial=0.0)
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-5 * scale + 1e-6, err_msg=note)


@over()
def test_formulas_are_stated(operation: Operation) -> None:
    assert "=" in operation.forward
    if operation.gradient != "none":
        assert "=" in operation.backward
    assert operation.function.__doc__

"""The formulas told of one call are what that call computes; examples tell something and agree with differences."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import undertow as ut
from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.norm_batch import BatchNorm
from undertow.inspect.example import MOST, example
from undertow.inspect.record import Call, Recorder
from undertow.inspect.specific import SLOPES, backward_of, forward_of, name_of, variants
from undertow.inspect.story import _names
from undertow.inspect.text import array_lines
from undertow.kernels.reference.activations import ACTIVATIONS, gradient, true_gradient
from undertow.kernels.reference.batchnorm import DARKNET_CPU, BatchNormRule, Scaling

Array = np.ndarray
# Each place is on a piece of its own of every activation, none on a kink.
PLACES = np.array([-7.3, -4.6, -1.7, -0.4, 0.3, 0.8, 1.6, 2.4, 4.7, 9.1])


def called(run: Callable[[], object]) -> Call:
    recorder = Recorder()
    recorder.enter()
    with recorder:
        run()
    (call,) = recorder.calls[0]
    return call


def value(text: str, x: float, y: float) -> float:
    """A formula of SLOPES with gy = 1."""
    sympy = pytest.importorskip("sympy")
    from sympy.parsing.sympy_parser import (
        convert_xor,
        implicit_multiplication_application,
        parse_expr,
        standard_transformations,
    )

    known = {"x": sympy.Float(x), "y": sympy.Float(y), "gy": sympy.Integer(1)}
    rules = (*standard_transformations, implicit_multiplication_application, convert_xor)
    return float(parse_expr(text, local_dict=known, transformations=rules))


def chosen(formula: str, x: float) -> str:
    """`A where C, else B` at x."""
    found = re.fullmatch(r"(.*) where (.*), else (.*)", formula)
    if found is None:
        return formula
    one, condition, other = found.groups()
    if condition == "floor(x) is even":
        return one if np.floor(x) % 2 == 0 else other
    words = condition.replace("x", str(x)).split()
    numbers, signs = [float(word) for word in words[::2]], words[1::2]
    order = {">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b}
    return one if all(order[s](a, b) for s, a, b in zip(signs, numbers, numbers[1:], strict=False)) else other


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_the_slope_of_every_activation_is_what_its_formula_says(name: str) -> None:
    call = called(lambda: DarknetActivation(name)(ut.Variable(PLACES)))
    assert name_of(call) == f"darknet_activation {name}"
    assert forward_of(call) == f"y = {ACTIVATIONS[name].formula}"
    formula = backward_of(call).removeprefix("gx = ")
    assert formula == SLOPES[name]
    y = ACTIVATIONS[name].forward(PLACES)
    told = [value(chosen(formula, float(a)), float(a), float(b)) for a, b in zip(PLACES, y, strict=True)]
    np.testing.assert_allclose(told, true_gradient(PLACES, name), rtol=2e-4)
    assert gradient(y, name).shape == PLACES.shape


def test_every_activation_has_its_formulas() -> None:
    assert [name for name, _, _ in variants("darknet_activation")] == list(SLOPES)
    assert set(SLOPES) == set(ACTIVATIONS)
    assert variants("conv2d") == []


def test_darknets_rule_is_told() -> None:
    call = called(lambda: DarknetActivation("leaky", "darknet")(ut.Variable(PLACES)))
    assert backward_of(call) == "gx = gy where x > 0, else .1 gy; with the slope told from y, as Darknet does"


@pytest.mark.parametrize(
    "rule",
    [
        BatchNormRule(),
        BatchNormRule(Scaling(1e-3, "inside", "N-1")),
        BatchNormRule(Scaling(1e-2, "outside", "N-1")),
        DARKNET_CPU,
    ],
)
def test_batch_norm_computes_the_formula_told_of_it(rule: BatchNormRule, rng: np.random.Generator) -> None:
    x, gamma, beta = rng.standard_normal((6, 3)), rng.standard_normal(3), rng.standard_normal(3)
    function = BatchNorm(rule)
    y = function(*[ut.Variable(a, requires_grad=True) for a in (x, gamma, beta)])
    call = Call(function, function.inputs, (y,), (True, True, True))
    told, gy = backward_of(call), rng.standard_normal(x.shape)
    gx, ggamma, gbeta = function.backward(gy)
    n, c = len(x), x - x.mean(0)
    way_back = re.search(r"with s = (.*) on the way back", told)
    forward = forward_of(call)
    ddof = "n - 1" in forward

    def root(text: str, variance: Array) -> tuple[Array, Array]:
        inside = re.search(r"sqrt\(variance \+ (\S+)\)", text)
        outside = re.search(r"q \+ (\S+), q = sqrt\(variance\)", text)
        q = np.sqrt(variance)
        if inside:
            s = np.sqrt(variance + float(inside[1]))
            return s, s
        assert outside is not None
        return q + float(outside[1]), q

    variance = x.var(0, ddof=int(ddof))
    s, q = root(way_back[1] if way_back else forward, variance)
    below = re.search(r"sum\(gy \(x - mean\)\) / \((.*?s(?:\^2| q))\)", told)
    assert below is not None
    divisor = (n - 1 if "(n - 1)" in below[1] else n) * (s * s if "s^2" in below[1] else s * q)
    np.testing.assert_allclose(gx, gamma / s * (gy - gy.mean(0) - c * (gy * c).sum(0) / divisor), atol=1e-10)
    np.testing.assert_allclose(ggamma, (gy * c).sum(0) / root(forward, variance)[0])
    np.testing.assert_allclose(gbeta, gy.sum(0))
    assert ("of the way forward" in told) == (rule.backward is not None)


def test_given_statistics_are_constants(rng: np.random.Generator) -> None:
    function = BatchNorm(BatchNormRule(), np.zeros(2), np.ones(2))
    y = function(*[ut.Variable(rng.standard_normal(shape)) for shape in ((3, 2), (2,), (2,))])
    told = backward_of(Call(function, function.inputs, (y,), (True, True, True)))
    assert told == "gx = gamma/s gy; ggamma = sum(gy (x - mean)) / s, gbeta = sum(gy)"


def test_an_example_of_upsampling_grows(rng: np.random.Generator) -> None:
    call = called(lambda: ut.functions.upsample(ut.Variable(rng.standard_normal((1, 2, 3, 3)), requires_grad=True), 2))
    found = example(call)
    assert found is not None
    assert found.y.size > found.arrays[0].size


def test_an_example_of_a_loss_has_a_gradient(rng: np.random.Generator) -> None:
    x, t = ut.Variable(rng.standard_normal((2, 5)), requires_grad=True), np.array([1, 3])
    found = example(called(lambda: ut.functions.softmax_cross_entropy(x, t)))
    assert found is not None
    assert found.gradients[0] is not None
    assert found.gradients[0].any()


def test_of_a_large_operand_some_places_are_compared() -> None:
    from undertow.core.registry import operation

    entry = operation("yolo_loss")
    sample = entry.samples(np.random.default_rng(0))[0]
    arrays = [ut.Variable(a, requires_grad=a.dtype.kind == "f") for a in sample.args]
    recorder = Recorder()
    recorder.enter()
    with recorder:
        sample.call(*arrays)
    found = example(next(call for call in recorder.calls[0] if call.name == "yolo_loss"))
    assert found is not None
    assert found.y.size == 1  # the loss, not the outputs
    (difference,) = (d for d in found.differences if d is not None)
    known = ~np.isnan(difference)
    assert difference.size > MOST
    assert 0 < known.sum() < 20
    assert found.gradients[0] is not None
    assert (found.gradients[0][known] != 0).all()
    assert found.largest_error < 1e-5


def test_values_on_a_kink_are_not_compared() -> None:
    x = ut.Variable(np.array([[0.0, -1.0, 2.0, 0.0, 3.0]]), requires_grad=True)
    found = example(called(lambda: ut.relu(x)))
    assert found is not None
    assert found.arrays[0].tolist() == [[0.0, -1.0, 2.0, 0.0, 3.0]]
    assert found.differences[0] is not None
    assert np.isnan(found.differences[0]).tolist() == [[True, False, False, True, False]]
    assert found.largest_error < 1e-6
    zeros = ut.Variable(np.zeros((1, 5)), requires_grad=True)
    shown = example(called(lambda: ut.relu(zeros)))
    assert shown is not None
    assert "sample" in shown.origin  # nothing but a kink is no example


@pytest.mark.parametrize(
    ("formula", "count", "names"),
    [
        ("y = a + b", 2, ("a", "b")),
        ("y = x_0, x_1, ... one after the other", 3, ("x_0", "x_1", "x_2")),
        ("y = -sum of log softmax(x)[t]", 2, ("x", "t")),
        ("y = gamma (x - mean) / s + beta", 3, ("x", "gamma", "beta")),
        ("y = x w^T + b", 3, ("x", "w", "b")),
        ("y = x^2", 1, ("x",)),
    ],
)
def test_operands_are_called_as_in_the_formula(formula: str, count: int, names: tuple[str, ...]) -> None:
    assert _names(formula, count) == names


def test_arrays_are_short_and_without_minus_zero() -> None:
    assert array_lines("x", np.array([-1e-12, 1.5])) == ["x (2) =", "    [0.  1.5]"]
    lines = array_lines("x", np.arange(96.0).reshape(2, 4, 3, 4))
    assert lines[0] == "x (2x4x3x4), the first 3x4 of it ="
    assert len(lines) == 4

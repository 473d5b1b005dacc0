"""Gradient checks: the backward against central differences, in float64, with a diagnosis when it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.backward import grad
from undertow.core.variable import Variable, as_variable
from undertow.errors import UndertowError

ELEMENTWISE_LIMIT = 256
DIRECTIONS = 6


class GradientCheckError(UndertowError, AssertionError):
    """The gradient a backward computed is not the derivative of its forward.

    input: index of the input. index: the element (None when a direction was tried).
    computed, expected: what backward gave and what differences give. cause: a guess in words.
    """

    def __init__(self, input: int, index: tuple[int, ...] | None, computed: float, expected: float, cause: str) -> None:
        self.input, self.index, self.computed, self.expected, self.cause = input, index, computed, expected, cause
        where = f"input {input}" + (f" at index {index}" if index is not None else " along a random direction")
        super().__init__(
            f"gradient of {where}: backward gives {computed:.9g}, central differences give {expected:.9g}; "
            f"likely cause: {cause}"
        )


@dataclass(frozen=True)
class GradientReport:
    """What a successful check saw: the largest error relative to the gradient's scale, and the kinks skipped."""

    largest_error: float
    kinks: int
    checked: int


@dataclass(frozen=True)
class _Slope:
    """Differences of the scalar along one direction: central, and one-sided left and right."""

    central: float
    left: float
    right: float
    kink: bool


def check_gradients(
    function: Callable[..., Any],
    inputs: Sequence[Variable | np.ndarray | float] | Variable | np.ndarray,
    *,
    eps: float = 1e-5,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    second_order: bool = False,
    seed: int = 0,
) -> GradientReport:
    """Compare `backward` with central differences, in float64.

    function: from Variables to a Variable or a tuple of them; must give the same result for the same input.
    inputs: arrays, Variables or numbers; float ones are checked (as float64), others are passed on as constants.
        One array or Variable alone is the one input.
    eps: step of the differences. rtol, atol: allowed error, rtol relative to the largest gradient of the input.
    second_order: also check the gradient of the gradient.

    The outputs are weighted with fixed random numbers into one scalar. Inputs of up to 256 elements are checked
    element by element, larger ones along random directions. At a kink (the slopes left and right differ) any
    value between the two slopes is right.

    Returns a GradientReport. Raises GradientCheckError naming input, index, both values and a likely cause, and
    UndertowError when there is nothing to check: a check that looked at nothing must not pass.
    """
    check = _Check(function, inputs, eps, rtol, atol, seed)
    report = check.run()
    if second_order:
        check_gradients(check.gradient_function(), check.arrays, eps=eps, rtol=rtol * 10, atol=atol * 10, seed=seed + 1)
    return report


class _Check:
    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Variable | np.ndarray | float] | Variable | np.ndarray,
        eps: float,
        rtol: float,
        atol: float,
        seed: int,
    ) -> None:
        self.function = function
        self.arrays = [_as_input(x) for x in ([inputs] if isinstance(inputs, (Variable, np.ndarray)) else inputs)]
        self.checked = [i for i, a in enumerate(self.arrays) if a.dtype.kind == "f"]
        if not self.checked:
            types = ", ".join(str(a.dtype) for a in self.arrays) or "none"
            raise UndertowError(
                f"there is nothing to check: no input is a float array (inputs: {types})",
                remedy="give the arrays with respect to which the function is differentiated as floats",
            )
        self.eps, self.rtol, self.atol = eps, rtol, atol
        self.rng = np.random.default_rng(seed)
        # Filled by the first run: the outputs at the inputs themselves, and a fixed random weight for each.
        self.middle: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []

    def run(self) -> GradientReport:
        computed = self._computed_gradients()
        largest, kinks, count = 0.0, 0, 0
        for position, gradient in zip(self.checked, computed, strict=True):
            size = self.arrays[position].size
            check = self._elementwise if size <= ELEMENTWISE_LIMIT else self._along_directions
            error, found = check(position, gradient)
            largest, kinks, count = max(largest, error), kinks + found, count + size
        return GradientReport(largest, kinks, count)

    def gradient_function(self) -> Callable[..., Any]:
        """The gradient as a function of the same inputs, for the check of second order."""

        def gradients(*variables: Variable) -> tuple[Variable, ...]:
            ys = self._outputs(variables)
            wanted = [variables[i] for i in self.checked]
            # Inputs on which the function depends linearly drop out of the second derivative: that is a zero.
            found = grad(ys, wanted, [as_variable(w) for w in self.weights], create_graph=True)
            return tuple(g + 0.0 * v for g, v in zip(found, wanted, strict=True))

        return gradients

    def _outputs(self, variables: Sequence[Variable]) -> list[Variable]:
        ys = self.function(*variables)
        ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
        for y in ys:
            if not isinstance(y, Variable):
                raise TypeError(f"the function to check must return Variables, not {type(y).__name__}")
        return ys

    def _variables(self) -> list[Variable]:
        return [Variable(a.copy(), requires_grad=i in self.checked) for i, a in enumerate(self.arrays)]

    def _computed_gradients(self) -> list[np.ndarray]:
        variables = self._variables()
        ys = self._outputs(variables)
        self.middle = [y.data for y in ys]
        self.weights = [self.rng.uniform(0.5, 1.5, y.shape) * self.rng.choice([-1, 1], y.shape) for y in ys]
        again = self._outputs(self._variables())
        if not all(np.array_equal(a.data, b, equal_nan=True) for a, b in zip(again, self.middle, strict=True)):
            raise UndertowError(
                "the function gives other results when it is called again with the same inputs, so there are no "
                "differences to compare with",
                remedy="take the randomness or the state out, for example under test_mode() or with a fixed seed",
            )
        seeds = [np.asarray(w, dtype=y.dtype) for w, y in zip(self.weights, ys, strict=True)]
        found = grad(ys, [variables[i] for i in self.checked], seeds)
        return [g.data for g in found]

    def _rise(self, input: int, array: np.ndarray) -> float:
        """How much the weighted sum of the outputs rises when one input becomes `array`.

        Outputs are subtracted one by one before they are summed: what does not change cancels exactly.
        """
        variables = self._variables()
        variables[input].data = array
        ys = self._outputs(variables)
        pairs = zip(self.weights, ys, self.middle, strict=True)
        return float(sum(np.sum(w * (y.data - y0)) for w, y, y0 in pairs))

    def _slope(self, input: int, direction: np.ndarray) -> _Slope:
        array = self.arrays[input]

        def sides(step: float) -> tuple[float, float]:
            ahead = self._rise(input, array + step * direction)
            behind = self._rise(input, array - step * direction)
            return -behind / step, ahead / step

        left, right = sides(self.eps)
        central = (left + right) / 2
        scale = max(abs(left), abs(right), 1e-12)
        # Smooth: the two slopes approach each other as the step shrinks. At a kink they do not.
        if abs(left - right) <= 1e-4 * scale:
            return _Slope(central, left, right, False)
        nearer_left, nearer_right = sides(self.eps / 10)
        if abs(nearer_left - nearer_right) <= 0.5 * abs(left - right):
            return _Slope(central, left, right, False)
        # What the one-sided slopes tend to as the step goes to 0.
        return _Slope(central, (10 * nearer_left - left) / 9, (10 * nearer_right - right) / 9, True)

    def _allowed(self, scale: float) -> float:
        return self.atol + self.rtol * scale

    def _elementwise(self, input: int, gradient: np.ndarray) -> tuple[float, int]:
        array = self.arrays[input]
        slopes: dict[tuple[int, ...], _Slope] = {}
        for index in np.ndindex(array.shape):
            direction = np.zeros_like(array)
            direction[index] = 1.0
            slopes[index] = self._slope(input, direction)
        scale = max((abs(s.central) for s in slopes.values()), default=0.0)
        errors = {index: _error(float(gradient[index]), s) for index, s in slopes.items()}
        worst = max(errors, key=lambda index: errors[index], default=None)
        if worst is not None and not errors[worst] <= self._allowed(scale):
            expected = np.array([s.central for s in slopes.values()])
            everywhere = np.arange(array.size)
            cause = _diagnose(gradient, everywhere, expected, slopes[worst], self._allowed(scale), scale)
            raise GradientCheckError(input, worst, float(gradient[worst]), slopes[worst].central, cause)
        kinks = sum(s.kink for s in slopes.values())
        return (errors[worst] / scale if worst is not None and scale else 0.0), kinks

    def _along_directions(self, input: int, gradient: np.ndarray) -> tuple[float, int]:
        largest, kinks = 0.0, 0
        for _ in range(DIRECTIONS):
            direction = self.rng.standard_normal(self.arrays[input].shape)
            direction /= np.linalg.norm(direction)
            slope = self._slope(input, direction)
            computed = float(np.sum(gradient * direction))
            scale = max(float(np.linalg.norm(gradient)), abs(slope.central))
            error = _error(computed, slope)
            kinks += slope.kink
            if not error <= self._allowed(scale):
                raise self._explain_direction(input, gradient, computed, slope)
            largest = max(largest, error / scale if scale else 0.0)
        return largest, kinks

    def _explain_direction(
        self, input: int, gradient: np.ndarray, computed: float, slope: _Slope
    ) -> GradientCheckError:
        """Name an element: of a sample of them, the one that is off most, and what the sample looks like."""
        array = self.arrays[input]
        flat = self.rng.permutation(array.size)[:ELEMENTWISE_LIMIT]
        slopes = []
        for position in flat:
            direction = np.zeros_like(array)
            direction.flat[position] = 1.0
            slopes.append(self._slope(input, direction))
        expected = np.array([s.central for s in slopes])
        given = gradient.reshape(-1)[flat]
        errors = np.array([_error(float(g), s) for g, s in zip(given, slopes, strict=True)])
        worst = int(np.argmax(errors))
        scale = float(np.max(np.abs(expected)))
        if errors[worst] <= self._allowed(scale):
            cause = f"a few elements: none of {flat.size} tried at random is off"
            return GradientCheckError(input, None, computed, slope.central, cause)
        cause = _diagnose(gradient, flat, expected, slopes[worst], self._allowed(scale), scale)
        index = tuple(int(i) for i in np.unravel_index(int(flat[worst]), array.shape))
        return GradientCheckError(input, index, float(given[worst]), slopes[worst].central, cause)


def _as_input(value: Variable | np.ndarray | float) -> np.ndarray:
    array = np.asarray(value.data if isinstance(value, Variable) else value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _error(computed: float, slope: _Slope) -> float:
    """Distance to the central difference; at a kink, to the interval between the two one-sided slopes."""
    if not np.isfinite(computed) or not np.isfinite(slope.central):
        return float("inf")
    if not slope.kink:
        return abs(computed - slope.central)
    low, high = min(slope.left, slope.right), max(slope.left, slope.right)
    return max(low - computed, computed - high, 0.0)


def _diagnose(
    gradient: np.ndarray, positions: np.ndarray, expected: np.ndarray, worst: _Slope, allowed: float, scale: float
) -> str:
    """A guess at the mistake, from how the gradient differs from what is expected at some flat positions of it."""
    given = gradient.reshape(-1)[positions]

    def agree(candidate: np.ndarray) -> bool:
        return bool(np.all(np.abs(candidate - expected) <= allowed + 1e-5 * scale))

    if not np.all(np.isfinite(expected)):
        return "the forward: its own result is not finite near this point"
    if not np.all(np.isfinite(given)):
        return "the backward divides by zero or overflows: its result is not finite"
    if worst.kink:
        return f"a kink: the slope is {worst.left:.6g} on the left and {worst.right:.6g} on the right of this point"
    if agree(-given):
        return "the sign: every element has the opposite sign"
    if not np.any(given):
        return "nothing arrives: the gradient is zero everywhere"
    factor = float(np.sum(given * expected) / np.sum(given * given))
    if factor and agree(given * factor):
        return f"a constant factor: the gradient is {1 / factor:.6g} times the derivative"
    if any(agree(swapped.reshape(-1)[positions]) for swapped in _transposed(gradient)):
        return "transposed: the gradient equals the derivative with its last two axes swapped"
    off = int((np.abs(given - expected) > allowed).sum())
    if off < 0.5 * given.size:
        return f"some elements only ({off} of {given.size}): look at edges, indices and masks"
    return "the formula: elements differ in no simple pattern"


def _transposed(gradient: np.ndarray) -> list[np.ndarray]:
    """The gradient with its last two axes swapped, or read as if its memory had been written so."""
    if gradient.ndim < 2:
        return []
    *lead, rows, columns = gradient.shape
    rewritten = gradient.reshape(*lead, columns, rows).swapaxes(-1, -2)
    return [gradient.swapaxes(-1, -2), rewritten] if rows == columns else [rewritten]

"""check_gradients: right gradients pass, planted mistakes are found, named, and explained."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Function, GradientCheckError, Variable, check_gradients


def planted(forward, backward):
    """A function of one variable with the given forward and backward on arrays (x and gy)."""

    class Planted(Function):
        def forward(self, x):
            return forward(x)

        def backward(self, gy):
            return backward(self.input.data, gy)

    return lambda x: Planted()(x)


def refused(function, inputs, **options) -> GradientCheckError:
    with pytest.raises(GradientCheckError) as caught:
        check_gradients(function, inputs, **options)
    return caught.value


# --- what is right passes -----------------------------------------------------------------------------------------


def test_right_gradients_pass_and_are_reported(rng):
    report = check_gradients(lambda a, b: ut.tanh(a @ b), [rng.standard_normal((3, 4)), rng.standard_normal((4, 2))])
    assert report.checked == 20
    assert report.kinks == 0
    assert report.largest_error < 1e-8


def test_float32_inputs_are_checked_in_float64(rng):
    seen = []

    def function(x):
        seen.append(x.dtype)
        return ut.exp(x)

    check_gradients(function, [rng.standard_normal(3).astype(np.float32)])
    assert set(seen) == {np.dtype(np.float64)}


def test_whole_numbers_are_passed_on_as_constants(rng):
    index = np.array([0, 2, 2])
    report = check_gradients(lambda x, i: x[i.data], [rng.standard_normal(4), index])
    assert report.checked == 4


def test_several_outputs(rng):
    check_gradients(lambda x: ut.split(ut.sin(x), 2), [rng.standard_normal(6)])
    check_gradients(lambda x: [ut.sin(x), ut.cos(x)], [rng.standard_normal(6)])


def test_inputs_are_not_written_into(rng):
    x = rng.standard_normal(5)
    copy = x.copy()
    check_gradients(ut.exp, [x])
    assert np.array_equal(x, copy)


def test_large_inputs_are_checked_along_directions(rng):
    calls = []

    def function(x):
        calls.append(1)
        return ut.tanh(x)

    report = check_gradients(function, [rng.standard_normal((100, 100))])
    assert report.checked == 10_000
    assert len(calls) < 100


def test_a_kink_allows_every_slope_between_left_and_right():
    x = np.array([-1.0, 0.0, 2.0])
    for at_kink in (0.0, 0.3, 1.0):
        function = planted(lambda x: np.maximum(x, 0), lambda x, gy, k=at_kink: gy * np.where(x == 0, k, x > 0))
        assert check_gradients(function, [x]).kinks == 1


def test_sharp_but_smooth_is_no_kink():
    assert check_gradients(lambda x: ut.tanh(x * 50.0), [np.array([0.01, 0.02, -0.03])], rtol=1e-4).kinks == 0


def test_second_order(rng):
    check_gradients(lambda a, b: ut.exp(a * b), [rng.standard_normal(3), rng.standard_normal(3)], second_order=True)
    check_gradients(lambda a, b: a + b, [rng.standard_normal(3), rng.standard_normal(3)], second_order=True)


def test_an_input_without_influence_is_an_error(rng):
    with pytest.raises(ut.UndertowError, match=r"number 1 of shape .* does not influence"):
        check_gradients(lambda a, b: a * 2.0, [rng.standard_normal(3), rng.standard_normal(2)])


# --- planted mistakes ---------------------------------------------------------------------------------------------


def test_the_wrong_sign(rng):
    error = refused(planted(np.sin, lambda x, gy: -gy * np.cos(x)), [rng.uniform(-1, 1, (2, 3))])
    assert error.cause == "the sign: every element has the opposite sign"
    assert error.computed == pytest.approx(-error.expected, rel=1e-6)


def test_a_wrong_factor(rng):
    error = refused(planted(np.square, lambda x, gy: gy * x), [rng.uniform(1, 2, (2, 3))])
    assert error.cause == "a constant factor: the gradient is 0.5 times the derivative"


def test_a_transposed_square_gradient(rng):
    w = rng.standard_normal((3, 3))
    error = refused(planted(lambda x: x @ w, lambda x, gy: (gy @ w.T).T), [rng.standard_normal((3, 3))])
    assert error.cause.startswith("transposed")


def test_a_transposed_gradient_forced_into_shape(rng):
    w = rng.standard_normal((4, 5))
    function = planted(lambda x: x @ w, lambda x, gy: (gy @ w.T).T.reshape(x.shape))
    assert refused(function, [rng.standard_normal((3, 4))]).cause.startswith("transposed")


def test_a_wrong_slope_at_a_kink():
    function = planted(lambda x: np.maximum(x, 0), lambda x, gy: gy * np.where(x == 0, 5.0, x > 0))
    error = refused(function, [np.array([-1.0, 2.0, 0.0])])
    assert error.index == (2,)
    assert error.cause.startswith("a kink: the slope is")
    numbers = sorted(abs(float(word)) for word in error.cause.split() if word[-1].isdigit())
    assert numbers[0] == 0.0
    assert numbers[1] > 0.4


def test_zero_everywhere(rng):
    error = refused(planted(np.exp, lambda x, gy: np.zeros_like(x)), [rng.standard_normal(4)])
    assert error.cause == "nothing arrives: the gradient is zero everywhere"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_not_finite_anywhere(bad, place, rng):
    def backward(x, gy):
        gx = gy * np.exp(x)
        gx[place] = bad
        return gx

    error = refused(planted(np.exp, backward), [rng.standard_normal(5)])
    assert error.index == (place,)
    assert "not finite" in error.cause


def test_a_forward_that_is_not_finite():
    with np.errstate(all="ignore"):
        error = refused(ut.log, [np.array([1.0, 0.0])])
    assert error.cause.startswith("the forward: its own result is not finite")


def test_some_elements_only(rng):
    def backward(x, gy):
        gx = gy * np.cos(x)
        gx[1, 2] += 0.25
        return gx

    error = refused(planted(np.sin, backward), [rng.uniform(-1, 1, (3, 4))])
    assert error.index == (1, 2)
    assert error.cause == "some elements only (1 of 12): look at edges, indices and masks"
    assert error.computed - error.expected == pytest.approx(0.25, rel=1e-4)


def test_no_simple_pattern(rng):
    error = refused(planted(np.exp, lambda x, gy: gy * np.cos(x)), [rng.standard_normal(9)])
    assert error.cause == "the formula: elements differ in no simple pattern"


def test_the_wrong_input_is_named(rng):
    class Swapped(Function):
        def forward(self, a, b):
            return a * b

        def backward(self, gy):
            b = self.inputs[1].data
            return gy * b, gy * b

    error = refused(lambda a, b: Swapped()(a, b), [rng.standard_normal(3), rng.standard_normal(3)])
    assert error.input == 1
    assert "gradient of input 1 at index" in str(error)
    assert f"{error.computed:.9g}" in str(error)
    assert f"{error.expected:.9g}" in str(error)
    assert error.cause in str(error)


def test_a_small_mistake_is_found(rng):
    assert refused(
        planted(np.sin, lambda x, gy: gy * np.cos(x) * (1 + 1e-5)), [rng.uniform(-1, 1, 5)]
    ).cause.startswith("a constant factor")


# --- planted mistakes in large inputs -----------------------------------------------------------------------------


LARGE = (40, 30)


@pytest.mark.parametrize(
    ("forward", "backward", "cause"),
    [
        (np.sin, lambda x, gy: -gy * np.cos(x), "the sign"),
        (np.square, lambda x, gy: gy * x, "a constant factor: the gradient is 0.5"),
        (np.exp, lambda x, gy: np.zeros_like(x), "nothing arrives"),
        (np.exp, lambda x, gy: np.full_like(x, np.nan), "the backward divides by zero"),
        (np.square, lambda x, gy: (2 * x * gy).T.reshape(x.shape), "transposed"),
        (np.exp, lambda x, gy: gy * np.cos(x), "the formula"),
        (np.sin, lambda x, gy: gy * np.cos(x) * np.where(np.arange(30) < 3, 2.0, 1.0), "some elements only"),
    ],
)
def test_large_inputs(forward, backward, cause, rng):
    error = refused(planted(forward, backward), [rng.uniform(-1, 1, LARGE)])
    assert error.cause.startswith(cause)
    assert error.index is not None
    assert all(0 <= i < n for i, n in zip(error.index, LARGE, strict=True))


def test_one_wrong_element_among_many_is_found(rng):
    def backward(x, gy):
        gx = gy * np.cos(x)
        gx[0, 0] += 0.5
        return gx

    error = refused(planted(np.sin, backward), [rng.uniform(-1, 1, (50, 50))])
    assert error.cause.startswith("a few elements") or error.index == (0, 0)


# --- planted mistakes of second order -----------------------------------------------------------------------------


def test_a_wrong_second_derivative(rng):
    class HalfRight(Function):
        """The gradient is right; what is recorded of it is not."""

        def forward(self, x):
            return x**3

        def backward_graph(self, gy):
            return gy * Variable(3 * self.input.data**2, requires_grad=False) + self.input * 0.0

    function = lambda x: HalfRight()(x)  # noqa: E731
    x = rng.uniform(1, 2, 4)
    check_gradients(function, [x])
    assert refused(function, [x], second_order=True).cause.startswith("nothing arrives")


def test_second_order_of_a_once_differentiable_class_is_refused(rng):
    function = planted(np.sin, lambda x, gy: gy * np.cos(x))
    with pytest.raises(ut.UndertowError, match="Planted cannot be differentiated twice"):
        check_gradients(function, [rng.standard_normal(3)], second_order=True)


# --- what cannot be checked must not pass -------------------------------------------------------------------------


def test_variables_numbers_and_one_array_alone_are_inputs(rng):
    values = rng.standard_normal((1, 3))
    assert check_gradients(ut.sin, values).checked == 3
    assert check_gradients(ut.sin, Variable(values)).checked == 3
    assert check_gradients(ut.mul, [Variable(values), 0.5]).checked == 4


@pytest.mark.parametrize("inputs", [[], [np.array([1, 2])]])
def test_nothing_to_check_is_an_error(inputs):
    with pytest.raises(ut.UndertowError, match="nothing to check"):
        check_gradients(lambda *xs: ut.sum(Variable(np.ones(2))), inputs)


def test_a_function_that_changes_between_calls_is_told(rng):
    with pytest.raises(ut.UndertowError, match="other results when it is called again"):
        check_gradients(lambda x: ut.dropout(x, 0.5), [rng.standard_normal(20)])


def test_a_function_that_leaves_the_graph_is_told(rng):
    with pytest.raises(TypeError, match="must return Variables, not ndarray"):
        check_gradients(lambda x: x.data, [rng.standard_normal(3)])

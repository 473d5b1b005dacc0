"""Products of matrices and tensors: against NumPy and PyTorch, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from undertow import Variable


def test_dot_and_outer(rng):
    a, b, c = rng.standard_normal(3), rng.standard_normal(3), rng.standard_normal(4)
    assert ut.dot(a, b).data == pytest.approx(sum(x * y for x, y in zip(a, b, strict=True)))
    np.testing.assert_array_equal(ut.outer(a, c).data, [[x * y for y in c] for x in a])
    ut.check_gradients(ut.dot, [a, b], second_order=True)
    ut.check_gradients(ut.outer, [a, c], second_order=True)


def test_a_batch_times_one_matrix_makes_no_array_per_member():
    """The weights' gradient of a long batch is one product of two matrices."""
    x, w = Variable(np.ones((50, 4, 8))), Variable(np.ones((8, 3)))
    y = x @ w
    shapes = []

    class Look(ut.FunctionHook):
        def after_forward(self, function, inputs, outputs):
            shapes.extend(o.shape for o in outputs)

    with Look():
        y.backward()
    assert w.grad.shape == (8, 3)
    assert (50, 8, 3) not in shapes


def test_linear_computes_only_what_is_wanted():
    x, w, b = np.ones((2, 3)), Variable(np.ones((4, 3))), Variable(np.ones(4))
    gx, gw, gb = ut.linear(x, w, b).creator.backward(np.ones((2, 4)))
    assert gx is None
    assert gw.shape == (4, 3)
    assert gb.shape == (4,)


@pytest.mark.parametrize(
    "subscripts", ["ij,jk->ik", "bij,bjk->ik", "ij,ij->", "i,j,k->kji", "ab,bc", "ijk->ki", "ij->"]
)
def test_einsum_of_numpy_and_pytorch(subscripts, rng):
    torch = pytest.importorskip("torch")
    lengths = dict(zip("abcijk", (2, 3, 4, 3, 4, 5), strict=True))
    data = [rng.standard_normal([lengths[c] for c in part]) for part in subscripts.split("->")[0].split(",")]
    variables, tensors = [Variable(d) for d in data], [torch.tensor(d, requires_grad=True) for d in data]
    y, expected = ut.einsum(subscripts, *variables), torch.einsum(subscripts, *tensors)
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    seed = rng.standard_normal(y.shape)
    y.grad = np.asarray(seed)
    y.backward()
    expected.backward(torch.tensor(seed))
    for variable, tensor in zip(variables, tensors, strict=True):
        np.testing.assert_allclose(variable.grad, tensor.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ut.matmul(np.ones((2, 3)), np.ones((2, 3))),
            r"shapes \(2, 3\) and \(2, 3\): the inner lengths differ",
        ),
        (lambda: ut.matmul(np.ones(3), np.array(2.0)), "at least one axis on each side"),
        (lambda: ut.dot(np.ones(3), np.ones(4)), "equal length"),
        (lambda: ut.dot(np.ones((3, 3)), np.ones((3, 3))), "one axis"),
        (lambda: ut.outer(np.ones((3, 3)), np.ones(3)), "one axis"),
        (
            lambda: ut.linear(np.ones((2, 3)), np.ones((4, 2))),
            r"x of shape \(2, 3\) does not fit weights of shape \(4, 2\)",
        ),
        (lambda: ut.linear(np.ones((2, 3)), np.ones((4, 3)), np.ones(3)), r"bias has shape \(3,\), expected \(4,\)"),
        (lambda: ut.einsum("ii->i", np.ones((3, 3))), "a letter stands twice in one operand"),
        (lambda: ut.einsum("...i->i", np.ones((3, 3))), "no ellipsis"),
        (lambda: ut.einsum("ij->k", np.ones((3, 3))), "the result names a letter that no operand has"),
        (lambda: ut.einsum("ij,jk->ik", np.ones((3, 3))), "names 2 operands, got 1"),
        (lambda: ut.einsum("ijk->i", np.ones((3, 3))), "names 3 axes, the operand has 2"),
        (lambda: ut.einsum("ij,jk->ik", np.ones((3, 3)), np.ones((4, 3))), "'j' is 3 long here and 4 there"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ut.UndertowError, match=message):
        call()

"""Losses: extreme inputs, ignored labels, Caffe's conventions; PyTorch where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.core import Variable
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]
REDUCTIONS = ["mean", "sum", "none"]


def gradient(loss: Any, *arrays: Array) -> tuple[Array, list[Array]]:
    """The loss and its gradients with respect to the float arrays."""
    variables = [Variable(a) if a.dtype.kind == "f" else a for a in arrays]
    y = loss(*variables)
    y.backward()
    return y.data, [v.grad for v in variables if isinstance(v, Variable)]


def compare(ours: Any, theirs: Any, *arrays: Array) -> None:
    """Value and gradients against PyTorch; `none` reductions are seeded with ones."""
    torch = pytest.importorskip("torch")
    value, gradients = gradient(ours, *arrays)
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    expected = theirs(torch.nn.functional, *tensors)
    expected.backward(torch.ones_like(expected))
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    wanted = [t.grad for t in tensors if t.requires_grad]
    for g, w in zip(gradients, wanted, strict=True):
        if w is not None:
            np.testing.assert_allclose(g, w.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_regression_against_pytorch(reduction: Any, rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    compare(
        lambda x, t: ut.mean_squared_error(x, t, reduction), lambda f, x, t: f.mse_loss(x, t, reduction=reduction), x, t
    )
    compare(lambda x, t: ut.l1_loss(x, t, reduction), lambda f, x, t: f.l1_loss(x, t, reduction=reduction), x, t)
    compare(
        lambda x, t: ut.huber_loss(x, t, 0.7, reduction),
        lambda f, x, t: f.huber_loss(x, t, delta=0.7, reduction=reduction),
        x,
        t,
    )
    compare(
        lambda x, t: ut.smooth_l1_loss(x, t, 0.7, reduction),
        lambda f, x, t: f.smooth_l1_loss(x, t, beta=0.7, reduction=reduction),
        x,
        t,
    )


def test_absolute_error_has_no_slope_at_its_kink() -> None:
    _, (gx, gt) = gradient(ut.l1_loss, np.array([1.0, 2, 3]), np.array([1.0, 0, 5]))
    np.testing.assert_allclose(gx, [0, 1 / 3, -1 / 3])
    np.testing.assert_allclose(gt, -gx)


@pytest.mark.parametrize("spatial", [(), (5,), (3, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_cross_entropy_against_pytorch(spatial: Any, weighted: bool, rng: np.random.Generator) -> None:
    x, t = 3 * rng.standard_normal((4, 6, *spatial)), rng.integers(0, 6, (4, *spatial))
    t.reshape(-1)[1] = -100
    torch = pytest.importorskip("torch")
    weight = rng.uniform(0.5, 2, 6) if weighted else None
    tensor = None if weight is None else torch.tensor(weight)
    for ours, theirs in (("weight", "mean"), ("none", "sum")):
        compare(
            lambda x, t, n=ours: ut.softmax_cross_entropy(x, t, -100, weight, n),
            lambda f, x, t, r=theirs: f.cross_entropy(x, t, tensor, ignore_index=-100, reduction=r),
            x,
            t,
        )
    compare(
        lambda x, t: ut.softmax_cross_entropy(x, t, -100, weight, elementwise=True),
        lambda f, x, t: f.cross_entropy(x, t, tensor, ignore_index=-100, reduction="none"),
        x,
        t,
    )


@pytest.mark.parametrize(
    ("normalization", "count"), [("valid", 5), ("full", 6), ("batch_size", 2), ("none", 1), ("weight", 5)]
)
def test_the_normalizations(normalization: Any, count: int, rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((2, 4, 3)), np.array([[0, 1, 9], [3, 2, 1]])
    total = ut.softmax_cross_entropy(x, t, 9, elementwise=True).data.sum()
    value, (gx,) = gradient(lambda x: ut.softmax_cross_entropy(x, t, 9, None, normalization), x)
    np.testing.assert_allclose(value, total / count)
    np.testing.assert_array_equal(gx[0, :, 2], 0)
    # What the classes of one place receive adds up to nothing: softmax does not see a common shift.
    np.testing.assert_allclose(gx.sum(1), 0, atol=1e-15)


def test_nothing_labelled_costs_nothing() -> None:
    """Caffe: the divisor is at least 1, so a batch without labels gives 0 and not NaN."""
    x, t = np.ones((2, 3)), np.array([7, 7])
    for normalization in ("valid", "weight"):
        value, (gx,) = gradient(lambda x, n=normalization: ut.softmax_cross_entropy(x, t, 7, None, n), x)
        assert value == 0
        assert not gx.any()
    value, (gx,) = gradient(lambda x: ut.sigmoid_cross_entropy(x, np.full((2, 3), 7), 7), x)
    assert value == 0
    assert not gx.any()


def test_scores_of_any_size_stay_finite() -> None:
    x = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], np.float32)
    value, (gx,) = gradient(lambda x: ut.softmax_cross_entropy(x, np.array([0, 0])), x)
    assert value == np.float32(1e4)
    np.testing.assert_allclose(gx, [[0, 0, 0], [-0.5, 0.5, 0]], atol=1e-7)
    value, (gx,) = gradient(lambda x: ut.sigmoid_cross_entropy(x, np.ones((2, 3))), x)
    assert value == pytest.approx((2e4 + 2 * np.log(2)) / 6)
    np.testing.assert_allclose(gx * 6, [[0, -1, -0.5], [-1, 0, -0.5]], atol=1e-7)


def test_second_derivative_at_large_logits_is_finite() -> None:
    x = Variable(np.array([800.0, -800.0, 0.0]))
    gx = ut.grad(ut.sigmoid_cross_entropy(x, np.zeros(3), normalization="none"), x, create_graph=True)
    np.testing.assert_allclose(ut.grad(gx, x).data, [0, 0, 0.25])


def test_soft_targets_against_pytorch(rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((3, 5, 2)), rng.uniform(0, 1, (3, 5, 2))
    t /= t.sum(1, keepdims=True)
    compare(ut.soft_cross_entropy, lambda f, x, t: f.cross_entropy(x, t, reduction="sum") / 6, x, t)


def test_soft_targets_that_are_certain_are_labels(rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((3, 5)), np.array([4, 0, 2])
    np.testing.assert_allclose(ut.soft_cross_entropy(x, np.eye(5)[t]).data, ut.softmax_cross_entropy(x, t).data)


def test_sigmoid_cross_entropy_against_pytorch(rng: np.random.Generator) -> None:
    x, t = 5 * rng.standard_normal((3, 4)), rng.uniform(0, 1, (3, 4))
    compare(lambda x, t: ut.sigmoid_cross_entropy(x, t), lambda f, x, t: f.binary_cross_entropy_with_logits(x, t), x, t)
    compare(
        lambda x, t: ut.sigmoid_cross_entropy(x, t, elementwise=True),
        lambda f, x, t: f.binary_cross_entropy_with_logits(x, t, reduction="none"),
        x,
        t,
    )


@pytest.mark.parametrize(("normalization", "count"), [("valid", 4), ("full", 6), ("batch_size", 2), ("none", 1)])
def test_ignored_entries_of_sigmoid_cross_entropy(normalization: Any, count: int, rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((2, 3)), np.array([[0, 1, -1], [-1, 1, 0]])
    value, (gx,) = gradient(lambda x: ut.sigmoid_cross_entropy(x, t, -1, normalization), x)
    p = 1 / (1 + np.exp(-x))
    losses = np.where(t == -1, 0, -np.log(np.where(t == 1, p, 1 - p)))
    np.testing.assert_allclose(value, losses.sum() / count)
    np.testing.assert_allclose(gx, np.where(t == -1, 0, p - t) / count)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_against_pytorch(reduction: Any, rng: np.random.Generator) -> None:
    x, t = rng.uniform(0, 1, (3, 4)), rng.uniform(0, 1, (3, 4))
    x[0, :2], t[0, :2] = (0, 1), (1, 1)  # certain: one wrong, one right
    value, (gx, _) = gradient(lambda x, t: ut.binary_cross_entropy(x, t, reduction), x, t)
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.binary_cross_entropy(tensor, torch.tensor(t), reduction=reduction)
    expected.backward(torch.ones_like(expected))
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(gx, tensor.grad.numpy(), rtol=1e-8)


def test_kl_divergence_against_pytorch(rng: np.random.Generator) -> None:
    log_q, p = np.log(rng.uniform(0.1, 1, (3, 4))), rng.uniform(0.1, 1, (3, 4))
    p[0, 0] = 0
    value, (g, _) = gradient(ut.kl_divergence, log_q, p)
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(log_q, requires_grad=True)
    expected = torch.nn.functional.kl_div(tensor, torch.tensor(p), reduction="sum")
    expected.backward()
    np.testing.assert_allclose(value, expected.item())
    np.testing.assert_allclose(g, tensor.grad.numpy())


def test_gaussian_kl_is_the_integral() -> None:
    """Against a numerical integral of p log(p / q) for one dimension."""
    mean, log_variance = 0.7, -0.4
    z = np.linspace(-12, 12, 200001)
    variance = np.exp(log_variance)
    p = np.exp(-((z - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    log_q = -(z**2) / 2 - np.log(2 * np.pi) / 2
    terms = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - log_q), 0)
    integral = terms.sum() * (z[1] - z[0])
    np.testing.assert_allclose(
        ut.gaussian_kl_divergence(np.array(mean), np.array(log_variance)).data, integral, rtol=1e-8
    )
    ut.check_gradients(ut.gaussian_kl_divergence, (np.array([mean, 2]), np.array([log_variance, 1])))


def test_hinge_by_hand() -> None:
    """Class 1 is right: misses are 1 + 0.5 (class 0), 1 - 0.2 (class 1), and none for class 2 at -3."""
    x, t = np.array([[0.5, 0.2, -3.0]]), np.array([1])
    value, (gx,) = gradient(lambda x: ut.hinge_loss(x, t), x)
    assert value == pytest.approx(1.5 + 0.8)
    np.testing.assert_allclose(gx, [[1, -1, 0]])
    value, (gx,) = gradient(lambda x: ut.hinge_loss(x, t, "L2"), x)
    assert value == pytest.approx(1.5**2 + 0.8**2)
    np.testing.assert_allclose(gx, [[3, -1.6, 0]])


def test_contrastive_by_hand() -> None:
    a, b = np.array([[3.0, 4], [0, 0], [0, 0]]), np.array([[0.0, 0], [0.6, 0.8], [3, 4]])
    flags = np.array([1, 0, 0])
    value, (ga, gb) = gradient(lambda a, b: ut.contrastive_loss(a, b, flags, margin=2), a, b)
    assert value == pytest.approx((25 + 1) / 6)
    np.testing.assert_allclose(ga, [[1, 4 / 3], [0.2, 0.8 / 3], [0, 0]])
    np.testing.assert_allclose(gb, -ga)
    value, (ga, _) = gradient(lambda a, b: ut.contrastive_loss(a, b, flags, margin=2, legacy=True), a, b)
    assert value == pytest.approx((25 + 1) / 6)
    np.testing.assert_allclose(ga, [[1, 4 / 3], [0.2, 0.8 / 3], [0, 0]])


def test_equal_vectors_that_should_differ_stay_finite() -> None:
    a = np.ones((1, 2))
    value, (ga, _) = gradient(lambda a, b: ut.contrastive_loss(a, b, np.array([0]), 3.0), a, a.copy())
    assert value == pytest.approx(4.5)
    np.testing.assert_array_equal(ga, 0)


def test_accuracy() -> None:
    x = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1, 1, 1]])
    assert ut.accuracy(x, np.array([1, 1, 2, 0])).data == 0.75
    assert ut.accuracy(x, np.array([1, 1, 2, 1])).data == 0.5  # of equal scores the first class is first
    assert ut.accuracy(x, np.array([1, 1, 2, 1]), top_k=2).data == 1
    assert ut.accuracy(x, np.array([1, 1, 9, 9]), ignore_label=9).data == 0.5
    assert ut.accuracy(np.full((2, 3), np.nan), np.array([0, 0])).data == 0
    assert not ut.accuracy(Variable(x), np.array([1, 1, 2, 0])).requires_grad


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ShapeError, lambda: ut.mean_squared_error(np.zeros((3, 1)), np.zeros(3))),
        (ValueError, lambda: ut.mean_squared_error(np.zeros(3), np.zeros(3), "average")),  # type: ignore[arg-type]
        (ValueError, lambda: ut.huber_loss(np.zeros(3), np.zeros(3), 0)),
        (ShapeError, lambda: ut.softmax_cross_entropy(np.zeros((2, 3)), np.zeros((2, 3), int))),
        (ShapeError, lambda: ut.softmax_cross_entropy(np.zeros(3), np.zeros(3, int))),
        (TypeError, lambda: ut.softmax_cross_entropy(np.zeros((2, 3)), np.zeros(2))),
        (ValueError, lambda: ut.softmax_cross_entropy(np.zeros((2, 3)), np.array([0, 3]))),
        (ValueError, lambda: ut.softmax_cross_entropy(np.zeros((2, 3)), np.array([0, -1]))),
        (ShapeError, lambda: ut.softmax_cross_entropy(np.zeros((2, 3)), np.array([0, 1]), class_weight=np.ones(2))),
        (
            ValueError,
            lambda: ut.softmax_cross_entropy(np.zeros((2, 3)), np.array([0, 1]), normalization="x"),  # type: ignore[arg-type]
        ),
        (ShapeError, lambda: ut.soft_cross_entropy(np.zeros((2, 3)), np.zeros((3, 2)))),
        (ShapeError, lambda: ut.soft_cross_entropy(np.zeros(3), np.zeros(3))),
        (ShapeError, lambda: ut.sigmoid_cross_entropy(np.zeros((2, 3)), np.zeros(3))),
        (ShapeError, lambda: ut.binary_cross_entropy(np.array([1.5]), np.array([1.0]))),
        (ShapeError, lambda: ut.binary_cross_entropy(np.array([np.nan]), np.array([1.0]))),
        (ValueError, lambda: ut.hinge_loss(np.zeros((2, 3)), np.array([0, 3]))),
        (ValueError, lambda: ut.hinge_loss(np.zeros((2, 3)), np.array([0, 1]), "L3")),  # type: ignore[arg-type]
        (ShapeError, lambda: ut.contrastive_loss(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(3))),
        (ValueError, lambda: ut.accuracy(np.zeros((2, 3)), np.array([0, 3]))),
    ],
)
def test_what_does_not_fit_is_refused(error: type[Exception], call: Any) -> None:
    with pytest.raises(error):
        call()

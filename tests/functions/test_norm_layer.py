"""Layer, group, instance and response normalisation, against PyTorch where installed and by what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.core import Variable
from undertow.errors import ShapeError

Array = np.ndarray[Any, Any]


def compare(ours: Any, theirs: Any, arrays: list[Array], rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    variables = [Variable(a) for a in arrays]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, expected = ours(*variables), theirs(torch.nn.functional, *tensors)
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    y.grad = rng.standard_normal(y.shape)
    y.backward()
    expected.backward(torch.tensor(y.grad))
    for v, t in zip(variables, tensors, strict=True):
        np.testing.assert_allclose(v.grad, t.grad.numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_layer_norm_against_pytorch(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = 2 * rng.standard_normal((4, 2, 3, 5)) + 1
    arrays = [x, rng.uniform(0.5, 2, shape), rng.standard_normal(shape)]
    compare(
        lambda x, gamma, beta: ut.layer_norm(x, gamma, beta),
        lambda f, x, gamma, beta: f.layer_norm(x, shape, gamma, beta),
        arrays,
        rng,
    )


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_against_pytorch(groups: int, rng: np.random.Generator) -> None:
    arrays = [2 * rng.standard_normal((3, 6, 4, 2)) + 1, rng.uniform(0.5, 2, 6), rng.standard_normal(6)]
    compare(
        lambda x, gamma, beta: ut.group_norm(x, groups, gamma, beta),
        lambda f, x, gamma, beta: f.group_norm(x, groups, gamma, beta),
        arrays,
        rng,
    )


def test_instance_norm_is_each_plane_alone(rng: np.random.Generator) -> None:
    x = 3 * rng.standard_normal((2, 3, 8, 8)) + 5
    y = ut.instance_norm(x).data
    np.testing.assert_allclose(y.mean((2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(y.std((2, 3)), 1, rtol=1e-5)
    ut.check_gradients(lambda x: ut.instance_norm(x, np.array([1.0, 2, 3])), (x[:1, :, :2, :2],), second_order=True)


def test_layer_norm_without_parameters(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 8))
    np.testing.assert_allclose(ut.layer_norm(x).data.mean(2), 0, atol=1e-12)
    np.testing.assert_allclose(ut.layer_norm(x, shape=(3, 8)).data.mean((1, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(ut.layer_norm(x, beta=np.full(8, 2.0)).data.mean(2), 2)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_against_pytorch(size: int, rng: np.random.Generator) -> None:
    """PyTorch divides alpha by the window as Caffe does."""
    compare(
        lambda x: ut.lrn(x, size, alpha=0.9, beta=0.6, k=1.5),
        lambda f, x: f.local_response_norm(x, size, alpha=0.9, beta=0.6, k=1.5),
        [rng.standard_normal((2, 7, 3, 2))],
        rng,
    )


def test_l2_normalize_and_cosine(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((4, 3, 2)), rng.standard_normal((4, 3, 2))
    np.testing.assert_allclose((ut.l2_normalize(x).data ** 2).sum(1), 1)
    np.testing.assert_array_equal(ut.l2_normalize(np.zeros((1, 3))).data, 0)
    ut.check_gradients(ut.l2_normalize, (x,), second_order=True)
    compare(lambda x, y: ut.cosine_similarity(x, y), lambda f, x, y: f.cosine_similarity(x, y, dim=1), [x, y], rng)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ut.layer_norm(np.zeros((2, 3)), np.ones(2)),
        lambda: ut.layer_norm(np.zeros((2, 3)), np.ones(3), np.ones(2)),
        lambda: ut.group_norm(np.zeros((2, 3)), 2),
        lambda: ut.group_norm(np.zeros((2, 4)), 2, np.ones(2)),
        lambda: ut.lrn(np.zeros((2, 3))),
        lambda: ut.lrn(np.zeros((2, 3, 1, 1)), size=2),
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ShapeError):
        call()

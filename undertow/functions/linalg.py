"""Products of matrices: matmul, linear, dot, outer."""

from __future__ import annotations

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.shape import expand_dims, reshape, sum_to, swapaxes, transpose

__all__ = ["Linear", "MatMul", "dot", "linear", "matmul", "outer"]


def _matmul_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        left = a[None, :] if a.ndim == 1 else a
        right = b[:, None] if b.ndim == 1 else b
        full = (left[..., :, :, None] * right[..., None, :, :]).sum(axis=-2)
        full = full[..., 0] if b.ndim == 1 else full
        return full if a.ndim > 1 else full[0] if b.ndim == 1 else full[..., 0, :]

    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (5, 3, 2)),
        ((2, 3), (5, 3, 4)),
        ((3,), (5, 3, 2)),
        ((5, 2, 3), (3,)),
    ]
    return [
        Sample((rng.standard_normal(a), rng.standard_normal(b)), lambda x, y: x @ y, reference, note=f"{a} @ {b}")
        for a, b in pairs
    ]


@register(
    "matmul",
    gradient="twice",
    forward="y = a b, matrix product over the last two axes",
    backward="ga = gy b^T, gb = a^T gy, each summed over broadcast axes",
    samples=_matmul_samples,
    whole=True,
)
class MatMul(Function):
    """Matrix product with NumPy's rules: leading axes are a broadcast batch, a 1-D operand is a row or a column.

    Shapes: (..., n, k) @ (..., k, m) -> (..., n, m); (k,) @ (k,) -> ().
    """

    def forward(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a @ b

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        (a, b), (wants_a, wants_b) = (x.data for x in self.inputs), self.needs_input_grad
        if a.ndim != 2 or b.ndim != 2:
            return super().backward(gy)
        return gy @ b.T if wants_a else None, a.T @ gy if wants_b else None

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        (a, b), (wants_a, wants_b) = self.inputs, self.needs_input_grad
        a_shape, b_shape = a.shape, b.shape
        if a.ndim == 1:
            a, gy = expand_dims(a, 0), expand_dims(gy, -1 if b.ndim == 1 else -2)
        if b.ndim == 1:
            b, gy = expand_dims(b, 1), expand_dims(gy, -1)
        if b.ndim == 2:
            # One matrix for the whole batch: the batch becomes rows, so that gb needs no array per member.
            a, gy = reshape(a, (-1, a.shape[-1])), reshape(gy, (-1, gy.shape[-1]))
        ga = matmul(gy, swapaxes(b, -1, -2)) if wants_a else None
        gb = matmul(swapaxes(a, -1, -2), gy) if wants_b else None
        if ga is not None:
            ga = reshape(sum_to(ga, a.shape), a_shape)
        if gb is not None:
            gb = reshape(sum_to(gb, b.shape), b_shape)
        return ga, gb


def matmul(a: Operand, b: Operand) -> Variable:
    """Matrix product a @ b with NumPy's rules, batched and broadcast over leading axes.

    Raises ShapeError when the inner lengths differ or an operand has no axis.
    """
    a, b = as_variable(a), as_variable(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul needs at least one axis on each side, got shapes {a.shape} and {b.shape}; use *")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ShapeError(f"matmul of shapes {a.shape} and {b.shape}: the inner lengths differ")
    return MatMul()(a, b)


def dot(a: Operand, b: Operand) -> Variable:
    """Inner product of two rows of equal length, (n,) and (n,) -> (). For matrices use matmul."""
    a, b = as_variable(a), as_variable(b)
    if a.ndim != 1 or a.shape != b.shape:
        raise ShapeError(f"dot takes two arrays of one axis and equal length, got shapes {a.shape} and {b.shape}")
    return MatMul()(a, b)


def outer(a: Operand, b: Operand) -> Variable:
    """All products of two rows, (n,) and (m,) -> (n, m)."""
    a, b = as_variable(a), as_variable(b)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer takes two arrays of one axis, got shapes {a.shape} and {b.shape}")
    return reshape(a, (-1, 1)) * b


def _linear_samples(rng: np.random.Generator) -> list[Sample]:
    def reference(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        y = np.array([[sum(row * weights) for weights in w] for row in x.reshape(-1, x.shape[-1])])
        return (y if b is None else y + b).reshape(*x.shape[:-1], w.shape[0])

    shapes: list[tuple[tuple[int, ...], ...]] = [
        ((4, 3), (5, 3), (5,)),
        ((4, 3), (5, 3)),
        ((3,), (2, 3), (2,)),
        ((2, 4, 3), (5, 3), (5,)),
    ]
    return [Sample(tuple(rng.standard_normal(s) for s in case), lambda *a: linear(*a), reference) for case in shapes]


@register(
    "linear",
    gradient="twice",
    forward="y = x w^T + b",
    backward="gx = gy w, gw = gy^T x, gb = sum of gy over rows",
    samples=_linear_samples,
)
class Linear(Function):
    """Affine map of the last axis: x (..., n), w (m, n), b (m,) or absent -> (..., m)."""

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        y = x @ w.T
        if b is not None:
            y += b
        return y

    def backward(self, gy: np.ndarray) -> tuple[np.ndarray | None, ...]:
        x, w = self.inputs[0].data, self.inputs[1].data
        wants = self.needs_input_grad
        rows = gy.reshape(-1, gy.shape[-1])
        gx = gy @ w if wants[0] else None
        gw = rows.T @ x.reshape(-1, x.shape[-1]) if wants[1] else None
        if len(wants) == 2:
            return gx, gw
        return gx, gw, rows.sum(axis=0) if wants[2] else None

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        x, w = self.inputs[:2]
        rows = reshape(gy, (-1, gy.shape[-1]))
        gx = matmul(gy, w)
        gw = matmul(transpose(rows), reshape(x, (-1, x.shape[-1])))
        return (gx, gw) if len(self.inputs) == 2 else (gx, gw, sum_to(rows, (1, gy.shape[-1])).reshape(-1))


def linear(x: Operand, w: Operand, b: Operand | None = None) -> Variable:
    """y = x w^T + b over the last axis: x (..., n), w (m, n), b (m,) or None -> (..., m).

    Raises ShapeError when the lengths do not fit.
    """
    x, w = as_variable(x), as_variable(w)
    if x.ndim == 0 or w.ndim != 2 or x.shape[-1] != w.shape[1]:
        raise ShapeError(f"linear: x of shape {x.shape} does not fit weights of shape {w.shape}; x (..., n), w (m, n)")
    if b is None:
        return Linear()(x, w)
    b = as_variable(b)
    if b.shape != w.shape[:1]:
        raise ShapeError(f"linear: the bias has shape {b.shape}, expected {w.shape[:1]}")
    return Linear()(x, w, b)

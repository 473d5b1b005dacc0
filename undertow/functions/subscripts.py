"""Sums of products named by letters: einsum."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.shape import broadcast_to, reshape

__all__ = ["EinSum", "einsum"]


def _samples(rng: np.random.Generator) -> list[Sample]:
    lengths = {"b": 2, "i": 3, "j": 4, "k": 5}

    def reference(subscripts: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
        left, result = subscripts.split("->")
        operands = left.split(",")
        letters = sorted(set(left) - {","})
        total = np.zeros([lengths[c] for c in result])
        for values in itertools.product(*(range(lengths[c]) for c in letters)):
            at = dict(zip(letters, values, strict=True))
            product = 1.0
            for names, array in zip(operands, arrays, strict=True):
                product *= array[tuple(at[c] for c in names)]
            total[tuple(at[c] for c in result)] += product
        return total

    cases = ["ij,jk->ik", "bij,bjk->bik", "i,i->", "ij->ji", "ij->i", "ij,kj->", "i,j->ij", "bij,jk,k->bi"]
    return [
        Sample(
            tuple(rng.standard_normal([lengths[c] for c in names]) for names in case.split("->")[0].split(",")),
            lambda *xs, case=case: einsum(case, *xs),
            lambda *xs, case=case: reference(case, xs),
            note=case,
        )
        for case in cases
    ]


@register(
    "einsum",
    gradient="twice",
    forward="y = sum of products of x_0, x_1, ... over the letters that the result does not name",
    backward="gx_i = einsum of gy and the other operands, with the subscripts of x_i as result",
    samples=_samples,
    whole=True,
)
class EinSum(Function):
    """NumPy's einsum; each operand names every axis by a letter, no letter twice."""

    def __init__(self, operands: Sequence[str], result: str) -> None:
        self.operands, self.result = tuple(operands), result

    def forward(self, *xs: np.ndarray) -> np.ndarray:
        return np.einsum(f"{','.join(self.operands)}->{self.result}", *xs, optimize=len(xs) > 2)

    def backward_graph(self, gy: Variable) -> tuple[Variable | None, ...]:
        wants = self.needs_input_grad
        return tuple(self._gradient_of(i, gy) if wanted else None for i, wanted in enumerate(wants))

    def _gradient_of(self, position: int, gy: Variable) -> Variable:
        """The product of everything else, summed to this operand's letters, repeated over those only it has."""
        names = self.operands[position]
        others = [i for i in range(len(self.operands)) if i != position]
        around = [self.result, *(self.operands[i] for i in others)]
        shared = "".join(c for c in names if any(c in other for other in around))
        product = EinSum(around, shared)(gy, *(self.inputs[i] for i in others))
        shape = self.inputs[position].shape
        kept = tuple(n if c in shared else 1 for c, n in zip(names, shape, strict=True))
        return broadcast_to(reshape(product, kept), shape)


def einsum(subscripts: str, *operands: Operand) -> Variable:
    """Sum of products by letters, e.g. einsum("ij,jk->ik", a, b); without "->" as NumPy: letters used once, sorted.

    Raises ShapeError when letters, axes and lengths do not fit, and for what is not supported: an ellipsis, or a
    letter twice in one operand (a diagonal: take it by indexing).
    """
    names, result = _parse(subscripts)
    variables = [as_variable(x) for x in operands]
    if len(names) != len(variables):
        raise ShapeError(f"einsum '{subscripts}' names {len(names)} operands, got {len(variables)}")
    lengths: dict[str, int] = {}
    for letters, x in zip(names, variables, strict=True):
        if len(letters) != x.ndim:
            raise ShapeError(f"einsum '{subscripts}': '{letters}' names {len(letters)} axes, the operand has {x.ndim}")
        for letter, n in zip(letters, x.shape, strict=True):
            if lengths.setdefault(letter, n) != n:
                raise ShapeError(f"einsum '{subscripts}': '{letter}' is {lengths[letter]} long here and {n} there")
    return EinSum(names, result)(*variables)


def _parse(subscripts: str) -> tuple[list[str], str]:
    left, arrow, result = subscripts.replace(" ", "").partition("->")
    names = left.split(",")
    used = left.replace(",", "")
    if not arrow:
        result = "".join(sorted(c for c in set(used) if used.count(c) == 1))
    if not all(c.isascii() and c.isalpha() for c in used + result):
        raise ShapeError(f"einsum '{subscripts}': only letters, ',' and '->' are supported (no ellipsis)")
    if any(len(set(part)) != len(part) for part in (*names, result)):
        raise ShapeError(f"einsum '{subscripts}': a letter stands twice in one operand, which is not supported")
    if not set(result) <= set(used):
        raise ShapeError(f"einsum '{subscripts}': the result names a letter that no operand has")
    return names, result

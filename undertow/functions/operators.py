"""Plugs the operations into Variable, so that x + y, x[i] and x.sum() work. Imported for its effect."""

from __future__ import annotations

from undertow.core.variable import OPERATIONS
from undertow.functions import arithmetic, compare, indexing, linalg, reduce, shape

OPERATIONS.update(
    add=arithmetic.add,
    sub=arithmetic.sub,
    mul=arithmetic.mul,
    div=arithmetic.div,
    neg=arithmetic.neg,
    pow=arithmetic.pow,
    get_item=indexing.get_item,
    matmul=linalg.matmul,
    reshape=shape.reshape,
    transpose=shape.transpose,
    sum=reduce.sum,
    mean=reduce.mean,
    abs=compare.abs,
)

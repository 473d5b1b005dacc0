"""Long chains and wide fans: no recursion, and work that grows with the graph and no faster. Counted, not timed."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

import undertow as ut
from undertow import Variable
from undertow.core import backward as walk
from undertow.core.hooks import FunctionHook


class Count(FunctionHook):
    def __init__(self):
        self.backwards = 0

    def before_backward(self, function, output_grads):
        self.backwards += 1


@pytest.fixture
def pushes(monkeypatch):
    """Counts what is put on the heap."""
    seen = []

    class Heap:
        heappop = staticmethod(heapq.heappop)

        @staticmethod
        def heappush(heap, item):
            seen.append(len(heap))
            heapq.heappush(heap, item)

    monkeypatch.setattr(walk, "heapq", Heap)
    return seen


def test_a_chain_of_100000_operations():
    x = Variable(np.array(1.0))
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.backward()
    assert y.data == 100_001.0
    assert x.grad == 1.0
    assert ut.grad(y, x).data == 1.0
    y.unchain_backward()
    assert y.creator is None


def test_a_long_chain_is_freed_without_recursion():
    x = Variable(np.array(1.0))
    y = x
    for _ in range(100_000):
        y = y + 1.0
    del y
    assert x.creator is None


def test_one_variable_used_10000_times():
    x = Variable(np.ones(3))
    total = x * 0.0
    for i in range(10_000):
        total = total + x * float(i)
    total.backward()
    assert np.array_equal(x.grad, np.full(3, sum(range(10_000))))


def test_a_fan_of_10000_summed_at_once():
    x = Variable(np.array(2.0))
    y = ut.sum(ut.stack([x * x for _ in range(10_000)]))
    with Count() as count:
        y.backward()
    assert x.grad == 40_000.0
    # Sum, Concat, and a Reshape and a Mul for each.
    assert count.backwards == 2 + 2 * 10_000


@pytest.mark.parametrize("length", [100, 1000])
def test_every_function_is_put_on_the_heap_once(pushes, length):
    x = Variable(np.array(1.0))
    y = x
    for _ in range(length):
        y = ut.sin(y) * y
    with Count() as count:
        y.backward()
    assert len(pushes) == count.backwards == 2 * length
    assert max(pushes) <= 2


def test_grad_touches_each_function_once(pushes):
    x = Variable(np.array(1.0))
    y = x
    for _ in range(500):
        y = y * y * 0.5
    ut.grad(y, x)
    assert len(pushes) == 1000


def test_a_sum_of_many_paths_makes_one_new_array():
    """The second gradient to arrive makes the sum, the others are added into it."""
    x = Variable(np.ones(1000))
    y = ut.sum(ut.stack([x * 1.0 for _ in range(50)]))
    sums = []
    add = walk._Walk._add

    class Watching(walk._Walk):
        def _add(self, variable, gx):
            add(self, variable, gx)
            if variable is x:
                sums.append(self.grads[variable].__array_interface__["data"][0])

    run = Watching(False)
    run.seed(y, None)
    run.run()
    run.store_leaves()
    assert len(sums) == 49
    assert len(set(sums)) == 1
    assert np.array_equal(x.grad, np.full(1000, 50.0))

"""A graph dies by reference count, as soon as nobody can see it: the garbage collector is off in these tests."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import undertow as ut
from undertow import Variable


@pytest.fixture(autouse=True)
def _without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _watched_chain(x):
    """y = exp(x^2), and weak references to everything that was made for it."""
    a = ut.square(x)
    y = ut.exp(a)
    return y, [weakref.ref(thing) for thing in (a, a.data, a.creator, y, y.data, y.creator)]


def _alive(references):
    return [reference() for reference in references if reference() is not None]


def test_the_graph_dies_with_its_result():
    x = Variable(np.ones(4))
    y, watched = _watched_chain(x)
    assert len(_alive(watched)) == 6
    del y
    assert not _alive(watched)


@pytest.mark.parametrize("retain_grad", [False, True])
def test_the_graph_dies_after_backward(retain_grad):
    x = Variable(np.ones(4))
    y, watched = _watched_chain(x)
    y.backward(retain_grad=retain_grad)
    assert x.grad is not None
    del y
    assert not _alive(watched)


def test_the_graph_of_a_second_derivative_dies():
    x = Variable(np.ones(4))
    y, watched = _watched_chain(x)
    first = ut.grad(y, x, create_graph=True)
    second = ut.grad(first, x)
    watched += [weakref.ref(first), weakref.ref(first.creator)]
    del y, first
    assert not _alive(watched)
    assert second.shape == (4,)


def test_clear_grad_lets_the_recorded_way_back_go():
    x = Variable(np.ones(4))
    y, watched = _watched_chain(x)
    y.backward(create_graph=True)
    del y
    assert _alive(watched), "the differentiable gradient holds the graph"
    x.clear_grad()
    assert not _alive(watched)


def test_the_graph_of_several_outputs_dies():
    x = Variable(np.arange(6.0))
    pieces = ut.split(x, 3)
    watched = [weakref.ref(pieces[0].creator), *map(weakref.ref, pieces)]
    y = ut.concat(pieces)
    y.backward()
    del pieces, y
    assert not _alive(watched)


def test_nothing_is_kept_under_no_grad():
    x = Variable(np.ones(4))
    with ut.no_grad():
        a = ut.square(x)
        reference = weakref.ref(a)
        y = ut.exp(a)
        del a
    assert reference() is None
    assert y.creator is None


def test_an_error_on_the_way_back_frees_the_graph():
    class Broken(ut.Function):
        def forward(self, x):
            return x

        def backward(self, gy):
            raise RuntimeError("no")

    x = Variable(np.ones(4))
    y, watched = _watched_chain(x)
    z = Broken()(y)
    with contextlib.suppress(RuntimeError):
        z.backward()
    del y, z
    assert not _alive(watched)
    assert ut.is_recording()


def test_memory_does_not_grow_from_step_to_step():
    w = ut.Parameter(np.ones((200, 200), np.float32))
    x = np.ones((50, 200), np.float32)

    def step():
        w.clear_grad()
        loss = ut.sum(ut.tanh(x @ w) ** 2)
        loss.backward()

    step()
    tracemalloc.start()
    step()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        step()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # One activation alone has 40,000 bytes: a single one left behind per step would be 20 times this allowance.
    assert after - before < 40_000


def test_gradients_of_passed_values_are_freed_during_the_walk():
    x = Variable(np.ones(100_000))
    y = x
    for _ in range(20):
        y = y * 1.0
    tracemalloc.start()
    y.backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 20 gradients of 800 kB each would be 16 MB.
    assert peak < 5 * x.data.nbytes

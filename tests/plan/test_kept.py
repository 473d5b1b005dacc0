"""Named values between calls: what the layers of a Caffe net need of a plan."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.errors import GraphError, UndertowError
from undertow.functions import conv2d, linear, max_pool2d
from undertow.plans import Planned, plan
from undertow.plans.unit_conv_pool import ConvPoolUnit


class BlobNet:
    """fc1 -> relu in place -> fc2 -> squared error, run from layer to layer on named blobs."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.w1 = ut.Parameter(rng.standard_normal((4, 3)), name="w1")
        self.w2 = ut.Parameter(rng.standard_normal((2, 4)), name="w2")
        self.names = ("data", "fc1", "fc2", "loss")
        self.layers = (
            ("data", "fc1", lambda x: linear(x, self.w1)),
            ("fc1", "fc1", ut.relu),
            ("fc1", "fc2", lambda x: linear(x, self.w2)),
            ("fc2", "loss", lambda x: (x * x).sum()),
        )

    def forward(self, x: ut.Variable, start: int = 0, end: int = 4) -> ut.Variable:
        for _, top, layer in self.layers[start:end]:
            x = layer(x)
            x.name = top
        return x

    def train(self, x: np.ndarray) -> ut.Variable:
        loss = self.forward(ut.Variable(x, name="data"))
        loss.backward()
        return loss


def expected(net: BlobNet, x: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    fc1 = x @ net.w1.data.T
    relu = np.maximum(fc1, 0)
    fc2 = relu @ net.w2.data.T
    g2 = 2 * fc2
    g1 = (g2 @ net.w2.data) * (fc1 > 0)
    return {"fc1": (relu, g1), "fc2": (fc2, g2), "data": (x, g1 @ net.w1.data)}


def check(planned: Planned, net: BlobNet, x: np.ndarray, names: Sequence[str]) -> None:
    for name in names:
        data, grad = expected(net, x)[name]
        np.testing.assert_allclose(planned.kept[name].data, data, rtol=1e-12)
        np.testing.assert_allclose(planned.kept[name].grad, grad, rtol=1e-12)


def test_named_blobs_hold_data_and_diff_after_every_call_in_one_place() -> None:
    net = BlobNet()
    planned = plan(net.train, persistent=["fc1", "fc2"])
    places = set()
    for k in range(5):
        x = np.random.default_rng(k).standard_normal((6, 3))
        planned(x)
        check(planned, net, x, ["fc1", "fc2"])
        places.add((id(planned.kept["fc1"].data), id(planned.kept["fc1"].grad)))
    assert planned.is_replaying
    assert len(places) == 1


def test_the_gradient_of_the_input_blob_is_kept_too() -> None:
    net = BlobNet()
    planned = plan(net.train, persistent=["data"])
    for k in range(5):
        x = np.random.default_rng(k).standard_normal((6, 3))
        planned(x)
        check(planned, net, x, ["data"])
    assert planned.is_replaying


def test_a_range_starts_from_what_was_written_into_a_blob() -> None:
    net = BlobNet()
    with ut.no_grad():
        whole = plan(lambda x: net.forward(ut.Variable(x)), persistent=["fc1", "fc2"])
        for k in range(3):
            whole(np.random.default_rng(k).standard_normal((6, 3)))
        fc1 = whole.kept["fc1"]
        assert fc1.data is not None
        tail = plan(lambda: net.forward(ut.Variable(fc1.data), start=2), persistent=["fc2"])
        for k in range(5):
            fc1.data[...] = k
            loss = tail()
            y = np.full((6, 4), float(k)) @ net.w2.data.T
            np.testing.assert_allclose(float(loss.data), (y * y).sum(), rtol=1e-12)
            np.testing.assert_allclose(tail.kept["fc2"].data, y, rtol=1e-12)
        assert tail.is_replaying


def test_a_range_ends_in_the_middle() -> None:
    net = BlobNet()
    with ut.no_grad():
        head = plan(lambda x: net.forward(ut.Variable(x), end=2), persistent=["fc1"])
        for k in range(4):
            x = np.random.default_rng(k).standard_normal((6, 3))
            head(x)
            np.testing.assert_allclose(head.kept["fc1"].data, np.maximum(x @ net.w1.data.T, 0), rtol=1e-12)
        assert head.is_replaying


def test_blobs_are_kept_where_the_step_cannot_be_planned() -> None:
    net = BlobNet()
    planned = plan(lambda x: float(net.train(x).data), persistent=["fc1"])
    for k in range(4):
        x = np.random.default_rng(k).standard_normal((6, 3))
        planned(x)
        check(planned, net, x, ["fc1"])
    assert not planned.is_replaying


def test_a_blob_of_another_shape_gets_new_arrays() -> None:
    net = BlobNet()
    planned = plan(net.train, persistent=["fc1"])
    for rows in (6, 6, 6, 2, 2, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 3))
        planned(x)
        check(planned, net, x, ["fc1"])


class PooledNet:
    """conv -> pool, with a rectifier in place behind either, -> squared error."""

    def __init__(self, first: bool, second: bool) -> None:
        rng = np.random.default_rng(5)
        self.first, self.second = first, second
        self.w = ut.Parameter(rng.standard_normal((6, 2, 3, 3)).astype(np.float32), name="w")
        self.b = ut.Parameter(rng.standard_normal(6).astype(np.float32), name="b")

    def train(self, x: np.ndarray) -> ut.Variable:
        y = conv2d(ut.Variable(x, requires_grad=False), self.w, self.b, pad=1)
        y.name = "conv"
        if self.first:
            y = ut.relu(y)
            y.name = "conv"
        z = max_pool2d(y, 2)
        z.name = "pool"
        if self.second:
            z = ut.relu(z)
            z.name = "pool"
        loss = (z * z).sum()
        loss.backward()
        return loss


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("names", [[], ["conv"], ["pool"], ["conv", "pool"]], ids=str)
def test_what_lies_before_a_pooling_is_kept_and_changes_no_digit(first: bool, second: bool, names: list[str]) -> None:
    net = PooledNet(first, second)
    planned, without = plan(net.train, persistent=names), plan(net.train)
    for k in range(5):
        x = np.random.default_rng(k).standard_normal((3, 2, 8, 6)).astype(np.float32)
        found = []
        for step in (planned, without):
            net.w.clear_grad()
            net.b.clear_grad()
            step(x)
            found.append((net.w.grad.copy(), net.b.grad.copy()))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        np.testing.assert_array_equal(found[0][1], found[1][1])
        watch = plan(net.train, persistent=names)  # its first run is no replay
        watch(x)
        for name in names:
            np.testing.assert_allclose(planned.kept[name].data, watch.kept[name].data, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(planned.kept[name].grad, watch.kept[name].grad, rtol=1e-5, atol=1e-5)
    for step in (planned, without):
        assert step.last is not None
        fused = [unit for unit in step.last.units if isinstance(unit, ConvPoolUnit)]
        assert len(fused) == 1


@pytest.mark.parametrize("names", ["fc1", 3, ["fc1", 3], b"fc1"], ids=str)
def test_what_is_no_list_of_names_is_refused_at_once(names: Any) -> None:
    with pytest.raises(UndertowError, match=r"persistent.*To mend it: give a list of names"):
        plan(BlobNet().train, persistent=names)


@pytest.mark.parametrize("planned", [True, False], ids=["to be planned", "under a hook"])
def test_a_name_that_no_variable_has_is_refused_at_the_first_call(planned: bool) -> None:
    step = plan(BlobNet().train, persistent=["fc1", "fc3"])
    hook = contextlib.nullcontext() if planned else ut.TimerHook()
    with hook, pytest.raises(GraphError, match=r"named 'fc3'\. To mend it: .*: data, fc1, fc2, loss, w1, w2"):
        step(np.ones((2, 3)))


def test_without_names_nothing_is_kept() -> None:
    planned = plan(BlobNet().train, persistent=[])
    planned(np.ones((2, 3)))
    assert not planned.kept

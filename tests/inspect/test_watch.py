"""Watching a training: norms of parameters, gradients and updates against NumPy's, and what cannot be watched."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from tests.inspect.nets import RESIDUAL
from undertow.darknet import load
from undertow.errors import UndertowError
from undertow.inspect.batches import darknet_batch
from undertow.inspect.watch import norm_of


@pytest.fixture
def cfg(tmp_path: Path) -> Path:
    path = tmp_path / "residual.cfg"
    path.write_text(RESIDUAL)
    return path


def test_watch_records_what_numpy_says_and_changes_nothing(rng: np.random.Generator) -> None:
    x, start = rng.standard_normal((8, 3)), rng.standard_normal((2, 3))

    def train(every: int | None) -> tuple[np.ndarray, object, list[np.ndarray]]:
        w = ut.Parameter(start.copy(), name="w")
        seen = ut.watch([w], every=every) if every else None
        history = []
        for _ in range(7):
            history.append(w.data.copy())
            w.clear_grad()
            if seen is not None:
                seen.__enter__()
            ut.sum(ut.square(ut.linear(x, w))).backward()
            w.data -= 0.01 * w.grad
            if seen is not None:
                seen.__exit__(None, None, None)
        history.append(w.data.copy())
        return w.data, seen, history

    plain, _, history = train(None)
    watched, seen, _ = train(3)
    np.testing.assert_array_equal(plain, watched)
    assert seen.iterations == [0, 3, 6]
    updates = [np.linalg.norm(history[i + 1] - history[i]) / np.linalg.norm(history[i]) for i in (0, 3, 6)]
    np.testing.assert_allclose(seen.table("update")[:, 0], updates)
    np.testing.assert_allclose(seen.table("weight")[:, 0], [np.linalg.norm(history[i]) for i in (0, 3, 6)])
    np.testing.assert_allclose(
        seen.table("gradient")[:, 0] * 0.01, seen.table("update")[:, 0] * seen.table("weight")[:, 0]
    )
    assert not seen.table("bad").any()


def test_watch_takes_networks_and_activations(cfg: Path) -> None:
    net = load(cfg)
    batch = darknet_batch(net, None, None, count=net.batch)
    seen = ut.watch(net, every=1, activations=True)
    with seen:
        net.train_datum(batch.images, batch.truth)
    assert "layer0.weights" in seen.names
    assert (seen.table("gradient") > 0).any()
    assert len(seen.traces) == 1
    assert any(layer.type == "conv2d" for layer in seen.traces[0].layers)
    with pytest.raises(ValueError, match="at least 1"):
        ut.watch(net, every=0)
    for every in (1.5, "a", None):
        with pytest.raises(TypeError, match="every is a whole number of iterations, not "):
            ut.watch(net, every=every)


def test_norms_in_pieces_are_numpys(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 7, 10_000)).astype(np.float32)
    assert norm_of(a) == pytest.approx(np.linalg.norm(a.astype(np.float64)), rel=1e-6)
    assert norm_of(a, b) == pytest.approx(np.linalg.norm(a.astype(np.float64) - b), rel=1e-6)
    a[3, 5] = np.nan
    assert math.isnan(norm_of(a))


def test_what_cannot_be_watched_is_told() -> None:
    with pytest.raises(TypeError, match="a Module, a Network, a Net or Parameters can be watched, not int"):
        ut.watch(3)
    with pytest.raises(TypeError, match=r"Parameters can be watched, not Variable \(number 0\)"):
        ut.watch([ut.Variable(np.ones(3))])
    with pytest.raises(UndertowError, match=r"there is nothing to watch.*To mend it"):
        ut.watch([])
    seen = ut.watch([ut.Parameter(np.ones(3))])
    with pytest.raises(ValueError, match="there is no field 'norm': it is one of weight, gradient, update, bad"):
        seen.table("norm")


def test_parameters_of_one_name_are_all_watched() -> None:
    seen = ut.watch([ut.Parameter(np.full(1, value), name="w") for value in (1.0, 2.0, 3.0)], every=1)
    with seen:
        pass
    assert seen.names == ("w", "w (2)", "w (3)")
    assert seen.table("weight").tolist() == [[1, 2, 3]]


def test_watch_counts_what_is_not_finite() -> None:
    w = ut.Parameter(np.ones(3), name="w")
    seen = ut.watch([w], every=1)
    with seen:
        w.grad = np.array([1.0, np.inf, np.nan])
        w.data[0] = np.nan
    assert seen.table("bad")[0, 0] == 3


def test_a_failed_iteration_leaves_no_record(cfg: Path) -> None:
    seen = ut.watch(load(cfg), every=1)
    with pytest.raises(RuntimeError), seen:
        raise RuntimeError
    assert seen.iterations == []


def test_a_watch_is_entered_once_at_a_time() -> None:
    seen = ut.watch([ut.Parameter(np.ones(3), name="w")], every=1)
    with pytest.raises(UndertowError, match="entered already"), seen, seen:
        pass
    with seen:
        pass
    assert seen.iterations == [1]  # the block that broke off is one too

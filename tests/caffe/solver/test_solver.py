"""Steps, updates, tests, requests and refusals of Solver."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.solver.nets import make, parameters, write_solver
from tests.replay.caffe_solver import lines_said
from undertow.caffe.proto import parse_text, read_solver
from undertow.caffe.solver import SNAPSHOT, STOP, Callback, Solver
from undertow.caffe.solver_report import SmoothedLoss
from undertow.errors import FormatError, NonFiniteError, UndertowWarning


def test_a_step_moves_the_parameters_against_their_gradient(tmp_path: Path) -> None:
    solver = make(tmp_path, "momentum: 0.9")
    before, gradients = parameters(solver), []
    solver.callbacks.append(
        Callback(lambda: None, lambda: gradients.extend(b.diff.copy() for b in solver.net.learnable_params))
    )
    solver.step(1)
    assert solver.iter == 1
    rates = (0.1, 0.2, 0.1, 0.1)
    for old, g, blob, rate in zip(before, gradients, solver.net.learnable_params, rates, strict=True):
        np.testing.assert_allclose(blob.diff, rate * g, rtol=1e-6)
        np.testing.assert_allclose(blob.data, old - rate * g, rtol=1e-5, atol=1e-7)
    solver.close()


def test_edits_of_data_and_diff_take_effect(tmp_path: Path) -> None:
    solver = make(tmp_path)
    solver.step(1)
    weights = solver.net.params["ip2"][0]
    weights.data[...] = 0
    solver.net.params["ip2"][1].data[...] = 0
    solver.step(1)
    assert solver.net.blobs["loss"].data == pytest.approx(math.log(3), rel=1e-6)
    solver.net.clear_param_diffs()
    before = weights.data.copy()
    weights.diff[...] = 2
    solver.apply_update()
    np.testing.assert_allclose(weights.data, before - 0.2, rtol=1e-6)
    solver.close()


def test_passes_of_an_iteration_are_averaged(tmp_path: Path) -> None:
    """iter_size 5 of batches of 4 sees all ten rows twice: the gradient of the whole set."""
    solver = make(tmp_path, "iter_size: 5")
    before = parameters(solver)
    solver.step(1)
    steps = [old - new for old, new in zip(before, parameters(solver), strict=True)]
    solver.close()
    (tmp_path / "other").mkdir()
    whole = make(tmp_path / "other")
    for blob, old in zip(whole.net.learnable_params, before, strict=True):
        blob.data[...] = old
    whole.net.clear_param_diffs()
    for _ in range(5):
        whole.net.forward()
        whole.net.backward()
    for step, blob, rate in zip(steps, whole.net.learnable_params, (0.1, 0.2, 0.1, 0.1), strict=True):
        np.testing.assert_allclose(step, rate * blob.diff / 5, rtol=1e-4, atol=1e-7)
    whole.close()


def test_clipping_bounds_the_norm_and_says_so(tmp_path: Path) -> None:
    solver = make(tmp_path, "clip_gradients: 0.01")
    with lines_said() as lines:
        solver.step(1)
    updates = [b.diff / r for b, r in zip(solver.net.learnable_params, (0.1, 0.2, 0.1, 0.1), strict=True)]
    assert math.sqrt(sum(float((u.astype(float) ** 2).sum()) for u in updates)) == pytest.approx(0.01, rel=1e-5)
    assert any(line.startswith("Gradient clipping: scaling down gradients (L2 norm") for line in lines)
    solver.close()


@pytest.mark.parametrize(("kind", "expected"), [("L2", lambda w: 0.5 * w), ("L1", lambda w: 0.5 * np.sign(w))])
def test_weight_decay(tmp_path: Path, kind: str, expected: object) -> None:
    solver = make(tmp_path, f'weight_decay: 0.5 regularization_type: "{kind}"')
    solver.net.clear_param_diffs()
    before = parameters(solver)
    solver.apply_update()
    assert callable(expected)
    np.testing.assert_allclose(solver.net.learnable_params[0].diff, 0.1 * expected(before[0]), rtol=1e-6)
    assert not solver.net.learnable_params[1].diff.any()  # decay_mult: 0
    solver.close()


def test_policies_at_iteration_4(tmp_path: Path) -> None:
    """Case 92: the seven policies at one point; multistep has passed one of its steps."""
    expected = {
        "fixed": 1, "step": 0.5, "exp": 0.0625, "inv": 1 / 9, "poly": 0.36, "multistep": 0.5,
        "sigmoid": 1 / (1 + math.exp(-0.5)),
    }  # fmt: skip
    path = write_solver(tmp_path)
    for policy, rate in expected.items():
        param = read_solver(path)
        param.merge_from(parse_text(
            f'base_lr: 1 lr_policy: "{policy}" gamma: 0.5 power: 2 stepsize: 3 stepvalue: 3 max_iter: 10',
            "SolverParameter",
        ))  # fmt: skip
        if policy == "inv":
            param.power = 2
        solver = Solver(param)
        solver.iter = 4
        assert solver.lr == pytest.approx(rate), policy


def test_multistep_passes_one_step_per_iteration_and_says_so(tmp_path: Path) -> None:
    param = read_solver(write_solver(tmp_path, "gamma: 0.5 stepvalue: 1 stepvalue: 1"))
    param.lr_policy = "multistep"
    solver, rates = Solver(param), []
    solver.callbacks.append(Callback(lambda: None, lambda: rates.append(solver.lr)))
    with lines_said() as lines:
        solver.step(4)
    np.testing.assert_allclose(rates, [0.1, 0.05, 0.025, 0.025])
    assert [line for line in lines if line.startswith("MultiStep")] == [
        "MultiStep Status: Iteration 1, step = 1", "MultiStep Status: Iteration 2, step = 2",
    ]  # fmt: skip
    solver.close()


def test_test_nets_share_the_parameters_and_average(tmp_path: Path) -> None:
    solver = make(tmp_path, "test_iter: 2 test_interval: 3 test_initialization: false test_compute_loss: true")
    with lines_said() as lines:
        solver.step(3)
        assert not any("Testing" in line for line in lines)
        solver.step(1)
    assert [line for line in lines if "Testing" in line] == ["Iteration 3, Testing net (#0)"]
    assert any(line.startswith("Test loss: ") for line in lines)
    scores = {name: value for name, _, value in solver.test(0)}
    net = solver.test_nets[0]
    assert net.params["ip1"][0].data is not None
    np.testing.assert_array_equal(net.params["ip1"][0].data, solver.net.params["ip1"][0].data)
    # Two batches of five are all ten rows.
    found = []
    for _ in range(2):
        net.forward()
        found.append((net.blobs["y"].data.argmax(1) == net.blobs["label"].data).mean())
    assert scores["acc"] == pytest.approx(np.mean(found))
    solver.close()


def test_requests(tmp_path: Path) -> None:
    solver = make(tmp_path, "max_iter: 50 snapshot_after_train: true")
    asked = iter(["none", SNAPSHOT, "none", STOP])
    solver.request = lambda: next(asked)
    with lines_said() as lines:
        solver.solve()
    assert solver.iter == 4
    assert lines[-1] == "Optimization stopped early."
    assert sorted(p.name for p in tmp_path.glob("*.solverstate")) == [
        "snap_iter_2.solverstate",
        "snap_iter_4.solverstate",
    ]
    solver.close()


def test_a_stop_during_a_test_ends_it(tmp_path: Path) -> None:
    solver = make(tmp_path, "max_iter: 50 test_iter: 5 test_interval: 10 snapshot_after_train: false")
    solver.request = lambda: "none" if solver.stopped else STOP
    with lines_said() as lines:
        solver.solve()
    assert solver.iter == 0
    assert "Test interrupted." in lines
    solver.close()


def test_smoothed_loss_is_the_mean_of_the_last() -> None:
    smoothed, losses = SmoothedLoss(3), [4.0, 2.0, 9.0, 1.0, 5.0, 0.5, 8.0]
    for index, loss in enumerate(losses):
        smoothed.add(loss, index)
        assert smoothed.value == pytest.approx(np.mean(losses[max(0, index - 2) : index + 1]))


def test_a_loss_that_is_no_number_is_told_once(tmp_path: Path) -> None:
    solver = make(tmp_path)
    solver.net.params["ip1"][0].data[...] = np.nan
    with pytest.warns(UndertowWarning, match="the loss is nan at iteration 0") as record:
        solver.step(3)
    assert len(record) == 1
    solver.close()


def test_a_rate_that_is_no_number_is_refused(tmp_path: Path) -> None:
    solver = make(tmp_path)
    solver.param.lr_policy, solver.param.power, solver.param.max_iter = "poly", 0.5, 1
    solver.step(2)
    with pytest.raises(NonFiniteError, match="learning rate at iteration 2"):
        solver.step(1)
    solver.close()


def test_a_last_snapshot_that_cannot_be_written_is_told_before_training(tmp_path: Path) -> None:
    solver = make(tmp_path, "max_iter: 3")
    for prefix, message in (("/no/such/folder/x", "cannot be written"), ("", "without a snapshot_prefix")):
        solver.param.snapshot_prefix = prefix
        with pytest.raises(FormatError, match=message):
            solver.solve()
    assert solver.iter == 0
    solver.param.snapshot_after_train = False
    solver.solve()
    assert solver.iter == 3
    solver.close()


@pytest.mark.reference
def test_an_old_solver_file(reference_data: Path) -> None:
    """Case 91: deprecated type, GPU mode, and a net that lies beside the file."""
    folder = reference_data / "cases" / "91-solver-legacy-type"
    solver, rates = Solver(folder / "solver.prototxt"), []
    assert solver.param.type == "Nesterov"
    for solver.iter in range(6):
        rates.append(solver.lr)
    np.testing.assert_allclose(rates, [0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])


def test_nothing_left_to_train_is_told(tmp_path: Path) -> None:
    solver = make(tmp_path, "max_iter: 2 snapshot_after_train: false")
    solver.solve()
    with pytest.warns(UndertowWarning, match="iteration 2 has been reached, max_iter is 2"):
        solver.solve()
    assert solver.iter == 2
    with pytest.raises(TypeError):
        solver.step(1.5)  # type: ignore[arg-type]

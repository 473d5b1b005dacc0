"""pycaffe's solvers as scripts use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.pycaffe.nets import write

SOLVER = """net: "{folder}/net.prototxt" test_iter: 2 test_interval: 10 base_lr: 0.01 lr_policy: "inv" gamma: 0.0001
power: 0.75 display: 100 max_iter: 20 snapshot_after_train: false snapshot_prefix: "{folder}/model" random_seed: 1
"""


def solver_file(tmp_path: Path, text: str = "momentum: 0.9") -> str:
    write(tmp_path)
    return write(tmp_path, SOLVER.format(folder=tmp_path) + text, "solver.prototxt")


def test_solve_and_step(tmp_path: Path) -> None:
    solver = caffe.get_solver(solver_file(tmp_path))
    assert isinstance(solver, caffe.SGDSolver)
    assert solver.iter == 0
    before = solver.net.params["ip"][0].data.copy()
    solver.step(3)
    assert solver.iter == 3
    assert (solver.net.params["ip"][0].data != before).any()
    assert np.isfinite(solver.net.blobs["loss"].data)
    solver.solve()
    assert solver.iter == 20
    assert len(solver.test_nets) == 1
    solver.test_nets[0].forward()
    np.testing.assert_array_equal(solver.test_nets[0].params["ip"][0].data, solver.net.params["ip"][0].data)


@pytest.mark.parametrize(
    ("name", "text", "cls"),
    [
        ("SGD", "", caffe.SGDSolver),
        ("Nesterov", "momentum: 0.9", caffe.NesterovSolver),
        ("AdaGrad", "", caffe.AdaGradSolver),
        ("RMSProp", "rms_decay: 0.9", caffe.RMSPropSolver),
        ("AdaDelta", "momentum: 0.9 delta: 1e-6", caffe.AdaDeltaSolver),
        ("Adam", "momentum: 0.9", caffe.AdamSolver),
    ],
)
def test_every_class(tmp_path: Path, name: str, text: str, cls: type) -> None:
    path = solver_file(tmp_path, text)
    direct = cls(path)
    found = caffe.get_solver(solver_file(tmp_path, f'{text} type: "{name}"'))
    assert type(found) is cls
    assert isinstance(found, caffe.SGDSolver)
    for solver in (direct, found):
        solver.step(2)
    np.testing.assert_array_equal(direct.net.params["ip"][0].data, found.net.params["ip"][0].data)


def test_apply_update(tmp_path: Path) -> None:
    solver = caffe.SGDSolver(solver_file(tmp_path, "momentum: 0.9"))
    blob = solver.net.layers[1].blobs[0]
    data = blob.data[...]
    data[...] = 0
    blob.diff[...] = 1
    solver.apply_update()
    np.testing.assert_allclose(data, -0.01, rtol=1e-6)
    assert solver.iter == 1


def test_snapshot_and_restore(tmp_path: Path) -> None:
    path = solver_file(tmp_path)
    solver = caffe.get_solver(path)
    solver.step(2)
    solver.snapshot()
    state = tmp_path / "model_iter_2.solverstate"
    assert state.is_file()
    assert (tmp_path / "model_iter_2.caffemodel").is_file()
    solver.step(2)
    other = caffe.get_solver(path)
    other.restore(str(state))
    assert other.iter == 2
    other.step(2)
    np.testing.assert_array_equal(other.net.params["conv"][0].data, solver.net.params["conv"][0].data)
    third = caffe.get_solver(path)
    third.solve(str(state))
    assert third.iter == 20


def test_callbacks_rate_and_param(tmp_path: Path) -> None:
    solver = caffe.get_solver(solver_file(tmp_path))
    order: list[str] = []
    solver.add_callback(lambda: order.append("start"), lambda: order.append("ready"))
    link = caffe.NCCL(solver, caffe.NCCL.new_uid())
    link.bcast()
    solver.add_callback(link)
    solver.step(2)
    assert order == ["start", "ready"] * 2
    assert solver.param.max_iter == 20
    assert solver.param.display == 100
    assert solver.lr == pytest.approx(0.01 * (1 + 0.0001 * 2) ** -0.75)
    solver.param.base_lr = 0.5
    assert solver.lr == pytest.approx(0.5 * (1 + 0.0001 * 2) ** -0.75)


def test_share_weights(tmp_path: Path) -> None:
    solver = caffe.get_solver(solver_file(tmp_path))
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    solver.share_weights(net)
    solver.step(1)
    np.testing.assert_array_equal(net.params["ip"][0].data, solver.net.params["ip"][0].data)


def test_nets_outlive_their_solver(tmp_path: Path) -> None:
    solver = caffe.get_solver(solver_file(tmp_path))
    solver.step(1)
    net = solver.net
    del solver
    assert np.isfinite(sum(float(blob.data.sum()) for blob in net.blobs.values()))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Could not open file"):
        caffe.get_solver(str(tmp_path / "none.prototxt"))
    with pytest.raises(RuntimeError, match="Could not open file"):
        caffe.SGDSolver(str(tmp_path / "none.prototxt"))


def test_losses_are_numbers_for_python_as_in_the_original(tmp_path: Path) -> None:
    """Scripts say float(net.blobs["loss"].data), put it into an array, format it: it has no axes."""
    solver = caffe.get_solver(solver_file(tmp_path))
    solver.step(1)
    (found,) = solver.test_nets[0].forward().values()
    kept = np.zeros(2)
    kept[0] = solver.net.blobs["loss"].data
    assert solver.net.blobs["loss"].data.shape == found.shape == ()
    assert float(solver.net.blobs["loss"].data) == kept[0] > 0
    assert "%.3f" % solver.net.blobs["loss"].data == f"{kept[0]:.3f}"  # noqa: UP031 scripts say it so


LOSSES = """
layer { name: "in" type: "Input" top: "x" top: "t" top: "label" input_param {
  shape { dim: 2 dim: 3 } shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "softmax" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" top: "softmax" }
layer { name: "hinge" type: "HingeLoss" bottom: "x" bottom: "label" top: "hinge" }
layer { name: "logistic" type: "MultinomialLogisticLoss" bottom: "x" bottom: "label" top: "logistic" }
layer { name: "contrastive" type: "ContrastiveLoss" bottom: "x" bottom: "t" bottom: "label" top: "contrastive" }
layer { name: "euclidean" type: "EuclideanLoss" bottom: "x" bottom: "t" top: "euclidean" }
layer { name: "sigmoid" type: "SigmoidCrossEntropyLoss" bottom: "x" bottom: "t" top: "sigmoid" }
layer { name: "smooth" type: "SmoothL1Loss" bottom: "x" bottom: "t" top: "smooth" }
layer { name: "sum" type: "Reduction" bottom: "x" top: "sum" }
layer { name: "accuracy" type: "Accuracy" bottom: "x" bottom: "label" top: "accuracy" }
"""


def test_every_loss_has_no_axes(tmp_path: Path) -> None:
    outputs = caffe.Net(write(tmp_path, LOSSES), caffe.TRAIN).forward()
    assert {name: values.shape for name, values in outputs.items() if values.shape} == {}
    assert len(outputs) == 9

"""Trainings that are recorded learn the same, bit for bit, and what is recorded is what `trace` and NumPy say."""

from __future__ import annotations

import json
import math
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import undertow as ut
from tests.caffe.solver.nets import make, parameters, write_solver
from tests.darknet.training.scenes import Scene, make_scene
from undertow.caffe.solver import Solver
from undertow.cli import main
from undertow.darknet.learning.trainer import TrainOptions
from undertow.darknet.runs import training
from undertow.errors import UndertowError, UndertowWarning
from undertow.inspect.batches import Batch
from undertow.inspect.trace_nets import trace_caffe, trace_network
from undertow.scope.runs.caffe import SolverRecorder
from undertow.scope.runs.darknet import RunRecorder
from undertow.scope.runs.own import OwnRun
from undertow.scope.runs.probe import SAMPLES
from undertow.scope.runs.reader import read_history
from undertow.scope.runs.records import FIELDS, FILE


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in read_history(folder / FILE).lines]
    return [record for record in found if record["k"] == kind]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path / "scene", max_batches=7)


def train(scene: Scene, *flags: str) -> bytes:
    words = ["darknet", "detector", "train", str(scene.data), str(scene.cfg), "-threads", "1", "-plain", *flags]
    assert main(words) == 0
    return (scene.folder / "backup" / "tiny_final.weights").read_bytes()


def state(scene: Scene) -> dict[str, np.ndarray]:
    with np.load(f"{scene.backup}.npz") as archive:
        return {name: archive[name] for name in archive.files}


def test_a_detector_learns_the_same(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    plain, momentum = train(scene), state(scene)
    assert train(scene, "-scope", "-scope_every", "2", "-scope_port", "0") == plain
    found = state(scene)
    assert found.keys() == momentum.keys()
    for name in momentum:
        assert found[name].tobytes() == momentum[name].tobytes(), name
    assert "training to look at: http://127.0.0.1:" in capsys.readouterr().err
    run = scene.folder / "backup" / "tiny_run"
    assert [r["i"] for r in records(run, "layers")] == [1, 2, 4, 6]
    log = (scene.folder / "backup" / "tiny_log.csv").read_text().splitlines()[1:]
    losses = [(int(line.split(",")[0]), float(line.split(",")[1])) for line in log]
    assert [(r["i"], r["loss"]) for r in records(run, "iteration")] == [
        (i, pytest.approx(loss, rel=1e-5)) for i, loss in losses
    ]
    assert records(run, "end")[0]["stopped"] is False


def test_with_several_sizes_and_validation(scene: Scene) -> None:
    scene.write_cfg(random=1, max_batches=3)
    plain = train(scene, "-map_every", "2")
    assert train(scene, "-map_every", "2", "-scope", "-scope_every", "1", "-scope_port", "0") == plain
    found = records(scene.folder / "backup" / "tiny_run", "measure")
    assert [r["i"] for r in found] == [2, 3]
    assert found[0]["values"].keys() >= {"mAP", "precision", "recall", "ap red", "ap blue"}


class Keeping(RunRecorder):
    """Keeps what a look started from, to repeat it in another way."""

    def iterated(self, iteration: Any) -> None:
        net = self._net
        assert net is not None
        assert net.input is not None
        assert net.truth is not None
        looked = bool(self._before)
        before = {index: {n: a.copy() for n, a in arrays.items()} for index, arrays in self._before.items()}
        buffers = [{n: a.copy() for n, a in layer.buffers.items()} for layer in net.layers]
        super().iterated(iteration)
        if not looked:
            return
        for layer, kept in zip(net.layers, buffers, strict=True):
            for name, array in kept.items():
                assert np.array_equal(layer.buffers[name], array)
        self.again = trace_network(net, Batch(net.input[:SAMPLES], net.truth[:SAMPLES], ""))
        for layer, kept in zip(net.layers, buffers, strict=True):
            for name, array in kept.items():
                layer.buffers[name][...] = array
        self.moved = [
            max(
                (
                    np.linalg.norm((net.layers[i].parameters[n].data - a).astype(float))
                    / np.linalg.norm(a.astype(float))
                    for n, a in before[i].items()
                    if a.any()
                ),
                default=math.nan,
            )
            if i in before
            else math.nan
            for i in range(net.n)
        ]


def test_the_numbers_are_those_of_trace(scene: Scene) -> None:
    recorder = Keeping(every=4)
    training(scene.data, scene.cfg, None, TrainOptions(workers=1), watcher=recorder).run()
    (look,) = [r for r in records(scene.folder / "backup" / "tiny_run", "layers") if r["i"] == 4]
    values = look["values"]
    assert tuple(values) == FIELDS
    layers = recorder.again.layers
    expected = {
        "output": [layer.output.norm for layer in layers],
        "mean": [layer.output.mean for layer in layers],
        "zeros": [layer.output.zeros for layer in layers],
        "dead": [layer.output.dead for layer in layers],
        "gradient": [layer.gradient.norm for layer in layers],
        "weights": [math.hypot(*(p.norm for p in layer.parameters.values())) or math.nan for layer in layers],
        "weight_gradient": [
            math.hypot(*(p.gradient for p in layer.parameters.values())) if layer.parameters else math.nan
            for layer in layers
        ],
        "update": recorder.moved,
        "bad": [0, 0, 0, 0],
    }
    for name, numbers in expected.items():
        got = [math.nan if value is None else value for value in values[name]]
        np.testing.assert_allclose(got, numbers, rtol=2e-5, atol=1e-12, err_msg=name)


def test_a_resumed_run_goes_on_in_its_folder(scene: Scene) -> None:
    flags = ["-scope", "-scope_every", "2", "-scope_port", "0"]
    train(scene, *flags)
    run = scene.folder / "backup" / "tiny_run"
    whole = [records(run, kind) for kind in ("iteration", "layers")]
    # Stopped after iteration 4: the checkpoint is from there, the run's file knows more.
    scene.write_cfg(max_batches=4)
    train(scene)
    scene.write_cfg(max_batches=7)
    words = ["darknet", "detector", "train", str(scene.data), str(scene.cfg), str(scene.backup)]
    assert main([*words, "-threads", "1", "-plain", *flags]) == 0
    assert not (run.parent / "tiny_run_1").exists()
    timed = ("seconds", "waited", "speed")
    for kind, before in zip(("iteration", "layers"), whole, strict=True):
        after = records(run, kind)
        assert [r["i"] for r in after] == [r["i"] for r in before]
        for one, other in zip(after, before, strict=True):
            assert {k: v for k, v in one.items() if k not in timed} == {
                k: v for k, v in other.items() if k not in timed
            }


def test_a_training_that_breaks_off_says_why(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.write_cfg(rate=1e30, max_batches=50)
    words = ["darknet", "detector", "train", str(scene.data), str(scene.cfg), "-threads", "1", "-plain"]
    assert main([*words, "-scope", "-scope_every", "1", "-scope_port", "0"]) == 2
    assert "not finite" in capsys.readouterr().err
    run = scene.folder / "backup" / "tiny_run"
    note = records(run, "note")[-1]
    assert note["text"].startswith("the training broke off: layer ")
    last = records(run, "iteration")[-1]["i"]
    assert note["i"] == last
    (end,) = records(run, "end")
    assert (end["i"], end["stopped"]) == (last + 1, True)
    assert re.fullmatch(r"layer \d: \w+ \(\w+\) holds \d+ of \d+ values that are not finite, .*", end["reason"])
    # The layers were looked at as the failure left them.
    look = records(run, "layers")[-1]
    assert look["i"] == last + 1
    assert any(count for count in look["values"]["bad"])
    assert any(kind == "non-finite" for kind, _, _ in look["marks"])


def test_own_code_that_breaks_off_says_why(tmp_path: Path) -> None:
    def train() -> None:
        with OwnRun(tmp_path / "run", [ut.Parameter(np.ones(2), name="w")]) as run:
            with run.iteration() as told:
                told(loss=1.0)
            raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError):
        train()
    (end,) = records(tmp_path / "run", "end")
    assert end == {"k": "end", "i": 2, "stopped": True, "reason": "by zero"}


@pytest.mark.parametrize("precision", ["fast", "reference"])
def test_a_solver_whose_loss_is_lost_is_looked_at(tmp_path: Path, precision: str) -> None:
    """Caffe goes on; the layers are seen in the iteration in which it happens, or in the next (layer by layer)."""
    solver = make(tmp_path, "max_iter: 9 snapshot_after_train: false")
    recorder = SolverRecorder(solver, tmp_path / "run", 100)
    with ut.precision(precision):
        solver.step(3)
        solver.net.params["ip1"][0].data[0, 0] = np.nan
        with pytest.warns(UndertowWarning, match="loss is nan"):
            solver.step(4)
    recorder.ended()
    found = records(tmp_path / "run", "layers")
    assert [record["i"] for record in found] == [1, 4 if precision == "fast" else 5]
    names = [name for name, _ in records(tmp_path / "run", "run")[0]["layers"]]
    assert found[1]["values"]["bad"][names.index("ip1")] > 0
    assert found[1]["values"]["bad"][names.index("d")] == 0
    text = "1 values of weights are not finite" if precision == "fast" else " values of weights are not finite"
    assert any(kind == "non-finite" and told.endswith(text) for kind, _, told in found[1]["marks"])


def test_flags_without_scope_are_told(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["darknet", "detector", "train", str(scene.data), str(scene.cfg), "-scope_every", "2"]) == 2
    assert "-scope_every is for -scope" in capsys.readouterr().err


SOLVER = "max_iter: 6 momentum: 0.9 test_iter: 2 test_interval: 3 iter_size: 2 snapshot_after_train: false"


def test_a_solver_learns_the_same(tmp_path: Path) -> None:
    text = SOLVER + " clip_gradients: 0.5 weight_decay: 0.01"
    plain = make(tmp_path, text, dropout=0.3)
    plain.solve()
    watched = make(tmp_path, text, dropout=0.3)
    recorder = SolverRecorder(watched, tmp_path / "run", 2)
    watched.solve()
    recorder.ended()
    for one, other in zip(parameters(plain), parameters(watched), strict=True):
        assert one.tobytes() == other.tobytes()
    assert [r["i"] for r in records(tmp_path / "run", "iteration")] == [1, 2, 3, 4, 5, 6]
    assert [r["i"] for r in records(tmp_path / "run", "layers")] == [1, 2, 4, 6]
    measures = records(tmp_path / "run", "measure")
    assert [(r["i"], sorted(r["values"])) for r in measures] == [(i, ["test acc", "test loss"]) for i in (0, 3, 6)]


def test_the_numbers_of_a_solver(tmp_path: Path) -> None:
    solver = make(tmp_path, "max_iter: 2 snapshot_after_train: false weight_decay: 0.01")
    SolverRecorder(solver, tmp_path / "run", 2)
    solver.step(1)
    before = {name: [blob.data.copy() for blob in blobs] for name, blobs in solver.net.params.items()}
    seen: dict[str, list[np.ndarray]] = {}
    solver.callbacks.append(
        type(solver.callbacks[0])(
            lambda: None,
            lambda: seen.update({n: [blob.diff.copy() for blob in blobs] for n, blobs in solver.net.params.items()}),
        )
    )
    solver.step(1)
    (record,) = [r for r in records(tmp_path / "run", "layers") if r["i"] == 2]
    names = [name for name, _ in records(tmp_path / "run", "run")[0]["layers"]]
    for name in ("ip1", "ip2"):
        at = names.index(name)
        diffs = np.concatenate([diff.reshape(-1) for diff in seen[name]]).astype(float)
        assert record["values"]["weight_gradient"][at] == pytest.approx(np.linalg.norm(diffs), rel=1e-5)
        ratios = [
            np.linalg.norm((blob.data - old).astype(float)) / np.linalg.norm(old.astype(float))
            for blob, old in zip(solver.net.params[name], before[name], strict=True)
            if old.any()
        ]
        assert record["values"]["update"][at] == pytest.approx(max(ratios), rel=1e-4)
    scores = solver.net.blobs["y"].data.astype(float)
    assert record["values"]["output"][names.index("ip2")] == pytest.approx(np.linalg.norm(scores), rel=1e-5)
    # dL/dy of the softmax loss: (p - 1 at the label) / batch.
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    p[np.arange(len(p)), solver.net.blobs["label"].data.astype(int)] -= 1
    assert record["values"]["gradient"][names.index("ip2")] == pytest.approx(np.linalg.norm(p / len(p)), rel=1e-5)
    assert record["values"]["weights"][names.index("relu")] is None


LENET = """
name: "in place"
layer {{ name: "d" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param {{ source: "{folder}/list.txt" batch_size: 4 }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "c"
  convolution_param {{ num_output: 5 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "c" top: "c" }}
layer {{ name: "pool1" type: "Pooling" bottom: "c" top: "p" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "p" top: "h"
  inner_product_param {{ num_output: 6 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "scale1" type: "Scale" bottom: "h" top: "h" scale_param {{ bias_term: true }} }}
layer {{ name: "relu2" type: "ReLU" bottom: "h" top: "h" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "h" top: "y"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }}
"""


@pytest.mark.parametrize("text", ["", "display: 1 debug_info: true"])
def test_layers_in_place_are_seen_as_each_is_when_it_is_done(tmp_path: Path, text: str) -> None:
    """conv1 before its ReLU, as `undertow trace` tells it, although a plan (and the blob) has only what comes after."""
    rng = np.random.default_rng(5)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["data"] = rng.standard_normal((4, 1, 10, 10)).astype(np.float32)
        file["label"] = rng.integers(0, 3, 4).astype(np.float32)
    (tmp_path / "list.txt").write_text("rows.h5\n")
    net = tmp_path / "net.prototxt"
    net.write_text(LENET.format(folder=tmp_path))
    fields = 'base_lr: 0.1 lr_policy: "fixed" random_seed: 4 max_iter: 3 snapshot_after_train: false '
    (tmp_path / "solver.prototxt").write_text(f'net: "{net}" {fields}{text}')
    solver = Solver(tmp_path / "solver.prototxt")
    recorder = SolverRecorder(solver, tmp_path / "run", 1)
    for number in (1, 2, 3):
        solver.net.save(tmp_path / f"{number}.caffemodel")
        solver.step(1)
    recorder.ended()
    for record in records(tmp_path / "run", "layers"):
        found = trace_caffe(net, tmp_path / f"{record['i']}.caffemodel", phase="TRAIN")
        for name, part, field in (
            ("output", "output", "norm"), ("mean", "output", "mean"), ("zeros", "output", "zeros"),
            ("gradient", "gradient", "norm"),
        ):  # fmt: skip
            got = [math.nan if value is None else value for value in record["values"][name]]
            expected = [getattr(getattr(layer, part), field) for layer in found.layers]
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-9, err_msg=name)
    names = [layer.name for layer in found.layers]
    zeros = dict(zip(names, record["values"]["zeros"], strict=True))
    assert zeros["conv1"] == 0 < zeros["relu1"]


def test_caffe_train_with_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_solver(tmp_path, "max_iter: 8 snapshot: 4 momentum: 0.9")
    words = ["caffe", "train", f"--solver={path}", "--threads=1"]
    assert main(words) == 0
    plain = (tmp_path / "snap_iter_8.caffemodel").read_bytes()
    flags = ["--scope", "--scope_every=2", "--scope_port=0"]
    assert main([*words, *flags]) == 0
    assert (tmp_path / "snap_iter_8.caffemodel").read_bytes() == plain
    assert "training to look at: http://127.0.0.1:" in capsys.readouterr().err
    run = tmp_path / "snap_run"
    assert records(run, "end") == [{"k": "end", "i": 8, "stopped": False}]
    whole = [{**r, "seconds": 0, "speed": 0} for r in records(run, "iteration")]
    assert main([*words, *flags, f"--snapshot={tmp_path}/snap_iter_4.solverstate"]) == 0
    again = [{**r, "seconds": 0, "speed": 0} for r in records(run, "iteration")]
    for one, other in zip(again, whole, strict=True):
        assert {k: v for k, v in one.items() if k != "average"} == {k: v for k, v in other.items() if k != "average"}


def own_training(folder: Path | None, steps: int = 5, first: int = 0) -> tuple[np.ndarray, list[float]]:
    """Least squares by hand; recorded where a folder is given."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 3)), rng.standard_normal((8, 1))
    w = ut.Parameter(np.ones((1, 3)), name="w")
    losses = []
    with OwnRun(folder, [w], every=2, last=steps, first=first) if folder else nullcontext() as run:
        for _ in range(first, steps):
            with run.iteration() if run else nullcontext(lambda **numbers: None) as told:
                w.clear_grad()
                loss = ut.mean(ut.square(ut.linear(x, w) - y))
                loss.backward()
                w.data -= 0.1 * w.grad
                told(loss=float(loss.data), rate=0.1)
            losses.append(float(loss.data))
        if run:
            run.measure(accuracy=0.5)
    return w.data, losses


def test_a_training_of_ones_own(tmp_path: Path) -> None:
    plain, losses = own_training(None)
    recorded, _ = own_training(tmp_path / "run")
    assert recorded.tobytes() == plain.tobytes()
    found = records(tmp_path / "run", "iteration")
    assert [r["i"] for r in found] == [1, 2, 3, 4, 5]
    assert [r["loss"] for r in found] == pytest.approx(losses, rel=1e-5)
    looks = records(tmp_path / "run", "layers")
    assert [r["i"] for r in looks] == [1, 3, 5]
    assert looks[0]["values"]["weights"] == [pytest.approx(math.sqrt(3), rel=1e-5)]
    ratio = 0.1 * looks[0]["values"]["weight_gradient"][0] / looks[0]["values"]["weights"][0]
    assert looks[0]["values"]["update"][0] == pytest.approx(ratio, rel=1e-4)
    assert records(tmp_path / "run", "measure")[0] == {"k": "measure", "i": 5, "values": {"accuracy": 0.5}}
    assert records(tmp_path / "run", "end")[0]["stopped"] is False
    own_training(tmp_path / "run", steps=4, first=3)
    assert [r["i"] for r in records(tmp_path / "run", "iteration")] == [1, 2, 3, 4]


def test_a_training_of_ones_own_that_fails(tmp_path: Path) -> None:
    w = ut.Parameter(np.ones(2), name="w")
    with pytest.raises(ZeroDivisionError), OwnRun(tmp_path / "run", [w]) as run, run.iteration():
        raise ZeroDivisionError
    assert records(tmp_path / "run", "end") == [{"k": "end", "i": 1, "stopped": True, "reason": "ZeroDivisionError"}]
    with pytest.raises(UndertowError, match="no iteration was recorded"):
        ut.watch([w]).last("weight")


def test_gradients_that_are_not_finite_are_told_and_marked(tmp_path: Path) -> None:
    w, unused = ut.Parameter(np.ones((2, 3)), name="w"), ut.Parameter(np.ones(2), name="unused")
    with np.errstate(all="ignore"), OwnRun(tmp_path / "run", [w, unused], every=1) as run, run.iteration():
        ut.sum(ut.sqrt(ut.linear(ut.Variable(np.zeros((2, 3))), w))).backward()
    assert np.isnan(w.grad).all()
    look = records(tmp_path / "run", "layers")[0]
    assert look["values"]["weight_gradient"] == ["nan", None]
    assert look["values"]["bad"] == [6, 0]
    assert look["marks"] == [["non-finite", 0, "6 of its values or its gradient's are not finite"]]

"""Snapshots: what is in them, exact resuming, Caffe's own, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.solver.nets import make, parameters
from undertow.caffe.net import Net
from undertow.caffe.proto import read_caffemodel, read_solverstate
from undertow.caffe.snapshot import side_file
from undertow.caffe.solver import Solver
from undertow.errors import FormatError, ShapeError, UndertowError

RANDOM = {"dropout": 0.5, "shuffle": True}


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_resuming_gives_the_same_bits(tmp_path: Path, form: str, kind: str) -> None:
    """Dropout and shuffled rows too: data positions and the generator's state are in the side file."""
    text = f'momentum: 0.9 snapshot_format: {form} type: "{kind}" test_iter: 1 test_interval: 2'
    straight = make(tmp_path, text, **RANDOM)
    straight.step(3)
    state = straight.snapshot()
    straight.step(4)
    resumed = Solver(tmp_path / "solver.prototxt")
    resumed.step(1)
    resumed.restore(state)
    assert resumed.iter == 3
    resumed.step(4)
    for ours, theirs in zip(parameters(resumed), parameters(straight), strict=True):
        assert ours.tobytes() == theirs.tobytes()
    for name in ("loss", "acc"):
        assert resumed.test_nets[0].blobs[name].data == straight.test_nets[0].blobs[name].data
    straight.close()
    resumed.close()


def test_without_the_side_file_data_begin_at_the_first_record(tmp_path: Path) -> None:
    solver = make(tmp_path)
    first = make(tmp_path)
    first.net.forward()
    solver.step(2)
    state = solver.snapshot()
    side_file(state).unlink()
    resumed = Solver(tmp_path / "solver.prototxt")
    resumed.restore(state)
    resumed.net.forward()
    np.testing.assert_array_equal(resumed.net.blobs["data"].data, first.net.blobs["data"].data)
    for one in (solver, first, resumed):
        one.close()


def test_the_side_file_of_another_snapshot_is_not_used(tmp_path: Path) -> None:
    solver = make(tmp_path)
    solver.step(2)
    state = Path(solver.snapshot())
    solver.step(1)
    other = Path(solver.snapshot())
    side_file(other).replace(side_file(state))
    first = make(tmp_path)
    first.net.forward()
    resumed = make(tmp_path)
    resumed.restore(state)
    resumed.net.forward()
    np.testing.assert_array_equal(resumed.net.blobs["data"].data, first.net.blobs["data"].data)
    for one in (solver, first, resumed):
        one.close()


def test_fields_of_a_snapshot(tmp_path: Path) -> None:
    solver = make(tmp_path, "momentum: 0.5 snapshot_diff: true")
    solver.step(2)
    state = read_solverstate(solver.snapshot())
    assert state.field_names() == ["iter", "learned_net", "history", "current_step"]
    assert state.learned_net == f"{tmp_path}/snap_iter_2.caffemodel"
    assert [tuple(blob.shape.dim) for blob in state.history] == [(6, 5), (6,), (3, 6), (3,)]
    model = read_caffemodel(state.learned_net)
    assert [layer.name for layer in model.layer] == solver.net.layer_names
    assert {str(layer.phase) for layer in model.layer} == {"TRAIN"}
    assert all(len(blob.diff) == len(blob.data) for layer in model.layer for blob in layer.blobs)
    solver.close()


def test_a_snapshot_moved_to_another_folder_resumes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    solver = make(tmp_path / "a", "momentum: 0.9")
    solver.step(2)
    solver.snapshot()
    solver.close()
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a").glob("snap_*"):
        path.rename(tmp_path / "b" / path.name)
    resumed = make(tmp_path / "a", "momentum: 0.9")
    resumed.restore(tmp_path / "b" / "snap_iter_2.solverstate")
    for ours, theirs in zip(parameters(resumed), parameters(solver), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    (tmp_path / "b" / "snap_iter_2.caffemodel").unlink()
    with pytest.raises(FormatError, match="neither there nor beside it"):
        resumed.restore(tmp_path / "b" / "snap_iter_2.solverstate")
    resumed.close()


def test_a_snapshot_of_another_solver_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    adam = make(tmp_path, 'type: "Adam" momentum: 0.9')
    state = adam.snapshot()
    sgd = make(tmp_path, "momentum: 0.9")
    before = parameters(sgd)
    with pytest.raises(FormatError, match="the snapshot has 8 arrays of history, this solver 4"):
        sgd.restore(state)
    path = tmp_path / "net.prototxt"
    path.write_text(path.read_text().replace("num_output: 6", "num_output: 7"))
    wider = Solver(tmp_path / "solver.prototxt", type="Adam")
    with pytest.raises(ShapeError, match="history 0 has 30 values in the snapshot and 35"):
        wider.restore(state)
    for ours, theirs in zip(parameters(sgd), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert sgd.iter == 0


def test_a_snapshot_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    solver = make(tmp_path)
    solver.param.snapshot_prefix = str(tmp_path / "no" / "folder")
    with pytest.raises(UndertowError, match=r"the snapshot '.*/no/folder_iter_0' cannot be written"):
        solver.snapshot()


@pytest.mark.parametrize("ending", [".solverstate", ".resume.npz", ".caffemodel"])
def test_damaged_files_are_refused_in_words(tmp_path: Path, ending: str) -> None:
    solver = make(tmp_path)
    solver.step(1)
    state = Path(solver.snapshot())
    path = tmp_path / f"snap_iter_1{ending}"
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UndertowError):
            _strictly(solver, state)
    for _ in range(40):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(damaged))
        try:
            _strictly(solver, state)
        except (UndertowError, Warning):
            continue
    solver.close()


def _strictly(solver: Solver, state: Path) -> None:
    from undertow.caffe.proto import read_caffemodel, read_solverstate

    read_solverstate(state, strict=True)
    read_caffemodel(state.with_suffix(".caffemodel"), strict=True)
    solver.restore(state)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("folder", "state", "net", "iteration"),
    [
        ("lenet_v1_2014", "lenet_iter_5000.solverstate", "lenet_train_test.prototxt", 5000),
        ("cifar10_quick", "cifar10_quick_iter_4000.solverstate", "cifar10_quick_train_test.prototxt", 4000),
        ("cifar10_quick", "cifar10_quick_iter_5000.solverstate.h5", "cifar10_quick_train_test.prototxt", 5000),
    ],
)
def test_snapshots_of_real_caffe_resume(
    reference_data: Path, tmp_path: Path, folder: str, state: str, net: str, iteration: int
) -> None:
    """The nets' data layers are replaced by inputs: their databases are not there."""
    place = reference_data / "data" / "caffe" / folder
    solver = _with_inputs(place / net, tmp_path)
    solver.restore(place / state)
    assert solver.iter == iteration
    stored = read_solverstate(place / state)
    for ours, theirs in zip(solver.history, stored.history, strict=True):
        np.testing.assert_array_equal(ours.reshape(-1), np.asarray(theirs.data))
    shape = solver.net.blobs["data"].shape
    solver.net.blobs["data"].data[...] = np.random.default_rng(0).random(shape)
    before = parameters(solver)
    solver.step(1)
    assert solver.iter == iteration + 1
    assert any((a != b).any() for a, b in zip(before, parameters(solver), strict=True))
    assert np.isfinite(solver.net.blobs["loss"].data)


def _with_inputs(path: Path, tmp_path: Path) -> Solver:
    from undertow.caffe.proto import new_message, read_prototxt

    message = read_prototxt(path)
    shape = [4, 1, 28, 28] if "lenet" in path.name else [4, 3, 32, 32]
    layers = [layer for layer in message.layer if layer.type != "Data"]
    given = new_message("LayerParameter", name="in", type="Input", top=["data", "label"])
    given.mutable("input_param").shape = [{"dim": shape}, {"dim": [4]}]
    message.layer = [given, *layers]
    param = new_message("SolverParameter", base_lr=0.001, lr_policy="fixed", momentum=0.9, train_net_param=message)
    return Solver(param)


def test_a_shared_parameter_is_stored_once_in_hdf5(tmp_path: Path) -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "b" }
      inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
    layer { name: "c" type: "InnerProduct" bottom: "a" top: "c" param { name: "w" } param { name: "b" }
      inner_product_param { num_output: 3 } }"""
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    import h5py

    from undertow.caffe.snapshot import save_hdf5

    net = Net(path, "TRAIN")
    save_hdf5(net, tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5") as file:
        assert {name: list(group) for name, group in file["data"].items()} == {"a": ["0", "1"], "c": [], "in": []}
    other = Net(path, "TRAIN", weights=tmp_path / "m.h5")
    np.testing.assert_array_equal(other.params["c"][0].data, net.params["a"][0].data)


RECURRENT = """
layer { name: "in" type: "DummyData" top: "x" top: "cont" top: "wanted"
  dummy_data_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } shape { dim: 3 dim: 2 dim: 5 }
    data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 }
    data_filler { type: "uniform" min: 0 max: 1 } } }
layer { name: "bn" type: "BatchNorm" bottom: "x" top: "n" }
layer { name: "lstm" type: "LSTM" bottom: "n" bottom: "cont" top: "h"
  recurrent_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "h" bottom: "wanted" top: "loss" }
"""


def test_carried_states_statistics_and_random_data_resume(tmp_path: Path) -> None:
    from undertow.caffe.proto import new_message, parse_text

    net = parse_text(RECURRENT, "NetParameter")
    param = new_message(
        "SolverParameter", net_param=net, base_lr=0.1, lr_policy="fixed", type="RMSProp", random_seed=3,
        snapshot_prefix=str(tmp_path / "r"),
    )  # fmt: skip
    straight, resumed = Solver(param), Solver(param)
    straight.step(2)
    state = straight.snapshot()
    straight.step(2)
    resumed.restore(state)
    resumed.step(2)
    assert straight.net.blobs["loss"].data == resumed.net.blobs["loss"].data
    for name, blobs in straight.net.params.items():
        for ours, theirs in zip(blobs, resumed.net.params[name], strict=True):
            assert ours.data.tobytes() == theirs.data.tobytes(), name
    # Without the side file the states begin at zero, and so does another result.
    side_file(state).unlink()
    other = Solver(param)
    other.restore(state)
    other.step(2)
    assert other.net.blobs["loss"].data != straight.net.blobs["loss"].data


@pytest.mark.parametrize("damage", ["method", "flags", "cut", "nothing"])
def test_a_damaged_side_file_is_told(tmp_path: Path, damage: str) -> None:
    solver = make(tmp_path)
    solver.step(1)
    state = solver.snapshot()
    side = side_file(state)
    data = bytearray(side.read_bytes())
    entry = data.index(b"PK\x01\x02")
    if damage == "method":
        data[entry + 10] = 99  # a way of packing that nobody has
    elif damage == "flags":
        data[entry + 8] |= 1  # encrypted
    side.write_bytes(bytes(data) if damage in ("method", "flags") else bytes(data[:100]) if damage == "cut" else b"")
    with pytest.raises(FormatError, match=r"resume\.npz: this is not the file of data positions .*remove it"):
        solver.restore(state)
    solver.close()

"""A caffemodel, a solverstate or a mean file given in place of another is told by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.solver.nets import write_solver
from undertow.caffe.brew import score_net, train
from undertow.caffe.proto import (
    new_message,
    parse_text,
    read_binary,
    read_caffemodel,
    read_solverstate,
    write_binary,
    write_solverstate,
)
from undertow.caffe.proto.blobs import blob_from_array
from undertow.caffe.proto.hdf5 import write_model, write_state
from undertow.caffe.proto.message import Message
from undertow.caffe.solver import Solver
from undertow.errors import FormatError, UndertowError

BLOB = blob_from_array(np.ones((1, 2, 3, 4), np.float32))
STATE = new_message("SolverState", iter=7, learned_net="a", current_step=1, history=[BLOB])
NETS = {
    "today's": 'name: "n" layer { name: "a" type: "ReLU" bottom: "x" top: "y" }',
    "nameless": 'layer { name: "a" type: "ReLU" bottom: "x" top: "y" } force_backward: true',
    "old": 'name: "n" layers { name: "a" type: RELU bottom: "x" top: "y" }',
    "old and nameless": 'layers { name: "a" type: RELU bottom: "x" top: "y" } debug_info: false',
}
OLD_BLOB = parse_text("num: 1 channels: 1 height: 1 width: 2 data: [1, 2]", "BlobProto")


def binary(path: Path, message: Message) -> Path:
    write_binary(message, path)
    return path


def of_blob(path: Path) -> Message:
    return read_binary(path, "BlobProto")


CASES = [
    *[(parse_text(text, "NetParameter"), "caffemodel", read_solverstate, "--weights") for text in NETS.values()],
    *[(parse_text(text, "NetParameter"), "caffemodel", of_blob, "compute_image_mean") for text in NETS.values()],
    (STATE, "solverstate", read_caffemodel, "--snapshot"),
    (STATE, "solverstate", of_blob, "compute_image_mean"),
    *[(blob, "single blob", read_caffemodel, "caffemodel") for blob in (BLOB, OLD_BLOB)],
    *[(blob, "single blob", read_solverstate, "solverstate") for blob in (BLOB, OLD_BLOB)],
]


@pytest.mark.parametrize(("message", "name", "read", "remedy"), CASES)
def test_another_kind(
    tmp_path: Path, message: Message, name: str, read: Callable[[Path], Message], remedy: str
) -> None:
    with pytest.raises(FormatError, match=rf"a\.bin: this is a {name}.*, not a .*{remedy}"):
        read(binary(tmp_path / "a.bin", message))


def test_each_kind_is_read_as_what_it_is(tmp_path: Path) -> None:
    for text in (*NETS.values(), 'input: "x" input_dim: [1, 1, 1, 1] layers { name: "a" type: RELU }', 'name: "empty"'):
        read_caffemodel(binary(tmp_path / "a", parse_text(text, "NetParameter")))
    for state in (
        STATE,
        new_message("SolverState", learned_net="a", history=[BLOB]),
        new_message("SolverState", iter=1),
    ):
        assert read_solverstate(binary(tmp_path / "a", state)).iter == state.iter
    for blob in (BLOB, OLD_BLOB, blob_from_array(np.ones(3))):
        assert of_blob(binary(tmp_path / "a", blob)).has_field("shape") == blob.has_field("shape")


def test_hdf5(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    net = parse_text(NETS["today's"], "NetParameter")
    net.layer[0].blobs = [BLOB]
    write_model(net, tmp_path / "model.h5")
    write_state(STATE, tmp_path / "state.h5")
    with pytest.raises(FormatError, match="this is a caffemodel, not a solverstate"):
        read_solverstate(tmp_path / "model.h5")
    with pytest.raises(FormatError, match="this is a solverstate, not a caffemodel"):
        read_caffemodel(tmp_path / "state.h5")


def test_trainings_tell_before_they_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_solver(tmp_path)
    model, state = binary(tmp_path / "m", parse_text(NETS["old"], "NetParameter")), tmp_path / "s"
    write_solverstate(STATE, state)
    monkeypatch.setattr(Solver, "__init__", None)  # a net that is built fails the test
    for options, reason in (
        ({"snapshot": tmp_path / "none"}, "none: cannot be read: No such file"),
        ({"weights": "none"}, "none: cannot be read: No such file"),
        ({"snapshot": model}, "m: this is a caffemodel"),
        ({"weights": f"{model}, {state}"}, "s: this is a solverstate"),
    ):
        with pytest.raises(UndertowError, match=reason):
            train(path, **options)
    with pytest.raises(FormatError, match="s: this is a solverstate"):
        score_net(tmp_path / "unread", str(state))

"""Every writer answers a file that cannot be written with its name, the reason and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.caffe.solver.nets import write_solver
from undertow.caffe.net import Net
from undertow.caffe.proto import new_message, write_binary, write_prototxt, write_solverstate
from undertow.caffe.proto.blobs import blob_from_array
from undertow.caffe.snapshot import save_hdf5, save_model, save_rest
from undertow.errors import UndertowError

STATE = new_message("SolverState", iter=1, history=[blob_from_array(np.ones(2))])
WRITERS: dict[str, Callable[[Net, Path], Any]] = {
    "a.caffemodel": lambda net, path: net.save(path),
    "a.caffemodel.h5": save_model,
    "a.hdf5": save_hdf5,
    "a.solverstate": lambda net, path: write_solverstate(STATE, path),
    "a.solverstate.h5": lambda net, path: write_solverstate(STATE, path),
    "a.resume.npz": lambda net, path: save_rest(path, 1, [], [net]),
    "a.prototxt": lambda net, path: write_prototxt(net.to_message(), path),
    "a.binaryproto": lambda net, path: write_binary(STATE.history[0], path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_writers(tmp_path: Path, name: str) -> None:
    if name.endswith(("h5", "hdf5")):
        pytest.importorskip("h5py")
    write_solver(tmp_path)
    net = Net(tmp_path / "net.prototxt", "TRAIN")
    (tmp_path / "folder" / name).mkdir(parents=True)
    for place, remedy in ((tmp_path / "none", "make the folder"), (tmp_path / "folder", "this is a folder")):
        with pytest.raises(UndertowError, match=rf"{place / name}: cannot be written: .*director.* {remedy}"):
            WRITERS[name](net, place / name)

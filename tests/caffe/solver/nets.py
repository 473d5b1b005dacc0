"""Small trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from undertow.caffe.solver import Solver

NET = """
name: "small"
layer {{ name: "d" type: "HDF5Data" top: "data" top: "label" include {{ phase: TRAIN }}
  hdf5_data_param {{ source: "{folder}/list.txt" batch_size: 4 shuffle: {shuffle} }} }}
layer {{ name: "d" type: "HDF5Data" top: "data" top: "label" include {{ phase: TEST }}
  hdf5_data_param {{ source: "{folder}/list.txt" batch_size: 5 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "h"
  param {{ lr_mult: 1 }} param {{ lr_mult: 2 decay_mult: 0 }}
  inner_product_param {{ num_output: 6 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "h" top: "h" }}
layer {{ name: "drop" type: "Dropout" bottom: "h" top: "h" dropout_param {{ dropout_ratio: {dropout} }} }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "h" top: "y"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }}
layer {{ name: "acc" type: "Accuracy" bottom: "y" bottom: "label" top: "acc" include {{ phase: TEST }} }}
"""
ROWS = 10


def write_net(folder: Path, dropout: float = 0.0, shuffle: bool = False) -> Path:
    """net.prototxt and its data, ten rows."""
    if not (folder / "rows.h5").exists():
        _write_rows(folder / "rows.h5")
    (folder / "list.txt").write_text("rows.h5\n")
    text = NET.format(folder=folder, dropout=dropout, shuffle=str(shuffle).lower())
    (folder / "net.prototxt").write_text(text)
    return folder / "net.prototxt"


def _write_rows(path: Path) -> None:
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        file["data"] = rng.standard_normal((ROWS, 5)).astype(np.float32)
        file["label"] = rng.integers(0, 3, ROWS).astype(np.float32)


def write_solver(folder: Path, text: str = "", **net: Any) -> Path:
    """solver.prototxt over the net; `text` comes behind its fields."""
    path = write_net(folder, **net)
    fields = f'net: "{path}" base_lr: 0.1 lr_policy: "fixed" random_seed: 4 snapshot_prefix: "{folder}/snap"\n'
    (folder / "solver.prototxt").write_text(fields + text)
    return folder / "solver.prototxt"


def make(folder: Path, text: str = "", **net: Any) -> Solver:
    """A solver of this text."""
    return Solver(write_solver(folder, text, **net))


def parameters(solver: Solver) -> list[np.ndarray]:
    """Copies of all parameters."""
    return [blob.data.copy() for blob in solver.net.learnable_params]

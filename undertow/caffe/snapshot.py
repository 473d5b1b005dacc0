"""Snapshots of a solver: Caffe's two files, and beside them one with what Caffe forgets.

PREFIX_iter_N.caffemodel and PREFIX_iter_N.solverstate (both with `.h5` behind them in HDF5) have exactly Caffe's
fields. PREFIX_iter_N.resume.npz holds the positions of data layers, the states of random generators and those that
recurrent layers carry from pass to pass, so that a resumed training gives the same numbers as one that never stopped.
Without that file, or when it belongs to another snapshot, resuming does what Caffe does.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undertow.caffe.arguments import path_of
from undertow.caffe.layers_data import data_states, load_data_states
from undertow.caffe.layers_recurrent import Recurrent
from undertow.caffe.net import Net
from undertow.caffe.proto import hdf5
from undertow.caffe.proto.api import read_solverstate, write_caffemodel, write_solverstate
from undertow.caffe.proto.blobs import blob_array, blob_from_array
from undertow.caffe.proto.message import Message, new_message
from undertow.errors import FormatError, ShapeError, UndertowError
from undertow.files import atomic_write

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

_VERSION = 1


def save_model(net: Net, path: PathLike, diff: bool = False) -> None:
    """Write a net's parameters, in HDF5 if the path ends in `.h5`."""
    if os.fspath(path).endswith(".h5"):
        save_hdf5(net, path, diff)
    else:
        write_caffemodel(net.to_message(diff), path)


def save_hdf5(net: Net, path: PathLike, diff: bool = False) -> None:
    """Write a net's parameters in HDF5 whatever the path ends in; shared ones only under their owner, as Caffe does."""
    path = path_of(path)
    message = net.to_message(diff)
    for layer, ids in zip(message.layer, net.param_ids, strict=True):
        while not diff and layer.blobs and net.param_owners[ids[len(layer.blobs) - 1]] >= 0:
            del layer.blobs[-1]
    hdf5.write_model(message, path)


def save_state(path: PathLike, iteration: int, step: int, model: str, history: Sequence[Array]) -> None:
    """Write a solverstate. model: the path of the caffemodel, kept as it is given."""
    message = new_message("SolverState", iter=iteration, learned_net=model, current_step=step)
    message.history = [blob_from_array(array) for array in history]
    write_solverstate(message, path)


def read_state(path: PathLike, history: Sequence[Array]) -> tuple[Message, list[Array]]:
    """Read a solverstate, and its history in the shapes of these arrays.

    Raises FormatError where it has another number of arrays, ShapeError where one has another number of values.
    """
    state = read_solverstate(path)
    if state.iter < 0 or state.current_step < 0:
        raise FormatError(
            f"iteration {state.iter} and step {state.current_step} of a snapshot are 0 or more", file=path,
            remedy="take another copy: this one is damaged",
        )  # fmt: skip
    if len(state.history) != len(history):
        raise FormatError(
            f"the snapshot has {len(state.history)} arrays of history, this solver {len(history)}", file=path,
            remedy="resume with the net and the solver type that wrote it",
        )  # fmt: skip
    found = []
    for index, (ours, blob) in enumerate(zip(history, state.history, strict=True)):
        theirs = blob_array(blob, file=path)
        if ours.size != theirs.size:
            raise ShapeError(
                f"history {index} has {theirs.size} values in the snapshot and {ours.size} in this solver", file=path,
                remedy="resume with the net that wrote it",
            )  # fmt: skip
        found.append(theirs.reshape(ours.shape))
    return state, found


def model_beside(state: Message, path: PathLike) -> str | None:
    """The caffemodel of a solverstate: where it says, else beside it, where snapshots are moved together."""
    if not state.has_field("learned_net"):
        return None
    named, here = str(state.learned_net), Path(path)
    stem = here.name.removesuffix(".h5").removesuffix(".solverstate")
    beside = [Path(named).name, Path(named).name + ".caffemodel", stem + ".caffemodel.h5", stem + ".caffemodel"]
    for candidate in (Path(named), *(here.parent / name for name in beside)):
        if candidate.is_file():
            return os.fspath(candidate)
    raise FormatError(
        f"its parameters, '{named}', are neither there nor beside it", file=path,
        remedy="put the caffemodel beside the solverstate",
    )  # fmt: skip


# --- what Caffe forgets -----------------------------------------------------------------------------------


def side_file(state: PathLike) -> Path:
    """The file beside a solverstate that holds the rest."""
    path = Path(state)
    return path.with_name(path.name.removesuffix(".h5").removesuffix(".solverstate") + ".resume.npz")


def save_rest(path: PathLike, iteration: int, history: Sequence[Array], nets: Sequence[Net]) -> None:
    """Write data positions, generators and carried states of the nets (the train net first)."""
    arrays: dict[str, Array] = {"version": np.array(_VERSION), "belongs_to": np.array(_mark(iteration, history))}
    for number, net in enumerate(nets):
        for key, array in _net_rest(net):
            arrays[f"{number}/{key}"] = array
    with atomic_write(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def load_rest(path: PathLike, iteration: int, history: Sequence[Array], nets: Sequence[Net]) -> bool:
    """Take up what `save_rest` wrote; False where the file belongs to another snapshot.

    Raises FormatError for a file that cannot be read, UndertowError where a position does not fit the data.
    """
    arrays = _read(path)
    if int(arrays["belongs_to"]) != _mark(iteration, history):
        return False
    for number, net in enumerate(nets):
        head = f"{number}/"
        _load_net_rest(net, {k.removeprefix(head): a for k, a in arrays.items() if k.startswith(head)}, path)
    return True


def _read(path: PathLike) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        version, _ = int(arrays["version"]), int(arrays["belongs_to"])
    except Exception as problem:  # zipfile and NumPy raise nearly anything on damaged files
        raise FormatError(
            "this is not the file of data positions that a snapshot writes, or it is damaged", file=path,
            remedy="remove it to resume as Caffe does",
        ) from problem  # fmt: skip
    if version != _VERSION:
        raise FormatError(
            f"version {version} of the data positions is not known",
            file=path,
            remedy="go on without this side file: data begin at their first record then",
        )
    return arrays


def _mark(iteration: int, history: Sequence[Array]) -> int:
    """A number that tells one snapshot from another."""
    mark = zlib.crc32(str(iteration).encode())
    for array in history:
        mark = zlib.crc32(np.ascontiguousarray(array).tobytes(), mark)
    return mark


def _net_rest(net: Net) -> Iterator[tuple[str, Array]]:
    for name, state in data_states(net.layers).items():
        for key, array in state.items():
            yield f"data/{name}/{key}", array
    for name, layer in _recurrent(net).items():
        for index, array in enumerate(layer.state or ()):
            yield f"recurrent/{name}/{index}", array
    if net.layers:
        # All layers of a net draw from one generator.
        text = json.dumps(net.layers[0].rng.bit_generator.state)
        yield "generator", np.frombuffer(text.encode(), np.uint8)


def _load_net_rest(net: Net, arrays: Mapping[str, Array], path: PathLike) -> None:
    states: dict[str, dict[str, Array]] = {}
    carried: dict[str, list[Array]] = {}
    for key, array in arrays.items():
        kind, _, rest = key.partition("/")
        name, _, last = rest.rpartition("/")
        if kind == "data":
            states.setdefault(name, {})[last] = array
        elif kind == "recurrent":
            carried.setdefault(name, []).append(array)
    load_data_states(net.layers, states)
    for name, layer in _recurrent(net).items():
        layer.state = carried.get(name) or None
    if "generator" in arrays and net.layers:
        try:
            net.layers[0].rng.bit_generator.state = json.loads(arrays["generator"].tobytes().decode())
        except (ValueError, TypeError, KeyError) as problem:
            raise UndertowError(
                f"the state of the random generator cannot be read: {problem}",
                file=path,
                remedy="go on without this side file: random numbers begin anew then",
            ) from problem


def _recurrent(net: Net) -> dict[str, Recurrent]:
    return {layer.name: layer for layer in net.layers if isinstance(layer, Recurrent)}

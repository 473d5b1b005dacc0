"""Snapshots in HDF5, as Caffe lays them out.

A model has a group `data` with one group per layer, in it datasets `0`, `1`, ... for the layer's blobs (shared ones
only under their owner), and with diffs a group `diff` of the same form. A state has `iter`, `learned_net`,
`current_step` and a group `history` with datasets `0`, `1`, ...
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from undertow.caffe.proto.blobs import blob_array, blob_from_array
from undertow.caffe.proto.files import PathLike
from undertow.caffe.proto.hdf5_circles import check_circles
from undertow.caffe.proto.kinds import other_kind
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import ForkLike, get_schema
from undertow.errors import FormatError, MissingPackage, UndertowError
from undertow.files import atomic_write

# deflate, the strongest of HDF5's usual filters, shrinks at most about 1032 times.
_STRONGEST_FILTER = 1100
_DEEPEST = 32

_Pair = tuple[np.ndarray | None, np.ndarray | None]


def _h5py() -> Any:
    try:
        import h5py  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingPackage("h5py", "caffe", "reading and writing HDF5 snapshots") from None
    return h5py


@contextlib.contextmanager
def _opened(path: PathLike) -> Iterator[Any]:
    """An HDF5 file; whatever h5py raises for a damaged one becomes a FormatError."""
    h5py = _h5py()
    try:
        check_circles(path)
        with h5py.File(path, "r") as file:
            yield file
    except UndertowError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as problem:
        raise FormatError(
            f"cannot be read as HDF5: {problem}",
            file=path,
            remedy="the file is cut off or damaged: fetch or save it again",
        ) from problem


def read_model(path: PathLike, fork: ForkLike) -> Message:
    """A NetParameter whose layers have names and blobs; types and connections are not stored in this form."""
    layers: dict[str, list[_Pair]] = {}
    with _opened(path) as file:
        if "data" not in file and "history" in file:
            raise other_kind("NetParameter", "SolverState", path)
        diffs = dict(_layers(_group(file, "diff", path), path)) if "diff" in file else {}
        for name, group in _layers(_group(file, "data", path), path):
            count = _count(group, diffs.get(name), path)
            layers[name] = [_pair(group, diffs.get(name), str(index), path) for index in range(count)]
    net = Message(get_schema(fork)["NetParameter"])
    for name, pairs in layers.items():
        net.add("layer", name=name, blobs=[_blob(data, diff, fork) for data, diff in pairs])
    return net


def _group(file: Any, name: str, path: PathLike) -> Any:
    if name not in file or not hasattr(file[name], "keys"):
        raise FormatError(
            f"there is no group '{name}', so this is no snapshot of Caffe",
            file=path,
            remedy="give a file that save_hdf5 or a snapshot in HDF5 has made",
        )
    return file[name]


def _layers(group: Any, path: PathLike, prefix: str = "", seen: frozenset[int] = frozenset()) -> list[tuple[str, Any]]:
    """Layer names and groups. A name with `/` in it lies in groups inside groups.

    Links out of the file, and groups that contain themselves, are refused: Caffe makes neither.
    """
    address = _h5py().h5o.get_info(group.id).addr
    if address in seen or len(seen) > _DEEPEST:
        raise FormatError(
            f"{group.name}: groups inside themselves, or more than {_DEEPEST} deep",
            file=path,
            remedy="save the snapshot again",
        )
    found = []
    for name in group:
        if not isinstance(group.get(name, getlink=True), _h5py().HardLink):
            raise FormatError(
                f"{group.name}/{name} is a link, which no snapshot of Caffe has",
                file=path,
                remedy="save the snapshot again",
            )
        item = group[name]
        if not hasattr(item, "keys"):
            continue
        inner = _layers(item, path, f"{prefix}{name}/", seen | {address})
        if not inner or any(not hasattr(item[key], "keys") for key in item):
            found.append((prefix + name, item))
        found += inner
    return found


def _count(group: Any, diffs: Any, path: PathLike) -> int:
    """How many blobs a layer has: one more than the highest number among its datasets."""
    names = [name for part in (group, diffs) if part is not None for name in part if hasattr(part[name], "shape")]
    if not all(name.isascii() and name.isdigit() and len(name) < 5 for name in names):
        raise FormatError(
            f"{group.name}: datasets of a layer are numbered, here are {names}",
            file=path,
            remedy="give a file that save_hdf5 or a snapshot in HDF5 has made",
        )
    count = max((int(name) for name in names), default=-1) + 1
    if count > len(names):
        raise FormatError(
            f"{group.name}: blobs are missing, there are only {sorted(names)}",
            file=path,
            remedy="save the snapshot again",
        )
    return count


def _pair(group: Any, diffs: Any, name: str, path: PathLike) -> _Pair:
    data = _array(group[name], path) if name in group else None
    diff = _array(diffs[name], path) if diffs is not None and name in diffs else None
    if data is not None and diff is not None and data.shape != diff.shape:
        raise FormatError(
            f"{group.name}/{name}: data of shape {data.shape}, diff of shape {diff.shape}",
            file=path,
            remedy="save the snapshot again",
        )
    return data, diff


def _blob(data: np.ndarray | None, diff: np.ndarray | None, fork: ForkLike) -> Message:
    if data is not None:
        return blob_from_array(data, diff, fork)
    # A shared blob, stored under its owner: here is only its diff.
    blob = blob_from_array(np.empty(0, np.float32) if diff is None else diff, diff, fork)
    blob.clear_field("data")
    blob.clear_field("double_data")
    return blob


def _array(dataset: Any, path: PathLike) -> np.ndarray:
    """The values of a dataset, float32 or float64, checked against the bytes that the file has for them."""
    if not hasattr(dataset, "shape") or dataset.dtype.kind not in "fiu":
        raise FormatError(
            f"{dataset.name} does not hold numbers",
            file=path,
            remedy="give a file that save_hdf5 or a snapshot in HDF5 has made",
        )
    size = math.prod(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    filtered = dataset.chunks is not None
    if stored > os.path.getsize(path) or size > stored * (_STRONGEST_FILTER if filtered else 1):
        raise FormatError(
            f"{dataset.name} claims {size} bytes, the file has {stored} for it",
            file=path,
            remedy="the file is damaged: fetch or save it again",
        )
    values = dataset[()]
    return values.astype("<f8" if values.dtype.kind == "f" and values.dtype.itemsize == 8 else "<f4", copy=False)


def read_state(path: PathLike, fork: ForkLike) -> Message:
    """A SolverState."""
    with _opened(path) as file:
        if "iter" not in file and "data" in file:
            raise other_kind("SolverState", "NetParameter", path)
        values: dict[str, object] = {name: _integer(file, name, path) for name in ("iter", "current_step")}
        if "learned_net" in file:
            learned = file["learned_net"][()]
            values["learned_net"] = bytes(learned) if isinstance(learned, np.bytes_) else learned
        history = _group(file, "history", path)
        arrays = [_array(history[str(index)], path) for index in range(_count(history, None, path))]
    blobs = [blob_from_array(array, fork=fork) for array in arrays]
    return Message(get_schema(fork)["SolverState"], **values, history=blobs)


def _integer(file: Any, name: str, path: PathLike) -> int:
    if name not in file:
        raise FormatError(
            f"there is no dataset '{name}', so this is no solver state of Caffe",
            file=path,
            remedy="give a .solverstate.h5; weights are in the .caffemodel.h5 beside it",
        )
    values = _array(file[name], path).reshape(-1)
    if len(values) != 1:
        raise FormatError(
            f"{name} should be one number, not {len(values)}",
            file=path,
            remedy="give a .solverstate.h5 that a snapshot has made",
        )
    return int(file[name][()].reshape(-1)[0])


@contextlib.contextmanager
def _created(path: PathLike) -> Iterator[Any]:
    h5py = _h5py()
    with atomic_write(path, "w+b") as stream, h5py.File(stream, "w") as file:
        yield file


def write_model(net: Message, path: PathLike) -> None:
    """Store the blobs of a NetParameter; diffs too where any blob has them. Layers without a name cannot be stored."""
    blobs = [blob for layer in net.layer for blob in layer.blobs]
    with_diffs = any(blob.has_field("diff") or blob.has_field("double_diff") for blob in blobs)
    names = [layer.name for layer in net.layer]
    for name in names:
        if not name or names.count(name) > 1:
            raise FormatError(
                f"HDF5 needs a name of its own for every layer, not '{name}'",
                layer=name,
                file=path,
                remedy="name the layers differently, or save in binary form",
            )
    with _created(path) as file:
        for kind in ("data", "diff") if with_diffs else ("data",):
            group = file.create_group(kind)
            for layer in net.layer:
                part = group.require_group(layer.name)
                for index, blob in enumerate(layer.blobs):
                    if _is_stored(blob, kind):
                        part.create_dataset(str(index), data=blob_array(blob, diff=kind == "diff", layer=layer.name))


def _is_stored(blob: Message, kind: str) -> bool:
    """Whether a blob has a dataset under `data` or `diff`; one with only a diff is shared and stored by its owner."""
    has_diff = blob.has_field("diff") or blob.has_field("double_diff")
    return has_diff if kind == "diff" else bool(_has_data(blob) or not has_diff)


def _has_data(blob: Message) -> bool:
    return any(blob.has_field(name) for name in ("data", "double_data", "raw_data") if name in blob.descriptor.by_name)


def _write_string(file: Any, name: str, text: bytes) -> None:
    """A single string of fixed length ended by a zero byte, as HDF5's C interface makes them."""
    h5py = _h5py()
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(text) + 1)
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(text, f"S{len(text) + 1}"))


def write_state(state: Message, path: PathLike) -> None:
    """Store a SolverState with the types and shapes that Caffe uses."""
    with _created(path) as file:
        file.create_dataset("iter", data=np.array([state.iter], np.int32))
        _write_string(file, "learned_net", state.learned_net.encode("utf-8", "surrogateescape"))
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        history = file.create_group("history")
        for index, blob in enumerate(state.history):
            history.create_dataset(str(index), data=blob_array(blob))

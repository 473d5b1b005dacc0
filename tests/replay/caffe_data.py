"""Replaying Caffe's data cases: nets that feed themselves, databases and mean files made again, caffe.io.

Values must be equal bit by bit, except where a JPEG is decoded (`JPEG_STEPS`) or a mean divides sums.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.replay.caffe import Arrays, Closeness, load_net, load_trace
from undertow.caffe.data import open_database, read_mean
from undertow.caffe.net import Net
from undertow.caffe.proto import read_prototxt
from undertow.caffe.tools import ConvertOptions, compute_image_mean, convert_imageset

FEEDS = {"Data", "HDF5Data", "ImageData", "MemoryData", "WindowData"}
JPEG_STEPS = 2  # decoders of JPEG may differ by so many of 255 steps

Kind = Callable[[Path, Closeness], None]


def kind_of(folder: Path) -> Kind | None:
    """How a case of data is replayed, told from its files; None for other cases."""
    names = set(load_trace(folder)) if (folder / "trace.npz").is_file() else set()
    if (folder / "solver.prototxt").is_file() or not names:
        return None
    if any(name.startswith("load_image/") for name in names):
        from tests.replay.caffe_io import replay_io

        return _in_copy(replay_io)
    types = {layer.type for path in folder.glob("net*.prototxt") for layer in read_prototxt(path).layer}
    if "HDF5Output" in types:
        return _in_copy(replay_output)
    return _in_copy(replay_feeds) if types & FEEDS else None


def _in_copy(kind: Kind) -> Kind:
    """Some readers and layers write beside what they read, so a case runs in a copy of its folder."""

    def replay(folder: Path, result: Closeness) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(shutil.copytree(folder, Path(scratch) / folder.parent.name / folder.name))
            group = folder.parent / folder.name.partition("_")[0]
            if group.is_dir() and group != folder:
                shutil.copytree(group, copy.parent / group.name)
            with contextlib.chdir(copy):
                kind(copy, result)

    return replay


def replay_feeds(folder: Path, result: Closeness) -> None:
    """Every variant of the net, every recorded pass; then databases and means, made again by our tools."""
    arrays = load_trace(folder)
    case = json.loads((folder / "meta.json").read_text(encoding="utf-8")) if (folder / "meta.json").is_file() else {}
    for path in sorted(folder.glob("net*.prototxt")):
        variant = path.stem.removeprefix("net").lstrip("_")
        if variant == "random":
            _replay_random(path, arrays, result)
            continue
        for prefix, phase in _runs(variant, case, arrays):
            _replay_net(path, phase, prefix, arrays, result)
    if case.get("made_by") == "convert_imageset":
        _replay_convert(folder, case["options"], result)
    if "mean" in arrays and (folder / "db").is_dir():
        mean, _ = compute_image_mean(folder / "db")
        _same("mean", mean[None], arrays["mean"], result)
        _same("mean.binaryproto", read_mean(folder / "mean.binaryproto")[None], arrays["mean"], result)


def _runs(variant: str, case: dict[str, Any], arrays: Arrays) -> list[tuple[str, str]]:
    """Prefixes of keys, and the phase that belongs to each."""
    if any(name.startswith("train/") for name in arrays):
        return [("train/", "TRAIN"), ("test/", "TEST")]
    return [(f"{variant}/" if variant else "", case.get("phase") or "TEST")]


def _replay_net(path: Path, phase: str, prefix: str, arrays: Arrays, result: Closeness) -> None:
    """One net: fwdK/blob/B/data after pass K, or B/data after one pass."""
    net = load_net(path.parent, path.name, phase=phase)
    for layer in net.layers:
        if layer.type == "MemoryData":
            layer.set_input_arrays(arrays["set/data"], arrays["set/labels"])  # type: ignore[attr-defined]
    jpeg = any("jpeg" in str(part) or part.suffix == ".jpg" for part in [path.parent, *path.parent.iterdir()])
    for number in range(1, 1 + max(_passes(prefix, arrays), 1)):
        loss = net.forward()
        for name, recorded in arrays.items():
            key = name.removeprefix(prefix) if name.startswith(prefix) else ""
            if key == f"fwd{number}/loss":
                result.arrays(name, np.float32(loss), recorded)
            elif key in ("data", "label") or (key.startswith(f"fwd{number}/blob/") and key.endswith("/data")):
                blob = key.removeprefix(f"fwd{number}/blob/").removesuffix("/data")
                _compare_blob(name, net, blob, recorded, jpeg, result)


def _passes(prefix: str, arrays: Arrays) -> int:
    keys = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    return max((int(key[3 : key.index("/")]) for key in keys if key.startswith("fwd")), default=0)


def _compare_blob(name: str, net: Net, blob: str, recorded: np.ndarray, jpeg: bool, result: Closeness) -> None:
    """Exactly, if the blob comes straight from a data layer."""
    maker = next(layer for layer in net.layers if blob in layer.message.top)
    if maker.type not in FEEDS:
        result.arrays(name, net.blobs[blob].data, recorded)
    elif jpeg:
        off = float(np.abs(net.blobs[blob].data - recorded).max())
        result.text(f"{name} off by {off}", off <= JPEG_STEPS, True)
    else:
        _same(name, net.blobs[blob].data, recorded, result)


def _same(name: str, ours: Any, recorded: np.ndarray, result: Closeness) -> None:
    """Bit by bit."""
    found = np.asarray(ours)
    different = "shape" if found.shape != recorded.shape else int(np.sum(found != recorded))
    result.text(f"{name}: values that differ", different, 0)


def _replay_random(path: Path, arrays: Arrays, result: Closeness) -> None:
    """Every picture is one of those that can come out, and all of them do come out."""
    transform = read_prototxt(path).layer[0].transform_param
    crop, truth = transform.crop_size, arrays["truth/images"]
    net, seen = Net(path, "TRAIN", dialect="caffe", seed=1), set()
    rows, columns = truth.shape[2] - crop + 1, truth.shape[3] - crop + 1
    possible = {
        (n, top, left, mirrored): truth[n, :, top : top + crop, left : left + crop][:, :, :: -1 if mirrored else 1]
        for n in range(len(truth)) for top in range(rows) for left in range(columns) for mirrored in range(2)
    }  # fmt: skip
    for _ in range(80):
        net.forward()
        for n, picture in enumerate(net.blobs["data"].data):
            found = [key for key, one in possible.items() if key[0] == n and np.array_equal(one, picture)]
            result.text("a random crop that is possible", bool(found), True)
            seen.update(key[1:] for key in found)
    result.text("offsets and mirrorings that were seen", len(seen), rows * columns * 2)
    recorded = {tuple(row) for row in arrays["random/offsets_h_w_mirror"].tolist()}
    result.text("the recorded ones are among them", recorded <= seen, True)


def _replay_convert(folder: Path, flags: list[str], result: Closeness) -> None:
    """convert_imageset: the same keys and values, byte by byte."""
    pairs = [flag.lstrip("-").partition("=") for flag in flags]
    given: dict[str, Any] = {name: int(value) if value.isdigit() else value or True for name, _, value in pairs}
    stored = "LEVELDB" if (folder / "db" / "CURRENT").is_file() else "LMDB"
    convert_imageset("./", "list.txt", "made_again", ConvertOptions(backend=stored, **given))
    ours, theirs = (
        [(key, bytes(value)) for key, value in open_database(name, stored).records()] for name in ("made_again", "db")
    )
    result.text("keys", [key for key, _ in ours], [key for key, _ in theirs])
    for (key, ours_value), (_, theirs_value) in zip(ours, theirs, strict=False):
        result.text(f"record {key.decode()} byte for byte", ours_value == theirs_value, True)


def replay_output(folder: Path, result: Closeness) -> None:
    """HDF5Output: the net's values, and the file that it writes."""
    import h5py

    arrays = load_trace(folder)
    (folder / "out.h5").unlink()
    net = load_net(folder, phase="TRAIN")
    for name in net.inputs:
        net.blobs[name].data[...] = arrays[f"input/{name}"]
    net.forward()
    for name, blob in net.blobs.items():
        result.arrays(name, blob.data, arrays[f"blob/{name}/data"])
    with np.load(folder / "h5_contents.npz", allow_pickle=False) as recorded, h5py.File(folder / "out.h5") as file:
        result.text("datasets", sorted(file), ["data", "label"])
        for name in file:
            result.arrays(f"h5/{name}", file[name][()], recorded[f"h5/{name}"])
            result.text(f"h5/{name} type", file[name].dtype, recorded[f"h5/{name}"].dtype)

"""Caffe's files: prototxt, caffemodel, binaryproto, solverstate, records and databases, HDF5 snapshots."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from tests.fuzz.damage import damaged
from tests.fuzz.darknet_targets import small_pictures
from tests.fuzz.engine import Target
from tests.fuzz.prototxt_grammar import ABSURD, net_text, solver_text
from undertow.caffe.data import datum_from_pixels, new_database
from undertow.caffe.data.database import open_database
from undertow.caffe.data.datum import datum_pixels, encoded_datum, parse_datum, read_record
from undertow.caffe.data.mean import read_mean, write_mean
from undertow.caffe.net import Net
from undertow.caffe.proto import blob_array, hdf5, parse_text, read_caffemodel, read_solver, upgrade_net, walk
from undertow.caffe.proto.api import read_prototxt, read_solverstate
from undertow.caffe.proto.schema import DEFAULT_FORK
from undertow.caffe.snapshot import save_hdf5, save_model, save_state

Use = Callable[[], object]
SMALL = 100_000

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 dim: 5 dim: 5 } } }
layer { name: "a" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 3 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "b/c" type: "BatchNorm" bottom: "y" top: "y" }
layer { name: "d" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 4
  weight_filler { type: "gaussian" std: 0.1 } } }
"""
V1 = """
name: "old" input: "x" input_dim: 1 input_dim: 2 input_dim: 5 input_dim: 5
layers { name: "a" type: CONVOLUTION bottom: "x" top: "y" blobs_lr: 1 weight_decay: 1
  convolution_param { num_output: 3 kernel_size: 3 } }
layers { name: "r" type: RELU bottom: "y" top: "y" include { phase: TRAIN } }
"""


def _net(draw: random.Random, folder: Path) -> Use:
    """A prototxt by the grammar: read and brought up to date; where it is a small valid net, built and run."""
    path = folder / "net.prototxt"
    path.write_text(net_text(draw), "utf-8")
    strict, phase, runs = draw.random() < 0.1, draw.choice(("TRAIN", "TEST")), draw.random() < 0.7

    def use() -> None:
        message = read_prototxt(path, strict=strict)
        net = Net(message, phase, fill=False)
        counts = [blob.count for blob in (*net.blob_list, *(one for blobs in net.params.values() for one in blobs))]
        if runs and sum(counts) < SMALL:
            net = Net(message, phase, seed=1)
            with np.errstate(all="ignore"):
                net.forward()

    return use


def _text_bytes(draw: random.Random, folder: Path) -> Use:
    path = folder / "bytes.prototxt"
    data = damaged(draw.choice((NET, V1)).encode(), draw, [word.encode() for word in ABSURD])
    path.write_bytes(data)
    return lambda: Net(read_prototxt(path), fill=False)


def _solver(draw: random.Random, folder: Path) -> Use:
    path = folder / "solver.prototxt"
    path.write_text(solver_text(draw), "utf-8")
    return lambda: read_solver(path)


@cache
def _files() -> dict[str, bytes]:
    """Whole files of each kind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        net = Net(parse_text(NET, "NetParameter"), seed=1)
        history = [blob.data for blobs in net.params.values() for blob in blobs]
        save_model(net, folder / "a.caffemodel", diff=True)
        save_hdf5(net, folder / "a.caffemodel.h5", diff=True)
        save_state(folder / "a.solverstate", 7, 1, "a.caffemodel", history)
        hdf5.write_state(read_solverstate(folder / "a.solverstate"), folder / "a.solverstate.h5")
        write_mean(np.ones((3, 4, 5), np.float32), folder / "a.binaryproto")
        for backend in ("LMDB", "LEVELDB"):
            try:
                _make_database(folder / backend, backend)
            except ImportError:
                shutil.rmtree(folder / backend, ignore_errors=True)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _make_database(path: Path, backend: str) -> None:
    with new_database(path, backend) as put:
        for number, data in enumerate(_datums()):
            put(b"%08d" % number, data)
        put(b"%08d" % 99, bytes(9000))  # on pages of its own


@cache
def _datums() -> list[bytes]:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 8)).astype(np.uint8)
    floats = datum_from_pixels(pixels, 1)
    floats.clear_field("data")
    floats.float_data = np.ones(3 * 6 * 8, np.float32)
    encoded = [encoded_datum(data, 2).to_bytes() for data in small_pictures()[:6]]
    return [datum_from_pixels(pixels, 3).to_bytes(), floats.to_bytes(), *encoded]


def _binary(draw: random.Random, folder: Path) -> Use:
    """caffemodel, solverstate, binaryproto: the wire format."""
    kind = draw.choice(("caffemodel", "caffemodel", "solverstate", "binaryproto"))
    path = folder / f"a.{kind}"
    files = _files()
    path.write_bytes(damaged(files[path.name], draw, list(files.values())[:3]))

    def use() -> None:
        if kind == "binaryproto":
            read_mean(path)
            return
        message = read_caffemodel(path) if kind == "caffemodel" else read_solverstate(path)
        if kind == "caffemodel":
            upgrade_net(message)
        for _, one in walk(message):
            if one.descriptor.name == "BlobProto":
                blob_array(one)

    return use


def _weights_into_net(draw: random.Random, folder: Path) -> Use:
    path = folder / "b.caffemodel"
    path.write_bytes(damaged(_files()["a.caffemodel"], draw))
    return lambda: Net(parse_text(NET, "NetParameter"), weights=path, seed=1)


def _record(draw: random.Random, folder: Path) -> Use:
    data = damaged(draw.choice(_datums()), draw, _datums())

    def use() -> None:
        read_record(memoryview(data), key=b"00000001", file="db")
        datum_pixels(parse_datum(data))

    return use


def _database(backend: str) -> Callable[[random.Random, Path], Use]:
    def prepare(draw: random.Random, folder: Path) -> Use:
        """A database with one of its files damaged: all its records are read."""
        files = {name: data for name, data in _files().items() if name.startswith(f"{backend}/")}
        path = folder / backend
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        broken = draw.choice(sorted(files)) if files else ""
        for name, data in files.items():
            (folder / name).write_bytes(damaged(data, draw) if name == broken else data)
        first = draw.choice((b"", b"00000001", b"zz"))

        def use() -> None:
            for key, value in islice(open_database(path, backend).records(first), 100):
                parse_datum(bytes(value), key=key)

        return use

    return prepare


def _hdf5(draw: random.Random, folder: Path) -> Use:
    kind = draw.choice(("caffemodel", "solverstate"))
    path = folder / f"a.{kind}.h5"
    path.write_bytes(damaged(_files()[path.name], draw))
    if kind == "caffemodel":
        return lambda: hdf5.read_model(path, DEFAULT_FORK)
    return lambda: hdf5.read_state(path, DEFAULT_FORK)


TARGETS = (
    Target("prototxt by the grammar", _net, 5),
    Target("prototxt bytes", _text_bytes, 3),
    Target("solver by the grammar", _solver, 2),
    Target("wire format", _binary, 4),
    Target("caffemodel into a net", _weights_into_net, 1),
    Target("records", _record, 3),
    Target("LMDB", _database("LMDB"), 2),
    Target("LevelDB", _database("LEVELDB"), 2),
    Target("HDF5 snapshots", _hdf5, 2),
)

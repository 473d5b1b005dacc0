"""Files of Caffe with bytes changed, cut, doubled or put in: a message or an UndertowError, nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.proto import (
    Message,
    blob_array,
    get_schema,
    parse_bytes,
    parse_text,
    read_caffemodel,
    read_solverstate,
    upgrade_net,
    walk,
)
from undertow.caffe.proto.files import decode_text
from undertow.errors import UndertowError, UndertowWarning

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore::undertow.errors.UndertowWarning")]

CASES = "goldens/caffe"
TEXTS = [
    f"{CASES}/lenet/net.prototxt",
    f"{CASES}/old_v0_net/net.prototxt",
    f"{CASES}/old_texts_upgraded/v1_many_types.prototxt",
    f"{CASES}/old_texts_upgraded/v1_data_transform.prototxt",
    f"{CASES}/net_phase_rules/net.prototxt",
]
MODELS = [
    f"{CASES}/old_v0_net/old.caffemodel",
    f"{CASES}/old_v1_net/old.caffemodel",
    f"{CASES}/layer_lstm_static/init.caffemodel",
    f"{CASES}/arch_resnet/init.caffemodel",
]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three random changes."""
    result = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(result) + 1))
        kind = rng.integers(5)
        if kind == 0:
            result[place : place + 1] = rng.bytes(1)
        elif kind == 1:
            del result[place:]
        elif kind == 2:
            result[place:place] = result[place : place + int(rng.integers(1, 40))]
        elif kind == 3:
            result[place:place] = rng.bytes(int(rng.integers(1, 6)))
        else:
            del result[place : place + int(rng.integers(1, 20))]
        if not result:
            break
    return bytes(result)


def use(net: Message) -> None:
    """What a reader does with a net after reading it."""
    upgrade_net(net)
    for _, message in walk(net):
        if message.descriptor.name == "BlobProto":
            blob_array(message)
    net.to_text()
    net.to_bytes()


@pytest.mark.parametrize("name", TEXTS)
def test_texts(reference_data: Path, name: str) -> None:
    data = (reference_data / name).read_bytes()
    rng = np.random.default_rng(sum(name.encode()))
    refused = 0
    for _ in range(200):
        try:
            use(parse_text(decode_text(damaged(data, rng)), unknown="keep" if rng.random() < 0.2 else "error"))
        except UndertowError:
            refused += 1
    assert 0 < refused < 200


@pytest.mark.parametrize("name", MODELS)
def test_models(reference_data: Path, name: str) -> None:
    data = (reference_data / name).read_bytes()
    rng = np.random.default_rng(sum(name.encode()))
    refused = 0
    for _ in range(250):
        try:
            use(parse_bytes(damaged(data, rng), get_schema()["NetParameter"]))
        except UndertowError:
            refused += 1
    assert 0 < refused < 250


@pytest.mark.parametrize("name", ["snap_iter_2.caffemodel.h5", "snap_iter_2.solverstate.h5"])
def test_hdf5_snapshots(reference_data: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("h5py")
    data = (reference_data / CASES / "solver_sgd_hdf5_snapshot" / name).read_bytes()
    rng = np.random.default_rng(sum(name.encode()))
    read = read_caffemodel if "model" in name else read_solverstate
    path = tmp_path / name
    refused = 0
    for _ in range(150):
        changed = bytearray(data)
        for place in rng.integers(len(data), size=rng.integers(1, 8)):
            changed[place] = rng.integers(256)
        path.write_bytes(changed[: rng.integers(len(data))] if rng.random() < 0.2 else changed)
        try:
            read(path)
        except UndertowError:
            refused += 1
    assert 0 < refused < 150


def test_random_bytes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        data = rng.bytes(int(rng.integers(1, 60)))
        for message in ("NetParameter", "SolverState", "Datum"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndertowWarning)
                try:
                    parse_bytes(data, get_schema()[message]).to_bytes()
                except UndertowError:
                    continue

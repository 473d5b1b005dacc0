"""HDF5 files whose heaps or trees would send libhdf5 round in a circle."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.data.feed_hdf5 import Hdf5Feed
from undertow.caffe.proto import new_message, read_caffemodel, read_solverstate, write_caffemodel, write_solverstate
from undertow.caffe.proto.blobs import blob_from_array
from undertow.caffe.proto.hdf5_circles import check_circles
from undertow.errors import FormatError

h5py = pytest.importorskip("h5py")


def heaps(content: bytes) -> list[int]:
    return [at for at in range(len(content)) if content[at : at + 5] == b"HEAP\0"]


def free_places(content: bytes, heap: int) -> list[tuple[int, int]]:
    """Where the entries of a heap's free list lie in the file, and their offsets."""
    size, free, data = struct.unpack_from("<QQQ", content, heap + 8)
    found = []
    while free != 1:
        assert free < size
        found.append((data + free, free))
        (free,) = struct.unpack_from("<Q", content, data + free)
    return found


def bend(path: Path) -> None:
    """Lead every free list of a file back to its first place."""
    content = bytearray(path.read_bytes())
    bent = 0
    for heap in heaps(content):
        for at, _ in free_places(content, heap)[-1:]:
            struct.pack_into("<Q", content, at, free_places(content, heap)[0][1])
            bent += 1
    assert bent
    path.write_bytes(content)


def test_models_and_states(tmp_path: Path) -> None:
    blob = blob_from_array(np.ones((2, 3), np.float32))
    net = new_message("NetParameter")
    net.add("layer", name="ip", blobs=[blob])
    model, state = tmp_path / "a.caffemodel.h5", tmp_path / "a.solverstate.h5"
    write_caffemodel(net, model)
    write_solverstate(new_message("SolverState", iter=3, learned_net="a", history=[blob]), state)
    assert read_caffemodel(model).layer[0].name == "ip"
    assert read_solverstate(state).iter == 3
    for path, read in ((model, read_caffemodel), (state, read_solverstate)):
        bend(path)
        with pytest.raises(FormatError, match=r"\.h5: cannot be read as HDF5: the free list .* leads back.*fetch"):
            read(path)


def test_data(tmp_path: Path) -> None:
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["data"] = np.ones((4, 3), np.float32)
    assert Hdf5Feed([path], ["data"], 2).load()[0].shape == (2, 3)
    bend(path)
    with pytest.raises(FormatError, match="leads back to itself"):
        Hdf5Feed([path], ["data"], 2)


def test_a_list_of_several_places_that_ends_in_a_circle(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for index in range(40):
            file.create_group(f"a name long enough {index}")
        for index in range(0, 40, 2):
            del file[f"a name long enough {index}"]
    content = bytearray(path.read_bytes())
    places = next(found for heap in heaps(content) if len(found := free_places(content, heap)) > 3)
    check_circles(path)
    struct.pack_into("<Q", content, places[-1][0], places[2][1])
    path.write_bytes(content)
    with pytest.raises(FormatError, match="leads back to itself"):
        check_circles(path)


@pytest.mark.parametrize("chunks", [None, (1,)], ids=["names", "chunks"])
def test_trees_whose_nodes_lead_back(tmp_path: Path, chunks: tuple[int] | None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=np.ones(300, np.float32), chunks=chunks)
    assert Hdf5Feed([path], ["data"], 300).load()[0].sum() == 300
    content = bytearray(path.read_bytes())
    # Signature, type (0 names, 1 chunks), level, entries, the neighbours to the left and to the right.
    nodes = [at for at in range(len(content)) if content[at : at + 5] == b"TREE" + bytes([chunks is not None])]
    pairs = [(at, *struct.unpack_from("<QQ", content, at + 8)) for at in nodes]
    last, left = next((at, left) for at, left, right in pairs if right > len(content) and (not chunks or left < at))
    struct.pack_into("<Q", content, last + 16, left if chunks else last)
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"the chain of nodes from byte .* leads back to itself"):
        Hdf5Feed([path], ["data"], 300)


@pytest.mark.parametrize("options", [{}, {"libver": "latest"}, {"userblock_size": 1024}], ids=str)
def test_sound_files_pass(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", **options) as file:
        for index in range(60):
            file[f"group {index}/data"] = np.full(8, index)
        for index in range(0, 60, 3):
            del file[f"group {index}"]
        file["heap"] = np.frombuffer(b"HEAP" + bytes(60) + b"HEAP\0\0\0\0" + bytes(range(56)), np.uint8)
    check_circles(path)
    assert Hdf5Feed([path], ["heap"], 2).load()[0].shape == (2,)


def test_a_user_block_moves_all_addresses(tmp_path: Path) -> None:
    path, plain = tmp_path / "a.h5", tmp_path / "b.h5"
    for one, options in ((path, {"userblock_size": 512}), (plain, {})):
        with h5py.File(one, "w", **options) as file:
            file["data"] = np.ones(4)
    bend(plain)
    path.write_bytes(bytes(512) + plain.read_bytes())
    with pytest.raises(FormatError, match="leads back to itself"):
        check_circles(path)


def test_reference_files_pass(reference_data: Path) -> None:
    files = [path for folder in ("goldens/caffe", "data") for path in (reference_data / folder).rglob("*.h5")]
    assert len(files) > 10
    for path in files:
        check_circles(path)


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + bytes(20), bytes(600)], ids=len)
def test_what_is_no_hdf5_is_left_to_the_library(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(content)
    check_circles(path)

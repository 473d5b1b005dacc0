"""Reading and writing whole files: what goes wrong around them, and that writing is all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.proto import api as api_module
from undertow.caffe.proto import (
    blob_array,
    blob_from_array,
    blob_shape,
    files,
    find_beside,
    new_message,
    read_binary,
    read_caffemodel,
    read_prototxt,
    read_solver,
    read_solverstate,
    write_binary,
    write_caffemodel,
    write_prototxt,
    write_solverstate,
)
from undertow.errors import FormatError, UndertowWarning


def file(folder: Path, data: bytes, name: str = "some.file") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("read", [read_prototxt, read_solver, read_caffemodel, read_solverstate])
def test_missing_files_and_folders(tmp_path: Path, read) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(FormatError, match=r"cannot be read: .*check the path") as caught:
            read(path)
        assert caught.value.file == str(path)
    with pytest.raises(FormatError, match="cannot be read"):
        read("a\0b")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('name: "x"'.encode("utf-16"), "written in UTF-16.*save it as UTF-8"),
        (b'name: "x"\n\n\0', "some.file:3: byte 11: a zero byte: this is not a text file"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_prototxt(file(tmp_path, data))


def test_too_large_for_a_prototxt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_TEXT", 10)
    with pytest.raises(FormatError, match="more than 10 bytes"):
        read_prototxt(file(tmp_path, b"name: 'too long'"))


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "download the file again"),
        (b'name: "lenet"\nlayer {\n  name: "x"\n}\n', "looks like a prototxt"),
    ],
)
def test_files_of_another_kind_are_recognised(tmp_path: Path, data: bytes, remedy: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_caffemodel(file(tmp_path, data))
    assert remedy in (caught.value.remedy or "")


def test_empty_model(tmp_path: Path) -> None:
    path = file(tmp_path, b"")
    with pytest.warns(UndertowWarning, match="the file is empty"):
        assert read_caffemodel(path).layer == []
    with pytest.raises(FormatError, match="the file is empty"):
        read_caffemodel(path, strict=True)


def test_unknown_fields_are_reported_once_and_kept(tmp_path: Path) -> None:
    data = b"\xa2\x06\x03\xf8\x3f\x01" * 3 + b"\xf8\x40\x01"
    path = file(tmp_path, data)
    expected = (
        r"LayerParameter field 1023 \(first in layer\[0\], 3 in all\); NetParameter field 1039 \(first in the message"
    )
    with pytest.warns(UndertowWarning, match=expected):
        net = read_caffemodel(path)
    assert net.to_bytes() == data
    with pytest.raises(FormatError, match=expected):
        read_caffemodel(path, strict=True)


def test_unknown_fields_name_the_fork_that_has_them(tmp_path: Path) -> None:
    path = file(tmp_path, b"\xa2\x06\x05\xea\x02\x02\x18\x01")
    with pytest.warns(UndertowWarning, match='LayerParameter field 45 .*read with fork="segnet"'):
        read_caffemodel(path)
    assert read_caffemodel(path, fork="segnet").layer[0].bn_param.bn_mode == "INFERENCE"


def test_solver_prefixes(tmp_path: Path) -> None:
    (tmp_path / "snaps").mkdir()
    path = file(tmp_path, b"base_lr: 1", "my_solver.prototxt")
    assert read_solver(path).snapshot_prefix == str(tmp_path / "my_solver")
    path = file(tmp_path, f'snapshot_prefix: "{tmp_path}/snaps"'.encode(), "my_solver.prototxt")
    assert read_solver(path).snapshot_prefix == str(tmp_path / "snaps" / "my_solver")
    path = file(tmp_path, b'snapshot_prefix: "else/where"', "my_solver.prototxt")
    assert read_solver(path).snapshot_prefix == "else/where"


def test_named_files_are_looked_for_here_then_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets").mkdir()
    here, beside = tmp_path / "a.prototxt", tmp_path / "nets" / "a.prototxt"
    beside.touch()
    monkeypatch.chdir(tmp_path)
    solver = "nets/solver.prototxt"
    assert find_beside("a.prototxt", solver) == os.path.join("nets", "a.prototxt")
    here.touch()
    assert find_beside("a.prototxt", solver) == "a.prototxt"
    assert find_beside("missing", solver) == "missing"
    assert find_beside(str(beside), solver) == str(beside)


def net_with_weights(dtype: type = np.float32, diff: bool = False):
    values = np.arange(6, dtype=dtype).reshape(2, 3)
    blobs = [blob_from_array(values, values + 1 if diff else None), blob_from_array(np.array(7, dtype))]
    return new_message("NetParameter", layer=[{"name": "a/b", "blobs": blobs}, {"name": "relu"}])


@pytest.mark.parametrize("suffix", ["", ".h5"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("diff", [False, True])
def test_models_come_back(tmp_path: Path, suffix: str, dtype: type, diff: bool) -> None:
    if suffix:
        pytest.importorskip("h5py")
    net = net_with_weights(dtype, diff)
    path = tmp_path / f"m.caffemodel{suffix}"
    write_caffemodel(net, path)
    again = read_caffemodel(path)
    assert [layer.name for layer in again.layer] == ["a/b", "relu"]
    weights, single = again.layer[0].blobs
    np.testing.assert_array_equal(blob_array(weights), np.arange(6, dtype=dtype).reshape(2, 3), strict=True)
    assert (blob_shape(single), blob_array(single)) == ((), 7)
    assert blob_array(weights, diff=True).size == (6 if diff else 0)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_solver_states_come_back(tmp_path: Path, suffix: str) -> None:
    if suffix:
        pytest.importorskip("h5py")
    history = [blob_from_array(np.ones((2, 2), np.float32)), blob_from_array(np.zeros(3, np.float32))]
    state = new_message("SolverState", iter=7, learned_net="nät.caffemodel", history=history, current_step=2)
    path = tmp_path / f"s.solverstate{suffix}"
    write_solverstate(state, path)
    assert read_solverstate(path) == state


def test_hdf5_states_have_caffes_types(tmp_path: Path, reference_data: Path) -> None:
    h5py = pytest.importorskip("h5py")
    original = reference_data / "data/caffe/cifar10_quick/cifar10_quick_iter_5000.solverstate.h5"
    write_solverstate(read_solverstate(original), tmp_path / "s.h5")

    def layout(path: Path) -> dict[str, object]:
        found = {}
        with h5py.File(path) as opened:
            opened.visititems(lambda name, item: found.update({name: description(item)}))
        return found

    def description(item) -> object:
        if isinstance(item, h5py.Group):
            return "group"
        kind = item.id.get_type()
        string = (kind.get_size(), kind.get_strpad()) if item.dtype.kind == "S" else None
        return item.dtype, item.shape, string, item[()].tobytes()

    assert layout(tmp_path / "s.h5") == layout(original)


def test_shared_blobs_have_only_a_diff_in_hdf5(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    shared = new_message("BlobProto", diff=[1, 2], shape={"dim": [2]})
    owner = blob_from_array(np.zeros(2, np.float32), np.ones(2, np.float32))
    net = new_message("NetParameter", layer=[{"name": "a", "blobs": [owner]}, {"name": "b", "blobs": [shared]}])
    write_caffemodel(net, tmp_path / "m.h5")
    again = read_caffemodel(tmp_path / "m.h5")
    assert again.layer[1].blobs[0] == shared
    assert again == net


def test_hdf5_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    for names in (["a", "a"], [""]):
        net = new_message("NetParameter", layer=[{"name": name} for name in names])
        with pytest.raises(FormatError, match="a name of its own"):
            write_caffemodel(net, tmp_path / "m.h5")
    assert os.listdir(tmp_path) == []


def test_hdf5_of_something_else(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as opened:
        opened.create_dataset("data/conv/weights", data=np.zeros(3))
        opened.create_dataset("iter", data=np.zeros(2, np.int32))
    with pytest.raises(FormatError, match="datasets of a layer are numbered"):
        read_caffemodel(path)
    with pytest.raises(FormatError, match="iter should be one number, not 2"):
        read_solverstate(path)
    with h5py.File(path, "w") as opened:
        opened.create_dataset("data/conv/1", data=np.zeros(3))
    with pytest.raises(FormatError, match="blobs are missing"):
        read_caffemodel(path)
    with h5py.File(path, "w") as opened:
        opened.create_dataset("other", data=np.zeros(3))
    with pytest.raises(FormatError, match="no group 'data'"):
        read_caffemodel(path)
    with pytest.raises(FormatError, match="no dataset 'iter'"):
        read_solverstate(path)


def test_hdf5_dataset_that_claims_more_than_the_file_has(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for options in ({}, {"chunks": (1 << 20,), "compression": "gzip"}):
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as opened:
            opened.create_dataset("data/conv/0", shape=(1 << 40,), dtype="f4", **options)
        with pytest.raises(FormatError, match="claims 4398046511104 bytes, the file has 0"):
            read_caffemodel(path)


def test_hdf5_links_and_rings_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as opened:
        group = opened.create_group("data/a")
        for name in "bcdef":
            group[name] = group
    with pytest.raises(FormatError, match="groups inside themselves"):
        read_caffemodel(path)
    for link in (h5py.SoftLink("/data"), h5py.ExternalLink("other.h5", "/data")):
        with h5py.File(path, "w") as opened:
            opened.create_group("data")["a"] = link
        with pytest.raises(FormatError, match="data/a is a link"):
            read_caffemodel(path)


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"h5py.*undertow\[caffe\]"):
        write_caffemodel(net_with_weights(), tmp_path / "m.h5")
    with pytest.raises(ImportError, match=r"h5py.*undertow\[caffe\]"):
        read_caffemodel(file(tmp_path, files.HDF5_SIGNATURE + bytes(100)))
    assert os.listdir(tmp_path) == ["some.file"]


def test_text_files_come_back(tmp_path: Path) -> None:
    net = new_message("NetParameter", name="néť", layer=[{"name": "a", "type": "ReLU"}])
    write_prototxt(net, tmp_path / "net.prototxt")
    assert read_prototxt(tmp_path / "net.prototxt") == net


@pytest.mark.parametrize("write", [write_prototxt, write_binary, write_caffemodel])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    path = file(tmp_path, b"old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(net_with_weights(), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_an_open_model_survives_its_own_overwriting(tmp_path: Path) -> None:
    path = tmp_path / "m.caffemodel"
    write_caffemodel(net_with_weights(), path)
    net = read_caffemodel(path)
    write_caffemodel(net, path)
    assert read_caffemodel(path) == net_with_weights()


def test_beyond_two_gigabytes_the_original_is_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_PROTOBUF_LIMIT", 10)
    with pytest.warns(UndertowWarning, match="Caffe itself reads at most 2 GiB"):
        write_binary(net_with_weights(), tmp_path / "m")
    with pytest.raises(FormatError, match="at most 2 GiB"):
        write_binary(net_with_weights(), tmp_path / "m", strict=True)


def test_half_precision_of_nvidias_fork(tmp_path: Path) -> None:
    values = np.array([1, 2.5], np.float16)
    blob = {"raw_data": values.tobytes(), "raw_data_type": "FLOAT16", "shape": {"dim": [2, 1]}}
    net = new_message("NetParameter", "nvidia", layer=[{"blobs": [blob]}])
    write_binary(net, tmp_path / "m")
    array = blob_array(read_binary(tmp_path / "m", "NetParameter", fork="nvidia").layer[0].blobs[0])
    np.testing.assert_array_equal(array, np.array([[1], [2.5]], np.float32), strict=True)
    net.layer[0].blobs[0].raw_data = b"123"
    with pytest.raises(FormatError, match="3 bytes of raw_data are no whole number of FLOAT16s"):
        blob_array(net.layer[0].blobs[0])


def test_blobs_and_their_shapes() -> None:
    blob = blob_from_array(np.arange(6, dtype=np.int64).reshape(2, 3))
    assert blob.data.dtype == np.float32
    assert blob_shape(blob) == (2, 3)
    blob.shape.dim[0] = 5
    with pytest.raises(FormatError, match="layer fc: a blob of shape 5 x 3 holds 6 values"):
        blob_array(blob, layer="fc")
    blob.shape.dim[:] = [-2, -3]
    with pytest.raises(FormatError, match="a blob of shape -2 x -3"):
        blob_array(blob)
    blob.clear_field("shape")
    assert blob_shape(blob) == (6,)
    with pytest.raises(FormatError, match="a diff of shape"):
        blob_from_array(np.zeros(2), np.zeros(3))
    assert blob_array(new_message("BlobProto")).shape == (0,)

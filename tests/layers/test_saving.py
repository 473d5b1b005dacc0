"""Saving and loading: round trips, refusal of everything that is not numbers, damaged files."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

import undertow as ut
from undertow.core import Parameter
from undertow.errors import FormatError, MissingPackage, ShapeError, UndertowError
from undertow.layers import Module
from undertow.layers.saving import load, save
from undertow.optimizers import Adam

ENDINGS = [".npz", ".safetensors"]


class Net(Module):
    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.weight = Parameter(rng.normal(size=(2, 3)).astype(np.float32))
        self.register_buffer("mean", rng.normal(size=3).astype(np.float32))


def arrays_of_all_kinds(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "plain": rng.normal(size=(3, 4)).astype(np.float32),
        "layer/with.dots": rng.normal(size=5),
        "scalar": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float32),
        "half": rng.normal(size=4).astype(np.float16),
        "bytes": np.arange(5, dtype=np.uint8),
        "truth": np.array([True, False]),
        "columns": np.asfortranarray(rng.normal(size=(3, 4))),
        "strided": np.arange(20.0)[::3],
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_round_trip(ending: str, tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = arrays_of_all_kinds(rng)
    path = tmp_path / f"arrays{ending}"
    ut.save(path, arrays)
    loaded = ut.load(path)
    assert set(loaded) == set(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].flags.c_contiguous
        assert loaded[name].flags.writeable
        np.testing.assert_array_equal(loaded[name], array, err_msg=name)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_numpy_itself_reads_and_writes_the_same_npz(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = arrays_of_all_kinds(rng)
    save(tmp_path / "ours.npz", arrays)
    with np.load(tmp_path / "ours.npz", allow_pickle=False) as theirs:
        for name, array in arrays.items():
            np.testing.assert_array_equal(theirs[name], array)
    for writer in (np.savez, np.savez_compressed):
        writer(tmp_path / "theirs.npz", **arrays)
        loaded = load(tmp_path / "theirs.npz")
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name], array)
    np.savez(tmp_path / "big.npz", x=np.arange(4, dtype=">i4"))
    loaded = load(tmp_path / "big.npz")
    assert loaded["x"].dtype == np.dtype(np.int32)
    np.testing.assert_array_equal(loaded["x"], np.arange(4))


def test_pytorch_users_read_our_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    torch_files = pytest.importorskip("safetensors.torch")
    save(tmp_path / "net.safetensors", Net(1))
    loaded = torch_files.load_file(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(loaded["weight"].numpy(), Net(1).weight.data)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_checkpoint_of_model_optimiser_and_numbers(ending: str, tmp_path: Path) -> None:
    net = Net(1)
    optimizer = Adam(net)
    net.weight.grad = np.ones((2, 3), np.float32)
    optimizer.update()
    path = tmp_path / f"checkpoint{ending}"
    save(path, {"net": net, "optimizer": optimizer, "best": {"loss": 0.25, "epoch": 3}})
    other = Net(2)
    resumed = Adam(other)
    arrays = load(path, {"net": other, "optimizer": resumed})
    assert arrays["best/loss"] == 0.25
    assert arrays["best/epoch"] == 3
    np.testing.assert_array_equal(other.weight.data, net.weight.data)
    np.testing.assert_array_equal(other.mean, net.mean)
    assert resumed.iteration == 1
    for key, array in optimizer.state().items():
        np.testing.assert_array_equal(resumed.state()[key], array)


def test_a_model_alone(tmp_path: Path) -> None:
    save(tmp_path / "net.npz", Net(1))
    other = Net(2)
    load(tmp_path / "net.npz", other)
    np.testing.assert_array_equal(other.weight.data, Net(1).weight.data)
    with pytest.raises(UndertowError, match="missing"):
        load(tmp_path / "net.npz", {"model": other})
    save(tmp_path / "bad.npz", {"weight": np.zeros((3, 2), np.float32), "mean": np.zeros(3, np.float32)})
    with pytest.raises(ShapeError, match=r"'weight' has shape \(3, 2\)"):
        load(tmp_path / "bad.npz", other)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", Net(1))
    save(tmp_path / "b.npz", Net(1))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_only_numbers_are_written_and_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    save(path, {"x": np.ones(2)})
    for value in (np.array([object()]), "text", np.array(["a"]), None):
        with pytest.raises(UndertowError, match=r"'part/y' is a .* that does not hold numbers"):
            save(path, {"part": {"y": value}})
    with pytest.raises(UndertowError, match="got int"):
        save(path, 3)  # type: ignore[arg-type]
    assert list(load(path)) == ["x"]
    with pytest.raises(UndertowError, match="complex"):
        save(tmp_path / "x.safetensors", {"x": np.ones(1, np.complex128)})
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.npz"]


def test_unknown_endings_name_the_known_ones(tmp_path: Path) -> None:
    for action in (lambda p: save(p, Net(1)), load):
        with pytest.raises(UndertowError, match=r"'.pkl' says nothing.*use .npz or .safetensors"):
            action(tmp_path / "model.pkl")


def test_missing_safetensors_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingPackage, match=r"pip install 'undertow\[safetensors\]'"):
        save(tmp_path / "x.safetensors", Net(1))
    with pytest.raises(MissingPackage, match="safetensors"):
        load(tmp_path / "x.safetensors")


def test_a_file_that_is_not_there_stays_an_os_error(tmp_path: Path) -> None:
    for ending in ENDINGS:
        with pytest.raises(FileNotFoundError):
            load(tmp_path / f"absent{ending}")


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FormatError, match="holds object, not numbers"):
        load(path)


def write_member(path: Path, header: dict[str, object], content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        npy.write_array_header_1_0(member, header)
        member.write(content)


@pytest.mark.parametrize("shape", [(10**12,), (2**40, 2**40), (-1, 3), (3,)])
def test_shapes_that_the_bytes_do_not_bear_out_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_member(path, {"descr": "<f4", "fortran_order": False, "shape": shape}, bytes(16))
    with pytest.raises(FormatError, match=r"x\.npz: .*has 16 bytes"):
        load(path)


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "x"):
            with archive.open(name, "w") as member:
                npy.write_array(member, np.zeros(1))
    with pytest.raises(FormatError, match="two arrays are called 'x'"):
        load(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("saved")
    arrays = {"first": np.arange(12.0, dtype=np.float32).reshape(3, 4), "second": np.arange(5)}
    files = {}
    for ending in ENDINGS:
        save(folder / f"x{ending}", arrays)
        files[ending] = (folder / f"x{ending}").read_bytes()
    return files


def read_damaged(content: bytes, ending: str, folder: Path) -> dict[str, np.ndarray] | None:
    """The arrays, or None where the reader refuses them; any other exception is a failure."""
    path = folder / f"damaged{ending}"
    path.write_bytes(content)
    with contextlib.suppress(FormatError):
        return load(path)
    return None


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_cut_anywhere_is_refused(ending: str, saved: dict[str, bytes], tmp_path: Path) -> None:
    whole = saved[ending]
    for length in range(len(whole)):
        assert read_damaged(whole[:length], ending, tmp_path) is None


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_never_crashes_the_reader(
    data: st.DataObject, saved: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ending = data.draw(st.sampled_from(ENDINGS))
    content = bytearray(saved[ending])
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    arrays = read_damaged(bytes(content), ending, tmp_path_factory.getbasetemp())
    if arrays is not None:
        assert sum(array.nbytes for array in arrays.values()) <= len(content)

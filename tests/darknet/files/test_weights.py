"""Reading and writing .weights files."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.support import warned
from undertow.darknet.files.cfg import make_config, read_cfg
from undertow.darknet.files.shapes import NetworkShapes, infer_shapes
from undertow.darknet.files.weights import WeightsFile, read_weights, write_weights
from undertow.errors import FormatError, ShapeError, UndertowWarning

Arrays = dict[tuple[int, str], np.ndarray]


def network(*layers: tuple[str, dict[str, Any]]) -> NetworkShapes:
    return infer_shapes(make_config([("net", {"width": 4, "height": 4, "channels": 2}), *layers]))


SMALL = network(
    ("convolutional", {"filters": 3, "size": 3, "pad": 1, "batch_normalize": 1}),
    ("maxpool", {"size": 2, "stride": 2}),
    ("connected", {"output": 5, "batch_normalize": 1}),
    ("connected", {"output": 2}),
)


def numbered(shapes: NetworkShapes) -> Arrays:
    """Arrays whose values say where in the file they stand: 1, 2, 3..."""
    arrays, position = {}, 1
    for layer in shapes:
        for spec in layer.parameters:
            values = np.arange(position, position + spec.count, dtype=np.float32)
            arrays[spec.layer, spec.name] = values.reshape(spec.shape)
            position += spec.count
    return arrays


def save(path: Path, shapes: NetworkShapes, arrays: Arrays, **options: Any) -> bytes:
    write_weights(path, shapes, lambda layer, name: arrays[layer, name], **options)
    return path.read_bytes()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.weights"
    save(path, SMALL, numbered(SMALL), seen=5_000_000_123)
    return path


def test_bytes_of_a_file(file: Path) -> None:
    data = file.read_bytes()
    assert struct.unpack_from("<3iQ", data) == (0, 2, 0, 5_000_000_123)
    np.testing.assert_array_equal(np.frombuffer(data, "<f4", offset=20), np.arange(1, SMALL.parameters + 1))


def test_read_back(file: Path) -> None:
    weights = read_weights(file, SMALL, strict=True)
    assert weights.seen == 5_000_000_123
    assert weights.loaded_layers == weights.wanted_layers == (0, 2, 3)
    expected = numbered(SMALL)
    assert set(weights.arrays) == set(expected)
    for key, array in weights.arrays.items():
        np.testing.assert_array_equal(array, expected[key])
    assert weights.report == []


def test_copied_into_a_network(file: Path) -> None:
    target = {key: np.zeros(array.size, np.float64) for key, array in numbered(SMALL).items()}
    read_weights(file, SMALL).copy_into(lambda layer, name: target[layer, name])
    np.testing.assert_array_equal(target[2, "weights"], numbered(SMALL)[2, "weights"].reshape(-1))
    with pytest.raises(ShapeError, match="'biases' holds 1 values, the file 3"):
        read_weights(file, SMALL).copy_into(lambda layer, name: np.zeros(1))


def test_cut_off_after_a_layer(file: Path, tmp_path: Path) -> None:
    arrays = numbered(SMALL)
    partial = save(tmp_path / "cut.weights", SMALL, arrays, cutoff=1)
    assert len(partial) == 20 + 4 * SMALL[0].stored
    weights, told = warned(lambda: read_weights(tmp_path / "cut.weights", SMALL))
    assert weights.loaded_layers == (0,)
    assert weights.is_partial
    assert "1 of 3 layers loaded (partial file)" in told[0]
    with pytest.raises(FormatError, match="partial file"):
        read_weights(tmp_path / "cut.weights", SMALL, strict=True)
    first = read_weights(file, SMALL, cutoff=1, strict=True)
    assert {key[0] for key in first.arrays} == {0}
    assert not first.is_partial


def test_every_way_of_being_cut(file: Path) -> None:
    data = file.read_bytes()
    boundaries = {20 + 4 * SMALL[0].stored: 1, 20 + 4 * (SMALL[0].stored + SMALL[2].stored): 2}
    for length in range(len(data)):
        file.write_bytes(data[:length])
        if length in boundaries:
            with pytest.warns(UndertowWarning, match=f"{boundaries[length]} of 3 layers"):
                read_weights(file, SMALL)
            continue
        with pytest.raises(FormatError) as caught:
            read_weights(file, SMALL)
        assert caught.value.file == str(file)
        assert caught.value.offset in (0, length)
        if length > 20:
            assert caught.value.layer == next(n for n, end in ((0, 1), (2, 2), (3, 3)) if _end(end) > length)


def _end(layers: int) -> int:
    return 20 + 4 * sum(SMALL[index].stored for index in (0, 2, 3)[:layers])


def test_original_reading_loads_what_there_is(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: 20 + 4 * 20])
    weights, told = warned(lambda: read_weights(file, SMALL, original=True))
    assert "ends inside this layer" in told[0]
    np.testing.assert_array_equal(weights.prefixes[0, "weights"], np.arange(13, 21))
    target = {key: np.zeros_like(array) for key, array in numbered(SMALL).items()}
    weights.copy_into(lambda layer, name: target[layer, name])
    assert target[0, "weights"].reshape(-1)[7] == 20
    assert target[0, "weights"].reshape(-1)[8] == 0


def test_values_no_training_leaves_behind(tmp_path: Path) -> None:
    arrays = numbered(SMALL)
    arrays[0, "weights"].flat[3] = np.inf
    arrays[2, "rolling_variance"][:2] = -1
    arrays[3, "biases"][:] = np.nan
    save(tmp_path / "odd.weights", SMALL, arrays)
    weights, told = warned(lambda: read_weights(tmp_path / "odd.weights", SMALL))
    assert weights.report == [
        "layer 0 holds 1 infinite values in its weights",
        "layer 2 holds 2 negative values in its rolling_variance",
        "layer 3 holds 2 NaN in its biases",
    ]
    assert len(told) == 1
    assert "and 2 more arrays" in told[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes, not a Darknet weights file"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "it holds text: '<!DOCTYPE html>"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "its header would mean version"),
        (struct.pack("<4i", 0, 2, 0, 7), "the header is cut off: 16 bytes"),
        (struct.pack("<3iQ", 0, 2, 0, 7), "it holds no parameters"),
        (struct.pack("<3iQ", -1, 2, 0, 7) + bytes(100), "version -1.2.0"),
    ],
)
def test_files_that_are_no_weights(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "bad.weights"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=reason):
        read_weights(path, SMALL)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        read_weights(tmp_path / "absent.weights", SMALL)
    with pytest.raises(FormatError, match="cannot be read"):
        read_weights(tmp_path, SMALL)


def test_counter_that_cannot_be_right(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[19] = 0x80
    file.write_bytes(data)
    with pytest.warns(UndertowWarning, match="counter of images seen"):
        read_weights(file, SMALL)


def test_32_bit_counters_are_unsigned(tmp_path: Path) -> None:
    shapes = network(("connected", {"output": 1}))
    path = tmp_path / "old.weights"
    path.write_bytes(struct.pack("<3iI", 0, 1, 0, 3_000_000_000) + bytes(4 * shapes.parameters))
    assert read_weights(path, shapes).seen == 3_000_000_000


def test_batchnorm_layers_of_the_fork_keep_their_biases(tmp_path: Path) -> None:
    shapes = network(("batchnorm", {}))
    path = tmp_path / "fork.weights"
    body = np.arange(1, 9, dtype="<f4")
    path.write_bytes(struct.pack("<3iQ", 0, 2, 5, 0) + body.tobytes())
    fork = read_weights(path, shapes, strict=True)
    np.testing.assert_array_equal(fork.arrays[0, "biases"], [1, 2])
    np.testing.assert_array_equal(fork.arrays[0, "scales"], [3, 4])
    path.write_bytes(struct.pack("<3iQ", 0, 2, 5, 0) + body[:6].tobytes())
    np.testing.assert_array_equal(read_weights(path, shapes, strict=True).arrays[0, "scales"], [1, 2])


def test_failed_write_leaves_the_old_file(file: Path) -> None:
    before = file.read_bytes()
    arrays = numbered(SMALL)
    arrays[3, "biases"] = np.zeros(7)
    with pytest.raises(ShapeError, match="'biases' has 7 values"):
        save(file, SMALL, arrays)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be written: No such file or directory"):
        save(tmp_path / "absent" / "small.weights", SMALL, numbered(SMALL))
    with pytest.raises(FormatError, match="does not fit"):
        save(tmp_path / "small.weights", SMALL, numbered(SMALL), seen=2**64)
    assert list(tmp_path.iterdir()) == []


# --- against the files and states recorded from the original ---


def golden(reference_data: Path, case: str) -> Path:
    return reference_data / "goldens" / "darknet" / case


def shapes_from(path: Path) -> NetworkShapes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndertowWarning)
        return infer_shapes(read_cfg(path, original=True))


def trace(folder: Path, prefix: str) -> Arrays:
    """Parameters from a trace: `PREFIX/layerNN/name`, by layer and name."""
    arrays = {}
    with np.load(folder / "trace.npz") as recorded:
        for key in recorded.files:
            if key.startswith(f"{prefix}layer"):
                layer, _, name = key.removeprefix(prefix).partition("/")
                arrays[int(layer.removeprefix("layer")), name] = recorded[key]
    return arrays


def loaded(folder: Path, cfg: str, weights: str, **options: Any) -> tuple[WeightsFile, Arrays]:
    """What a network holds after loading, starting from the recorded state before it."""
    state = trace(folder, "before/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndertowWarning)
        found = read_weights(folder / weights, shapes_from(folder / cfg), original=True, **options)
    found.copy_into(lambda layer, name: state[layer, name])
    return found, state


@pytest.mark.reference
@pytest.mark.parametrize(
    ("tag", "cfg", "weights", "options"),
    [
        ("v02", "net.cfg", "v02.weights", {}),
        ("v01", "net.cfg", "v01.weights", {}),
        ("v10", "net.cfg", "v10.weights", {}),
        ("transposed", "net.cfg", "transposed.weights", {}),
        ("short", "net.cfg", "short.weights", {}),
        ("long", "net.cfg", "long.weights", {}),
        ("cutoff2", "net.cfg", "v02.weights", {"cutoff": 2}),
        ("start1_cutoff3", "net.cfg", "v02.weights", {"start": 1, "cutoff": 3}),
        ("dontload", "flags.cfg", "v02.weights", {}),
        ("dontloadscales", "dontloadscales.cfg", "v02.weights", {}),
        ("numload", "numload.cfg", "v02.weights", {}),
        ("flipped", "flipped.cfg", "v02.weights", {}),
    ],
)
def test_every_way_of_loading(reference_data: Path, tag: str, cfg: str, weights: str, options: dict[str, int]) -> None:
    folder = golden(reference_data, "io_weights")
    found, state = loaded(folder, cfg, weights, **options)
    with np.load(folder / "trace.npz") as recorded:
        assert found.seen == recorded[f"{tag}/seen"]
    expected = trace(folder, f"{tag}/after/")
    assert set(state) == set(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(state[key], array, err_msg=f"{tag} {key}")


@pytest.mark.reference
@pytest.mark.parametrize(
    ("saved", "cfg", "weights", "options"),
    [
        ("v02_saved_full", "net.cfg", "v02.weights", {}),
        ("v01_saved_full", "net.cfg", "v01.weights", {}),
        ("v10_saved_full", "net.cfg", "v10.weights", {}),
        ("v02_saved_upto", "net.cfg", "v02.weights", {"cutoff": 2}),
        ("v02_saved_clear", "net.cfg", "v02.weights", {"seen": 0}),
    ],
)
def test_every_way_of_saving(
    reference_data: Path, tmp_path: Path, saved: str, cfg: str, weights: str, options: dict[str, int]
) -> None:
    folder = golden(reference_data, "io_weights")
    found, state = loaded(folder, cfg, weights)
    data = save(tmp_path / "saved.weights", shapes_from(folder / cfg), state, **({"seen": found.seen} | options))
    assert data == (folder / f"{saved}.weights").read_bytes()


@pytest.mark.reference
def test_layers_with_dontsave_are_left_out(reference_data: Path, tmp_path: Path) -> None:
    """Recorded from a net whose layer 0 (dontload=1) was fresh, so that layer comes from the file itself."""
    folder = golden(reference_data, "io_weights")
    found, state = loaded(folder, "flags.cfg", "v02.weights")
    fresh = read_weights(folder / "dontsave_full.weights", shapes_from(folder / "net.cfg"), cutoff=1)
    data = save(tmp_path / "saved.weights", shapes_from(folder / "flags.cfg"), state | fresh.arrays, seen=found.seen)
    assert data == (folder / "dontsave_full.weights").read_bytes()


@pytest.mark.reference
def test_file_order_of_every_layer_type(reference_data: Path) -> None:
    folder = golden(reference_data, "io_weights_layers")
    found = read_weights(folder / "init.weights", shapes_from(folder / "net.cfg"), strict=True)
    expected = trace(folder, "")
    assert set(found.arrays) == set(expected) - {(2, "biases")}  # the file has none for a batchnorm layer
    for key, array in found.arrays.items():
        np.testing.assert_array_equal(array, expected[key], err_msg=str(key))


@pytest.mark.reference
def test_loaded_and_saved_files_are_identical(reference_data: Path, tmp_path: Path) -> None:
    files = sorted((reference_data / "goldens" / "darknet").glob("*/init.weights"))
    assert len(files) > 100
    for path in files:
        shapes = shapes_from(path.parent / "net.cfg")
        found = read_weights(path, shapes, strict=True)
        data = save(tmp_path / "again.weights", shapes, found.arrays, seen=found.seen)
        assert data == path.read_bytes(), path.parent.name

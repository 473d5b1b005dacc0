"""Files cut, changed or made of nonsense: a result or an UndertowError, quickly and in little memory."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from undertow.darknet.files.cfg import make_config, parse_cfg, read_cfg
from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.labels import read_labels
from undertow.darknet.files.masks import read_masks
from undertow.darknet.files.names import read_names
from undertow.darknet.files.option_fields import option_fields
from undertow.darknet.files.options import SECTIONS
from undertow.darknet.files.shapes import infer_shapes
from undertow.darknet.files.weights import read_weights, write_weights
from undertow.errors import UndertowError, UndertowWarning

CFG = b"""[net]
batch=4
subdivisions=2
width=32
height=32
channels=3
policy=steps
steps=10,20
scales=.1,.1

[convolutional]
batch_normalize=1
filters=16
size=3
stride=2
pad=1
activation=leaky

[maxpool]
size=2
stride=1

[route]
layers=-1,0

[shortcut]
from=-3
activation=linear

[upsample]
stride=2

[convolutional]
filters=14
size=1
activation=linear

[yolo]
mask=0,1
anchors=10,14, 23,27
classes=2
num=2
"""
SHAPES = infer_shapes(make_config([
    ("net", {"width": 3, "height": 3, "channels": 2}),
    ("convolutional", {"filters": 3, "size": 3, "batch_normalize": 1}),
    ("connected", {"output": 4}),
]))  # fmt: skip
MEBIBYTE = 2**20

quick = settings(deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """A result, an UndertowError or an UndertowWarning; anything else fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndertowWarning)
        with contextlib.suppress(UndertowError):
            yield


def peak_memory(function: Callable[[], Any]) -> int:
    """Bytes that a call took at its peak."""
    tracemalloc.start()
    try:
        with quietly():
            function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The data cut, with bytes changed, removed, repeated or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(changed)))
        match draw(st.sampled_from(["change", "cut", "remove", "insert", "repeat"])):
            case "change":
                changed[position : position + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del changed[position:]
            case "remove":
                del changed[position : position + draw(st.integers(1, 20))]
            case "insert":
                changed[position:position] = draw(st.binary(max_size=20))
            case "repeat":
                changed[position:position] = changed[position : position + 40]
    return bytes(changed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@quick
@given(data=damaged(CFG), original=st.booleans(), strict=st.booleans())
def test_damaged_cfg(path: Path, data: bytes, original: bool, strict: bool) -> None:
    path.write_bytes(data)
    with quietly():
        infer_shapes(read_cfg(path, strict=strict, original=original))


def test_cfg_cut_at_every_byte(path: Path) -> None:
    for length in range(len(CFG)):
        path.write_bytes(CFG[:length])
        with quietly():
            infer_shapes(read_cfg(path))


_VALUES = st.one_of(
    st.integers(-3, 12).map(str),
    st.sampled_from(
        ["0", "2147483647", "-2147483648", "99999999999", "1e38", "-1", ".5", "leaky", "steps", "x", "", ","]
    ),
    st.lists(st.integers(-4, 40), max_size=5).map(lambda items: ",".join(map(str, items))),
)


@st.composite
def nonsense_section(draw: st.DrawFn) -> str:
    """A known section with some of its keys at small, absurd or wrong values."""
    name = draw(st.sampled_from(sorted(set(SECTIONS) - {"net", "network"})))
    keys = sorted({*option_fields(SECTIONS[name].options), *SECTIONS[name].fork_keys})
    lines = draw(st.dictionaries(st.sampled_from(keys), _VALUES, max_size=5))
    return "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in lines.items())])


@quick
@given(
    net=st.dictionaries(st.sampled_from(sorted(option_fields(SECTIONS["net"].options))), _VALUES, max_size=3),
    sections=st.lists(nonsense_section(), min_size=1, max_size=6),
    original=st.booleans(),
)
def test_nonsense_network(net: dict[str, str], sections: list[str], original: bool) -> None:
    image = {"width": "8", "height": "8", "channels": "4"} | net
    text = "\n".join(["[net]", *(f"{key}={value}" for key, value in image.items()), *sections])
    with quietly():
        shapes = infer_shapes(parse_cfg(text, original=original))
        assert all(layer.outputs > 0 for layer in shapes)
        assert all(np.prod(layer.out_shape) in (0, layer.outputs) for layer in shapes)


@pytest.mark.parametrize("line", [b"[max]\n", b"a=1\n", b"[", b"#", b"\n", b"1,", b"[net]\n", b"=", b"\xff", b"\r"])
def test_long_nonsense_is_quick_and_small(path: Path, line: bytes) -> None:
    for before in (b"", b"[net]\nwidth=8\nheight=8\nchannels=1\nsteps="):
        path.write_bytes(before + line * (64 * 1024 // len(line)))
        started = time.perf_counter()
        taken = peak_memory(lambda: infer_shapes(read_cfg(path)))
        assert taken < 64 * MEBIBYTE
        assert time.perf_counter() - started < 10


def test_absurd_networks_take_no_memory() -> None:
    for size in ("2000000", "2147483647"):
        text = CFG.decode().replace("=32", f"={size}").replace("filters=16", f"filters={size}")
        assert peak_memory(lambda text=text: infer_shapes(parse_cfg(text))) < MEBIBYTE


@pytest.fixture
def weights(path: Path) -> bytes:
    write_weights(path, SHAPES, lambda layer, name: np.ones(_count(layer, name), np.float32), seen=77)
    return path.read_bytes()


def _count(layer: int, name: str) -> int:
    return next(spec.count for spec in SHAPES[layer].parameters if spec.name == name)


@quick
@given(st.data(), st.booleans(), st.booleans())
def test_damaged_weights(path: Path, weights: bytes, draw: st.DataObject, original: bool, strict: bool) -> None:
    path.write_bytes(draw.draw(damaged(weights)))
    with quietly():
        found = read_weights(path, SHAPES, original=original, strict=strict)
        assert sum(array.nbytes for array in found.arrays.values()) <= path.stat().st_size


def test_weights_far_shorter_than_the_cfg_take_no_memory(path: Path, weights: bytes) -> None:
    image = {"width": 1000, "height": 1000, "channels": 3}
    large = infer_shapes(make_config([("net", image), ("connected", {"output": 500}), ("connected", {"output": 500})]))
    assert 4 * large.parameters > 5000 * MEBIBYTE
    for original in (False, True):
        assert peak_memory(lambda original=original: read_weights(path, large, original=original)) < MEBIBYTE


@quick
@given(st.one_of(damaged(b"0 0.5 0.5 0.2 0.2\r\n1 0.25 .25 1e-1 0.1\n"), st.binary(max_size=80)), st.booleans())
def test_damaged_labels(path: Path, data: bytes, strict: bool) -> None:
    path.write_bytes(data)
    with quietly():
        labels = read_labels(str(path), 3, size=(64, 64), strict=strict)
        assert np.isfinite(labels.boxes).all()
        assert ((labels.boxes[:, :4] > 0) & (labels.boxes[:, :4] <= 1)).all()
        assert set(labels.boxes[:, 4]) <= {0, 1, 2}


@quick
@given(st.one_of(damaged(b"0 3,5,7\r\n1 0,2,9,1,1000\n"), st.binary(max_size=80)))
def test_damaged_masks(path: Path, data: bytes) -> None:
    path.with_suffix(".txt").write_bytes(data)
    with quietly():
        for mask in read_masks(f"{path}.jpg", 2):
            assert 0 <= mask.label < 2
            assert mask.pixels((40, 30)).shape == (30, 40)


@quick
@given(st.one_of(damaged(b"cat\ndog\r\n\nteddy bear\n"), st.binary(max_size=80)), st.sampled_from([None, 3]))
def test_damaged_names(path: Path, data: bytes, classes: int | None) -> None:
    path.write_bytes(data)
    with quietly():
        names = read_names(path, classes)
        assert names
        assert all("\n" not in name and "\r" not in name for name in names)


@quick
@given(st.one_of(damaged(b"classes= 2\ntrain = t.txt\nnames=n\ntop=5\n"), st.binary(max_size=80)))
def test_damaged_data_file_and_list(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with quietly():
        read_data(path).read_names()
    with quietly():
        read_image_list(path)


@pytest.mark.parametrize("read", [lambda p: read_labels(str(p)), read_names, read_data, read_image_list])
@pytest.mark.parametrize("data", [b"\n" * MEBIBYTE, b"9" * MEBIBYTE, b"1 " * (MEBIBYTE // 2), b"a=" * (MEBIBYTE // 2)])
def test_one_mebibyte_of_nonsense(path: Path, read: Callable[[Path], Any], data: bytes) -> None:
    path.write_bytes(data)
    started = time.perf_counter()
    assert peak_memory(lambda: read(path)) < 64 * MEBIBYTE
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("data", [b"\n" * MEBIBYTE, b"1 " + b"9" * MEBIBYTE, b"1 " + b"1," * (MEBIBYTE // 2) + b"1"])
def test_one_mebibyte_of_masks(path: Path, data: bytes) -> None:
    path.with_suffix(".txt").write_bytes(data)
    assert peak_memory(lambda: read_masks(f"{path}.jpg", 2)) < 96 * MEBIBYTE

"""Cases 40 to 47: odd and broken .weights files."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.support import case, warned
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.shapes import NetworkShapes, infer_shapes
from undertow.darknet.files.weights import WeightsFile, read_weights
from undertow.errors import FormatError

NINE = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)


def shapes(name: str) -> NetworkShapes:
    return infer_shapes(read_cfg(case(name) / "a.cfg"))


def read(name: str, file: str = "a.weights", **options: bool) -> WeightsFile:
    return read_weights(case(name) / file, shapes(name), **options)


def test_40_header_with_64_bit_counter() -> None:
    weights = read("40")
    assert weights.seen == 32013312
    assert weights.header.size == 20
    np.testing.assert_array_equal(weights.arrays[0, "biases"], [0])
    np.testing.assert_array_equal(weights.arrays[0, "weights"], NINE)


def test_41_the_length_decides_between_the_two_readings_of_a_transposed_file() -> None:
    weights = read("41")
    assert weights.header.size == 16
    assert weights.header.transposed
    np.testing.assert_array_equal(weights.arrays[0, "weights"], NINE)


def test_41_with_the_counter_of_the_forks(tmp_path) -> None:
    data = (case("41") / "a.weights").read_bytes()
    path = tmp_path / "a.weights"
    path.write_bytes(data[:16] + bytes(4) + data[16:])
    weights = read_weights(path, shapes("41"))
    assert weights.header.size == 20
    np.testing.assert_array_equal(weights.arrays[0, "weights"], NINE)


def test_43_bytes_left_over() -> None:
    weights, told = warned(lambda: read("43"))
    np.testing.assert_array_equal(weights.arrays[0, "weights"], NINE)
    assert len(told) == 1
    assert "4 bytes unread" in told[0]
    assert "the cfg probably does not match" in told[0]
    assert "byte 60" in told[0]
    with pytest.raises(FormatError, match="4 bytes unread"):
        read("43", strict=True)


def test_44_partial_backbone() -> None:
    weights, told = warned(lambda: read("44", "a.conv.1"))
    assert "1 of 2 layers loaded (partial file)" in told[0]
    assert weights.is_partial
    assert weights.loaded_layers == (0,)
    assert weights.seen == 0
    network = {key: np.full(spec, 7.0, np.float32) for key, spec in _all_shapes("44").items()}
    weights.copy_into(lambda layer, name: network[layer, name])
    np.testing.assert_array_equal(network[0, "weights"], NINE)
    assert (network[1, "weights"] == 7).all()


def _all_shapes(name: str) -> dict[tuple[int, str], tuple[int, ...]]:
    return {(spec.layer, spec.name): spec.shape for layer in shapes(name) for spec in layer.parameters}


def test_46_nan_is_told() -> None:
    weights, told = warned(lambda: read("46"))
    assert "layer 0 holds 1 NaN in its weights" in told[0]
    assert weights.report == ["layer 0 holds 1 NaN in its weights"]
    with pytest.raises(FormatError, match="1 NaN"):
        read("46", strict=True)


def test_47_text_is_not_weights() -> None:
    with pytest.raises(FormatError, match="15 bytes, not a Darknet weights file") as caught:
        read("47")
    assert "404: Not Found" in str(caught.value)

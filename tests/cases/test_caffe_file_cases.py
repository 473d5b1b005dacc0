"""Cases 73 to 98 that concern Caffe's files: prototxt, solver, caffemodel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases.support import case
from undertow.caffe.proto import (
    Message,
    TextFormatError,
    blob_array,
    blob_from_array,
    find_beside,
    new_message,
    read_caffemodel,
    read_prototxt,
    read_solver,
    write_caffemodel,
)
from undertow.errors import FormatError


def prototxt(name: str, **options: object) -> Message:
    return read_prototxt(case(name) / "a.prototxt", **options)  # type: ignore[arg-type]


def test_73_v1_layers_and_input_fields_are_upgraded() -> None:
    net = prototxt("73")
    assert [(layer.name, layer.type) for layer in net.layer] == [
        ("input", "Input"),
        ("c", "Convolution"),
        ("r", "ReLU"),
    ]
    assert net.layer[0].input_param.shape[0].dim == [1, 1, 8, 8]
    assert [(param.lr_mult, param.decay_mult) for param in net.layer[1].param] == [(1, 1), (2, 0)]
    assert net.layer[2].bottom == net.layer[2].top == ["c"]
    assert not net.has_field("layers")
    assert not net.has_field("input")


def test_74_field_of_a_fork_is_refused_with_layer_and_ways_out() -> None:
    with pytest.raises(TextFormatError) as caught:
        prototxt("74")
    error = caught.value
    assert (error.line, error.column, error.file) == (3, 54, str(case("74") / "a.prototxt"))
    assert error.reason.startswith("LayerParameter has no field bn_param (a field of a Caffe fork); layer u, type BN")
    assert "register_fork" in (error.remedy or "")
    assert 'unknown="keep"' in (error.remedy or "")


def test_74_field_of_a_fork_is_skipped_on_request_and_the_rest_is_there() -> None:
    net = prototxt("74", unknown="keep")
    assert [layer.name for layer in net.layer] == ["data", "u"]
    (kept,) = net.layer[1].unknown_fields
    assert (kept.name, kept.line) == ("bn_param", 3)
    assert 'bn_param { slope_filler { type: "constant" value: 1 } }' in net.to_text()


def test_74_field_of_a_fork_is_read_with_that_fork() -> None:
    assert prototxt("74", fork="pspnet").layer[1].bn_param.slope_filler.value == 1


def test_88_single_field_given_twice() -> None:
    with pytest.raises(TextFormatError, match="`name` is not repeated but given twice") as caught:
        prototxt("88")
    assert (caught.value.line, caught.value.column) == (3, 19)


def test_89_byte_order_mark_and_windows_line_ends() -> None:
    net = prototxt("89")
    assert net.name == "n"
    assert net.layer[0].input_param.shape[0].dim == [1, 1, 8, 8]


def test_91_old_solver_type_and_net_beside_the_solver() -> None:
    path = case("91") / "solver.prototxt"
    solver = read_solver(path)
    assert solver.type == "Nesterov"
    assert not solver.has_field("solver_type")
    assert solver.solver_mode == "GPU"
    assert solver.snapshot_prefix == str(case("91") / "solver")
    assert Path(find_beside(solver.net, path)) == case("91") / "a.prototxt"


@pytest.mark.parametrize(
    ("file", "shape"),
    [("new", (1, 2)), ("old", (1, 1, 1, 2)), ("unpacked", (1, 2)), ("double", (1, 2))],
)
def test_95_forms_of_blobs(file: str, shape: tuple[int, ...]) -> None:
    (layer,) = read_caffemodel(case("95") / f"{file}.caffemodel").layer
    (blob,) = layer.blobs
    array = blob_array(blob)
    assert layer.name == "fc"
    assert array.shape == shape
    assert array.dtype == (np.float64 if file == "double" else np.float32)
    np.testing.assert_array_equal(array.ravel(), [3, 4])


def test_97_length_far_beyond_the_end() -> None:
    with pytest.raises(FormatError, match="field 100 claims 4294967295 bytes, 0 left") as caught:
        read_caffemodel(case("97") / "a.caffemodel")
    assert caught.value.offset == 2


def test_98_more_than_64_mb(tmp_path: Path) -> None:
    weights = np.arange(17 * 1024 * 1024, dtype=np.float32).reshape(17, -1)
    net = new_message("NetParameter", layer=[{"name": "fc", "blobs": [blob_from_array(weights)]}])
    write_caffemodel(net, tmp_path / "large.caffemodel")
    read = blob_array(read_caffemodel(tmp_path / "large.caffemodel").layer[0].blobs[0])
    assert read.base is not None, "the array should be a view of the file"
    np.testing.assert_array_equal(read, weights)

"""Files made by Caffe itself: read, written again to the same bytes, and compared with protobuf field by field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.proto.reference_files import binaries, prototxts
from undertow.caffe.proto import (
    blob_array,
    get_schema,
    parse_bytes,
    parse_text,
    protobuf,
    read_binary,
    read_caffemodel,
    read_prototxt,
    read_solver,
    read_solverstate,
)
from undertow.errors import UndertowWarning

pytestmark = pytest.mark.reference

# Written by NVIDIA's fork, whose serializer orders fields otherwise.
OTHER_WRITER = {"yufacedetectnet-open-v1.caffemodel"}


def test_prototxts_are_read_and_written_as_protobuf_does(reference_data: Path) -> None:
    text_format = pytest.importorskip("google.protobuf.text_format")
    found = prototxts(reference_data)
    assert len(found) > 300
    for path, message in found:
        text = path.read_text("utf-8")
        ours = parse_text(text, message, file=path)
        theirs = text_format.Parse(text, protobuf.protobuf_names()[message]())
        assert protobuf.from_protobuf(theirs) == ours, path
        assert text_format.Parse(ours.to_text(), type(theirs)()) == theirs, path


def test_binaries_are_read_as_protobuf_does_and_written_to_the_same_bytes(reference_data: Path) -> None:
    found = binaries(reference_data)
    assert len(found) > 200
    for path, message in found:
        data = path.read_bytes()
        ours = parse_bytes(data, get_schema()[message], file=path)
        assert path.name in OTHER_WRITER or ours.to_bytes() == data, path


def test_binaries_hold_the_same_for_protobuf(reference_data: Path) -> None:
    pytest.importorskip("google.protobuf")
    for path, message in binaries(reference_data):
        data = path.read_bytes()
        theirs = protobuf.protobuf_names()[message].FromString(data)
        assert protobuf.from_protobuf(theirs) == parse_bytes(data, get_schema()[message]), path


def test_initial_parameters_of_the_goldens(reference_data: Path) -> None:
    """The arrays of a caffemodel against those that pycaffe showed."""
    compared = 0
    for folder in sorted((reference_data / "goldens/caffe").glob("layer_*")):
        model = folder / "init.caffemodel"
        if not model.exists():
            continue
        with np.load(folder / "trace.npz") as trace:
            for layer in read_caffemodel(model).layer:
                for index, blob in enumerate(layer.blobs):
                    expected = trace[f"param/{layer.name}/{index}/data"]
                    np.testing.assert_array_equal(blob_array(blob), expected, strict=True)
                    compared += 1
    assert compared > 50


def test_arrays_and_records_of_the_io_golden(reference_data: Path) -> None:
    folder = reference_data / "goldens/caffe/io_functions"
    vector = read_binary(folder / "vector.binaryproto", "BlobProtoVector").blobs
    blobs = {
        "blobproto/legacy_data": read_binary(folder / "legacy_blob.binaryproto", "BlobProto"),
        "blobproto/shape_data": read_binary(folder / "shape_blob.binaryproto", "BlobProto"),
        "blobprotovector/0": vector[0],
        "blobprotovector/1": vector[1],
    }
    with np.load(folder / "trace.npz") as trace:
        for name, blob in blobs.items():
            np.testing.assert_array_equal(blob_array(blob), trace[name], strict=True)
        for form in ("legacy", "shape"):
            diff = blob_array(blobs[f"blobproto/{form}_data"], diff=True)
            np.testing.assert_array_equal(diff, trace[f"blobproto/{form}_diff"], strict=True)
        datum = read_binary(folder / "datum_float.pb", "Datum")
        values = datum.float_data.reshape(datum.channels, datum.height, datum.width)
        np.testing.assert_array_equal(values, trace["datum/float"], strict=True)
        datum = read_binary(folder / "datum_uint8.pb", "Datum")
        pixels = np.frombuffer(datum.data, np.uint8).reshape(datum.channels, datum.height, datum.width)
        np.testing.assert_array_equal(pixels, trace["datum/uint8"])


def test_old_net_of_2014(reference_data: Path) -> None:
    folder = reference_data / "data/caffe/lenet_v1_2014"
    net = read_caffemodel(folder / "lenet_iter_5000.caffemodel")
    arrays = [blob_array(blob) for layer in net.layer for blob in layer.blobs]
    assert sum(array.size for array in arrays) == 431_080
    assert arrays[0].shape == (20, 1, 5, 5)
    state = read_solverstate(folder / "lenet_iter_5000.solverstate")
    assert (state.iter, len(state.history)) == (5000, 8)
    assert read_solver(folder / "lenet_solver.prototxt").lr_policy == "inv"
    assert read_prototxt(folder / "lenet_train_test.prototxt").layer[0].type == "Data"


def test_the_two_formats_of_one_snapshot(reference_data: Path) -> None:
    pytest.importorskip("h5py")
    folder = reference_data / "data/caffe/cifar10_quick"
    binary = read_caffemodel(folder / "cifar10_quick_iter_4000.caffemodel")
    hdf5 = read_caffemodel(folder / "cifar10_quick_iter_5000.caffemodel.h5")
    shapes = [
        {layer.name: [blob_array(blob).shape for blob in layer.blobs] for layer in net.layer if layer.blobs}
        for net in (binary, hdf5)
    ]
    assert shapes[0] == shapes[1]
    assert sum(map(len, shapes[0].values())) == 10
    state = read_solverstate(folder / "cifar10_quick_iter_5000.solverstate.h5")
    assert (state.iter, len(state.history), state.current_step) == (5000, 10, 0)
    assert state.learned_net == "examples/cifar10/cifar10_quick_iter_5000.caffemodel.h5"


def test_fields_of_an_unknown_version_are_reported_once_per_kind(reference_data: Path) -> None:
    path = reference_data / "data/caffe/mtcnn/det3.caffemodel"
    with pytest.warns(UndertowWarning, match=r"LossParameter field 4 \(first in layer\[\d+\]\.loss_param") as told:
        net = read_caffemodel(path)
    assert len(told) == 1
    assert sum(len(blob_array(blob)) > 0 for layer in net.layer for blob in layer.blobs) > 10


def test_file_of_nvidias_fork(reference_data: Path) -> None:
    path = reference_data / "data/caffe/yufacedetect-v1/yufacedetectnet-open-v1"
    with pytest.warns(UndertowWarning, match='fork="nvidia"'):
        read_caffemodel(f"{path}.caffemodel")
    net = read_caffemodel(f"{path}.caffemodel", fork="nvidia")
    assert net.layer[0].forward_type == "FLOAT"
    assert read_solver(f"{path}.solver.prototxt", fork="nvidia").store_blobs_in_old_format is True


def test_detection_options(reference_data: Path) -> None:
    folder = reference_data / "data/caffe/wechat_qr"
    for net in (read_prototxt(folder / "detect.prototxt"), read_caffemodel(folder / "detect.caffemodel")):
        output = next(layer for layer in net.layer if layer.type == "DetectionOutput").detection_output_param
        assert (output.num_classes, output.keep_top_k, output.code_type) == (2, 100, "CENTER_SIZE")
        assert output.nms_param.top_k == 100

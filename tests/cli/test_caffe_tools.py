"""Caffe's small programs as commands: databases of CIFAR-10 and pairs, features, files of old versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from undertow.caffe.data import open_database
from undertow.caffe.data.datum import read_record
from undertow.caffe.layers_detection import read_sizes
from undertow.caffe.net import Net
from undertow.caffe.proto import (
    new_message,
    parse_bytes,
    read_caffemodel,
    read_prototxt,
    write_binary,
    write_caffemodel,
)
from undertow.caffe.proto.schema import get_schema
from undertow.cli import main

OLD = """name: "old" layers { layer { name: "data" type: "data" source: "db" batchsize: 4 scale: 0.5 } top: "data" }
layers { layer { name: "ip" type: "innerproduct" num_output: 3 } bottom: "data" top: "ip" }"""


def cifar(folder: Path, count: int = 3) -> np.ndarray:
    """Batches of `count` items each, as the binary version of CIFAR-10 has them."""
    rows = np.random.default_rng(0).integers(0, 256, (6 * count, 3073)).astype(np.uint8)
    rows[:, 0] %= 10
    for number in range(6):
        name = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        (folder / name).write_bytes(rows[number * count : (number + 1) * count].tobytes())
    return rows


def test_cifar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = cifar(tmp_path)
    assert main(["caffe", "convert_cifar_data", str(tmp_path), str(tmp_path), "lmdb"]) == 0
    assert "Processed 15 files for training, 3 for testing." in capsys.readouterr().err
    database = open_database(tmp_path / "cifar10_train_lmdb", "lmdb")
    for number, (key, value) in enumerate(database.records()):
        record = read_record(value)
        assert key == b"%05d" % number
        assert record.label == rows[number, 0]
        assert np.array_equal(record.pixels.reshape(-1), rows[number, 1:])
    assert open_database(tmp_path / "cifar10_test_lmdb", "lmdb").entries == 3
    (tmp_path / "data_batch_3.bin").write_bytes(b"cut")
    (tmp_path / "new").mkdir()
    assert main(["caffe", "convert_cifar", str(tmp_path), str(tmp_path / "new"), "lmdb"]) == 2
    assert "data_batch_3.bin: 3 bytes" in capsys.readouterr().err
    assert not list((tmp_path / "new").iterdir())
    assert main(["caffe", "convert_cifar", str(tmp_path), str(tmp_path), "sqlite"]) == 2
    assert "no kind of database 'sqlite'" in capsys.readouterr().err


def idx(path: Path, values: np.ndarray) -> str:
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes() + values.tobytes())
    return str(path)


def test_pairs_of_digits(tmp_path: Path) -> None:
    digits = np.arange(8, dtype=np.uint8) % 3
    images = idx(tmp_path / "images", np.repeat(digits, 16).reshape(8, 4, 4))
    labels = idx(tmp_path / "labels", digits)
    words = ["caffe", "convert_mnist_siamese_data", images, labels, str(tmp_path / "db"), "--backend=lmdb"]
    assert main(words) == 0
    found = [read_record(value) for _, value in open_database(tmp_path / "db", "lmdb").records()]
    assert len(found) == 8
    for record in found:
        first, second = record.pixels[:, 0, 0]
        assert record.pixels.shape == (2, 4, 4)
        assert record.label == int(first == second)
    assert len({record.label for record in found}) == 2


def test_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "net.prototxt"
    text.write_text(
        'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 3 dim: 2 dim: 4 dim: 4 } '
        'data_filler { type: "constant" value: 2 } } } layer { name: "c" type: "Convolution" bottom: "d" top: "c" '
        "convolution_param { num_output: 5 kernel_size: 3 } } "
        'layer { name: "ip" type: "InnerProduct" bottom: "c" top: "ip" inner_product_param { num_output: 7 } }'
    )
    net = Net(text, "TEST", seed=1)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = np.random.default_rng(1).standard_normal(blob.shape)
    write_caffemodel(net.to_message(), tmp_path / "net.caffemodel")
    net.forward()
    databases = f"{tmp_path}/c_db,{tmp_path}/ip_db"
    words = [
        "caffe",
        "extract_features",
        f"{tmp_path}/net.caffemodel",
        str(text),
        "c,ip",
        databases,
        "2",
        "lmdb",
        "GPU",
    ]
    assert main([*words, "DEVICE_ID=0"]) == 0
    assert "Extracted features of 6 query images" in capsys.readouterr().err
    for name, shape in (("c", (5, 2, 2)), ("ip", (7, 1, 1))):
        records = list(open_database(tmp_path / f"{name}_db", "lmdb").records())
        assert [key for key, _ in records] == [b"%010d" % number for number in range(6)]
        for number, (_, value) in enumerate(records):
            datum = parse_bytes(value, get_schema()["Datum"])
            assert (datum.channels, datum.height, datum.width) == shape
            np.testing.assert_array_equal(datum.float_data, net.blobs[name].data[number % 3].reshape(-1))
    words[4] = "fc9,ip"
    assert main(words) == 2
    assert "no blob 'fc9'" in capsys.readouterr().err
    words[4] = "c"
    assert main(words) == 2
    assert "1 blobs and 2 databases" in capsys.readouterr().err


def test_files_of_old_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.prototxt", tmp_path / "new.prototxt"
    old.write_text(OLD)
    assert main(["caffe", "upgrade_net_proto_text", str(old), str(new)]) == 0
    net = read_prototxt(new, upgrade=False)
    assert [layer.type for layer in net.layer] == ["Data", "InnerProduct"]
    assert net.layer[0].transform_param.scale == 0.5
    assert not net.layers
    capsys.readouterr()
    assert main(["caffe", "upgrade_net_proto_text", str(new), str(old)]) == 0
    assert "already in latest proto format" in capsys.readouterr().err
    assert old.read_text() == new.read_text()
    old.write_text(OLD)
    write_binary(read_prototxt(old, upgrade=False), tmp_path / "old.caffemodel")
    assert main(["caffe", "upgrade_net_proto_binary", f"{tmp_path}/old.caffemodel", f"{tmp_path}/new.caffemodel"]) == 0
    assert read_caffemodel(tmp_path / "new.caffemodel", upgrade=False) == net
    old.write_text("base_lr: 0.1 solver_type: NESTEROV")
    assert main(["caffe", "upgrade_solver_proto_text", str(old), str(new)]) == 0
    assert read_prototxt(new, "SolverParameter") == new_message("SolverParameter", base_lr=0.1, type="Nesterov")


def test_annotated_pictures_and_the_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("1 2 2 10 8")
    (tmp_path / "list").write_text("a.png a.txt")
    words = [f"{tmp_path}/", f"{tmp_path}/list", f"{tmp_path}/db", "--label_type=txt", "--min_dim=20", "--max_dim=30"]
    assert main(["caffe", "convert_annoset", "--anno_type=detection", *words]) == 0
    ((_, value),) = open_database(tmp_path / "db", "lmdb").records()
    record = parse_bytes(value, get_schema()["AnnotatedDatum"])
    assert (record.datum.height, record.datum.width) == (15, 30)
    assert record.annotation_group[0].annotation[0].bbox.xmax == pytest.approx(0.5)
    capsys.readouterr()
    assert main(["caffe", "convert_annoset", "--anno_type=classification", *words]) == 2
    assert "convert_imageset" in capsys.readouterr().err
    assert main(["caffe", "-version"]) == 0
    assert capsys.readouterr().out.startswith("caffe version 1.0.0")


def test_sizes_of_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    for name, size in (("a", (9, 4)), ("b", (5, 7))):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(tmp_path / "in" / f"{name}.png")
    (tmp_path / "list.txt").write_text("in/a.png a.xml\nin/b.png b.xml\n")
    (tmp_path / "ids.txt").write_text("a 12\nb 7\n")
    words = [str(tmp_path), str(tmp_path / "list.txt"), str(tmp_path / "sizes.txt")]
    assert main(["caffe", "get_image_size", *words]) == 0
    assert (tmp_path / "sizes.txt").read_text() == "a 9 4\nb 5 7\n"
    np.testing.assert_array_equal(read_sizes(words[2]), [[9, 4], [5, 7]])
    assert main(["caffe", "get_image_size", *words, f"--name_id_file={tmp_path / 'ids.txt'}"]) == 0
    assert (tmp_path / "sizes.txt").read_text() == "12 9 4\n7 5 7\n"
    for text, reason in (("a 12\n", "list.txt:2: 'b' has no id"), ("a 12\nb\n", "ids.txt:2: a line is `name id`")):
        (tmp_path / "ids.txt").write_text(text)
        capsys.readouterr()
        assert main(["caffe", "get_image_size", *words, f"--name_id_file={tmp_path / 'ids.txt'}"]) == 2
        assert reason in capsys.readouterr().err
    (tmp_path / "in" / "b.png").write_text("no picture")
    assert main(["caffe", "get_image_size", *words]) == 2
    assert (tmp_path / "sizes.txt").read_text() == "12 9 4\n7 5 7\n"

"""`undertow check` on prototxts: nets, solvers, their data and weights, each broken on purpose."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import pytest

from tests.caffe.data.samples import make_database, make_images, pictures
from tests.caffe.solver.nets import ROWS, write_net, write_solver
from undertow.caffe.check import check
from undertow.caffe.memory import bytes_needed
from undertow.caffe.net import Net
from undertow.cli import main
from undertow.findings import Report

SCHEDULE = "max_iter: 20 test_iter: 2 test_interval: 5 "


def lines(report: Report, level: str) -> list[str]:
    return [finding.text for finding in report.findings if finding.level == level]


def only(report: Report, level: str = "error") -> str:
    found = lines(report, level)
    assert len(found) == 1, found
    return found[0]


def solver_with(folder: Path, text: str) -> Path:
    """A solver of these fields; they take the place of its own."""
    path = write_solver(folder, "")
    fields = path.read_text()
    for name in ("lr_policy", "snapshot_prefix"):
        if f"{name}:" in text:
            fields = re.sub(rf'{name}: "[^"]*"', "", fields)
    path.write_text(fields + text)
    return path


def data_net(folder: Path, data: str, outputs: int = 5) -> Path:
    """A net over pictures of 3 x 6 x 8 with integer labels."""
    path = folder / "net.prototxt"
    path.write_text(
        f'layer {{ name: "d" top: "data" top: "label" {data} }}\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" '
        f"inner_product_param {{ num_output: {outputs} }} }}\n"
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }\n'
        'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }\n'
    )
    return path


def test_a_sound_solver_has_no_errors(tmp_path: Path) -> None:
    report = check(write_solver(tmp_path, SCHEDULE))
    assert not lines(report, "error") + lines(report, "warning")
    # 4 rows an iteration, 10 rows; a test takes 2 batches of 5.
    assert report.numbers["rounds"] == pytest.approx(20 * 4 / ROWS)
    assert report.numbers["samples"] == {"train net: d": ROWS, "test net 0: d": ROWS}
    train, test = Net(tmp_path / "net.prototxt", "TRAIN"), Net(tmp_path / "net.prototxt", "TEST")
    assert report.numbers["memory_bytes"] == bytes_needed(train) + bytes_needed(test)
    parameters = 5 * 6 + 6 + 6 * 3 + 3
    assert any(f"{parameters} parameters" in line for line in lines(report, "note"))


def test_parameters_take_no_memory(tmp_path: Path) -> None:
    """A layer of 40 GB: its shape is enough."""
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 100000 } } }\n'
    text += (
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 100000 } }\n'
    )
    (tmp_path / "net.prototxt").write_text(text)
    report = check(tmp_path / "net.prototxt")
    assert report.numbers["memory_bytes"] > 8e10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_iter: 20 lr_policy: 'stap'", "lr_policy"),
        ("max_iter: 0", "max_iter is missing or 0"),
        ("max_iter: 20 momentum: 7", "momentum"),
        ("max_iter: 20 snapshot: 5 snapshot_prefix: 'absent/folder/x'", "snapshots cannot be written"),
        ("max_iter: 20 weights: 'absent.caffemodel'", "absent.caffemodel"),
        ("max_iter: 20 bese_lr: 1", "bese_lr"),
    ],
)
def test_fields_of_a_solver(tmp_path: Path, text: str, message: str) -> None:
    assert message in only(check(solver_with(tmp_path, text)))


def test_a_missing_folder_for_snapshots_hides_nothing(tmp_path: Path) -> None:
    solver = solver_with(tmp_path, "max_iter: 0 snapshot: 5 snapshot_prefix: 'absent/folder/x'")
    assert len(lines(check(solver), "error")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_iter: 1", "max_iter=1 ends before every sample was seen once"),
        ("max_iter: 20 lr_policy: 'multistep' gamma: 0.1 stepvalue: 5 stepvalue: 20", "stepvalue 20 is not before"),
        ("max_iter: 20 lr_policy: 'step' gamma: 0.1 stepsize: 30", "stepsize 30 is not below max_iter=20"),
    ],
)
def test_a_schedule_that_does_not_fit(tmp_path: Path, text: str, message: str) -> None:
    report = check(solver_with(tmp_path, text))
    assert not lines(report, "error")
    assert message in only(report, "warning")


def test_a_test_that_takes_a_part_says_so(tmp_path: Path) -> None:
    report = check(write_solver(tmp_path, "max_iter: 20 test_iter: 1 test_interval: 5"))
    assert any("a test takes 5 samples, 50 % of the 10 there are" in line for line in lines(report, "note"))


def test_labels_that_are_no_class(tmp_path: Path) -> None:
    net = write_net(tmp_path)
    with h5py.File(tmp_path / "rows.h5", "r+") as file:
        file["label"][3] = 3
    for phase, found in zip(("TRAIN", "TEST"), lines(check(net), "error"), strict=True):
        assert found.startswith(f"{phase} net: labels of layer 'd' go from 0 to 3, layer 'loss' knows classes 0 to 2")
    text = net.read_text().replace('top: "loss"', 'top: "loss" loss_param { ignore_label: 3 }')
    net.write_text(text.replace('top: "acc"', 'top: "acc" accuracy_param { ignore_label: 3 }'))
    assert not lines(check(net), "error")


def test_pictures_of_a_list(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(5))
    options = f'source: "{tmp_path}/list.txt" root_folder: "{tmp_path}/" batch_size: 2'
    data = f'type: "ImageData" image_data_param {{ {options} }}'
    net = data_net(tmp_path, data)
    report = check(net)
    assert not lines(report, "error")
    assert report.numbers["samples"]["TRAIN net: d"] == 5
    (tmp_path / "3.png").unlink()
    errors = lines(check(net), "error")
    assert errors
    assert "1 of its pictures are not there: line 4: " in errors[0]
    assert "classes 0 to 3" in "".join(lines(check(data_net(tmp_path, data, outputs=4)), "error"))


@pytest.mark.parametrize("backend", ["LMDB", "LEVELDB"])
def test_records_of_a_database(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("lmdb" if backend == "LMDB" else "plyvel")
    make_database(tmp_path / "db", pictures(5), backend)
    data = f'type: "Data" data_param {{ source: "{tmp_path}/db" batch_size: 2 backend: {backend} }}'
    assert not lines(check(data_net(tmp_path, data)), "error")
    report = check(data_net(tmp_path, data, outputs=3))
    assert "labels of layer 'd' go from 0 to 4, layer 'loss' knows classes 0 to 2" in lines(report, "error")[0]


def test_a_source_that_is_not_there_is_told_once(tmp_path: Path) -> None:
    net = data_net(tmp_path, 'type: "Data" data_param { source: "absent" batch_size: 2 }')
    assert "absent: there is no such database" in only(check(net))


def test_a_net_for_one_phase_alone(tmp_path: Path) -> None:
    net = write_net(tmp_path)
    text = net.read_text()
    test_data = text[text.index("layer {", text.index("phase: TRAIN")) : text.index('layer { name: "ip1"')]
    net.write_text(text.replace(test_data, ""))
    report = check(net)
    assert not lines(report, "error")
    assert only(report, "warning").startswith("TEST net: ")


def test_weights(tmp_path: Path) -> None:
    net = write_net(tmp_path)
    Net(net, "TRAIN", seed=1).save(tmp_path / "some.caffemodel")
    report = check(net, tmp_path / "some.caffemodel")
    assert not lines(report, "error")
    assert (report.numbers["layers_loaded"], report.numbers["layers_wanted"]) == (2, 2)
    net.write_text(net.read_text().replace("num_output: 6", "num_output: 7"))
    errors = lines(check(net, tmp_path / "some.caffemodel"), "error")
    assert "layer 'ip1', parameter 0: 6 x 5 there, 7 x 5 in the net" in errors[0]
    net.write_text(net.read_text().replace('"ip1"', '"new"').replace('"ip2"', '"other"'))
    assert "has no layer of this net: ip1, ip2" in only(check(net, tmp_path / "some.caffemodel"))


def test_a_net_that_learns_nothing(tmp_path: Path) -> None:
    solver = write_solver(tmp_path, "max_iter: 20")
    net = tmp_path / "net.prototxt"
    net.write_text("\n".join(line for line in net.read_text().splitlines() if "SoftmaxWithLoss" not in line))
    assert "no loss reaches a layer with parameters" in only(check(solver))


def test_a_text_that_is_neither(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text("layer { name: ")
    assert "net.prototxt:1" in only(check(tmp_path / "net.prototxt"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solver = write_solver(tmp_path, SCHEDULE)
    assert main(["check", str(solver), "-json"]) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["max_iter"] == 20
    assert main(["check", str(solver), "a.caffemodel"]) == 1
    assert "error: weights: a.caffemodel" in capsys.readouterr().out
    assert main(["check", str(solver), "a.data", "a.caffemodel"]) == 2
    assert "a prototxt names its data itself" in capsys.readouterr().err

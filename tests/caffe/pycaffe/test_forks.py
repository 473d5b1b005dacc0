"""Fields of other forks than SSD's, asked for by scripts and on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from undertow.caffe.proto.chosen import choose_forks, chosen_forks
from undertow.cli import main
from undertow.errors import FormatError, UndertowError

ROOT = Path(__file__).parents[3]
NET = """
layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 2 dim: 3 dim: 4 dim: 4 } shape { dim: 2 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "bn" type: "BN" bottom: "data" top: "bn" bn_param { scale_filler { value: 2 } bn_mode: LEARN } }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "snap" random_seed: 1'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def test_nets_and_solvers(folder: Path) -> None:
    with pytest.raises(FormatError, match=r"has no field bn_param .*read with fork='pspnet' or 'segnet'"):
        caffe.Net("net.prototxt", caffe.TRAIN)
    net = caffe.Net("net.prototxt", caffe.TRAIN, fork="segnet")
    net.forward()
    assert net.blobs["bn"].data.std() == pytest.approx(2, rel=1e-2)
    for made in (
        caffe.get_solver("solver.prototxt", fork="segnet"),
        caffe.SGDSolver("solver.prototxt", fork=("segnet",)),
    ):
        made.step(2)
        made.net.save("a.caffemodel")
        net.copy_from("a.caffemodel")
        np.testing.assert_array_equal(net.params["bn"][0].data, made.net.params["bn"][0].data)


def test_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caffe", "train", "--solver=solver.prototxt"]) == 2
    assert "read with fork='pspnet' or 'segnet'" in capsys.readouterr().err
    assert main(["caffe", "train", "--solver=solver.prototxt", "--fork=segnet"]) == 0
    words = ["--model=net.prototxt", "--iterations=1", "--fork", "segnet,nvidia"]
    assert main(["caffe", "test", "--weights=snap_iter_2.caffemodel", *words]) == 0
    assert main(["caffe", "time", *words]) == 0
    capsys.readouterr()
    assert main(["caffe", "time", "--model=net.prototxt", "--fork=segnett"]) == 2
    assert "no fork named 'segnett'. To mend it: did you mean 'segnet'" in capsys.readouterr().err


def test_scripts_as_they_are(folder: Path) -> None:
    pytest.importorskip("google.protobuf")
    (folder / "script.py").write_text(
        "import caffe\n"
        "from caffe.proto import caffe_pb2\n"
        "from google.protobuf import text_format\n"
        "net = caffe_pb2.NetParameter()\n"
        "text_format.Merge(open('net.prototxt').read(), net)\n"
        "net.layer[1].bn_param.bn_mode = caffe_pb2.BNParameter.INFERENCE\n"
        "open('inference.prototxt', 'w').write(text_format.MessageToString(net))\n"
        "print(sorted(caffe.Net('inference.prototxt', caffe.TEST).forward()))\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "undertow.caffe", *words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    done = run("--fork=segnet", "script.py")
    assert done.stdout == "['loss']\n", done.stderr
    assert run("script.py").returncode == 1
    done = run("--fork=none", "script.py")
    assert (done.returncode, done.stderr.partition(". To mend it")[0]) == (2, "error: no fork named 'none'")
    assert "segnet" in run("--help").stdout


def test_a_choice_that_does_not_exist_changes_nothing() -> None:
    before = chosen_forks()
    with pytest.raises(UndertowError, match="no fork named"):
        choose_forks("ssd,nothing")
    assert chosen_forks() == before

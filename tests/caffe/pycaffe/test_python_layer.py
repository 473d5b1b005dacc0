"""Layers written in Python, in nets and solvers made from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.pycaffe.nets import write
from undertow.errors import FormatError

MODULE = "tests.caffe.pycaffe.layers_for_tests"
IN = 'force_backward: true input: "data" input_shape { dim: 5 dim: 4 }'


def python(name: str, layer: str, bottom: str = "", text: str = "", rest: str = "") -> str:
    bottoms = f'bottom: "{bottom}"' if bottom else ""
    return (
        f'layer {{ type: "Python" name: "{name}" {bottoms} top: "{name}" {rest} '
        f'python_param {{ module: "{MODULE}" layer: "{layer}" param_str: "{text}" }} }}\n'
    )


def test_forward_backward_and_reshape(tmp_path: Path) -> None:
    text = IN + python("a", "Times", "data", "10") + python("b", "Times", "a", "2")
    net = caffe.Net(write(tmp_path, text), caffe.TRAIN)
    net.blobs["data"].data[...] = 8
    net.forward()
    assert (net.blobs["b"].data == 160).all()
    net.blobs["b"].diff[...] = 7
    net.backward()
    assert (net.blobs["data"].diff == 140).all()
    assert net.layers[1].calls == [[True]]
    assert net.layers[1].param_str == net.layers[1].param_str_ == "10"
    net.blobs["data"].reshape(3, 3, 3)
    net.forward()
    assert all(blob.data.shape == (3, 3, 3) for blob in net.blobs.values())


def test_layers_are_the_users_objects(tmp_path: Path) -> None:
    """Training scripts hand data to their layer through net.layers."""
    from tests.caffe.pycaffe.layers_for_tests import Source

    text = (
        python("data", "Source")
        + """
    layer { type: "InnerProduct" name: "ip" bottom: "data" top: "y" inner_product_param { num_output: 1
      weight_filler { type: "constant" value: 1 } } }"""
    )
    net = caffe.Net(write(tmp_path, text), caffe.TRAIN)
    assert isinstance(net.layers[0], Source)
    net.layers[0].give(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    np.testing.assert_allclose(net.forward()["y"], [[6], [15]])
    net.layer_dict["data"].give(np.ones((4, 3), np.float32))
    assert net.forward()["y"].shape == (4, 1)


def test_parameters_are_saved_shared_and_learned(tmp_path: Path) -> None:
    loss = 'layer { type: "EuclideanLoss" name: "l" bottom: "a" bottom: "data" top: "l" }'
    text = IN + python("a", "Learns", "data") + loss
    net = caffe.Net(write(tmp_path, text), caffe.TRAIN)
    net.save(str(tmp_path / "m"))
    net.params["a"][0].data[0] = -1
    net.copy_from(str(tmp_path / "m"))
    assert net.params["a"][0].data[0] == 1
    other = caffe.Net(write(tmp_path, text), caffe.TRAIN)
    other.share_with(net)
    net.params["a"][0].data[0] = 5
    assert other.params["a"][0].data[0] == 5
    solver_text = f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{tmp_path}/s"'
    solver = caffe.get_solver(write(tmp_path, solver_text, "solver.prototxt"))
    solver.step(30)
    assert abs(solver.net.params["a"][0].data[0]) < 0.01


def test_phase(tmp_path: Path) -> None:
    path = write(tmp_path, python("phase", "Phase"))
    for phase in (caffe.TRAIN, caffe.TEST):
        assert caffe.Net(path, phase).forward()["phase"] == phase


def test_errors_of_the_users_reach_the_caller(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="on purpose"):
        caffe.Net(write(tmp_path, IN + python("a", "Fails", "data")), caffe.TEST)
    with pytest.raises(ValueError, match="could not convert string to float"):
        caffe.Net(write(tmp_path, IN + python("a", "Times", "data", "ten")), caffe.TEST)
    with pytest.raises(FormatError, match="cannot be loaded"):
        caffe.Net(write(tmp_path, IN + python("a", "Nowhere", "data")), caffe.TEST)

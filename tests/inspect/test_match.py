"""A network beside its conversion: steps are matched by kind, shape and order, and the first that parts is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from undertow.caffe.net import Net
from undertow.cli import main
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.network import Network
from undertow.errors import ShapeError
from undertow.inspect.compare import Comparison, compare
from undertow.inspect.match import matched, steps_of
from undertow.inspect.report import comparison_lines
from undertow.inspect.trace import LayerTrace, ParameterTrace
from undertow.inspect.trace_file import load_trace, save_trace
from undertow.inspect.trace_nets import trace_caffe, trace_darknet

CFG = """
[net]
batch=2
width=8
height=8
channels=3

[convolutional]
filters=4
size=3
pad=1
activation=relu

[convolutional]
filters=4
size=1
activation=relu

[shortcut]
from=-2

[maxpool]
size=2
stride=2

[connected]
output=5
activation=linear

[softmax]
"""

PROTOTXT = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "c2" type: "Convolution" bottom: "c1" top: "c2" convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "r2" type: "ReLU" bottom: "c2" top: "c2" }
layer { name: "sum" type: "Eltwise" bottom: "c2" bottom: "c1" top: "sum" }
layer { name: "pool" type: "Pooling" bottom: "sum" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
PAIRS = {"0": "r1", "1": "r2", "2": "sum", "3": "pool", "4": "ip", "5": "prob"}


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    """net.cfg and net.prototxt with the same weights in both formats, and the same two samples."""
    (tmp_path / "net.cfg").write_text(CFG)
    (tmp_path / "net.prototxt").write_text(PROTOTXT)
    net = Network(read_cfg(tmp_path / "net.cfg"), seed=3)
    other = Net(str(tmp_path / "net.prototxt"), "TEST")
    for index, name in ((0, "c1"), (1, "c2"), (4, "ip")):
        layer = net.layers[index]
        layer.biases[...] = np.linspace(-0.5, 0.5, layer.biases.size)
        other.params[name][0].data[...] = layer.weights.reshape(other.params[name][0].shape)
        other.params[name][1].data[...] = layer.biases
    net.save_weights(tmp_path / "net.weights")
    other.save(tmp_path / "net.caffemodel")
    images = np.random.default_rng(0).random((2, 3, 8, 8), np.float32)
    np.savez(tmp_path / "darknet.npz", images=images, truth=np.eye(5, dtype=np.float32)[:2])
    np.savez(tmp_path / "caffe.npz", data=images)
    return tmp_path


def compared(folder: Path, weights: str = "net.caffemodel") -> Comparison:
    one = trace_darknet(folder / "net.cfg", folder / "net.weights", data=folder / "darknet.npz")
    other = trace_caffe(folder / "net.prototxt", folder / weights, data=folder / "caffe.npz")
    return compare(one, other)


def test_a_converted_net_is_matched_step_by_step(converted: Path) -> None:
    found = compared(converted)
    assert {layer.one.name: layer.other.name for layer in found.layers} == PAIRS
    assert found.same_batch
    assert found.forward is None
    assert max(layer.output for layer in found.layers) < 1e-5
    lines = "\n".join(comparison_lines(found))
    assert "6 and 10 layers; compared are the 6 steps with the same kind and shape, in order" in lines
    assert "0 = r1" in lines
    assert "convolutional = ReLU" in lines


def test_the_first_step_that_parts_is_told(converted: Path) -> None:
    net = Net(str(converted / "net.prototxt"), "TEST")
    net.copy_from(converted / "net.caffemodel")
    net.params["c2"][0].data[...] *= 1.1  # the fault of a conversion
    net.save(converted / "faulty.caffemodel")
    found = compared(converted, "faulty.caffemodel")
    assert found.forward is not None
    assert (found.forward.one.name, found.forward.other.name) == ("1", "r2")
    assert "layer 1 (convolutional) = r2 (ReLU) is the first to part" in "\n".join(comparison_lines(found))


def test_one_command_answers_why_a_converted_net_differs(
    converted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(converted)
    first = ["trace", "net.cfg", "--weights", "net.weights", "--data", "darknet.npz", "--out", "first.npz"]
    assert main(first) == 0
    second = ["trace", "net.prototxt", "--weights", "net.caffemodel", "--data", "caffe.npz", "--compare", "first.npz"]
    assert main(second) == 0
    printed = capsys.readouterr().out
    assert "r1 = 0" in printed
    assert "forward: no layer's output parts" in printed


def layers(*kinds: tuple[str, tuple[int, ...]]) -> list[LayerTrace]:
    return [LayerTrace(i, str(i), kind, shape) for i, (kind, shape) in enumerate(kinds)]


def test_steps_end_with_the_activation_that_belongs_to_them() -> None:
    found = steps_of(
        layers(
            ("Data", (2, 3, 8, 8)), ("Convolution", (2, 4, 8, 8)), ("BatchNorm", (2, 4, 8, 8)), ("Scale", (2, 4, 8, 8)),
            ("ReLU", (2, 4, 8, 8)), ("Split", (2, 4, 8, 8)), ("Pooling", (2, 4, 1, 1)), ("InnerProduct", (2, 5)),
        )
    )  # fmt: skip
    assert [(step.kind, step.first.index, step.last.index) for step in found] == [
        ("convolution", 1, 4), ("pooling", 6, 6), ("product", 7, 7),
    ]  # fmt: skip


def test_layers_without_a_counterpart_are_left_out() -> None:
    one = layers(("convolutional", (1, 4, 8, 8)), ("maxpool", (1, 4, 4, 4)), ("convolutional", (1, 6, 1, 1)))
    other = layers(
        ("Convolution", (1, 4, 8, 8)), ("LRN", (1, 4, 8, 8)), ("Pooling", (1, 4, 4, 4)), ("Convolution", (1, 6))
    )
    assert places(one, other) == [(0, 0), (None, 1), (1, 2), (2, 3)]


def test_nets_that_have_nothing_in_common_are_refused(converted: Path) -> None:
    one = trace_darknet(converted / "net.cfg", batch=4)
    other = trace_caffe(converted / "net.prototxt")
    with pytest.raises(ShapeError, match="same batch and size"):
        compare(one, other)


def test_a_published_pair_is_one_net(reference_data: Path, tmp_path: Path) -> None:
    """80 layers of Darknet, 247 of Caffe: as they detect, their outputs are the same, step by step."""
    name = "MobileNetV2-YOLOv3-Nano-voc"
    one, other = (reference_data / "data" / kind / name.lower() / name for kind in ("darknet", "caffe"))
    samples = np.random.default_rng(0).random((1, 3, 320, 320), np.float32)
    np.savez(tmp_path / "images.npz", images=samples)
    np.savez(tmp_path / "data.npz", data=samples)
    darknet = trace_darknet(f"{one}.cfg", f"{one}.weights", data=tmp_path / "images.npz", phase="TEST")
    caffe = trace_caffe(f"{other}.prototxt", f"{other}.caffemodel", data=tmp_path / "data.npz", phase="TEST")
    found = compare(darknet, caffe)
    assert len(found.layers) == 78
    assert found.forward is None
    assert max(layer.output for layer in found.layers) < 1e-5
    said = "\n".join(comparison_lines(found))
    assert "begins as random numbers of its own" in said
    assert "--phase TEST" not in said
    learning = compare(trace_darknet(f"{one}.cfg", f"{one}.weights", data=tmp_path / "images.npz"), caffe)
    assert learning.forward is not None
    assert "--phase TEST for both compares them as they detect" in "\n".join(comparison_lines(learning))


def places(one: list[LayerTrace], other: list[LayerTrace]) -> list[tuple[int | None, int | None]]:
    return [tuple(step and step.last.index for step in pair) for pair in matched(one, other)]  # type: ignore[misc]


def changed(folder: Path, old: str, new: str) -> Comparison:
    """CFG beside the same with a change."""
    (folder / "one.cfg").write_text(CFG)
    (folder / "other.cfg").write_text(CFG.replace(old, new, 1))
    return compare(trace_darknet(folder / "one.cfg"), trace_darknet(folder / "other.cfg"))


SECOND = "[convolutional]\nfilters=4\nsize=1\nactivation=relu\n"


def test_an_inserted_layer_is_named_and_its_neighbours_keep_their_counterparts(tmp_path: Path) -> None:
    """Of two with the same kind and shape, the one with as many weights is the same: 3x3 before 1x1."""
    inserted = "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=relu\n\n"
    found = changed(tmp_path, SECOND, inserted + SECOND)
    pairs = [(layer.one.index, layer.other.index) for layer in found.layers]
    assert pairs[:3] == [(0, 0), (1, 2), (2, 3)]
    said = "only the second has layer 1 (convolutional, output 2x4x8x8, largest parameter of 144"
    assert f"the nets are not the same: {said}" in "\n".join(comparison_lines(found))


def test_a_widened_layer_is_named(tmp_path: Path) -> None:
    found = changed(tmp_path, SECOND, SECOND.replace("filters=4", "filters=6"))
    assert found.layers[0].one.index == found.layers[0].other.index == 0
    assert 1 not in [layer.one.index for layer in found.layers]
    told = [f"has layer 1 (convolutional, output 2x{n}x8x8, largest parameter of {4 * n} values)" for n in (4, 6)]
    said = f"the nets are not the same: where the first {told[0]}, the second {told[1]}"
    assert said in "\n".join(comparison_lines(found))


def test_a_larger_kernel_is_named_though_the_shapes_are_the_same(tmp_path: Path) -> None:
    found = changed(tmp_path, SECOND, SECOND.replace("size=1", "size=3\npad=1"))
    assert found.gap[0] is not None
    assert found.gap[0].first.index == 1


def test_another_size_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "one.cfg").write_text(CFG)
    (tmp_path / "other.cfg").write_text(CFG.replace("[shortcut]\nfrom=-2\n", ""))
    found = compare(trace_darknet(tmp_path / "one.cfg", batch=2), trace_darknet(tmp_path / "other.cfg", size=16))
    assert "the batches had different sizes" in "\n".join(comparison_lines(found))


def test_sizes_of_parameters_are_kept_in_files(tmp_path: Path) -> None:
    (tmp_path / "one.cfg").write_text(CFG)
    found = trace_darknet(tmp_path / "one.cfg")
    save_trace(found, tmp_path / "t.npz")
    again = load_trace(tmp_path / "t.npz")
    assert {n: p.size for n, p in again.layers[0].parameters.items()} == {"weights": 108, "biases": 4}


def test_names_tell_which_of_two_equal_layers_was_inserted() -> None:
    def net(*names: str) -> list[LayerTrace]:
        found: list[LayerTrace] = []
        for name in names:
            for own, kind in ((name, "linear"), (str(len(found) + 1), "tanh")):
                layer = LayerTrace(len(found), own, kind, (5, 6))
                if kind == "linear":
                    layer.parameters["weight"] = ParameterTrace(1.0, 1.0, 1.0, size=36)
                found.append(layer)
        return found

    names = [tuple(step and step.first.name for step in pair) for pair in matched(net("a", "c"), net("a", "b", "c"))]
    assert names == [("a", "a"), (None, "b"), ("c", "c")]

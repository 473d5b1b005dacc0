"""Why a Caffe net or a function leaves gradients out, and what a layer that only shares its input hands back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from undertow.cli import main
from undertow.errors import ShapeError
from undertow.inspect.explain import Explanation, Row, explain, explain_function
from undertow.inspect.story import story

DATA = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 1 dim: 6 dim: 6 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 } } }
layer { name: "target" type: "Input" top: "target" input_param { shape { dim: 2 dim: 3 } } }
"""
FILLER = 'weight_filler { type: "xavier" }'
FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 }"


def conv(name: str, bottom: str, more: str = "") -> str:
    options = f"convolution_param {{ num_output: 2 kernel_size: 3 pad: 1 {FILLER} }}"
    return f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {more} {options} }}\n'


def dense(name: str, bottom: str, more: str = "") -> str:
    options = f"inner_product_param {{ num_output: 3 {FILLER} }}"
    return f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more} {options} }}\n'


def layer(name: str, kind: str, *bottoms: str, more: str = "") -> str:
    read = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {read} top: "{name}" {more} }}\n'


def told(tmp_path: Path, text: str) -> Explanation:
    path = tmp_path / "net.prototxt"
    path.write_text(DATA + text)
    return explain(path)


def row(found: Explanation, name: str) -> Row:
    return next(row for row in found.rows if row.name == name)


def test_frozen_layers_and_what_stands_above_them(tmp_path: Path) -> None:
    text = conv("c1", "data", FROZEN) + layer("r", "ReLU", "c1") + conv("c2", "r") + dense("ip", "c2")
    found = told(tmp_path, text + layer("loss", "SoftmaxWithLoss", "ip", "label"))
    assert row(found, "c1").skipped == ("all gradients: frozen (lr_mult: 0)",)
    assert row(found, "r").skipped == ("all gradients: nothing below learns",)
    assert row(found, "c2").skipped == ("input gradient: nothing below learns",)
    assert row(found, "ip").skipped == ()


def test_a_frozen_layer_between_hands_its_input_gradient_on(tmp_path: Path) -> None:
    text = conv("c1", "data") + conv("c2", "c1", FROZEN) + dense("ip", "c2")
    found = told(tmp_path, text + layer("loss", "SoftmaxWithLoss", "ip", "label"))
    assert row(found, "c1").skipped == ("input gradient: first layer",)
    assert row(found, "c2").skipped == ("frozen (lr_mult: 0)",)


def test_a_target_is_data(tmp_path: Path) -> None:
    found = told(tmp_path, dense("ip", "data") + layer("loss", "EuclideanLoss", "ip", "target"))
    assert row(found, "loss").skipped == ("gradient of the target: data",)


def test_statistics_are_no_frozen_parameters(tmp_path: Path) -> None:
    text = conv("c1", "data") + layer("bn", "BatchNorm", "c1") + dense("ip", "bn")
    found = told(tmp_path, text + layer("loss", "EuclideanLoss", "ip", "target"))
    assert row(found, "bn").skipped == ("gradients of the blobs: they are statistics",)


def test_what_stops_a_gradient_above_is_named(tmp_path: Path) -> None:
    text = (
        dense("ip0", "data")
        + dense("a", "ip0", "propagate_down: false")
        + layer("loss", "SoftmaxWithLoss", "a", "label")
        + dense("b", "ip0")
        + layer("loss2", "SoftmaxWithLoss", "b", "label", more="loss_weight: 0")
        + layer("acc", "Accuracy", "b", "label")
    )
    found = told(tmp_path, text)
    assert row(found, "a").skipped == ("input gradient: propagate_down: false",)
    assert row(found, "loss2").skipped == ("all gradients: loss_weight: 0",)
    assert row(found, "b").skipped == ("all gradients: loss_weight: 0 in loss2",)
    assert row(found, "acc").skipped == ("all gradients: no loss above",)
    assert row(found, "ip0").skipped == ("all gradients: propagate_down: false in a and loss_weight: 0 in loss2",)


@pytest.mark.parametrize("readers", [2, 3])
def test_a_split_adds_up_what_its_readers_send(tmp_path: Path, readers: int) -> None:
    names = [f"b{i}" for i in range(readers)]
    text = dense("ip0", "data") + "".join(dense(name, "ip0") for name in names) + layer("sum", "Eltwise", *names)
    found = told(tmp_path, text + layer("loss", "EuclideanLoss", "sum", "target"))
    (split,) = (row for row in found.rows if row.type == "Split")
    terms = " + ".join(f"gy{i + 1}" for i in range(readers))
    assert split.formula[0].startswith(f"gx = {terms} ({readers - 1} addition")
    assert split.multiply_adds_backward == (readers - 1) * 3
    lines = "\n".join(story(found, split.name))
    assert f"backward  gx = {terms} " in lines
    assert "no way back" not in lines


def test_a_layer_that_only_changes_the_shape_hands_the_gradient_on(tmp_path: Path) -> None:
    text = conv("c1", "data") + layer("flat", "Flatten", "c1") + dense("ip", "flat")
    found = told(tmp_path, text + layer("loss", "EuclideanLoss", "ip", "target"))
    assert row(found, "flat").formula == ("gx = gy in the shape of x (gy 1x72, gx 1x2x6x6)",)
    assert row(found, "flat").multiply_adds_backward == 0
    assert "backward  gx = gy in the shape of x" in "\n".join(story(found, "flat"))


def test_the_story_of_a_layer_begins_with_its_settings(tmp_path: Path) -> None:
    found = told(tmp_path, conv("c1", "data") + layer("lrn", "LRN", "c1"))
    lines = story(found, "c1")
    assert "  convolution_param: num_output 2, pad 1, kernel_size 3, weight_filler xavier" in lines
    assert "  settings  stride 1, pad 1, dilation 1, groups 1" in lines
    assert "  settings  size 5, alpha 1, beta 0.75, k 1, region across" in story(found, "lrn")


def test_a_parameter_of_a_function_that_is_frozen_is_named() -> None:
    w = ut.Parameter(np.ones((4, 3), np.float32), name="fc.weight")
    w.requires_grad = False
    found = explain_function(lambda x: ut.sum(ut.linear(x, w) * np.ones(4, np.float32)), [(2, 3)])
    skipped = {row.type: row.skipped for row in found.rows}
    assert skipped["linear"] == ("frozen: fc.weight",)
    assert skipped["mul"] == ("gradient of operand 1: a constant",)
    assert skipped["sum"] == ()


def test_a_sample_that_does_not_fit_is_answered_with_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.prototxt"
    source = 'layer { name: "data" type: "Data" top: "data" data_param { source: "none" batch_size: 4 } }\n'
    path.write_text(
        source + conv("c1", "data") + layer("pool", "Pooling", "c1", more="pooling_param { kernel_size: 2 }")
    )
    assert main(["explain", str(path), "-shape", "28x28"]) == 2
    said = capsys.readouterr().err
    assert "give --shape another sample than 28x28: channels, height and width, as in --shape 3x227x227" in said
    assert main(["explain", str(path), "-shape", "1x28x28"]) == 0
    path.write_text(DATA + conv("c1", "data"))
    with pytest.raises(ShapeError, match="give --shape as many axes as a sample has"):
        explain(path, shapes=[(28, 28)])


@pytest.mark.parametrize(
    ("kind", "bottoms", "said"),
    [
        ("SigmoidCrossEntropyLoss", ("ip", "target"), "gradient of the targets: the layer computes none"),
        ("Filter", ("ip", "label"), "gradient of the selector: it only says which items pass"),
        ("SoftmaxWithLoss", ("ip", "label"), "gradient of the labels: they are indexes"),
    ],
)
def test_what_has_no_gradient_is_called_what_it_is(
    tmp_path: Path, kind: str, bottoms: tuple[str, ...], said: str
) -> None:
    text = dense("ip", "data") + layer("it", kind, *bottoms)
    if "Loss" not in kind:
        text += layer("loss", "EuclideanLoss", "it", "it")
    assert said in row(told(tmp_path, text), "it").skipped


def test_an_embedding_reads_indexes(tmp_path: Path) -> None:
    options = f"embed_param {{ num_output: 3 input_dim: 4 {FILLER} }}"
    found = told(tmp_path, layer("e", "Embed", "label", more=options) + layer("loss", "EuclideanLoss", "e", "target"))
    assert row(found, "e").skipped == ("input gradient: it holds indexes",)


def test_groups_are_told_of_every_product(tmp_path: Path) -> None:
    convolution = f"convolution_param {{ num_output: 4 group: 2 kernel_size: 3 {FILLER} }}"
    text = conv("c1", "data") + layer("g", "Convolution", "c1", more=convolution) + dense("ip", "g")
    lines = row(told(tmp_path, text + layer("loss", "SoftmaxWithLoss", "ip", "label")), "g").formula
    products = [line for line in lines if " times " in line]
    assert len(products) == 2
    assert all("2 groups" in line for line in products)

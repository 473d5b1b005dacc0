"""Shape inference: formulas on small nets, errors, the recorded shapes of the original."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from undertow.darknet.files.cfg import make_config, parse_cfg, read_cfg
from undertow.darknet.files.options import SECTIONS
from undertow.darknet.files.shape_rules import RULES
from undertow.darknet.files.shapes import NetworkShapes, check_memory, infer_shapes
from undertow.errors import FormatError, ShapeError, UndertowWarning

Layer = tuple[str, dict[str, Any]]


def shapes_of(*layers: Layer, width: int = 8, height: int = 6, channels: int = 4, **net: Any) -> NetworkShapes:
    image = {"width": width, "height": height, "channels": channels} | net
    return infer_shapes(make_config([("net", image), *layers], "net.cfg"))


def conv(**values: Any) -> Layer:
    return "convolutional", values


def test_every_layer_type_has_a_rule() -> None:
    assert set(RULES) == {kind.name for kind in SECTIONS.values()} - {"net"}


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (conv(filters=5, size=3, stride=2, pad=1), (5, 3, 4)),
        (conv(filters=5, size=3), (5, 4, 6)),
        (conv(filters=5, size=1, stride=2), (5, 3, 4)),
        (conv(filters=4, size=3, padding=2, groups=2), (4, 8, 10)),
        (("deconvolutional", {"filters": 3, "size": 4, "stride": 2, "padding": 1}), (3, 12, 16)),
        (("local", {"filters": 2, "size": 3, "stride": 2}), (2, 2, 3)),
        (("local", {"filters": 2, "size": 3, "stride": 2, "pad": 1}), (2, 3, 4)),
        (("maxpool", {"size": 2, "stride": 2}), (4, 3, 4)),
        (("maxpool", {"size": 3, "stride": 2, "padding": 0}), (4, 2, 3)),
        (("avgpool", {}), (4, 1, 1)),
        (("upsample", {"stride": 3}), (4, 18, 24)),
        (("upsample", {"stride": -2}), (4, 3, 4)),
        (("reorg", {"stride": 2}), (16, 3, 4)),
        (("reorg", {"stride": 2, "reverse": 1}), (1, 12, 16)),
        (("connected", {"output": 7}), (7, 1, 1)),
        (("crop", {"crop_width": 5, "crop_height": 3}), (4, 3, 5)),
        (("crnn", {"hidden_filters": 2, "output_filters": 3}), (3, 8, 6)),  # the original swaps the axes
        (("normalization", {}), (4, 6, 8)),
        (("dropout", {}), (4, 6, 8)),
        (("batchnorm", {}), (4, 6, 8)),
    ],
)
def test_shapes_of_single_layers(layer: Layer, shape: tuple[int, int, int]) -> None:
    (result,) = shapes_of(layer)
    assert result.out_shape == shape
    assert result.outputs == math.prod(shape)
    assert result.in_shape == (4, 6, 8)
    assert result.inputs == 192


@pytest.mark.parametrize(
    ("layer", "outputs"),
    [
        (("softmax", {}), 192),
        (("cost", {}), 192),
        (("rnn", {"output": 9}), 9),
        (("gru", {"output": 9}), 9),
        (("lstm", {"output": 9}), 9),
        (("reorg", {"extra": 8}), 200),
    ],
)
def test_layers_without_an_image(layer: Layer, outputs: int) -> None:
    (result,) = shapes_of(layer)
    assert result.out_shape == (0, 0, 0)
    assert result.outputs == outputs


def test_parameters_of_a_convolution() -> None:
    (layer,) = shapes_of(conv(filters=6, size=3, pad=1, groups=2, batch_normalize=1))
    assert [(spec.name, spec.shape) for spec in layer.parameters] == [
        ("biases", (6,)),
        ("scales", (6,)),
        ("rolling_mean", (6,)),
        ("rolling_variance", (6,)),
        ("weights", (6, 2, 3, 3)),
    ]
    assert (layer.nweights, layer.nbiases, layer.stored) == (108, 6, 132)
    assert layer.bflops == pytest.approx(2 * 108 * 48 / 1e9)
    assert layer.workspace == 48 * 9 * 4 // 2 * 4


def test_sums_over_the_network() -> None:
    shapes = shapes_of(conv(filters=2, size=3, pad=1), ("cost", {}), batch=4, subdivisions=2)
    assert shapes.inputs == 192
    assert shapes.output.index == 0
    assert shapes.truths == 96
    assert shapes.parameters == 2 + 2 * 4 * 9
    values = 2 * (96 + 96) + 74
    workspace = 48 * 36 * 4
    assert shapes.memory() == 4 * (values + 2 * 192) + workspace
    # When the cost goes back: the picture, the output of the convolution, gradients of both; that of the logistic is
    # an operation of its own with two arrays and a half, the cost has four.
    most, outside = 192 + 96 + 2 * 96, 2.5 * 96 + 4 * 96
    for batch in (1, 2):
        values = 2 * 74 + batch * (192 + outside + 1.04 * most)
        assert shapes.memory(batch=batch, training=True) == int(4 * values) + 10 * 2**20
    assert shapes.memory(training=True) == shapes.memory(batch=2, training=True)
    assert [layer.index for layer in shapes] == [0, 1]
    assert shapes[0:1] == (shapes[0],)


def test_truths_of_heads() -> None:
    yolo = ("yolo", {"classes": 3, "num": 2, "anchors": (1, 2, 3, 4)})
    assert shapes_of(conv(filters=16), yolo).truths == 450
    region = ("region", {"classes": 3, "num": 2, "coords": 8})
    assert shapes_of(conv(filters=24), region).truths == 270
    assert shapes_of(conv(filters=5), ("iseg", {"classes": 2, "ids": 3})).truths == 90 * 49
    detection = ("detection", {"classes": 3, "coords": 4, "num": 2, "side": 7})
    assert shapes_of(("connected", {"output": 637}), detection).truths == 49 * 8


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([conv(groups=3)], "groups=3"),
        ([conv(size=9)], "window 9x9 is larger"),
        ([conv(flipped=1, groups=2, filters=2)], "flipped=1 does not work with groups"),
        ([conv(filters=2, numload=3)], "numload=3"),
        ([("maxpool", {"size": 9, "padding": 0})], "window of 9x9 is larger"),
        ([("local", {"size": 9})], "window of 9x9 is larger"),
        ([("deconvolutional", {"size": 1, "padding": 9})], "nothing is left"),
        ([("reorg", {"stride": 5})], "not a multiple of stride=5"),
        ([("reorg", {"stride": 3, "reverse": 1})], "not a multiple of stride\\*stride = 9"),
        ([("upsample", {"stride": -5})], "cannot be divided into blocks of 5x5"),
        ([("crop", {"crop_width": 9, "crop_height": 3})], "larger than the input"),
        ([("softmax", {"groups": 5})], "192 inputs cannot be divided into 5 groups"),
        ([("softmax", {}), conv()], r"\[convolutional\] needs an image .*layer 0 \[softmax\] gives 192 values"),
        ([("rnn", {}), ("batchnorm", {})], "needs an image"),
        ([("route", {"layers": -1})], "no layer comes before it"),
        ([conv(), ("route", {"layers": 1})], "refers to layer 1"),
        ([conv(), ("shortcut", {"from": 5})], "refers to layer 5"),
        ([("softmax", {}), ("route", {"layers": 0}), conv()], "needs an image"),
        ([("detection", {})], "found 192"),
        ([conv(filters=7), ("region", {"classes": 1})], "= 6, but layer 0 \\[convolutional\\] has filters=7"),
        ([("yolo", {"classes": 1})], "but \\[net\\] gives 4"),
    ],
)
def test_layers_that_do_not_fit(layers: list[Layer], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason) as caught:
        shapes_of(*layers)
    assert caught.value.file == "net.cfg"
    assert caught.value.line is not None
    assert caught.value.layer is not None


def test_shortcut_of_unequal_ratios() -> None:
    layers = [conv(filters=4), ("maxpool", {"size": 2, "stride": 2}), ("crop", {"crop_width": 4, "crop_height": 2})]
    assert shapes_of(*layers[:2], ("shortcut", {"from": 0}))[2].out_shape == (4, 3, 4)
    with pytest.raises(ShapeError, match="unequal ratios"):
        shapes_of(*layers, ("shortcut", {"from": 0}))


def test_advice_on_the_input_size_only_where_it_helps() -> None:
    layers = [
        conv(stride=2, size=3, pad=1),
        conv(stride=2, size=3, pad=1),
        ("upsample", {}),
        ("route", {"layers": "-1,0"}),
    ]
    with pytest.raises(ShapeError, match="multiples of 4"):
        shapes_of(*layers, width=10, height=10)
    with pytest.raises(ShapeError, match="choose layers of one width"):
        shapes_of(conv(), conv(stride=2), ("route", {"layers": "-1,0"}))


def test_network_without_layers() -> None:
    with pytest.raises(FormatError, match="no layers"):
        shapes_of()


def test_values_are_counted_before_anything_is_made() -> None:
    growing = [("upsample", {"stride": 2**31 - 1})] * 40
    with pytest.raises(ShapeError, match="values in one layer; the network would need") as caught:
        shapes_of(*growing)
    assert caught.value.layer == 0
    with pytest.raises(ShapeError, match="values in one layer"):
        shapes_of(("connected", {"output": 2**31 - 1}))


def test_memory_of_the_machine() -> None:
    shapes = shapes_of(conv(filters=2, size=3, pad=1))
    check_memory(shapes, available=10**6)
    with pytest.raises(ShapeError, match=r"needs about \d+\.\d MiB .* 100 bytes are there"):
        check_memory(shapes, training=True, available=100)
    with pytest.raises(ShapeError, match=r"EiB|PiB|TiB"):
        check_memory(shapes_of(*[conv(filters=2**20)] * 3, width=32, height=32, batch=2**20))


def golden_folders(reference_data: Path) -> list[Path]:
    return sorted(path.parent for path in (reference_data / "goldens" / "darknet").glob("*/net.cfg"))


@pytest.mark.reference
def test_shapes_that_the_original_recorded(reference_data: Path) -> None:
    folders = golden_folders(reference_data)
    assert folders
    for folder in folders:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndertowWarning)
            shapes = infer_shapes(read_cfg(folder / "net.cfg", original=True))
        recorded = json.loads((folder / "case.json").read_text())
        found = {
            "layers": [
                {"index": s.index, "type": s.type, "outputs": s.outputs}
                | dict(zip(("out_c", "out_h", "out_w"), s.out_shape, strict=True))
                for s in shapes
            ],
            "inputs": shapes.inputs,
            "outputs": shapes.output.outputs,
            "truths": shapes.truths,
            "batch_per_pass": shapes.net.pass_batch,
        }
        assert found == found | {key: value for key, value in recorded.items() if key in found}, folder.name
        weights = folder / "init.weights"
        if weights.exists():
            assert weights.stat().st_size == 20 + 4 * shapes.parameters, folder.name


@pytest.mark.reference
def test_cfgs_that_darknet_ships(reference_data: Path) -> None:
    """The files are not ours to hold; UNDERTOW_DARKNET_CFG names the cfg folder of a Darknet source tree."""
    folder = os.environ.get("UNDERTOW_DARKNET_CFG")
    if not folder:
        pytest.skip("UNDERTOW_DARKNET_CFG does not name the cfg folder of Darknet's sources")
    zoo = json.loads((reference_data / "goldens" / "darknet" / "cfg_zoo.json").read_text())
    for name, recorded in zoo.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndertowWarning)
            shapes = infer_shapes(read_cfg(Path(folder) / name))
        output = recorded["output"]
        assert shapes.output.out_shape == (output["c"], output["h"], output["w"]), name
        assert shapes.output.outputs == output["outputs"], name
        assert shapes.parameters == recorded["params"], name
        assert shapes.bflops == pytest.approx(recorded["bflops"], abs=1.1e-4), name
        assert Counter(layer.type for layer in shapes) == recorded["layer_types"], name


@pytest.mark.reference
def test_yolov3_tiny(reference_data: Path) -> None:
    folder = reference_data / "data" / "darknet" / "yolov3-tiny"
    shapes = infer_shapes(read_cfg(folder / "yolov3-tiny.cfg", strict=True))
    assert shapes[16].out_shape == (255, 13, 13)
    assert shapes[23].out_shape == (255, 26, 26)
    assert (folder / "yolov3-tiny.weights").stat().st_size == 20 + 4 * shapes.parameters


def test_original_reading_rounds_the_batch_down() -> None:
    config = parse_cfg("[net]\nwidth=8\nheight=8\nchannels=1\nbatch=10\nsubdivisions=4\n[avgpool]\n", original=True)
    assert infer_shapes(config).net.pass_batch == 2


def test_a_pooling_window_that_would_never_be_done_is_refused() -> None:
    for name in ("maxpool", "local_avgpool"):
        config = make_config([("net", {"width": 4, "height": 4, "channels": 1}), (name, {"size": 2147483647})])
        with pytest.raises(FormatError, match="a window of 2147483647x2147483647 would never be done"):
            infer_shapes(config)

"""The table of sections and their typed options."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from undertow.darknet.files import options_layers as layers
from undertow.darknet.files.cfg import make_config, parse_cfg
from undertow.darknet.files.fork_keys import BY_SECTION, COMMON, Effect
from undertow.darknet.files.option_fields import key_of, option_fields
from undertow.darknet.files.options import (
    SECTIONS,
    read_layer_options,
    read_net_options,
    read_options,
    training_gaps,
    unsupported_section,
)
from undertow.darknet.files.options_heads import RegionOptions, YoloOptions
from undertow.darknet.files.options_net import NetOptions
from undertow.errors import FormatError, UndertowWarning

IMAGE = {"width": 8, "height": 8, "channels": 3}


def options_of(name: str, **values: Any) -> Any:
    return read_options(make_config([("net", IMAGE), (name, values)]).layers[0])


def net_options(**values: Any) -> NetOptions:
    return read_net_options(make_config([("net", IMAGE | values)]))


@pytest.mark.parametrize("name", sorted({kind.name for kind in SECTIONS.values()}))
def test_every_option_has_a_default_and_a_key(name: str) -> None:
    options = SECTIONS[name].options()
    fields = option_fields(type(options))
    assert {item.name for item in fields.values()} == {item.name for item in dataclasses.fields(options)}
    assert all(key_of(type(options), item.name) == key for key, item in fields.items())


def test_all_section_types_of_the_2018_program_are_known() -> None:
    names = (
        "shortcut crop cost detection region yolo iseg local conv convolutional deconv deconvolutional activation "
        "logistic l2norm net network crnn gru lstm rnn conn connected max maxpool reorg avg avgpool dropout lrn "
        "normalization batchnorm soft softmax route upsample"
    )
    assert {name for name, kind in SECTIONS.items() if not kind.fork} == set(names.split())


def test_fork_keys_belong_to_known_sections_and_hide_no_own_key() -> None:
    for name, keys in BY_SECTION.items():
        own = set(option_fields(SECTIONS[name].options)) - {"iou_loss"}  # read, but only mse trains
        assert not own & set(keys)
        assert not own & set(COMMON) or name == "net"


def test_defaults_that_depend_on_other_options() -> None:
    pool = layers.MaxpoolOptions(stride=3)
    assert (pool.size, pool.padding) == (3, 2)
    pool = layers.MaxpoolOptions(size=5)
    assert (pool.stride, pool.padding) == (1, 4)
    net = net_options()
    assert (net.inputs, net.max_crop, net.min_crop, net.max_ratio, net.min_ratio) == (192, 16, 8, 2, 1)
    yolo = YoloOptions(num=3)
    assert yolo.mask == (0, 1, 2)
    assert yolo.anchors == (0.5,) * 6


def test_pad_overrides_padding() -> None:
    assert layers.ConvolutionalOptions(size=5, pad=True, padding=7).border == 2
    assert layers.ConvolutionalOptions(size=5, padding=7).border == 7


def test_keys_with_other_names_than_their_fields() -> None:
    assert options_of("shortcut", **{"from": -3}).source == -3
    assert options_of("cost", type="smooth").kind == "smooth"
    assert options_of("convolutional", learning_rate=0.5).learning_rate_scale == 0.5
    assert options_of("yolo", max=30, num=1).max_boxes == 30
    assert net_options(B1=0.8, eps=0.1).beta1 == 0.8


def test_pass_batch() -> None:
    assert net_options(batch=64, subdivisions=16, time_steps=3).pass_batch == 12


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"batch": 10, "subdivisions": 4}, "batch \\(10\\) must be a multiple"),
        ({"batch": 0}, "batch=0 in \\[net\\] is too small"),
        ({"width": 0}, "no input size"),
        ({"inputs": 5}, "inputs=5 is not width\\*height\\*channels = 192"),
        ({"policy": "steps"}, "needs steps and scales"),
        ({"policy": "steps", "steps": (1, 2), "scales": (0.1,)}, "steps has 2 values, scales has 1"),
        ({"policy": "step-by-step"}, "unknown policy"),
        ({"policy": "sgdr"}, "policy=sgdr with a cycle of 0"),
        ({"policy": "sgdr", "sgdr_cycle": 5, "sgdr_mult": 0}, "grows 0 times"),
        ({"policy": "step", "step": 0}, "policy=step with step=0"),
        ({"policy": "step", "step": -3}, "policy=step with step=-3"),
        ({"policy": "poly"}, "policy=poly with max_batches=0"),
        ({"policy": "poly", "max_batches": -1}, "policy=poly with max_batches=-1"),
    ],
)
def test_net_options_that_cannot_be(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        net_options(**values)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("shortcut", {}, "does not say which layer"),
        ("route", {}, "does not say which layers"),
        ("upsample", {"stride": 0}, "stride=0"),
        ("dropout", {"probability": 1}, "not in 0..1"),
        ("convolutional", {"filters": 0}, "filters=0 in \\[convolutional\\] is too small"),
        ("convolutional", {"stride": 0}, "stride=0"),
        ("convolutional", {"activation": "leeky"}, "did you mean 'leaky'"),
        ("shortcut", {"from": -1, "weights_type": "per_feature"}, "without weights_normalization"),
        ("route", {"layers": -1, "groups": 2, "group_id": 2}, "group_id=2, but groups=2"),
        ("reorg3d", {"reverse": 1}, "reverse=1"),
        ("yolo", {"num": 3, "anchors": (1, 2)}, "anchors has 2 values, num=3 needs 6"),
        ("yolo", {"num": 1, "anchors": (1, 0)}, "anchor 0 is not above 0"),
        ("yolo", {"num": 2, "mask": (1, 2)}, "mask names anchor 2"),
        ("yolo", {"num": 100000}, "too many"),
        ("region", {"num": 2, "anchors": (1, 2, 3)}, "anchors has 3 values, num=2 needs 4"),
    ],
)
def test_layer_options_that_cannot_be(name: str, values: dict[str, Any], reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        options_of(name, **values)
    assert caught.value.line is not None


def test_anchors_of_region_default_to_a_half() -> None:
    assert options_of("region", num=2).anchors == (0.5,) * 4
    assert RegionOptions(num=5, classes=20).channels == 125


def test_unknown_keys_name_the_section_they_belong_to() -> None:
    config = parse_cfg("[net]\nwidth=8\nheight=8\nchannels=3\n[maxpool]\nfilters=3\n", "a.cfg")
    with pytest.warns(UndertowWarning, match=r"'filters' belongs in \[convolutional\]"):
        read_options(config.layers[0])


def test_many_unknown_keys_are_counted() -> None:
    lines = "\n".join(f"unknown{number}=1" for number in range(1000))
    with pytest.warns(UndertowWarning) as told:
        read_options(parse_cfg(f"[net]\nwidth=8\nheight=8\nchannels=3\n{lines}\n").net)
    assert len(told) == 21
    assert "980 more unknown keys" in str(told[-1].message)


def test_second_net_section() -> None:
    config = make_config([("net", IMAGE), ("network", IMAGE)])
    with pytest.raises(FormatError, match=r"a second \[network\]"):
        read_layer_options(config.layers[0])


def test_section_of_the_fork() -> None:
    assert options_of("scale_channels", **{"from": -1}).source == -1
    with pytest.raises(FormatError, match=r"\[contrastive\] of AlexeyAB's fork is not supported yet"):
        options_of("contrastive")
    config = parse_cfg("[net]\nwidth=8\nheight=8\nchannels=3\n[sam]\nfrom=-1\n", original=True)
    with pytest.raises(FormatError, match=r"\[sam\] is one of AlexeyAB's fork"):
        read_options(config.layers[0])


def test_unsupported_section_says_what_works() -> None:
    section = make_config([("net", IMAGE), ("gru", {})], "n.cfg").layers[0]
    error = unsupported_section(section, {"maxpool", "convolutional"})
    assert str(error) == (
        "n.cfg:5: [gru] is a section type of Darknet that is not supported yet. "
        "To mend it: use a network made of convolutional, maxpool"
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("route", {"layers": -1, "groups": 1, "group_id": 0}),
        ("convolutional", {"stride": 2, "stride_x": 2, "stride_y": 2, "dilation": 1, "antialiasing": 0}),
        (
            "yolo",
            {"iou_loss": "mse", "iou_normalizer": 1, "cls_normalizer": 1.0, "show_details": 1, "nms_kind": "default"},
        ),
        ("dropout", {"dropblock": 0}),
        ("maxpool", {"train_only_bn": 0, "stream": 3}),
    ],
)
def test_fork_keys_that_change_nothing_are_accepted(name: str, values: dict[str, Any]) -> None:
    options_of(name, **values)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("convolutional", {"rotate": 1}),
        ("convolutional", {"coordconv": 1}),
        ("maxpool", {"maxpool_zero_nonmax": 1}),
        ("conv_lstm", {"bottleneck": 1}),
    ],
)
def test_fork_keys_that_change_the_output_are_errors(name: str, values: dict[str, Any]) -> None:
    config = parse_cfg(make_config([("net", IMAGE), (name, values)]).to_text())
    with pytest.raises(
        FormatError, match="of AlexeyAB's fork is not supported yet; it changes what the network computes"
    ):
        read_options(config.layers[0])


def test_fork_keys_of_training_are_warnings_and_can_be_listed() -> None:
    text = "[net]\nwidth=8\nheight=8\nchannels=3\nmosaic=1\n[yolo]\nnum=1\niou_loss=ciou\n"
    config = parse_cfg(text, "fork.cfg")
    assert read_options(config.layers[0]).iou_loss == "ciou"  # type: ignore[attr-defined]
    with pytest.warns(UndertowWarning, match="mosaic=1"):
        read_net_options(config)
    assert [(entry.key, entry.line) for entry in training_gaps(config)] == [("mosaic", 5), ("iou_loss", 8)]
    assert [entry.key for entry in training_gaps(config, Effect.LOSS)] == ["iou_loss"]


def test_original_reading_ignores_fork_keys_with_a_warning() -> None:
    config = parse_cfg("[net]\nwidth=8\nheight=8\nchannels=3\n[route]\nlayers=-1\ngroups=2\n", original=True)
    with pytest.warns(UndertowWarning, match=r"groups=2 in \[route\] is ignored, as the original does"):
        read_options(config.layers[0])

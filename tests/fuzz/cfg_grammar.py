"""Cfg files by a grammar: mostly small nets that fit together, with wrong and absurd values here and there."""

from __future__ import annotations

import random

from undertow.darknet.files.option_fields import OptionField, option_fields
from undertow.darknet.files.options import SECTIONS

ABSURD = (
    "0", "-1", "1e38", "-1e38", "nan", "inf", "2147483647", "-2147483648", "4294967296", "99999999999999999999", ".5",
    "x", "", " ", ",", "1,", ",1", "1,,2", "-1,-2,-3,-4", "0x10", "1e", "--1", "=", "#", "[net]", "leaky", "\xff",
    "1 2",
)  # fmt: skip
_NET = {"net", "network"}


def cfg_text(draw: random.Random) -> str:
    """A whole file."""
    lines = [_net(draw)]
    lines += [_section(draw, name) for name in _names(draw)]
    if draw.random() < 0.5:
        lines.append(draw.choice((_yolo, _region, _softmax))(draw))
    text = "\n".join(lines)
    if draw.random() < 0.1:
        text = text.replace("\n", draw.choice(("\r\n", "\r", "\n\n", "\n#x\n", " \n\t")))
    return text


def _net(draw: random.Random) -> str:
    side = draw.choice((4, 8, 16, 32))
    given = {
        "batch": draw.choice((1, 2)), "width": side, "height": draw.choice((side, side, 8)),
        "channels": draw.choice((1, 3)), "max_batches": 10,
    }  # fmt: skip
    if draw.random() < 0.2:
        given = {"inputs": draw.choice((1, 8, 30)), "batch": 1, "time_steps": draw.choice((1, 2)), "max_batches": 10}
    return _written(draw, "[net]", {key: str(value) for key, value in given.items()}, "net", 0.15)


def _names(draw: random.Random) -> list[str]:
    usual = ("convolutional", "maxpool", "route", "shortcut", "upsample", "connected", "dropout", "batchnorm")
    known = sorted(set(SECTIONS) - _NET)
    return [draw.choice(usual if draw.random() < 0.6 else known) for _ in range(draw.randint(0, 6))]


def _section(draw: random.Random, name: str) -> str:
    small = draw.randint(1, 8)
    given: dict[str, str] = {}
    match name:
        case "convolutional" | "conv" | "deconvolutional" | "deconv":
            given = {
                "filters": str(small), "size": draw.choice("123"), "stride": draw.choice("112"), "pad": "1",
                "batch_normalize": draw.choice("01"), "activation": draw.choice(("leaky", "relu", "mish", "linear")),
            }  # fmt: skip
        case "maxpool" | "max" | "local_avgpool":
            given = {"size": draw.choice("123"), "stride": draw.choice("12")}
        case "route":
            given = {"layers": ",".join(str(-draw.randint(1, 4)) for _ in range(draw.randint(1, 3)))}
        case "shortcut" | "scale_channels" | "sam":
            given = {"from": str(-draw.randint(1, 4)), "activation": "linear"}
        case "connected" | "conn" | "rnn" | "gru" | "lstm" | "crnn" | "conv_lstm":
            given = {"output": str(small), "hidden": str(small), "output_filters": str(small), "hidden_filters": "2"}
        case "crop":
            given = {"crop_width": "4", "crop_height": "4"}
    return _written(draw, f"[{name}]", given, name, 0.25)


def _yolo(draw: random.Random) -> str:
    classes = draw.randint(1, 3)
    convolution = f"[convolutional]\nfilters={2 * (5 + classes)}\nsize=1\nactivation=linear\n"
    given = {"mask": "0,1", "anchors": "4,4, 8,8", "classes": str(classes), "num": "2"}
    return convolution + _written(draw, "[yolo]", given, "yolo", 0.3)


def _region(draw: random.Random) -> str:
    convolution = "[convolutional]\nfilters=14\nsize=1\nactivation=linear\n"
    given = {"anchors": "1,1,2,2", "classes": "2", "coords": "4", "num": "2", "softmax": "1"}
    return convolution + _written(draw, "[region]", given, "region", 0.3)


def _softmax(draw: random.Random) -> str:
    return "[connected]\noutput=3\n" + _written(draw, "[softmax]", {"groups": "1"}, "softmax", 0.3)


def _written(draw: random.Random, title: str, given: dict[str, str], name: str, wrong: float) -> str:
    """A section; now and then with other keys of its kind, wrong values, unknown keys."""
    fields = list(option_fields(SECTIONS[name].options).values())
    while draw.random() < wrong:
        field = draw.choice(fields)
        given[field.key] = _value(draw, field)
    if draw.random() < wrong / 4 and given:
        given[draw.choice(list(given))] = draw.choice(ABSURD)
    if draw.random() < 0.02:
        given[draw.choice(("unknown", "filter", "", "a b"))] = draw.choice(ABSURD)
    equals = draw.choice(("=", "=", "=", " = ", "= "))
    lines = [f"{key}{equals}{value}" for key, value in given.items()]
    if draw.random() < 0.05:
        draw.shuffle(lines)
    return "\n".join([title, *lines, ""])


def _value(draw: random.Random, field: OptionField) -> str:
    if field.choices and draw.random() < 0.8:
        return str(draw.choice(field.choices))
    if draw.random() < 0.2:
        return draw.choice(ABSURD)
    if field.type is bool:
        return draw.choice("01")
    if field.type is float:
        return draw.choice(("0.5", "1", "-0.1", "2", "0"))
    if field.type is str:
        return draw.choice(("a.list", "leaky", "../x", "sse"))
    if field.type in (tuple[int, ...], tuple[float, ...]):
        return ",".join(str(draw.randint(-3, 9)) for _ in range(draw.randint(1, 6)))
    return str(draw.randint(-2, 9))

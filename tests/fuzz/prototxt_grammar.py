"""Prototxt files by a grammar: small nets that mostly fit together, and messages with any fields of the schema."""

from __future__ import annotations

import random

from undertow.caffe.proto import get_schema
from undertow.caffe.proto.schema import Field, MessageType

ABSURD = (
    "0", "-1", "1e38", "nan", "-inf", "2147483647", "-2147483648", "4294967296", "18446744073709551616", "1.5", '"x"',
    "'", '"', "true", "TRAIN", "{", "}", "[1, 2]", "[", "0x7f", "07", "1f", "", '"\\377"', '"a" "b"', "#", "a.b",
    "<", ">",
)  # fmt: skip
_SCHEMA = get_schema()
_DEEPEST = 3
# Layers that need options, and others.
_OPTIONS = {
    "Convolution": 'convolution_param { num_output: 2 kernel_size: 1 weight_filler { type: "xavier" } }',
    "Deconvolution": "convolution_param { num_output: 2 kernel_size: 2 }",
    "InnerProduct": 'inner_product_param { num_output: 3 weight_filler { type: "gaussian" } }',
    "Pooling": "pooling_param { kernel_size: 2 stride: 1 }",
    "Reshape": "reshape_param { shape { dim: 0 dim: -1 } }",
}
_PLAIN = (
    "ReLU", "Dropout", "LRN", "BatchNorm", "Scale", "Bias", "Softmax", "Flatten", "Concat", "Eltwise", "Slice",
    "Split", "Sigmoid", "TanH", "Power", "Exp", "Log", "Crop", "ArgMax", "Reduction", "EuclideanLoss",
    "SoftmaxWithLoss", "HingeLoss", "Accuracy", "Embed", "Im2col", "LSTM", "Permute", "Normalize", "PriorBox",
    "DummyData", "MVN", "SPP", "Silence", "Tile", "RNN", "ContrastiveLoss", "InfogainLoss", "MultinomialLogisticLoss",
    "PReLU", "ELU", "AbsVal", "BNLL",
)  # fmt: skip


def net_text(draw: random.Random) -> str:
    """A net of a few layers in today's form, or any message of its type."""
    if draw.random() < 0.25:
        return message_text(draw, _SCHEMA["NetParameter"], 0)
    shape = " ".join(f"dim: {draw.choice((1, 2, 3, 5, 8))}" for _ in range(draw.choice((4, 4, 4, 2, 3))))
    layers = [f'layer {{ name: "in" type: "Input" top: "x0" input_param {{ shape {{ {shape} }} }} }}']
    for number in range(draw.randint(1, 5)):
        layers.append(_layer(draw, number))
    text = "\n".join(layers)
    while draw.random() < 0.15:
        place = draw.randrange(len(text))
        text = text[:place] + draw.choice(ABSURD) + text[place + draw.randint(0, 6) :]
    return text


def _layer(draw: random.Random, number: int) -> str:
    name = draw.choice((*_OPTIONS, *_PLAIN))
    bottoms = [f'bottom: "x{draw.randint(max(0, number - 1), number)}"' for _ in range(draw.choice((1, 1, 1, 2)))]
    parts = [f'name: "l{number}" type: "{name}" top: "x{number + 1}"', *bottoms, _OPTIONS.get(name, "")]
    field = next((field for field in _SCHEMA["LayerParameter"].fields if field.name == _param(name)), None)
    if field is not None and field.message is not None and draw.random() < 0.25:
        parts.append(f"{field.name} {{ {message_text(draw, field.message, 1)} }}")
    if draw.random() < 0.1:
        parts.append(_one(draw, draw.choice(_SCHEMA["LayerParameter"].fields), 1))
    return f"layer {{ {' '.join(parts)} }}"


def _param(name: str) -> str:
    words = {"InnerProduct": "inner_product", "BatchNorm": "batch_norm", "ArgMax": "argmax", "DummyData": "dummy_data"}
    return words.get(name, name.lower()) + "_param"


def solver_text(draw: random.Random) -> str:
    """A solver."""
    return message_text(draw, _SCHEMA["SolverParameter"], 1)


def message_text(draw: random.Random, message: MessageType, depth: int) -> str:
    """Any message of a type, a few fields deep."""
    usable = [field for field in message.fields if depth < _DEEPEST or field.message is None]
    if not usable:
        return ""
    return "\n".join(_one(draw, draw.choice(usable), depth) for _ in range(draw.randint(0, 5)))


def _one(draw: random.Random, field: Field, depth: int) -> str:
    colon = draw.choice((": ", ":", " : "))
    if draw.random() < 0.03:
        return f"{draw.choice((field.name, field.name + 's', ''))}{colon}{draw.choice(ABSURD)}"
    if field.message is not None:
        inside = message_text(draw, field.message, depth + 1) if depth < _DEEPEST else ""
        opened, closed = draw.choice((("{", "}"), ("{", "}"), ("<", ">"), (": {", "};")))
        return f"{field.name} {opened}\n{inside}\n{closed}"
    return f"{field.name}{colon}{_value(draw, field)}{draw.choice(('', '', ';', ','))}"


def _value(draw: random.Random, field: Field) -> str:
    if field.enum is not None:
        return draw.choice((*field.enum.numbers, "0", "1"))
    match field.kind:
        case "string" | "bytes":
            return draw.choice(('"x0"', '"ReLU"', "'SGD'", '""', '"fixed"', '"\\n\\x41"'))
        case "bool":
            return draw.choice(("true", "false", "1", "0"))
        case "float" | "double":
            return draw.choice(("0.5", "1", "-0.1", "2e0", ".5", "1f", "0"))
    if field.repeated and draw.random() < 0.2:
        return "[" + ", ".join(str(draw.randint(0, 4)) for _ in range(draw.randint(0, 3))) + "]"
    return str(draw.randint(0, 5) if draw.random() < 0.8 else draw.randint(-3, 99))

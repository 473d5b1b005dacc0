"""Bringing nets and solvers of older Caffe versions up to date, in Caffe's order and with Caffe's rules.

V0 layers become V1 layers, data transformation fields of V1 layers move to `transform_param`, V1 layers become
today's, `input` fields become an Input layer, and BatchNorm layers with three `param`s get rates of zero. What Caffe
logs comes back as a list of lines; what it complains about and goes on is an UndertowWarning.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from undertow.caffe.proto.message import Message
from undertow.caffe.proto.report import complain
from undertow.caffe.proto.upgrade_v0 import upgrade_v0_net
from undertow.errors import FormatError

# The data layers of V1 and the message that held their transformation fields.
_TRANSFORMED = {
    "DATA": "data_param",
    "IMAGE_DATA": "image_data_param",
    "WINDOW_DATA": "window_data_param",
}
_TRANSFORMATION_FIELDS = ("scale", "mean_file", "crop_size", "mirror")

_V1_TYPES = {
    "NONE": "", "ABSVAL": "AbsVal", "ACCURACY": "Accuracy", "ARGMAX": "ArgMax", "BNLL": "BNLL", "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss", "CONVOLUTION": "Convolution", "DECONVOLUTION": "Deconvolution",
    "DATA": "Data", "DROPOUT": "Dropout", "DUMMY_DATA": "DummyData", "EUCLIDEAN_LOSS": "EuclideanLoss",
    "ELTWISE": "Eltwise", "EXP": "Exp", "FLATTEN": "Flatten", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss", "IM2COL": "Im2col", "IMAGE_DATA": "ImageData", "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct", "LRN": "LRN", "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss", "MVN": "MVN", "POOLING": "Pooling", "POWER": "Power",
    "RELU": "ReLU", "SIGMOID": "Sigmoid", "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence", "SOFTMAX": "Softmax", "SOFTMAX_LOSS": "SoftmaxWithLoss", "SPLIT": "Split", "SLICE": "Slice",
    "TANH": "TanH", "WINDOW_DATA": "WindowData", "THRESHOLD": "Threshold",
}  # fmt: skip

_SOLVER_TYPES = {
    "SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp", "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}  # fmt: skip


def upgrade_net(net: Message, *, file: str | os.PathLike[str] | None = None, strict: bool = False) -> list[str]:
    """Upgrade a NetParameter in place as needed; the result says what was done, and is empty for a current net.

    Raises FormatError where Caffe gives up: `layer` beside `layers`, an unknown V0 layer type, too few `input_dim`s.
    strict: also where Caffe only complains.
    """
    done: list[str] = []
    steps: list[tuple[Callable[[Message], bool], Callable[..., None], str]] = [
        (_has_v0_layers, upgrade_v0_net, "V0 layers upgraded to V1"),
        (_has_transformation_fields, _move_transformation_fields, "data transformation fields moved"),
        (lambda net: net.has_field("layers"), _upgrade_v1_layers, "V1 layers upgraded"),
        (lambda net: net.has_field("input"), _make_input_layer, "input fields turned into an Input layer"),
        (_has_old_batch_norm, _freeze_batch_norm, "BatchNorm layers with three params: their rates set to zero"),
    ]
    for needed, upgrade, description in steps:
        if needed(net):
            upgrade(net, file=file, strict=strict)
            done.append(description)
    return done


def _has_v0_layers(net: Message) -> bool:
    return any(layer.has_field("layer") for layer in net.layers)


def _has_transformation_fields(net: Message) -> bool:
    return any(
        layer.type in _TRANSFORMED and getattr(layer, _TRANSFORMED[layer.type]).has_field(name)
        for layer in net.layers
        for name in _TRANSFORMATION_FIELDS
    )


def _move_transformation_fields(net: Message, **_: object) -> None:
    """For all data layers; each gets a `transform_param` then, even if there is nothing to move."""
    for layer in net.layers:
        if layer.type not in _TRANSFORMED:
            continue
        old = layer.mutable(_TRANSFORMED[layer.type])
        new = layer.mutable("transform_param")
        for name in _TRANSFORMATION_FIELDS:
            if old.has_field(name):
                setattr(new, name, getattr(old, name))
                old.clear_field(name)


def _upgrade_v1_layers(net: Message, *, file: str | os.PathLike[str] | None, strict: bool) -> None:
    if net.has_field("layer"):
        raise FormatError(
            "the net has both `layer` and `layers` (the older form)",
            file=file,
            line=net.line_of("layers"),
            remedy='write all layers as `layer { type: "Name" ... }`',
        )
    for index, old in enumerate(net.layers):
        if old.has_field("layer"):
            complain(f"layer {index}: a V0 layer inside it is ignored", strict=strict, file=file, line=old.line_of())
        if old.unknown_fields:
            label = old.name or index
            complain(f"layer {label}: unknown fields are lost in the upgrade from V1", strict=strict, file=file)
        _upgrade_v1_layer(old, net.add("layer"))
    net.clear_field("layers")


def _upgrade_v1_layer(old: Message, new: Message) -> None:
    """Everything keeps its name but the type, and the parameters' names, sharing modes, rates and decays."""
    collected = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}
    if old.has_field("type"):
        if old.type not in _V1_TYPES:
            raise FormatError(
                f"layer {old.name}: V1 type {old.type} has no current name",
                line=old.line_of(),
                remedy='write it as layer { type: "Name" ... }',
            )
        new.type = _V1_TYPES[old.type]
    for name in old.field_names():
        if name not in collected and name not in ("type", "layer") and name in new.descriptor.by_name:
            setattr(new, name, getattr(old, name))
    for source, target in collected.items():
        for index, value in enumerate(getattr(old, source)):
            while len(new.param) <= index:
                new.add("param")
            setattr(new.param[index], target, value)
    object.__setattr__(new, "_lines", old._lines)


def _make_input_layer(net: Message, *, file: str | os.PathLike[str] | None, **_: object) -> None:
    """The first layer gives the inputs in their shapes. Without shapes (old caffemodels) the fields just go."""
    count = len(net.input)
    if net.has_field("input_shape") or net.has_field("input_dim"):
        layer = Message(net.descriptor.by_name["layer"].message, name="input", type="Input", top=list(net.input))  # type: ignore[arg-type]
        shapes = layer.mutable("input_param").shape
        if net.has_field("input_shape"):
            _check_count(net, "input_shape", count, file)
            shapes.extend(net.input_shape[:count])
        else:
            _check_count(net, "input_dim", 4 * count, file)
            for index in range(count):
                shapes.add(dim=net.input_dim[4 * index : 4 * index + 4])
        object.__setattr__(layer, "_lines", {"": net.line_of("input"), "top": net.line_of("input")})
        net.layer.insert(0, layer)
    for name in ("input", "input_shape", "input_dim"):
        net.clear_field(name)


def _check_count(net: Message, name: str, needed: int, file: str | os.PathLike[str] | None) -> None:
    given = len(getattr(net, name))
    if given < needed:
        raise FormatError(
            f"{len(net.input)} inputs need {needed} of {name}, there are {given}",
            file=file,
            line=net.line_of(name),
            remedy='write `layer { type: "Input" top: ... input_param { shape { dim: ... } } }` instead',
        )


def _has_old_batch_norm(net: Message) -> bool:
    return any(layer.type == "BatchNorm" and len(layer.param) == 3 for layer in net.layer)


def _freeze_batch_norm(net: Message, **_: object) -> None:
    for layer in net.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for param in layer.param:
                param.lr_mult = 0
                param.decay_mult = 0


def upgrade_solver(solver: Message, *, file: str | os.PathLike[str] | None = None) -> list[str]:
    """Upgrade a SolverParameter in place: the enum `solver_type` becomes the string `type`.

    Raises FormatError when both are given.
    """
    if not solver.has_field("solver_type"):
        return []
    if solver.has_field("type"):
        raise FormatError(
            "solver_type (old) and type (new) are both given",
            file=file,
            line=solver.line_of("solver_type"),
            remedy="remove solver_type",
        )
    solver.type = _SOLVER_TYPES[solver.solver_type]
    solver.clear_field("solver_type")
    return ["solver_type upgraded to type"]

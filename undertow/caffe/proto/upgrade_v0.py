"""From V0 layers (2013: `layers { layer { type: "conv" ... } bottom: ... }`) to V1 layers."""

from __future__ import annotations

import os

from undertow.caffe.proto.message import Message
from undertow.caffe.proto.report import complain
from undertow.errors import FormatError

_TYPES = {
    "accuracy": "ACCURACY", "bnll": "BNLL", "concat": "CONCAT", "conv": "CONVOLUTION", "data": "DATA",
    "dropout": "DROPOUT", "euclidean_loss": "EUCLIDEAN_LOSS", "flatten": "FLATTEN", "hdf5_data": "HDF5_DATA",
    "hdf5_output": "HDF5_OUTPUT", "im2col": "IM2COL", "images": "IMAGE_DATA", "infogain_loss": "INFOGAIN_LOSS",
    "innerproduct": "INNER_PRODUCT", "lrn": "LRN", "multinomial_logistic_loss": "MULTINOMIAL_LOGISTIC_LOSS",
    "pool": "POOLING", "relu": "RELU", "sigmoid": "SIGMOID", "softmax": "SOFTMAX", "softmax_loss": "SOFTMAX_LOSS",
    "split": "SPLIT", "tanh": "TANH", "window_data": "WINDOW_DATA",
}  # fmt: skip

_CONV = {"conv": "convolution_param"}
_WEIGHTED = {**_CONV, "innerproduct": "inner_product_param"}
_WINDOWED = {**_CONV, "pool": "pooling_param"}
_IMAGES = {"images": "image_data_param"}
_DATABASE = {"data": "data_param"}
_DETECTION = {"window_data": "window_data_param"}
_BATCHES = {**_DATABASE, "hdf5_data": "hdf5_data_param", **_IMAGES, **_DETECTION}
_LRN = {"lrn": "lrn_param"}

# V0 field: its name today, and by V0 layer type the message it belongs in.
_PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "num_output": ("num_output", _WEIGHTED),
    "biasterm": ("bias_term", _WEIGHTED),
    "weight_filler": ("weight_filler", _WEIGHTED),
    "bias_filler": ("bias_filler", _WEIGHTED),
    "pad": ("pad", _WINDOWED),
    "kernelsize": ("kernel_size", _WINDOWED),
    "group": ("group", _CONV),
    "stride": ("stride", _WINDOWED),
    "pool": ("pool", {"pool": "pooling_param"}),
    "dropout_ratio": ("dropout_ratio", {"dropout": "dropout_param"}),
    "local_size": ("local_size", _LRN),
    "alpha": ("alpha", _LRN),
    "beta": ("beta", _LRN),
    "k": ("k", _LRN),
    "source": ("source", {**_BATCHES, "infogain_loss": "infogain_loss_param"}),
    "batchsize": ("batch_size", _BATCHES),
    "rand_skip": ("rand_skip", {**_DATABASE, **_IMAGES}),
    "shuffle_images": ("shuffle", _IMAGES),
    "new_height": ("new_height", _IMAGES),
    "new_width": ("new_width", _IMAGES),
    "concat_dim": ("concat_dim", {"concat": "concat_param"}),
    "det_fg_threshold": ("fg_threshold", _DETECTION),
    "det_bg_threshold": ("bg_threshold", _DETECTION),
    "det_fg_fraction": ("fg_fraction", _DETECTION),
    "det_context_pad": ("context_pad", _DETECTION),
    "det_crop_mode": ("crop_mode", _DETECTION),
}
_TRANSFORMATION = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}

_File = str | os.PathLike[str] | None


def upgrade_v0_net(net: Message, *, file: _File, strict: bool) -> None:
    """Replace the V0 layers of a net by V1 layers; padding layers go into the layers that read them.

    A field that does not belong to its layer's type is complained about and left out, as in Caffe.
    """
    upgraded = [_upgrade_layer(layer, file, strict) for layer in _without_padding(net, file)]
    kept = ("name", "input", "input_dim", "force_backward", "layers")
    lost = [name for name in net.field_names() if name not in kept]
    if lost:
        complain(f"a V0 net has no {', '.join(lost)}: left out", strict=strict, file=file, line=net.line_of(lost[0]))
    for name in lost:
        net.clear_field(name)
    net.layers = upgraded


def _without_padding(net: Message, file: _File) -> list[Message]:
    """The layers other than padding layers, whose pad goes to the convolution or pooling that reads them."""
    producers: dict[str, Message | None] = dict.fromkeys(net.input)
    result: list[Message] = []
    for original in net.layers:
        layer = original.copy()
        if layer.layer.type != "padding":
            result.append(layer)
        for index, bottom in enumerate(original.bottom):
            if bottom not in producers:
                _refuse(original, f"unknown blob {bottom}", file, "name a blob that a layer before makes")
            producer = producers[bottom]
            if producer is not None and producer.layer.type == "padding":
                _check_padding(producer, original, file)
                layer.mutable("layer").pad = producer.layer.pad
                layer.bottom[index] = producer.bottom[0]
        producers.update(dict.fromkeys(original.top, original))
    return result


def _check_padding(padding: Message, reader: Message, file: _File) -> None:
    if reader.layer.type not in ("conv", "pool"):
        _refuse(
            reader,
            f"a padding layer before a layer of type {reader.layer.type}, which cannot pad",
            file,
            "put it before a conv or pool layer",
        )
    if len(reader.bottom) != 1 or len(padding.bottom) != 1 or len(padding.top) != 1:
        _refuse(
            reader,
            "a padding layer and its reader must have one bottom and one top each",
            file,
            "write pad in the layer itself",
        )


def _refuse(layer: Message, reason: str, file: _File, remedy: str) -> None:
    raise FormatError(reason, file=file, line=layer.line_of(), layer=layer.layer.name or None, remedy=remedy)


def _upgrade_layer(connection: Message, file: _File, strict: bool) -> Message:
    """A V1 layer from the V0 layer inside a connection; without one only bottoms and tops remain, as in Caffe."""
    new = Message(connection.descriptor, bottom=connection.bottom, top=connection.top)
    object.__setattr__(new, "_lines", connection._lines)
    if not connection.has_field("layer"):
        complain(
            f"layer {connection.name or 'without name'} is not in the V0 form of the others: only its bottoms and tops "
            "are kept",
            strict=strict,
            file=file,
            line=connection.line_of(),
        )
        return new
    old = connection.layer
    if old.has_field("type") and old.type not in _TYPES:
        _refuse(connection, f"unknown V0 layer type '{old.type}'", file, f"use one of {', '.join(sorted(_TYPES))}")
    for name in old.field_names():
        if name == "type":
            new.type = _TYPES[old.type]
        elif name in ("name", "blobs", "blobs_lr", "weight_decay"):
            setattr(new, name, getattr(old, name))
        elif name in _TRANSFORMATION:
            setattr(new.mutable("transform_param"), _TRANSFORMATION[name], getattr(old, name))
        else:
            _place(old, name, new, file, strict)
    return new


def _place(old: Message, name: str, new: Message, file: _File, strict: bool) -> None:
    value = getattr(old, name)
    if name == "hdf5_output_param" and old.type == "hdf5_output":
        new.hdf5_output_param = value
        return
    target, places = _PLACES.get(name, (name, {}))
    place = places.get(old.type)
    if place is not None:
        options = new.mutable(place)
        repeated = options.descriptor.by_name[target].repeated
        setattr(options, target, [value] if repeated else value)
    elif name in _PLACES or name == "hdf5_output_param":
        reason = f"a layer of type {old.type} has no {name}: left out"
        complain(reason, strict=strict, file=file, line=old.line_of(name), layer=old.name or None)

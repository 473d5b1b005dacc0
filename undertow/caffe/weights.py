"""Parameters from a caffemodel or another net, by layer name."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from undertow.caffe.blob import Blob, Shape
from undertow.caffe.proto.blobs import blob_array, blob_shape
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError, ShapeError, UndertowWarning

if TYPE_CHECKING:
    from undertow.caffe.net import Net


@dataclass
class WeightsReport:
    """What happened to the layers of two sides.

    copied: layers whose parameters were taken over. only_in_file: layers of the file that the net does not have, of
    those with parameters. only_in_net: layers with parameters that the file does not have; they keep what they had.
    """

    copied: list[str] = field(default_factory=list)
    only_in_file: list[str] = field(default_factory=list)
    only_in_net: list[str] = field(default_factory=list)


def copy_layers(net: Net, source: Message, file: str | os.PathLike[str] | None = None) -> WeightsReport:
    """Copy the blobs of a NetParameter into the layers of the same names. See `Net.copy_from`."""
    report = WeightsReport()
    places = {layer.name: i for i, layer in reversed(list(enumerate(net.layers)))}
    for message in source.layer:
        if message.name not in places:
            net.log(f"Ignoring source layer {message.name}")
            if message.blobs:
                report.only_in_file.append(message.name)
            continue
        index = places[message.name]
        targets = _targets(net, index, len(message.blobs), message.name, file)
        for number, (blob, proto) in enumerate(zip(targets, message.blobs, strict=True)):
            _copy(blob, proto, number, message.name, file)
        if targets:
            report.copied.append(message.name)
    report.only_in_net = [name for name in net.params if name not in report.copied]
    if report.only_in_file and not report.copied and report.only_in_net:
        where = f"{os.fspath(file)}: " if file is not None else ""
        warnings.warn(
            UndertowWarning(
                f"{where}none of its layers is in the net, which keeps the parameters that it had (in the file is "
                f"'{report.only_in_file[0]}', in the net '{report.only_in_net[0]}'). To mend it: give the layers of "
                "the prototxt the names of the file"
            ),
            stacklevel=4,
        )
    if report.only_in_net:
        net.log(f"layers with parameters only in the net: {', '.join(report.only_in_net)}")
    return report


def _targets(net: Net, index: int, count: int, name: str, file: str | os.PathLike[str] | None) -> list[Blob]:
    """The parameters of a layer that a file's blobs belong to; HDF5 files leave out shared ones."""
    blobs = net.layers[index].blobs
    if count == len(blobs):
        return blobs
    owned = [b for b, i in zip(blobs, net.param_ids[index], strict=True) if net.param_owners[i] < 0]
    if count == len(owned):
        return owned
    raise FormatError(
        f"the file has {count} parameters for this layer, the net {len(blobs)}",
        file=file,
        layer=name,
        remedy="to learn this layer from the start, rename it in the prototxt; otherwise make its options (bias_term, "
        "type) those of the file",
    )


def _copy(blob: Blob, proto: Message, number: int, name: str, file: str | os.PathLike[str] | None) -> None:
    shape = blob_shape(proto)
    if not fits(blob.shape, shape, legacy=not proto.has_field("shape")):
        raise ShapeError(
            f"parameter {number} has shape {_text(shape)} in the file and {_text(blob.shape)} in the net",
            file=file,
            layer=name,
            remedy="to learn this layer from the start instead of copying it, rename it in the prototxt",
        )
    values = blob_array(proto, layer=name, file=file)
    if values.size != blob.count:
        raise FormatError(
            f"parameter {number} of shape {_text(shape)} holds {values.size} values",
            file=file,
            layer=name,
            remedy="the file is damaged: fetch or write it again",
        )
    blob.data[...] = values.reshape(blob.shape)
    if len(proto.diff) == blob.count or len(proto.double_diff) == blob.count:
        blob.diff[...] = blob_array(proto, diff=True, layer=name, file=file).reshape(blob.shape)


def fits(shape: Shape, stored: Shape, legacy: bool = False) -> bool:
    """Whether stored parameters may be copied: the same shape, or the four axes of old files with ones in front."""
    if tuple(stored) == tuple(shape):
        return True
    return legacy and len(shape) <= 4 and tuple(stored) == (1,) * (4 - len(shape)) + tuple(shape)


def share_layers(net: Net, other: Net) -> None:
    """Let the layers of a net look at the parameter values of those of the same names in another."""
    for source in other.layers:
        target = next((layer for layer in net.layers if layer.name == source.name), None)
        if target is None:
            continue
        ours, theirs = [b.shape for b in target.blobs], [b.shape for b in source.blobs]
        if ours != theirs:
            raise ShapeError(
                f"cannot share parameters of shapes {theirs}, this net's are {ours}",
                layer=source.name,
                remedy="give the layers the same options, or different names",
            )
        for mine, shared in zip(target.blobs, source.blobs, strict=True):
            mine.share_data(shared)


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "()"

"""What is in the sources that data layers read: how much, what is missing, and labels that are no class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from undertow.caffe.data.datum import parse_datum
from undertow.caffe.data.feed_database import DatabaseFeed, RecordFeed
from undertow.caffe.data.feed_hdf5 import Hdf5Feed
from undertow.caffe.data.feed_images import ImageFeed
from undertow.caffe.layers_data import FeedLayer
from undertow.caffe.net import Net
from undertow.errors import UndertowError
from undertow.findings import Report

# Labels are looked at up to so many: a database of millions would take minutes.
_LOOKED_AT = 20_000
_SHOWN = 3
# Layers that take scores and the numbers of the true classes.
_CLASSIFYING = ("SoftmaxWithLoss", "MultinomialLogisticLoss", "HingeLoss", "InfogainLoss", "Accuracy")


def count_samples(layer: FeedLayer) -> int | None:
    """How many samples its source holds; None where that is not known without reading all of it."""
    feed = layer.feed
    if isinstance(feed, RecordFeed):
        return feed.database.entries or None
    if isinstance(feed, ImageFeed):
        return len(feed.lines)
    if isinstance(feed, Hdf5Feed):
        return feed.count_rows()
    return None


def look_at_data(report: Report, layer: FeedLayer, what: str) -> None:
    """Findings about the source of one layer. what: the net it belongs to."""
    try:
        count = count_samples(layer)
    except UndertowError as problem:
        report.add("error", "data", f"{what}: {layer.placed(problem)}")
        return
    shapes = ", ".join(f"{name} {' x '.join(map(str, shape[1:])) or 'a number'}"
                       for name, shape in zip(layer.message.top, layer.feed.shapes, strict=False))  # fmt: skip
    source = layer.source
    report.numbers.setdefault("samples", {})[f"{what}: {layer.name}"] = count
    held = f"{count} samples" if count else "samples"
    report.add("note", "data", f"{what}: layer '{layer.name}' reads {source}: {held} of {shapes}")
    if isinstance(layer.feed, ImageFeed):
        feed = layer.feed
        missing = [line for line in feed.lines if not os.path.isfile(feed.find(line.path))]
        if missing:
            named = "; ".join(f"line {line.number}: {feed.find(line.path)}" for line in missing[:_SHOWN])
            more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            report.add("error", "data", f"{source}: {len(missing)} of its pictures are not there: {named}{more}")


def check_labels(report: Report, net: Net, what: str) -> None:
    """Labels of a data layer that are no class of the layer that they are compared with, each source once."""
    makers = {blob: (layer, place) for layer, ids in zip(net.layers, net.top_ids, strict=True)
              if isinstance(layer, FeedLayer) for place, blob in enumerate(ids)}  # fmt: skip
    copies = {top: ids[0] for layer, ids, tops in zip(net.layers, net.bottom_ids, net.top_ids, strict=True)
              if layer.type == "Split" for top in tops}  # fmt: skip
    looked: set[str] = set()
    for layer, ids in zip(net.layers, net.bottom_ids, strict=True):
        if layer.type not in _CLASSIFYING or len(ids) < 2:
            continue
        source, place = makers.get(copies.get(ids[1], ids[1]), (None, 0))
        if source is None or place != 1 or source.name in looked:
            continue
        looked.add(source.name)
        axis = layer.message.softmax_param.axis if layer.type == "SoftmaxWithLoss" else 1
        classes = net.blob_list[ids[0]].shape[axis]
        ignored = layer.message.loss_param.ignore_label if layer.message.loss_param.has_field("ignore_label") else None
        try:
            found = {label for label in islice(_labels(source), _LOOKED_AT) if label != ignored}
        except UndertowError as problem:
            report.add("error", "data", f"{what}: {source.placed(problem)}")
            continue
        _tell_labels(report, what, source, layer.name, classes, found)


def _tell_labels(report: Report, what: str, source: FeedLayer, reader: str, classes: int, found: set[float]) -> None:
    beyond = sorted(label for label in found if not 0 <= label < classes)
    if beyond:
        report.add(
            "error",
            "data",
            f"{what}: labels of layer '{source.name}' go from {min(found):g} to {max(found):g}, layer '{reader}' knows "
            f"classes 0 to {classes - 1}. To mend it: correct num_output of the layer before it, or the labels",
        )
    elif found and len(found) < min(classes, _LOOKED_AT):
        report.add("note", "data", f"{what}: {len(found)} of {classes} classes come up in layer '{source.name}'")


def _labels(layer: FeedLayer) -> Iterator[float]:
    """The labels of a source in the order of its records; none where they are not one number for a sample."""
    feed = layer.feed
    if isinstance(feed, DatabaseFeed):
        for key, value in feed.database.records():
            yield parse_datum(value, key=key, file=feed.database.path).label  # pictures stay encoded
    elif isinstance(feed, ImageFeed):
        yield from (line.label for line in feed.lines)
    elif isinstance(feed, Hdf5Feed):
        for values in feed.read_column(1):
            if values.ndim > 1 and values[0].size > 1:
                return
            yield from (float(value) for value in values.reshape(-1))

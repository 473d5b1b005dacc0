"""The feed of AnnotatedData layers: pictures with boxes from a database, changed by chance as SSD trains with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from undertow.caffe.data.annotations import Annotated, check_samplers, cut_out, draw_windows, expanded
from undertow.caffe.data.database import Database
from undertow.caffe.data.datum import datum_pixels
from undertow.caffe.data.distortion import Distorter
from undertow.caffe.data.feed import Array, empty_batch
from undertow.caffe.data.feed_database import RecordFeed, record_name
from undertow.caffe.data.transformer import DataTransformer
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import get_schema
from undertow.caffe.proto.wire import parse_bytes
from undertow.errors import FormatError, ShapeError


class AnnotatedFeed(RecordFeed):
    """Batches of pictures (n, channels, height, width) and objects (1, 1, m, 8), or labels (n,) without annotations.

    boxes: whether the second array holds objects; None: as the first record says. Draws follow from seed and number of
    the item: distortion, larger canvas, window, size and crop, in the order of the original.
    """

    def __init__(
        self, database: Database, batch_size: int, transformer: DataTransformer, param: Message, *,
        samplers: Sequence[Message], boxes: bool | None, labels: bool, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(database, batch_size, seed)
        self.transformer, self.labels, self.samplers = transformer, labels, list(samplers)
        check_samplers(self.samplers)
        self.distorter = Distorter(param.distort_param) if param.has_field("distort_param") else None
        self.expand = param.expand_param if param.has_field("expand_param") else None
        self.emit = param.emit_constraint if param.has_field("emit_constraint") else None
        if self.expand is not None and not self.expand.max_expand_ratio > 1:
            raise FormatError("max_expand_ratio of expand_param must be above 1", remedy="max_expand_ratio: 4")
        if self.expand is not None and transformer.mean is not None:
            raise FormatError("expand_param does not go with mean_file", remedy="use mean_value")
        resizer = transformer.resizer
        if resizer is not None and resizer.mode == "FIT_SMALL_SIZE" and batch_size != 1:
            raise FormatError("resize_mode FIT_SMALL_SIZE needs batch_size: 1", remedy="use WARP")
        changes = self.distorter is not None or self.expand is not None or bool(self.samplers)
        self.random = transformer.random or changes
        key, value = self.first()
        message = read_annotated(value, key, database.path)
        self.boxes = message.has_field("type") if boxes is None else boxes
        shape = transformer.shape_of(self.item(message, key).picture.shape)
        count = sum(len(group.annotation) for group in message.annotation_group)
        second = (1, 1, max(1, count), 8) if self.boxes else (batch_size,)
        self.shapes = [(batch_size, *shape)] + ([second] if labels else [])

    def item(self, message: Message, key: bytes) -> Annotated:
        """A record as it is stored."""
        picture = datum_pixels(message.datum, self.transformer.color, key=key, file=self.database.path)
        rows: list[tuple[Any, ...]] = []
        for group in message.annotation_group:
            for one in group.annotation:
                box = one.bbox
                corners = (box.xmin, box.ymin, box.xmax, box.ymax)
                rows.append((*corners, group.group_label, one.instance_id, box.difficult))
        table = np.array(rows, np.float64).reshape(-1, 7)
        if not np.isfinite(table).all():
            raise FormatError(
                f"{record_name(key)}: a corner of a box is not a number",
                file=self.database.path,
                remedy="make the database again with convert_annoset",
            )
        return Annotated(picture, table[:, :4], *table[:, 4:].T.astype(np.int64))

    def load(self) -> list[Array]:
        first, batch = self.counter, None
        rows: list[Array] = []
        labels = np.empty(self.batch_size, self.transformer.dtype)
        for index in range(self.batch_size):
            key, value = self.next()
            message = read_annotated(value, key, self.database.path)
            labels[index] = message.datum.label
            try:
                rng = self.draws(first + index) if self.random else None
                values, seen = self.changed(self.item(message, key), rng)
            except ShapeError as error:
                reason = f"{record_name(key)}: {error.reason}"
                raise ShapeError(reason, file=self.database.path, remedy=error.remedy) from error
            if batch is None:
                batch = empty_batch((self.batch_size, *values.shape), values.dtype)
            if batch.shape[1:] != values.shape:
                raise ShapeError(
                    f"{record_name(key)} comes out as {values.shape}, the first of its batch as {batch.shape[1:]}",
                    file=self.database.path,
                    remedy="transform_param { resize_param { resize_mode: WARP height: 300 width: 300 } }",
                )
            batch[index] = values
            rows.append(seen.rows(index))
        assert batch is not None
        if not self.labels:
            return [batch]
        if not self.boxes:
            return [batch, labels]
        table = np.concatenate(rows)
        if not len(table):
            table = np.full((1, 8), -1.0)
        return [batch, table.astype(self.transformer.dtype)[None, None]]

    def changed(self, item: Annotated, rng: np.random.Generator | None) -> tuple[Array, Annotated]:
        """One record as chance has it: the values for the net, and the objects they show."""
        if rng is not None:
            item = self._augmented(item, rng)
        values, part = self.transformer.transform_part(item.picture, rng)
        resizer, stored = self.transformer.resizer, item.picture.shape[1:]
        height, width = stored
        if resizer is not None:
            item = replace(item, boxes=resizer.boxes(item.boxes, height, width))
            height, width = resizer.size(height, width)
        corners = [part.left, part.top, part.left + part.width, part.top + part.height]
        item = item.seen_from(np.array(corners) / [width, height, width, height], self.emit)
        item = item.mirrored() if part.mirrored else item
        if resizer is not None:
            shown = (part.height / height, part.width / width)
            item = replace(item, boxes=resizer.in_units(item.boxes, stored[0], stored[1], shown))
        return values, item

    def _augmented(self, item: Annotated, rng: np.random.Generator) -> Annotated:
        if self.distorter is not None:
            item = replace(item, picture=self.distorter.distort(item.picture, rng))
        if self.expand is not None:
            channels = len(item.picture)
            means = self.transformer.mean_for(channels) if self.transformer.mean_values.size else np.zeros(channels)
            item = expanded(item, self.expand, means.clip(0, 255).astype(item.picture.dtype), self.emit, rng)
        windows = draw_windows(item.boxes, self.samplers, rng)
        return cut_out(item, windows[int(rng.integers(len(windows)))], self.emit) if windows else item


def read_annotated(value: memoryview, key: bytes, file: str | os.PathLike[str]) -> Message:
    """The AnnotatedDatum in a record. Raises FormatError for a damaged one, and for one of another kind."""
    try:
        message = parse_bytes(value, get_schema()["AnnotatedDatum"])
    except FormatError as error:
        raise FormatError(f"{record_name(key)}: {error.reason}", file=file, offset=error.offset,
                          remedy="AnnotatedData reads what convert_annoset writes") from error  # fmt: skip
    if not message.has_field("datum"):
        raise FormatError(f"{record_name(key)} holds no annotated picture", file=file,
                          remedy="AnnotatedData reads what convert_annoset writes; use a Data layer")  # fmt: skip
    return message

"""Pictures with boxes, and what the SSD fork does to both: windows drawn by rules, cut out; a larger canvas.

Boxes are corners in parts of the picture. Sources: SSD's sampler.cpp and data_transformer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.caffe.boxes import coverage, overlaps, project
from undertow.caffe.proto.message import Message
from undertow.errors import FormatError

Array = np.ndarray[Any, Any]
_LIMITS = ("jaccard_overlap", "sample_coverage", "object_coverage")


@dataclass(frozen=True)
class Annotated:
    """A picture (channels, height, width) and its objects: boxes (n, 4), and classes, instances, difficult (n,)."""

    picture: Array
    boxes: Array
    labels: Array
    instances: Array
    difficult: Array

    def seen_from(self, window: Array, emit: Message | None) -> Annotated:
        """The objects that a window of the picture shows, in its parts. emit: which ones count as shown."""
        moved, stay = project(self.boxes, window)
        if emit is not None:
            stay &= emitted(self.boxes, window, emit)
        return replace(self, boxes=moved[stay], labels=self.labels[stay], instances=self.instances[stay],
                       difficult=self.difficult[stay])  # fmt: skip

    def mirrored(self) -> Annotated:
        """The objects of the mirrored picture."""
        boxes = self.boxes[:, [2, 1, 0, 3]].copy()
        boxes[:, [0, 2]] = 1 - boxes[:, [0, 2]]
        return replace(self, boxes=boxes)

    def rows(self, item: int) -> Array:
        """(n, 8): item, class, instance, left, top, right, bottom, difficult."""
        columns = [np.full(len(self.labels), item), self.labels, self.instances, *self.boxes.T, self.difficult]
        return np.stack(columns, 1).astype(np.float64)


def emitted(boxes: Array, window: Array, rule: Message) -> Array:
    """Whether each box counts as inside of a window: by its centre, or by the part that is inside."""
    if rule.emit_type == "MIN_OVERLAP":
        return np.asarray(coverage(boxes, window) > rule.emit_overlap)
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    return np.asarray(((centre >= window[:2]) & (centre <= window[2:])).all(1))


def check_samplers(samplers: Sequence[Message]) -> None:
    """Raise FormatError for samplers whose limits cannot be met."""
    for number, sampler in enumerate(samplers):
        o = sampler.sampler
        if not 0 < o.min_scale <= o.max_scale <= 1:
            raise FormatError(
                f"batch_sampler {number}: 0 < min_scale <= max_scale <= 1 is needed",
                remedy="write min_scale: 0.3 max_scale: 1",
            )
        if not 0 < o.min_aspect_ratio <= o.max_aspect_ratio:
            raise FormatError(
                f"batch_sampler {number}: 0 < min_aspect_ratio <= max_aspect_ratio is needed",
                remedy="write min_aspect_ratio: 0.5 max_aspect_ratio: 2",
            )


def draw_windows(boxes: Array, samplers: Sequence[Message], rng: np.random.Generator) -> list[Array]:
    """The windows (4,) that all samplers accept, in order."""
    found: list[Array] = []
    for sampler in samplers:
        if not sampler.use_original_image:
            continue
        accepted = 0
        for _ in range(sampler.max_trials):
            if sampler.has_field("max_sample") and accepted >= sampler.max_sample:
                break
            window = draw_window(sampler.sampler, rng)
            if accepts(window, boxes, sampler.sample_constraint):
                accepted += 1
                found.append(window)
    return found


def draw_window(o: Message, rng: np.random.Generator) -> Array:
    """A window of a drawn scale and aspect ratio at a drawn place."""
    scale = rng.uniform(o.min_scale, o.max_scale)
    ratio = min(max(rng.uniform(o.min_aspect_ratio, o.max_aspect_ratio), scale**2), 1 / scale**2)
    size = np.array([scale * ratio**0.5, scale / ratio**0.5]).clip(0, 1)
    corner = rng.uniform(0, 1 - size)
    return np.concatenate([corner, corner + size])


def accepts(window: Array, boxes: Array, rule: Message) -> bool:
    """Whether some object meets all limits that are set; without limits every window will do."""
    limits = [name for name in _LIMITS if rule.has_field(f"min_{name}") or rule.has_field(f"max_{name}")]
    if not limits:
        return True
    meets = np.ones(len(boxes), bool)
    for name in limits:
        if name == "jaccard_overlap":
            values = overlaps(window, boxes)
        elif name == "sample_coverage":
            values = coverage(np.broadcast_to(window, boxes.shape), boxes)
        else:
            values = coverage(boxes, window)
        if rule.has_field(f"min_{name}"):
            meets &= values >= getattr(rule, f"min_{name}")
        if rule.has_field(f"max_{name}"):
            meets &= values <= getattr(rule, f"max_{name}")
    return bool(meets.any())


def cut_out(item: Annotated, window: Array, emit: Message | None) -> Annotated:
    """The part of a picture in a window, at least one pixel, and the objects it shows."""
    window = window.clip(0, 1)
    height, width = item.picture.shape[1:]
    left, top = int(window[0] * width), int(window[1] * height)
    right = left + max(1, int(window[2] * width - window[0] * width))
    bottom = top + max(1, int(window[3] * height - window[1] * height))
    seen = item.seen_from(window, emit)
    return replace(seen, picture=item.picture[:, top:bottom, left:right])


def expanded(item: Annotated, param: Message, fill: Array, emit: Message | None, rng: np.random.Generator) -> Annotated:
    """Perhaps the picture at a drawn place of a larger canvas. fill: bytes of the canvas, one per channel."""
    if rng.random() > param.prob or abs(param.max_expand_ratio - 1) < 1e-2:
        return item
    ratio = rng.uniform(1, param.max_expand_ratio)
    channels, rows, columns = item.picture.shape
    height, width = int(rows * ratio), int(columns * ratio)
    top, left = int(rng.uniform(0, height - rows)), int(rng.uniform(0, width - columns))
    canvas = np.empty((channels, height, width), item.picture.dtype)
    canvas[...] = fill.reshape(-1, 1, 1)
    canvas[:, top : top + rows, left : left + columns] = item.picture
    window = np.array([-left / columns, -top / rows, (width - left) / columns, (height - top) / rows])
    return replace(item.seen_from(window, emit), picture=canvas)

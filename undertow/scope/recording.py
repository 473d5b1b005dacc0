"""Everything a page shows of one network: a batch forward and back in one or several dialects, with its arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertow.inspect.caffe_inputs import PictureValues
from undertow.inspect.explain import Explanation, Row, rows_of
from undertow.inspect.record import Array, LayerRecord
from undertow.inspect.sources import is_prototxt
from undertow.inspect.story import story
from undertow.inspect.trace import Trace
from undertow.scope.heads import Heads

PathLike = str | os.PathLike[str]
BINS = 64
_LARGEST = float(np.finfo(np.float64).max) / 256


@dataclass(frozen=True)
class Request:
    """What to look at: the words of the command line, as `undertow trace` takes them. dialects: () for the usual.

    values: what a picture becomes before a Caffe net gets it.
    """

    net: str
    weights: PathLike | None = None
    data: PathLike | None = None
    truth: PathLike | None = None
    batch: int | None = None
    size: int | None = None
    shapes: Sequence[Sequence[int]] = ()
    dialects: Sequence[str] = ()
    rate: float | None = None
    names: Sequence[str] = ()
    seed: int = 0
    values: PictureValues | None = None
    phase: str | None = None


@dataclass(frozen=True)
class Histogram:
    """counts: (64,) of the finite values between low and high."""

    low: float
    high: float
    counts: Array


@dataclass(frozen=True)
class Told:
    """What a dialect computes in a layer where it differs from the first: see `Row`; story: of `explain --layer`."""

    formula: tuple[str, ...]
    skipped: tuple[str, ...]
    story: list[str]


@dataclass
class Run:
    """One pass. outputs, gradients: of the first sample, by layer; None where there is none. sent: see `Sending`.

    histograms: by (layer, "output" or "gradient"), over the whole batch. heads: of a detector, else None.
    told: by layer, what this dialect computes there, where that is not what the first one does.
    """

    name: str
    trace: Trace = field(init=False)
    outputs: dict[int, Array] = field(default_factory=dict)
    gradients: dict[int, Array] = field(default_factory=dict)
    sent: dict[int, dict[int, float]] = field(default_factory=dict)
    histograms: dict[tuple[int, str], Histogram] = field(default_factory=dict)
    heads: Heads | None = None
    told: dict[int, Told] = field(default_factory=dict)

    def keep(self, layer: int, kind: str, array: Array | None) -> None:
        """Take the first sample of an output or gradient, and the histogram of all of it."""
        if array is None or array.dtype.kind != "f" or array.size == 0:
            return
        first = array[:1] if array.ndim > 1 else array.reshape(1, -1)
        (self.outputs if kind == "output" else self.gradients)[layer] = np.array(first, np.float32)
        self.histograms[layer, kind] = histogram(array)


@dataclass
class Recording:
    """source, about: what was recorded. rows: by layer, see `undertow.inspect.explain.Row`. runs: at least one.

    reads: for each layer those whose outputs it reads, -1 for the network's input. aside: layers that only hand on
    copies (Caffe's Split) and are drawn as the meeting of lines that they are. stories: what `explain --layer` prints.
    pictures: (channels, height, width) 0..1, the first sample of the input, or None.
    """

    source: str
    about: str
    kind: str
    rows: list[Row]
    details: list[dict[str, str]]
    reads: list[list[int]]
    stories: list[list[str]]
    runs: list[Run]
    picture: Array | None = None
    aside: frozenset[int] = frozenset()
    names: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)


def record(request: Request) -> Recording:
    """Run the network of a request. Raises FormatError, ShapeError and the like for what cannot be read or run."""
    from undertow.scope.recording_caffe import record_caffe
    from undertow.scope.recording_darknet import record_darknet
    from undertow.scope.recording_function import record_function

    if ":" in request.net and not os.path.isfile(request.net):
        return record_function(request)
    return record_caffe(request) if is_prototxt(request.net) else record_darknet(request)


def rows_and_stories(
    source: str, records: list[LayerRecord], known: Sequence[Any], seed: int
) -> tuple[list[Row], list[list[str]]]:
    """Rows in forward order, and each layer's story, as `undertow explain` has them."""
    rows = rows_of(records, known)
    explanation = Explanation(source, "", rows, records)
    return rows[::-1], [story(explanation, record.index, seed) for record in records]


def told_otherwise(
    first: Sequence[Row], source: str, records: list[LayerRecord], known: Sequence[Any], seed: int
) -> dict[int, Told]:
    """Of the layers of another dialect those whose formulas or skipped gradients are not those of the first."""
    rows = rows_of(records, known)
    explanation = Explanation(source, "", rows, records)
    return {
        row.index: Told(row.formula, row.skipped, story(explanation, row.index, seed))
        for row, before in zip(rows[::-1], first, strict=True)
        if (row.formula, row.skipped) != (before.formula, before.skipped)
    }


def histogram(array: Array) -> Histogram:
    """64 bins over the finite values, counted in float64; 0 is an edge of a bin where the values have both signs.

    Values that are all but equal (fewer steps of float64 between them than bins) stand in the middle of a wider range.
    """
    flat = array.reshape(-1)
    low, high = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
    if not (np.isfinite(low) and np.isfinite(high)):
        flat = flat[np.isfinite(flat)]
        low, high = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
    if max(-low, high) > _LARGEST:  # their distance, or that of a widened range, would overflow
        scaled = histogram(flat * 0.125)
        ends = [max(min(8 * edge, high), low) for edge in (scaled.low, scaled.high)]
        return Histogram(ends[0], ends[1], scaled.counts)
    if low < 0 < high:
        low, high = _with_edge_at_zero(low, high)
    least = 2 * BINS * float(np.spacing(max(-low, high)))
    if low == high or high - low < least:
        middle, half = low / 2 + high / 2, max(least, 0.5 if low == high else 0.0)
        low, high = middle - half, middle + half
    # As float64 scalars: plain numbers would be taken in the arrays' own precision, too coarse for such bins.
    counts = np.histogram(flat, BINS, (np.float64(low), np.float64(high)))[0]
    return Histogram(low, high, counts)


def _with_edge_at_zero(low: float, high: float) -> tuple[float, float]:
    below = min(max(round(BINS * (-low / (high - low))), 1), BINS - 1)
    width = max(-low / below, high / (BINS - below))
    # Rounding must not leave the outermost values out.
    return min(-below * width, low), max((BINS - below) * width, high)


def picture_of(images: Array) -> Array | None:
    """The first sample of a batch as a picture (1 or 3 channels), 0..1; None where it is none."""
    if images.ndim != 4 or images.shape[1] < 1:
        return None
    first = np.asarray(images[0], np.float32)
    first = np.nan_to_num(first if len(first) == 3 else first[:1], posinf=0, neginf=0)
    low, high = float(first.min()), float(first.max())
    if low < -0.01 or high > 1.01:
        first = (first - low) / ((high - low) or 1.0)
    return np.clip(first, 0, 1)

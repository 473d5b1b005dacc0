"""The lines of run.jsonl: one JSON object each, a header and then records in the order in which things happened.

    {"k": "run", ...}                     the header: see `Header`
    {"k": "iteration", "i": 7, "loss": 2.5, "rate": 0.001, ...}
    {"k": "layers", "i": 10, "values": {"output": [1.5, null, ...], ...}, "marks": [["dead", 4, "..."]]}
    {"k": "measure", "i": 100, "values": {"mAP": 0.5, ...}}
    {"k": "note", "i": 0, "text": "..."}
    {"k": "from", "i": 100}               the training went on from here: what stands above for later ones is replaced
    {"k": "end", "i": 600, "stopped": false}   with "reason" where it broke off in that iteration

Arrays under "values" of a "layers" record have one number for each layer of the header; null where it has none.
Numbers that are not finite are the strings "nan", "inf" and "-inf". A line that is damaged is left out by readers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

VERSION = 1
FILE = "run.jsonl"
# What is recorded of every layer, in the order in which the page offers it.
FIELDS = (
    "output", "mean", "deviation", "zeros", "saturated", "dead", "gradient", "weights", "weight_gradient", "update",
    "bad",
)  # fmt: skip
KINDS = ("iteration", "layers", "measure", "note", "from", "end")
Record = dict[str, Any]


@dataclass(frozen=True)
class Header:
    """What a run is. format: darknet, caffe or python. net: file or name. how: dialect and the like.

    started: local time, ISO 8601. last: iteration at which it will end, 0 where nobody knows. every: iterations between
    two records of the layers. samples: behind the statistics of a record, 0 for all of an iteration.
    layers: name and type of each, in forward order. first: iterations that were done before, unrecorded.
    """

    name: str
    format: str
    net: str
    started: str
    how: str = ""
    last: int = 0
    every: int = 1
    samples: int = 0
    first: int = 0
    layers: tuple[tuple[str, str], ...] = ()
    fields: tuple[str, ...] = FIELDS

    def record(self) -> Record:
        return {"k": "run", "version": VERSION, **asdict(self)}


@dataclass
class LayerNumbers:
    """One record of all layers: columns by field, None where a layer has no such number; marks: kind, layer, text."""

    values: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    marks: list[tuple[str, int, str]] = field(default_factory=list)


def line_of(record: Mapping[str, Any]) -> str:
    """The line, without its end."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def parsed(line: str | bytes) -> Record | None:
    """The record of a line; None for one that is damaged or of another kind."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("k") not in (*KINDS, "run"):
        return None
    iteration = found.get("i", 0)
    return found if isinstance(iteration, int) and not isinstance(iteration, bool) else None


def plain(value: float) -> float | int | str:
    """A number as JSON takes it: six digits, and words for what is not finite."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def column(values: Iterable[float | None]) -> list[float | int | str | None]:
    """The numbers of a field for all layers; None, for "has none", becomes null, and NaN is told as what it is."""
    return [None if value is None else plain(value) for value in values]


def there(values: Iterable[float], wrong: Iterable[bool] | None = None) -> list[float | None]:
    """Numbers where NaN stands for "has none", as records have them. wrong: where NaN is the number itself."""
    if wrong is None:
        return [None if math.isnan(value) else value for value in values]
    pairs = zip(values, wrong, strict=True)
    return [None if math.isnan(value) and not is_wrong else value for value, is_wrong in pairs]


def now() -> str:
    """Local time, as a header has it."""
    return datetime.now().isoformat(timespec="seconds")

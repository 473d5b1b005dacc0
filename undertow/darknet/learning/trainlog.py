"""The numbers of a training as CSV, kept in step with the checkpoints: a run that goes on continues its files."""

from __future__ import annotations

import csv
import math
import os
import warnings
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from undertow.darknet.files.textfiles import read_text
from undertow.darknet.learning.trainer import Iteration, Trainer, TrainingWatcher
from undertow.errors import UndertowWarning
from undertow.files import atomic_write

Row = dict[str, float]
LOSS_COLUMNS = ("iteration", "loss", "average_loss", "rate", "seconds", "waited", "images", "width", "height")
MAP_COLUMNS = ("iteration", "map", "precision", "recall", "f1", "average_iou")
ACCURACY_COLUMNS = ("iteration", "accuracy", "top1", "k", "pictures")


@dataclass(frozen=True)
class Measure:
    """What validations give. name: the end of the log's name, and the first column after the iteration. title: of the
    axis in charts. short: before a number.
    """

    name: str
    columns: tuple[str, ...]
    title: str
    short: str


MAP = Measure("map", MAP_COLUMNS, "mAP@0.5 (%)", "mAP")
ACCURACY = Measure("accuracy", ACCURACY_COLUMNS, "accuracy (%)", "accuracy")


class Rows(Sequence[Row]):
    """Lines of a log, each with the same columns, in 8 bytes a number: a long training has half a million of them."""

    def __init__(self, columns: Sequence[str], rows: Iterable[Row] = ()) -> None:
        self.columns = tuple(columns)
        self._values = array("d")
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """Take a line, which has these columns in this order. Raises ValueError for another one."""
        if tuple(row) != self.columns:
            raise ValueError(f"a line of {', '.join(row)} in a log of {', '.join(self.columns)}")
        self._values.extend(row.values())

    def column(self, name: str) -> np.ndarray:
        """(lines,) float64: the numbers of a column."""
        return np.array(self._values).reshape(-1, len(self.columns))[:, self.columns.index(name)]

    def __len__(self) -> int:
        return len(self._values) // len(self.columns)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        place = range(len(self))[index] * len(self.columns)
        return dict(zip(self.columns, self._values[place : place + len(self.columns)], strict=True))


class TrainLog(TrainingWatcher):
    """Writes FOLDER/NAME_log.csv, one line per iteration, and NAME_map.csv, one line per validation.

    losses, validations: the lines so far, those of the run that is continued included. names: of the classes, whose
    average precisions follow the fixed columns of NAME_map.csv, as "ap NAME". A line that cannot be written is told
    once as a warning, and training goes on.
    """

    measure = MAP

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._class_columns = tuple(dict.fromkeys(f"ap {name}" for name in names))
        self.losses, self.validations = Rows(LOSS_COLUMNS), Rows((*self.measure.columns, *self._class_columns))
        self._files: tuple[Path, Path] | None = None
        self._told = self._cut_short = False

    def started(self, trainer: Trainer) -> None:
        folder, name = trainer.output.folder, trainer.output.name
        self._files = folder / f"{name}_log.csv", folder / f"{name}_{self.measure.name}.csv"
        self.losses = _continued(self._files[0], self.losses.columns, trainer.iteration)
        self.validations = _continued(self._files[1], self.validations.columns, trainer.iteration)

    def iterated(self, iteration: Iteration) -> None:
        values = (
            iteration.number, iteration.loss, iteration.average, iteration.rate, iteration.seconds, iteration.waited,
            iteration.images, *iteration.size,
        )  # fmt: skip
        self._add(0, self.losses, dict(zip(LOSS_COLUMNS, values, strict=True)))

    def validated(self, number: int, evaluation: Any, best: bool) -> None:
        total = evaluation.counts
        values = (
            number, evaluation.mean_average_precision, total.precision, total.recall, total.f1, total.average_iou
        )  # fmt: skip
        row = dict(zip(MAP_COLUMNS, values, strict=True))
        found = {f"ap {result.name}": result.average_precision for result in evaluation.classes}
        row |= {name: found.get(name, math.nan) for name in self._class_columns}
        self._add(1, self.validations, row)

    def _add(self, which: int, rows: Rows, row: Row) -> None:
        rows.append(row)
        if self._files is None:
            return
        try:
            with open(self._files[which], "a", encoding="utf-8", newline="") as stream:
                if self._cut_short:
                    stream.write("\n")  # end the line of which a full disk took only a part
                csv.writer(stream).writerow([_written(value) for value in row.values()])
                stream.flush()
            self._cut_short = False
        except OSError as problem:
            self._cut_short = True
            if not self._told:
                self._told = True
                reason = f"{self._files[which]}: cannot be written ({problem.strerror or problem}); training goes on"
                warnings.warn(UndertowWarning(reason), stacklevel=2)


class AccuracyLog(TrainLog):
    """As `TrainLog`, for classifiers: NAME_accuracy.csv with the accuracies of k guesses and of the first, 0..1."""

    measure = ACCURACY

    def validated(self, number: int, evaluation: Any, best: bool) -> None:
        values = number, evaluation.topk, evaluation.top1, evaluation.k, evaluation.pictures
        self._add(1, self.validations, dict(zip(ACCURACY_COLUMNS, values, strict=True)))


def _continued(path: Path, columns: Sequence[str], iteration: int) -> Rows:
    """Rows up to the iteration that training goes on from; the file is left with just these and its header."""
    rows = Rows(columns, _read(path, columns, iteration) if iteration > 0 and path.exists() else ())
    with atomic_write(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows([_written(value) for value in row.values()] for row in rows)
    return rows


def _read(path: str | os.PathLike[str], columns: Sequence[str], iteration: int) -> list[Row]:
    """The rows of an earlier run; a line that it did not finish, or that someone changed, is left out."""
    rows = []
    lines = csv.reader(read_text(path).splitlines())
    if tuple(next(lines, [])) != tuple(columns):
        return []
    for line in lines:
        try:
            row = dict(zip(columns, map(float, line), strict=True))
        except ValueError:
            continue
        if row["iteration"] <= iteration:
            rows.append(row)
    return rows


def _written(value: float) -> str:
    """Whole numbers without a point, others with the digits that give them back."""
    if math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return repr(float(value))

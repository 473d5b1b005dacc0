"""The chart of a training: loss and mAP over iterations, as Darknet users know it."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from undertow.darknet.learning.trainer import Trainer, TrainingWatcher, TrainResult
from undertow.darknet.learning.trainlog import MAP, Measure, Rows, TrainLog
from undertow.errors import MissingPackage, UndertowWarning
from undertow.files import atomic_write

LOSS_COLOR, AVERAGE_COLOR, MAP_COLOR = "#9db7d5", "#1f5fa8", "#c8371b"


class Chart(TrainingWatcher):
    """Draws the numbers of a log at every backup and at the end. path: of the picture, a .png.

    Where it cannot be written, a warning tells so once: hours of training are not thrown away for a picture.
    """

    def __init__(self, log: TrainLog, path: str | os.PathLike[str], title: str = "") -> None:
        self.path, self.title = Path(path), title
        self._log, self._last = log, 0
        self._told = False

    def started(self, trainer: Trainer) -> None:
        self._last = trainer.last_iteration

    def saved(self, path: Path) -> None:
        if path.suffix == ".backup" and self._log.losses:
            self.draw()

    def finished(self, result: TrainResult) -> None:
        if self._log.losses:
            self.draw()

    def draw(self) -> None:
        """Write the picture now."""
        try:
            draw_chart(self.path, self._log.losses, self._log.validations, self._last, self.title, self._log.measure)
        except OSError as problem:
            if not self._told:
                self._told = True
                reason = f"{self.path}: the chart cannot be written ({problem.strerror or problem}); training goes on"
                warnings.warn(UndertowWarning(reason), stacklevel=2)


def can_draw() -> bool:
    """Whether the package that draws charts is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw_chart(
    path: str | os.PathLike[str],
    losses: Rows,
    validations: Rows,
    last_iteration: int,
    title: str = "",
    measure: Measure = MAP,
) -> None:
    """Write a picture (1200 x 750 pixels) of loss, its running average, and mAP where there are validations.

    losses, validations: rows of `TrainLog`. measure: what validations gave. Raises MissingPackage without matplotlib.
    """
    picture = _picture(losses, validations, last_iteration, title, measure)
    _give_back()
    with atomic_write(path) as stream:
        stream.write(picture)


def _give_back() -> None:
    """Let go of what drawing took, so that a training that draws for days stays as large as it is.

    Figures refer to themselves in cycles, and Python's collector, which comes by when it has counted enough objects,
    does not know that each holds megabytes of pixels. Free memory between what is in use returns to the system only
    when glibc is asked.
    """
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return
    trim(0)


def _picture(losses: Rows, validations: Rows, last_iteration: int, title: str, measure: Measure) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackage("matplotlib", "charts", "drawing charts") from None
    figure = Figure(figsize=(12, 7.5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_losses(axes, losses)
    axes.set_xlim(0, max(last_iteration, 1))
    axes.set_xlabel("iteration")
    axes.grid(True, color="#e3e3e3")
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    if validations:
        handles_right, labels_right = _draw_validations(axes.twinx(), validations, measure)
        handles, labels = handles + handles_right, labels + labels_right
    axes.legend(handles, labels, loc="center right")
    axes.set_title(_heading(title, losses, validations, measure), loc="left")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _draw_losses(axes: Any, losses: Rows) -> None:
    iterations, average = losses.column("iteration"), losses.column("average_loss")
    axes.plot(iterations, losses.column("loss"), color=LOSS_COLOR, linewidth=0.8, label="loss")
    axes.plot(iterations, average, color=AVERAGE_COLOR, linewidth=1.8, label="average loss")
    axes.set_ylabel("loss", color=AVERAGE_COLOR)
    axes.set_ylim(0, _ceiling(average))


def _ceiling(average: np.ndarray) -> float:
    """High enough for all but the first, huge losses, which would flatten the rest."""
    settled = average[len(average) // 10 :]
    return float(max(settled.max() * 1.15, average.min() * 2, 1e-6))


def _draw_validations(axes: Any, validations: Rows, measure: Measure) -> tuple[list[Any], list[str]]:
    iterations, percent = validations.column("iteration"), 100 * validations.column(measure.name)
    axes.plot(iterations, percent, color=MAP_COLOR, linewidth=1.8, marker="o", markersize=5, label=measure.title)
    axes.set_ylim(0, 105)
    axes.set_ylabel(measure.title, color=MAP_COLOR)
    for x, y in zip(iterations, percent, strict=True):
        place = "right" if x == iterations[-1] else "center"  # the last one stands at the edge
        axes.annotate(f"{y:.0f}", (x, y), textcoords="offset points", xytext=(0, -16), ha=place, color=MAP_COLOR)
    handles, labels = axes.get_legend_handles_labels()
    return handles, labels


def _heading(title: str, losses: Rows, validations: Rows, measure: Measure) -> str:
    last = losses[-1]
    parts = [f"iteration {int(last['iteration'])}", f"average loss {last['average_loss']:.3f}"]
    if validations:
        shares = validations.column(measure.name)
        parts.append(f"{measure.short} {100 * shares[-1]:.1f} %, best {100 * shares.max():.1f} %")
    return ", ".join([title, *parts] if title else parts)

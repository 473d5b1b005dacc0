"""What a training shows: Darknet's lines, or a live line on a terminal."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from undertow.cli.messages import say
from undertow.darknet.detection.evaluate import Evaluation
from undertow.darknet.detection.pictures import Tick
from undertow.darknet.layers.head_statistics import HeadStatistics
from undertow.darknet.learning.trainer import Iteration, Trainer, TrainingWatcher, TrainResult


@contextlib.contextmanager
def training_watcher(plain: bool = False, lines: type[PlainLines] | None = None) -> Iterator[TrainingWatcher]:
    """A live line where stdout is a terminal, else Darknet's lines; `lines`: those of another kind of training."""
    if plain or not sys.stdout.isatty():
        printed = (lines or PlainLines)()
        try:
            yield printed
        finally:
            printed.close()
        return
    line = LiveLine()
    try:
        yield line
    finally:
        line.close()


class PlainLines(TrainingWatcher):
    """On stdout the lines the C program prints, so that programs which read its logs go on working; notes on stderr.

    As there, an iteration's lines begin with `Loaded:`. Pictures are waited for pass by pass here, so that the lines of
    its heads are kept until all of them are there.
    """

    def __init__(self) -> None:
        self._heads: list[str] = []

    def started(self, trainer: Trainer) -> None:
        net = trainer.net
        print(trainer.output.name)
        rate, momentum, decay = net.options.learning_rate, net.options.momentum, net.options.decay
        print(f"Learning Rate: {rate:g}, Momentum: {momentum:g}, Decay: {decay:g}", flush=True)

    def note(self, text: str) -> None:
        say(text)

    def resized(self, size: tuple[int, int]) -> None:
        print(f"Resizing\n{size[0]}")

    def passed(self, heads: list[tuple[int, HeadStatistics]]) -> None:
        self._heads += [statistics.line(index) for index, statistics in heads]

    def loaded(self, seconds: float) -> None:
        print(f"Loaded: {seconds:f} seconds")
        self.close()

    def iterated(self, iteration: Iteration) -> None:
        print(
            f"{iteration.number}: {iteration.loss:f}, {iteration.average:f} avg, {iteration.rate:f} rate, "
            f"{iteration.seconds:f} seconds, {iteration.images} images",
            flush=True,
        )

    def close(self) -> None:
        """Print what is kept: of an iteration that is complete, or that nothing will complete."""
        for line in self._heads:
            print(line)
        self._heads.clear()

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        print("\n".join(evaluation.lines()), flush=True)

    def saved(self, path: Path) -> None:
        say(f"saved {path}")

    def finished(self, result: TrainResult) -> None:
        say(summary(result))


class ClassifierLines(PlainLines):
    """The lines of the C program's classifier training."""

    def __init__(self) -> None:
        super().__init__()
        self._pictures = 1

    def started(self, trainer: Trainer) -> None:
        given = trainer.net.options
        self._pictures = len(trainer.pictures)
        print(f"{trainer.output.name}\n1")
        print(f"Learning Rate: {given.learning_rate:g}, Momentum: {given.momentum:g}, Decay: {given.decay:g}")
        print(f"{self._pictures}\n{self._range(trainer.net.w, trainer)}", flush=True)
        self._trainer = trainer

    def resized(self, size: tuple[int, int]) -> None:
        print(f"Resizing\n{size[0]}\n{self._range(size[0], self._trainer)}")

    def iterated(self, iteration: Iteration) -> None:
        print(
            f"{iteration.number}, {iteration.images / self._pictures:.3f}: {iteration.loss:f}, "
            f"{iteration.average:f} avg, {iteration.rate:f} rate, {iteration.seconds:f} seconds, "
            f"{iteration.images} images",
            flush=True,
        )

    @staticmethod
    def _range(side: int, trainer: Trainer) -> str:
        """Smallest and largest length of a picture's shorter side before it is cut to this side."""
        given = trainer.net.options
        return f"{int(given.min_ratio * side)} {int(given.max_ratio * side)}"


class SegmenterLines(ClassifierLines):
    """The lines of the C program's segmenter trainings, which are those of a classifier's without its sizes."""

    def started(self, trainer: Trainer) -> None:
        given = trainer.net.options
        self._pictures = len(trainer.pictures)
        print(f"{trainer.output.name}\n1")
        print(f"Learning Rate: {given.learning_rate:g}, Momentum: {given.momentum:g}, Decay: {given.decay:g}")
        print(self._pictures, flush=True)


class RnnLines(PlainLines):
    """The lines of the C program's training of recurrent nets, on stderr as there."""

    def __init__(self) -> None:
        super().__init__()
        self._characters = 1

    def started(self, trainer: Trainer) -> None:
        net, given = trainer.net, trainer.net.options
        self._characters = len(trainer.pictures)
        say(
            f"{trainer.output.name}\nLearning Rate: {given.learning_rate:g}, Momentum: {given.momentum:g}, "
            f"Decay: {given.decay:g}, Inputs: {net.inputs} {net.batch} {given.time_steps}"
        )

    def loaded(self, seconds: float) -> None:
        """The C program does not tell it here."""

    def iterated(self, iteration: Iteration) -> None:
        say(
            f"{iteration.number}: {iteration.loss:f}, {iteration.average:f} avg, {iteration.rate:f} rate, "
            f"{iteration.seconds:f} seconds, {iteration.images / self._characters:f} epochs"
        )


class LiveLine(TrainingWatcher):
    """One line that is written anew: iteration, loss, rate, images/s, mAP so far, time left; notes stay above it.

    head: what stands before the numbers. notes: show what the training has to say.
    """

    def __init__(self, head: str = "", notes: bool = True, console: Console | None = None) -> None:
        self.console = console or Console()
        self._notes = notes
        self._speed = Speed()
        self._map, self._measure = "", "mAP"
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self.console,
            expand=True,
        )
        self._head = head

    def started(self, trainer: Trainer) -> None:
        self._task = self._progress.add_task(
            self._head or trainer.output.name,
            total=trainer.last_iteration,
            completed=trainer.iteration,
            numbers="first iteration (kernels are made ready)",
        )
        self._measure = trainer.measure
        if trainer.progress.last_map is not None:
            self._map = percent(trainer.progress.last_map, self._measure)
        self._progress.start()

    def note(self, text: str) -> None:
        if self._notes:
            self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def iterated(self, iteration: Iteration) -> None:
        speed = self._speed.after(iteration)
        parts = [f"loss {iteration.average:.4g}", f"rate {iteration.rate:.2g}", f"{speed:.3g} img/s", self._map]
        assert self._task is not None
        self._progress.update(self._task, completed=iteration.number, numbers="  ".join(filter(None, parts)))

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        self._map = percent(evaluation.mean_average_precision, self._measure)
        mark = ", the best so far" if best else ""
        self._print(f"iteration {number}: {self._map}{mark}")

    def finished(self, result: TrainResult) -> None:
        self.close()
        self._print(summary(result))

    def close(self) -> None:
        """Leave the line as it stands."""
        self._progress.stop()


class Speed:
    """Images per second, computing and waiting, averaged over the last iterations; the first one, slow, is left out."""

    def __init__(self) -> None:
        self._images = self._seconds = 0.0
        self._last: int | None = None
        self._skipped = False

    def after(self, iteration: Iteration) -> float:
        """The speed, with one more iteration."""
        seconds = iteration.seconds + iteration.waited
        images = iteration.images - self._last if self._last is not None else iteration.images / iteration.number
        self._last = iteration.images
        if not self._skipped:
            self._skipped = True
            return images / seconds
        keep = 0.95 if self._seconds else 0.0
        self._images = self._images * keep + images
        self._seconds = self._seconds * keep + seconds
        return self._images / self._seconds


class Counting:
    """How many pictures are done, for validations: a live line on a terminal, nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task = self._progress.add_task(what, total=None)

    def __enter__(self) -> Tick:
        self._progress.start()
        return lambda done, total: self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


def summary(result: TrainResult) -> str:
    """How a training ended, in one sentence."""
    average = "" if result.average is None else f", average loss {result.average:.4g}"
    best = "" if result.best_map is None else f", best {percent(result.best_map, result.measure)}"
    skipped = f"; {result.skipped} pictures could not be read and were skipped" if result.skipped else ""
    verb = "stopped" if result.stopped else "done"
    return f"{verb} after iteration {result.iteration}{average}{best}: {result.weights}{skipped}"


def percent(value: float, measure: str = "mAP") -> str:
    """mAP, or an accuracy, as people write it."""
    return f"{measure} unknown" if math.isnan(value) else f"{measure} {100 * value:.1f}%"


class ShortLines(TrainingWatcher):
    """One short line every so many iterations and nothing else, for logs that people read."""

    def __init__(self, every: int) -> None:
        self._every, self._speed = every, Speed()
        self._last, self._map = 0, ""

    def started(self, trainer: Trainer) -> None:
        self._last = trainer.last_iteration

    def iterated(self, iteration: Iteration) -> None:
        speed = self._speed.after(iteration)
        if iteration.number % self._every and iteration.number != self._last:
            return
        images = iteration.images / iteration.number
        left = int((self._last - iteration.number) * images / speed)
        parts = [
            f"loss {iteration.average:.4g}",
            f"{speed:.0f} images/s",
            self._map,
            f"{left // 60}:{left % 60:02} left",
        ]
        print(f"iteration {iteration.number}/{self._last}: {', '.join(filter(None, parts))}", flush=True)

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        self._map = percent(evaluation.mean_average_precision)

    def finished(self, result: TrainResult) -> None:
        print(summary(result), flush=True)

"""Several watchers of one training."""

from __future__ import annotations

from pathlib import Path

from undertow.darknet.detection.evaluate import Evaluation
from undertow.darknet.layers.head_statistics import HeadStatistics
from undertow.darknet.learning.trainer import Iteration, Trainer, TrainingWatcher, TrainResult


class Together(TrainingWatcher):
    """Tells each of the watchers everything, in their order."""

    def __init__(self, *watchers: TrainingWatcher) -> None:
        self.watchers = watchers

    def started(self, trainer: Trainer) -> None:
        for watcher in self.watchers:
            watcher.started(trainer)

    def note(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.note(text)

    def resized(self, size: tuple[int, int]) -> None:
        for watcher in self.watchers:
            watcher.resized(size)

    def loaded(self, seconds: float) -> None:
        for watcher in self.watchers:
            watcher.loaded(seconds)

    def passed(self, heads: list[tuple[int, HeadStatistics]]) -> None:
        for watcher in self.watchers:
            watcher.passed(heads)

    def iterated(self, iteration: Iteration) -> None:
        for watcher in self.watchers:
            watcher.iterated(iteration)

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        for watcher in self.watchers:
            watcher.validated(number, evaluation, best)

    def saved(self, path: Path) -> None:
        for watcher in self.watchers:
            watcher.saved(path)

    def broke_off(self, problem: BaseException) -> None:
        for watcher in self.watchers:
            watcher.broke_off(problem)

    def finished(self, result: TrainResult) -> None:
        for watcher in self.watchers:
            watcher.finished(result)

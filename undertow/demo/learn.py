"""The steps of the demo after its pictures are made: training, and showing what was learned."""

from __future__ import annotations

from dataclasses import dataclass

from undertow.darknet.detection.evaluate import Evaluation
from undertow.darknet.learning.chart import Chart, can_draw
from undertow.darknet.learning.trainer import Trainer, TrainingWatcher, TrainOptions
from undertow.darknet.learning.trainlog import TrainLog
from undertow.darknet.learning.watchers import Together
from undertow.darknet.runs import load, training
from undertow.demo.folder import DemoFolder
from undertow.demo.scenes import NAMES
from undertow.demo.sheet import draw_predictions

VALIDATIONS = 6
_NEVER = 10**9


@dataclass(frozen=True)
class DemoOptions:
    """How large the demo is. pictures, tests: to make for training and testing. iterations: None for those of the cfg.
    shown: how many of the test pictures are drawn with what is found in them.
    """

    pictures: int = 1000
    tests: int = 80
    iterations: int | None = None
    shown: int = 24
    seed: int = 0


class LastEvaluation(TrainingWatcher):
    """Keeps the last validation; at the end of a training that is one of the finished net."""

    def __init__(self) -> None:
        self.evaluation: Evaluation | None = None

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        self.evaluation = evaluation


def make_trainer(folder: DemoFolder, options: DemoOptions, *watchers: TrainingWatcher) -> Trainer:
    """A Trainer for the pictures in the folder: a few validations on the held-out ones, a log and a chart."""
    log = TrainLog(NAMES)
    charts = [Chart(log, folder.chart, "handwritten digits on photographs")] if can_draw() else []
    iterations = options.iterations or load(folder.cfg).options.max_batches
    return training(
        folder.data,
        folder.cfg,
        options=TrainOptions(
            seed=options.seed,
            save_every=_NEVER,
            validate=True,
            validate_every=max(1, iterations // VALIDATIONS),
            mirror=False,  # a mirrored digit is another thing
        ),
        watcher=Together(*watchers, log, *charts),
    )


def show(folder: DemoFolder, options: DemoOptions) -> None:
    """Draw what the trained net finds in pictures it has never seen."""
    net = load(folder.cfg, folder.weights, names=NAMES)
    draw_predictions(net, folder.pictures("test")[: options.shown], folder.path / "predictions", folder.sheet)

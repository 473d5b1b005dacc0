"""Training a detector: the flow of the C program (examples/detector.c train_detector), with exact resuming."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from undertow.core.modes import current_precision
from undertow.darknet.files.issues import Issue
from undertow.darknet.layers.head_statistics import HeadStatistics
from undertow.darknet.layers.layers_heads import BoxHead, Detection
from undertow.darknet.learning.checkpoint import Progress, load_checkpoint
from undertow.darknet.learning.dataset import Sample
from undertow.darknet.learning.nonfinite import check_parameters, report
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.darknet.learning.recovery import Beginning
from undertow.darknet.learning.saver import Output as Output
from undertow.darknet.learning.saver import Saver
from undertow.darknet.network import Network
from undertow.data.crand import CounterRandom
from undertow.errors import FormatError, NonFiniteError, UndertowError
from undertow.files import leftovers_text

Array = np.ndarray[Any, Any]
TrainStep = Callable[[Network, Array, Array], float]


class Samples(Protocol):
    """What a training draws from: paths it depends on, and any sample of the run by its number."""

    paths: tuple[str, ...]

    def __len__(self) -> int: ...

    @property
    def skipped(self) -> list[Issue]: ...

    def sample(self, counter: int, size: tuple[int, int], /) -> Sample: ...


class Measured(Protocol):
    """The measure of a net: a share of 1, called mAP or top-1..., and the lines that tell it."""

    @property
    def mean_average_precision(self) -> float: ...

    def lines(self) -> list[str]: ...


Validator = Callable[[Network], Measured]

# Multi-scale training (random=1): sides of 10..19 times 32, a new one every 10 iterations, 608 for the last 200.
SIZE_STEP, SMALLEST_STEPS, SIZES, SIZE_ITERATIONS = 32, 10, 10, 10
LAST_SIZE, LAST_ITERATIONS = 608, 200
# The draws of sizes, numbered beyond those of the samples.
_SIZE_COUNTER = 1 << 48


@dataclass(frozen=True)
class TrainOptions:
    """How to train, besides what the cfg says.

    seed: of the samples and sizes. workers: threads that load pictures (None: by the number of processors).
    backup_every: iterations between checkpoints, NAME.backup with its state; what a kill loses at most.
    save_every: iterations between NAME_N.weights; None for the original's: 100 up to 1,000, then 10,000.
    validate_every: iterations between validations; None for AlexeyAB's: `validate_rounds` times through the pictures,
        100 at least, and not before burn_in.
    clear: count from iteration 0 again, whatever the weights have seen. validate: measure mAP on valid= now and then.
    iou_threshold, confidence: of these validations, see `evaluate`.
    mirror: pictures may be mirrored; not if flip=0 in the cfg, nor for objects that have a left and a right.
    """

    seed: int = 0
    workers: int | None = None
    backup_every: int = 100
    save_every: int | None = None
    validate_every: int | None = None
    validate_rounds: int = 4
    clear: bool = False
    validate: bool = False
    iou_threshold: float = 0.5
    confidence: float = 0.25
    mirror: bool = True


@dataclass(frozen=True)
class Iteration:
    """One iteration. number: from 1. loss: of its images; average: over the last iterations. seconds: computing;
    waited: seconds for pictures. images: seen so far. size: (width, height) of the net. mean_average_precision: of
    the last validation, 0..1.
    """

    number: int
    loss: float
    average: float
    rate: float
    seconds: float
    waited: float
    images: int
    size: tuple[int, int]
    mean_average_precision: float | None = None


@dataclass(frozen=True)
class TrainResult:
    """How a training ended. weights: the file to go on with or to use. stopped: before max_batches, by request.

    best_map: the best of its validations, of the kind `measure` names.
    """

    weights: Path
    iteration: int
    average: float | None
    stopped: bool
    best_map: float | None
    skipped: int
    measure: str = "mAP"


class TrainingWatcher:
    """Is told what happens in a training; override what you need. The base does nothing."""

    def started(self, trainer: Trainer) -> None:
        """Before the first iteration."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def resized(self, size: tuple[int, int]) -> None:
        """The net takes pictures of another size, (width, height)."""

    def loaded(self, seconds: float) -> None:
        """The pictures of an iteration are there; how long the trainer waited for them."""

    def passed(self, heads: list[tuple[int, HeadStatistics]]) -> None:
        """One pass was made: layer index and statistics of each head."""

    def iterated(self, iteration: Iteration) -> None:
        """An iteration is complete."""

    def validated(self, number: int, evaluation: Any, best: bool) -> None:
        """The net was measured after iteration `number`: an `Evaluation`, of a classifier an `Accuracy`."""

    def saved(self, path: Path) -> None:
        """A file was written."""

    def finished(self, result: TrainResult) -> None:
        """The training ended well."""

    def broke_off(self, problem: BaseException) -> None:
        """The training ends with this; the net is as it was left."""


def train_step(net: Network, images: Array, truth: Array) -> float:
    """One pass on the numbers alone: images (batch, c, h, w), truth (batch, values); the cost."""
    return net.train_datum(images, truth)


class Trainer:
    """Trains a network on a TrainingSet, or what is like one.

    measure: how the number is called that validations give.
    The samples of a run are numbered by `net.seen`, so a run that goes on from a checkpoint sees what it would have
    seen. validator: measures the net; None for no validation. step: what computes one pass, see `train_step`.

    Raises UndertowError when there is nothing left to train.
    """

    measure = "mAP"

    def __init__(
        self,
        net: Network,
        pictures: Samples,
        output: Output,
        options: TrainOptions | None = None,
        *,
        validator: Validator | None = None,
        watcher: TrainingWatcher | None = None,
        step: TrainStep = train_step,
    ) -> None:
        self.net, self.pictures, self.output = net, pictures, output
        self.options = options or TrainOptions()
        self.validator, self.watcher = validator, watcher or TrainingWatcher()
        self.progress = Progress(seed=self.options.seed)
        self.step = step
        self._config, self._size = net.config, (net.w, net.h)
        self._multi_scale = self._sizes_vary()
        self._stop: str | None = None
        self._reported = 0
        # What the net was loaded from, and what was not finite in it.
        self._origin: Path | None = None
        self._ruined: list[str] = []
        # The pictures of the passes since the last update, for the case that it turns out not finite.
        self._recent: list[list[str]] = []
        self.saver = Saver(net, output, self._config, pictures.paths, self.watcher.saved, self._settings)
        check_length(net)
        net.keep_deltas = False

    @property
    def iteration(self) -> int:
        """Iterations done (get_current_batch)."""
        return self.net.batch_number

    @property
    def last_iteration(self) -> int:
        """`max_batches` of the cfg."""
        return self.net.options.max_batches

    def _sizes_vary(self) -> bool:
        """Whether the cfg asks for pictures of other sizes now and then; random=1 of [detection] is something else."""
        head = detection_head(self.net)
        return head.given.random and not isinstance(head, Detection)

    def begin_with(self, begun: Beginning | None) -> Self:
        """Go on from what `load_beginning` put into the net: exactly, where it can be; from iteration 0 with -clear.

        begun: None for a net without weights. Returns the trainer.
        """
        if begun is not None:
            self._origin, self._ruined = begun.path, begun.found.ruined
            given_backup = os.path.abspath(begun.given) == os.path.abspath(self.output.backup)
            self.saver.broken = begun.fell_back and given_backup
            if not self.options.clear:
                self.resume(begun.path)
        return self

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Take momentum, averages and counters that stand beside the weights the net was loaded from, if any do."""
        self._origin = Path(path)
        seed, paths = self.options.seed, self.pictures.paths
        restored = load_checkpoint(path, self.net, seed, self._config, paths, self._settings())
        if restored is None:
            if self.net.seen:
                self.watcher.note(f"no saved momentum beside {path}: it starts from zero, as in the original")
            return
        self.progress = restored.progress if restored.used else self.progress
        for remark in restored.remarks:
            self.watcher.note(remark)
        if restored.exact:
            self.watcher.note(f"going on exactly where {path} was written, after iteration {self.iteration}")
        elif restored.used:
            self.watcher.note("momentum and averages go on, but not bit for bit")
        else:
            self.watcher.note("momentum starts from zero, as in the original")

    def _settings(self) -> dict[str, str]:
        """What the numbers of this run depend on besides files and seed, by the names of the flags."""
        mirrored = "off" if self.options.mirror else "on"
        return {"-dialect": self.net.dialect.name, "-precision": current_precision(), "-no_flip": mirrored}

    def request_stop(self, reason: str) -> None:
        """Stop after the pass that is under way, with everything saved; may be called by a signal handler."""
        self._stop = reason

    def run(self) -> TrainResult:
        """Train up to max_batches, or until a stop is requested; save as the original does, and in both cases last.

        A save that fails on the way is told as a warning; the training goes on.
        Raises NonFiniteError that names layer, array, iteration and pictures (the files saved before stay), and
        UndertowError when there can be no folder for the weights, or the last save fails (see `Saver.last`).
        """
        removed = self.saver.make_folder()
        self.watcher.started(self)
        if removed:
            self.watcher.note(leftovers_text(removed))
        try:
            with self._samples() as samples:
                while self.iteration < self.last_iteration and self._iterate(samples):
                    self._after_iteration()
        except BaseException as problem:
            self.watcher.broke_off(problem)
            raise
        stopped = self.iteration < self.last_iteration
        result = TrainResult(
            weights=self.saver.last(self.progress, self.iteration, done=not stopped),
            iteration=self.iteration,
            average=self.progress.average,
            stopped=stopped,
            best_map=self.progress.best_map,
            skipped=len(self.pictures.skipped),
            measure=self.measure,
        )
        self.watcher.finished(result)
        return result

    def save_backup(self) -> None:
        """Write NAME.backup and, beside it, what exact resuming needs; nothing when that was just done.

        Raises NonFiniteError for ruined parameters, OSError or FormatError where it cannot be written; the files stay
        as they were.
        """
        self.saver.checkpoint(self.progress)

    # --- one iteration ----------------------------------------------------------------------------------

    def _samples(self) -> Prefetcher[Sample]:
        """Samples from the present place on, loaded ahead: one iteration, and at least four for each worker."""
        start, batch, images = self.net.seen, self.net.batch, self.images_per_iteration
        workers = self.options.workers or usual_workers()

        def load(number: int) -> Sample:
            iteration = (start + number // batch * batch) // images
            return self.pictures.sample(start + number, self.size_at(iteration))

        return Prefetcher(load, workers=workers, ahead=max(images, 4 * workers))

    @property
    def images_per_iteration(self) -> int:
        """batch of the cfg."""
        return self.net.batch * self.net.subdivisions

    def size_at(self, iteration: int) -> tuple[int, int]:
        """(width, height) of the net in the iteration after so many; with random=1 a new one every 10 iterations."""
        if not self._multi_scale:
            return self._size
        block = iteration // SIZE_ITERATIONS
        if block * SIZE_ITERATIONS + LAST_ITERATIONS > self.last_iteration:
            return LAST_SIZE, LAST_SIZE
        draw = CounterRandom(self.options.seed, _SIZE_COUNTER + block).index(SIZES)
        side = (draw + SMALLEST_STEPS) * SIZE_STEP
        return side, side

    def _iterate(self, samples: Prefetcher[Sample]) -> bool:
        """Passes up to the next update; False when a stop was requested."""
        progress = self.progress
        self._resize(self.size_at(self.iteration))
        begun = self.iteration
        waited = seconds = 0.0
        while self.iteration == begun:
            if self._stop is not None:
                return False
            start = time.perf_counter()
            batch = self._next(samples)
            waited += time.perf_counter() - start
            start = time.perf_counter()
            progress.cost_sum += self._pass(batch, begun + 1)
            progress.passes += 1
            seconds += time.perf_counter() - start
        self._complete(seconds, waited)
        return True

    def _next(self, samples: Prefetcher[Sample]) -> list[Sample]:
        """The samples of a pass. What stops the training here finds all passes whole: they are saved first."""
        try:
            return [next(samples) for _ in range(self.net.batch)]
        except (UndertowError, OSError):
            if self.net.seen and self.saver.attempt(self.output.backup, self.save_backup):
                backup = self.output.backup
                self.watcher.note(f"{backup} holds everything up to here; when the cause is mended, go on with it")
            raise

    def _pass(self, batch: list[Sample], iteration: int) -> float:
        images, truth = self._stacked(batch)
        self._recent.append([sample.path for sample in batch])
        updates = self.net.updates_done
        try:
            # Huge boxes of a young net overflow on the way; what counts is checked.
            with np.errstate(over="ignore", invalid="ignore"):
                cost = self.step(self.net, images, truth)
            if self.net.updates_done != updates:
                check_parameters(self.net)
                self._recent.clear()
        except NonFiniteError as problem:
            file, why = self.output.nonfinite, self._cause()
            raise report(problem, file, iteration, self._recent, self._last_good(), *why) from problem
        heads = [layer for layer in self.net.layers if isinstance(layer, BoxHead) and layer.statistics is not None]
        self.watcher.passed([(head.index, head.statistics) for head in heads if head.statistics is not None])
        return cost

    def _last_good(self) -> Path | None:
        """The last checkpoint of this run, else the weights that it began with, unless they were ruined."""
        if self.saver.checkpoint_at is not None:
            return self.output.backup
        return None if self._ruined else self._origin

    def _cause(self) -> tuple[str | None, str | None]:
        """Why numbers are not finite, and the remedy, where that is known."""
        if self._ruined:
            cause = f"{self._origin}, which this training began with, held such numbers already: {self._ruined[0]}"
            return cause, "begin with weights saved before that"
        rate = self.net.options.learning_rate
        if rate < 0:
            return f"learning_rate={rate:g} lets the loss rise", "set learning_rate= to a number above 0"
        return None, None

    def _stacked(self, batch: list[Sample]) -> tuple[Array, Array]:
        """Images and truth of a pass."""
        return np.stack([sample.image for sample in batch]), np.stack([sample.truth for sample in batch])

    def _complete(self, seconds: float, waited: float) -> None:
        """Book-keeping of a complete iteration."""
        progress = self.progress
        loss = progress.cost_sum / (progress.passes * self.net.batch)
        average = loss if progress.average is None else progress.average
        progress.average = average * 0.9 + loss * 0.1
        progress.cost_sum, progress.passes = 0.0, 0
        self._report_skipped()
        self.watcher.loaded(waited)
        self.watcher.iterated(
            Iteration(
                number=self.iteration,
                loss=loss,
                average=progress.average,
                rate=self.net.learning_rate,
                seconds=seconds,
                waited=waited,
                images=self.iteration * self.images_per_iteration,
                size=(self.net.w, self.net.h),
                mean_average_precision=progress.last_map,
            )
        )

    def _after_iteration(self) -> None:
        number = self.iteration
        if self.validator is not None and (number >= self._next_validation() or number == self.last_iteration):
            self._validate(self.validator)
        # Before the checkpoint: a training that is killed between the two comes by here again.
        if self._keeps_weights(number):
            self._save(self.output.numbered(number))
        if number % self.options.backup_every == 0 and number < self.last_iteration:
            self.saver.attempt(self.output.backup, self.save_backup)

    def _keeps_weights(self, number: int) -> bool:
        if self.options.save_every:
            return number % self.options.save_every == 0
        return number % 10000 == 0 or (number < 1000 and number % 100 == 0)

    def _next_validation(self) -> int:
        every = self.options.validate_every
        if every:
            return self.progress.map_iteration + every
        every = max(self.options.validate_rounds * len(self.pictures) // self.images_per_iteration, 100)
        return max(self.progress.map_iteration + every, self.net.options.burn_in)

    def _validate(self, validator: Validator) -> None:
        progress = self.progress
        self._resize(self._size)
        evaluation = validator(self.net)
        self.net.release()
        progress.map_iteration = self.iteration
        progress.last_map = evaluation.mean_average_precision
        before = progress.best_map
        best = before is None or progress.last_map >= before
        if best:
            progress.best_map = progress.last_map
        self.watcher.validated(self.iteration, evaluation, best)
        if best and not self._save(self.output.best):
            progress.best_map = before  # of the file that is there

    def _resize(self, size: tuple[int, int]) -> None:
        if size != (self.net.w, self.net.h):
            self.net.resize(*size)
            self.watcher.resized(size)

    def _save(self, path: Path) -> bool:
        return self.saver.attempt(path, lambda: self.saver.weights(path))

    def _report_skipped(self) -> None:
        skipped: list[Issue] = self.pictures.skipped
        for issue in skipped[self._reported :]:
            self.watcher.note(f"{issue}; skipped, {len(skipped)} so far")
        self._reported = len(skipped)


def usual_workers() -> int:
    """Threads that load pictures, unless the options say another number."""
    return min(8, max(2, os.cpu_count() or 1))


def check_length(net: Network) -> None:
    """Raise an error when the iterations of the cfg are done, or there are none."""
    if net.options.max_batches <= 0:
        raise FormatError(
            "max_batches is missing or 0: there is nothing to train",
            file=net.config.file,
            line=net.config.net.line,
            remedy="give the number of iterations as max_batches= in [net]",
        )
    if net.batch_number >= net.options.max_batches:
        raise UndertowError(
            f"these weights have seen {net.seen} images, which is iteration {net.batch_number}, "
            f"and max_batches is {net.options.max_batches}: there is nothing left to train",
            file=net.config.file,
            remedy="raise max_batches, or give -clear to count from 0",
        )


def detection_head(net: Network) -> BoxHead:
    """The last layer that finds objects; it says how pictures are augmented. Raises FormatError when there is none."""
    heads = [layer for layer in net.layers if isinstance(layer, BoxHead)]
    if not heads:
        raise FormatError(
            "the network has no [yolo], [region] or [detection] layer, so it cannot find objects",
            file=net.config.file,
            remedy="give the cfg of a detector",
        )
    return heads[-1]

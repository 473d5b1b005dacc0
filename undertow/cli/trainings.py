"""The course of every `train`: what it shows and writes, how it is stopped, and how to go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.cli.messages import say
from undertow.cli.shared import computing, dialect_of, gpus_answer, introduce, to_go_on
from undertow.cli.words import Words

if TYPE_CHECKING:
    from undertow.cli.progress import PlainLines
    from undertow.darknet.learning.trainer import Trainer, TrainingWatcher, TrainOptions
    from undertow.darknet.learning.trainlog import TrainLog
    from undertow.darknet.learning.watchers import Together


def options_of(words: Words, **more: Any) -> TrainOptions:
    """What the flags that all trainings have say; more: other options, and those of flags with another name."""
    from undertow.darknet.learning.trainer import TrainOptions

    given = {name: words[name] for name in ("save_every", "backup_every", "clear")}
    return TrainOptions(**given, **more)


def run_training(
    words: Words,
    command: str,
    make: Callable[..., Trainer],
    plain: tuple[str, ...] = ("DATA", "CFG"),
    *,
    lines: type[PlainLines] | None = None,
    log: type[TrainLog] | None = None,
    recorder: TrainingWatcher | None = None,
) -> int:
    """Train what `make(dialect=, watcher=, strict=)` gives, up to the end or until stopped; the exit status.

    command, plain: how a command line that goes on begins, and the names of its words before WEIGHTS. lines: the lines
    on stdout that belong to this kind of training, log: its numbers in files. recorder: watches too.
    """
    from undertow.cli.interrupt import stopping
    from undertow.cli.progress import training_watcher
    from undertow.darknet.learning.trainlog import TrainLog
    from undertow.darknet.learning.watchers import Together

    with computing(words), training_watcher(words["plain"], lines) as shown:
        watchers = Together(shown)
        trainer = make(dialect=dialect_of(words), watcher=watchers, strict=words["strict"])
        numbers = (log or TrainLog)(trainer.net.names)
        watchers.watchers += (numbers,)
        introduce(trainer.net)
        if words.flags.get("gpus"):
            say(gpus_answer(words["gpus"], trainer.images_per_iteration, trainer.net.options.learning_rate))
        _add_chart(watchers, numbers, trainer, words["chart"])
        watchers.watchers += () if recorder is None else (recorder,)
        with stopping(trainer) as interruption:
            result = trainer.run()
    if result.stopped:
        say(to_go_on(words, command, result.weights, *(words[name] for name in plain)))
        return interruption.status
    return 0


def _add_chart(watchers: Together, log: TrainLog, trainer: Trainer, path: str) -> None:
    """Draw the chart of a training, where the package for it is there."""
    from undertow.darknet.learning.chart import Chart, can_draw

    output = trainer.output
    if can_draw():
        watchers.watchers += (Chart(log, path or output.folder / f"chart_{output.name}.png", output.name),)
    elif path:
        say("-chart: drawing needs matplotlib: pip install 'undertow[charts]'")

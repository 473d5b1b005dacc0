"""`undertow demo [FOLDER]`: the main job on small real data, from making the pictures to looking at the results."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, Words

FOLDER = "demo-run"
_EVERY = 50


def demo(words: Words) -> int:
    """Make pictures, train, draw; the exit status."""
    from undertow.cli.interrupt import stopping
    from undertow.demo import DemoFolder, DemoOptions, LastEvaluation, make_trainer, show
    from undertow.demo.scenes import SceneMaker

    SceneMaker(training=False)  # tells of a missing package before anything is written
    options = DemoOptions(words["pictures"], words["tests"], words["iterations"], seed=words["seed"])
    folder = DemoFolder(Path(words["FOLDER"] or FOLDER))
    if words["threads"]:
        from undertow.kernels.select import set_threads

        set_threads(words["threads"])
    say("A small detector of the YOLOv3 kind learns to find handwritten digits in photographs.")
    folder.write_texts(options.iterations)
    _make_pictures(folder, options)
    last = LastEvaluation()
    with _watcher() as shown:
        trainer = make_trainer(folder, options, shown, last)
        with stopping(trainer) as interruption:
            result = trainer.run()
    if result.stopped:
        files = shlex.join(map(str, (folder.data, folder.cfg, result.weights)))
        say(f"to go on: undertow darknet detector train {files} -map -no_flip")
        return interruption.status
    show(folder, options)
    _tell(folder, options, last.evaluation)
    return 0


def _make_pictures(folder: Any, options: Any) -> None:
    from undertow.cli.progress import Counting

    for part, count, what in (("train", options.pictures, "to learn from"), ("test", options.tests, "held out")):
        with Counting(f"pictures {what}") as tick:
            for done in folder.make_pictures(part, count, options.seed):
                tick(done, count)
        say(f"{count} pictures {what}: {folder.path / part}")


@contextlib.contextmanager
def _watcher() -> Iterator[Any]:
    """A live line on a terminal, else a short line now and then."""
    from undertow.cli.progress import LiveLine, ShortLines

    if not sys.stdout.isatty():
        yield ShortLines(_EVERY)
        return
    line = LiveLine("training", notes=False)
    try:
        yield line
    finally:
        line.close()


def _tell(folder: Any, options: Any, evaluation: Any) -> None:
    """What came out, what to open, and what to try next."""
    from undertow.darknet.learning.chart import can_draw

    files = shlex.join(map(str, (folder.data, folder.cfg, folder.weights)))
    picture = shlex.quote(str(folder.pictures("test")[-1]))
    print(f"\nmAP@0.5 on {options.tests} pictures it has never seen: {100 * evaluation.mean_average_precision:.1f} %")
    print(f"\nopen  {folder.sheet}   what it finds there (one by one in {folder.path / 'predictions'})")
    if can_draw():
        print(f"      {folder.chart}   loss and mAP over the training")
    print(f"\nnext  undertow darknet detector test {files} {picture}")
    print(f"      undertow darknet detector map {files}")
    print(f"      {folder.path / 'README.txt'} tells what the other files are")


COMMAND = Command(
    "demo",
    ("[FOLDER]",),
    (
        Flag("iterations", "whole", "length of the training (that of the cfg)", "N", least=1),
        Flag("pictures", "whole", "pictures to make for training (1000)", "N", 1000, least=1),
        Flag("tests", "whole", "pictures to make for testing (80)", "N", 80, least=1),
        Flag("seed", "whole", "of all draws (0)", "N", 0, least=0),
        Flag("threads", "whole", "threads that compute (all processors)", "N", least=1),
    ),
    f"a small detector learns real pictures in about three minutes; everything goes to FOLDER ({FOLDER})",
    demo,
)

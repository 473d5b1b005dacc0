"""Trainings in processes of their own that are killed, gone on with, and compared with one that was left alone.

    python -m tests.darknet.training.killed FOLDER KILLS SEED    kill at random moments, at least so often
    python -m tests.darknet.training.killed FOLDER steps         kill before every step that touches a file

The processes are forks of this one, in which the kernels are ready: a life takes a moment. One picture cannot be read,
sizes change (random=1), and mAP is measured on the way. Prints what was done; a difference ends it with status 1.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.darknet.training.scenes import Scene, make_scene
from undertow.cli.interrupt import stopping
from undertow.darknet import TrainOptions, load, training
from undertow.darknet.learning import trainer
from undertow.darknet.learning.checkpoint import previous_path, state_files
from undertow.layers.saving import load as load_arrays

ITERATIONS = 60
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def make(folder: Path, iterations: int) -> Scene:
    """The data set, with a picture that cannot be read."""
    scene = make_scene(folder)
    scene.image(2).write_bytes(b"no picture")
    scene.write_cfg(random=1, max_batches=iterations)
    return scene


def train(scene: Scene) -> None:
    """One life of the training: it goes on from the checkpoint, if there is one."""
    options = TrainOptions(seed=3, workers=2, backup_every=1, save_every=5, validate=True, validate_every=4)
    go_on(scene, options)


def train_short(scene: Scene) -> None:
    """The same with few saves."""
    go_on(scene, TrainOptions(workers=1, backup_every=1, save_every=2))


def go_on(scene: Scene, options: TrainOptions) -> None:
    """Train from the last checkpoint on, unless all is done."""
    exists = scene.backup.exists() or previous_path(scene.backup).exists()
    if (scene.folder / "backup" / "tiny_final.weights").exists() and scene.backup.exists():
        net = load(scene.cfg, scene.backup)
        if net.batch_number == net.options.max_batches:
            return  # the kill came after all was written
    made = training(scene.data, scene.cfg, scene.backup if exists else None, options)
    with stopping(made):
        made.run()


def fork(work: Callable[[], None]) -> int:
    """Start `work` in a process of its own; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # "stopping after this pass", some dozens of times
        work()
        status = 0
    finally:
        os._exit(status)


def ended(child: int) -> int | None:
    """The exit status, negative for a signal; None while it runs."""
    number, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if number else None


def compare(scene: Scene, reference: Scene) -> None:
    """Weights as bytes, and every array of the state."""
    for name in ("tiny_final.weights", "tiny_best.weights", "tiny_5.weights", "tiny.backup"):
        if (scene.folder / "backup" / name).read_bytes() != (reference.folder / "backup" / name).read_bytes():
            sys.exit(f"{name} differs from that of the run that was left alone")
    for name, array in state(reference).items():
        if name != "images" and not np.array_equal(state(scene)[name], array, equal_nan=True):  # not their paths
            sys.exit(f"{name} of the state differs")
    parts = list((scene.folder / "backup").glob(".*.part"))
    if parts:
        sys.exit(f"left behind: {parts[0].name}")


def state(scene: Scene) -> dict[str, np.ndarray]:
    """The state that belongs to the last checkpoint; a kill may have left it under its first name."""
    states = [load_arrays(path) for path in state_files(scene.backup, own=True)]
    return max(states, key=lambda arrays: int(arrays["seen"]))


def kill_at_random(folder: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    reference = make(folder / "whole", ITERATIONS)
    train(reference)
    done, finished, in_saves = 0, 0, 0
    while done < kills:
        scene = make(folder / f"killed{finished}", ITERATIONS)
        lives = 0
        while True:
            child = fork(lambda scene=scene: train(scene))  # type: ignore[misc]
            end = time.monotonic() + (draw.uniform(0, 0.25) if lives < 40 else 60)
            while (status := ended(child)) is None and time.monotonic() < end:
                time.sleep(0.002)
            if status is not None:
                break
            os.kill(child, draw.choice(SIGNALS))
            os.waitpid(child, 0)
            lives, done = lives + 1, done + 1
            names = [path.name for path in scene.folder.glob("backup/*")] + [
                path.name for path in scene.folder.glob("backup/.*")
            ]
            in_saves += any(name.endswith(".part") or ".next" in name for name in names)
        if status:
            sys.exit(f"a life ended with status {status}")
        compare(scene, reference)
        shutil.rmtree(scene.folder)
        finished += 1
    print(f"seed {seed}: {done} kills, {in_saves} of them in the middle of a save, {finished} runs equal to the byte")


def kill_at_steps(folder: Path) -> None:
    """A kill before the first, second, ... step that makes, syncs, renames, links or removes a file."""
    reference = make(folder / "whole", 3)
    train_short(reference)
    count = 0
    while True:
        count += 1
        scene = make(folder / f"step{count}", 3)
        child = fork(lambda scene=scene, at=count: die_at(at, scene))  # type: ignore[misc]
        _, status = os.waitpid(child, 0)
        killed = os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        if killed:
            child = fork(lambda scene=scene: train_short(scene))  # type: ignore[misc]
            _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"step {count}: ended with status {status}")
        same = all(
            (scene.folder / "backup" / name).read_bytes() == (reference.folder / "backup" / name).read_bytes()
            for name in ("tiny_final.weights", "tiny_2.weights", "tiny.backup")
        )
        if not same:
            sys.exit(f"step {count}: the weights differ")
        shutil.rmtree(scene.folder)
        if not killed:
            break
    print(f"{count - 1} steps, the result is the same after a kill before each")


def die_at(step: int, scene: Scene) -> None:
    """Train, and be killed before the step of that number."""
    steps = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **options)

        return call

    for name in ("replace", "link", "unlink", "fsync"):
        setattr(os, name, counted(getattr(os, name)))
    train_short(scene)


def main() -> None:
    warnings.simplefilter("ignore")
    for name, value in {
        "SIZE_STEP": 16, "SMALLEST_STEPS": 1, "SIZES": 3, "SIZE_ITERATIONS": 2, "LAST_ITERATIONS": 2, "LAST_SIZE": 32
    }.items():  # fmt: skip
        setattr(trainer, name, value)
    folder = Path(sys.argv[1])
    with contextlib.chdir(folder):
        if sys.argv[2] == "steps":
            kill_at_steps(folder)
        else:
            kill_at_random(folder, int(sys.argv[2]), int(sys.argv[3]))


if __name__ == "__main__":
    main()

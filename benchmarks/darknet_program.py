"""A training step against the original `darknet` program on the PATH, such as Debian's.

The program trains on a tiny data set made for it and prints the seconds of every iteration, without those of loading
pictures. It cannot be run in turns with others, so Undertow is timed before and after it, for half of the rounds each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import undertow as ut
from benchmarks.nets import config_of
from benchmarks.timing import Timed, Timing, interleaved
from benchmarks.train import make_net, our_step

PROGRAM = "darknet"
ITERATION = re.compile(r"^\s*(\d+): .* avg, .* rate, ([0-9.]+) seconds, \d+ images", re.MULTILINE)


def compare(name: str, batch: int, size: int, threads: int, timing: Timing, iterations: int = 3) -> dict[str, Timed]:
    """Seconds of whole steps on both sides; raises RuntimeError when the program prints no iterations."""
    ut.set_threads(threads)
    step = our_step(make_net(name, batch, size))
    half = Timing(max(1, timing.rounds // 2), timing.clock, timing.budget / 2)
    before = interleaved({"undertow": step}, half)["undertow"].seconds
    theirs = program_seconds(name, batch, size, threads, iterations)
    after = interleaved({"undertow": step}, half)["undertow"].seconds
    return {"undertow": Timed("undertow", before + after), PROGRAM: Timed(PROGRAM, theirs)}


def program_seconds(name: str, batch: int, size: int, threads: int, iterations: int) -> tuple[float, ...]:
    """What `darknet detector train` says of its iterations."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise RuntimeError("there is no program 'darknet' on the PATH")
    with tempfile.TemporaryDirectory() as made:
        data, cfg = _write_data_set(Path(made), name, batch, size, iterations)
        done = subprocess.run(
            [program, "detector", "train", str(data), str(cfg)],
            cwd=made,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    seconds = tuple(float(found[2]) for found in ITERATION.finditer(done.stdout))
    if not seconds:
        raise RuntimeError(f"darknet printed no iterations: {done.stdout[-300:]} {done.stderr[-300:]}")
    return seconds


def _write_data_set(folder: Path, name: str, batch: int, size: int, iterations: int) -> tuple[Path, Path]:
    """Random pictures with five boxes each, and the files that name them."""
    rng = np.random.default_rng(0)
    pictures = []
    for i in range(batch):
        picture = folder / f"{i}.jpg"
        Image.fromarray(rng.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(picture)
        boxes = [(rng.integers(80), *rng.uniform(0.2, 0.8, 2), *rng.uniform(0.1, 0.4, 2)) for _ in range(5)]
        picture.with_suffix(".txt").write_text("".join(" ".join(map(str, box)) + "\n" for box in boxes))
        pictures.append(f"{picture}\n")
    (folder / "train.txt").write_text("".join(pictures))
    (folder / "names").write_text("".join(f"class{i}\n" for i in range(80)))
    cfg = folder / "net.cfg"
    config_of(name, batch, size).with_values(0, {"max_batches": iterations}).write(cfg)
    data = folder / "set.data"
    lines = {"classes": 80, "train": folder / "train.txt", "names": folder / "names", "backup": folder}
    data.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return data, cfg

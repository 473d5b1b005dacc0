"""Whether the loader of pictures keeps up with the training of a detector."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import undertow as ut
from benchmarks.train import make_net, our_step
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.labels import LabelReader
from undertow.darknet.learning.dataset import Sample, TrainingSet
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.darknet.network import Network
from undertow.data.augment import Colours, DetectionOptions

# As the cfg of yolov3-tiny has them.
AUGMENTATION = DetectionOptions(0.3, Colours(0.1, 1.5, 1.5))
PHOTO = 640, 480


@dataclass(frozen=True)
class Rates:
    """Images per second: of the loader by itself, of training steps by themselves, of both at the same time.

    waited: the share of the time in which training waited for pictures, when both run.
    """

    loader: float
    training: float
    both: float
    waited: float

    @property
    def ratio(self) -> float:
        """How many times as fast the loader is as the training it feeds."""
        return self.loader / self.training

    def lines(self, threads: int) -> list[str]:
        return [
            f"{threads} threads: loader alone {self.loader:.1f} images/s, training alone {self.training:.1f} images/s, "
            f"loader / training {self.ratio:.2f}",
            f"{threads} threads: both {self.both:.1f} images/s, waiting for pictures {self.waited:.1%} of the time",
        ]


def measure(name: str, batch: int, size: int, threads: int, rounds: int = 7) -> Rates:
    """Medians of `rounds` rounds; a round is 64 pictures for the loader and two steps for the training.

    The loader works on as many threads as the trainer gives it here, and the kernels on `threads`.
    """
    ut.set_threads(threads)
    net = make_net(name, batch, size)
    step = our_step(net)
    for _ in range(4):
        step()
    training = statistics.median(_rate(2 * batch, lambda: (step(), step())) for _ in range(rounds))
    with tempfile.TemporaryDirectory() as folder:
        pictures = _photos(Path(folder), 32)
        with _loading(pictures, net.w, net.h, threads) as samples:
            _take(samples, 64)
            loader = statistics.median(_rate(64, lambda: _take(samples, 64)) for _ in range(rounds))
        net.seen = 0
        with _loading(pictures, net.w, net.h, threads) as samples:
            both, waited = _together(net, samples, 2 * rounds)
    return Rates(loader, training, both, waited)


def _rate(images: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return images / (time.perf_counter() - start)


def _take(samples: Iterator[object], count: int) -> None:
    for _ in range(count):
        next(samples)


def _loading(pictures: TrainingSet, width: int, height: int, threads: int) -> Prefetcher[Sample]:
    """As `Trainer` loads: at least two threads, and so many pictures ahead."""
    workers = max(2, threads)
    ahead = max(64, 4 * workers)
    return Prefetcher(lambda number: pictures.sample(number, (width, height)), workers=workers, ahead=ahead)


def _together(net: Network, samples: Prefetcher[Sample], steps: int) -> tuple[float, float]:
    waited = 0.0
    start = time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = [next(samples) for _ in range(net.batch)]
        waited += time.perf_counter() - asked
        net.train_datum(np.stack([one.image for one in batch]), np.stack([one.truth for one in batch]))
    taken = time.perf_counter() - start
    return steps * net.batch / taken, waited / taken


def _photos(folder: Path, count: int) -> TrainingSet:
    """JPEG files of the size that cameras of data sets give, with about as many bytes as photos have."""
    rng = np.random.default_rng(3)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        coarse = coarse.resize(PHOTO, Image.Resampling.BICUBIC)
        noise = rng.normal(0, 6, (PHOTO[1], PHOTO[0], 3))
        pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=90)
        boxes = rng.uniform(0.2, 0.4, (5, 4))
        lines = [f"{label} {' '.join(f'{value:.4f}' for value in box)}" for label, box in enumerate(boxes)]
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    (folder / "train.txt").write_text("".join(f"{folder / str(number)}.jpg\n" for number in range(count)))
    return TrainingSet(read_image_list(folder / "train.txt"), LabelReader(80), AUGMENTATION)

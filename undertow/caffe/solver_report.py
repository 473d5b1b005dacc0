"""What a solver says: Caffe's lines, as programs that read its logs expect them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from undertow.caffe.glog import log, number
from undertow.caffe.net import Net


class SmoothedLoss:
    """The mean of the last `length` losses; with fewer, of all there are."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.clear()

    def clear(self) -> None:
        """Begin anew, as every `step` does."""
        self._losses: list[float] = []
        self.value = 0.0

    def add(self, loss: float, index: int) -> None:
        """One more loss. index: iterations since the beginning, which decides what it replaces."""
        if len(self._losses) < self.length:
            self._losses.append(loss)
            self.value += (loss - self.value) / len(self._losses)
            return
        place = index % self.length
        self.value += (loss - self._losses[place]) / self.length
        self._losses[place] = loss


class Stopwatch:
    """Iterations per second between displays."""

    def __init__(self) -> None:
        self.iteration = 0
        self.start()

    def start(self) -> None:
        self._started = time.perf_counter()

    def lap(self, iteration: int, display: int) -> str:
        """The part of a line in parentheses; and start again."""
        seconds = time.perf_counter() - self._started
        speed = (iteration - self.iteration) / (seconds or 1)
        self.iteration = iteration
        self.start()
        return f"({number(speed)} iter/s, {number(seconds)}s/{display} iters)"


def output_scores(net: Net) -> Iterator[tuple[str, float, float]]:
    """All numbers in the net's outputs: blob name, loss weight, value."""
    weights: dict[int, float] = {}
    for layer, ids in zip(net.layers, net.top_ids, strict=True):
        weights.update(zip(ids, layer.loss_weights, strict=False))
    for blob_id in net.output_ids:
        for value in np.asarray(net.blob_list[blob_id].data).reshape(-1):
            yield net.blob_names[blob_id], weights.get(blob_id, 0.0), float(value)


def score_text(name: str, weight: float, value: float) -> str:
    """One output: `loss = 0.5 (* 1 = 0.5 loss)`."""
    share = f" (* {number(weight)} = {number(weight * value)} loss)" if weight else ""
    return f"{name} = {number(value)}{share}"


def report_train_outputs(net: Net) -> None:
    """The lines after `Iteration N`."""
    for index, score in enumerate(output_scores(net)):
        log(f"    Train net output #{index}: {score_text(*score)}", "solver.cpp:258")

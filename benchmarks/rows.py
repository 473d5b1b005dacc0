"""The rows of the table: what is measured, against whom, and what is asked for."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.timing import Timed, Timing
from undertow.errors import MissingPackage

EAGER = ["torch contiguous", "torch channels_last"]
COMPILED = "torch channels_last, compile"
# Module -> what pip calls it.
PACKAGES = {
    "torch": "torch",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "cv2": "opencv-python-headless",
}


@dataclass(frozen=True)
class Settings:
    """rounds: of every row; None: each row's own. compiled: also torch.compile, where a row has it."""

    threads: int = 2
    rounds: int | None = None
    compiled: bool = False


@dataclass(frozen=True)
class Row:
    """measure: the times of both sides, ours under "undertow" (for memory megabytes in the place of seconds).

    at_least, aim: asked of the ratio best peer / ours; of memory ours / best peer, at most.
    rounds: as many as fit into `budget` seconds, once three are done. needs: modules; one_of: one of these, too.
    """

    key: str
    work: str
    at_least: float
    aim: float | None
    measure: Callable[[Settings, Timing], Mapping[str, Timed]]
    rounds: int = 5
    budget: float = 40.0
    needs: tuple[str, ...] = ("torch",)
    one_of: tuple[str, ...] = ()
    program: str | None = None
    unit: str = "s"

    def missing(self) -> str | None:
        """Why the row cannot be measured here, in words, or None."""
        absent = [PACKAGES[name] for name in self.needs if importlib.util.find_spec(name) is None]
        if absent:
            return f"not installed: {', '.join(absent)} (pip install {' '.join(absent)})"
        if self.program is not None and shutil.which(self.program) is None:
            return f"there is no program '{self.program}' on the PATH (Debian: apt install {self.program})"
        if self.one_of and all(importlib.util.find_spec(name) is None for name in self.one_of):
            return f"none of these is installed: {', '.join(PACKAGES[name] for name in self.one_of)}"
        return None

    def run(self, settings: Settings) -> Mapping[str, Timed]:
        """Measure."""
        return self.measure(settings, Timing(settings.rounds or self.rounds, budget=self.budget))


def require_torch(what: str) -> None:
    """Raises MissingPackage where PyTorch is not installed. what: needs it."""
    if importlib.util.find_spec("torch") is None:
        raise MissingPackage("torch", "", what, remedy="pip install torch")


def _train(key: str, name: str, batch: int, size: int, at_least: float, aim: float | None, rounds: int = 5) -> Row:
    def measure(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
        from benchmarks import train

        kinds = EAGER + ([COMPILED] if settings.compiled else [])
        return train.compare(name, batch, size, settings.threads, kinds, timing)

    return Row(key, f"training step, {name} {size}, batch {batch}", at_least, aim, measure, rounds)


def _memory(key: str, name: str, batch: int, size: int) -> Row:
    def measure(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
        from benchmarks import memory

        sides = ("undertow", *EAGER)
        return {side: Timed(side, (memory.measure(side, name, batch, size, settings.threads),)) for side in sides}

    return Row(key, f"peak memory of training, {name} {size}, batch {batch}", 0.6, 0.45, measure, 1, unit="MB")


def _classifier(
    key: str, spec: str, work: str, batch: int, at_least: float, aim: float | None, warmup: int, rounds: int
) -> Row:
    def measure(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
        from benchmarks import layered, specs

        return layered.compare(specs.SPECS[spec], batch, settings.threads, timing, warmup=warmup)

    return Row(key, f"training step, {work}, batch {batch}", at_least, aim, measure, rounds)


def _inference(key: str, name: str, batch: int) -> Row:
    def measure(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
        from benchmarks import engines, inference

        return inference.compare(name, batch, 416, settings.threads, engines.installed(), timing)

    one_of = ("onnxruntime", "openvino", "cv2")
    rounds = 15 if (name, batch) == ("yolov3-tiny", 1) else 7
    return Row(key, f"inference, {name} 416, batch {batch}", 1.0, 1.5, measure, rounds, 30.0, ("torch", "onnx"), one_of)


def _program(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
    from benchmarks import darknet_program

    return darknet_program.compare("yolov3-tiny", 4, 416, settings.threads, timing)


def _scalar(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
    from benchmarks import scalar

    return scalar.compare(settings.threads, timing)


def _lstm(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
    from benchmarks import recurrent

    return recurrent.compare(settings.threads, timing)


def _solver(settings: Settings, timing: Timing) -> Mapping[str, Timed]:
    from benchmarks import solver

    return solver.compare(64, settings.threads, timing)


ROWS: dict[str, Row] = {
    row.key: row
    for row in (
        _train("train-tiny", "yolov3-tiny", 4, 416, 2.6, 3.5, rounds=9),
        _train("train-yolov3", "yolov3", 2, 416, 2.3, 3.0),
        _memory("memory-tiny", "yolov3-tiny", 4, 416),
        _memory("memory-yolov3", "yolov3", 2, 416),
        _train("train-darknet53", "darknet53", 8, 224, 2.0, None),
        _classifier("train-resnet50", "resnet50", "ResNet-50 224", 8, 1.5, 2.0, warmup=1, rounds=5),
        _classifier("train-mobilenet", "mobilenet", "MobileNet 224 (depthwise)", 16, 1.5, None, warmup=1, rounds=5),
        _classifier("train-lenet", "lenet", "LeNet", 64, 2.5, None, warmup=5, rounds=31),
        Row(
            "train-lenet-solver", "training step, LeNet through Caffe's solver, batch 64", 2.5, None, _solver, 31,
        ),
        _classifier("train-cifar", "cifar-quick", "CIFAR-10 quick", 100, 2.0, None, warmup=5, rounds=31),
        _inference("infer-tiny-1", "yolov3-tiny", 1),
        _inference("infer-tiny-8", "yolov3-tiny", 8),
        _inference("infer-yolov3-1", "yolov3", 1),
        _inference("infer-yolov3-8", "yolov3", 8),
        Row(
            "program-tiny", "training step, yolov3-tiny 416, batch 4, against the program `darknet`", 25.0, None,
            _program, 8, needs=(), program="darknet",
        ),
        Row("scalar", "three scalar operations, forward and backward, define-by-run", 1.0, 2.0, _scalar, 15),
        Row("lstm", "training step, LSTM, hidden 256, 50 time steps, batch 32", 1.0, None, _lstm, 11),
    )
}  # fmt: skip

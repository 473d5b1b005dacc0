"""Names of pycaffe that concern the whole program: mode, seed, devices, log, layer types, timing.

Everything runs on the CPU. What asks for GPUs or several processes is answered, so that scripts go on.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from undertow.caffe import glog
from undertow.caffe.arguments import text_of, whole
from undertow.caffe.table import LAYER_TYPES
from undertow.errors import FormatError, UndertowError, UndertowWarning

TRAIN, TEST = 0, 1

# The release whose names and behaviour these are.
CAFFE_VERSION = "1.0.0"


class CaffeError(UndertowError, RuntimeError):
    """A wrong call, where pycaffe raises RuntimeError."""


class NoSuchLayer(CaffeError, ValueError):
    """The name of a layer that the net does not have, where pycaffe raises ValueError."""


class NoSuchBlob(CaffeError, KeyError):
    """The name of a blob that the net does not have, where pycaffe raises KeyError."""

    __str__ = UndertowError.__str__


class CannotOpen(FormatError, RuntimeError):
    """A file that cannot be opened, where pycaffe raises RuntimeError."""


class _Seeds:
    """Where nets made from Python take their seeds from: nothing, or numbers that follow from `set_random_seed`."""

    def __init__(self) -> None:
        self.sequence: np.random.SeedSequence | None = None

    def next(self) -> int | None:
        return None if self.sequence is None else int(self.sequence.spawn(1)[0].generate_state(1)[0])


_seeds = _Seeds()
_solvers = {"count": 1, "rank": 0}


def set_random_seed(seed: int) -> None:
    """From now on the random numbers of new nets and solvers follow from this number, the same in every run."""
    _seeds.sequence = np.random.SeedSequence(whole(seed, "the seed", 0))


def next_seed() -> int | None:
    """The seed of the next net: None without `set_random_seed`."""
    return _seeds.next()


def set_mode_cpu() -> None:
    """Nothing to do: everything runs on the CPU."""


def set_mode_gpu() -> None:
    """Answered with a warning: everything runs on the CPU."""
    warnings.warn(UndertowWarning("set_mode_gpu: this program computes on the CPU"), stacklevel=2)


def set_device(device: int) -> None:
    """Nothing to do: there is one device, the CPU."""
    whole(device, "a device")


def init_log(level: int = 0, stderr: bool = True) -> None:
    """Show Caffe's log lines on stderr: 0 all, 1 warnings and above, 2 errors."""
    glog.start(whole(level, "the level of the log"))


def log(text: str) -> None:
    """Put a line into the log."""
    glog.log(text_of(text, "a line of the log"), "_caffe.cpp:53")


def layer_type_list() -> list[str]:
    """All layer types that a prototxt can name."""
    return sorted(LAYER_TYPES)


def has_nccl() -> bool:
    """False: there is no training on several GPUs."""
    return False


class NCCL:
    """Stands for Caffe's link between GPUs. With one solver it does nothing, so that programs for several go on.

    Raises CaffeError (a RuntimeError) where `set_solver_count` announced more: they would not learn together.
    """

    def __init__(self, solver: Any, uid: bytes | str) -> None:
        if solver_count() > 1:
            raise CaffeError(
                f"there is no NCCL here that could link {solver_count()} solvers",
                remedy="ask has_nccl() first, and train with one solver, on one device",
            )
        self.solver = solver

    @staticmethod
    def new_uid() -> bytes:
        """The name of a link; there is only one."""
        return b"undertow"

    def bcast(self) -> None:
        """Hand parameters to all solvers; there is only one."""


def solver_count() -> int:
    """The number of solvers that `set_solver_count` was told; 1 at first."""
    return _solvers["count"]


def set_solver_count(count: int) -> None:
    """Keep a number of solvers, for scripts that train on several devices; `NCCL` refuses more than one."""
    _solvers["count"] = whole(count, "the number of solvers")


def solver_rank() -> int:
    """The rank that `set_solver_rank` was told; 0 at first."""
    return _solvers["rank"]


def set_solver_rank(rank: int) -> None:
    """Keep a rank among several solvers, for scripts that ask for it; it changes nothing here."""
    _solvers["rank"] = whole(rank, "the rank of a solver")


def set_multiprocess(on: bool) -> None:
    """Nothing to do: a solver trains by itself."""


class Timer:
    """start(), stop(), and `ms` between them."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: float | None = None

    def start(self) -> None:
        """Begin to measure anew."""
        self._started, self._seconds = time.perf_counter(), None

    def stop(self) -> None:
        """Stop measuring; the time stays until the next start."""
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._started

    @property
    def ms(self) -> float:
        """Milliseconds; stops a running timer."""
        self.stop()
        return 1000 * (self._seconds or 0.0)

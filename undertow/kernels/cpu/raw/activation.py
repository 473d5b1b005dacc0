"""Activations on dense runs of floats, all threads."""

from __future__ import annotations

from typing import NamedTuple

from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw.parts import ceil_div
from undertow.kernels.cpu.threads import team

_activation = Kernels("activation")
_UNIT = 4096  # floats; a thread gets whole units

CURVES = {"logistic": 0, "tanh": 1, "elu": 2, "mish": 3, "swish": 4}
FROM_OUTPUT = frozenset({"logistic", "tanh", "elu"})


class BrokenLine(NamedTuple):
    """y = above * x for x > 0, below * x else."""

    above: float
    below: float


BROKEN_LINES = {
    "relu": BrokenLine(1.0, 0.0),
    "relie": BrokenLine(1.0, 0.01),
    "ramp": BrokenLine(1.1, 0.1),
    "leaky": BrokenLine(1.0, 0.1),
}


def broken_line(x: int, y: int, count: int, line: BrokenLine) -> None:
    """count floats; y may be x."""
    team().run(
        ceil_div(count, _UNIT),
        lambda t, a, b: _activation.broken_line(x, y, *line, a * _UNIT, min(count, b * _UNIT)),
    )


def broken_line_backward(gy: int, x: int, gx: int, count: int, line: BrokenLine) -> None:
    """x: input or output of the activation; gx may be gy."""
    team().run(
        ceil_div(count, _UNIT),
        lambda t, a, b: _activation.broken_line_backward(gy, x, gx, *line, a * _UNIT, min(count, b * _UNIT)),
    )


def curve(name: str, x: int, y: int, count: int) -> None:
    """count floats; y may be x."""
    kind = CURVES[name]
    team().run(ceil_div(count, _UNIT), lambda t, a, b: _activation.curve(kind, x, y, a * _UNIT, min(count, b * _UNIT)))


def curve_backward(name: str, gy: int, x: int, gx: int, count: int, *, from_output: bool = False) -> None:
    """x: the input, or with from_output the output, of the activation; gx may be gy."""
    kind = CURVES[name]
    team().run(
        ceil_div(count, _UNIT),
        lambda t, a, b: _activation.curve_backward(kind, from_output, gy, x, gx, a * _UNIT, min(count, b * _UNIT)),
    )

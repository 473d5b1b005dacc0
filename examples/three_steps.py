"""Three functions in a row, differentiated in four ways that must agree.

    python examples/three_steps.py

y = square(exp(square(x))) at x = 0.5. Run the code forward, and the way back writes itself: every result remembers
the function that made it, and every function its input.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import undertow as ut


class Square(ut.Function):
    """A function of your own: what it computes, and how a gradient passes back through it."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return x**2

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.input.data
        return 2 * x * gy


class Exp(ut.Function):
    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.exp(x)

    def backward(self, gy: np.ndarray) -> np.ndarray:
        x = self.input.data
        return np.exp(x) * gy


def by_differences(x: float, step: float = 1e-4) -> float:
    """No cleverness: move x a little to both sides and look what happens to y."""

    def y(x: float) -> float:
        return float(np.exp(x**2) ** 2)

    return (y(x + step) - y(x - step)) / (2 * step)


def by_hand(x: ut.Variable) -> float:
    """The chain rule, one link after the other."""
    A, B, C = Square(), Exp(), Square()
    a = A(x)
    b = B(a)
    y = C(b)
    y.grad = np.array(1.0)
    b.grad = C.backward(y.grad)
    a.grad = B.backward(b.grad)
    x.grad = A.backward(a.grad)
    return float(x.grad)


def by_following_the_notes(x: ut.Variable) -> float:
    """The same walk without knowing what was computed: from each value to its creator, from there to the input."""
    y = Square()(Exp()(Square()(x)))
    y.grad = np.array(1.0)
    value = y
    while value.creator is not None:
        function = value.creator
        function.input.grad = function.backward(value.grad)
        value = function.input
    return float(x.grad)


def by_backward(x: ut.Variable) -> float:
    """What one writes from now on."""
    y = ut.square(ut.exp(ut.square(x)))
    y.backward()
    return float(x.grad)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--x", type=float, default=0.5, help="where to take the derivative")
    parser.add_argument("--quick", action="store_true", help="this one is always quick")
    options = parser.parse_args(arguments)

    slopes = {"by differences": by_differences(options.x)}
    for way in (by_hand, by_following_the_notes, by_backward):
        # A new variable each time: gradients of leaves add up until they are cleared.
        slopes[way.__name__.replace("_", " ")] = way(ut.Variable(np.array(options.x)))
    for name, slope in slopes.items():
        print(f"{name:24} {slope:.15g}")
    return slopes


if __name__ == "__main__":
    main()

"""A narrow, bent valley, descended in two ways.

    python examples/rosenbrock.py

Rosenbrock's function y = 100 (x1 - x0^2)^2 + (1 - x0)^2 has its minimum at (1, 1), at the end of a long curved valley.
Gradient descent needs many thousands of small steps along it. Newton's method also asks how the slope changes (the
matrix of second derivatives), jumps to the bottom of the parabola that fits best, and needs a handful.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import undertow as ut


def rosenbrock(x: ut.Variable) -> ut.Variable:
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def gradient_descent(start: np.ndarray, rate: float, most: int, close: float = 1e-3) -> tuple[np.ndarray, int]:
    """Always downhill, in steps of `rate` times the slope; returns where it ended and after how many steps."""
    x = ut.Variable(start.copy())
    for step in range(most):
        if abs(x.data - 1).max() < close:
            return x.data, step
        x.clear_grad()
        rosenbrock(x).backward()
        x.data -= rate * x.grad
    return x.data, most


def hessian(y: ut.Variable, x: ut.Variable) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of y and the matrix of its second derivatives: the gradients of the gradient's elements."""
    slope = ut.grad(y, x, create_graph=True)
    return slope.data, np.stack([ut.grad(slope[i], x).data for i in range(x.size)])


def newton(start: np.ndarray, most: int, close: float = 1e-3) -> tuple[np.ndarray, int]:
    """x - H^-1 g until it is close; returns where it ended and after how many steps."""
    x = ut.Variable(start.copy())
    for step in range(most):
        if abs(x.data - 1).max() < close:
            return x.data, step
        slope, curvature = hessian(rosenbrock(x), x)
        x.data -= np.linalg.solve(curvature, slope)
    return x.data, most


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[np.ndarray, int]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="stop gradient descent after 2,000 steps")
    options = parser.parse_args(arguments)

    start = np.array([0.0, 2.0])
    results = {
        "gradient descent": gradient_descent(start, rate=0.001, most=2_000 if options.quick else 50_000),
        "Newton": newton(start, most=20),
    }
    for name, (x, steps) in results.items():
        print(f"{name:17} {steps:6} steps, at ({x[0]:.4f}, {x[1]:.4f})")
    return results


if __name__ == "__main__":
    main()

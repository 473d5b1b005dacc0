"""Derivatives of derivatives: the sine goes round in a circle, tanh grows wilder each time.

    python examples/higher_derivatives.py [--out FOLDER]

`ut.grad(..., create_graph=True)` returns gradients that remember how they were computed, so they can be
differentiated like anything else. With --out (and matplotlib) the curves are drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import undertow as ut


def derivatives(function: Callable[[ut.Variable], ut.Variable], x: np.ndarray, order: int) -> list[np.ndarray]:
    """The values of a function and of its first `order` derivatives at all points x."""
    point = ut.Variable(x)
    value = function(point)
    found = [value.data]
    for _ in range(order):
        # Each element of `value` depends on its own element of x alone, so the gradient of the sum is the
        # derivative, element by element.
        value = ut.grad(value, point, create_graph=True)
        found.append(value.data)
    return found


def draw(path: Path, x: np.ndarray, curves: dict[str, list[np.ndarray]]) -> bool:
    """The curves as a picture; False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(5 * len(curves), 4), layout="constrained")
    for axis, (name, values) in zip(axes, curves.items(), strict=True):
        for order, curve in enumerate(values):
            # The fourth derivative of the sine is the sine again: dashed, so that both show.
            axis.plot(x, curve, "--" if order == 4 else "-", label=name + "'" * order)
        axis.set_title(f"{name} and its derivatives")
        axis.grid(alpha=0.3)
        axis.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def main(arguments: Sequence[str] | None = None) -> dict[str, list[np.ndarray]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="fewer points")
    options = parser.parse_args(arguments)

    x = np.linspace(-4, 4, 41 if options.quick else 401)
    curves = {"sin": derivatives(ut.sin, x, 4), "tanh": derivatives(ut.tanh, x, 3)}

    middle = int(np.argmin(abs(x - 1)))
    print(f"at x = {x[middle]:.2f}")
    for name, values in curves.items():
        print(f"  {name:5}" + "".join(f"{curve[middle]:10.5f}" for curve in values))
    print("the second derivative of sin is -sin:", np.allclose(curves["sin"][2], -np.sin(x)))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / "derivatives.png"
        print(f"drawn: {path}" if draw(path, x, curves) else "no picture: pip install 'undertow[charts]'")
    return curves


if __name__ == "__main__":
    main()

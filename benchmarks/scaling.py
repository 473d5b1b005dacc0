"""How the cost of a training step grows with batch size, image size, depth and threads, as a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import EAGER
from benchmarks.timing import Timed, Timing
from undertow.errors import MissingPackage, UndertowError


@dataclass(frozen=True)
class Curve:
    """seconds: by contender, one per x."""

    title: str
    label: str
    x: list[float]
    seconds: dict[str, list[float]]


def fit(x: list[float], y: list[float]) -> tuple[float, float, float]:
    """The straight line through points: slope, intercept, and the share of the variance that it explains (R^2)."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = np.asarray(y) - (slope * np.asarray(x) + intercept)
    variance = float(np.var(y))
    return float(slope), float(intercept), 1.0 if variance == 0 else 1.0 - float(np.var(rest)) / variance


def measure(threads: int, rounds: int, say: Callable[[str], None]) -> list[Curve]:
    """Four curves. say: takes progress."""
    from benchmarks import layered, specs, train

    timing = Timing(rounds, budget=10.0)

    def tiny(batch: int, size: int, cores: int) -> Mapping[str, Timed]:
        return train.compare("yolov3-tiny", batch, size, cores, EAGER, timing)

    def deep(depth: int) -> Mapping[str, Timed]:
        return layered.compare(specs.plain(depth), 4, threads, timing)

    sizes = (160, 224, 320, 416, 544)
    return [
        _curve("batch size (yolov3-tiny 416)", "images", [1, 2, 4, 8], lambda n: tiny(n, 416, threads), say),
        _curve(
            "image size (yolov3-tiny, batch 4)", "thousand pixels", [s * s / 1000 for s in sizes],
            lambda n: tiny(4, round((n * 1000) ** 0.5), threads), say,
        ),
        _curve("depth (3x3, 64 channels, 52x52, batch 4)", "layers", [2, 4, 8, 16], lambda n: deep(int(n)), say),
        _curve("threads (yolov3-tiny 416, batch 4)", "threads", [1, 2], lambda n: tiny(4, 416, int(n)), say),
    ]  # fmt: skip


def _curve(
    title: str, label: str, x: list[Any], at: Callable[[Any], Mapping[str, Timed]], say: Callable[[str], None]
) -> Curve:
    seconds: dict[str, list[float]] = {}
    for value in x:
        for name, timed in at(value).items():
            seconds.setdefault(name, []).append(timed.median)
    for name, values in seconds.items():
        if len(x) < 3:  # any two points lie on a straight line
            say(
                f"{title:42} {name:20} "
                + ", ".join(f"{k}: {value * 1000:.1f} ms" for k, value in zip(x, values, strict=True))
            )
            continue
        slope, intercept, share = fit(x, values)
        say(f"{title:42} {name:20} {slope * 1000:8.2f} ms each + {intercept * 1000:7.1f} ms, R^2 {share:.4f}")
    return Curve(title, label, x, seconds)


def check(path: Path) -> None:
    """Raises UndertowError where `draw` could not write there: before minutes of measuring, not after."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise MissingPackage("matplotlib", "", "benchmarks scaling", remedy="pip install matplotlib") from None
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise UndertowError(f"{path}: its name tells no format of a chart", remedy=f"end it in .{', .'.join(known)}")
    if not path.parent.is_dir():
        raise UndertowError(f"{path}: there is no folder {str(path.parent)!r}", remedy="make it, or name another")


def draw(curves: list[Curve], path: Path) -> None:
    """The curves side by side, with straight lines where they have three points or more, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), layout="constrained")
    for axes, curve in zip(figure.subplots(2, 2).flat, curves, strict=True):
        for name, seconds in curve.seconds.items():
            (points,) = axes.plot(curve.x, np.multiply(seconds, 1000), "o", label=name)
            if len(curve.x) < 3:
                continue
            slope, intercept, _ = fit(curve.x, seconds)
            ends = np.array([0, max(curve.x)])
            axes.plot(ends, 1000 * (slope * ends + intercept), color=points.get_color(), linewidth=1)
        axes.set(title=curve.title, xlabel=curve.label, ylabel="ms per step")
        axes.set_ylim(bottom=0)
        if len(curve.x) < 3:
            axes.set_xticks(curve.x)
        axes.legend()
    figure.savefig(path, dpi=110)

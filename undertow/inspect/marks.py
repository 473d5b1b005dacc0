"""What is wrong with a trace, and where it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undertow.inspect.trace import LayerTrace

# Gradients this much smaller or larger than the one that the loss sends (norms) vanish or explode.
VANISHING = 1e-4
EXPLODING = 1e4
# Values this much larger (root of the mean square) than the batch, or than 1, explode on the way forward.
GROWING = 1e4
# A layer with at least this share of channels that are 0 for the whole batch is dead.
DEAD = 0.5
# What gives 0 for more than the input 0: only there does a 0 throughout mean that units are off. A product with a state
# that begins as 0, a loss of 0 or what hands on the zeros of a dead layer is none of these.
_CAN_DIE = frozenset((
    "relu", "relu6", "hard_sigmoid", "hardsigmoid", "hard_swish", "hardswish", "sigmoid", "logistic", "swish", "silu",
    "mish", "gelu", "gelu_tanh", "softplus", "prelu", "darknet_activation", "maximum", "minimum", "clip", "where",
))  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """kind: vanishing, exploding, dead or non-finite. layer: where it begins. reach: how many layers have it."""

    kind: str
    layer: int
    name: str
    text: str
    reach: int = 1


def marks_of(layers: Sequence[LayerTrace], input_rms: float) -> list[Mark]:
    """All marks of a trace; each kind where it begins, on the way forward or back."""
    found = [*_non_finite(layers), *_forward(layers, input_rms), *_dead(layers), *_backward(layers)]
    return sorted(found, key=lambda mark: (mark.kind != "non-finite", mark.layer))


def _non_finite(layers: Sequence[LayerTrace]) -> Iterator[Mark]:
    for layer in layers:
        for name, parameter in layer.parameters.items():
            if (own := parameter.bad - parameter.bad_gradient) > 0:
                yield _mark("non-finite", layer, f"{own:.0f} values of {name} are not finite")
    bad = [layer for layer in layers if layer.output.bad > 0]
    if bad:
        yield _mark("non-finite", bad[0], f"{bad[0].output.bad:.0f} values of its output are not finite", len(bad))
    back = [(layer, told) for layer in reversed(layers) if (told := _bad_gradient(layer))]
    if back:
        yield _mark("non-finite", *back[0], len(back))


def _bad_gradient(layer: LayerTrace) -> str:
    """What is not finite among the gradients of a layer; "" for nothing."""
    if layer.gradient.bad > 0:
        return f"{layer.gradient.bad:.0f} values of its output's gradient are not finite"
    named = ((name, p.bad_gradient) for name, p in layer.parameters.items() if p.bad_gradient > 0)
    return next((f"{count:.0f} values of the gradient of {name} are not finite" for name, count in named), "")


def _forward(layers: Sequence[LayerTrace], input_rms: float) -> Iterator[Mark]:
    usual = max(input_rms, 1.0) if math.isfinite(input_rms) else 1.0
    large = [layer for layer in layers if layer.output.rms > GROWING * usual]
    if large:
        text = f"its values are {large[0].output.rms / usual:.1e} times those of the batch"
        yield _mark("exploding", large[0], text, len(large))


def _dead(layers: Sequence[LayerTrace]) -> Iterator[Mark]:
    for layer in layers:
        can_die = layer.activation.lower() in _CAN_DIE and layer.computes and layer.fed and math.prod(layer.shape) > 1
        if can_die and layer.output.dead >= DEAD:
            yield _mark("dead", layer, f"{100 * layer.output.dead:.0f}% of its channels are 0 for the whole batch")


def _backward(layers: Sequence[LayerTrace]) -> Iterator[Mark]:
    norms = [(layer, layer.gradient.norm) for layer in reversed(layers) if layer.gradient.norm > 0]
    if not norms:
        return
    first = norms[0][1]
    tests: tuple[tuple[str, Callable[[float], bool]], ...] = (
        ("vanishing", lambda norm: norm < VANISHING * first),
        ("exploding", lambda norm: norm > EXPLODING * first),
    )
    for kind, strange in tests:
        hit = [(layer, norm) for layer, norm in norms if strange(norm)]
        if hit:
            layer, norm = hit[0]
            yield _mark(kind, layer, f"its gradient's norm is {norm / first:.1e} of what the loss sends", len(hit))
    gone = [layer for layer in reversed(layers) if layer.gradient.norm == 0 and layer.computes]
    below = [layer for layer in gone if layer.index < norms[0][0].index]
    if below:
        yield _mark("vanishing", below[0], "its gradient is exactly 0", len(below))


def _mark(kind: str, layer: LayerTrace, text: str, reach: int = 1) -> Mark:
    return Mark(kind, layer.index, layer.name, text, reach)

"""The formulas of one call: where the registry lists variants, only the one that runs."""

from __future__ import annotations

from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.norm_batch import BatchNorm
from undertow.inspect.record import Call
from undertow.kernels.reference.activations import ACTIVATIONS
from undertow.kernels.reference.batchnorm import Scaling

# gx of each activation, at x.
SLOPES = {
    "logistic": "y (1 - y) gy",
    "loggy": "(1 - y^2) / 2 gy",
    "relu": "gy where x > 0, else 0",
    "elu": "gy where x >= 0, else (y + 1) gy",
    "selu": "1.0507 gy where x >= 0, else (y + 1.0507 * 1.6732) gy",
    "relie": "gy where x > 0, else .01 gy",
    "ramp": "1.1 gy where x > 0, else .1 gy",
    "linear": "gy",
    "tanh": "(1 - y^2) gy",
    "plse": ".125 gy where -4 <= x <= 4, else .01 gy",
    "leaky": "gy where x > 0, else .1 gy",
    "stair": "0 where floor(x) is even, else gy",
    "hardtan": "gy where -1 < x < 1, else 0",
    "lhtan": "gy where 0 < x < 1, else .001 gy",
}


def variants(name: str) -> list[tuple[str, str, str]]:
    """Of an operation that is one of many by a name: each name with its formula forward and back."""
    if name != "darknet_activation":
        return []
    return [(one, f"y = {ACTIVATIONS[one].formula}", f"gx = {slope}") for one, slope in SLOPES.items()]


def name_of(call: Call) -> str:
    """The operation's name; of Darknet's activations with the one it is."""
    function = call.function
    return f"{call.name} {function.name}" if isinstance(function, DarknetActivation) else call.name


# Settings by which an operation takes the gradient of the original program in place of the derivative.
_ORIGINAL = (
    ("straight_through", True), ("ignore_eps", True), ("true_gate", False), ("approximate", True),
    ("temperature_in_gradient", False), ("wrong_sign", True), ("identity", True), ("legacy", True), ("divide", True),
)  # fmt: skip


def is_derivative(call: Call) -> bool:
    """Whether the way back is meant to be the derivative of the way forward: False for an original's own formulas."""
    function = call.function
    if isinstance(function, BatchNorm):
        return function.rule.backward is None
    if isinstance(function, DarknetActivation):
        return function.rule == "true"
    return not any(getattr(function, name, None) is value for name, value in _ORIGINAL)


def forward_of(call: Call) -> str:
    """The forward formula; "" for an operation of the user's."""
    function, entry = call.function, call.entry
    if isinstance(function, DarknetActivation) and function.name in ACTIVATIONS:
        return f"y = {ACTIVATIONS[function.name].formula}"
    if isinstance(function, BatchNorm):
        where = "given mean and variance" if function.given else "mean and variance of the batch"
        return f"y = gamma (x - mean) / s + beta per channel, {where}; {_deviation(function.rule.forward)}"
    return "" if entry is None else entry.forward


def backward_of(call: Call) -> str:
    """The backward formula; "" for an operation without a gradient or of the user's."""
    function, entry = call.function, call.entry
    if isinstance(function, DarknetActivation) and function.name in SLOPES:
        text = f"gx = {SLOPES[function.name]}"
        return text if function.rule == "true" else f"{text}; with the slope told from y, as Darknet does"
    if isinstance(function, BatchNorm):
        return _batch_norm(function)
    if straight_through(call):
        over = ", both over T" if getattr(function, "temperature_in_gradient", False) else ""
        return f"{_STRAIGHT[call.name]}{over}"
    return "" if entry is None else entry.backward


# What losses of Darknet's send back in dialects that pass on unchanged what arrives at their outputs.
_STRAIGHT = {
    "yolo_loss": "gx = -gloss delta + gy, delta = weight (target - y)",
    "region_loss": "gx = -gloss delta s + gy, delta = weight (target - y), "
    "s = y (1 - y) for x, y, objectness (and masks), else 1",
    "detection_loss": "gx = -gloss delta + gy, delta = weight (target - y)",
    "darknet_softmax": "gx = -gloss delta + gp, delta = truth - p",
    "darknet_logistic": "gx = -gloss delta + gp, delta = truth - p",
}


def straight_through(call: Call) -> bool:
    """Whether a loss of Darknet's passes on unchanged what arrives at its outputs, as the C program does."""
    return call.name in _STRAIGHT and bool(getattr(call.function, "straight_through", False))


def _batch_norm(function: BatchNorm) -> str:
    other = function.rule.backward
    sums = f"ggamma = sum(gy (x - mean)) / s{' of the way forward' if other is not None else ''}, gbeta = sum(gy)"
    scaling = other or function.rule.forward
    if function.given and other is None:
        return f"gx = gamma/s gy; {sums}"
    count = "n" if scaling.divisor == "N" else "(n - 1)"
    below = f"{count} s^2" if scaling.placement == "inside" else f"{count} s q"
    note = f", with s = {_root(scaling)[4:]} on the way back" if other is not None else ""
    return f"gx = gamma/s (gy - mean(gy) - (x - mean) sum(gy (x - mean)) / ({below})){note}; {sums}"


def _deviation(scaling: Scaling) -> str:
    divided = "" if scaling.divisor == "N" else ", the variance divided by n - 1"
    return f"{_root(scaling)}{divided}"


def _root(scaling: Scaling) -> str:
    epsilon = f"{scaling.epsilon:g}"
    return (
        f"s = sqrt(variance + {epsilon})" if scaling.placement == "inside" else f"s = q + {epsilon}, q = sqrt(variance)"
    )

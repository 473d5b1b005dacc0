"""Traces: what one real batch does to a network on its way forward and back, in numbers for each layer.

with ut.trace() as found:
    loss = step(x)
    loss.backward()
for layer in found.layers: layer.name, layer.output.mean, layer.gradient.norm
found.marks                                 # vanishing, exploding, dead, non-finite, and where it begins
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from undertow.inspect.marks import Mark, marks_of
from undertow.inspect.record import Array, Shape
from undertow.inspect.statistics import NOTHING, Statistics, statistics_of

# So many values of each array are kept, evenly spaced, so that traces can be compared.
SAMPLES = 4096


@dataclass(frozen=True)
class ParameterTrace:
    """Norms of a parameter and its gradient. update: norm of the first step, rate * gradient, over that of the weights.

    nan where there is no gradient, or no weights to compare with. bad: values of both that are not finite, which the
    norms leave out; bad_gradient: those of the gradient. size: how many values it has, 0 where that is not known.
    """

    norm: float
    gradient: float
    update: float
    bad: float = 0.0
    bad_gradient: float = 0.0
    size: int = 0


@dataclass
class LayerTrace:
    """One layer. output, gradient: of its output and of the loss with respect to it (NOTHING where there is none).

    activation: what made the output, where that can saturate. computes: whether it makes values of its own (data and
    layers that only hand on do not). fed: whether it was given anything but zeros, as far as that is known. sent: for
    shortcuts and routes, the norm of the gradient they send to each earlier layer. samples: by "output", "gradient"
    and "gradient of NAME", values evenly spaced over the arrays.
    """

    index: int
    name: str
    type: str
    shape: Shape = ()
    activation: str = ""
    computes: bool = True
    fed: bool = True
    output: Statistics = NOTHING
    gradient: Statistics = NOTHING
    parameters: dict[str, ParameterTrace] = field(default_factory=dict)
    sent: dict[int, float] = field(default_factory=dict)
    samples: dict[str, Array] = field(default_factory=dict)

    def see_output(self, array: Array) -> None:
        """Take the statistics of the output."""
        self.shape = array.shape
        self.output = statistics_of(array, self.activation)
        self.samples["output"] = sampled(array)

    def see_gradient(self, array: Array | None) -> None:
        """Take those of the gradient with respect to the output."""
        if array is not None:
            self.gradient = statistics_of(array)
            self.samples["gradient"] = sampled(array)

    def see_parameter(self, name: str, data: Array, gradient: Array | None, rate: float) -> None:
        """Take those of a parameter and its gradient."""
        weights = statistics_of(data)
        if gradient is None:
            self.parameters[name] = ParameterTrace(weights.norm, math.nan, math.nan, weights.bad, size=data.size)
            return
        slope = statistics_of(gradient)
        update = rate * slope.norm / weights.norm if weights.norm > 0 else math.nan
        bad = weights.bad + slope.bad
        self.parameters[name] = ParameterTrace(weights.norm, slope.norm, update, bad, slope.bad, data.size)
        self.samples[f"gradient of {name}"] = sampled(gradient)

    @property
    def update(self) -> float:
        """The largest update-to-weight ratio of its parameters; nan without any."""
        return max((p.update for p in self.parameters.values() if not math.isnan(p.update)), default=math.nan)


@dataclass(repr=False)
class Trace:
    """source: what ran. how: dialect or the like, in a word. about: the batch. loss: the scalar differentiated.

    rate: the learning rate behind the update ratios; rule: what they are those of, where that is no plain step against
    the gradient, as "Adam with rate 0.001". layers: in forward order.
    """

    source: str
    how: str
    about: str
    rate: float
    loss: float = math.nan
    input_rms: float = 1.0
    layers: list[LayerTrace] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    input_sample: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    rule: str = ""

    def __str__(self) -> str:
        """The table that `undertow trace` prints."""
        from undertow.inspect.report import trace_lines

        return "\n".join(trace_lines(self))

    def __repr__(self) -> str:
        return f"<Trace of {self.source}, {len(self.layers)} layers>"

    @property
    def marks(self) -> list[Mark]:
        """What is wrong, and where it begins; see `undertow.inspect.marks`."""
        return marks_of(self.layers, self.input_rms)

    def see_input(self, arrays: Mapping[str, Array]) -> None:
        """Remember the batch: its size in numbers, and a sample of it for comparisons."""
        floats = [array for array in arrays.values() if array.dtype.kind == "f" and array.size]
        if floats:
            largest = max(floats, key=lambda array: array.size)
            self.input_rms = statistics_of(largest).rms
            self.input_sample = sampled(largest)


def sampled(array: Array) -> Array:
    """At most SAMPLES values, evenly spaced over the flattened array, float32 (float64 stays)."""
    flat = array.reshape(-1)
    step = max(1, -(-flat.size // SAMPLES))
    return np.array(flat[::step], np.float64 if array.dtype == np.float64 else np.float32)

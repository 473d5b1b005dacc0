"""How much memory a training takes, told from the shapes alone.

A plan (see `undertow.plans`) gives every array a place from its first use to its last. `_planned` follows these
lifetimes through forward and backward, and takes the moment at which most is in use. What plans do not do themselves,
the losses and dropout, keeps arrays of its own; nets with recurrent layers run without a plan and keep everything.
The factors below were measured as peaks of processes; docs/check-and-convert.md says how well they fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import CrnnOptions

_FLOAT = 4
MIB = 2**20
# Python, NumPy, Numba and the compiled kernels.
PROCESS = 190 * MIB
# Their passes hand arrays on from one to the next in Python, which a plan does not see.
RECURRENT = frozenset({"rnn", "crnn", "gru", "lstm", "conv_lstm", "history"})

# Places of an arena fit into each other but for this; what each replay takes besides.
_GAPS, _PER_STEP = 1.04, 10 * MIB
# Layers whose backward reads what they were given.
_READS_INPUT = frozenset(
    (
        "convolutional", "connected", "deconvolutional", "local", "maxpool", "activation", "batchnorm", "normalization",
        "l2norm", "sam", "scale_channels", "crop", "region", "yolo", "Gaussian_yolo", "detection", "softmax",
        "logistic", "cost", "iseg",
    )
)  # fmt: skip
# Layers with other layers as inputs besides the one before, or (route) instead of it.
_JOINS = frozenset({"shortcut", "sam", "scale_channels"})
_WEIGHTED = frozenset({"convolutional", "connected", "deconvolutional"})
# Arrays of the size of its output that a layer makes outside the plan.
_OUTSIDE = {
    "yolo": 8, "region": 8, "detection": 8, "dropout": 5, "softmax": 4, "cost": 4, "logistic": 4, "crop": 2,
    "scale_channels": 2, "sam": 2,
}  # fmt: skip
# Activations that are computed together with what is before them; others are operations of their own.
_FUSED = frozenset({"linear", "leaky", "relu"})
_OF_ACTIVATION = 2.5
# Without a plan: arrays that a layer keeps of the size of its state, and of its parameters beside values and
# accumulators; without and with batch normalisation.
_OF_STATE = {
    "rnn": (17, 25), "crnn": (17.5, 27.5), "gru": (24, 45), "lstm": (36, 56), "conv_lstm": (38.5, 51.5),
    "history": (3, 3),
}  # fmt: skip
_OF_PARAMETERS = {"rnn": (1.2, 2.9), "gru": (2.6, 3.5), "lstm": (1.2, 3.2)}
_OF_OUTPUT = 5


def training_bytes(layers: Sequence[LayerShape], inputs: int, samples: int) -> int:
    """Bytes of one training pass of so many samples with `inputs` values each, the process itself aside."""
    if any(layer.type in RECURRENT for layer in layers):
        return _FLOAT * _unplanned(layers, inputs, samples)
    parameters = sum(layer.stored for layer in layers)
    # The gradients of connected and local weights are made as a whole before they are added, the latter as copies.
    largest = max((layer.nweights for layer in layers if layer.type == "connected"), default=0)
    largest += 2 * sum(layer.nweights for layer in layers if layer.type == "local")
    outside = sum(_outside(layer) for layer in layers)
    activated = [s.outputs for s in layers if s.type == "shortcut" and _activation(s) != "linear"]
    per_sample = inputs + outside + 5 * max(activated, default=0) + _GAPS * _planned(layers, inputs)
    return int(_FLOAT * (2 * parameters + largest + samples * per_sample)) + _PER_STEP


def _outside(layer: LayerShape) -> float:
    """Values of one sample that a layer keeps in arrays of its own."""
    alone = 0 if _activation(layer) in _FUSED else _OF_ACTIVATION
    windows = 2 * layer.nweights // layer.out_shape[0] if layer.type == "local" else 0  # forward and back
    return (_OUTSIDE.get(layer.type, 0) + alone) * layer.outputs + windows


def _unplanned(layers: Sequence[LayerShape], inputs: int, samples: int) -> int:
    """Values of a pass that keeps all that it computes: parameters with accumulators and gradients too."""
    parameters, kept = 0.0, 0.0
    for layer in layers:
        normalized = _is_normalized(layer)
        parameters += (2 + _OF_PARAMETERS.get(layer.type, (1, 1))[normalized]) * layer.stored
        if layer.type in _OF_STATE:
            kept += _OF_STATE[layer.type][normalized] * _state(layer)
        else:
            kept += (_OF_OUTPUT if layer.out_shape[1] > 1 else 1) * layer.outputs
    return int(parameters + samples * (inputs + kept))


def _state(layer: LayerShape) -> int:
    """Values of the state after one step, of one sequence."""
    if isinstance(layer.options, CrnnOptions):
        _, height, width = layer.out_shape
        return (layer.options.hidden or layer.options.hidden_filters) * height * width
    return layer.outputs


def _planned(layers: Sequence[LayerShape], inputs: int) -> int:
    """The most values for one sample that are in use at a time."""
    end = 2 * len(layers)
    changes = [0] * (end + 2)
    changes[0] += inputs
    for size, first, last in _arrays(layers):
        changes[first] += size
        changes[last + 1] -= size
    most = now = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _arrays(layers: Sequence[LayerShape]) -> Iterator[tuple[int, int, int]]:
    """(values, first, last) of each array. Layer i computes at moment i, and back at moment 2n - 1 - i."""
    back = [2 * len(layers) - 1 - i for i in range(len(layers))]
    readers = _readers(layers)
    for i, layer in enumerate(layers):
        if layer.type == "route":  # made in place
            continue
        size, activation, normalized = layer.outputs, _activation(layer), _is_normalized(layer)
        last = max([i, *readers[i], *(back[c] for c in readers[i] if layers[c].type in _READS_INPUT)])
        if layer.type in _WEIGHTED and normalized and activation not in {"linear", "leaky"}:
            yield size, i, back[i]  # what was normalised, beside the output
        elif layer.type in _WEIGHTED and (normalized or activation != "linear"):
            last = max(last, back[i])  # the way back begins with the output
        if layer.type == "maxpool" or (layer.type == "shortcut" and activation != "linear"):
            last = max(last, back[i])
        if layer.type == "maxpool":
            yield size, back[i], back[i]
        if layer.type in {"dropout", "scale_channels", "sam"}:
            yield size * (1 if layer.type == "dropout" else 2), i, back[i]  # copies of what comes from outside
        yield size, i, last
        yield size, min((back[c] for c in readers[i]), default=back[i]), back[i]  # the gradient


def _readers(layers: Sequence[LayerShape]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in layers]
    for i, layer in enumerate(layers):
        before = [i - 1] if i and layer.type != "route" else []
        others = layer.sources if layer.type in _JOINS or layer.type == "route" else ()
        for source in {*before, *others}:
            readers[source].append(i)
    return readers


def _activation(layer: LayerShape) -> str:
    return str(getattr(layer.options, "activation", "linear"))


def _is_normalized(layer: LayerShape) -> bool:
    return bool(getattr(layer.options, "batch_normalize", False))

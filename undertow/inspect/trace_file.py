"""Traces in files: one .npz without pickled objects, everything in it checked when it is read."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from undertow.errors import FormatError
from undertow.files import atomic_write
from undertow.inspect.batches import read_arrays
from undertow.inspect.record import Array
from undertow.inspect.statistics import FIELDS, Statistics
from undertow.inspect.trace import SAMPLES, LayerTrace, ParameterTrace, Trace

PathLike = str | os.PathLike[str]

FORMAT = "undertow trace 1"
_AXES = 32
_LONGEST_NAME = 1000
_KINDS = {"text": "U", "number": "fiu", "whole": "iu", "truth": "b"}


def save_trace(trace: Trace, path: PathLike) -> None:
    """Write a trace; beside `path`, then renamed."""
    layers = trace.layers
    parameters = [(layer.index, name, p) for layer in layers for name, p in layer.parameters.items()]
    sent = [(layer.index, source, norm) for layer in layers for source, norm in layer.sent.items()]
    shapes = np.full((len(layers), _AXES), -1, np.int64)
    for row, layer in zip(shapes, layers, strict=True):
        row[: len(layer.shape)] = layer.shape
    arrays: dict[str, Array] = {
        "format": np.array(FORMAT),
        "source": np.array(trace.source),
        "how": np.array(trace.how),
        "about": np.array(trace.about),
        "rule": np.array(trace.rule),
        "notes": np.array(trace.notes, dtype=np.str_),
        "numbers": np.array([trace.rate, trace.loss, trace.input_rms]),
        "input": trace.input_sample,
        "names": np.array([layer.name for layer in layers], dtype=np.str_),
        "types": np.array([layer.type for layer in layers], dtype=np.str_),
        "activations": np.array([layer.activation for layer in layers], dtype=np.str_),
        "computes": np.array([layer.computes for layer in layers], dtype=np.bool_),
        "fed": np.array([layer.fed for layer in layers], dtype=np.bool_),
        "shapes": shapes,
        "output": np.array([layer.output.as_row() for layer in layers]).reshape(-1, len(FIELDS)),
        "gradient": np.array([layer.gradient.as_row() for layer in layers]).reshape(-1, len(FIELDS)),
        "parameter_layers": np.array([index for index, _, _ in parameters], dtype=np.int64),
        "parameter_names": np.array([name for _, name, _ in parameters], dtype=np.str_),
        "parameters": np.array([(p.norm, p.gradient, p.update, p.bad) for _, _, p in parameters]).reshape(-1, 4),
        "bad_gradients": np.array([p.bad_gradient for _, _, p in parameters], np.float64),
        "parameter_sizes": np.array([p.size for _, _, p in parameters], np.int64),
        "sent": np.array(sent, np.float64).reshape(-1, 3),
    }
    for layer in layers:
        for kind, values in layer.samples.items():
            arrays[f"sample/{layer.index}/{kind}"] = values
    with atomic_write(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def load_trace(path: PathLike) -> Trace:
    """Read a trace. Raises FormatError for a file that is none, is damaged, or does not fit together."""
    remedy = "write one with undertow trace NET --out FILE.npz"
    try:
        found = _Reader(os.fspath(path), read_arrays(path))
    except FormatError as problem:
        raise FormatError(f"this is no trace: {problem.reason}", file=path, remedy=remedy) from problem
    if "format" not in found.arrays or found.text("format") != FORMAT:
        raise FormatError("this is no trace", file=path, remedy=remedy)
    names = found.array("names", "text", 1)
    count = len(names)
    numbers = found.array("numbers", "number", 1, 3)
    rate, loss, input_rms = numbers.tolist()
    trace = Trace(found.text("source"), found.text("how"), found.text("about"), rate, loss, input_rms)
    trace.rule = found.text("rule") if "rule" in found.arrays else ""  # those of earlier versions do not have it
    trace.notes = [str(note) for note in found.array("notes", "text", 1)]
    trace.input_sample = found.sample("input")
    types, activations = (found.array(name, "text", 1, count) for name in ("types", "activations"))
    computes, shapes = found.array("computes", "truth", 1, count), found.array("shapes", "whole", 2, count)
    fed = found.array("fed", "truth", 1, count) if "fed" in found.arrays else np.ones(count, np.bool_)
    output, gradient = (found.array(name, "number", 2, count, len(FIELDS)) for name in ("output", "gradient"))
    for i in range(count):
        shape = tuple(int(n) for n in shapes[i] if n >= 0)
        layer = LayerTrace(i, str(names[i]), str(types[i]), shape, str(activations[i]), bool(computes[i]), bool(fed[i]))
        layer.output, layer.gradient = Statistics(*output[i].tolist()), Statistics(*gradient[i].tolist())
        trace.layers.append(layer)
    _take_parameters(found, trace)
    _take_samples(found, trace)
    return trace


class _Reader:
    """The arrays of a file, each checked for its kind and shape when it is asked for."""

    def __init__(self, file: str, arrays: dict[str, Array]) -> None:
        self.file, self.arrays = file, arrays

    def array(self, name: str, kind: str, ndim: int, *lengths: int) -> Any:
        """The array of that name; lengths: of its first axes."""
        if name not in self.arrays:
            raise self.wrong(f"the array '{name}' is missing")
        array = self.arrays[name]
        fits = array.ndim == ndim and array.shape[: len(lengths)] == lengths
        if not fits or array.dtype.kind not in _KINDS[kind]:
            raise self.wrong(f"the array '{name}' is {array.dtype} {array.shape}, not {kind} {lengths or ndim}")
        if array.dtype.kind == "U" and array.dtype.itemsize > 4 * _LONGEST_NAME:
            raise self.wrong(f"the array '{name}' has texts of more than {_LONGEST_NAME} letters")
        return array

    def text(self, name: str) -> str:
        return str(self.array(name, "text", 0))

    def sample(self, name: str) -> Array:
        array: Array = self.array(name, "number", 1)
        if array.size > SAMPLES:
            raise self.wrong(f"the array '{name}' has {array.size} values, at most {SAMPLES} are kept")
        return array

    def wrong(self, reason: str) -> FormatError:
        return FormatError(
            f"a damaged trace: {reason}", file=self.file, remedy="write it again: undertow trace ... --out"
        )


def _take_parameters(found: _Reader, trace: Trace) -> None:
    owners = found.array("parameter_layers", "whole", 1)
    names = found.array("parameter_names", "text", 1, len(owners))
    rows = found.array("parameters", "number", 2, len(owners), 4)
    # Traces of earlier versions do not have it.
    known = "bad_gradients" in found.arrays
    bad = found.array("bad_gradients", "number", 1, len(owners)) if known else np.zeros(len(owners))
    known = "parameter_sizes" in found.arrays
    sizes = found.array("parameter_sizes", "whole", 1, len(owners)) if known else np.zeros(len(owners), np.int64)
    for owner, name, row, count, size in zip(owners, names, rows, bad, sizes, strict=True):
        norm, gradient, update, wrong = row.tolist()
        seen = ParameterTrace(norm, gradient, update, wrong, float(count), int(size))
        trace.layers[_index(found, owner, trace)].parameters[str(name)] = seen
    sent = found.array("sent", "number", 2)
    if sent.shape[1] != 3:
        raise found.wrong(f"the array 'sent' has {sent.shape[1]} columns, not 3")
    for owner, source, norm in sent.tolist():
        trace.layers[_index(found, owner, trace)].sent[_index(found, source, trace)] = norm


def _index(found: _Reader, value: float, trace: Trace) -> int:
    if not (0 <= value < len(trace.layers) and value == int(value)):
        raise found.wrong(f"it speaks of layer {value:g}, there are {len(trace.layers)}")
    return int(value)


def _take_samples(found: _Reader, trace: Trace) -> None:
    for key in found.arrays:
        if key.startswith("sample/"):
            _, number, kind = (*key.split("/", 2), "", "")[:3]
            if not number.isdigit() or not kind:
                raise found.wrong(f"the array '{key}' belongs to no layer")
            trace.layers[_index(found, int(number), trace)].samples[kind] = found.sample(key)

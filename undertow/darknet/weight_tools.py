"""The C program's small tools on weights files (examples/darknet.c): from files to arrays and back, no network is run.

`Stored` is a weights file with its cfg; each function gives a new one. Arithmetic is the original's float32.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.darknet.files.cfg import Config
from undertow.darknet.files.shapes import LayerShape, NetworkShapes, infer_shapes
from undertow.darknet.files.weights import read_weights, write_weights
from undertow.errors import FormatError, UndertowError, UndertowWarning

Array = np.ndarray[Any, Any]
Arrays = dict[tuple[int, str], Array]

_CONVOLUTIONS = ("convolutional", "deconvolutional")
# What is added to a variance before its root is taken (denormalize_convolutional_layer, denormalize_connected_layer).
_EPSILON = {"convolutional": 1e-5, "deconvolutional": 1e-5, "connected": 1e-6, "gru": 1e-6}
_COUNTED = ("convolutional", "connected", "rnn", "gru", "lstm")


@dataclass(frozen=True)
class Stored:
    """config, shapes: of the network. arrays: by layer and name, as `LayerShape.parameters`. seen: images."""

    config: Config
    shapes: NetworkShapes
    arrays: Arrays
    seen: int

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the weights. Raises FormatError where that cannot be done."""
        write_weights(path, self.shapes, lambda layer, name: self.arrays[layer, name], seen=self.seen)


def read_stored(config: Config, weights: str | os.PathLike[str], strict: bool = False) -> Stored:
    """Read a weights file that holds all layers of the cfg. Raises FormatError for one that does not."""
    shapes = infer_shapes(config)
    found = read_weights(weights, shapes, strict=strict)
    missing = [spec for layer in shapes for spec in layer.parameters if (spec.layer, spec.name) not in found.arrays]
    if missing:
        raise FormatError(
            f"the file holds nothing for '{missing[0].name}'",
            file=weights,
            layer=missing[0].layer,
            remedy="give a weights file of the whole network, and a cfg without dontload and numload",
        )
    return Stored(config, shapes, found.arrays, found.seen)


def operations(shapes: NetworkShapes) -> int:
    """Floating-point operations of one sample (numops): twice the products of weights in the layers it counts."""
    total = 0
    for layer in shapes:
        if layer.type in _COUNTED:
            places = layer.out_shape[1] * layer.out_shape[2] if layer.type == "convolutional" else 1
            total += 2 * layer.nweights * places
    return total


def average(files: Sequence[Stored]) -> Stored:
    """The mean of all arrays; the images seen are those of the first file.

    The original leaves out every layer but convolutional and connected ones, and the statistics of the latter.
    """
    arrays = {}
    for key, first in files[0].arrays.items():
        total = first.astype(np.float32)
        for other in files[1:]:
            total = total + other.arrays[key]
        arrays[key] = total * np.float32(1 / len(files))
    return replace(files[0], arrays=arrays)


def denormalize(stored: Stored) -> Stored:
    """Batch normalisation put into weights and biases, for a cfg without batch_normalize, which is `config`."""
    folded = reset(stored, with_deconvolutions=True)
    config = stored.config
    for layer in _normalized(stored.shapes, (*_EPSILON,)):
        config = config.with_values(layer.index + 1, {"batch_normalize": 0})
    shapes = infer_shapes(config)
    kept = {(spec.layer, spec.name) for layer in shapes for spec in layer.parameters}
    arrays = {key: array for key, array in folded.arrays.items() if key in kept}
    return Stored(config, shapes, arrays, stored.seen)


def reset(stored: Stored, with_deconvolutions: bool = False) -> Stored:
    """Batch normalisation put into weights and biases; what is left of it does nothing: scales 1, mean 0, variance 1.

    Of convolutional, connected and gru layers; the original's `reset` leaves deconvolutional ones as they are.
    """
    types = tuple(name for name in _EPSILON if with_deconvolutions or name != "deconvolutional")
    arrays = {key: array.copy() for key, array in stored.arrays.items()}
    for layer in _normalized(stored.shapes, types):
        for prefix in _prefixes(layer):
            _fold(arrays, layer, prefix)
    return replace(stored, arrays=arrays)


def normalize(stored: Stored) -> Stored:
    """Batch normalisation that does nothing yet, for a cfg with batch_normalize=1, which is `config`.

    In convolutional, connected and gru layers without one. The variance is 1; the original writes 0, after which
    every output is a million times too large.
    """
    config = stored.config
    for layer in stored.shapes:
        if layer.type in ("convolutional", "connected", "gru") and not getattr(layer.options, "batch_normalize", False):
            config = config.with_values(layer.index + 1, {"batch_normalize": 1})
    shapes = infer_shapes(config)
    fresh = {"scales": 1.0, "rolling_mean": 0.0, "rolling_variance": 1.0}
    arrays = {
        (spec.layer, spec.name): stored.arrays.get((spec.layer, spec.name), np.full(spec.shape, fresh.get(spec.kind)))
        for layer in shapes
        for spec in layer.parameters
    }
    return Stored(config, shapes, arrays, stored.seen)


def rescale(stored: Stored) -> Stored:
    """For pictures of 0..1 where there were pictures of -1..1: the first convolution takes 2 x - 1 (rescale_net).

    As in the original, batch normalisation there is not taken into account: an UndertowWarning says so.
    """
    layer = _first_picture_layer(stored)
    if getattr(layer.options, "batch_normalize", False):
        message = (
            f"layer {layer.index} is normalised after the sum, which rescale ignores. To mend it: denormalize first"
        )
        warnings.warn(UndertowWarning(message), stacklevel=2)
    weights, biases = (stored.arrays[layer.index, name] for name in ("weights", "biases"))
    doubled = weights * np.float32(2)
    # Added one after another, as the original does; NumPy's sum rounds otherwise.
    sums = np.cumsum(doubled.reshape(len(doubled), -1), axis=1, dtype=np.float32)[:, -1]
    changed = {(layer.index, "weights"): doubled, (layer.index, "biases"): biases + sums * np.float32(-0.5)}
    return replace(stored, arrays=stored.arrays | changed)


def swap_red_and_blue(stored: Stored) -> Stored:
    """For pictures with the other order of colours: red and blue exchanged in the first convolution (rgbgr_net)."""
    layer = _first_picture_layer(stored)
    weights = np.ascontiguousarray(stored.arrays[layer.index, "weights"][:, ::-1])
    return replace(stored, arrays=stored.arrays | {(layer.index, "weights"): weights})


def detector_from_classifier(config: Config, weights: str | os.PathLike[str], seed: int = 0) -> Stored:
    """A detector whose three boxes begin with what a classifier knows (oneoff); its images seen are 0.

    The layer before the last is a convolution with 3 (5 + classes) filters; in `weights`, made by a classifier, it has
    one filter for each class. Each box gets these; the five filters before them are small (a tenth of fresh weights,
    biases 0). The original has the one number 11,921 instead of `classes`. Raises FormatError for another cfg.
    """
    shapes = infer_shapes(config)
    last = shapes[-2] if len(shapes) > 1 else None
    if last is None or last.type != "convolutional" or last.out_shape[0] % 3 or last.out_shape[0] // 3 <= 5:
        raise FormatError(
            "oneoff wants a [convolutional] with 3 * (5 + classes) filters as the last layer but one",
            file=config.file,
            remedy="give the cfg of a detector with one head of three boxes, such as yolo9000.cfg",
        )
    if getattr(last.options, "batch_normalize", False):
        raise FormatError(
            "the layer before the head has batch_normalize=1",
            file=config.file,
            line=last.line,
            remedy="oneoff is for detectors whose last [convolutional] has biases only, as all of Darknet's have",
        )
    filters = last.out_shape[0] // 3
    narrow = config.with_values(last.index + 1, {"filters": filters - 5})
    narrow = Config(narrow.file, narrow.sections[:-1], narrow.strict, narrow.original)
    given = read_stored(narrow, weights).arrays
    own = given[last.index, "weights"]
    fan = own[0].size
    noise = np.random.default_rng(seed).standard_normal((5, *own.shape[1:])) * np.sqrt(2 / fan) * 0.1
    one = np.concatenate([noise.astype(np.float32), own])
    biases = np.concatenate([np.zeros(5, np.float32), given[last.index, "biases"]])
    arrays = given | {
        (last.index, "weights"): np.concatenate([one] * 3),
        (last.index, "biases"): np.concatenate([biases] * 3),
    }
    return Stored(config, shapes, arrays, 0)


def repeated(config: Config, weights: str | os.PathLike[str], layer: int) -> Stored:
    """The whole file, and once more from its beginning into the layers from `layer` on (oneoff2); 0 images seen.

    Raises UndertowError for a layer that is not there.
    """
    stored = read_stored(config, weights)
    if not 0 <= layer < len(stored.shapes):
        raise UndertowError(f"there is no layer {layer}", remedy=f"give a number from 0 to {len(stored.shapes) - 1}")
    again = read_weights(weights, stored.shapes, start=layer)
    return replace(stored, arrays=stored.arrays | again.arrays, seen=0)


@dataclass(frozen=True)
class Statistics:
    """Of one array: name; root of the mean square, which the original calls MSE; mean; variance."""

    name: str
    rms: float
    mean: float
    variance: float

    def line(self) -> str:
        """As the original prints it."""
        return f"{self.name} MSE: {self.rms:.6f}, Mean: {self.mean:.6f}, Variance: {self.variance:.6f}"


def statistics(stored: Stored) -> Iterator[tuple[LayerShape, str, list[Statistics]]]:
    """Layer, inner layer ("" for none) and its numbers: scales where there are any, biases, weights.

    The original prints connected layers and gru with batch normalisation only, and of weights the first few.
    """
    names = {"scales": "Scales", "biases": "Biases", "weights": "Weights"}
    for layer in stored.shapes:
        for prefix in dict.fromkeys(spec.name.rpartition("/")[0] for spec in layer.parameters):
            found = []
            for kind, title in names.items():
                array = stored.arrays.get((layer.index, f"{prefix}/{kind}" if prefix else kind))
                if array is not None:
                    found.append(_statistics(title, array))
            yield layer, prefix, found


def _statistics(name: str, array: Array) -> Statistics:
    values = array.astype(np.float64)
    return Statistics(name, float(np.sqrt(np.mean(values**2))), float(values.mean()), float(values.var()))


def _normalized(shapes: NetworkShapes, types: tuple[str, ...]) -> list[LayerShape]:
    return [layer for layer in shapes if layer.type in types and getattr(layer.options, "batch_normalize", False)]


def _prefixes(layer: LayerShape) -> list[str]:
    """What stands before the names of the layer's arrays; one for each inner layer."""
    return list(dict.fromkeys(spec.name.removesuffix(spec.kind) for spec in layer.parameters))


def _fold(arrays: Arrays, layer: LayerShape, prefix: str) -> None:
    def of(kind: str) -> Array:
        return arrays[layer.index, prefix + kind]

    deviation = np.sqrt(of("rolling_variance").astype(np.float64) + _EPSILON[layer.type])
    scale = (of("scales") / deviation).astype(np.float32)
    axis = 1 if layer.type == "deconvolutional" else 0
    shape = [1] * of("weights").ndim
    shape[axis] = -1
    of("weights")[...] *= scale.reshape(shape)
    of("biases")[...] -= of("rolling_mean") * scale
    of("scales")[...], of("rolling_mean")[...], of("rolling_variance")[...] = 1, 0, 1


def _first_picture_layer(stored: Stored) -> LayerShape:
    """The first convolution; FormatError unless it reads three channels."""
    first = next((layer for layer in stored.shapes if layer.type == "convolutional"), None)
    if first is None or stored.arrays[first.index, "weights"].shape[1] != 3:
        raise FormatError(
            "the first [convolutional] does not read pictures of three channels" if first else "no [convolutional]",
            file=stored.config.file,
            remedy="give the cfg of a network that reads colour pictures",
        )
    return first

"""Weights files as safetensors, with names and the header as metadata, and back byte for byte; cut, or re-headed.

Arrays are called `LAYER.TYPE.NAME`, as `004.convolutional.weights`; inner layers keep their `/`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from undertow.darknet.files.cfg import Config
from undertow.darknet.files.choice import choose_dialect
from undertow.darknet.files.shapes import NetworkShapes, infer_shapes
from undertow.darknet.files.weights import read_weights, write_weights
from undertow.darknet.files.weights_header import LONG_HEADER, SHORT_HEADER, WeightsHeader
from undertow.errors import FormatError, MissingPackage
from undertow.files import atomic_write

PathLike = str | os.PathLike[str]
Arrays = dict[tuple[int, str], np.ndarray[Any, Any]]
HeaderForm = Literal["keep", "new", "old"]
SAFETENSORS = ".safetensors"
_HEADER_KEYS = ("major", "minor", "revision", "seen", "size")


@dataclass(frozen=True)
class Held:
    """shapes: of the whole network. arrays: by layer and name. header: of the file. layers: it ends after them."""

    shapes: NetworkShapes
    arrays: Arrays
    header: WeightsHeader
    layers: int

    def cut(self, layers: int) -> Held:
        """Only the first `layers` layers, with 0 images seen: a training that begins with them is at its beginning.

        Raises FormatError when there are fewer.
        """
        if not 0 < layers <= self.layers:
            raise FormatError(
                f"cannot keep {layers} layers of {self.layers}", remedy=f"give a number from 1 to {self.layers}"
            )
        kept = {key: array for key, array in self.arrays.items() if key[0] < layers}
        return replace(self, arrays=kept, layers=layers, header=replace(self.header, seen=0))

    def with_header(self, form: HeaderForm) -> Held:
        """new: 0.2.0 with a counter of 64 bits; old: 0.1.0 with one of 32 bits, for programs before 2017."""
        if form == "new":
            return replace(self, header=WeightsHeader(0, 2, 0, self.header.seen, LONG_HEADER))
        if form == "old":
            return replace(self, header=WeightsHeader(0, 1, 0, self.header.seen, SHORT_HEADER))
        return self

    def names(self) -> dict[tuple[int, str], str]:
        """The name of each array, in the order of the file."""
        return {
            (spec.layer, spec.name): f"{spec.layer:03d}.{layer.type}.{spec.name}"
            for layer in self.shapes[: self.layers]
            for spec in layer.parameters
            if (spec.layer, spec.name) in self.arrays
        }


def read_held(config: Config, path: PathLike, strict: bool = False) -> Held:
    """Read a .weights or a .safetensors file; a backbone holds only its first layers.

    Raises FormatError for files that do not fit the cfg, MissingPackage without safetensors.
    """
    if Path(path).suffix.lower() == SAFETENSORS:
        return _read_safetensors(config, path)
    shapes = infer_shapes(config, fork=choose_dialect(config, path)[0].fork or None)
    found = read_weights(path, shapes, strict=strict)
    if found.prefixes:
        raise FormatError(
            "some arrays are in the file only in part", file=path, remedy="use a cfg without numload, and a whole file"
        )
    layers = max(found.loaded_layers, default=-1) + 1 if found.is_partial else len(shapes)
    return Held(shapes, dict(found.arrays), found.header, layers)


def write_held(held: Held, path: PathLike) -> None:
    """Write a file of the kind that the ending names, .safetensors or anything else for Darknet's."""
    if Path(path).suffix.lower() == SAFETENSORS:
        _write_safetensors(held, path)
        return
    header = held.header
    if header.transposed:
        header = WeightsHeader(0, 2, 0, header.seen)  # arrays are held in the present order
    arrays = held.arrays
    write_weights(path, held.shapes, lambda layer, name: arrays[layer, name], cutoff=held.layers, header=header)


def _write_safetensors(held: Held, path: PathLike) -> None:
    package = _package()
    metadata = {key: str(getattr(held.header, key)) for key in _HEADER_KEYS}
    metadata |= {"format": "darknet", "layers": str(held.layers), "cfg": os.path.basename(held.shapes.file)}
    tensors = {name: np.ascontiguousarray(held.arrays[key]) for key, name in held.names().items()}
    content = package.numpy.save(tensors, metadata=metadata)
    with atomic_write(path) as stream:
        stream.write(content)


def _read_safetensors(config: Config, path: PathLike) -> Held:
    package = _package()
    shapes = infer_shapes(config, fork=choose_dialect(config)[0].fork or None)
    try:
        with package.safe_open(os.fspath(path), framework="numpy") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        header = WeightsHeader(**{key: int(metadata[key]) for key in _HEADER_KEYS})
        layers = int(metadata["layers"])
    except (OSError, KeyError, TypeError, ValueError, package.SafetensorError) as error:
        raise FormatError(
            f"no safetensors file with a Darknet network: {error}", file=path, remedy="write it with undertow convert"
        ) from error
    arrays: Arrays = {}
    for layer in shapes[:layers]:
        for spec in layer.parameters:
            name = f"{spec.layer:03d}.{layer.type}.{spec.name}"
            if name not in tensors or tensors[name].shape != spec.shape:
                held = "nothing" if name not in tensors else f"the shape {tensors[name].shape}"
                raise FormatError(
                    f"the cfg wants '{name}' with the shape {spec.shape}, the file has {held}",
                    file=path,
                    remedy="use the cfg it was converted with",
                )
            arrays[spec.layer, spec.name] = tensors[name]
    return Held(shapes, arrays, header, layers)


def _package() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise MissingPackage("safetensors", "safetensors", "reading and writing .safetensors files") from None
    return safetensors

"""Shapes of a whole network from its cfg, without computing or allocating anything.

`infer_shapes` gives, for every layer, what it reads and writes, its parameters, its work in BFLOPs and the memory
it takes. Everything that does not fit together is an error that names file, line and layers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from undertow.darknet.files.cfg import Config
from undertow.darknet.files.layer_shape import LayerShape, Shape, ShapeBuilder, image_text
from undertow.darknet.files.memory import training_bytes
from undertow.darknet.files.options import fork_sign, read_layer_options, read_net_options, section_type
from undertow.darknet.files.options_net import NetOptions
from undertow.darknet.files.shape_rules import RULES
from undertow.errors import FormatError, ShapeError

__all__ = ["LayerShape", "NetworkShapes", "Shape", "check_memory", "infer_shapes"]

_FLOAT = 4
_INT32 = 2**31
_BEYOND = 2**62


@dataclass(frozen=True)
class NetworkShapes(Sequence[LayerShape]):
    """The layers of a network, as a sequence, with the net's own options and sums over the layers.

    file, line: the cfg, and where its [net] stands.
    """

    file: str
    net: NetOptions
    layers: tuple[LayerShape, ...]
    line: int | None = None

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> LayerShape: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LayerShape, ...]: ...
    def __getitem__(self, index: int | slice) -> LayerShape | tuple[LayerShape, ...]:
        return self.layers[index]

    def __iter__(self) -> Iterator[LayerShape]:
        return iter(self.layers)

    @property
    def inputs(self) -> int:
        """Values of one sample of the network's input."""
        return self.net.inputs

    @property
    def output(self) -> LayerShape:
        """The layer whose output is the network's: the last that is not a cost."""
        return next((layer for layer in reversed(self.layers) if layer.type != "cost"), self.layers[0])

    @property
    def truths(self) -> int:
        """Values of one sample's truth."""
        return self.layers[-1].truths or self.output.outputs

    @property
    def parameters(self) -> int:
        """Floats in the weights file of the whole network."""
        return sum(layer.stored for layer in self.layers)

    @property
    def bflops(self) -> float:
        """Billions of floating-point operations of one sample, convolutions only, as the original prints them."""
        return sum(layer.bflops for layer in self.layers)

    def memory(self, batch: int | None = None, training: bool = False) -> int:
        """Bytes for input, outputs and parameters; with training also for their gradients and what is kept meanwhile.

        batch: samples in a pass, the cfg's unless given. An estimate. At inference in the original's terms: every layer
        has its output. In training as it is here: see `undertow.darknet.files.memory`.
        """
        samples = self.net.pass_batch if batch is None else batch
        if training:
            return training_bytes(self.layers, self.inputs, samples)
        values = samples * (self.inputs + sum(layer.outputs for layer in self.layers)) + self.parameters
        return _FLOAT * values + max((layer.workspace for layer in self.layers), default=0)


def infer_shapes(config: Config, *, fork: bool | None = None) -> NetworkShapes:
    """Shapes, parameters and work of every layer.

    fork: whether AlexeyAB's fork is followed in the layout of weights files and in lists of a wrong length; None: when
    the cfg has something of the fork.
    Raises FormatError or ShapeError, with file, line and remedy, where options cannot be used or layers do not fit.
    """
    net = read_net_options(config)
    if not config.layers:
        raise FormatError(
            "the network has no layers",
            file=config.file,
            line=config.net.line,
            remedy="add layers after [net], or check that the file is complete",
        )
    of_fork = not config.original and fork_sign(config) is not None if fork is None else fork
    build = ShapeBuilder(config, net, of_fork)
    for section in config.layers:
        build.section = section
        options = read_layer_options(section, of_fork)
        layer = RULES[section_type(section).name](build, options)
        build.layers.append(layer)
        if max(layer.outputs, layer.nweights) > _BEYOND:
            break  # told below; layers after this one would only multiply what no machine holds
    shapes = NetworkShapes(config.file, net, tuple(build.layers), config.net.line)
    _check_counts(config, shapes)
    return shapes


def check_memory(
    shapes: NetworkShapes, *, batch: int | None = None, training: bool = False, available: int | None = None
) -> None:
    """Raise ShapeError when the network needs more memory than there is; call it before anything is allocated.

    batch: samples in a pass, the cfg's unless given. available: bytes; the machine's physical memory unless given (no
    check where the system does not tell it).
    """
    limit = _physical_memory() if available is None else available
    needed = shapes.memory(batch, training=training)
    if limit is not None and needed > limit:
        samples = shapes.net.pass_batch if batch is None else batch
        raise ShapeError(
            f"the network needs about {bytes_text(needed)} of memory for one pass of {_samples_text(samples)}, "
            f"{bytes_text(limit)} are there",
            file=shapes.file,
            remedy="raise subdivisions, or give a smaller batch, width and height",
        )


def _samples_text(count: int) -> str:
    return "one sample" if count == 1 else f"{count} samples"


def bytes_text(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.3g} EiB"


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _check_counts(config: Config, shapes: NetworkShapes) -> None:
    """The original counts values in 32 bits; a layer beyond that is a mistake, told before anything is allocated."""
    reason = None
    line = config.net.line_of("width", "inputs")
    layer: int | None = None
    if shapes.inputs >= _INT32:
        reason = f"the input of {image_text(shapes.net.input_shape)} has {shapes.inputs:,} values"
    else:
        large = next((s for s in shapes if max(s.outputs, s.nweights) >= _INT32), None)
        if large is not None:
            line, layer = large.line, large.index
            reason = f"{max(large.outputs, large.nweights):,} values in one layer"
    if reason is not None:
        needed = f"{bytes_text(shapes.memory())} of memory for one pass of {_samples_text(shapes.net.pass_batch)}"
        raise ShapeError(
            f"{reason}; the network would need {needed}",
            file=config.file,
            line=line,
            layer=layer,
            remedy="give a smaller width and height, or fewer filters",
        )

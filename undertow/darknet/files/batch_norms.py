"""Whether every batch norm of a network meets enough values to have a variance."""

from __future__ import annotations

from undertow.darknet.dialect import Dialect
from undertow.darknet.files.cfg import Config
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import ConvolutionalOptions
from undertow.darknet.files.shapes import NetworkShapes
from undertow.errors import ShapeError


def check_batch_norms(config: Config, shapes: NetworkShapes, dialect: Dialect, samples: int | None = None) -> None:
    """Raise ShapeError, with file, line and layer, for a batch norm that sees one value of each channel in training.

    Its variance over N-1 would be 0 / 0, from which the original trains NaN without a word.
    samples: in a pass, batch / subdivisions * time_steps of the cfg unless given.
    """
    if dialect.batch_norm.forward.divisor != "N-1":
        return
    taken = shapes.net.pass_batch if samples is None else samples
    for shape in shapes:
        names = [spec.name for spec in shape.parameters if spec.kind == "rolling_variance"]
        # The layers within a recurrent one, whose names stand before a slash, normalise each step by itself.
        by_step = any("/" in name for name in names)
        at_once = taken // shapes.net.time_steps if by_step else taken
        if names and at_once * _places(shape) == 1:
            raise _one_value(config, shapes, shape, by_step)


def _places(shape: LayerShape) -> int:
    """Values of a channel that a sample gives the batch norm: those before the blur of antialiasing."""
    _, height, width = shape.out_shape
    o = shape.options
    if isinstance(o, ConvolutionalOptions) and o.antialiasing:
        kept = (2 * o.border - o.size + 1) * o.dilation
        height, width = (extent + kept for extent in shape.in_shape[1:])
    return max(height * width, 1)


def _one_value(config: Config, shapes: NetworkShapes, shape: LayerShape, by_step: bool) -> ShapeError:
    net, section = shapes.net, config.layers[shape.index]
    each = f" (each of time_steps={net.time_steps} is normalised by itself)" if by_step else ""
    steps = "" if by_step or net.channels else " or more time_steps"
    without = "leave this layer out" if shape.type == "batchnorm" else "batch_normalize=0 here"
    return ShapeError(
        f"cannot train: batch norm in [{shape.type}] sees one value of each channel in a pass, "
        f"which has no variance over N-1{each}",
        file=config.file,
        line=section.line_of("batch_normalize"),
        layer=shape.index,
        remedy=f"give batch={2 * net.subdivisions} or more{steps} in [net], or {without}",
    )

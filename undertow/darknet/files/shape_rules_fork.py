"""Shape rules of AlexeyAB's fork: its own sections, and what its keys change in those of the 2018 program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.darknet.files import options_fork as options
from undertow.darknet.files.layer_shape import LayerShape, Shape, ShapeBuilder, image_text
from undertow.darknet.files.options_layers import ConvolutionalOptions, CrnnOptions, MaxpoolOptions, ShortcutOptions
from undertow.darknet.files.parameters import ParameterSpec, convolutional_specs


def convolution_out(build: ShapeBuilder, o: ConvolutionalOptions, size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) after the convolution and, with antialiasing, its blur.

    The fork computes the size of a kernel without dilation, which is right for padding=size/2 only.
    """
    steps = (1, 1) if o.antialiasing else o.strides
    out = []
    for extent, stride in zip(size, steps, strict=True):
        room = extent + 2 * o.border - o.size
        if room < 0:
            raise build.error(
                f"the window {o.size}x{o.size} is larger than the input ({extent}) with {o.border} of padding on each "
                "side",
                "size",
                remedy="add pad=1, give a smaller size, or a larger width and height in [net]",
            )
        reach = (o.size - 1) * o.dilation + 1
        spread = (extent + 2 * o.border * o.dilation - reach) // stride + 1
        if spread != room // stride + 1:
            raise build.error(
                f"with dilation={o.dilation} only {max(spread, 0)} of the {room // stride + 1} outputs along one side "
                f"that AlexeyAB's fork expects can be computed; it leaves the rest of its memory as it was",
                "dilation",
                remedy="give pad=1",
            )
        out.append(spread)
    return blurred_out(build, o.antialiasing, (out[0], out[1]), o.strides)


def blurred_out(
    build: ShapeBuilder, antialiasing: int, size: tuple[int, int], strides: tuple[int, int]
) -> tuple[int, int]:
    """(height, width) after the blur of antialiasing: 2x2 without padding for 2, else 3x3 with it."""
    if not antialiasing:
        return size
    lost = 2 if antialiasing == 2 else 1
    height, width = ((extent - lost) // stride + 1 for extent, stride in zip(size, strides, strict=True))
    if min(height, width) < 1:
        raise build.error(f"nothing is left of {size[1]}x{size[0]} after the blur", "antialiasing")
    return height, width


def convolution_specs(
    build: ShapeBuilder, o: ConvolutionalOptions, weights: tuple[int, int, int, int]
) -> tuple[list[ParameterSpec], tuple[int, ...]]:
    """The arrays a convolution keeps in a file, and the layer whose arrays it uses instead, if any."""
    specs = convolutional_specs(build.index, o.filters, weights, o.batch_normalize)
    if o.share_index is None:
        return specs, ()
    owner = build.source(o.share_index, "share_index")
    if owner.type != "convolutional" or not isinstance(owner.options, ConvolutionalOptions):
        raise build.error(f"share_index names layer {owner.index}, a [{owner.type}]", "share_index")
    if owner.options.share_index is not None:
        raise build.error(f"layer {owner.index} has no parameters of its own to share", "share_index")
    theirs = {spec.name: spec.shape for spec in owner.parameters}
    ours = {spec.name: spec.shape for spec in specs}
    if theirs != ours:
        raise build.error(
            f"the parameters of layer {owner.index}, {theirs}, are not those needed here, {ours}",
            "share_index",
            remedy="give both layers one size, filters, groups and batch_normalize",
        )
    return [], (owner.index,)


def maxpool_out(
    build: ShapeBuilder, o: MaxpoolOptions | options.LocalAvgpoolOptions, size: tuple[int, int]
) -> tuple[int, int]:
    """(height, width) of a pooling: (in + padding - size) / stride + 1, rounded down."""
    if min(size) + o.padding < o.size:
        raise build.error(
            f"the window of {o.size}x{o.size} is larger than the input {size[1]}x{size[0]} with {o.padding} of padding",
            "size",
            remedy="give a smaller size, or leave padding out",
        )
    antialiasing = o.antialiasing if isinstance(o, MaxpoolOptions) else 0
    steps = (1, 1) if antialiasing else o.strides
    height, width = ((extent + o.padding - o.size) // step + 1 for extent, step in zip(size, steps, strict=True))
    return blurred_out(build, antialiasing, (height, width), o.strides)


def maxpool_depth(build: ShapeBuilder, o: MaxpoolOptions, image: Shape) -> LayerShape:
    """out_channels channels of the same size."""
    channels, height, width = image
    if o.out_channels > channels:
        raise build.error(f"out_channels={o.out_channels} is more than the {channels} of the input", "out_channels")
    if o.antialiasing:
        raise build.error("maxpool_depth with antialiasing, which AlexeyAB's fork does not blur", "antialiasing")
    return build.layer(o, (o.out_channels, height, width))


def several_sources(build: ShapeBuilder, o: ShortcutOptions, sources: list[LayerShape]) -> LayerShape:
    """A sum of several layers, perhaps weighted; all of one width and height."""
    channels, height, width = build.image()
    for source in sources:
        if source.out_shape[1:] != (height, width):
            raise build.error(
                f"layer {source.index} ({image_text(source.out_shape)}) has another width or height than layer "
                f"{build.index - 1} ({image_text(build.in_shape)})",
                "from",
            )
    specs = []
    if o.weighted:
        columns = channels if o.weights_type == "per_channel" else 1
        specs = [ParameterSpec(build.index, "weights", (len(sources) + 1, columns))]
    indexes = tuple(source.index for source in sources)
    return build.layer(o, (channels, height, width), sources=indexes, parameters=specs)


def part_of(build: ShapeBuilder, source: LayerShape, groups: int) -> int:
    """How many values of a layer are in each of `groups` parts. Raises ShapeError where they are no whole channels."""
    channels = source.out_shape[0]
    if (channels or source.outputs) % groups:
        raise build.error(
            f"layer {source.index} gives {channels or source.outputs} channels, which groups={groups} does not divide",
            "groups",
        )
    return source.outputs // groups


def local_avgpool(build: ShapeBuilder, o: options.LocalAvgpoolOptions) -> LayerShape:
    """The size of a maxpool."""
    channels, height, width = build.image()
    out = maxpool_out(build, o, (height, width))
    return build.layer(o, (channels, *out), reduction=build.reduction * max(o.strides))


def reorg3d(build: ShapeBuilder, o: options.Reorg3dOptions) -> LayerShape:
    """stride^2 times the channels, a stride-th of both sides."""
    channels, height, width = build.image()
    if height % o.stride or width % o.stride:
        raise build.error(f"{width}x{height} is not a multiple of stride={o.stride}", "stride")
    shape = (channels * o.stride * o.stride, height // o.stride, width // o.stride)
    return build.layer(o, shape, reduction=build.reduction * o.stride)


def scale_channels(build: ShapeBuilder, o: options.ScaleChannelsOptions) -> LayerShape:
    """The shape of the other layer; this one's is (channels, 1, 1), or with scale_wh (1, height, width)."""
    given, source = build.image(), build.source(o.source, "from")
    channels, height, width = source.out_shape
    wanted = (1, height, width) if o.scale_wh else (channels, 1, 1)
    if given != wanted:
        raise build.error(
            f"layer {build.index - 1} gives {image_text(given)}, to scale layer {source.index} "
            f"({image_text(source.out_shape)}) it needs {image_text(wanted)}",
            "from",
        )
    return build.layer(o, source.out_shape, sources=(source.index,), reduction=source.reduction)


def sam(build: ShapeBuilder, o: options.SamOptions) -> LayerShape:
    """Two layers of one shape."""
    source = build.source(o.source, "from")
    if build.image() != source.out_shape:
        raise build.error(
            f"layers {build.index - 1} ({image_text(build.in_shape)}) and {source.index} "
            f"({image_text(source.out_shape)}) must have one shape to be multiplied",
            "from",
        )
    return build.layer(o, source.out_shape, sources=(source.index,))


def implicit(build: ShapeBuilder, o: options.ImplicitOptions) -> LayerShape:
    """`filters` channels, `atoms` high and 1 wide."""
    specs = [ParameterSpec(build.index, "weights", (o.filters, o.atoms))]
    return build.layer(o, (o.filters, o.atoms, 1), parameters=specs)


def conv_lstm(build: ShapeBuilder, o: options.ConvLstmOptions) -> LayerShape:
    """`output` channels of the same size: the state and the input are added."""
    channels, height, width = build.image()
    _check_feedback(build, o, (channels, o.output))
    gates = [f"v{gate}" for gate in "fio" if o.peephole]
    gates += [f"w{gate}" for gate in "figo"] + [f"u{gate}" for gate in "figo"]
    specs, work = [], 0.0
    for name in gates:
        fan = (channels if name[0] == "u" else o.output) // o.groups
        shape = (o.output, fan, o.size, o.size)
        specs += convolutional_specs(build.index, o.output, shape, o.batch_normalize, f"{name}/")
        work += 2 * math.prod(shape) * height * width / 1e9
    return build.layer(o, (o.output, height, width), parameters=specs, bflops=work)


def crnn(build: ShapeBuilder, o: CrnnOptions) -> LayerShape:
    """Three convolutions of the same size; the original gives [crnn] without output= or hidden= one filter."""
    channels, height, width = build.image()
    hidden, filters = o.hidden or 1, o.output or 1
    _check_feedback(build, o, (channels, hidden, filters))
    layers = (("input_layer/", channels, hidden), ("self_layer/", hidden, hidden), ("output_layer/", hidden, filters))
    specs, work = [], 0.0
    for prefix, fan, count in layers:
        shape = (count, fan // o.groups, o.size, o.size)
        specs += convolutional_specs(build.index, count, shape, o.batch_normalize, prefix)
        work += 2 * math.prod(shape) * height * width / 1e9
    return build.layer(o, (filters, height, width), parameters=specs, bflops=work)


def _check_feedback(build: ShapeBuilder, o: options.ConvLstmOptions | CrnnOptions, channels: tuple[int, ...]) -> None:
    """The inner convolutions must keep the size."""
    if any(count % o.groups for count in channels):
        raise build.error(f"groups={o.groups} does not divide the channels {channels}", "groups")
    if 2 * o.border != o.size - 1 or o.stride != 1:
        raise build.error(
            f"size={o.size} with {o.border} of padding and stride={o.stride} changes the size, so that the state "
            "cannot be fed back",
            "padding",
            "pad",
            "size",
            remedy="give pad=1, stride=1 and an odd size",
        )


def history(build: ShapeBuilder, o: options.HistoryOptions) -> LayerShape:
    """history_size times the channels."""
    channels, height, width = build.image()
    return build.layer(o, (channels * o.history_size, height, width))


FORK_RULES: dict[str, Callable[[ShapeBuilder, Any], LayerShape]] = {
    "local_avgpool": local_avgpool,
    "reorg3d": reorg3d,
    "scale_channels": scale_channels,
    "sam": sam,
    "implicit": implicit,
    "conv_lstm": conv_lstm,
    "history": history,
}

"""The shape rule of each section type: what the make_*_layer functions of the original work out, and check too little.

A rule takes the ShapeBuilder, which knows the layers before, and the section's options, and returns a LayerShape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.darknet.files import options_fork, shape_rules_fork
from undertow.darknet.files import options_heads as heads
from undertow.darknet.files import options_layers as options
from undertow.darknet.files.layer_shape import LayerShape, Shape, ShapeBuilder, image_text
from undertow.darknet.files.options_layers import LayerOptions
from undertow.darknet.files.parameters import (
    batchnorm_specs,
    connected_specs,
    convolutional_specs,
    local_specs,
    recurrent_specs,
)

_FLAT: Shape = (0, 0, 0)
_FLOAT = 4
_YOLO_TRUTHS = 90 * 5
_REGION_BOXES = 30
_ISEG_INSTANCES = 90


def convolution_bflops(filters: int, size: int, channels: int, groups: int, out_height: int, out_width: int) -> float:
    """2 * n * size^2 * c / groups * out_h * out_w / 10^9, as the original prints it."""
    return 2.0 * filters * size * size * channels / groups * out_height * out_width / 1e9


def convolutional(build: ShapeBuilder, o: options.ConvolutionalOptions) -> LayerShape:
    """out = (in + 2*border - size) / stride + 1, rounded down; antialiasing of AlexeyAB's fork: see there."""
    channels, height, width = build.image()
    if channels % o.groups or o.filters % o.groups:
        raise build.error(
            f"groups={o.groups} divides neither or only one of {channels} input channels and {o.filters} filters",
            "groups",
            remedy="choose groups as a divisor of both",
        )
    if o.flipped and o.groups > 1:
        raise build.error("flipped=1 does not work with groups", "flipped")
    _check_numload(build, o, o.filters)
    out_height, out_width = shape_rules_fork.convolution_out(build, o, (height, width))
    weights = (o.filters, channels // o.groups, o.size, o.size)
    specs, owner = shape_rules_fork.convolution_specs(build, o, weights)
    return build.layer(
        o,
        (o.filters, out_height, out_width),
        sources=owner,
        parameters=specs,
        workspace=out_height * out_width * o.size * o.size * channels // o.groups * _FLOAT,
        bflops=convolution_bflops(o.filters, o.size, channels, o.groups, out_height, out_width),
        reduction=build.reduction * max(o.strides),
    )


def deconvolutional(build: ShapeBuilder, o: options.DeconvolutionalOptions) -> LayerShape:
    """out = (in - 1) * stride + size - 2*border."""
    channels, height, width = build.image()
    _check_numload(build, o, o.filters)
    out_height = (height - 1) * o.stride + o.size - 2 * o.border
    out_width = (width - 1) * o.stride + o.size - 2 * o.border
    if out_height < 1 or out_width < 1:
        left = f"{out_width}x{out_height}"
        raise build.error(f"nothing is left of the output ({left}) after the padding", "padding", "pad")
    weights = (channels, o.filters, o.size, o.size)
    return build.layer(
        o,
        (o.filters, out_height, out_width),
        parameters=convolutional_specs(build.index, o.filters, weights, o.batch_normalize),
        workspace=height * width * o.size * o.size * o.filters * _FLOAT,
        reduction=max(build.reduction // o.stride, 1),
    )


def connected(build: ShapeBuilder, o: options.ConnectedOptions) -> LayerShape:
    """Every output reads every input; the output counts as a 1x1 image."""
    specs = connected_specs(build.index, build.inputs, o.output, o.batch_normalize)
    return build.layer(o, (o.output, 1, 1), parameters=specs)


def local(build: ShapeBuilder, o: options.LocalOptions) -> LayerShape:
    """out = (in - size) / stride + 1 without pad, (in - 1) / stride + 1 with it."""
    channels, height, width = build.image()
    if not o.pad and (height < o.size or width < o.size):
        raise build.error(f"the window of {o.size}x{o.size} is larger than the input {width}x{height}", "size")
    lost = 1 if o.pad else o.size
    out_height, out_width = (height - lost) // o.stride + 1, (width - lost) // o.stride + 1
    places, fan_in = out_height * out_width, channels * o.size * o.size
    return build.layer(
        o,
        (o.filters, out_height, out_width),
        parameters=local_specs(build.index, o.filters * places, (places, o.filters, fan_in)),
        workspace=places * fan_in * _FLOAT,
        reduction=build.reduction * o.stride,
    )


def maxpool(build: ShapeBuilder, o: options.MaxpoolOptions) -> LayerShape:
    """out = (in + padding - size) / stride + 1, rounded down; `padding` is the total of both sides."""
    channels, height, width = build.image()
    if o.maxpool_depth:
        return shape_rules_fork.maxpool_depth(build, o, (channels, height, width))
    out = shape_rules_fork.maxpool_out(build, o, (height, width))
    return build.layer(o, (channels, *out), reduction=build.reduction * max(o.strides))


def avgpool(build: ShapeBuilder, o: options.AvgpoolOptions) -> LayerShape:
    """One value for each channel."""
    channels, _, _ = build.image()
    return build.layer(o, (channels, 1, 1))


def shortcut(build: ShapeBuilder, o: options.ShortcutOptions) -> LayerShape:
    """The size of the layer before; the other source is sampled or spread by a whole ratio, equal for both axes."""
    channels, height, width = build.image()
    sources = [build.source(index, "from") for index in (o.sources[:1] if build.section.original else o.sources)]
    if len(sources) > 1 or o.weighted:
        return shape_rules_fork.several_sources(build, o, sources)
    source = sources[0]
    other = source.out_shape
    if not all(other):
        raise build.error(f"layer {source.index} [{source.type}] gives no image that could be added", "from")
    ratios = {(width // other[2], other[2] // width), (height // other[1], other[1] // height)}
    if len(ratios) > 1:
        raise build.error(
            f"layer {build.index - 1} ({image_text(build.in_shape)}) and layer {source.index} ({image_text(other)}) "
            "differ by unequal ratios of width and height and cannot be added",
            "from",
            remedy=_size_hint(build, (build.layers[-1], source)),
        )
    return build.layer(o, (channels, height, width), sources=(source.index,))


def route(build: ShapeBuilder, o: options.RouteOptions) -> LayerShape:
    """The layers' outputs, or one of `groups` parts of each, joined along the channels; all of one width and height."""
    found = [build.source(index, "layers") for index in o.layers]
    first = found[0]
    for other in found[1:]:
        if other.out_shape[1:] != first.out_shape[1:]:
            raise _cannot_join(build, first, other)
    channels = sum(layer.out_shape[0] // o.groups for layer in found)
    return build.layer(
        o,
        (channels, *first.out_shape[1:]),
        outputs=sum(shape_rules_fork.part_of(build, layer, o.groups) for layer in found),
        sources=tuple(layer.index for layer in found),
        reduction=first.reduction,
    )


def upsample(build: ShapeBuilder, o: options.UpsampleOptions) -> LayerShape:
    """stride times the size, or for a negative stride the size divided by it, rounded down."""
    channels, height, width = build.image()
    if o.stride > 0:
        shape = (channels, height * o.stride, width * o.stride)
        return build.layer(o, shape, reduction=max(build.reduction // o.stride, 1))
    ratio = -o.stride
    if height % ratio or width % ratio:
        raise build.error(f"{width}x{height} cannot be divided into blocks of {ratio}x{ratio}", "stride")
    return build.layer(o, (channels, height // ratio, width // ratio), reduction=build.reduction * ratio)


def reorg(build: ShapeBuilder, o: options.ReorgOptions) -> LayerShape:
    """Blocks of stride x stride become channels, or with `reverse` the other way round."""
    channels, height, width = build.image()
    if o.extra:
        return build.layer(o, _FLAT, outputs=build.inputs + o.extra)
    square = o.stride * o.stride
    if not o.reverse and (height % o.stride or width % o.stride):
        raise build.error(
            f"{width}x{height} is not a multiple of stride={o.stride}",
            "stride",
            remedy=f"make width and height in [net] multiples of {build.reduction * o.stride}",
        )
    if (o.reverse or not o.flatten) and channels % square:
        raise build.error(f"{channels} channels are not a multiple of stride*stride = {square}", "stride")
    if o.reverse:
        shape = (channels // square, height * o.stride, width * o.stride)
        return build.layer(o, shape, reduction=max(build.reduction // o.stride, 1))
    shape = (channels * square, height // o.stride, width // o.stride)
    return build.layer(o, shape, reduction=build.reduction * o.stride)


def same_shape(build: ShapeBuilder, o: LayerOptions) -> LayerShape:
    """Activation, dropout, l2norm, logistic: any input, unchanged form."""
    return build.layer(o, build.in_shape, outputs=build.inputs)


def same_image(build: ShapeBuilder, o: LayerOptions) -> LayerShape:
    """Normalization: an image of unchanged form."""
    return build.layer(o, build.image())


def batchnorm(build: ShapeBuilder, o: options.BatchnormOptions) -> LayerShape:
    """An image of unchanged form."""
    shape = build.image()
    return build.layer(o, shape, parameters=batchnorm_specs(build.index, shape[0], biases=build.fork))


def crop(build: ShapeBuilder, o: options.CropOptions) -> LayerShape:
    """crop_height x crop_width of the image."""
    channels, height, width = build.image()
    if o.crop_height > height or o.crop_width > width:
        raise build.error(
            f"the part of {o.crop_width}x{o.crop_height} is larger than the input {width}x{height}",
            "crop_width",
            "crop_height",
        )
    return build.layer(o, (channels, o.crop_height, o.crop_width))


def softmax(build: ShapeBuilder, o: options.SoftmaxOptions) -> LayerShape:
    """As many values as before, in `groups` equal parts; the result counts as no image."""
    if build.inputs % o.groups:
        raise build.error(f"{build.inputs} inputs cannot be divided into {o.groups} groups", "groups")
    return build.layer(o, _FLAT, outputs=build.inputs)


def cost(build: ShapeBuilder, o: options.CostOptions) -> LayerShape:
    """As many values as before; the result counts as no image."""
    return build.layer(o, _FLAT, outputs=build.inputs)


def yolo(build: ShapeBuilder, o: heads.YoloOptions) -> LayerShape:
    """The image of the convolution before, which must have (classes+5) * len(mask) filters."""
    formula = f"(classes+5)*len(mask) = ({o.classes}+5)*{len(o.mask)}"
    return _image_head(build, o, o.channels, formula, _YOLO_TRUTHS)


def gaussian_yolo(build: ShapeBuilder, o: options_fork.GaussianYoloOptions) -> LayerShape:
    """The image of the convolution before, which must have (classes+9) * len(mask) filters."""
    formula = f"(classes+9)*len(mask) = ({o.classes}+9)*{len(o.mask)}"
    return _image_head(build, o, o.channels, formula, _YOLO_TRUTHS)


def region(build: ShapeBuilder, o: heads.RegionOptions) -> LayerShape:
    """The image of the convolution before, which must have (classes+coords+1) * num filters."""
    formula = f"(classes+coords+1)*num = ({o.classes}+{o.coords}+1)*{o.num}"
    return _image_head(build, o, o.channels, formula, _REGION_BOXES * (o.coords + 1))


def iseg(build: ShapeBuilder, o: heads.IsegOptions) -> LayerShape:
    """The image of the convolution before, which must have classes + ids filters."""
    _, height, width = build.image()
    truths = _ISEG_INSTANCES * (width * height + 1)
    return _image_head(build, o, o.channels, f"classes+ids = {o.classes}+{o.ids}", truths)


def detection(build: ShapeBuilder, o: heads.DetectionOptions) -> LayerShape:
    """side*side*((1+coords)*num + classes) values; the result counts as no image."""
    if build.inputs != o.outputs:
        raise build.error(
            f"[detection] needs side*side*((1+coords)*num+classes) = {o.outputs} inputs, found {build.inputs}",
            "side",
            "classes",
            remedy=f"let the layer before give {o.outputs} values",
        )
    return build.layer(o, _FLAT, outputs=build.inputs, truths=o.side * o.side * (1 + o.coords + o.classes))


def rnn(build: ShapeBuilder, o: options.RnnOptions) -> LayerShape:
    """Three connected layers: from the input, from the state, to the output."""
    widths = (("input_layer/", build.inputs), ("self_layer/", o.output), ("output_layer/", o.output))
    specs = [
        spec
        for prefix, width in widths
        for spec in connected_specs(build.index, width, o.output, o.batch_normalize, prefix)
    ]
    return build.layer(o, _FLAT, outputs=o.output, parameters=specs)


def gru(build: ShapeBuilder, o: options.GruOptions) -> LayerShape:
    """Gates z, r and the candidate h."""
    specs = recurrent_specs(build.index, build.inputs, o.output, o.batch_normalize, "zrh", "zrh")
    return build.layer(o, _FLAT, outputs=o.output, parameters=specs)


def lstm(build: ShapeBuilder, o: options.LstmOptions) -> LayerShape:
    """Gates i, f, o and the candidate g."""
    specs = recurrent_specs(build.index, build.inputs, o.output, o.batch_normalize, "ifog", "ifog")
    return build.layer(o, _FLAT, outputs=o.output, parameters=specs)


def crnn(build: ShapeBuilder, o: options.CrnnOptions) -> LayerShape:
    """Three 3x3 convolutions that keep the size. The original swaps width and height here, and so does the shape."""
    if o.of_fork:
        return shape_rules_fork.crnn(build, o)
    channels, height, width = build.image()
    layers = (
        ("input_layer/", channels, o.hidden_filters),
        ("self_layer/", o.hidden_filters, o.hidden_filters),
        ("output_layer/", o.hidden_filters, o.output_filters),
    )
    specs = [
        spec
        for prefix, fan, filters in layers
        for spec in convolutional_specs(build.index, filters, (filters, fan, 3, 3), o.batch_normalize, prefix)
    ]
    work = sum(convolution_bflops(filters, 3, fan, 1, height, width) for _, fan, filters in layers)
    workspace = height * width * 9 * max(fan for _, fan, _ in layers) * _FLOAT
    return build.layer(o, (o.output_filters, width, height), parameters=specs, bflops=work, workspace=workspace)


RULES: dict[str, Callable[[ShapeBuilder, Any], LayerShape]] = {
    "convolutional": convolutional,
    "deconvolutional": deconvolutional,
    "connected": connected,
    "local": local,
    "maxpool": maxpool,
    "avgpool": avgpool,
    "shortcut": shortcut,
    "route": route,
    "upsample": upsample,
    "reorg": reorg,
    "activation": same_shape,
    "batchnorm": batchnorm,
    "normalization": same_image,
    "l2norm": same_shape,
    "dropout": same_shape,
    "crop": crop,
    "softmax": softmax,
    "logistic": same_shape,
    "cost": cost,
    "detection": detection,
    "region": region,
    "yolo": yolo,
    "iseg": iseg,
    "rnn": rnn,
    "gru": gru,
    "lstm": lstm,
    "crnn": crnn,
    "Gaussian_yolo": gaussian_yolo,
    "empty": same_shape,
    **shape_rules_fork.FORK_RULES,
}


def _check_numload(build: ShapeBuilder, o: LayerOptions, filters: int) -> None:
    if o.numload > filters:
        raise build.error(f"numload={o.numload} is more than the {filters} filters of the layer", "numload")


def _cannot_join(build: ShapeBuilder, first: LayerShape, other: LayerShape) -> Exception:
    one, two = (f"{layer.out_shape[2]}x{layer.out_shape[1]}" for layer in (first, other))
    return build.error(
        f"layers {first.index} ({one}) and {other.index} ({two}) cannot be joined: their sizes differ",
        "layers",
        remedy=_size_hint(build, (first, other)),
    )


def _size_hint(build: ShapeBuilder, pair: tuple[LayerShape, LayerShape]) -> str:
    """Layers that would fit if no stride had left a remainder only need another input size."""
    if pair[0].reduction == pair[1].reduction:
        multiple = math.lcm(*(layer.reduction for layer in build.layers))
        if build.net.width % multiple or build.net.height % multiple:
            return f"make width and height in [net] multiples of {multiple}"
    return "choose layers of one width and height"


def _image_head(build: ShapeBuilder, o: LayerOptions, channels: int, formula: str, truths: int) -> LayerShape:
    found, height, width = build.image()
    if found != channels:
        name = build.section.name
        raise build.error(
            f"[{name}] (line {build.section.line}) needs {channels} channels: {formula} = {channels}, "
            f"but {_filters_before(build)}",
            "classes",
            remedy=f"set filters={channels} in the [convolutional] before [{name}], or correct classes",
        )
    return build.layer(o, (channels, height, width), truths=truths)


def _filters_before(build: ShapeBuilder) -> str:
    """Where the wrong number of channels comes from."""
    found = build.in_shape[0]
    if not build.layers:
        return f"[net] gives {found}"
    before = build.layers[-1]
    section = build.config.layers[before.index]
    return f"layer {before.index} [{before.type}] has filters={found} (line {section.line_of('filters')})"

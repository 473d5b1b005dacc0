"""Samples of windowed operations for the registry, with their definitions written out one output at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from undertow.core.registry import Sample
from undertow.functions.sampling import Samples
from undertow.kernels.geometry import PoolGeometry, Windows, output_shape

Array = np.ndarray[Any, Any]
Index = tuple[Any, ...]
Shape = tuple[int, ...]
Variant = tuple[Shape, Shape, bool, str, dict[str, Any]]

CONV_2D: list[Variant] = [
    ((2, 1, 5, 4), (1, 1, 3, 3), True, "one channel, one filter, no padding", {}),
    ((2, 3, 5, 5), (4, 3, 3, 3), True, "3x3, padding 1", {"pad": 1}),
    ((1, 3, 6, 7), (2, 3, 3, 3), False, "stride 2, no bias", {"stride": 2, "pad": 1}),
    ((2, 5, 3, 4), (3, 5, 1, 1), True, "1x1", {}),
    ((2, 2, 5, 4), (2, 2, 1, 1), False, "1x1, stride 2", {"stride": 2}),
    ((1, 4, 6, 7), (6, 2, 3, 2), True, "groups, sides apart", {"stride": (2, 1), "pad": (0, 1, 2, 1), "groups": 2}),
    ((1, 3, 7, 8), (3, 1, 3, 3), True, "depthwise, dilated", {"pad": 2, "dilation": 2, "groups": 3}),
    ((1, 1, 4, 4), (1, 1, 4, 4), True, "window as large as the image", {}),
    ((1, 2, 5, 6), (3, 2, 2, 3), False, "stride that skips pixels", {"stride": (3, 4)}),
]
CONV_ND: list[Variant] = [
    ((2, 3, 9), (2, 3, 3), True, "sound: one dimension, sides apart", {"stride": 2, "pad": (1, 0)}),
    ((1, 2, 3, 4, 3), (4, 1, 2, 2, 3), True, "a volume, groups", {"pad": (1, 0, 1), "groups": 2}),
    ((1, 2, 5, 4), (1, 2, 3, 2), False, "an image, dilated", {"pad": 1, "dilation": (2, 1)}),
]
DECONV_2D: list[Variant] = [
    ((2, 1, 3, 4), (1, 1, 3, 3), True, "one channel", {}),
    ((1, 3, 4, 3), (3, 2, 3, 3), True, "output padding", {"stride": 2, "pad": 1, "output_padding": 1}),
    ((1, 4, 3, 3), (4, 2, 2, 3), False, "groups, sides apart", {"stride": (1, 2), "pad": (0, 1, 1, 0), "groups": 2}),
    ((2, 2, 3, 3), (2, 3, 3, 3), True, "dilated", {"dilation": 2, "pad": 1}),
    ((1, 2, 3, 2), (2, 3, 1, 1), False, "1x1", {}),
]
DECONV_ND: list[Variant] = [
    ((2, 3, 4), (3, 2, 3), True, "sound, output padding", {"stride": 2, "pad": 1, "output_padding": 1}),
    ((1, 2, 2, 3, 2), (2, 1, 2, 1, 2), True, "a volume, groups", {"stride": (1, 2, 1), "groups": 2}),
]
COLUMNS: list[tuple[Shape, Shape, str, dict[str, Any]]] = [
    ((1, 1, 3, 4), (2, 2), "one channel", {}),
    ((2, 3, 4, 5), (3, 2), "sides apart", {"stride": (1, 2), "pad": (1, 0, 2, 1)}),
    ((1, 2, 5, 5), (2, 2), "dilated, pixels left over", {"stride": 2, "dilation": 2}),
]
POOLING: list[tuple[Shape, str, dict[str, Any]]] = [
    ((2, 1, 4, 6), "halves the size", {"size": 2}),
    ((1, 3, 5, 4), "sides apart, overlapping", {"size": (3, 2), "stride": (2, 1), "pad": (1, 1, 0, 1)}),
    ((1, 2, 5, 6), "Caffe: rounds up, the last window hangs over", {"size": 3, "stride": 2, "rule": "caffe"}),
    ((1, 2, 4, 5), "Caffe: drops the last window", {"size": 3, "stride": 2, "pad": 1, "rule": "caffe"}),
    ((1, 3, 5, 4), "Darknet: 2x2 with stride 1 keeps the size", {"size": 2, "stride": 1, "rule": "darknet"}),
    ((1, 1, 5, 5), "Darknet: padding on one side", {"size": 3, "stride": 2, "pad": 1, "rule": "darknet"}),
]

# From a call's options to the geometry of the operation, as the operation itself finds it.
MakeGeometry = Callable[..., Any]


def conv_samples(variants: list[Variant], call: Callable[..., Any], geometry: MakeGeometry) -> Samples:
    """Samples of `call(x, w, b, **options)`. geometry: from dimensions and options to a Windows."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        return [_conv_sample(rng, variant, variant[1][0], call, geometry, _convolve) for variant in variants]

    return samples


def deconv_samples(variants: list[Variant], call: Callable[..., Any], geometry: MakeGeometry) -> Samples:
    """The same of a transposed convolution."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        return [_conv_sample(rng, v, v[1][1] * v[4].get("groups", 1), call, geometry, _deconvolve) for v in variants]

    return samples


def _conv_sample(
    rng: np.random.Generator,
    variant: Variant,
    filters: int,
    call: Callable[..., Any],
    geometry: MakeGeometry,
    reference: Callable[..., Array],
) -> Sample:
    x, w, bias, note, options = variant
    arrays: tuple[Array, ...] = (rng.standard_normal(x), rng.standard_normal(w))
    if bias:
        arrays = (*arrays, rng.standard_normal(filters))
    extra = options.get("output_padding", 0)
    windows = geometry(len(x) - 2, **{key: value for key, value in options.items() if key != "output_padding"})

    def expected(x: Array, w: Array, b: Array | None = None) -> Array:
        y = reference(x, w, windows) if reference is _convolve else reference(x, w, windows, extra)
        return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))

    return Sample(arrays, lambda *args: call(*args, **options), expected, note)


def column_samples(call: Callable[..., Any], geometry: MakeGeometry) -> Samples:
    """Samples of `call(x, kernel, **options)`: windows as columns."""

    def sample(rng: np.random.Generator, shape: Shape, kernel: Shape, note: str, options: dict[str, Any]) -> Sample:
        windows = geometry(2, **options)
        return Sample(
            (rng.standard_normal(shape),),
            lambda x: call(x, kernel, **options),
            lambda x: np.stack([window.reshape(len(x), -1) for _, window in _windows(x, kernel, windows)], axis=2),
            note,
        )

    return lambda rng: [sample(rng, *variant) for variant in COLUMNS]


def image_samples(call: Callable[..., Any], geometry: MakeGeometry) -> Samples:
    """Samples of `call(cols, image_shape, kernel, **options)`: columns laid back into images."""

    def sample(rng: np.random.Generator, shape: Shape, kernel: Shape, note: str, options: dict[str, Any]) -> Sample:
        windows = geometry(2, **options)
        out = output_shape(shape[2:], kernel, windows)
        cols = rng.standard_normal((shape[0], shape[1] * int(np.prod(kernel)), int(np.prod(out))))

        def expected(cols: Array) -> Array:
            pieces = np.moveaxis(cols, 2, 0).reshape(*out, shape[0], shape[1], *kernel)
            return _lay_down(shape, kernel, windows, lambda place: pieces[place])

        return Sample((cols,), lambda x: call(x, shape, kernel, **options), expected, note)

    return lambda rng: [sample(rng, *variant) for variant in COLUMNS]


def pooling_samples(
    variants: list[tuple[Shape, str, dict[str, Any]]],
    call: Callable[..., Any],
    geometry: MakeGeometry,
    make: Callable[[np.random.Generator, Shape], Array],
    reduce: Callable[[Array, int], float],
) -> Samples:
    """Samples of `call(x, **options)`. reduce: from a window's elements and its number of cells to its value."""

    def sample(rng: np.random.Generator, shape: Shape, note: str, options: dict[str, Any]) -> Sample:
        windows = geometry(shape, **options)
        return Sample((make(rng, shape),), lambda x: call(x, **options), lambda x: pool(x, windows, reduce), note)

    return lambda rng: [sample(rng, *variant) for variant in variants]


def pool(x: Array, geometry: PoolGeometry, reduce: Callable[[Array, int], float]) -> Array:
    """Window by window: the elements inside the image, and the number of cells that count."""
    y = np.zeros((*x.shape[:2], *geometry.out), x.dtype)
    for place in np.ndindex(*geometry.out):
        inside, cells = [], 1
        for axis in range(2):
            start = place[axis] * geometry.stride[axis] - geometry.pad[axis]
            stop = start + geometry.size[axis]
            length = x.shape[2 + axis]
            inside.append(slice(max(start, 0), min(stop, length)))
            first, last = (-geometry.pad[axis], length + geometry.end_pad[axis])
            if not geometry.count_include_pad:
                first, last = 0, length
            cells *= min(stop, last) - max(start, first)
        for image, channel in np.ndindex(*x.shape[:2]):
            y[(image, channel, *place)] = reduce(x[(image, channel, *inside)], cells)
    return y


def correlate_weights(gy: Array, x: Array, w_shape: Shape, geometry: Windows) -> Array:
    """w = the sum, over images and places, of gy there times the window of x there."""
    w = np.zeros(w_shape, x.dtype)
    for place, window in _windows(x, w_shape[2:], geometry):
        for f, channels in _filters(w_shape, geometry.groups):
            w[f] += np.tensordot(gy[(slice(None), f, *place)], window[:, channels], 1)
    return w


def _convolve(x: Array, w: Array, geometry: Windows) -> Array:
    y = np.zeros((len(x), len(w), *output_shape(x.shape[2:], w.shape[2:], geometry)), x.dtype)
    for place, window in _windows(x, w.shape[2:], geometry):
        for f, channels in _filters(w.shape, geometry.groups):
            y[(slice(None), f, *place)] = (window[:, channels] * w[f]).reshape(len(x), -1).sum(axis=1)
    return y


def _deconvolve(x: Array, w: Array, geometry: Windows, output_padding: int = 0) -> Array:
    """Every pixel of x lays down its filters."""
    channels = w.shape[1] * geometry.groups
    size = [
        (n - 1) * s + d * (k - 1) + 1 - sum(geometry.pad[2 * i : 2 * i + 2]) + output_padding
        for i, (n, s, d, k) in enumerate(zip(x.shape[2:], geometry.stride, geometry.dilation, w.shape[2:], strict=True))
    ]

    def piece(place: Index) -> Array:
        filters = np.zeros((len(x), channels, *w.shape[2:]), x.dtype)
        for f, part in _filters(w.shape, geometry.groups):
            filters[:, part] += np.multiply.outer(x[(slice(None), f, *place)], w[f])
        return filters

    return _lay_down((len(x), channels, *size), w.shape[2:], geometry, piece)


def _lay_down(shape: Shape, kernel: Shape, geometry: Windows, piece: Callable[[Index], Array]) -> Array:
    """An image in which every window has had piece(place) added."""
    image = np.zeros(shape)
    for place, window in _windows(np.arange(np.prod(shape)).reshape(shape) + 1, kernel, geometry):
        seen = window > 0
        np.add.at(image.reshape(-1), window[seen] - 1, piece(place)[seen])
    return image


def _windows(x: Array, kernel: Shape, geometry: Windows) -> Iterator[tuple[Index, Array]]:
    """Each place of the output, and the window (batch, channels, *kernel) of the padded x that belongs to it."""
    sides = [(geometry.pad[i], geometry.pad[i + 1]) for i in range(0, len(geometry.pad), 2)]
    padded = np.pad(x, [(0, 0), (0, 0), *sides])
    for place in itertools.product(*map(range, output_shape(x.shape[2:], kernel, geometry))):
        window = tuple(
            slice(p * s, p * s + d * (k - 1) + 1, d)
            for p, s, d, k in zip(place, geometry.stride, geometry.dilation, kernel, strict=True)
        )
        yield place, padded[(slice(None), slice(None), *window)]


def _filters(w_shape: Shape, groups: int) -> Iterator[tuple[int, slice]]:
    """Each filter, and the channels it sees."""
    for f in range(w_shape[0]):
        first = f // (w_shape[0] // groups) * w_shape[1]
        yield f, slice(first, first + w_shape[1])

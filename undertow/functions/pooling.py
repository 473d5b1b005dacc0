"""Max and average pooling over windows of images, under the rules of PyTorch, Caffe and Darknet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand, Variable, as_variable
from undertow.errors import ShapeError
from undertow.functions.sampling import distinct
from undertow.functions.window_samples import POOLING, pool, pooling_samples
from undertow.functions.windows import Sizes, pair, sides
from undertow.kernels import select
from undertow.kernels.geometry import Pair, PoolGeometry, caffe_pooling, darknet_pooling, floor_pooling

__all__ = [
    "AvgPool2d",
    "AvgPool2dSpread",
    "MaxPool2d",
    "MaxPool2dGather",
    "MaxPool2dScatter",
    "avg_pool2d",
    "global_average_pool2d",
    "global_max_pool2d",
    "max_pool2d",
]

Array = np.ndarray[Any, Any]
Rule = Literal["floor", "caffe", "darknet"]


@register(
    "max_pool2d",
    gradient="twice",
    forward="y[i,c,p,q] = max over u,v of x[i,c, p s - top + u, q s - left + v], inside the image",
    backward="gx[where the maximum was found] += gy",
    samples=pooling_samples(
        POOLING,
        lambda x, **options: max_pool2d(x, **options),
        lambda *args, **options: pooling_geometry(*args, **options),
        distinct,
        lambda window, cells: window.max(),
    ),
)
class MaxPool2d(Function):
    """`max_pool2d` for a given geometry.

    indexes: after forward, for each output the winner's row*width + column in its plane; -1 where a window saw
    nothing. Kink: where two elements of a window are equal and largest; the first in reading order gets it all.
    """

    def __init__(self, geometry: PoolGeometry) -> None:
        self.geometry = geometry
        self.indexes: Any = None

    def forward(self, x: Array) -> Array:
        y, self.indexes = select.pool2d("max", x, self.geometry)
        return y

    def backward(self, gy: Array) -> Array:
        return select.pool2d_backward("max", gy, self.indexes, self.input.shape, self.geometry)

    def backward_graph(self, gy: Variable) -> Variable:
        return MaxPool2dScatter(self.indexes, self.input.shape, self.geometry)(gy)


def max_pool2d(
    x: Operand, size: Sizes, stride: Sizes | None = None, pad: Sizes | None = None, rule: Rule = "floor"
) -> Variable:
    """The largest element of each window.

    x: (batch, channels, height, width). size, stride: one number or (vertical, horizontal); stride is size when
    None. Padding never wins, it is minus infinity. pad and rule: see `pooling_geometry`.
    Returns (batch, channels, out_h, out_w). ShapeError where no window fits.
    """
    x = as_variable(x)
    return MaxPool2d(pooling_geometry(x.shape, size, stride, pad, rule))(x)


def _winners(rng: np.random.Generator) -> MaxPool2d:
    """A max pooling of a (1, 2, 4, 5) array that has run."""
    function = MaxPool2d(pooling_geometry((1, 2, 4, 5), 3, 2, 1))
    function(rng.standard_normal((1, 2, 4, 5)))
    return function


def _scatter_samples(rng: np.random.Generator) -> list[Sample]:
    pooled = _winners(rng)

    def expected(x: Array) -> Array:
        planes = np.zeros((2, 20))
        for (_, c, p, q), value in np.ndenumerate(x):
            planes[c, pooled.indexes[0, c, p, q]] += value
        return planes.reshape(1, 2, 4, 5)

    def call(x: Operand) -> Variable:
        return MaxPool2dScatter(pooled.indexes, (1, 2, 4, 5), pooled.geometry)(x)

    return [Sample((rng.standard_normal((1, 2, *pooled.geometry.out)),), call, expected)]


@register(
    "max_pool2d_scatter",
    gradient="twice",
    forward="y[where the maximum was found] += x",
    backward="gx = gy[where the maximum was found]",
    samples=_scatter_samples,
)
class MaxPool2dScatter(Function):
    """The way back of max pooling: every window hands its value to its winner.

    indexes: what `MaxPool2d` found. Takes (batch, channels, out_h, out_w), returns an array of x_shape.
    """

    def __init__(self, indexes: Array, x_shape: tuple[int, ...], geometry: PoolGeometry) -> None:
        self.indexes, self.x_shape, self.geometry = indexes, x_shape, geometry

    def forward(self, x: Array) -> Array:
        return select.pool2d_backward("max", x, self.indexes, self.x_shape, self.geometry)

    def backward_graph(self, gy: Variable) -> Variable:
        return MaxPool2dGather(self.indexes, self.x_shape, self.geometry)(gy)


def _gather_samples(rng: np.random.Generator) -> list[Sample]:
    pooled = _winners(rng)

    def expected(x: Array) -> Array:
        return np.stack([plane.reshape(-1)[at] for plane, at in zip(x[0], pooled.indexes[0], strict=True)])[None]

    def call(x: Operand) -> Variable:
        return MaxPool2dGather(pooled.indexes, (1, 2, 4, 5), pooled.geometry)(x)

    return [Sample((rng.standard_normal((1, 2, 4, 5)),), call, expected)]


@register(
    "max_pool2d_gather",
    gradient="twice",
    forward="y = x[where the maximum was found]",
    backward="gx[where the maximum was found] += gy",
    samples=_gather_samples,
)
class MaxPool2dGather(Function):
    """Reads x at the winners of an earlier max pooling, 0 where a window had none: transposes `MaxPool2dScatter`."""

    def __init__(self, indexes: Array, x_shape: tuple[int, ...], geometry: PoolGeometry) -> None:
        self.indexes, self.x_shape, self.geometry = indexes, x_shape, geometry

    def forward(self, x: Array) -> Array:
        return select.max_pool2d_gather(x, self.indexes)

    def backward_graph(self, gy: Variable) -> Variable:
        return MaxPool2dScatter(self.indexes, self.x_shape, self.geometry)(gy)


@register(
    "avg_pool2d",
    gradient="twice",
    forward="y[i,c,p,q] = (sum over u,v of x[i,c, p s - top + u, q s - left + v]) / cells of the window",
    backward="gx[i,c,y,x] = sum over the windows that see it of gy / cells of the window",
    samples=pooling_samples(
        [*POOLING, ((1, 2, 4, 5), "own cells", {"size": 3, "stride": 2, "pad": 1, "count_include_pad": False})],
        lambda x, **options: avg_pool2d(x, **options),
        lambda *args, **options: pooling_geometry(*args, **options),
        lambda rng, shape: rng.standard_normal(shape),
        lambda window, cells: window.sum() / cells,
    ),
)
class AvgPool2d(Function):
    """`avg_pool2d` for a given geometry."""

    def __init__(self, geometry: PoolGeometry) -> None:
        self.geometry = geometry

    def forward(self, x: Array) -> Array:
        return select.pool2d("average", x, self.geometry)[0]

    def backward_graph(self, gy: Variable) -> Variable:
        return AvgPool2dSpread(self.input.shape, self.geometry)(gy)


def avg_pool2d(
    x: Operand,
    size: Sizes,
    stride: Sizes | None = None,
    pad: Sizes | None = None,
    rule: Rule = "floor",
    count_include_pad: bool = True,
) -> Variable:
    """The mean of each window, padding being 0.

    x: (batch, channels, height, width). size, stride: one number or (vertical, horizontal); stride is size when
    None. pad and rule: see `pooling_geometry`. count_include_pad: divide by the window's cells inside image plus
    padding; False: by those inside the image.
    Returns (batch, channels, out_h, out_w). ShapeError where no window fits.
    """
    x = as_variable(x)
    return AvgPool2d(pooling_geometry(x.shape, size, stride, pad, rule, count_include_pad))(x)


def _spread_samples(rng: np.random.Generator) -> list[Sample]:
    shape = (1, 2, 4, 5)
    geometry = pooling_geometry(shape, 3, 2, 1)

    def expected(x: Array) -> Array:
        """Image by image of one pixel: what its average contributes to every window is what it gets back."""
        pixels = np.eye(20).reshape(20, 1, 4, 5)
        shares = pool(pixels, geometry, lambda window, cells: window.sum() / cells).reshape(20, -1)
        return (x.reshape(2, -1) @ shares.T).reshape(shape)

    return [
        Sample((rng.standard_normal((1, 2, *geometry.out)),), lambda x: AvgPool2dSpread(shape, geometry)(x), expected)
    ]


@register(
    "avg_pool2d_spread",
    gradient="twice",
    forward="y[i,c,y,x] = sum over the windows that see it of x / cells of the window",
    backward="gx = avg_pool2d(gy)",
    samples=_spread_samples,
)
class AvgPool2dSpread(Function):
    """The way back of average pooling, its transpose: from (batch, channels, out_h, out_w) to x_shape."""

    def __init__(self, x_shape: tuple[int, ...], geometry: PoolGeometry) -> None:
        self.x_shape, self.geometry = x_shape, geometry

    def forward(self, x: Array) -> Array:
        return select.pool2d_backward("average", x, None, self.x_shape, self.geometry)

    def backward_graph(self, gy: Variable) -> Variable:
        return AvgPool2d(self.geometry)(gy)


def global_average_pool2d(x: Operand) -> Variable:
    """The mean of each channel's plane: (batch, channels, height, width) to (batch, channels, 1, 1)."""
    return as_variable(x).mean(axis=(2, 3), keepdims=True)


def global_max_pool2d(x: Operand) -> Variable:
    """The largest element of each channel's plane: (batch, channels, height, width) to (batch, channels, 1, 1)."""
    x = as_variable(x)
    return max_pool2d(x, x.shape[2:])


def pooling_geometry(
    x_shape: tuple[int, ...],
    size: Sizes,
    stride: Sizes | None = None,
    pad: Sizes | None = None,
    rule: Rule = "floor",
    count_include_pad: bool = True,
) -> PoolGeometry:
    """Which windows a pooling looks at.

    rule "floor" (PyTorch and most others): pad is one number, (vertical, horizontal) or (top, bottom, left, right),
    0 when None; out = floor((in + pads - size) / stride) + 1.
    rule "caffe": pad is one number or (vertical, horizontal), on both sides, 0 when None; rounds up, and drops a
    last window that would start beyond image and padding.
    rule "darknet": size and stride are one number each; pad is the sum of both sides, size - 1 when None; the
    first window starts pad/2 before the image.
    count_include_pad: see `avg_pool2d`. ShapeError where no window fits.
    """
    if len(x_shape) != 4:
        raise ShapeError(f"pooling needs an input (batch, channels, height, width), got {x_shape}")
    window = pair(size, "size")
    step = window if stride is None else pair(stride, "stride")
    geometry = _RULES[_known(rule)](x_shape[2:], window, step, pad)
    return replace(geometry, count_include_pad=count_include_pad)


def _floor_rule(image: tuple[int, ...], size: Pair, stride: Pair, pad: Sizes | None) -> PoolGeometry:
    return floor_pooling(image[0], image[1], size, stride, sides(0 if pad is None else pad))


def _caffe_rule(image: tuple[int, ...], size: Pair, stride: Pair, pad: Sizes | None) -> PoolGeometry:
    return caffe_pooling(image[0], image[1], size, stride, pair(0 if pad is None else pad, "pad"))


def _darknet_rule(image: tuple[int, ...], size: Pair, stride: Pair, pad: Sizes | None) -> PoolGeometry:
    if size[0] != size[1] or stride[0] != stride[1] or not isinstance(pad, int | None):
        raise ShapeError(f"Darknet's pooling takes one number for size, stride and pad, got {size}, {stride}, {pad}")
    return darknet_pooling(image[0], image[1], size[0], stride[0], pad)


_RULES = {"floor": _floor_rule, "caffe": _caffe_rule, "darknet": _darknet_rule}


def _known(rule: Rule) -> Rule:
    if rule not in _RULES:
        raise ValueError(f"the rule of a pooling is one of {', '.join(_RULES)}, got {rule!r}")
    return rule

"""Layers of the R-CNN family: ROIPooling and PSROIPooling, which read regions of a map, and SmoothL1Loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import undertow.functions as F
from undertow.caffe.layer import IndexBottom, Results, Shapes, integers
from undertow.caffe.layers_forks import image_shape
from undertow.caffe.layers_loss import Loss
from undertow.core.variable import Variable

Array = np.ndarray[Any, Any]
Variables = Sequence[Variable]
_FAR = 1e9  # corners beyond it are as far outside of every map


def rounded(values: Array) -> Array:
    """To whole numbers, halves away from 0, as C's round does."""
    return np.trunc(values + np.copysign(0.5, values))


class _Regions(IndexBottom):
    """Bottoms: a map (n, channels, h, w) and regions (r, 5) with rows image, left, top, right, bottom in pixels.

    Regions come from layers of proposals, which lie above parameters: the gradient asked for there is 0, as it is in
    the original.
    """

    def check_backward(self) -> None:
        """Nothing is refused."""

    def size(self) -> tuple[int, int]:
        """Cells of a region: (rows, columns)."""
        raise NotImplementedError

    def channels(self, bottom: int) -> int:
        """Channels of the top for those of the map."""
        return bottom

    def top_shapes(self, bottom: Shapes) -> Shapes:
        _, channels, _, _ = image_shape(self, bottom[0])
        if len(bottom[1]) < 2 or math.prod(bottom[1][1:]) != 5:
            raise self.error(
                f"regions (r, 5) with image, left, top, right and bottom are needed, got {bottom[1]}",
                remedy="give them as (image, x1, y1, x2, y2)",
            )
        return [(bottom[1][0], self.channels(channels), *self.size())]

    def regions(self, bottom: Variables) -> tuple[Array, Array]:
        """Images (r,) and corners (r, 4)."""
        rows = bottom[1].data.reshape(-1, 5)
        images = integers(np.nan_to_num(rows[:, 0], nan=-1.0).clip(-_FAR, _FAR))
        if images.size and not (images.min() >= 0 and images.max() < bottom[0].shape[0]):
            raise self.error(
                f"a region lies in image {images[(images < 0) | (images >= bottom[0].shape[0])][0]}, "
                f"the batch has {bottom[0].shape[0]}",
                remedy="number the images from 0 on, as they lie in the batch",
            )
        if not np.isfinite(rows).all():
            raise self.error("a region's corner is not a number", remedy="look where the regions come from")
        return images, rows[:, 1:].clip(-_FAR, _FAR)


class ROIPooling(_Regions):
    """The largest value in each cell of a grid laid over each region; 0 in cells outside the map. From Fast R-CNN.

    Regions are rounded to places of the map (times spatial_scale), and at least one place large. Of equal values the
    first one gets the gradient.
    """

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.roi_pooling_param
        if min(self.size()) < 1 or o.spatial_scale <= 0:
            raise self.refusal("pooled_h and pooled_w must be given, 1 or more, and spatial_scale above 0",
                               "write pooled_h: 7 pooled_w: 7 spatial_scale: 0.0625", "roi_pooling_param")  # fmt: skip

    def size(self) -> tuple[int, int]:
        o = self.message.roi_pooling_param
        return int(o.pooled_h), int(o.pooled_w)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, (images, corners) = bottom[0], self.regions(bottom)
        n, channels, height, width = x.shape
        scale = corners.dtype.type(self.message.roi_pooling_param.spatial_scale)
        left, top, right, below = rounded(corners * scale).astype(np.int64).T
        rows = [cell_edges(a, b - a + 1, self.size()[0], height) for a, b in zip(top, below, strict=True)]
        columns = [cell_edges(a, b - a + 1, self.size()[1], width) for a, b in zip(left, right, strict=True)]
        places = np.full((len(images), channels, *self.size()), -1)
        planes = np.arange(n * channels).reshape(n, channels) * height * width
        for region, image in enumerate(images):
            for i, (first, last) in enumerate(rows[region]):
                for j, (start, end) in enumerate(columns[region]):
                    if first < last and start < end:
                        best = x.data[image, :, first:last, start:end].reshape(channels, -1).argmax(1)
                        row, column = np.divmod(best, end - start)
                        places[region, :, i, j] = planes[image] + (first + row) * width + start + column
        found = x.reshape((-1,))[places.clip(0).reshape(-1)].reshape(places.shape)
        return F.where(places >= 0, found, np.zeros((), x.dtype))


def cell_edges(start: float, length: float, cells: int, limit: int) -> list[tuple[int, int]]:
    """First and last + 1 of the places in each cell of a stretch, kept within 0..limit."""
    size = max(length, 1) / cells
    firsts = (math.floor(cell * size) + start for cell in range(cells))
    lasts = (math.ceil((cell + 1) * size) + start for cell in range(cells))
    return [(_within(a, limit), _within(b, limit)) for a, b in zip(firsts, lasts, strict=True)]


def _within(value: float, limit: int) -> int:
    return int(min(max(value, 0), limit))


class PSROIPooling(_Regions):
    """The mean of each cell of a grid laid over each region, each cell from channels of its own. From R-FCN.

    output_dim results from output_dim * group_size^2 channels; cells outside the map are 0.
    """

    def setup(self, bottom: Shapes, tops: int) -> None:
        o = self.message.psroi_pooling_param
        if min(o.output_dim, o.group_size) < 1 or o.spatial_scale <= 0:
            raise self.refusal("output_dim and group_size must be 1 or more, and spatial_scale above 0",
                               "write output_dim: the number of classes, group_size: 7, spatial_scale: 0.0625",
                               "psroi_pooling_param")  # fmt: skip

    def size(self) -> tuple[int, int]:
        return (int(self.message.psroi_pooling_param.group_size),) * 2

    def channels(self, bottom: int) -> int:
        o = self.message.psroi_pooling_param
        if bottom != o.output_dim * o.group_size**2:
            raise self.error(
                f"output_dim: {o.output_dim} and group_size: {o.group_size} need "
                f"{o.output_dim * o.group_size**2} channels, the map has {bottom}",
                remedy=f"give the convolution before it num_output: {o.output_dim * o.group_size**2}",
            )
        return int(o.output_dim)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x, (images, corners) = bottom[0], self.regions(bottom)
        group, results = self.size()[0], int(self.message.psroi_pooling_param.output_dim)
        height, width = x.shape[2:]
        scale = float(self.message.psroi_pooling_param.spatial_scale)
        left, top, right, below = ((rounded(corners) + np.array([0, 0, 1, 1])) * scale).T
        rows = spans(top, below, group, height)
        columns = spans(left, right, group, width)
        # Weights of rows and columns make each mean two sums of products.
        maps = x.reshape((x.shape[0], results, group, group, height, width))[images]
        inner = F.einsum("rcijhw,rjw->rcijh", maps, columns.astype(x.dtype))
        return F.einsum("rcijh,rih->rcij", inner, rows.astype(x.dtype))


def spans(start: Array, end: Array, cells: int, limit: int) -> Array:
    """For each region and cell the weights of the places 0..limit, their sum 1, or 0 where the cell has none."""
    size = np.maximum(end - start, 0.1) / cells
    index = np.arange(cells)
    first = np.floor(index * size[:, None] + start[:, None]).clip(0, limit)
    last = np.ceil((index + 1) * size[:, None] + start[:, None]).clip(0, limit)
    place = np.arange(limit)
    inside = (place >= first[..., None]) & (place < last[..., None])
    return inside / np.maximum(last - first, 1)[..., None]


class SmoothL1Loss(Loss):
    """Huber's loss of bottom 0 minus bottom 1, summed and divided by the batch: s^2 d^2 / 2 up to 1 / s^2, then |d|.

    Bottom 2 weighs the difference, bottom 3 the loss; s is `sigma`. Weights get a gradient of 0, which layers of
    proposals may ask for. From Fast R-CNN and SSD.
    """

    index_bottoms = (2, 3)

    def check_backward(self) -> None:
        """Nothing is refused."""

    def top_shapes(self, bottom: Shapes) -> Shapes:
        if any(math.prod(shape[1:]) != math.prod(bottom[0][1:]) for shape in bottom):
            raise self.error(
                f"the bottoms must hold as many values each, their shapes are {', '.join(map(str, bottom))}",
                remedy="give blobs of one shape",
            )
        return super().top_shapes(bottom)

    def compute(self, bottom: Variables, params: Variables) -> Results:
        x = bottom[0]
        difference = x - bottom[1].reshape(x.shape)
        if len(bottom) > 2:
            difference = difference * bottom[2].data.reshape(x.shape)
        beta = 1 / self.message.smooth_l1_loss_param.sigma**2
        losses = F.smooth_l1_loss(difference, np.zeros_like(difference.data), beta, reduction="none")
        if len(bottom) > 3:
            losses = losses * bottom[3].data.reshape(x.shape)
        return losses.sum() * (1 / x.shape[0])

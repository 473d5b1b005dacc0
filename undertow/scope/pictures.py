"""Maps and pictures as images for a page: grey levels that the page colours, with the range they stand for."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from undertow.data.images import to_pixels
from undertow.inspect.record import Array

THUMBNAILS = 16
SIDE = 64
# Larger maps are stored as JPEG, in whole blocks of 8 pixels so that no map bleeds into its neighbour.
_EXACT_SIDE = 16
_BLOCK = 8
_QUALITY = 60


@dataclass(frozen=True)
class Share:
    """What a page holds of a layer's maps: how many thumbnails, of at most how many pixels a side."""

    most: int = THUMBNAILS
    side: int = SIDE


# Of nets of ever more layers.
SHARES = (Share(), Share(8, 64), Share(8, 32), Share(4, 32), Share(2, 32), Share(1, 16))


@dataclass(frozen=True)
class Sheet:
    """Maps side by side. image: its bytes. size: (height, width) of a map, stride of one to the next (width of a cell).

    limit: level 255 stands for it, 128 for 0 and 1 for minus it.
    """

    image: bytes
    kind: str
    size: tuple[int, int]
    stride: int
    limit: float

    @property
    def address(self) -> str:
        """As a data: address."""
        return f"data:{self.kind};base64," + base64.b64encode(self.image).decode("ascii")


def chosen_channels(output: Array | None, gradient: Array | None, most: int = THUMBNAILS) -> list[int]:
    """At most so many channels of (1, c, h, w): those with the largest gradients, else outputs; in order."""
    maps = gradient if gradient is not None and np.any(gradient) else output
    if maps is None or maps.ndim != 4:
        return []
    weight = np.nan_to_num(np.square(maps[0].astype(np.float64)).sum(axis=(1, 2)))
    return sorted(int(i) for i in np.argsort(-weight, kind="stable")[:most])


def sheet(array: Array, channels: list[int], side: int = SIDE) -> Sheet:
    """Those channels of (1, c, h, w), each at most `side` pixels wide and high."""
    maps = np.nan_to_num(array[0, channels].astype(np.float32), posinf=0, neginf=0)
    limit = float(np.abs(maps).max(initial=0.0))
    maps = _shrunk(maps, side)
    height, width = maps.shape[1:]
    exact = max(height, width) <= _EXACT_SIDE
    tall, stride = (height, width) if exact else (_blocks(height), _blocks(width))
    levels = np.full((tall, stride * len(channels)), 128, np.uint8)
    scaled = np.rint(128 + 127 * (maps / limit if limit else maps))
    for place, one in enumerate(scaled):
        levels[:height, place * stride : place * stride + width] = one
    stream = io.BytesIO()
    if exact:
        Image.fromarray(levels).save(stream, "PNG", optimize=True)
    else:
        Image.fromarray(levels).save(stream, "JPEG", quality=_QUALITY)
    return Sheet(stream.getvalue(), "image/png" if exact else "image/jpeg", (height, width), stride, limit)


def _blocks(length: int) -> int:
    return -(-length // _BLOCK) * _BLOCK


def _shrunk(maps: Array, side: int) -> Array:
    """Means over whole blocks, so that what is small but strong stays visible."""
    height, width = maps.shape[1:]
    factor = -(-max(height, width) // side)
    if factor <= 1:
        return maps
    tall, wide = -(-height // factor) * factor, -(-width // factor) * factor
    padded = np.pad(maps, ((0, 0), (0, tall - height), (0, wide - width)), mode="edge")
    blocks = padded.reshape(len(maps), tall // factor, factor, wide // factor, factor)
    return np.asarray(blocks.mean(axis=(2, 4)))


def picture_address(picture: Array) -> str:
    """A picture (1 or 3 channels, h, w) of 0..1 as a data: address; JPEG unless it is small."""
    pixels = to_pixels(picture)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    stream = io.BytesIO()
    small = max(image.size) <= 2 * SIDE
    if small:
        image.save(stream, "PNG", optimize=True)
    else:
        image.save(stream, "JPEG", quality=85)
    kind = "image/png" if small else "image/jpeg"
    return f"data:{kind};base64," + base64.b64encode(stream.getvalue()).decode("ascii")

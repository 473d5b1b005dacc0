"""Pictures as Caffe's OpenCV reads, resizes and encodes them: uint8, (channels, height, width), blue first.

Grey of a JPEG is its luma; grey of a PNG follows libpng, of other files OpenCV's own weights. As in OpenCV, samples
of 16 bits give their high byte, alpha is dropped (kept where a picture is taken as stored), and pictures with an EXIF
orientation are turned upright unless they are taken as stored.
"""

from __future__ import annotations

import io
import os
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from undertow.data.images import FORMATS, MAX_PIXELS
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

_PNG_WEIGHTS, _PNG_SHIFT, _PNG_ROUND = (9797, 19234, 3737), 15, 0
_OPENCV_WEIGHTS, _OPENCV_SHIFT, _OPENCV_ROUND = (4899, 9617, 1868), 14, 1 << 13
_COEFFICIENT = 2048  # OpenCV resizes bytes with weights of 11 bits
_ENCODINGS = {"jpg": "JPEG", "jpeg": "JPEG", "jpe": "JPEG", "png": "PNG", "bmp": "BMP", "ppm": "PPM", "tiff": "TIFF",
              "tif": "TIFF", "webp": "WEBP"}  # fmt: skip


def read_picture(path: PathLike, color: bool | None = True, *, max_pixels: int = MAX_PIXELS) -> Array:
    """A picture file; `decode` says how. Raises FormatError where it cannot be read."""
    return decode(read_file(path), color, file=path, max_pixels=max_pixels)


def read_file(path: PathLike) -> bytes:
    """All bytes of a file."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise FormatError(f"cannot be opened ({reason})", file=path, remedy="check the path") from problem


def decode(
    data: bytes,
    color: bool | None = True,
    *,
    file: PathLike | None = None,
    what: str = "",
    max_pixels: int = MAX_PIXELS,
) -> Array:
    """The picture in the bytes of its file: BGR (color True), grey (False), or as stored (None: 1, 3 or 4 channels).

    file, what: for messages. Raises FormatError for bytes that are no whole picture, and for headers that claim more
    than `max_pixels`.
    """
    prefix = f"{what}: " if what else ""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise FormatError(
                    f"{prefix}the picture claims {width} x {height} pixels, too many",
                    file=file,
                    remedy=f"use pictures of at most {MAX_PIXELS} pixels",
                )
            if color is False and image.format in ("JPEG", "MPO"):
                image.draft("L", None)
            image.load()
            kind = image.format or ""
            upright = image if color is None else _turned(image)
            return _samples(upright, kind, color)
    except FormatError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as problem:
        raise FormatError(
            f"{prefix}the picture claims more than {MAX_PIXELS} pixels, too many",
            file=file,
            remedy=f"use pictures of at most {MAX_PIXELS} pixels",
        ) from problem
    except UnidentifiedImageError as problem:
        formats = ", ".join(FORMATS)
        raise FormatError(
            f"{prefix}this is no picture in a known format", file=file, remedy=f"use {formats}"
        ) from problem
    except Exception as problem:  # Pillow's readers raise nearly anything on damaged files
        raise FormatError(
            f"{prefix}the picture is cut short or damaged ({problem})", file=file, remedy="replace the picture"
        ) from problem


def _turned(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data does not hurt the picture
        return image


def _samples(image: Image.Image, kind: str, color: bool | None) -> Array:
    stored = _stored(image)
    channels = len(stored)
    if color is None:
        return stored
    if color:
        return np.repeat(stored[:1], 3, axis=0) if channels < 3 else np.ascontiguousarray(stored[:3])
    if channels < 3:
        return stored[:1]
    return _grey(stored, *((_PNG_WEIGHTS, _PNG_SHIFT, _PNG_ROUND) if kind == "PNG" else
                           (_OPENCV_WEIGHTS, _OPENCV_SHIFT, _OPENCV_ROUND)))  # fmt: skip


def _stored(image: Image.Image) -> Array:
    """The channels of the file, uint8: grey, BGR or BGRA."""
    if image.mode.startswith("I"):
        return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)[None]
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode in ("LA", "PA", "La"):
        image = image.convert("RGBA")
    elif image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    samples = np.asarray(image)
    if samples.ndim == 2:
        return samples[None].copy()
    order = [2, 1, 0, 3][: samples.shape[2]]
    return np.ascontiguousarray(samples.transpose(2, 0, 1)[order])


def _grey(bgr: Array, weights: tuple[int, int, int], shift: int, half: int) -> Array:
    blue, green, red = (bgr[index].astype(np.uint32) for index in range(3))
    total = weights[0] * red + weights[1] * green + weights[2] * blue + half
    return (total >> shift).astype(np.uint8)[None]


def opencv_grey(picture: Array) -> Array:
    """cv::cvtColor from BGR bytes (3, height, width) to grey ones (1, height, width)."""
    return _grey(picture, _OPENCV_WEIGHTS, _OPENCV_SHIFT, _OPENCV_ROUND)


def recompressed(picture: Array, quality: int) -> Array:
    """The picture as it comes back from a JPEG file of this quality (1 to 100)."""
    return decode(encode_picture(picture, "jpg", quality=quality), len(picture) == 3)


def resize_picture(picture: Array, height: int, width: int) -> Array:
    """cv::resize with INTER_LINEAR on bytes, (channels, height, width) -> (channels, new height, new width).

    Half-pixel centres, edges held, the fixed-point arithmetic of OpenCV; halving both sides averages, as there.
    """
    if min(*picture.shape, height, width) < 1:
        raise ShapeError(
            f"a picture of shape {picture.shape} cannot be resized to {height} x {width}",
            remedy="give a height and a width of at least 1",
        )
    if height * width > MAX_PIXELS:
        raise ShapeError(
            f"a picture cannot be resized to {height} x {width} pixels, these are too many",
            remedy=f"at most {MAX_PIXELS} in all",
        )
    rows, columns = picture.shape[1:]
    if (rows, columns) == (height, width):
        return picture
    if (rows, columns) == (2 * height, 2 * width):
        wide = picture.astype(np.uint16)
        total = wide[:, ::2, ::2] + wide[:, ::2, 1::2] + wide[:, 1::2, ::2] + wide[:, 1::2, 1::2]
        return ((total + 2) >> 2).astype(np.uint8)
    left, right, first, second = _taps(columns, width, hold=True)
    wide = picture.astype(np.int32)
    lines = wide[:, :, left] * first + wide[:, :, right] * second
    upper, lower, above, below = _taps(rows, height, hold=False)
    lines >>= 4
    blended = (lines[:, upper] * above[:, None] >> 16) + (lines[:, lower] * below[:, None] >> 16)
    return ((blended + 2) >> 2).clip(0, 255).astype(np.uint8)


@lru_cache(maxsize=256)
def _taps(size_in: int, size_out: int, hold: bool) -> tuple[Array, Array, Array, Array]:
    """Both neighbours of each output position and their weights in 1/2048.

    hold: beyond the edge one neighbour has all the weight. OpenCV does so for columns; for rows it blends the outermost
    row with itself, and its rounding shows.
    """
    scale = size_in / size_out
    position = ((np.arange(size_out) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(position).astype(np.int64)
    share = position - first.astype(np.float32)
    if hold:
        share[(first < 0) | (first >= size_in - 1)] = 0
    weight = np.rint(share * _COEFFICIENT).astype(np.int32)
    opposite = np.rint((np.float32(1) - share) * _COEFFICIENT).astype(np.int32)
    return first.clip(0, size_in - 1), (first + 1).clip(0, size_in - 1), opposite, weight


def encoder(encoding: str) -> str:
    """Pillow's name of an encoding ("png", "jpg", ".JPEG"...). Raises FormatError for one that is not known."""
    name = _ENCODINGS.get(encoding.lower().removeprefix("."))
    if name is None:
        raise FormatError(f"there is no encoding '{encoding}'", remedy=f"use one of {', '.join(_ENCODINGS)}")
    return name


def encode_picture(picture: Array, encoding: str, quality: int = 95) -> bytes:
    """cv::imencode. encoding: "png", "jpg", ... quality: of JPEG, 95 as there. Raises FormatError."""
    name = encoder(encoding)
    pixels = picture[0] if len(picture) == 1 else np.ascontiguousarray(picture[::-1].transpose(1, 2, 0))
    stream = io.BytesIO()
    options = {"quality": quality} if name == "JPEG" else {"lossless": True} if name == "WEBP" else {}
    Image.fromarray(pixels).save(stream, format=name, **options)
    return stream.getvalue()

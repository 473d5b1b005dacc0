"""Reading and writing pictures.

A picture is a float32 array (channels, height, width) of values 0..1 with red first, as in Darknet. Files are told
apart by content, never by name. Orientation: by default the pixels come as they are stored, as in the 2018 Darknet
(its labels were made that way); `orientation="exif"` turns them as the camera asked. TIFF files, which the
original cannot read, are always upright.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from undertow.errors import FormatError, ShapeError, UndertowWarning
from undertow.files import atomic_write

PathLike = str | os.PathLike[str]
Orientation = Literal["raw", "exif"]

# Readers that work inside this process on the given bytes alone (EPS, for one, would start a program).
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TGA", "TIFF", "WEBP")
# Pillow's own mark above which it suspects a decompression bomb: 1 GiB of float32 in three channels.
MAX_PIXELS = 89_478_485
EXIF_ORIENTATION = 0x0112
_GREY_16_BIT = ("I;16", "I;16B", "I;16L", "I;16N", "I")


def load_image(
    path: PathLike,
    channels: int = 3,
    orientation: Orientation = "raw",
    *,
    labelled: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.float32]:
    """Read a picture as float32 (channels, height, width), 0..1; Darknet's `load_image_stb`.

    The arguments and errors are those of `load_pixels`.
    """
    pixels = load_pixels(path, channels, orientation, labelled=labelled, max_pixels=max_pixels)
    return to_float(pixels)


def load_pixels(
    path: PathLike,
    channels: int = 3,
    orientation: Orientation = "raw",
    *,
    labelled: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Read a picture as uint8 (height, width, channels).

    channels: 3 (grey is repeated, alpha dropped and not blended), 1 (grey), or 0 for what the file holds
        (1 grey, 2 grey and alpha, 3 colour, 4 colour and alpha; CMYK comes as 3).
    orientation: "raw" or "exif", see above.
    labelled: boxes belong to this picture; then a rotation tag that "raw" leaves aside is an UndertowWarning.
    max_pixels: a header that claims more is refused before anything is decoded; at most twice the default.
    16-bit samples give their high byte, as the original's decoders do. A JPEG file that lacks nothing but its end
    marker is read, with an UndertowWarning.
    Raises FormatError, with the path, for files that are missing, cut short, damaged, too large or no picture.
    """
    if channels not in (0, 1, 3):
        raise ShapeError(f"a picture can be read with 1 or 3 channels or 0 (as stored), not {channels}", file=path)
    if orientation not in ("raw", "exif"):
        raise ValueError(f"orientation is 'raw' or 'exif', not {orientation!r}")
    with _opened(path) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise _too_large(path, f"{width} x {height}")
        if channels == 1 and image.format in ("JPEG", "MPO"):
            image.draft("L", None)  # the decoder's own luma, which is what both original decoders return
        try:
            image.load()
            whole = None
        except OSError:
            whole = _without_end_marker(path, image)
            if whole is None:
                raise
    if whole is not None:
        image = whole
        _warn_of_missing_end(path)
    tag = _orientation_tag(image)
    if tag != 1 and orientation == "raw" and labelled:
        _warn_of_rotation(path, tag)
    samples = _as_channels(_samples(path, image), channels)
    return np.ascontiguousarray(_UPRIGHT[tag](samples)) if orientation == "exif" else samples


def to_float(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 (height, width, channels) -> float32 (channels, height, width), divided by 255."""
    return np.divide(pixels.transpose(2, 0, 1), np.float32(255), dtype=np.float32, order="C")


def to_pixels(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """float (channels, height, width) -> uint8 (height, width, channels), rounded, values clipped to 0..1."""
    if image.ndim != 3:
        raise ShapeError(f"a picture has three dimensions (channels, height, width), not {image.shape}")
    scaled = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(scaled.transpose(1, 2, 0))


def image_size(path: PathLike, orientation: Orientation = "raw") -> tuple[int, int]:
    """(width, height) as `load_image` would give it, from the header alone. Raises FormatError as it does."""
    with _opened(path) as image:
        width, height = image.size
        turned = orientation == "exif" and _orientation_tag(image) >= 5
        return (height, width) if turned else (width, height)


def check_image(path: PathLike) -> tuple[int, int]:
    """(width, height) of a picture that looks whole, quickly: JPEG, PNG and WEBP files by header and end.

    Files of other formats, and those that do not end as theirs do, are decoded; what they hold is told as `load_image`
    tells it. Damage in the midst of a file is not noticed. Raises FormatError as `load_image` does.
    """
    with _opened(path) as image:
        size, form = image.size, image.format
    if size[0] * size[1] > MAX_PIXELS:
        raise _too_large(path, f"{size[0]} x {size[1]}")
    if not _ends_well(path, form):
        load_pixels(path, 0)
    return size


def _ends_well(path: PathLike, form: str | None) -> bool:
    """Whether a file's last bytes are those that its format ends with; what cameras add behind them may be short."""
    with open(path, "rb") as stream:
        head = stream.read(8)
        length = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, length - _TRAILER))
        tail = stream.read(_TRAILER)
    if form in ("JPEG", "MPO"):
        return b"\xff\xd9" in tail
    if form == "PNG":
        return b"IEND\xaeB`\x82" in tail
    return form == "WEBP" and int.from_bytes(head[4:8], "little") + 8 <= length


_TRAILER = 1024


def save_image(image: NDArray[np.floating], path: PathLike, quality: int = 90) -> None:
    """Write a picture, float (1 or 3 channels, height, width) of 0..1, beside `path` and rename it.

    The format follows the name: .png, .jpg or .jpeg (quality 1..95), .bmp. Raises ShapeError for other shapes.
    """
    suffix = Path(path).suffix.lower()
    formats = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP"}
    if suffix not in formats:
        raise FormatError(f"cannot write a picture named '*{suffix}'", file=path, remedy="name it .png or .jpg")
    pixels = to_pixels(image)
    if pixels.shape[2] not in (1, 3):
        raise ShapeError(f"a picture to save has 1 or 3 channels, not {pixels.shape[2]}")
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    options = {"quality": quality, "subsampling": 0} if formats[suffix] == "JPEG" else {}
    with atomic_write(path) as stream:
        picture.save(stream, format=formats[suffix], **options)


@contextlib.contextmanager
def _opened(path: PathLike) -> Iterator[Image.Image]:
    """Open a picture; whatever Pillow raises inside the block comes out as a FormatError with the path."""
    try:
        with open(path, "rb") as stream, Image.open(stream, formats=FORMATS) as image:
            yield image
    except FormatError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(path, f"over {2 * MAX_PIXELS}") from error
    except UnidentifiedImageError as error:
        raise _unknown(path) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # Pillow's readers raise nearly anything on damaged files
        raise _damaged(path, error) from error


def _without_end_marker(path: PathLike, image: Image.Image) -> Image.Image | None:
    """The picture of a JPEG file that lacks only its end marker; None where more is missing.

    Where nothing is missing, what follows the file's last byte cannot change a pixel; where a bit is, it can. Files in
    several scans or with restart markers are left out: what is missing after one of them would not show.
    """
    if image.format != "JPEG" or "progressive" in image.info:
        return None
    data = Path(path).read_bytes().rstrip(b"\xff")
    scan = data.rfind(b"\xff\xda")
    if scan < 0 or data[scan + 4 : scan + 5] != bytes([getattr(image, "layers", 0)]):
        return None
    if b"\xff\xd9" in data[scan:] or b"\xff\xdd" in data[:scan]:
        return None
    read = [_ended(data + tail * 64, image.mode) for tail in _TAILS]
    if any(np.asarray(one).tobytes() != np.asarray(read[0]).tobytes() for one in read):
        return None
    return read[0]


# Zeros and ones, and two patterns that differ in every bit, as they stand in the data of a JPEG file.
_TAILS = (b"\x00", b"\xff\x00", b"\x55", b"\xaa")


def _ended(data: bytes, mode: str) -> Image.Image:
    """The JPEG file's data with an end marker, decoded in this mode of colour."""
    image = Image.open(io.BytesIO(data + b"\xff\xd9"), formats=("JPEG",))
    if mode == "L":
        image.draft("L", None)
    image.load()
    return image


def _orientation_tag(image: Image.Image) -> int:
    """The EXIF orientation, 1..8; 1 (upright) where there is none, or none that can be read.

    TIFF is always 1: there orientation belongs to the format itself, and Pillow hands out upright pixels.
    """
    if image.format == "TIFF":
        return 1
    try:
        tag = image.getexif().get(EXIF_ORIENTATION, 1)
    except Exception:  # damaged EXIF data does not hurt the picture
        return 1
    return tag if tag in _UPRIGHT else 1


# What turns stored rows and columns (height, width, channels) upright, by EXIF orientation.
_UPRIGHT: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: stored[::-1].transpose(1, 0, 2),
    7: lambda stored: stored[::-1, ::-1].transpose(1, 0, 2),
    8: lambda stored: stored[:, ::-1].transpose(1, 0, 2),
}


def _warn_of_missing_end(path: PathLike) -> None:
    warnings.warn(
        UndertowWarning(
            f"{os.fspath(path)}: the JPEG file lacks its end marker; all of its pixels are there and are used. "
            "To mend it: fetch the file again, or save it anew"
        ),
        stacklevel=3,
    )


def _warn_of_rotation(path: PathLike, tag: int) -> None:
    warnings.warn(
        UndertowWarning(
            f"{os.fspath(path)}: the picture carries EXIF orientation {tag} and is used as stored; labels drawn on the "
            "turned picture do not fit. To mend it: turn the pixels and drop the tag, or read with orientation='exif'"
        ),
        stacklevel=3,
    )


def _samples(path: PathLike, image: Image.Image) -> NDArray[np.uint8]:
    """The decoded samples as uint8 (height, width, 1..4), in the file's own kind of colour (CMYK made RGB)."""
    if image.mode in _GREY_16_BIT:
        return _high_byte(path, np.asarray(image))[:, :, None]
    if image.mode == "F":
        raise FormatError(
            "floating-point pixels have no fixed range", file=path, remedy="save the picture with 8 or 16 bits"
        )
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    samples = np.asarray(image)
    return samples[:, :, None] if samples.ndim == 2 else samples


def _high_byte(path: PathLike, samples: NDArray[np.generic]) -> NDArray[np.uint8]:
    if samples.size and (samples.min() < 0 or samples.max() > 0xFFFF):
        raise FormatError(
            "grey values beyond 16 bits have no fixed range", file=path, remedy="save the picture with 8 or 16 bits"
        )
    return (samples.astype(np.uint16) >> 8).astype(np.uint8)


def _as_channels(samples: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    held = samples.shape[2]
    if channels in (0, held):
        return samples
    if channels == 1:
        return samples[:, :, :1] if held == 2 else _luma(samples)
    return np.repeat(samples[:, :, :1], 3, axis=2) if held <= 2 else samples[:, :, :3]


def _luma(samples: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Grey of a colour picture in the integer arithmetic of stb_image, the original's decoder."""
    weights = np.array([77, 150, 29], np.uint16)
    return ((samples[:, :, :3] @ weights) >> 8).astype(np.uint8)[:, :, None]


def _too_large(path: PathLike, size: str) -> FormatError:
    return FormatError(
        f"the header claims more pixels than are read from one picture ({size})",
        file=path,
        remedy="shrink the picture",
    )


def _unknown(path: PathLike) -> FormatError:
    return FormatError(
        "this is no picture in a known format",
        file=path,
        remedy=f"give a file of one of the formats {', '.join(FORMATS)}, or take it off the list",
    )


def _unreadable(path: PathLike, error: OSError) -> FormatError:
    if error.errno is not None:
        return FormatError(
            f"cannot be opened ({error.strerror})", file=path, remedy="check the path and its permissions"
        )
    return _damaged(path, error)


def _damaged(path: PathLike, error: BaseException) -> FormatError:
    return FormatError(
        f"the picture is cut short or damaged ({error})",
        file=path,
        remedy="fetch the file again, or take it off the list",
    )

"""`caffe.io`: pictures for Python scripts, as pycaffe's module of this name has it.

Pictures are float32 arrays (height, width, channels) of 0..1, red first. Message objects are protobuf's where that is
installed (extra `caffe`); the converting functions take the messages of `undertow.caffe.proto` too. Resizing needs
scipy (extra `caffe`).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from undertow.caffe.arguments import WrongKind, array_of, is_sequence, lengths_of, number_of, path_of, shown, whole
from undertow.caffe.proto import caffe_pb2
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import get_schema
from undertow.caffe.proto.wire import parse_bytes
from undertow.data.images import FORMATS, MAX_PIXELS
from undertow.errors import FormatError, MissingPackage, ShapeError, UndertowError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

_GREY_WEIGHTS = np.array([0.2125, 0.7154, 0.0721])

# --- messages and arrays ----------------------------------------------------------------------------------------


def blobproto_to_array(blob: Any, return_diff: bool = False) -> Array:
    """The values of a BlobProto (its diff with `return_diff`) in its shape, float64.

    Raises ShapeError (a ValueError) where the shape does not fit the number of values.
    """
    _has_fields(blob, "BlobProto", "data", "diff", "shape")
    values = np.array(blob.diff if return_diff else blob.data, np.float64)
    old = ("num", "channels", "height", "width")
    if any(_has(blob, name) for name in old):
        shape = tuple(getattr(blob, name) for name in old)
    else:
        shape = tuple(blob.shape.dim)
    return _shaped(values, shape)


def array_to_blobproto(arr: Array, diff: Array | None = None) -> Any:
    """A BlobProto of an array of any shape, and of its diff."""
    arr = array_of(arr, "arr")
    diff = None if diff is None else array_of(diff, "diff")
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(arr.astype(float).flat)
    if diff is not None:
        blob.diff.extend(diff.astype(float).flat)
    return blob


def arraylist_to_blobprotovector_str(arraylist: Sequence[Array]) -> bytes:
    """A serialized BlobProtoVector of arrays."""
    if not is_sequence(arraylist):
        raise WrongKind(f"arraylist is a list of arrays, not {shown(arraylist)}", remedy="give [array]")
    vector = caffe_pb2.BlobProtoVector()
    vector.blobs.extend([array_to_blobproto(array) for array in arraylist])
    return bytes(vector.SerializeToString())


def blobprotovector_str_to_arraylist(str: bytes) -> list[Array]:
    """The arrays of a serialized BlobProtoVector. Raises FormatError for damaged bytes."""
    if not isinstance(str, bytes | bytearray | memoryview):
        raise WrongKind(f"a serialized BlobProtoVector is bytes, not {shown(str)}", remedy="open the file with 'rb'")
    vector = parse_bytes(bytes(str), get_schema()["BlobProtoVector"])
    return [blobproto_to_array(blob) for blob in vector.blobs]


def array_to_datum(arr: Array, label: int | None = None) -> Any:
    """A Datum of an array (channels, height, width): uint8 as bytes, anything else as floats."""
    arr = array_of(arr, "arr")
    label = None if label is None else whole(label, "label", -(2**31), 2**31 - 1)
    if arr.ndim != 3:
        raise ShapeError(
            f"a Datum holds an array with three axes (channels, height, width), not {arr.shape}",
            remedy="give the array of one picture, without a batch axis",
        )
    datum = caffe_pb2.Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(float).flat)
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Any) -> Array:
    """The array (channels, height, width) of a Datum that is not encoded: uint8, or float64 for floats."""
    _has_fields(datum, "Datum", "channels", "height", "width", "data", "float_data")
    shape = (datum.channels, datum.height, datum.width)
    if len(datum.data):
        return _shaped(np.frombuffer(datum.data, np.uint8).copy(), shape)
    return _shaped(np.array(datum.float_data, np.float64), shape)


def _has_fields(message: Any, kind: str, *names: str) -> None:
    if not all(hasattr(message, name) for name in names):
        raise WrongKind(f"a {kind} is needed, not {shown(message)}", remedy=f"parse one: caffe_pb2.{kind}")


def _has(message: Any, name: str) -> bool:
    return bool(message.has_field(name) if isinstance(message, Message) else message.HasField(name))


def _shaped(values: Array, shape: tuple[int, ...]) -> Array:
    try:
        return values.reshape(shape)
    except ValueError:
        raise ShapeError(
            f"{values.size} values do not fit the shape {shape}", remedy="the record or file is damaged: write it again"
        ) from None


# --- pictures ---------------------------------------------------------------------------------------------------


class NoPicture(FormatError, OSError):
    """A file that is missing, damaged or no picture, where pycaffe raises an OSError."""


def load_image(filename: PathLike | BinaryIO, color: bool = True) -> Array:
    """A picture file as float32 of 0..1: (height, width, 3) with red first, or (height, width, 1) with color=False.

    Grey files are repeated three times where colour is wanted; colours become grey by 0.2125 R + 0.7154 G + 0.0721 B;
    alpha is dropped. filename: a path, or an open file. Raises NoPicture, which is an OSError too, for files that are
    missing, damaged or no picture.
    """
    pixels = _read(filename if hasattr(filename, "read") else path_of(filename, "a picture"))
    image = pixels / (65535.0 if pixels.dtype == np.uint16 else 255.0)
    if image.ndim == 3:
        image = image[:, :, :3]
        if not color:
            image = image @ _GREY_WEIGHTS
    image = image.astype(np.float32)
    if image.ndim == 2:
        image = np.repeat(image[:, :, np.newaxis], 3 if color else 1, axis=2)
    return image


def _read(path: PathLike | BinaryIO) -> Array:
    """The samples of a file: uint8 or uint16, grey (height, width) or colour, maybe with alpha."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.size[0] * image.size[1] > MAX_PIXELS:
                raise FormatError(
                    f"the picture claims {image.size[0]} x {image.size[1]} pixels",
                    file=_name(path),
                    remedy=f"use pictures of at most {MAX_PIXELS} pixels",
                )
            image.load()
            if image.mode.startswith("I"):
                return np.asarray(image).clip(0, 65535).astype(np.uint16)
            if "A" in image.mode or "transparency" in image.info:
                return np.asarray(image.convert("RGBA"))
            if image.mode not in ("L", "RGB"):
                return np.asarray(image.convert("L" if image.mode == "1" else "RGB"))
            return np.asarray(image)
    except FormatError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as problem:
        raise FormatError(
            f"the picture claims more than {MAX_PIXELS} pixels",
            file=_name(path),
            remedy=f"use pictures of at most {MAX_PIXELS} pixels",
        ) from problem
    except OSError as problem:
        web = isinstance(path, str) and "://" in path
        raise NoPicture(
            f"no picture can be read ({problem.strerror or problem})",
            file=_name(path),
            remedy="fetch the picture first: addresses are not opened" if web else "check the path",
        ) from problem
    except Exception as problem:  # Pillow's readers raise nearly anything on damaged files
        raise NoPicture(
            f"the picture is damaged ({problem})", file=_name(path), remedy="open it in a viewer, or fetch it again"
        ) from problem


def _name(path: Any) -> PathLike | None:
    """Where it is told from; files that are open already have no path."""
    return path if isinstance(path, str | os.PathLike) else None


def resize_image(
    im: Array, new_dims: Sequence[int] | Array, interp_order: int = 1, *, anti_aliasing: bool = True
) -> Array:
    """A picture (height, width, channels) in another size (height, width), float32, by splines of an order (1: linear).

    anti_aliasing: smooth before shrinking, as scikit-image does since 0.15; False for what Caffe gave before that.
    With 1 or 3 channels the values keep their range and beyond the edge lies the smallest value; other pictures are
    interpolated between their corners. Raises ShapeError for what is no picture, and for sides below 1.
    """
    new_dims = lengths_of(new_dims, "new_dims", 2, 1)
    im, interp_order = array_of(im, "a picture"), whole(interp_order, "interp_order", 0, 5)
    shape = im.shape
    if len(shape) != 3 or 0 in shape:
        raise ShapeError(
            f"a picture has the axes (height, width, channels), here is an array of shape {shape}",
            remedy="take load_image's, or give a grey one its axis: picture[:, :, np.newaxis]",
        )
    if im.shape[-1] not in (1, 3):
        factors = tuple(new / old for new, old in zip(new_dims, im.shape[:2], strict=True))
        return _ndimage().zoom(im, (*factors, 1), order=interp_order).astype(np.float32)
    low, high = im.min(), im.max()
    if not high > low:
        return np.full((*new_dims, im.shape[-1]), low, np.float32)
    unit = _resize_unit((im - low) / (high - low), new_dims, interp_order, anti_aliasing)
    return (unit * (high - low) + low).astype(np.float32)


def _resize_unit(image: Array, size: tuple[int, ...], order: int, anti_aliasing: bool) -> Array:
    """scikit-image's resize with mode "constant" of values between 0 and 1."""
    if image.shape[:2] == size:
        return image
    ndimage = _ndimage()
    factors = np.divide(image.shape[:2], size)
    if anti_aliasing and (factors > 1).any():
        spread = (*np.maximum(0, (factors - 1) / 2), 0)
        image = ndimage.gaussian_filter(image, spread, mode="constant")
    zoomed = ndimage.zoom(image, (*(1 / factors), 1), order=order, mode="grid-constant", grid_mode=True)
    return np.clip(zoomed, image.min(), image.max()) if order > 1 else zoomed


def _ndimage() -> Any:
    try:
        from scipy import ndimage
    except ImportError:
        raise MissingPackage("scipy", "caffe", "resizing as pycaffe does") from None
    return ndimage


def oversample(images: Sequence[Array] | Array, crop_dims: Sequence[int] | Array) -> Array:
    """Ten crops of each picture (height, width, channels), float32: four corners, the middle, and their mirror images.

    crop_dims: (height, width). All pictures have the size of the first.
    """
    rows, columns = lengths_of(crop_dims, "crop_dims", 2, 1)
    images = _pictures(images)
    height, width, channels = images[0].shape
    if rows > height or columns > width:
        raise ShapeError(
            f"crops of {rows} x {columns} do not fit into pictures of {height} x {width}",
            remedy="resize the pictures first: caffe.io.resize_image",
        )
    corners = [(top, left) for top in (0, height - rows) for left in (0, width - columns)]
    corners.append((int(height / 2.0 - rows / 2.0), int(width / 2.0 - columns / 2.0)))
    crops = np.empty((10 * len(images), rows, columns, channels), np.float32)
    for number, image in enumerate(images):
        for place, (top, left) in enumerate(corners):
            crop = image[top : top + rows, left : left + columns]
            crops[10 * number + place] = crop
            crops[10 * number + 5 + place] = crop[:, ::-1]
    return crops


def _pictures(images: Any) -> list[Array]:
    """Pictures of the size of the first."""
    if isinstance(images, str | bytes | dict) or not is_sequence(images):
        raise WrongKind(f"images is a list of pictures, not {shown(images)}", remedy="give [picture]")
    found = [array_of(image, "a picture") for image in images]
    if not found or any(image.ndim != 3 or image.shape != found[0].shape for image in found):
        raise ShapeError(
            f"pictures of one size (height, width, channels) are needed, got {[image.shape for image in found][:3]}",
            remedy="give at least one, and resize them first: caffe.io.resize_image",
        )
    return found


class Transformer:
    """Brings pictures into the form of a net's inputs.

    inputs: shape of each input by its name, as `{"data": net.blobs["data"].data.shape}`.
    The steps, each only where it was set: resize, transpose, channel_swap, raw_scale, mean, input_scale.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        if not isinstance(inputs, Mapping):
            raise WrongKind(f"inputs is a dict, not {shown(inputs)}", remedy="{'data': net.blobs['data'].data.shape}")
        self.inputs = {name: lengths_of(shape, f"the shape of {name}") for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Array] = {}
        self.input_scale: dict[str, float] = {}

    def _check_input(self, in_: str) -> None:
        if not isinstance(in_, str) or in_ not in self.inputs:
            raise UndertowError(
                f"{in_} is not one of the net inputs: {dict(self.inputs)}",
                remedy=f"use one of {', '.join(self.inputs)}",
            )

    def _transposed(self, picture: Array, order: Sequence[int] | Array) -> Array:
        if picture.ndim != len(order):
            raise ShapeError(
                f"a picture of shape {picture.shape} has no {len(order)} axes to transpose",
                remedy="preprocess wants (height, width, channels), as load_image gives; deprocess wants one picture, "
                "and drops axes of length 1 as pycaffe does, so a gray one goes back without set_transpose",
            )
        return picture.transpose(order)

    def preprocess(self, in_: str, data: Array) -> Array:
        """A picture (height, width, channels) as the input `in_` wants it, float32 (channels, height, width)."""
        self._check_input(in_)
        result = array_of(data, "a picture").astype(np.float32)
        size = tuple(self.inputs[in_][2:])
        if result.shape[:2] != size:
            result = resize_image(result, size)
        if in_ in self.transpose:
            result = self._transposed(result, self.transpose[in_])
        if in_ in self.channel_swap:
            result = result[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            result *= self.raw_scale[in_]
        if in_ in self.mean:
            result -= self.mean[in_]
        if in_ in self.input_scale:
            result *= self.input_scale[in_]
        return result

    def deprocess(self, in_: str, data: Array) -> Array:
        """The way back from an input to a picture; the size stays."""
        self._check_input(in_)
        result = array_of(data, "data").squeeze()
        result = result.astype(result.dtype if result.dtype.kind == "f" else np.float32)
        if in_ in self.input_scale:
            result /= self.input_scale[in_]
        if in_ in self.mean:
            result += self.mean[in_]
        if in_ in self.raw_scale:
            result /= self.raw_scale[in_]
        if in_ in self.channel_swap:
            result = result[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            result = self._transposed(result, np.argsort(self.transpose[in_]))
        return result

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """The order of axes: (2, 0, 1) makes (channels, height, width) of (height, width, channels)."""
        self._check_input(in_)
        order = _order(order, "order")
        if len(order) != len(self.inputs[in_]) - 1:
            raise ShapeError(
                "Transpose order needs to have the same number of dimensions as the input.",
                remedy="give an axis for each of channels, height and width: (2, 0, 1)",
            )
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """The order of channels, after the transposition: (2, 1, 0) swaps red and blue."""
        self._check_input(in_)
        order = _order(order, "order")
        if len(order) != self.inputs[in_][1]:
            raise ShapeError(
                "Channel swap needs to have the same number of dimensions as the input channels.",
                remedy=f"give {self.inputs[in_][1]} numbers of channels",
            )
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """A factor before the mean is taken off: 255 for nets that were trained on bytes."""
        self._check_input(in_)
        self.raw_scale[in_] = _scale(scale)

    def set_mean(self, in_: str, mean: Array) -> None:
        """What is taken off: values (channels,), or a picture (channels, height, width), which is resized to fit."""
        self._check_input(in_)
        mean, wanted = array_of(mean, "mean"), tuple(self.inputs[in_][1:])
        if mean.ndim == 1:
            if len(mean) != wanted[0]:
                raise ShapeError(
                    "Mean channels incompatible with input.",
                    remedy=f"give {wanted[0]} values, one per channel, or a picture (channels, height, width)",
                )
            mean = mean[:, np.newaxis, np.newaxis]
        else:
            shape = (1, *mean.shape) if mean.ndim == 2 else mean.shape
            if len(shape) != 3:
                raise ShapeError(
                    f"Mean shape invalid: {mean.shape}",
                    remedy="give (channels,) or (channels, height, width); of a loaded binaryproto take [0]",
                )
            if shape != wanted:
                low, high = mean.min(), mean.max()
                unit = (mean.reshape(shape) - low) / (high - low if high > low else 1)
                resized = resize_image(unit.transpose(1, 2, 0), wanted[1:]).transpose(2, 0, 1)
                mean = resized * (high - low) + low
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """A factor after everything else."""
        self._check_input(in_)
        self.input_scale[in_] = _scale(scale)


def _scale(scale: Any) -> Any:
    """A number, or an array of them that fits the input."""
    return array_of(scale, "scale") if isinstance(scale, list | tuple | np.ndarray) else number_of(scale, "scale")


def _order(order: Any, what: str) -> tuple[int, ...]:
    """Numbers of axes or channels, each once. Raises WrongKind or ShapeError."""
    found = lengths_of(order, what)
    if sorted(found) != list(range(len(found))):
        raise ShapeError(f"{what} has each number from 0 on once, not {found}", remedy="give such as (2, 0, 1)")
    return found


# --- what the original's module has imported, and scripts find there ---------------------------------------------

_BORROWED = {
    "skimage": ("skimage.io", ""),
    "resize": ("skimage.transform", "resize"),
    "zoom": ("scipy.ndimage", "zoom"),
}


def __getattr__(name: str) -> Any:
    """`caffe.io.skimage`, `caffe.io.resize` (scikit-image's) and `caffe.io.zoom` (scipy's), imported when asked for."""
    if name not in _BORROWED:
        raise AttributeError(f"module 'caffe.io' has no attribute '{name}'")
    module, member = _BORROWED[name]
    package = module.partition(".")[0]
    try:
        found = importlib.import_module(module)
    except ImportError:
        extra = "demo" if package == "skimage" else "caffe"
        raise MissingPackage("scikit-image" if package == "skimage" else package, extra, f"caffe.io.{name}") from None
    return getattr(found, member) if member else importlib.import_module(package)

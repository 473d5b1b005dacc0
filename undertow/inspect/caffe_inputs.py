"""Values for the inputs of a Caffe net that is looked into: the user's picture, objects and arrays, or random ones."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undertow.caffe.annosets import read_boxes
from undertow.caffe.layer import IndexBottom
from undertow.caffe.layers_multibox import MultiBoxLoss
from undertow.caffe.net import Net
from undertow.caffe.proto.message import Message
from undertow.data.images import load_image
from undertow.data.resize import resize_image
from undertow.errors import FormatError, ShapeError
from undertow.inspect.batches import PICTURES, read_arrays
from undertow.inspect.record import Array

PathLike = str | os.PathLike[str]
# Values of an object as AnnotatedData has them: image, class, instance, left, top, right, bottom, difficult.
OBJECT = 8
OBJECTS_EACH = 3
_LINES = (
    "write lines `class xmin ymin xmax ymax` in pixels, classes from 1 where 0 is the background; or rows of "
    f"{OBJECT} values as an .npy"
)


@dataclass(frozen=True)
class PictureValues:
    """What a picture of values 0..255 becomes: (value - mean) * scale. mean: () for 0, one, or one for each channel.

    bgr: blue first, as Caffe's own data layers have it.
    """

    mean: Sequence[float] = ()
    scale: float = 1 / 255
    bgr: bool = False

    def about(self, channels: int) -> str:
        """In words, for a picture of so many channels."""
        order = "grey" if channels == 1 else "BGR" if self.bgr else "RGB"
        if not self.mean and self.scale == 1 / 255:
            return f"{order}, 0 to 1"
        mean = f"minus {', '.join(f'{value:g}' for value in self.mean)}, " if self.mean else ""
        return f"{order}, 0 to 255, {mean}times {self.scale:.4g}"

    def of(self, picture: Array) -> Array:
        """picture: (channels, height, width), 0..1, red first."""
        values = picture[::-1] if self.bgr and len(picture) == 3 else picture
        if len(self.mean) not in (0, 1, len(values)):
            remedy = "give one mean, or as many as the net's input has channels"
            raise ShapeError(f"{len(self.mean)} means for a picture of {len(values)} channels", remedy=remedy)
        mean = np.array(self.mean or [0.0], np.float32)[:, None, None]
        return np.asarray((values * np.float32(255) - mean) * np.float32(self.scale), np.float32)


def values_of(message: Message, source_types: Sequence[str]) -> PictureValues | None:
    """What the net's own data layer does to pictures; None where there is none that says so.

    mean_file is not read: it may be on another machine, and its picture has the size of the data.
    """
    for layer in message.layer:
        if layer.type in source_types and layer.has_field("transform_param"):
            param = layer.transform_param
            scale = float(param.scale) if param.has_field("scale") else 1.0
            return PictureValues(tuple(map(float, param.mean_value)), scale, bgr=True)
    return None


def fill_inputs(
    net: Net,
    data: PathLike | None,
    seed: int = 0,
    *,
    truth: PathLike | None = None,
    values: PictureValues | None = None,
) -> str:
    """Values for the Input layers: arrays of an .npz by blob name, a picture, or random ones; returns what was done.

    A picture is stretched to the size of the input; its values are 0 to 1, red first, unless `values` says otherwise:
    as LeNet takes them with scale 1/256. truth: the objects of a picture, see `read_objects`.
    """
    rng = np.random.default_rng(seed)
    given = {} if data is None else _given(net, data, values or PictureValues())
    unknown = set(given) - set(net.inputs)
    if unknown:
        raise FormatError(
            f"the net has no input '{min(unknown)}'", file=data, remedy=f"its inputs are {', '.join(net.inputs)}"
        )
    objects = {name: loss for name in net.inputs if (loss := _loss_of_objects(net, name)) is not None}
    if truth is not None:
        given |= _truth(net, truth, data, objects)
    for name in net.inputs:
        blob = net.blobs[name]
        if name in given:
            blob.reshape(*given[name].shape)
            blob.data[...] = given[name]
        elif name in objects:
            rows = _random_objects(objects[name], _pictures_of(net), rng)
            blob.reshape(*rows.shape)
            blob.data[...] = rows
        else:
            classes = _classes_of(net, name)
            blob.data[...] = rng.integers(0, classes, blob.shape) if classes else rng.random(blob.shape)
    net.reshape()
    return _about(net, data, seed, values, missing=bool(set(objects) - set(given)))


def _about(net: Net, data: PathLike | None, seed: int, values: PictureValues | None, *, missing: bool) -> str:
    if data is not None:
        text = os.fspath(data)
        if Path(data).suffix.lower() in PICTURES:
            channels, height, width = net.blobs[input_of_pictures(net) or ""].shape[1:]
            text += f" (stretched to {width}x{height}, {(values or PictureValues()).about(channels)})"
        return text + (", random truth" if missing else "")
    if not net.inputs:
        return "one batch of the net's own data layers"
    return f"random batch, seed {seed} (give --data for a real one)"


def _given(net: Net, data: PathLike, values: PictureValues) -> dict[str, Array]:
    if Path(data).suffix.lower() not in PICTURES:
        return read_arrays(data)
    place = input_of_pictures(net)
    if place is None:
        raise FormatError(
            "the net has no input for a picture", file=data, remedy="give an .npz with its inputs by name"
        )
    count, channels, height, width = net.blobs[place].shape
    picture = values.of(resize_image(load_image(data, channels), width, height))
    return {place: np.repeat(picture[None], count, axis=0)}


def input_of_pictures(net: Net) -> str | None:
    """The name of the input that takes pictures: the first with four axes and 1 or 3 channels."""
    name = next((name for name in net.inputs if len(net.blobs[name].shape) == 4), None)
    return name if name is not None and net.blobs[name].shape[1] in (1, 3) else None


def _pictures_of(net: Net) -> int:
    place = input_of_pictures(net)
    return 1 if place is None else int(net.blobs[place].shape[0])


# --- objects -------------------------------------------------------------------------------------------------------


def _truth(net: Net, path: PathLike, data: PathLike | None, names: dict[str, MultiBoxLoss]) -> dict[str, Array]:
    if not names:
        remedy = "give labels as an array of an .npz, by the name of their input"
        raise FormatError("the net has no input for objects: no MultiBoxLoss reads one", file=path, remedy=remedy)
    picture = data if data is not None and Path(data).suffix.lower() in PICTURES else None
    rows = read_objects(path, picture)
    for loss in names.values():
        _check_classes(rows, loss, path)
    count = _pictures_of(net)
    if picture is not None:  # it fills every place of the batch, and so do its objects
        rows = np.concatenate([np.concatenate([np.full((len(rows), 1), i), rows[:, 1:]], 1) for i in range(count)])
    return {name: rows.reshape(1, 1, -1, OBJECT) for name in names}


def _check_classes(rows: Array, loss: MultiBoxLoss, path: PathLike) -> None:
    """Raises FormatError for an object of a class that the loss does not have."""
    count = int(loss.o.num_classes)
    used = rows[rows[:, 0] != -1]
    wrong = (used[:, 1] < 0) | (used[:, 1] >= count) | (used[:, 1] == loss.background)
    if wrong.any() and not loss.o.map_object_to_agnostic:
        number = int(np.flatnonzero(wrong)[0])
        kind = f"the background, {loss.background}" if used[number, 1] == loss.background else f"none of the {count}"
        classes = ", ".join(str(c) for c in range(min(count, 4)) if c != loss.background)
        remedy = f"classes of this net are {classes}{'...' if count > 4 else ''}"
        raise FormatError(f"object {number} has class {used[number, 1]:g}: {kind}", file=path, remedy=remedy)


def read_objects(path: PathLike, picture: PathLike | None) -> Array:
    """Rows (m, 8): image, class, instance, left, top, right, bottom, difficult; corners in parts of the picture.

    path: an .npy or .npz with such rows, or lines `class xmin ymin xmax ymax` in pixels of `picture`, as
    convert_annoset takes them. Raises FormatError or ShapeError.
    """
    if Path(path).suffix.lower() in (".npy", ".npz"):
        arrays = read_arrays(path)
        rows = arrays["truth"] if "truth" in arrays else next(iter(arrays.values()), np.zeros(0))
        if rows.ndim == 0 or rows.shape[-1] != OBJECT or rows.dtype.kind not in "fiu":
            raise ShapeError(f"rows of {OBJECT} values are needed (image, class, instance, left, top, right, bottom, "
                             f"difficult), got an array {rows.shape}", file=path)  # fmt: skip
        return np.asarray(rows, np.float32).reshape(-1, OBJECT)
    if picture is None:
        remedy = "give the picture as --data, or rows as an .npy"
        raise FormatError("corners in pixels belong to a picture, and none is given", file=path, remedy=remedy)
    if not os.path.exists(path):
        raise FormatError("there is no such file", file=path, remedy="check the path")
    height, width = load_image(picture).shape[1:]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = read_boxes(os.fspath(path), "txt", {}, height, width)
        except FormatError as problem:
            raise FormatError(problem.reason, file=path, line=problem.line, remedy=_LINES) from problem
    if found and all(max(box.corners[0] * width, box.corners[2] * width, box.corners[1] * height,
                         box.corners[3] * height) <= 1 for box in found):  # fmt: skip
        reason = "no corner lies beyond the first pixel: these look like Darknet's labels"
        raise FormatError(reason, file=path, remedy=_LINES)
    for warning in told:
        warnings.warn(warning.message, stacklevel=2)
    listed = [[0, box.label, number, *box.corners, box.difficult] for number, box in enumerate(found)]
    return np.array(listed, np.float32).reshape(-1, OBJECT)


def _random_objects(loss: MultiBoxLoss, pictures: int, rng: np.random.Generator) -> Array:
    """Three objects in each picture, of classes that are not the background."""
    classes = [c for c in range(max(int(loss.o.num_classes), 2)) if c != loss.background] or [0]
    rows = np.zeros((pictures, OBJECTS_EACH, OBJECT), np.float32)
    rows[..., 0] = np.arange(pictures)[:, None]
    rows[..., 1] = rng.choice(classes, rows.shape[:2])
    rows[..., 2] = np.arange(OBJECTS_EACH)
    size, corner = rng.uniform(0.1, 0.5, (*rows.shape[:2], 2)), rng.uniform(0, 0.5, (*rows.shape[:2], 2))
    rows[..., 3:5], rows[..., 5:7] = corner, corner + size
    return rows.reshape(1, 1, -1, OBJECT)


def _loss_of_objects(net: Net, name: str) -> MultiBoxLoss | None:
    """The MultiBoxLoss that reads the objects of an input, through Splits."""
    readers = _names_of(net, name)
    for index, layer in enumerate(net.layers):
        if isinstance(layer, MultiBoxLoss) and net.blob_names[net.bottom_ids[index][3]] in readers:
            return layer
    return None


def _names_of(net: Net, name: str) -> list[str]:
    """A blob and the copies that Splits make of it."""
    found = [name]
    for index, layer in enumerate(net.layers):
        if layer.type == "Split" and net.blob_names[net.bottom_ids[index][0]] in found:
            found += [net.blob_names[i] for i in net.top_ids[index]]
    return found


def _classes_of(net: Net, name: str) -> int:
    """For a blob of labels how many classes there are; 0 for data."""
    readers = _names_of(net, name)
    for index, layer in enumerate(net.layers):
        for place, blob in enumerate(net.bottom_ids[index]):
            if net.blob_names[blob] in readers and isinstance(layer, IndexBottom) and layer.is_index(place):
                scores = net.bottoms(index)[0].shape
                return scores[1] if len(scores) > 1 else 1
    return 0

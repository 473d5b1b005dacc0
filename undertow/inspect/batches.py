"""A batch to look at a network with: the user's pictures and truth, or random ones that follow from a seed."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.labels import LabelReader, read_labels
from undertow.darknet.layers.layers_heads import Detection
from undertow.darknet.layers.layers_loss import HeadLayer
from undertow.darknet.network import Network
from undertow.data.resize import letterbox_size
from undertow.errors import FormatError, ShapeError

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff")
# An npz that unpacks to more than this is a mistake or an attack.
MOST_BYTES = 4 * 2**30
# With what the files begin: an .npy; an .npz, which is a zip archive, and one without members.
_NPY, _ZIP = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")
_BOXES = 3


@dataclass(frozen=True)
class Batch:
    """images: (batch, ...) as the network takes them; truth: (batch, values) or None. about: where it comes from.

    picture_size: (width, height) of a single picture before it was fitted in; None for other batches.
    """

    images: Array
    truth: Array | None
    about: str
    picture_size: tuple[int, int] | None = None


def darknet_batch(
    net: Network, data: PathLike | None, truth: PathLike | None, *, count: int, seed: int = 0, size: int | None = None
) -> Batch:
    """A batch for a Darknet network. Raises FormatError or ShapeError for data that do not fit.

    data: a picture, a .data file or an .npz with `images` (and `truth`); None: random. truth: an .npy or .npz, or a
    label file for a single picture. count: samples of a random batch, or of a .data file.
    """
    if data is None:
        batch = _random_batch(net, count, seed)
    elif Path(data).suffix.lower() == ".npz":
        arrays = read_arrays(data)
        if "images" not in arrays:
            raise FormatError("there is no array 'images'", file=data, remedy="save it with np.savez(..., images=...)")
        images = _fitting_images(arrays["images"], net, data)
        batch = Batch(images, arrays.get("truth"), f"{os.fspath(data)} (as it is{_span(images)})")
    elif Path(data).suffix.lower() in PICTURES:
        batch = _picture_batch(net, data)
    else:
        batch = _listed_batch(net, data, count)
    given = batch.truth if truth is None else _read_truth(net, truth, batch.picture_size)
    about = batch.about
    if given is None:
        given = _random_truth(net, len(batch.images), np.random.default_rng(seed))
        about += ", random truth"
    return Batch(batch.images, _fitting(given, len(batch.images), net, truth or data), about)


def _random_batch(net: Network, count: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    shape = (count, net.c, net.h, net.w) if net.c else (count, net.inputs)
    images = rng.random(shape, np.float32)
    about = f"random batch of {count}, seed {seed} (give --data for a real one)"
    return Batch(images, _random_truth(net, count, rng), about)


def _random_truth(net: Network, count: int, rng: np.random.Generator) -> Array:
    """Boxes for a detector, else one class each."""
    truth = np.zeros((count, net.truths), np.float32)
    head = next((layer for layer in reversed(net.layers) if isinstance(layer, HeadLayer)), None)
    if head is not None and head.type != "detection" and net.truths % 5 == 0:
        boxes = truth.reshape(count, -1, 5)[:, :_BOXES]
        boxes[..., :2] = rng.uniform(0.2, 0.8, boxes[..., :2].shape)
        boxes[..., 2:4] = rng.uniform(0.1, 0.5, boxes[..., 2:4].shape)
        boxes[..., 4] = rng.integers(0, max(head.classes, 1), boxes.shape[:2])
    elif isinstance(head, Detection):
        _fill_cells(truth.reshape(count, head.side**2, -1), head.classes, rng)
    elif net.truths:
        truth[np.arange(count), rng.integers(0, net.truths, count)] = 1
    return truth


def _fill_cells(cells: Array, classes: int, rng: np.random.Generator) -> None:
    """Objects in the truth of a [detection] layer, (pictures, cells, values): there is one, its class, its box."""
    for picture in cells:
        for cell in rng.choice(len(picture), min(_BOXES, len(picture)), replace=False):
            picture[cell, 0] = 1
            picture[cell, 1 + rng.integers(0, classes) if classes else 0] = 1
            picture[cell, 1 + classes : 3 + classes] = rng.uniform(0, 1, 2)
            picture[cell, 3 + classes : 5 + classes] = rng.uniform(0.1, 0.5, 2)


def _picture_batch(net: Network, path: PathLike) -> Batch:
    from undertow.darknet.detection.detector import as_picture, fit_picture

    picture = as_picture(path, net.c)
    image = np.asarray(fit_picture(net, picture), np.float32)
    height, width = picture.shape[1:]
    how = f"fitted into {net.w}x{net.h} with grey bars" if net.letterbox else f"stretched to {net.w}x{net.h}"
    about = f"{os.fspath(path)} ({width}x{height} {how}, {_order(net)}, 0 to 1)"
    return Batch(image[None], None, about, (width, height))


def _listed_batch(net: Network, path: PathLike, count: int) -> Batch:
    """Pictures of train= of a .data file, with their labels, as training without augmentation takes them."""
    from undertow.darknet.learning.dataset import TrainingSet
    from undertow.darknet.learning.trainer import detection_head
    from undertow.darknet.runs import grid_of
    from undertow.data.augment import Colours, DetectionOptions

    source = read_data(path)
    head = detection_head(net)
    classes = head.classes if head.class_map is None else len(head.class_map)
    plain = DetectionOptions(0.0, Colours(0.0, 1.0, 1.0), False)
    pictures = TrainingSet(
        read_image_list(source.path("train")),
        LabelReader(classes, (net.w, net.h)),
        plain,
        boxes=head.max_boxes,
        channels=net.c,
        grid=grid_of(head),
    )
    samples = [pictures.sample(number, (net.w, net.h)) for number in range(count)]
    names = ", ".join(os.path.basename(sample.path) for sample in samples[:4])
    images = np.stack([sample.image for sample in samples])
    # As `augment_detection` and `augment_grid` do it where nothing is random but the place.
    how = "stretched to" if pictures.grid else "fitted at a random place on grey into"
    about = f"{os.fspath(path)}: {names} (drawn as for training, {how} {net.w}x{net.h}, {_order(net)}, 0 to 1)"
    return Batch(images, np.stack([sample.truth for sample in samples]), about)


def _order(net: Network) -> str:
    """What the channels of a picture are."""
    return {1: "grey", 3: "RGB"}.get(net.c, f"{net.c} channels")


def _span(images: Array) -> str:
    """The range of the values: for nets that were trained on 0 to 1 it tells when they are something else."""
    if images.size == 0 or not np.isfinite(images).all():
        return ""
    return f", {images.min():.4g} to {images.max():.4g}"


def _read_truth(net: Network, path: PathLike, picture_size: tuple[int, int] | None) -> Array:
    """picture_size: of the picture that a label file describes; grey bars move and shrink its boxes."""
    suffix = Path(path).suffix.lower()
    if suffix in (".npy", ".npz"):
        arrays = read_arrays(path)
        return arrays["truth"] if "truth" in arrays else next(iter(arrays.values()))
    head = next((layer for layer in reversed(net.layers) if isinstance(layer, HeadLayer)), None)
    if head is None:
        raise FormatError("labels of boxes are for detectors", file=path, remedy="give the truth as an .npy or .npz")
    rows = read_labels(os.fspath(path), head.classes, size=(net.w, net.h)).boxes[: net.truths // 5]
    if picture_size is not None and net.letterbox:
        size = np.array([net.w, net.h])
        share = np.array(letterbox_size(*picture_size, net.w, net.h)) / size
        rows = np.concatenate([rows[:, :2] * share + (1 - share) / 2, rows[:, 2:4] * share, rows[:, 4:]], axis=1)
    truth = np.zeros((1, net.truths), np.float32)
    truth[0, : rows.size] = rows.reshape(-1)
    return truth


def _fitting_images(images: Array, net: Network, path: PathLike) -> Array:
    shape = f"{net.c} x {net.h} x {net.w}" if net.c else str(net.inputs)
    if images.dtype.kind not in "fiub":
        raise FormatError(f"'images' holds no numbers but {images.dtype}", file=path, remedy=f"save samples of {shape}")
    if images.ndim < 2 or len(images) == 0 or math.prod(images.shape[1:]) != net.inputs:
        remedy = f"save 'images' as samples x {shape}, or give --size"
        raise ShapeError(f"the network takes samples of {shape}, got an array {images.shape}", file=path, remedy=remedy)
    return images


def _fitting(truth: Array, count: int, net: Network, path: PathLike | None) -> Array:
    if truth.dtype.kind not in "fiub":
        raise FormatError(f"the truth holds no numbers but {truth.dtype}", file=path, remedy="save it as float32")
    rows = np.asarray(truth, np.float32).reshape(len(truth), -1) if np.ndim(truth) else np.zeros((0, 0), np.float32)
    if len(rows) != count or rows.shape[1] > net.truths:
        remedy = "save 'truth' with a row for each sample; rows may be shorter, zeros follow"
        raise ShapeError(f"the truth of {count} samples has {count} x {net.truths} values, got {np.shape(truth)}",
                         file=path, remedy=remedy)  # fmt: skip
    full = np.zeros((count, net.truths), np.float32)
    full[:, : rows.shape[1]] = rows
    return full


def read_arrays(path: PathLike) -> dict[str, Array]:
    """The arrays of an .npy or .npz, never pickled ones. FormatError for files that are damaged or too large.

    What stands in the file decides which of the two it is; the array of an .npy is called `truth`.
    """
    with open(path, "rb") as stream:
        begins = stream.read(len(_NPY))
    if not begins.startswith((_NPY, *_ZIP)):
        raise FormatError("no .npy or .npz file stands here", file=path, remedy="save it with np.savez")
    try:
        if not begins.startswith(_NPY):
            with zipfile.ZipFile(path) as archive:
                claimed = sum(member.file_size for member in archive.infolist())
            if claimed > MOST_BYTES:
                raise FormatError(f"it unpacks to {claimed:,} bytes, {MOST_BYTES:,} is the limit", file=path)
            with np.load(path, allow_pickle=False) as archive:
                found: Mapping[str, Array] = {name: archive[name] for name in archive.files}
                return dict(found)
        return {"truth": np.load(path, allow_pickle=False)}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as problem:
        reason = "it holds Python objects" if "allow_pickle" in str(problem) else str(problem)
        raise FormatError(f"cannot be read as arrays: {reason}", file=path, remedy="save it with np.savez") from None

"""Caffe's small programs: those that make databases (convert_imageset, compute_image_mean, convert_mnist_data,
convert_cifar_data, convert_mnist_siamese_data), and those that bring files up to date (upgrade_net_proto_text, ...).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.caffe.data.database import Database, check_backend, new_database, open_database
from undertow.caffe.data.datum import datum_from_pixels, encoded_datum, read_record
from undertow.caffe.data.imagelist import Line, read_image_list, root_remedy
from undertow.caffe.data.mean import write_mean
from undertow.caffe.data.pictures import encode_picture, encoder, read_file, read_picture, resize_picture
from undertow.caffe.proto.api import read_binary, read_prototxt, write_binary, write_prototxt
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.upgrade import upgrade_net, upgrade_solver
from undertow.data.mnist import read_idx
from undertow.errors import FormatError, ShapeError, UndertowWarning

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]
Tick = Callable[[int, int], None]


def no_tick(done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class ConvertOptions:
    """The flags of convert_imageset, under their names there.

    resize_height, resize_width: size of the stored pictures, both or none. encoded: store files instead of pixels;
    encode_type: as what ("png", "jpg", ...), otherwise told from each file's name. check_size: refuse pictures that
    differ in size. seed: of shuffle.
    """

    gray: bool = False
    shuffle: bool = False
    backend: str = "lmdb"
    resize_width: int = 0
    resize_height: int = 0
    check_size: bool = False
    encoded: bool = False
    encode_type: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Converted:
    """stored: records in the new database. skipped: pictures that could not be read."""

    stored: int
    skipped: int


def convert_imageset(
    root_folder: str, list_file: PathLike, database: PathLike, options: ConvertOptions | None = None,
    *, tick: Tick = no_tick,
) -> Converted:  # fmt: skip
    """Put the pictures of a list into a new database, as Caffe's program of this name does.

    root_folder is put before each path as it is. The keys are the number in the (shuffled) list with eight digits, an
    underscore and the path. Pictures that cannot be read are left out, each with an UndertowWarning.
    tick: called with the pictures done and their number.
    Raises FormatError for a list that cannot be read, ShapeError with check_size; then there is no database.
    """
    o = options or ConvertOptions()
    check_backend(o.backend)
    if o.encode_type:
        encoder(o.encode_type)
    lines = read_image_list(list_file)
    if o.shuffle:
        lines = [lines[i] for i in np.random.default_rng(o.seed).permutation(len(lines))]
    stored = skipped = size = 0
    with new_database(database, o.backend) as put:
        for number, line in enumerate(lines):
            try:
                datum = _picture_datum(root_folder + line.path, line.label, o)
            except FormatError as error:
                skipped += 1
                warnings.warn(UndertowWarning(f"left out: {error}"), stacklevel=2)
                continue
            if o.check_size and not datum.encoded:
                size = size or len(datum.data)
                check_same_size(line.path, len(datum.data), size, list_file, line.number)
            put(_key(number, line), datum.to_bytes())
            stored += 1
            tick(number + 1, len(lines))
        if not stored:
            remedy = root_remedy(root_folder, (line.path for line in lines))
            raise FormatError("none of the pictures could be read", file=list_file, remedy=remedy)
    return Converted(stored, skipped)


def check_same_size(path: str, values: int, first: int, list_file: PathLike, line: int | None = None) -> None:
    """Raise ShapeError where a picture has another number of values than the first of its list."""
    if values != first:
        raise ShapeError(
            f"{path}: {values} values, the first picture has {first}", file=list_file, line=line,
            remedy="give resize_height and resize_width",
        )  # fmt: skip


def _key(number: int, line: Line) -> bytes:
    return f"{number:08d}_{line.path}".encode("utf-8", "surrogateescape")


def _picture_datum(path: str, label: int, o: ConvertOptions) -> Message:
    """One picture as a record; files that already are what is asked for are taken as they are."""
    encoding = o.encode_type or (_suffix(path) if o.encoded else "")
    height, width = max(0, o.resize_height), max(0, o.resize_width)
    picture = read_picture(path, not o.gray)
    if encoding and not height and not width and _same_encoding(path, encoding):
        return encoded_datum(read_file(path), label)
    if height and width:
        picture = resize_picture(picture, height, width)
    if encoding:
        return encoded_datum(encode_picture(picture, encoding), label)
    datum = datum_from_pixels(picture, label)
    datum.encoded = False  # the original says so in every record
    return datum


def _suffix(path: str) -> str:
    _, dot, suffix = path.rpartition(".")
    if not dot:
        raise FormatError("the name does not tell the encoding", file=path, remedy="give encode_type")
    return suffix.lower()


def _same_encoding(path: str, encoding: str) -> bool:
    suffix, wanted = path.rpartition(".")[2].lower(), encoding.lower()
    return suffix == wanted or (wanted == "jpg" and suffix == "jpeg")


def compute_image_mean(
    database: PathLike, output: PathLike | None = None, *, backend: str = "lmdb", tick: Tick = no_tick
) -> tuple[Array, int]:
    """The mean picture of a database, float32 (channels, height, width), and the number of records.

    Sums are kept in float32 like the original's, so that the file is the same. output: where to write it.
    Raises FormatError for records that cannot be read, ShapeError for pictures of different sizes.
    """
    total: Array | None = None
    count = 0
    source = open_database(database, backend)
    for count, (key, pixels) in enumerate(_pictures(source), 1):
        if total is None:
            total = np.zeros(pixels.shape, np.float32)
        if pixels.shape != total.shape:
            raise ShapeError(
                f"record '{key.decode(errors='replace')}' has shape {pixels.shape}, the first {total.shape}",
                file=database, remedy="make the database with resize_height and resize_width",
            )  # fmt: skip
        total += pixels
        tick(count, source.entries)
    if total is None:
        raise FormatError(
            "the database holds no record", file=database, remedy="make it with undertow caffe convert_imageset"
        )
    mean = total / np.float32(count)
    if output is not None:
        write_mean(mean, output)
    return mean, count


def _pictures(source: Database) -> Iterator[tuple[bytes, Array]]:
    for key, value in source.records():
        yield key, read_record(value, key=key, file=source.path).pixels


def convert_mnist(
    images: PathLike, labels: PathLike, database: PathLike, *, backend: str = "lmdb", tick: Tick = no_tick
) -> int:
    """Put MNIST's two files (plain or gzipped) into a new database; the number of records.

    Keys are the numbers with eight digits, as Caffe's convert_mnist_data makes them. Raises FormatError.
    """
    check_backend(backend)
    pictures, numbers = _mnist(images, labels)
    with new_database(database, backend) as put:
        for number, (picture, label) in enumerate(zip(pictures, numbers, strict=True)):
            put(b"%08d" % number, datum_from_pixels(picture[None], int(label)).to_bytes())
            tick(number + 1, len(pictures))
    return len(pictures)


def _mnist(images: PathLike, labels: PathLike) -> tuple[Array, Array]:
    """Pictures (n, rows, columns) and digits (n,). Raises FormatError where they are something else."""
    pictures, numbers = read_idx(images), read_idx(labels)
    if pictures.ndim != 3 or pictures.dtype != np.uint8:
        raise FormatError(
            f"pictures should be bytes with three axes, not {pictures.dtype} {pictures.shape}",
            file=images,
            remedy="give train-images-idx3-ubyte, or t10k-images-idx3-ubyte",
        )
    if numbers.ndim != 1 or numbers.dtype != np.uint8:
        raise FormatError(
            f"labels are bytes with one axis, not {numbers.dtype} {numbers.shape}",
            file=labels,
            remedy="give train-labels-idx1-ubyte, or t10k-labels-idx1-ubyte",
        )
    if len(pictures) != len(numbers):
        raise FormatError(
            f"{len(pictures)} pictures, but {len(numbers)} labels",
            file=labels,
            remedy="give the two files of one set: both train or both t10k",
        )
    return pictures, numbers


def channel_means(mean: Array) -> Sequence[float]:
    """The mean of each channel of a mean picture."""
    return [float(channel.mean(dtype=np.float64)) for channel in mean]


_CIFAR = 1 + 3 * 32 * 32  # bytes of an item: its class, then red, green and blue


def convert_cifar(folder: PathLike, output: PathLike, *, backend: str = "lmdb", tick: Tick = no_tick) -> list[int]:
    """Put CIFAR-10's binary batches into cifar10_train_BACKEND and cifar10_test_BACKEND; the number of items of each.

    Keys are the numbers with five digits, as Caffe's convert_cifar_data makes them. Raises FormatError.
    """
    check_backend(backend)
    train = [f"data_batch_{number}.bin" for number in range(1, 6)]
    counts = []
    for name, files in (("train", train), ("test", ["test_batch.bin"])):
        paths = [os.path.join(folder, file) for file in files]
        with new_database(os.path.join(output, f"cifar10_{name}_{backend}"), backend) as put:
            count = 0
            for done, path in enumerate(paths):
                for label, picture in _cifar_items(path):
                    put(b"%05d" % count, datum_from_pixels(picture, label).to_bytes())
                    count += 1
                tick(done + 1, len(paths))
        counts.append(count)
    return counts


def _cifar_items(path: str) -> Iterator[tuple[int, Array]]:
    data = np.frombuffer(read_file(path), np.uint8)
    if not data.size or data.size % _CIFAR:
        raise FormatError(
            f"{data.size} bytes are not a whole number of items of {_CIFAR}", file=path,
            remedy="unpack cifar-10-binary.tar.gz, the binary version",
        )  # fmt: skip
    for row in data.reshape(-1, _CIFAR):
        yield int(row[0]), row[1:].reshape(3, 32, 32)


def convert_mnist_siamese(
    images: PathLike, labels: PathLike, database: PathLike, *, backend: str = "leveldb", seed: int = 0,
    tick: Tick = no_tick,
) -> int:  # fmt: skip
    """Put random pairs of MNIST's pictures into a new database, as two channels; label 1 where they are one digit.

    As many pairs as pictures, under keys of eight digits, as Caffe's convert_mnist_siamese_data makes them; the pairs
    follow from the seed. Raises FormatError.
    """
    check_backend(backend)
    pictures, numbers = _mnist(images, labels)
    pairs = np.random.default_rng(seed).integers(0, len(pictures), (len(pictures), 2))
    with new_database(database, backend) as put:
        for number, (first, second) in enumerate(pairs):
            same = int(numbers[first] == numbers[second])
            put(b"%08d" % number, datum_from_pixels(pictures[[first, second]], same).to_bytes())
            tick(number + 1, len(pictures))
    return len(pictures)


def upgrade_net_file(source: PathLike, target: PathLike, *, binary: bool = False) -> list[str]:
    """Write a net of any version of Caffe in today's form, as text or (binary) a caffemodel; what was done.

    An empty list means that the net had this form already; it is written all the same. Raises FormatError.
    """
    net = read_binary(source, "NetParameter") if binary else read_prototxt(source, upgrade=False)
    done = upgrade_net(net, file=source)
    if binary:
        write_binary(net, target)
    else:
        write_prototxt(net, target)
    return done


def upgrade_solver_file(source: PathLike, target: PathLike) -> list[str]:
    """The same for the text of a solver."""
    solver = read_prototxt(source, "SolverParameter")
    done = upgrade_solver(solver, file=source)
    write_prototxt(solver, target)
    return done

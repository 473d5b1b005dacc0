"""Saving and loading arrays by name, as npz (NumPy's own) or safetensors; never pickled.

A file holds one flat mapping from names to arrays. Modules, optimisers and loaders give theirs by `state()` and take
it back by `load_state()`; a mapping of such things is saved with its keys as prefixes, "model/conv1.weight".
"""

from __future__ import annotations

import errno
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.lib import format as npy

from undertow.errors import FormatError, MissingPackage, UndertowError
from undertow.files import atomic_write

PathLike = str | os.PathLike[str]
Arrays = dict[str, np.ndarray]

# Deflate cannot shrink anything further than this, so a larger claim in a file is false.
DEFLATE_LIMIT = 1032
# Floats, signed and unsigned integers, booleans, complex numbers.
KINDS = "fiubc"
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


@runtime_checkable
class HasState(Protocol):
    """A Module, an Optimizer, a Loader, or anything else with the two methods."""

    def state(self) -> Mapping[str, Any]: ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...


Saveable = HasState | Mapping[str, Any]


def save(path: PathLike, content: Saveable) -> None:
    """Write content to `path`; its ending, .npz or .safetensors, chooses the format.

    content: something with `state()`, or a mapping from names to arrays, numbers, things with `state()` and mappings
    of these. The file is written beside and renamed: a crash leaves the old one as it was.

    Raises UndertowError for an unknown ending or a value that is not an array of numbers, MissingPackage where
    safetensors is not installed.
    """
    writer, _ = _format_of(path)
    arrays: Arrays = {}
    _flatten(content, "", arrays)
    writer(path, arrays)


def load(path: PathLike, into: Saveable | None = None) -> Arrays:
    """Read what `save` wrote: all arrays by name.

    into: also hand the arrays back: something with `load_state()`, or a mapping of such things as it was saved.

    Raises FormatError for a damaged file (sizes are checked before memory is taken), UndertowError for content
    that does not fit `into`.
    """
    _, reader = _format_of(path)
    arrays = reader(path)
    if into is not None:
        _hand_back(into, arrays, "")
    return arrays


def _flatten(content: Any, prefix: str, arrays: Arrays) -> None:
    entries = content.state() if isinstance(content, HasState) else content
    if not isinstance(entries, Mapping):
        raise UndertowError(f"save takes something with state() or a mapping of arrays, got {type(content).__name__}")
    for key, value in entries.items():
        name = prefix + str(key)
        if isinstance(value, (Mapping, HasState)):
            _flatten(value, name + "/", arrays)
        else:
            arrays[name] = _checked(name, value)


def _checked(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in KINDS:
        raise UndertowError(
            f"'{name}' is a {type(value).__name__} that does not hold numbers",
            remedy="save arrays and numbers; keep texts and options beside them, in a file of their own",
        )
    return array


def _hand_back(into: Any, arrays: Mapping[str, np.ndarray], prefix: str) -> None:
    own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    if isinstance(into, HasState):
        into.load_state(own)
        return
    for key, value in into.items():
        if isinstance(value, (Mapping, HasState)):
            _hand_back(value, own, f"{key}/")


def _format_of(path: PathLike) -> tuple[Callable[[PathLike, Arrays], None], Callable[[PathLike], Arrays]]:
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise UndertowError(
            f"the ending '{ending}' says nothing about the format", file=path, remedy="use .npz or .safetensors"
        )
    return _FORMATS[ending]


# --- npz --------------------------------------------------------------------------------------------------


def _write_npz(path: PathLike, arrays: Arrays) -> None:
    with atomic_write(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            # A fixed date: the same content gives the same bytes.
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def _read_npz(path: PathLike) -> Arrays:
    arrays: Arrays = {}
    try:
        with open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            length = os.path.getsize(path)
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    raise FormatError(
                        f"two arrays are called '{name}'", file=path, remedy="save it again with ut.save or numpy.savez"
                    )
                arrays[name] = _read_member(path, archive, info, length)
    except FormatError:
        raise
    except Exception as error:
        # zipfile was written for whole archives: on broken ones it raises whatever it stumbles over.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise FormatError(
            f"not a readable npz file: {error or type(error).__name__}",
            file=path,
            remedy="the file is damaged or no npz: save or fetch it again",
        ) from error
    return arrays


def _read_member(path: PathLike, archive: zipfile.ZipFile, info: zipfile.ZipInfo, length: int) -> np.ndarray:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FormatError(
            f"'{info.filename}' is compressed in a way that NumPy does not use",
            file=path,
            remedy="save it again with ut.save or numpy.savez",
        )
    if info.file_size > DEFLATE_LIMIT * min(info.compress_size, length):
        raise FormatError(
            f"'{info.filename}' claims {info.file_size} bytes, more than this file can hold",
            file=path,
            remedy="the file is damaged: save or fetch it again",
        )
    with archive.open(info) as member:
        version = npy.read_magic(member)
        if version not in _HEADERS:
            raise FormatError(
                f"'{info.filename}' has version {version} of the array format",
                file=path,
                remedy="save it again with ut.save or numpy.savez",
            )
        shape, fortran, dtype = _HEADERS[version](member)
        if dtype.kind not in KINDS:
            raise FormatError(
                f"'{info.filename}' holds {dtype}, not numbers; it is not read",
                file=path,
                remedy="save it as an array of numbers",
            )
        content = member.read()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise FormatError(
            f"'{info.filename}' of shape {shape} and type {dtype} has {len(content)} bytes",
            file=path,
            remedy="the file is damaged: save or fetch it again",
        )
    array = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), order="C")


# --- safetensors --------------------------------------------------------------------------------------------


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise MissingPackage("safetensors", "safetensors", "reading and writing .safetensors files") from None
    return safetensors


def _write_safetensors(path: PathLike, arrays: Arrays) -> None:
    package = _safetensors()
    for name, array in arrays.items():
        if array.dtype.kind == "c":
            raise UndertowError(f"'{name}' holds complex numbers, which safetensors cannot", remedy="save as .npz")
    content = package.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    with atomic_write(path) as stream:
        stream.write(content)


def _read_safetensors(path: PathLike) -> Arrays:
    package = _safetensors()
    try:
        return dict(package.numpy.load_file(os.fspath(path)))
    except (package.SafetensorError, KeyError) as error:
        raise FormatError(
            f"not a readable safetensors file: {error}",
            file=path,
            remedy="the file is damaged or no safetensors: save or fetch it again",
        ) from error


_FORMATS: dict[str, tuple[Callable[[PathLike, Arrays], None], Callable[[PathLike], Arrays]]] = {
    ".npz": (_write_npz, _read_npz),
    ".safetensors": (_write_safetensors, _read_safetensors),
}

"""Reading and writing the files of Caffe.

`read_prototxt`, `read_solver`      text, brought up to date as Caffe does
`read_caffemodel`, `read_solverstate`, `read_binary`    binary protobuf (mapped into memory) or HDF5 (`.h5`)
`write_prototxt`, `write_caffemodel`, `write_solverstate`, `write_binary`    whole or not at all

`fork` names the forks whose fields are known ("ssd" unless said otherwise); see `undertow.caffe.proto.schema`.
"""

from __future__ import annotations

import os
from pathlib import Path

from undertow.caffe.arguments import path_of
from undertow.caffe.proto import hdf5
from undertow.caffe.proto.files import HDF5_SIGNATURE, PathLike, guess_other_format, map_file, read_text
from undertow.caffe.proto.kinds import refuse_other_kind
from undertow.caffe.proto.message import Message, walk
from undertow.caffe.proto.report import complain
from undertow.caffe.proto.schema import DEFAULT_FORK, ForkLike, forks_with, get_schema
from undertow.caffe.proto.text_format import OnUnknown, parse_text
from undertow.caffe.proto.upgrade import upgrade_net, upgrade_solver
from undertow.caffe.proto.wire import parse_bytes
from undertow.caffe.proto.wire_writer import to_chunks
from undertow.errors import FormatError
from undertow.files import atomic_write

_PROTOBUF_LIMIT = 2**31 - 1


def read_prototxt(
    path: PathLike,
    message: str = "NetParameter",
    *,
    fork: ForkLike = DEFAULT_FORK,
    unknown: OnUnknown = "error",
    upgrade: bool = True,
    strict: bool = False,
) -> Message:
    """The message of a text file; nets are upgraded to today's form unless `upgrade` is False.

    message: the type of the message. unknown: "error" refuses fields that no schema has, "keep" leaves them out and
    keeps their text in `unknown_fields`. strict: what Caffe complains about and goes on is an error.
    Raises FormatError with file, line and column.
    """
    result = parse_text(read_text(path), message, file=path, fork=fork, unknown=unknown)
    if upgrade and message == "NetParameter":
        upgrade_net(result, file=path, strict=strict)
    return result


def read_solver(
    path: PathLike,
    *,
    fork: ForkLike = DEFAULT_FORK,
    unknown: OnUnknown = "error",
) -> Message:
    """The SolverParameter of a text file: `solver_type` upgraded, `snapshot_prefix` filled in.

    As in Caffe, the prefix is the solver's path without its suffix when it is missing, and is inside the folder that
    it names when it names one.
    """
    solver = parse_text(read_text(path), "SolverParameter", file=path, fork=fork, unknown=unknown)
    upgrade_solver(solver, file=path)
    if not solver.has_field("snapshot_prefix"):
        solver.snapshot_prefix = str(Path(path).with_suffix(""))
    elif Path(solver.snapshot_prefix).is_dir():
        solver.snapshot_prefix = str(Path(solver.snapshot_prefix) / Path(path).stem)
    return solver


def find_beside(name: str, path: PathLike) -> str:
    """A file named in another file: as it stands (from the working folder), else beside the file that names it."""
    beside = Path(path).parent / name
    return os.fspath(beside) if not Path(name).exists() and beside.exists() else name


def read_binary(
    path: PathLike,
    message: str,
    *,
    fork: ForkLike = DEFAULT_FORK,
    strict: bool = False,
) -> Message:
    """The message of a binary file (`BlobProto` for a mean file, ...), with arrays as views of the mapped file.

    Fields that the schema does not have are reported in one UndertowWarning (strict: a FormatError) and kept in
    `unknown_fields`. Raises FormatError with file, offset and the path of the field.
    """
    data = map_file(path)
    if not len(data):
        complain(f"the file is empty; it is read as an empty {message}", strict=strict, file=path)
    refuse_other_kind(data, message, path)
    try:
        result = parse_bytes(data, get_schema(fork)[message], file=path)
    except FormatError as error:
        other = guess_other_format(data)
        if other is None:
            raise
        raise FormatError(error.reason, file=path, offset=error.offset, remedy=other) from error
    _report_unknown(result, path, strict)
    return result


def _report_unknown(message: Message, path: PathLike, strict: bool) -> None:
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for where, item in walk(message):
        for field in item.unknown_fields:
            key = (item.descriptor.name, field.number)
            first, count = found.get(key, (where, 0))
            found[key] = (first, count + 1)
    if not found:
        return
    parts = []
    forks: set[str] = set()
    for (kind, number), (where, count) in sorted(found.items())[:12]:
        parts.append(f"{kind} field {number} (first in {where or 'the message itself'}, {count} in all)")
        forks.update(forks_with(kind, number))
    more = f", and {len(found) - 12} more kinds" if len(found) > 12 else ""
    known = ", ".join(f'fork="{fork}"' for fork in sorted(forks))
    complain(
        f"fields that are not in the schema are kept but not used: {'; '.join(parts)}{more}",
        strict=strict,
        file=path,
        remedy=f"read with {known}, or register them with register_fork" if known else "register_fork adds fields",
    )


def read_caffemodel(
    path: PathLike,
    *,
    fork: ForkLike = DEFAULT_FORK,
    strict: bool = False,
    upgrade: bool = True,
) -> Message:
    """The NetParameter of a caffemodel, binary or HDF5 (known by its first bytes), upgraded to today's form.

    `blob_array` gives the values of its blobs. See `read_binary` for unknown fields.
    """
    if is_hdf5(path):
        return hdf5.read_model(path, fork)
    net = read_binary(path, "NetParameter", fork=fork, strict=strict)
    if upgrade:
        upgrade_net(net, file=path, strict=strict)
    return net


def read_solverstate(path: PathLike, *, fork: ForkLike = DEFAULT_FORK, strict: bool = False) -> Message:
    """The SolverState of a snapshot, binary or HDF5 (known by its first bytes)."""
    if is_hdf5(path):
        return hdf5.read_state(path, fork)
    return read_binary(path, "SolverState", fork=fork, strict=strict)


def is_hdf5(path: PathLike) -> bool:
    """Whether a file begins like HDF5."""
    return map_file(path)[: len(HDF5_SIGNATURE)] == HDF5_SIGNATURE


def write_prototxt(message: Message, path: PathLike) -> None:
    """Write a message as text, whole or not at all."""
    text = message.to_text()
    with atomic_write(path_of(path)) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def write_binary(message: Message, path: PathLike, *, strict: bool = False) -> None:
    """Write a message in binary form, whole or not at all; large arrays are not copied.

    Beyond 2 GiB the original Caffe cannot read the file: a warning, or with strict an error.
    """
    chunks = to_chunks(message)
    size = sum(map(len, chunks))
    if size > _PROTOBUF_LIMIT:
        complain(f"{size:,} bytes: Caffe itself reads at most 2 GiB", strict=strict, file=path, remedy="write .h5")
    with atomic_write(path_of(path)) as stream:
        for chunk in chunks:
            stream.write(chunk)


def write_caffemodel(net: Message, path: PathLike) -> None:
    """Write a NetParameter with its blobs: HDF5 if the path ends in `.h5`, binary otherwise; whole or not at all."""
    if path_of(path).endswith(".h5"):
        hdf5.write_model(net, path)
    else:
        write_binary(net, path)


def write_solverstate(state: Message, path: PathLike) -> None:
    """Write a SolverState: HDF5 if the path ends in `.h5`, binary otherwise; whole or not at all."""
    if path_of(path).endswith(".h5"):
        hdf5.write_state(state, path)
    else:
        write_binary(state, path)

"""Darknet's .weights files, in and out (src/parser.c load_weights_upto, save_weights_upto).

A file is a header and then float32 arrays without any names: only the cfg says what they are. So everything is
checked against the length of the file before memory is taken, and what does not fit is told with layer and byte.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BufferedReader

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options_layers import ConvolutionalOptions
from undertow.darknet.files.parameters import STATISTICS, ParameterSpec, batchnorm_specs
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.files.textfiles import report_oddity, telling_system_errors
from undertow.darknet.files.weights_header import FORK_REVISION, LONG_HEADER, WeightsHeader, parse_headers
from undertow.errors import FormatError, ShapeError
from undertow.files import atomic_write

Array = NDArray[np.float32]
GetArray = Callable[[int, str], "NDArray[np.floating]"]

_FLOAT = 4
_IMPROBABLE_SEEN = 2**48


@dataclass
class WeightsFile:
    """What a weights file gave.

    arrays: whole arrays by (layer index, name), names and shapes as in `LayerShape.parameters`.
    prefixes: the first values of arrays that were read only in part (numload), flat.
    loaded_layers: layers whose parameters were read. wanted_layers: layers that keep parameters and were asked for.
    report: what a user should know, one sentence each. ruined: those of them about values that are not finite, with
    which no training goes on.
    """

    path: str
    header: WeightsHeader
    arrays: dict[tuple[int, str], Array] = field(default_factory=dict)
    prefixes: dict[tuple[int, str], Array] = field(default_factory=dict)
    loaded_layers: tuple[int, ...] = ()
    wanted_layers: tuple[int, ...] = ()
    report: list[str] = field(default_factory=list)
    ruined: list[str] = field(default_factory=list)

    @property
    def seen(self) -> int:
        """Images the network has seen in training."""
        return self.header.seen

    @property
    def is_partial(self) -> bool:
        """Whether the file ended before the last layer that was asked for."""
        return len(self.loaded_layers) < len(self.wanted_layers)

    def copy_into(self, get_array: GetArray) -> None:
        """Write everything into the arrays of a network, in place; what the file does not hold keeps its values."""
        for (layer, name), array in self.arrays.items():
            target = get_array(layer, name)
            if target.size != array.size:
                raise ShapeError(
                    f"'{name}' holds {target.size} values, the file {array.size}", file=self.path, layer=layer
                )
            target[...] = array.reshape(target.shape)
        for (layer, name), values in self.prefixes.items():
            get_array(layer, name).flat[: values.size] = values


def read_weights(
    path: str | os.PathLike[str],
    shapes: NetworkShapes,
    *,
    start: int = 0,
    cutoff: int | None = None,
    strict: bool = False,
    original: bool = False,
) -> WeightsFile:
    """Read the parameters of the layers start..cutoff-1 from the beginning of a file.

    A file that ends exactly between two layers (a backbone, cut by `partial`) fills the layers it reaches; that, and
    bytes left over, and values that are not finite, are told with an UndertowWarning, or are errors when `strict`.
    original: also load a file that ends inside an array as far as it goes, as the 2018 program does, with a warning.
    Raises FormatError, with layer and byte offset, for everything else that does not fit.
    """
    name = os.fspath(path)
    last = len(shapes) if cutoff is None else cutoff
    with telling_system_errors(name, "read"), open(path, "rb") as stream:
        size = _file_size(stream, name)
        headers = parse_headers(stream.read(LONG_HEADER), name, size)
        layout = _choose_layout(headers, shapes, start, last, size)
        return _Reader(name, size, layout, strict, original).read(stream, complete=last >= len(shapes))


def write_weights(
    path: str | os.PathLike[str],
    shapes: NetworkShapes,
    get_array: GetArray,
    *,
    seen: int = 0,
    cutoff: int | None = None,
    version: tuple[int, int, int] = (0, 2, 0),
    header: WeightsHeader | None = None,
) -> None:
    """Write the parameters of the layers before `cutoff`, as the original saves them: beside `path`, then renamed.

    get_array(layer, name): the array for each of `LayerShape.parameters`, any float dtype. Layers with dontsave=1 are
    left out. header: instead of one of this version and counter.
    Raises ShapeError for an array of the wrong size, FormatError where the file cannot be written.
    """
    name = os.fspath(path)
    with telling_system_errors(name, "written"), atomic_write(path) as stream:
        stream.write((header or WeightsHeader(*version, seen=seen)).pack())
        for layer in shapes[:cutoff]:
            if layer.options.dontsave:
                continue
            for spec in layer.parameters:
                stream.write(_bytes_of(get_array(spec.layer, spec.name), spec, name))


def _bytes_of(array: NDArray[np.floating], spec: ParameterSpec, file: str) -> memoryview:
    if array.size != spec.count:
        raise ShapeError(
            f"'{spec.name}' has {array.size} values, the cfg wants {spec.shape}", file=file, layer=spec.layer
        )
    return np.ascontiguousarray(array, dtype="<f4").reshape(-1).data.cast("B")


@dataclass(frozen=True)
class _Piece:
    """One array to read: its spec, how many values of it, and the matrix (rows, columns) to transpose, if any."""

    spec: ParameterSpec
    count: int
    transpose: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Layout:
    """One way to understand the file: a header and the pieces that follow it, layer by layer."""

    header: WeightsHeader
    pieces: tuple[_Piece, ...]

    @property
    def end(self) -> int:
        """The length of a file that holds everything."""
        return self.header.size + _FLOAT * sum(piece.count for piece in self.pieces)

    def boundaries(self) -> set[int]:
        """Lengths of files that end between two layers."""
        ends, offset = set(), self.header.size
        for piece, following in zip(self.pieces, self.pieces[1:], strict=False):
            offset += _FLOAT * piece.count
            if piece.spec.layer != following.spec.layer:
                ends.add(offset)
        return ends


def _choose_layout(
    headers: Iterable[WeightsHeader], shapes: NetworkShapes, start: int, cutoff: int, size: int
) -> _Layout:
    """The first layout that fits the length of the file exactly, else between two layers, else the likeliest."""
    layers = shapes[max(start, 0) : max(cutoff, 0)]
    layouts = []
    for header in headers:
        for fork in (False, True) if header.revision < FORK_REVISION else (True, False):
            pieces = [piece for layer in layers for piece in _pieces(layer, header.transposed, fork)]
            layouts.append(_Layout(header, tuple(pieces)))
    exact = [layout for layout in layouts if layout.end == size]
    between = [layout for layout in layouts if size in layout.boundaries()] if not exact else []
    return (exact or between or layouts)[0]


def _pieces(layer: LayerShape, transposed: bool, fork: bool) -> list[_Piece]:
    """What the original reads for one layer; fork: batchnorm layers keep their biases in the file."""
    options = layer.options
    if options.dontload:
        return []
    specs = list(layer.parameters)
    if layer.type == "batchnorm":
        specs = batchnorm_specs(layer.index, layer.out_shape[0], biases=fork)
    if options.dontloadscales and layer.type in ("convolutional", "deconvolutional", "connected"):
        specs = [spec for spec in specs if spec.kind not in STATISTICS]
    if layer.type in ("convolutional", "deconvolutional"):
        return [_convolution_piece(layer, spec) for spec in specs]
    swap = transposed and layer.type in ("connected", "rnn", "gru", "lstm")
    return [_Piece(spec, spec.count, _swapped(spec) if swap and spec.kind == "weights" else None) for spec in specs]


def _swapped(spec: ParameterSpec) -> tuple[int, int]:
    outputs, inputs = spec.shape
    return inputs, outputs


def _convolution_piece(layer: LayerShape, spec: ParameterSpec) -> _Piece:
    options = layer.options
    filters = layer.out_shape[0]
    count = spec.count if not options.numload else spec.count // filters * options.numload
    if isinstance(options, ConvolutionalOptions) and options.flipped and spec.kind == "weights":
        columns = options.numload or filters
        return _Piece(spec, count, (count // columns, columns))
    return _Piece(spec, count)


@dataclass
class _Reader:
    """Reads the pieces one after another and keeps account of what was found."""

    name: str
    size: int
    layout: _Layout
    strict: bool
    original: bool
    report: list[str] = field(default_factory=list)

    def read(self, stream: BufferedReader, complete: bool) -> WeightsFile:
        header, pieces = self.layout.header, self.layout.pieces
        found = WeightsFile(self.name, header, report=self.report)
        available = self._check_length(complete)
        stream.seek(header.size)
        offset = header.size
        loaded: list[int] = []
        for piece in pieces:
            count = min(piece.count, (available - offset) // _FLOAT)
            if count > 0:
                self._store(found, piece, self._read_values(stream, piece, count, offset))
                loaded.append(piece.spec.layer)
            offset += _FLOAT * piece.count
        found.loaded_layers = tuple(dict.fromkeys(loaded))
        found.wanted_layers = tuple(dict.fromkeys(piece.spec.layer for piece in pieces))
        self._tell_unusual_values(found)
        return found

    def _check_length(self, complete: bool) -> int:
        """How far the file may be read; told before any memory is taken for its arrays."""
        layout, size = self.layout, self.size
        if layout.header.seen > _IMPROBABLE_SEEN:
            self._tell(f"the counter of images seen is {layout.header.seen}, which cannot be right", offset=12)
        if size == layout.header.size and layout.pieces:
            raise FormatError(
                "the file ends after its header, it holds no parameters",
                file=self.name,
                offset=size,
                remedy="fetch or save the weights again",
            )
        if size > layout.end:
            if complete:
                self._tell(
                    f"{size - layout.end} bytes unread after the last layer, the cfg probably does not match",
                    offset=layout.end,
                    remedy="use the cfg these weights were trained with",
                )
        elif size in layout.boundaries():
            self._tell_partial(size)
        elif size < layout.end:
            self._cut_inside(size)
        return min(size, layout.end)

    def _tell_partial(self, size: int) -> None:
        offset, loaded = self.layout.header.size, set()
        for piece in self.layout.pieces:
            offset += _FLOAT * piece.count
            if offset <= size:
                loaded.add(piece.spec.layer)
        wanted = len({piece.spec.layer for piece in self.layout.pieces})
        self._tell(f"{len(loaded)} of {wanted} layers loaded (partial file); the others keep their initial values")

    def _cut_inside(self, size: int) -> None:
        offset = self.layout.header.size
        for piece in self.layout.pieces:
            end = offset + _FLOAT * piece.count
            if end > size:
                break
            offset = end
        spec = piece.spec
        reason = f"the file ends inside this layer: its '{spec.name}' go to byte {end}, the file has {size} bytes"
        remedy = "fetch the file again, or use the cfg these weights were trained with"
        if not self.original:
            raise FormatError(reason, file=self.name, offset=size, layer=spec.layer, remedy=remedy)
        self._tell(f"{reason}; the rest keeps its values", offset=size, layer=spec.layer, remedy=remedy)

    def _read_values(self, stream: BufferedReader, piece: _Piece, count: int, offset: int) -> Array:
        values = np.empty(count, dtype="<f4")
        if stream.readinto(values.data.cast("B")) < values.nbytes:
            raise FormatError(
                "the file became shorter while it was read",
                file=self.name,
                offset=offset,
                layer=piece.spec.layer,
                remedy="load it when nobody writes to it",
            )
        return values.astype(np.float32, copy=False)

    def _store(self, found: WeightsFile, piece: _Piece, values: Array) -> None:
        key = piece.spec.layer, piece.spec.name
        if piece.transpose is not None and values.size == piece.count:
            values = np.ascontiguousarray(values.reshape(piece.transpose).T).reshape(-1)
        if values.size == piece.spec.count:
            found.arrays[key] = values.reshape(piece.spec.shape)
        else:
            found.prefixes[key] = values

    def _tell_unusual_values(self, found: WeightsFile) -> None:
        """One warning for all arrays with values no training leaves behind; the report names each."""
        unusual = []
        for (layer, name), values in (*found.arrays.items(), *found.prefixes.items()):
            what = _unusual(values, name)
            if what:
                unusual.append((layer, f"layer {layer} holds {what} in its {name}"))
                if not np.isfinite(values).all():
                    found.ruined.append(unusual[-1][1])
        if unusual:
            layer, first = unusual[0]
            more = f" (and {len(unusual) - 1} more arrays)" if len(unusual) > 1 else ""
            remedy = "take an earlier checkpoint, or check that the cfg matches"
            report_oddity(f"{first}{more}", strict=self.strict, file=self.name, remedy=remedy)
            self.report.extend(text for _, text in unusual)

    def _tell(
        self, reason: str, *, offset: int | None = None, layer: int | None = None, remedy: str | None = None
    ) -> None:
        self.report.append(reason)
        report_oddity(reason, strict=self.strict, file=self.name, offset=offset, layer=layer, remedy=remedy)


def _unusual(values: Array, name: str) -> str:
    nans = int(np.count_nonzero(np.isnan(values)))
    if nans:
        return f"{nans} NaN"
    infinite = int(np.count_nonzero(np.isinf(values)))
    if infinite:
        return f"{infinite} infinite values"
    if name.endswith("rolling_variance"):
        negative = int(np.count_nonzero(values < 0))
        return f"{negative} negative values" if negative else ""
    return ""


def _file_size(stream: BufferedReader, name: str) -> int:
    status = os.fstat(stream.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("not a regular file", file=name, remedy="give the path of a file")
    return status.st_size

"""The feed of HDF5Data layers: rows of datasets in a list of files, read batch by batch."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from undertow.caffe.data.feed import Array, Feed, PathLike, Shape, State, empty_batch
from undertow.caffe.proto.hdf5_circles import check_circles
from undertow.errors import FormatError, MissingPackage, UndertowError

# A batch of rows up to this size is read whatever the file stores for it (data that was never written is all zeros);
# beyond it the file must hold enough bytes, as deflate shrinks at most about 1032 times.
_PLAUSIBLE = 256 * 1024 * 1024
_STRONGEST_FILTER = 1100
_ROWS_AT_ONCE = 65536  # of a column
_FILES, _ROWS = 1, 2


@contextlib.contextmanager
def reading(path: PathLike) -> Iterator[None]:
    """Whatever h5py raises for a damaged file becomes a FormatError."""
    try:
        yield
    except UndertowError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError) as problem:
        raise FormatError(f"cannot be read as HDF5: {problem}", file=path, remedy="make the file again") from problem


class _File:
    """The datasets of one file, by the tops' names."""

    def __init__(self, path: PathLike, names: Sequence[str]) -> None:
        try:
            import h5py
        except ImportError:
            raise MissingPackage("h5py", "caffe", "an HDF5Data layer") from None
        self.path = path
        if not os.path.isfile(path):
            raise FormatError("there is no such file", file=path, remedy="check the paths in the list")
        with reading(path):
            check_circles(path)
            self.file = h5py.File(path, "r")
            self.datasets = [self._dataset(name) for name in names]
            self.rows = int(self.datasets[0].shape[0])
        for name, dataset in zip(names, self.datasets, strict=True):
            if dataset.shape[0] != self.rows:
                raise FormatError(
                    f"'{name}' has {dataset.shape[0]} rows, '{names[0]}' has {self.rows}", file=path,
                    remedy="all datasets need as many rows",
                )  # fmt: skip
        if not self.rows:
            raise FormatError(f"'{names[0]}' has no rows", file=path, remedy="take the file off the list")

    def _dataset(self, name: str) -> Any:
        item = self.file.get(name)
        if item is None or not hasattr(item, "shape"):
            there = ", ".join(f"'{known}'" for known in list(self.file)[:20]) or "nothing"
            raise FormatError(
                f"there is no dataset '{name}'",
                file=self.path,
                remedy=f"name the tops as the datasets; here is {there}",
            )
        if item.dtype.kind not in "fiu":
            raise FormatError(
                f"'{name}' holds no numbers ({item.dtype})",
                file=self.path,
                remedy="write float32 values: file.create_dataset(name, data=array)",
            )
        if not item.shape:
            raise FormatError(
                f"'{name}' is a single value; it needs an axis of rows",
                file=self.path,
                remedy="write it with axes (rows, ...)",
            )
        return item

    def check(self, rows: int) -> None:
        """Refuse batches for which the file has too few bytes."""
        for dataset in self.datasets:
            needed = rows * math.prod(dataset.shape[1:]) * dataset.dtype.itemsize
            if needed > _PLAUSIBLE and needed > dataset.id.get_storage_size() * _STRONGEST_FILTER:
                raise FormatError(
                    f"{dataset.name}: {needed} bytes a batch, more than the file can hold",
                    file=self.path,
                    remedy="the file is damaged: write it again; or use a smaller batch_size",
                )

    def read(self, index: int, rows: Array) -> Array:
        """Some rows of a dataset, in any order."""
        dataset = self.datasets[index]
        with reading(self.path):
            if len(rows) == rows[-1] - rows[0] + 1 and (np.diff(rows) == 1).all():
                return np.asarray(dataset[rows[0] : rows[-1] + 1])
            order = np.argsort(rows)
            found = np.empty((len(rows), *dataset.shape[1:]), dataset.dtype)
            found[order] = dataset[rows[order]]
            return found


class Hdf5Feed(Feed):
    """Batches of rows, through all files and round again.

    names: of the datasets. shuffle: files in another order in every round, rows in another order in every visit of a
    file. The position is the round, the place in its order of files, and the row there.
    """

    def __init__(
        self,
        paths: Sequence[PathLike],
        names: Sequence[str],
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        dtype: Any = np.float32,
    ) -> None:
        super().__init__(seed)
        self.paths, self.names, self.batch_size, self.dtype = list(paths), list(names), batch_size, np.dtype(dtype)
        self.shuffle = self.random = shuffle
        self.round = self.place = self.row = 0
        self._file: _File | None = None
        self._visit: tuple[int, int] | None = None
        self._order = np.arange(0)
        self._row_shapes: list[Shape] = [dataset.shape[1:] for dataset in self._current().datasets]
        self.shapes = [(batch_size, *shape) for shape in self._row_shapes]

    def count_rows(self) -> int:
        """Rows of all files. Raises FormatError for one that cannot be read."""
        return sum(file.rows for file in self._opened())

    def read_column(self, index: int) -> Iterator[Array]:
        """The dataset of one top, file after file; the position stays. Raises FormatError as `load` does."""
        for file in self._opened():
            for first in range(0, file.rows, _ROWS_AT_ONCE):
                yield file.read(index, np.arange(first, min(first + _ROWS_AT_ONCE, file.rows)))

    def _opened(self) -> Iterator[_File]:
        for path in self.paths:
            file = _File(path, self.names)
            try:
                yield file
            finally:
                file.file.close()

    def _current(self) -> _File:
        """The file to read now, with `_order` as the order of its rows."""
        if self._file is None or self._visit != (self.round, self.place):
            number = self.place
            if self.shuffle:
                number = int(self.draws(self.round, _FILES).permutation(len(self.paths))[self.place])
            if self._file is None or self._file.path != self.paths[number]:
                self.close()
                self._file = _File(self.paths[number], self.names)
                self._file.check(min(self.batch_size, self._file.rows))
            if self.shuffle:
                self._order = self.draws(self.round, self.place, _ROWS).permutation(self._file.rows)
            self._visit = self.round, self.place
        return self._file

    def load(self) -> list[Array]:
        arrays = [empty_batch(shape, self.dtype) for shape in self.shapes]
        done = 0
        while done < self.batch_size:
            file = self._current()
            shapes = [dataset.shape[1:] for dataset in file.datasets]
            if shapes != self._row_shapes:
                raise FormatError(
                    f"rows of shapes {shapes}, the first file has {self._row_shapes}",
                    file=file.path,
                    remedy="give all files of the list rows of one shape",
                )
            if self.row >= file.rows:
                raise FormatError(
                    f"the saved position is row {self.row} of {file.rows}",
                    file=file.path,
                    remedy="the files have changed since the snapshot: remove the side file beside the solverstate",
                )
            last = min(file.rows, self.row + self.batch_size - done)
            rows = self._order[self.row : last] if self.shuffle else np.arange(self.row, last)
            for index, array in enumerate(arrays):
                array[done : done + len(rows)] = file.read(index, rows)
            done += len(rows)
            self.counter += len(rows)
            self._advance(last, file.rows)
        return arrays

    def _advance(self, row: int, rows: int) -> None:
        self.row = row
        if row == rows:
            self.row, self.place = 0, self.place + 1
        if self.place == len(self.paths):
            self.place, self.round = 0, self.round + 1

    def state(self) -> State:
        place = {"round": self.round, "place": self.place, "row": self.row, "files": len(self.paths)}
        return {**super().state(), **{name: np.array(value, np.int64) for name, value in place.items()}}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        if int(state["files"]) != len(self.paths):
            raise UndertowError(
                f"the saved position is in a list of {int(state['files'])} files, this one has {len(self.paths)}",
                remedy="go on with the list that the training began with",
            )
        self.round, self.place, self.row = (int(state[name]) for name in ("round", "place", "row"))
        self._visit = None

    def close(self) -> None:
        if self._file is not None:
            self._file.file.close()
            self._file = None

"""The feed of Data layers: Datum records of a database, in order and round again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from undertow.caffe.data.database import Database
from undertow.caffe.data.datum import read_record
from undertow.caffe.data.feed import Array, Feed, State, stack_into
from undertow.caffe.data.transformer import DataTransformer
from undertow.errors import FormatError, ShapeError


class DatabaseFeed(Feed):
    """Batches (pictures, and labels where wanted) of a database's records.

    The position is the key of the last record and the number of records handed out.
    """

    def __init__(
        self, database: Database, batch_size: int, transformer: DataTransformer, *, labels: bool, seed: int = 0
    ) -> None:
        super().__init__(seed)
        self.database, self.batch_size = database, batch_size
        self.transformer, self.labels, self.random = transformer, labels, transformer.random
        self._last = b""
        self._records: Iterator[tuple[bytes, memoryview]] | None = None
        for key, value in database.records():
            picture = read_record(value, transformer.color, key=key, file=database.path).pixels
            shape = transformer.shape_of(picture.shape)
            break
        else:
            raise FormatError("the database holds no record", file=database.path, remedy="make the database again")
        self.shapes = [(batch_size, *shape)] + ([(batch_size,)] if labels else [])

    def _next(self) -> tuple[bytes, memoryview]:
        if self._records is None:
            self._records = self.database.records(self._last)
            record = next(self._records, None)
            if record is not None and (record[0] != self._last or not self._last):
                return record
        record = next(self._records, None)
        if record is None:
            self._records = self.database.records()
            record = next(self._records, None)
        if record is None:
            raise FormatError("the database holds no record", file=self.database.path)
        return record

    def load(self) -> list[Array]:
        first = self.counter
        keys, pictures, labels = [], [], np.empty(self.batch_size, self.transformer.dtype)
        for index in range(self.batch_size):
            key, value = self._next()
            pixels, labels[index] = read_record(value, self.transformer.color, key=key, file=self.database.path)
            keys.append(key)
            pictures.append(pixels)
            self._last, self.counter = key, self.counter + 1
        if not self.random and all(picture.shape == pictures[0].shape for picture in pictures):
            batch = self._transformed(keys[0], np.stack(pictures), None)
        else:
            batch = self._one_by_one(keys, pictures, first)
        return [batch, labels] if self.labels else [batch]

    def _one_by_one(self, keys: list[bytes], pictures: list[Array], first: int) -> Array:
        batch = None
        for index, (key, picture) in enumerate(zip(keys, pictures, strict=True)):
            rng = self.draws(first + index) if self.random else None
            values = self._transformed(key, picture, rng)
            batch = stack_into(batch, index, values, self.batch_size, _record(key))
        assert batch is not None
        return batch

    def _transformed(self, key: bytes, pictures: Array, rng: np.random.Generator | None) -> Array:
        try:
            return self.transformer.transform(pictures, rng)
        except ShapeError as error:
            reason = f"{_record(key)}: {error.reason}"
            raise ShapeError(reason, file=self.database.path, remedy=error.remedy) from error

    def state(self) -> State:
        return {**super().state(), "key": np.frombuffer(self._last, np.uint8).copy()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self._last, self._records = np.asarray(state["key"], np.uint8).tobytes(), None


def _record(key: bytes) -> str:
    return f"record '{key.decode(errors='replace')}'"

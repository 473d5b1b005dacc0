"""The feed of Data layers: Datum records of a database, in order and round again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from undertow.caffe.data.database import Database
from undertow.caffe.data.datum import read_record
from undertow.caffe.data.feed import Array, Feed, State, stack_into
from undertow.caffe.data.transformer import DataTransformer
from undertow.errors import FormatError, ShapeError


class RecordFeed(Feed):
    """Records of a database one after the other, round again without end.

    The position is the key of the last record and the number of records handed out.
    """

    def __init__(self, database: Database, batch_size: int, seed: int = 0) -> None:
        super().__init__(seed)
        self.database, self.batch_size = database, batch_size
        self._last = b""
        self._records: Iterator[tuple[bytes, memoryview]] | None = None

    def first(self) -> tuple[bytes, memoryview]:
        """The first record; the position stays. Raises FormatError where there is none."""
        for record in self.database.records():
            return record
        raise FormatError("the database holds no record", file=self.database.path, remedy="make the database again")

    def next(self) -> tuple[bytes, memoryview]:
        """The next record."""
        key, value = self._next()
        self._last, self.counter = key, self.counter + 1
        return key, value

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
            raise FormatError(
                "the database holds no record",
                file=self.database.path,
                remedy="make it with undertow caffe convert_imageset",
            )
        return record

    def state(self) -> State:
        return {**super().state(), "key": np.frombuffer(self._last, np.uint8).copy()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self._last, self._records = np.asarray(state["key"], np.uint8).tobytes(), None


class DatabaseFeed(RecordFeed):
    """Batches (pictures, and labels where wanted) of a database's records."""

    def __init__(
        self, database: Database, batch_size: int, transformer: DataTransformer, *, labels: bool, seed: int = 0
    ) -> None:
        super().__init__(database, batch_size, seed)
        self.transformer, self.labels, self.random = transformer, labels, transformer.random
        key, value = self.first()
        shape = transformer.shape_of(read_record(value, transformer.color, key=key, file=database.path).pixels.shape)
        self.shapes = [(batch_size, *shape)] + ([(batch_size,)] if labels else [])

    def load(self) -> list[Array]:
        first = self.counter
        keys, pictures, labels = [], [], np.empty(self.batch_size, self.transformer.dtype)
        for index in range(self.batch_size):
            key, value = self.next()
            pixels, labels[index] = read_record(value, self.transformer.color, key=key, file=self.database.path)
            keys.append(key)
            pictures.append(pixels)
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
            batch = stack_into(batch, index, values, self.batch_size, record_name(key))
        assert batch is not None
        return batch

    def _transformed(self, key: bytes, pictures: Array, rng: np.random.Generator | None) -> Array:
        try:
            return self.transformer.transform(pictures, rng)
        except ShapeError as error:
            reason = f"{record_name(key)}: {error.reason}"
            raise ShapeError(reason, file=self.database.path, remedy=error.remedy) from error


def record_name(key: bytes) -> str:
    """A record, as messages call it."""
    return f"record '{key.decode(errors='replace')}'"

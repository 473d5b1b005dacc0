"""The feed of Data layers: Datum records of a database, in order and round again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from undertow.caffe.data.database import Database
from undertow.caffe.data.datum import datum_pixels, parse_datum
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
            shape = transformer.shape_of(self._pixels(key, value)[0].shape)
            break
        else:
            raise FormatError("the database holds no record", file=database.path, remedy="make the database again")
        self.shapes = [(batch_size, *shape)] + ([(batch_size,)] if labels else [])

    def _pixels(self, key: bytes, value: memoryview) -> tuple[Array, int]:
        path = self.database.path
        datum = parse_datum(value, key=key, file=path)
        return datum_pixels(datum, self.transformer.color, key=key, file=path), datum.label

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
        batch = None
        labels: Any = np.empty(self.batch_size, self.transformer.dtype)
        for index in range(self.batch_size):
            key, value = self._next()
            pixels, labels[index] = self._pixels(key, value)
            rng = self.draws(self.counter) if self.random else None
            what = f"record '{key.decode(errors='replace')}'"
            try:
                values = self.transformer.transform(pixels, rng)
            except ShapeError as error:
                raise ShapeError(f"{what}: {error.reason}", file=self.database.path, remedy=error.remedy) from error
            batch = stack_into(batch, index, values, self.batch_size, what)
            self.counter += 1
            self._last = key
        assert batch is not None
        return [batch, labels] if self.labels else [batch]

    def state(self) -> State:
        return {**super().state(), "key": np.frombuffer(self._last, np.uint8).copy()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self._last, self._records = np.asarray(state["key"], np.uint8).tobytes(), None

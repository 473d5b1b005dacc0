"""The feed of ImageData layers: picture files of a list, in order or shuffled anew in every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from undertow.caffe.data.feed import Array, Feed, State, stack_into
from undertow.caffe.data.imagelist import Line
from undertow.caffe.data.pictures import read_picture, resize_picture
from undertow.caffe.data.transformer import DataTransformer
from undertow.errors import FormatError, ShapeError, UndertowError

_SHUFFLE = 1


class ImageFeed(Feed):
    """Batches of the pictures of a list.

    size: (height, width) to bring them to, or None. find: from a path in the list to the file. skip: how many lines
    are left out at the start. The position is the number of lines passed.
    """

    def __init__(
        self,
        lines: Sequence[Line],
        batch_size: int,
        transformer: DataTransformer,
        *,
        find: Callable[[str], str],
        size: tuple[int, int] | None = None,
        color: bool = True,
        shuffle: bool = False,
        skip: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.lines, self.batch_size, self.transformer = lines, batch_size, transformer
        self.find, self.size, self.color, self.shuffle = find, size, color, shuffle
        self.random = transformer.random or shuffle
        self.counter = skip
        self._round, self._order = -1, np.arange(0)
        shape = transformer.shape_of(self._picture(self._line(skip)).shape)
        self.shapes = [(batch_size, *shape), (batch_size,)]

    def _line(self, counter: int) -> Line:
        number, place = divmod(counter, len(self.lines))
        if not self.shuffle:
            return self.lines[place]
        if number != self._round:
            self._round, self._order = number, self.draws(number, _SHUFFLE).permutation(len(self.lines))
        return self.lines[self._order[place]]

    def _picture(self, line: Line) -> Array:
        try:
            picture = read_picture(self.find(line.path), self.color)
        except FormatError as error:
            reason = f"{error.reason} (line {line.number} of the list)"
            raise FormatError(reason, file=error.file, remedy=error.remedy) from error
        return picture if self.size is None else resize_picture(picture, *self.size)

    def load(self) -> list[Array]:
        batch = None
        labels: Any = np.empty(self.batch_size, self.transformer.dtype)
        for index in range(self.batch_size):
            line = self._line(self.counter)
            rng = self.draws(self.counter) if self.transformer.random else None
            try:
                values = self.transformer.transform(self._picture(line), rng)
            except ShapeError as error:
                raise ShapeError(f"{line.path}: {error.reason}", remedy=error.remedy) from error
            batch = stack_into(batch, index, values, self.batch_size, line.path)
            labels[index] = line.label
            self.counter += 1
        assert batch is not None
        return [batch, labels]

    def state(self) -> State:
        return {**super().state(), "items": np.array(len(self.lines), np.int64)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        if int(state["items"]) != len(self.lines):
            raise UndertowError(
                f"the saved position is in a list of {int(state['items'])} pictures, this one has {len(self.lines)}",
                remedy="go on with the list that the training began with",
            )
        self._round = -1

"""extract_features: what a net computes of its data, item by item, into databases."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from undertow.caffe.blob import Blob, legacy_length
from undertow.caffe.data.database import check_backend, new_database
from undertow.caffe.net import Net
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.tools import Tick, no_tick
from undertow.errors import UndertowError

PathLike = str | os.PathLike[str]


def extract_features(
    weights: PathLike, model: PathLike, blobs: Sequence[str], databases: Sequence[PathLike], batches: int, *,
    backend: str = "lmdb", options: Mapping[str, Any] | None = None, tick: Tick = no_tick,
) -> int:  # fmt: skip
    """Run a net in phase TEST and put each item of these blobs into a database of its own; the number of items of the
    first blob.

    Records are Datums of floats (channels, height, width) under keys of ten digits, as Caffe's program writes them.
    options: of `Net`. Raises UndertowError for a blob that the net does not have; databases appear when all is done.
    """
    check_backend(backend)
    if len(blobs) != len(databases) or not blobs:
        raise UndertowError(
            f"{len(blobs)} blobs and {len(databases)} databases are named",
            remedy="name a database for every blob, separated by commas",
        )
    net = Net(model, "TEST", weights=weights, **dict(options or {}))
    for name in blobs:
        if name not in net.blobs:
            raise UndertowError(f"the net has no blob '{name}'", file=model, remedy=f"there is {', '.join(net.blobs)}")
    counts = [0] * len(blobs)
    with contextlib.ExitStack() as stack:
        puts = [stack.enter_context(new_database(path, backend)) for path in databases]
        for batch in range(batches):
            net.forward()
            for index, (name, put) in enumerate(zip(blobs, puts, strict=True)):
                for item in items_of(net.blobs[name]):
                    put(b"%010d" % counts[index], item.to_bytes())
                    counts[index] += 1
            tick(batch + 1, batches)
    return counts[0]


def items_of(blob: Blob) -> list[Message]:
    """The items of a blob of up to four axes, as Datums of floats."""
    count, channels, height, width = (legacy_length(blob.shape, axis) for axis in range(4))
    rows = blob.data.reshape(count, -1)
    return [new_message("Datum", channels=channels, height=height, width=width, float_data=row.copy()) for row in rows]

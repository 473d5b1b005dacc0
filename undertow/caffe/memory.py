"""Whether a net fits into the machine, told before the memory is taken."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from undertow.caffe.layers_shape import Sharing
from undertow.errors import ShapeError

if TYPE_CHECKING:
    from undertow.caffe.net import Net


def bytes_needed(net: Net) -> int:
    """Parameters with their gradients, and blobs, with gradients where a backward pass computes any."""
    numbers = 2 * sum(blob.count for blob in net.learnable_params)
    shared = {i for layer, ids in zip(net.layers, net.top_ids, strict=True) if isinstance(layer, Sharing) for i in ids}
    both = 2 if any(net.layer_need_backward) else 1
    numbers += both * sum(blob.count for i, blob in enumerate(net.blob_list) if i not in shared)
    return numbers * net.dtype.itemsize


def check_memory(net: Net, available: int | None = None) -> None:
    """Raise ShapeError, naming the largest layer, when a net needs more than the machine's memory.

    available: bytes; the machine's physical memory unless given (no check where it is not known).
    """
    limit = physical_memory() if available is None else available
    needed = bytes_needed(net)
    if limit is None or needed <= limit:
        return
    sizes = [
        sum(net.blob_list[j].count for j in net.top_ids[i]) + 2 * sum(blob.count for blob in layer.blobs)
        for i, layer in enumerate(net.layers)
    ]
    largest = net.layers[sizes.index(max(sizes))]
    raise ShapeError(
        f"the net needs {needed / 2**30:,.1f} GiB for its blobs and parameters, this machine has {limit / 2**30:,.1f} "
        f"GiB; most of it for this layer, with tops {', '.join(map(str, _tops(net, largest.name)))}",
        file=net.file,
        line=largest.message.line_of(),
        layer=f"'{largest.name}' ({largest.type})",
        remedy="use a smaller batch or image, or look at the shapes only, with infer_shapes",
    )


def _tops(net: Net, name: str) -> list[tuple[int, ...]]:
    index = [layer.name for layer in net.layers].index(name)
    return [net.blob_list[i].shape for i in net.top_ids[index]]


def physical_memory() -> int | None:
    """Bytes of memory of this machine, or None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None

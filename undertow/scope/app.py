"""The page of one network: served with full maps behind it, or written as one file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from undertow.errors import UndertowError
from undertow.files import atomic_write
from undertow.inspect.record import Array
from undertow.scope.assets import Page
from undertow.scope.document import document
from undertow.scope.pictures import SHARES, THUMBNAILS, sheet
from undertow.scope.recording import Recording, Run
from undertow.scope.server import Reply, Route, json_reply, routes_of

_LARGEST_SIDE = 1024
# Bytes of a page that is one file; of long nets it holds fewer and smaller maps.
LARGEST_PAGE = 4_900_000


def page_of(recording: Recording) -> Page:
    """The page that shows a recording."""
    styles = ("page/base.css", "page/network.css", "vendor/uplot.css")
    return Page(f"{os.path.basename(recording.source)} - Undertow", "scope/network", styles)


def write_page(recording: Recording, path: str | os.PathLike[str]) -> int:
    """Write the page as one file that needs no network; its size in bytes.

    Where it would be larger than LARGEST_PAGE it holds fewer and smaller maps of each layer, and says so.
    """
    page = page_of(recording)
    text = page.whole(document(recording, live=False)).encode()
    for share in SHARES[1:]:
        if len(text) <= LARGEST_PAGE:
            break
        text = page.whole(document(recording, live=False, share=share)).encode()
    with atomic_write(path) as stream:
        stream.write(text)
    return len(text)


def routes_for(recording: Recording) -> dict[str, Route]:
    """The page, and /maps that gives sixteen channels of a layer in full size."""
    routes = routes_of(page_of(recording), document(recording, live=True))
    routes["/maps"] = lambda query: _maps(recording, query)
    return routes


def _maps(recording: Recording, query: Mapping[str, str]) -> Reply:
    """Of a run, layer and kind ("output" or "gradient") the channels named; at most sixteen, up to 1024 pixels wide."""
    run = recording.runs[_number(query, "run", len(recording.runs))]
    array = _array(run, _number(query, "layer", len(recording.rows)), query.get("kind", ""))
    words = query.get("channels", "").split(",")[:THUMBNAILS]
    channels = [_number({"channels": word}, "channels", array.shape[1]) for word in words]
    found = sheet(array, channels, _LARGEST_SIDE)
    return json_reply({"image": found.address, "size": found.size, "stride": found.stride, "limit": found.limit})


def _array(run: Run, layer: int, kind: str) -> Array:
    found = {"output": run.outputs, "gradient": run.gradients}.get(kind, {}).get(layer)
    if found is None or found.ndim != 4:
        raise UndertowError(f"layer {layer} has no maps of kind '{kind}'")
    return found


def _number(query: Mapping[str, str], name: str, count: int) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) < count):
        raise UndertowError(f"'{name}' is a whole number from 0 to {count - 1}, not '{text[:40]}'")
    return int(text)

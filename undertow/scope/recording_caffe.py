"""A Caffe net in one or several dialects, recorded for a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undertow.caffe.net import Net
from undertow.data.images import load_image
from undertow.data.resize import resize_image
from undertow.inspect.batches import PICTURES
from undertow.inspect.caffe_inputs import input_of_pictures
from undertow.inspect.caffe_run import CaffeRun
from undertow.inspect.record import Array
from undertow.inspect.statistics import statistics_of
from undertow.inspect.trace_nets import trace_caffe
from undertow.scope.detection_caffe import heads_of_caffe
from undertow.scope.recording import Recording, Request, Run, picture_of, rows_and_stories, told_otherwise

_USUAL = ("exact", "caffe")


def record_caffe(request: Request) -> Recording:
    """The usual dialects: the true derivatives, and Caffe's."""
    found: Recording | None = None
    for name in request.dialects or _USUAL:
        found = _run(request, name, found)
    assert found is not None
    return found


def _run(request: Request, dialect: str, before: Recording | None) -> Recording:
    arrived: dict[tuple[int, int], float] = {}
    run = Run(dialect)
    ended: list[CaffeRun] = []

    def look(index: int, kind: str, arrays: list[Array]) -> None:
        run.keep(index, kind, arrays[0])
        if kind == "gradient":
            arrived.update({(index, place): statistics_of(array).norm for place, array in enumerate(arrays)})

    run.trace = trace_caffe(
        request.net,
        request.weights,
        data=request.data,
        truth=request.truth,
        values=request.values,
        shape=request.shapes[0] if request.shapes else None,
        batch=request.batch,
        dialect=dialect,
        phase=request.phase,
        rate=request.rate,
        seed=request.seed,
        look=look,
        done=ended.append,
    )
    net = ended[0].net
    sources = _sources(net)
    aside = {i for i, layer in enumerate(net.layers) if layer.type == "Split"}
    run.sent = {
        index: {_behind(source, sources, aside): arrived.get((source, place), 0.0) for source, place in reads}
        for index, reads in enumerate(sources)
    }
    run.heads = heads_of_caffe(net)
    if before is not None:
        known = [blob.data for blob in net.learnable_params]
        run.told = told_otherwise(before.rows, request.net, ended[0].layers, known, request.seed)
    recording = before or _begin(request, ended[0], sources, aside)
    recording.runs.append(run)
    recording.notes += [note for note in run.trace.notes if note not in recording.notes]
    return recording


def _begin(request: Request, run: CaffeRun, sources: list[list[tuple[int, int]]], aside: set[int]) -> Recording:
    net = run.net
    rows, stories = rows_and_stories(
        request.net, run.layers, [blob.data for blob in net.learnable_params], request.seed
    )
    return Recording(
        request.net,
        f"{len(net.layers)} layers, phase {net.phase}; {run.about}",
        "caffe",
        rows,
        [record.details for record in run.layers],
        [[_behind(source, sources, aside) for source, _ in reads] for reads in sources],
        stories,
        [],
        _picture(request, net),
        frozenset(aside),
        request.names,
    )


def _picture(request: Request, net: Net) -> Array | None:
    """The picture that was given, fitted as the net got it; else the net's first input or data, if it is a picture."""
    place = input_of_pictures(net)
    if request.data is not None and Path(request.data).suffix.lower() in PICTURES and place is not None:
        channels, height, width = net.blobs[place].shape[1:]
        return picture_of(resize_image(load_image(request.data, channels), width, height)[None])
    first = next((blob.data for blob in net.blobs.values() if blob.data.ndim == 4), None)
    if first is None:
        return None
    of_data_layer = place is None and first.shape[1] == 3  # which have blue first
    return picture_of(np.asarray(first[:, ::-1] if of_data_layer else first))


def _sources(net: Net) -> list[list[tuple[int, int]]]:
    """For each layer the layers, and which of their tops, that made what it reads."""
    made: dict[int, tuple[int, int]] = {}
    found = []
    for index, (bottoms, tops) in enumerate(zip(net.bottom_ids, net.top_ids, strict=True)):
        found.append([made[blob] for blob in bottoms if blob in made])
        made |= {blob: (index, place) for place, blob in enumerate(tops)}
    return found


def _behind(source: int, sources: list[list[tuple[int, int]]], aside: set[int]) -> int:
    """The layer whose output a Split hands on."""
    while source in aside and sources[source]:
        source = sources[source][0][0]
    return source

"""`undertow scope`: a network's way back in the browser."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from undertow.cli.explain import shapes_of
from undertow.cli.looking import (
    DATA,
    PHASE,
    PICTURE_VALUES,
    RATE,
    TRACE,
    check_flags,
    check_network,
    check_page,
    dialects_of,
    kind_of,
    names_of,
    picture_values,
    quietly,
)
from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, UsageError, Words
from undertow.core.modes import PRECISIONS, precision

if TYPE_CHECKING:
    from undertow.scope.recording import Request


# Files of recorded trainings, and the flags that those take.
_OF_RUNS = ("run.jsonl", "_log.csv")
_FOR_RUNS = ("html", "port", "no-open")


def scope(words: Words) -> int:
    """scope FILE.cfg | FILE.prototxt | module:function; or the folders of one or two trainings"""
    if os.path.isdir(words["NET"]) or words["NET"].endswith(_OF_RUNS):
        from undertow.scope.runs.command import show_runs

        idle = [flag.name for flag in words.given if flag.name not in _FOR_RUNS]
        if idle:
            what = f"-{idle[0]} is for networks, and '{words['NET']}' is a recorded training"
            raise UsageError(what, remedy=f"leave -{idle[0]} out")
        check_page(words["html"])
        paths = [path for path in (words["NET"], words["OTHER"]) if path]
        show_runs(paths, port=words["port"], html=words["html"], open_browser=not words["no-open"], say=say)
        return 0
    if words["OTHER"]:
        raise UsageError(
            f"scope shows one network, '{words['OTHER']}' is one too many", remedy="two folders of trainings"
        )
    from undertow.scope.app import routes_for, write_page
    from undertow.scope.recording import record
    from undertow.scope.server import Server

    check_flags(words)
    request = _request(words)
    check_network(request.net)
    check_page(words["html"])
    if kind_of(request.net) == TRACE:
        raise UsageError("scope shows networks, this is a trace", remedy=f"undertow trace {request.net}")
    say(f"{request.net}: one batch forward and back...")
    with precision(words["precision"]), quietly():
        recording = record(request)
    for note in recording.notes:
        say(note)
    if words["html"]:
        size = write_page(recording, words["html"])
        say(f"written: {words['html']}, {size / 1e6:.1f} MB; it opens without a network")
        return 0
    server = Server(routes_for(recording), words["port"] or 0)
    say(f"the page is at {server.url} for this machine alone; Ctrl-C ends it")
    server.serve(open_browser=not words["no-open"])
    return 0


def _request(words: Words) -> Request:
    from undertow.scope.recording import Request

    net = words["NET"]
    return Request(
        net,
        words["weights"],
        words["data"],
        words["truth"],
        words["batch"],
        words["size"],
        shapes_of(words["shape"]),
        tuple(dict.fromkeys(dialects_of(words))),
        words["rate"],
        names_of(words),
        words["seed"],
        picture_values(words),
        words["phase"],
    )


SCOPE = Command(
    "scope",
    ("NET", "[OTHER]"),
    (
        Flag("html", "text", "write one page that needs no network, instead of serving", "FILE.html"),
        Flag("port", "whole", "to serve on (any that is free)", "N", least=0, most=65535),
        Flag("no-open", "switch", "leave the browser alone, only say where the page is"),
        Flag("weights", "text", "parameters: a .weights file or a caffemodel", "FILE"),
        DATA,
        Flag("truth", "text", "labels of the picture, or an .npy or .npz", "FILE"),
        *PICTURE_VALUES,
        Flag("names", "text", "of the classes, one a line (those of a .data file)", "FILE"),
        Flag("batch", "whole", "samples of a random batch or of a .data file (2)", "N", least=1),
        Flag("size", "whole", "width and height of a cfg's input, instead of its own", "N", least=1),
        Flag("shape", "text", "of a function's arguments, or of a sample in place of a prototxt's data", "CxHxW,..."),
        Flag("dialect", "text", "whose arithmetic: one alone", "NAME"),
        Flag(
            "dialects", "text", "those to switch between (exact,darknet-cpu; exact,caffe for a prototxt)", "NAME,NAME"
        ),
        PHASE,
        Flag("precision", "text", "which kernels: fast, precise or reference", "NAME", "fast", choices=PRECISIONS),
        RATE,
        Flag("seed", "whole", "of random weights and batch (0)", "N", 0, least=0),
    ),
    "the way back of a cfg, a prototxt or module:function in the browser; or one or two folders of trainings",
    scope,
)

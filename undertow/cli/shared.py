"""What the Darknet functions share: flags, threads and precision, lines about nets and GPUs."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undertow.cli.messages import fail, say, warn
from undertow.cli.words import Flag, Words
from undertow.core.modes import PRECISIONS, precision
from undertow.darknet.dialect import DIALECTS, Dialect, dialect_named
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.choice import choose_dialect
from undertow.errors import UndertowError

NO_GPU = "there is no GPU here: one process computes on the CPU"
STRICT = Flag("strict", "switch", "oddities in the files are errors, not warnings")
# Devices and windows that are not there: accepted everywhere, and answered.
DEVICES = (
    Flag("i", "whole", "which GPU; accepted, there is none", "N", answer=NO_GPU),
    Flag("nogpu", "switch", "accepted: it is always so", answer="it is always so here"),
    Flag("dont_show", "switch", "accepted: no windows are opened", answer="no windows are opened here"),
)
# Flags that every function which computes takes.
COMMON = (
    Flag("threads", "whole", "threads that compute (all processors)", "N", least=1),
    Flag("precision", "text", "which kernels: fast, precise or reference", "NAME", "fast", choices=PRECISIONS),
    Flag("dialect", "text", f"whose arithmetic: {', '.join(DIALECTS)}", "NAME", choices=tuple(DIALECTS)),
    STRICT,
    *DEVICES,
)
_NO_SERVER = "no server; results are printed and written"
# Of AlexeyAB's program: windows and servers that show what is going on.
SHOWING = (
    Flag("show_imgs", "switch", "accepted: no windows are opened", answer="no windows are opened here"),
    Flag("mjpeg_port", "whole", "accepted: the chart and the frames are files", "N", answer="no server; see the files"),
    Flag("http_port", "whole", "accepted: there is no server", "N", answer=_NO_SERVER),
    Flag("json_port", "whole", "accepted: there is no server", "N", answer=_NO_SERVER),
)
BACKUP_EVERY = Flag("backup_every", "whole", "write NAME.backup every N iterations (100)", "N", 100, least=1)
HIER = Flag(
    "hier",
    "number",
    "class trees: how likely a class must be to go on to it from its parent (0.5)",
    "X",
    0.5,
    least=0,
    most=1,
)
# What trainings say to it is `gpus_answer`.
GPUS = Flag("gpus", "list", "GPUs to train on; accepted, and answered with what they would have done", "0,1")
GPUS_IDLE = Flag("gpus", "list", "accepted: there are none", "0,1", answer=NO_GPU)


def threshold(default: float, what: str) -> Flag:
    """-thresh."""
    return Flag("thresh", "number", f"{what} ({default:g})", "X", default, least=0, most=1)


@contextlib.contextmanager
def computing(words: Words) -> Iterator[None]:
    """Threads and precision as the flags say."""
    if words["threads"]:
        from undertow.kernels.select import set_threads

        set_threads(words["threads"])
    with precision(words["precision"]):
        yield


def dialect_of(words: Words) -> Dialect | None:
    """The dialect that the flags ask for, None when it is to be chosen from the files."""
    dialect = dialect_named(words["dialect"]) if words["dialect"] else None
    if words.flags.get("letter_box"):
        chosen = dialect or choose_dialect(read_cfg(words["CFG"], words["strict"]), words["WEIGHTS"] or None)[0]
        return replace(chosen, letterbox=True)
    return dialect


def loaded(words: Words) -> Any:
    """The network of CFG with WEIGHTS, in the dialect that the flags ask for; an error if it takes no pictures."""
    from undertow.darknet.detection.pictures import check_takes_pictures
    from undertow.darknet.runs import load

    net = load(words["CFG"], words["WEIGHTS"] or None, dialect=dialect_of(words), strict=words["strict"])
    check_takes_pictures(net)
    tell_random(words)
    return net


def tell_random(words: Words) -> None:
    """A warning where WEIGHTS is empty or left out: as in the C program, the network is random then."""
    if not words["WEIGHTS"]:
        warn(f"no WEIGHTS: the parameters of {words['CFG']} are random, so what is computed means nothing")


def take_tree_threshold(net: Any, words: Words) -> None:
    """Let the heads go down a class tree as -hier says."""
    from undertow.darknet.layers.layers_heads import Region

    for layer in net.layers:
        if isinstance(layer, Region):
            layer.tree_threshold = words["hier"]


def introduce(net: Any) -> None:
    """One line about the network, on stderr."""
    why = f" ({net.dialect_reason})" if net.dialect_reason else ""
    size = f"{net.w} x {net.h} x {net.c}" if net.c else f"{net.inputs} values"
    say(
        f"{net.config.file}: {net.n} layers, {net.shapes.parameters:,} parameters, {net.shapes.bflops:.3f} BFLOPs, "
        f"input {size}, dialect {net.dialect.name}{why}"
    )


def gpus_answer(given: Sequence[int], images: int, rate: float) -> str:
    """What to say to -gpus in a training that takes so many images per iteration at this rate."""
    count, listed = len(given), ",".join(map(str, given))
    if count == 1:
        return f"-gpus {listed}: {NO_GPU}, as the C program with one GPU"
    return (
        f"-gpus {listed}: {NO_GPU}, {images} images per iteration at rate {rate:g}; "
        f"the C program would take {images * count} at {rate * count:g} on {count} GPUs"
    )


def to_go_on(words: Words, command: str, weights: Path, *plain: str) -> str:
    """The command line that goes on with a training that was stopped."""
    parts = [f"-{flag.name}" if flag.kind == "switch" else f"-{flag.name} {shlex.quote(str(words[flag.name]))}"
             for flag in words.given if flag.name not in ("clear", "gpus", "i", "nogpu", "dont_show")]  # fmt: skip
    again = shlex.join(["undertow", *command.split(), *plain, str(weights)])
    return " ".join([f"to go on: {again}", *dict.fromkeys(parts)])


def each_path(path: str, do: Callable[[str], None]) -> int:
    """Do something with a file, or with each one named on stdin where none is given; 2 when one of those failed."""
    if path:
        do(path)
        return 0
    status = 0
    while True:
        print("Enter Image Path: ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            print()
            return status
        if line.strip():
            try:
                do(line.strip())
            except UndertowError as problem:
                fail(str(problem))
                status = 2

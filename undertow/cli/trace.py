"""`undertow trace`: one batch forward and backward, in numbers for each layer; and where two runs part."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from undertow.cli.explain import shapes_of
from undertow.cli.looking import (
    DATA,
    FUNCTION,
    PHASE,
    PICTURE_VALUES,
    PROTOTXT,
    RATE,
    Spared,
    check_ending,
    check_flags,
    check_network,
    dialects_of,
    fitted,
    kind_of,
    picture_values,
    quietly,
)
from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, Words
from undertow.core.modes import PRECISIONS, precision

if TYPE_CHECKING:
    from undertow.inspect.trace import Trace

# Columns that a narrow terminal has no room for, by their place; first those that are missed least.
_SPARED = ((11,), (10,), (3,), (4, 5), (6,), (7,), (1,))
_SPARED_OF_TWO = ((1,), (2, 3, 4))


def trace(words: Words) -> int:
    """trace NET.cfg | NET.prototxt | module:function | FILE.npz"""
    from undertow.inspect.compare import TOLERANCE, compare
    from undertow.inspect.report import (
        HEAD,
        compared_columns,
        compared_heads,
        comparison_lines,
        comparison_rows,
        head_lines,
        mark_lines,
        path_lines,
        trace_lines,
        trace_rows,
        verdict_lines,
    )  # fmt: skip
    from undertow.inspect.trace_file import load_trace, save_trace

    check_flags(words)
    names = _dialects(words)
    check_network(words["NET"])
    check_ending(words["out"], "out", (".npz",))
    runs = [_traced(words, name) for name in names]
    for note in dict.fromkeys(note for run in runs for note in run.notes):
        say(note)
    if words["out"]:
        save_trace(runs[0], words["out"])
        say(f"written: {words['out']}")
    others = [*runs[1:], *([load_trace(words["compare"])] if words["compare"] else [])]
    terminal = sys.stdout.isatty()
    if not others:
        if terminal:
            _show(head_lines(runs[0]), HEAD, trace_rows(runs[0]), mark_lines(runs[0]), _SPARED)
        else:
            print("\n".join(trace_lines(runs[0])))
    tolerance = TOLERANCE if words["tolerance"] is None else words["tolerance"]
    for other in others:
        found = compare(runs[0], other, tolerance)
        if terminal:
            below = [*verdict_lines(found), *path_lines(found)]
            _show(compared_heads(found), compared_columns(found), comparison_rows(found), below, _SPARED_OF_TWO)
        else:
            print("\n".join(comparison_lines(found)))
    return 0


def _dialects(words: Words) -> list[str | None]:
    """The dialects to run, None for the net's own choice."""
    return [*dialects_of(words)] or [None]


def _traced(words: Words, dialect: str | None) -> Trace:
    from undertow.inspect.trace_file import load_trace

    net = words["NET"]
    if net.endswith(".npz"):
        return load_trace(net)
    with precision(words["precision"]), quietly():
        found = _run(words, dialect)
    if words["precision"] != "fast":
        found.how += f", {words['precision']}"
    return found


def _run(words: Words, dialect: str | None) -> Trace:
    from undertow.inspect.trace_nets import trace_caffe, trace_darknet

    net = words["NET"]
    if kind_of(net) == FUNCTION:
        from undertow.inspect.function_run import trace_function

        given = {"shapes": shapes_of(words["shape"]), "data": words["data"]}
        return trace_function(net, **given, rate=words["rate"], seed=words["seed"])
    common = {"batch": words["batch"], "dialect": dialect, "phase": words["phase"], "rate": words["rate"],
              "seed": words["seed"]}  # fmt: skip
    if kind_of(net) == PROTOTXT:
        shapes = shapes_of(words["shape"])
        given = {"data": words["data"], "truth": words["truth"], "values": picture_values(words)}
        return trace_caffe(net, words["weights"], shape=shapes[0] if shapes else None, **given, **common)
    return trace_darknet(net, words["weights"], data=words["data"], truth=words["truth"], size=words["size"], **common)


def _show(
    above: Sequence[str],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[str],
    spared: Spared,
) -> None:
    """Lines for a terminal. spared: places of columns that are left out where there is no room, in this order."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    lines, left_out = fitted(head, rows, console.width, spared)
    for line in above:
        console.print(Text(line))
    console.print()
    console.print(Text(lines[0], "bold underline"), soft_wrap=True)
    for line, row in zip(lines[1:], rows, strict=True):
        marked = head[-1] == "mark" and row[-1] != ""
        console.print(Text(line, "bold" if marked else ""), soft_wrap=True)
    if left_out:
        console.print(Text(f"left out, for a wider terminal: {', '.join(left_out)}", "dim"))
    console.print()
    for line in below:
        console.print(Text(line))


TRACE = Command(
    "trace",
    ("NET",),
    (
        Flag("weights", "text", "parameters: a .weights file or a caffemodel", "FILE"),
        DATA,
        Flag("truth", "text", "labels of the picture, or an .npy or .npz", "FILE"),
        *PICTURE_VALUES,
        Flag("batch", "whole", "samples of a random batch or of a .data file (2)", "N", least=1),
        Flag("size", "whole", "width and height of a cfg's input, instead of its own", "N", least=1),
        Flag("shape", "text", "of a function's arguments, or of a sample in place of a prototxt's data", "CxHxW,..."),
        Flag("dialect", "text", "whose arithmetic", "NAME"),
        Flag("dialects", "text", "two or more: the first is compared with each of the others", "NAME,NAME"),
        PHASE,
        Flag("precision", "text", "which kernels: fast, precise or reference", "NAME", "fast", choices=PRECISIONS),
        RATE,
        Flag("out", "text", "write the trace", "FILE.npz"),
        Flag("compare", "text", "a trace written with -out: where the two part", "FILE.npz"),
        Flag("tolerance", "number", "relative distance at which layers part (0.001)", "X", least=0),
        Flag("seed", "whole", "of random weights and batch (0)", "N", 0, least=0),
    ),
    "one batch forward and backward, in numbers for each layer; marks what vanishes, explodes, is dead or not finite",
    trace,
)

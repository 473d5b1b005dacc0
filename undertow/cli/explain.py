"""`undertow explain`: the backward pass of a cfg, a prototxt or a function, layer by layer."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

from undertow.cli.looking import CFG, FUNCTION, check_dialects, check_flags, fitted, kind_of, quietly
from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, UsageError, Words

if TYPE_CHECKING:
    from undertow.inspect.explain import Explanation, Row

_HEAD = ("layer", "type", "input -> output", "parameters", "forward", "backward", "kept")
# Columns that a narrow terminal has no room for, by their place; first those that are missed least.
_MANY_STEPS = 100
_SPARED = ((6,), (3,), (4,), (1,))


def explain(words: Words) -> int:
    """explain FILE.cfg | FILE.prototxt | module:function"""
    from undertow.inspect.explain import explain as explained
    from undertow.inspect.story import story

    check_flags(words)
    if words["data"] and kind_of(words["NET"]) != FUNCTION:
        remedy = f"undertow trace {words['NET']} -data {words['data']}"
        raise UsageError("explain takes arrays for a function alone: a net gets a random batch", remedy=remedy)
    if words["dialect"]:
        check_dialects(words["NET"], [words["dialect"]])
    steps = _steps(words["NET"])
    if steps >= _MANY_STEPS:
        say(f"{words['NET']}: {steps} steps, one after the other; that takes a while")
    with quietly():
        found = explained(
            words["NET"],
            shapes=shapes_of(words["shape"]),
            batch=words["batch"],
            size=words["size"],
            dialect=words["dialect"],
            data=words["data"],
            seed=words["seed"],
        )
    for note in found.notes:
        say(note)
    if words["layer"] is not None:
        print("\n".join(story(found, words["layer"], words["seed"])))
    elif sys.stdout.isatty():
        _show_table(found)
    else:
        print("\n".join(plain_lines(found)))
    return 0


def _steps(net: str) -> int:
    """time_steps of a cfg; 0 where there are none."""
    if kind_of(net) != CFG or not os.path.isfile(net):
        return 0
    with open(net, encoding="utf-8", errors="replace") as stream:
        found = re.findall(r"^\s*time_steps\s*=\s*(\d{1,9})\s*$", stream.read(), re.MULTILINE)
    return int(found[0]) if found else 0


def shapes_of(text: str | None) -> list[tuple[int, ...]]:
    """`2x3x8x8,4` as [(2, 3, 8, 8), (4,)]. Raises UsageError."""
    if not text:
        return []
    if not re.fullmatch(r"\d{1,9}(x\d{1,9})*([, ]+\d{1,9}(x\d{1,9})*)*", text):
        raise UsageError(f"-shape takes sizes, not '{text}'", remedy="-shape 2x3x8x8, with a comma between several")
    return [tuple(map(int, part.split("x"))) for part in re.split(r"[, ]+", text)]


def plain_lines(found: Explanation) -> list[str]:
    """The table as text: a line for each layer with its formulas below."""
    from undertow.inspect.text import columns

    lines = columns(_HEAD, [_cells(row) for row in found.rows], left=3)
    shown = [f"{found.source}: {found.about}", "in order of the backward pass; multiply-adds", "", lines[0]]
    for line, row in zip(lines[1:], found.rows, strict=True):
        shown += [line, *(f"    {text}" for text in row.formula), *(f"    skipped: {text}" for text in row.skipped)]
    return [*shown, "", _total(found)]


def _cells(row: Row) -> tuple[str, ...]:
    from undertow.inspect.text import bytes_text, shapes_text

    count = sum(_size(shape) for shape in row.parameters.values())
    return (
        row.name,
        row.type,
        f"{shapes_text(row.inputs)} -> {shapes_text(row.outputs)}",
        f"{count:,}",
        f"{row.multiply_adds_forward:,}",
        f"{row.multiply_adds_backward:,}",
        bytes_text(row.kept),
    )


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _total(found: Explanation) -> str:
    from undertow.inspect.text import bytes_text

    forward = sum(row.multiply_adds_forward for row in found.rows)
    backward = sum(row.multiply_adds_backward for row in found.rows)
    ratio = f", {backward / forward:.2f} times as many" if forward else ""
    kept = bytes_text(sum(row.kept for row in found.rows))
    return f"forward {forward:,} multiply-adds, backward {backward:,}{ratio}; kept for the way back: {kept}"


def _show_table(found: Explanation) -> None:
    """The same lines for a terminal: formulas wrap, and columns are left out where there is no room for them."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    lines, left_out = fitted(_HEAD, [_cells(row) for row in found.rows], console.width, _SPARED, left=3)

    def say_wrapped(text: str, style: str) -> None:
        for part in textwrap.wrap(text, max(console.width - 4, 40), subsequent_indent="  ", break_long_words=False):
            console.print(Text(f"    {part}", style), soft_wrap=True)

    console.print(Text(f"{found.source}: {found.about}\nin order of the backward pass; multiply-adds\n"))
    console.print(Text(lines[0], "bold underline"), soft_wrap=True)
    for line, row in zip(lines[1:], found.rows, strict=True):
        console.print(Text(line, "bold"), soft_wrap=True)
        for text in row.formula:
            say_wrapped(text, "")
        for text in row.skipped:
            say_wrapped(f"skipped: {text}", "yellow")
    if left_out:
        console.print(Text(f"\nleft out, for a wider terminal: {', '.join(left_out)}", "dim"))
    console.print(Text(f"\n{_total(found)}"))


EXPLAIN = Command(
    "explain",
    ("NET",),
    (
        Flag("layer", "text", "one layer's whole story: formula, derivation, numbers, place in the code", "N|NAME"),
        Flag("shape", "text", "of a function's arguments, or of a sample in place of a prototxt's data", "2x3x8x8,..."),
        Flag("data", "text", "arguments of a function", "FILE.npz"),
        Flag("batch", "whole", "samples in the batch (1, or as few as the net takes)", "N", least=1),
        Flag("size", "whole", "width and height of a cfg's input, instead of its own", "N", least=1),
        Flag("dialect", "text", "whose arithmetic: see docs/dialects.md; exact or caffe for a prototxt", "NAME"),
        Flag("seed", "whole", "of weights and batch (0)", "N", 0, least=0),
    ),
    "the backward pass of a cfg, a prototxt or module:function, layer by layer",
    explain,
)

"""Pictures of a graph in Graphviz's DOT language: values, the functions between them, and the gradients they hold."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from undertow.core.function import Function
from undertow.core.variable import Parameter, Variable
from undertow.errors import FormatError, UndertowError
from undertow.files import atomic_write

TEXT_FORMATS = (".dot", ".gv")
PICTURE_FORMATS = (".svg", ".png", ".pdf")
# A picture that takes longer is too large to look at.
SECONDS_ALLOWED = 120

FUNCTION_STYLE = 'shape=box, style="rounded,filled", fillcolor="#cfe3f5", color="#4a7ba6"'
RESULT_STYLE = 'shape=box, style=filled, fillcolor="#fbf3d5", color="#b59b3b"'
LEAF_STYLE = 'shape=box, style=filled, fillcolor="#fbe0c8", color="#c47a35"'
PARAMETER_STYLE = 'shape=box, style=filled, fillcolor="#d9efd3", color="#5c9a4c"'
CONSTANT_STYLE = 'shape=box, style="filled,dashed", fillcolor="#f2f2f2", color="#999999", fontcolor="#666666"'


def draw(
    y: Variable | Sequence[Variable],
    file: str | os.PathLike[str] | None = None,
    *,
    sideways: bool = False,
) -> str:
    """The graph behind y (one Variable or several) as DOT text; with `file`, also as a picture.

    Each value shows its name, its number if it is a single one, shape, type, and its gradient where it has one
    (`backward(retain_grad=True)` leaves all of them): the number itself, or the length of the vector, |grad|.
    Inputs are orange, parameters green, constants grey, functions blue.

    file: .dot and .gv hold the text; .svg, .png and .pdf are drawn by Graphviz's program `dot`.
    sideways: from left to right instead of from top to bottom.

    Raises FormatError for another ending, UndertowError when Graphviz is not installed or cannot draw the graph.
    """
    text = _Picture([y] if isinstance(y, Variable) else list(y), "LR" if sideways else "TB").text()
    if file is not None:
        _write(text, Path(file))
    return text


class _Picture:
    """Collects the lines of the DOT text; nodes are numbered in the order in which they are met."""

    def __init__(self, roots: list[Variable], direction: str) -> None:
        self.lines = [
            "digraph graph_of_y {",
            f"  rankdir={direction};",
            '  node [fontname="Helvetica", fontsize=11];',
            '  edge [color="#555555", arrowsize=0.7];',
        ]
        self.names: dict[Variable | Function, str] = {}
        for y in roots:
            self._value(y)
        for function in _functions_behind(roots):
            self._function(function)
        self.lines.append("}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _function(self, function: Function) -> None:
        name = self.names[function] = f"f{len(self.names)}"
        self.lines.append(f"  {name} [label={_quoted(function.label)}, {FUNCTION_STYLE}];")
        for x in function.inputs:
            self.lines.append(f"  {self._value(x)} -> {name};")
        for reference in function._outputs:
            y = reference()
            if y is not None:
                self.lines.append(f"  {name} -> {self._value(y)};")

    def _value(self, x: Variable) -> str:
        if x not in self.names:
            name = self.names[x] = f"v{len(self.names)}"
            self.lines.append(f"  {name} [label={_quoted(_description(x))}, {_style(x)}];")
        return self.names[x]


def _functions_behind(roots: list[Variable]) -> Iterator[Function]:
    """Every function that the roots were made by, directly or not, each once."""
    waiting = [y.creator for y in reversed(roots)]
    seen: set[Function] = set()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        yield function
        waiting.extend(x.creator for x in reversed(function.inputs))


def _description(x: Variable) -> str:
    lines = [x.name] if x.name else []
    if x.data is None:
        return "\n".join([*lines, "no data"])
    if x.size == 1:
        lines.append(f"{x.data.item():.6g}")
    shape = " x ".join(map(str, x.shape))
    lines.append(f"{shape} {x.dtype}".strip())
    if x.grad is not None:
        single = x.grad.size == 1
        lines.append(f"grad {x.grad.item():.6g}" if single else f"|grad| {np.linalg.norm(x.grad):.4g}")
    return "\n".join(lines)


def _style(x: Variable) -> str:
    if isinstance(x, Parameter):
        return PARAMETER_STYLE
    if not x.requires_grad:
        return CONSTANT_STYLE
    return LEAF_STYLE if x.creator is None else RESULT_STYLE


def _quoted(text: str) -> str:
    """A DOT string that shows exactly this text: no escape, entity or markup in it takes effect."""
    printable = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    escaped = printable.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _write(text: str, path: Path) -> None:
    ending = path.suffix.lower()
    if ending in TEXT_FORMATS:
        content = text.encode()
    elif ending in PICTURE_FORMATS:
        content = _drawn(text, ending[1:])
    else:
        raise FormatError(
            f"a graph cannot be written as '{ending}'",
            file=path,
            remedy=f"name a file ending in {', '.join((*TEXT_FORMATS, *PICTURE_FORMATS))}",
        )
    with atomic_write(path) as stream:
        stream.write(content)


def _drawn(text: str, kind: str) -> bytes:
    """The picture that Graphviz makes of the text."""
    program = shutil.which("dot")
    if program is None:
        raise UndertowError(
            f"a picture in {kind} needs the program 'dot' of Graphviz, which is not installed",
            remedy="install Graphviz (apt install graphviz, brew install graphviz, graphviz.org), or write a .dot file",
        )
    try:
        done = subprocess.run(
            [program, f"-T{kind}"], input=text.encode(), capture_output=True, check=True, timeout=SECONDS_ALLOWED
        )
    except subprocess.TimeoutExpired:
        raise UndertowError(
            f"Graphviz did not finish the picture within {SECONDS_ALLOWED} seconds",
            remedy="draw a smaller part of the graph, or write a .dot file",
        ) from None
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise UndertowError(f"Graphviz could not draw the graph: {message}") from None
    return done.stdout

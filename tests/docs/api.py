"""Writes the pages of the API from signatures and docstrings: python -m tests.docs.api FOLDER (the site does it)."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any, ForwardRef

from undertow import functions
from undertow.core.function import Function

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Page:
    """One page: a module, and where its public names are (itself, or the modules behind it)."""

    module: str
    title: str
    names_of: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return self.module.replace(".", "-") + ".md"


_DARKNET = (
    "undertow.darknet.files.shapes",
    "undertow.darknet.files.weights",
    "undertow.darknet.files.labels",
    "undertow.darknet.detection.evaluate",
    "undertow.darknet.detection.nms",
    "undertow.darknet.detection.anchors",
)
_INSPECT = ("explain", "trace", "trace_nets", "trace_file", "compare", "watch")
PAGES = (
    Page("undertow", "The engine"),
    Page("undertow.functions", "Functions"),
    Page("undertow.layers", "Layers"),
    Page("undertow.layers.initializers", "Initialisers"),
    Page("undertow.optimizers", "Optimisers and learning-rate policies"),
    Page("undertow.data", "Data"),
    Page("undertow.darknet", "Darknet"),
    Page("undertow.darknet.files", "Darknet's files, measures and suppression", _DARKNET),
    Page("undertow.caffe", "Caffe, under pycaffe's names"),
    Page("undertow.caffe.net", "Caffe nets", ("undertow.caffe.net", "undertow.caffe.solver")),
    Page("undertow.caffe.proto", "Caffe's messages and files"),
    Page("undertow.caffe.data", "Caffe's data and tools", ("undertow.caffe.data", "undertow.caffe.tools")),
    Page("undertow.plans", "Plans"),
    Page("undertow.core.registry", "The registry of operations"),
    Page(
        "undertow.inspect",
        "Looking in",
        tuple(f"undertow.inspect.{name}" for name in _INSPECT),
    ),
    Page("undertow.errors", "Errors and warnings"),
)


@dataclass(frozen=True)
class Entry:
    """A public name and what stands behind it."""

    name: str
    value: Any
    module: str

    @property
    def documented(self) -> bool:
        return bool(inspect.getdoc(self.value)) and not _is_from_base(self.value)


def _is_from_base(value: Any) -> bool:
    """A class without a docstring of its own borrows that of its base, which says nothing of it."""
    return inspect.isclass(value) and not value.__dict__.get("__doc__")


def entries(page: Page) -> list[Entry]:
    """Its public names: those of `__all__`, else those written in the module."""
    found: dict[str, Entry] = {}
    for source in page.names_of or (page.module,):
        module = importlib.import_module(source)
        for name in _public(module):
            value = getattr(module, name)
            shown_elsewhere = page.module == "undertow" and name in functions.__all__
            if callable(value) and not isinstance(value, ModuleType | GenericAlias) and not shown_elsewhere:
                found.setdefault(name, Entry(name, value, source))
    return sorted(found.values(), key=lambda entry: (not inspect.isclass(entry.value), entry.name.lower()))


def _public(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not name.startswith("_")]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class writes itself, but for those that its base documents."""
    for name, value in vars(kind).items():
        if name.startswith("_") or isinstance(value, type):
            continue
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield name, value


def documentation(kind: type, name: str) -> str:
    """The docstring of a member, its own or that of the class it overrides."""
    for base in kind.__mro__:
        found = inspect.getdoc(base.__dict__[name]) if name in base.__dict__ else None
        if found:
            return found
    return ""


def missing() -> list[str]:
    """Public names without a docstring."""
    found = []
    for page in PAGES:
        for entry in entries(page):
            if not entry.documented:
                found.append(f"{entry.module}.{entry.name}")
            if inspect.isclass(entry.value):
                found += [
                    f"{entry.module}.{entry.name}.{name}"
                    for name, _ in members(entry.value)
                    if not documentation(entry.value, name)
                ]
    return found


def page_text(page: Page) -> str:
    """A whole page."""
    module = importlib.import_module(page.module)
    lines = [f"# {page.title}: `{page.module}`", "", *_prose((module.__doc__ or "").strip()), ""]
    found = [entry for entry in entries(page) if not _is_operation(entry)]
    shown = ", ".join(f"[{entry.name}](#{_slug(entry)})" for entry in found)
    lines += [shown, ""]
    for entry in found:
        lines += _entry_lines(entry)
    return "\n".join(lines).rstrip() + "\n"


def _is_operation(entry: Entry) -> bool:
    """The class behind a function; the page of backward passes tells of it."""
    return inspect.isclass(entry.value) and issubclass(entry.value, Function) and entry.value is not Function


def _entry_lines(entry: Entry) -> list[str]:
    value = entry.value
    lines = [f"({_slug(entry)})=", f"## {entry.name}", "", *_code(entry.name, value), ""]
    lines += _prose(inspect.getdoc(value) or "")
    lines += ["", f"<small>{place(value)}</small>", ""]
    if not inspect.isclass(value):
        return lines
    for name, member in members(value):
        if name in ("forward", "backward", "backward_graph") or not inspect.getdoc(member):
            continue  # what a function computes is told by its docstring and by the page of backward passes
        function = getattr(member, "__func__", member)
        head = [f"`.{name}`", ""] if isinstance(member, property) else _code(f".{name}", function)
        lines += [*head, "", *_prose(inspect.getdoc(member) or ""), ""]
    return lines


def _slug(entry: Entry) -> str:
    kind = "class-" if inspect.isclass(entry.value) else ""
    return f"api-{kind}{entry.module}.{entry.name}".replace(".", "-").lower()


def _code(name: str, value: Any) -> list[str]:
    """The signature, one argument a line where it is long."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ["```python", f"{name}(...)", "```"]
    shown = []
    starred = False
    for item in signature.parameters.values():
        if item.name in ("self", "cls"):
            continue
        if item.kind is item.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or item.kind in (item.KEYWORD_ONLY, item.VAR_POSITIONAL)
        shown.append(_argument(item))
    result = (
        ""
        if inspect.isclass(value) or signature.return_annotation in (signature.empty, "None")
        else (f" -> {_annotation(signature.return_annotation)}")
    )
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) > 88:
        inner = "\n".join(f"    {text}," for text in shown)
        line = f"{name}(\n{inner}\n){result}"
    return ["```python", line, "```"]


def _argument(item: inspect.Parameter) -> str:
    text = {item.VAR_POSITIONAL: "*", item.VAR_KEYWORD: "**"}.get(item.kind, "") + item.name
    typed = item.annotation is not item.empty
    if typed:
        text += f": {_annotation(item.annotation)}"
    if item.default is item.empty:
        return text
    shown = item.default.__name__ if isinstance(item.default, type) else repr(item.default)
    if len(shown) > 40 or " at 0x" in shown:  # an object: its name says more than all of its fields
        inner = getattr(item.default, "name", None) or getattr(item.default, "__name__", "...")
        shown = str(inner).upper() if hasattr(item.default, "name") else str(inner)
    return text + (f" = {shown}" if typed else f"={shown}")


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


_NEXT_FIELD = re.compile(r"(?<=\. )(?=[a-z_]\w*(?:, [a-z_]\w*)*: )")
_FIELD = re.compile(r"(?P<names>[*\w]+(?:, [*\w]+)*): (?P<rest>.*)")


def _prose(text: str) -> list[str]:
    """A docstring as Markdown: its summary, paragraphs, lists of `name: meaning`, code where it is set in."""
    summary, _, rest = text.partition("\n\n")
    lines = [_escaped(" ".join(summary.split())), ""]
    for is_code, group in groupby(re.split(r"\n\s*\n", rest), key=lambda part: part.startswith("    ")):
        if is_code:
            lines += ["```python", *textwrap.dedent("\n\n".join(group)).splitlines(), "```", ""]
        else:
            for paragraph in group:
                lines += _paragraph(paragraph)
    return lines


def _paragraph(text: str) -> list[str]:
    lines: list[str] = []
    begun = False
    for row in [part for whole in text.splitlines() for part in _NEXT_FIELD.split(whole)]:
        field = _FIELD.fullmatch(row)
        if field:
            lines += [""] if lines and not begun else []
            names = field["names"]
            shown = ", ".join(f"`{name}`" for name in names.split(", ")) if names.islower() else names
            lines.append(f"- {shown}: {_escaped(field['rest'])}")
            begun = True
        else:
            lines.append(("  " if begun else "") + _escaped(row.strip()))
    return [*lines, ""]


def _escaped(text: str) -> str:
    """Characters that Markdown would take for its own, but in code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>|\[\]$#])", r"\\\1", part) for part in parts)


def place(value: Any) -> str:
    """The file something is written in."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(value)) or "")
    except TypeError:
        return ""
    return f"<code>{file.relative_to(ROOT)}</code>" if file.is_relative_to(ROOT) else ""


def index_text() -> str:
    """The first page of the API."""
    rows = [f"| [{page.title}]({page.file}) | `{page.module}` |" for page in PAGES]
    lines = ["# API", "", "Every public name, from its docstring: shapes, ranges, errors.", ""]
    lines += ["| | module |", "|---|---|", *rows, ""]
    lines += ["```{toctree}", ":hidden:", "", *(page.file.removesuffix(".md") for page in PAGES), "```"]
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> None:
    """Write all pages; those that are as they should be stay untouched, so that only changed ones are built again."""
    folder.mkdir(exist_ok=True)
    texts = {"index.md": index_text()} | {page.file: page_text(page) for page in PAGES}
    for old in folder.glob("*.md"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))

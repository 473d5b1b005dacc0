"""Writes docs/options-caffe.md from the schema (`make pages`)."""

from __future__ import annotations

import inspect

from tests.docs.field_meanings import meaning
from undertow.caffe.proto.schema import Field, MessageType, get_schema
from undertow.caffe.table import LAYER_TYPES

HEAD = """# All fields of a prototxt

Written from the schema that reads prototxt and caffemodel files: the messages of Caffe 1.0, and what the SSD fork and
the models made for it added. *no.* is the number in binary files; `*` means the field may be repeated, *required*
that it must be given. A field that is in none of these tables is an error with file, line and the nearest known name;
fields of other forks are read with `fork=` ([how](caffe-nets.md)).

"""

OLD_FORMS = "`layers { type: CONVOLUTION ... }` (V1) and older ones (V0) are read and brought up to today's form."
FIRST = ("NetParameter", "LayerParameter", "ParamSpec", "SolverParameter", "FillerParameter", "TransformationParameter")
OLD = ("V1LayerParameter", "V0LayerParameter")


def page() -> str:
    """The whole page."""
    schema = get_schema()
    options = _types_by_options()
    rest = sorted(set(schema.messages) - {*FIRST, *OLD}, key=str.lower)
    layers = [name for name in rest if options.get(name)]
    lines = [HEAD]
    lines += ["Layer types and their options:", "", "| type | options | bottoms | tops |", "|---|---|---|---|"]
    for name, kind in sorted(LAYER_TYPES.items(), key=lambda item: item[0].lower()):
        field = schema["LayerParameter"].by_name.get(kind.options)
        link = f"[`{kind.options}`](#{field.message.name.lower()})" if field and field.message else ""
        lines.append(f"| {name} | {link} | {_count(kind.bottoms)} | {_count(kind.tops)} |")
    lines.append("")
    for name in [*FIRST, *layers, *(name for name in rest if name not in layers)]:
        lines += _message(schema[name], options.get(name, []))
    lines += ["## Old forms", "", OLD_FORMS, ""]
    return "\n".join(lines).rstrip() + "\n"


def _types_by_options() -> dict[str, list[str]]:
    fields = get_schema()["LayerParameter"].by_name
    found: dict[str, list[str]] = {}
    for name, kind in LAYER_TYPES.items():
        field = fields.get(kind.options)
        if field is not None and field.message is not None:
            found.setdefault(field.message.name, []).append(name)
    return found


def _count(limits: tuple[int, int]) -> str:
    least, most = limits
    if least == most:
        return str(least)
    return f"{least} or more" if most > 1000 else f"{least} to {most}"


def _message(message: MessageType, types: list[str]) -> list[str]:
    lines = [f"## {message.name}", ""]
    for name in types:
        about = " ".join((inspect.getdoc(LAYER_TYPES[name].build) or "").partition("\n\n")[0].split())
        lines += [f"- **{name}**: {_escaped(about)}"]
    if types:
        lines.append("")
    lines += ["| no. | field | value | default | from | meaning |", "|---:|---|---|---|---|---|"]
    lines += [_row(field) for field in message.fields]
    return [*lines, ""]


def _row(field: Field) -> str:
    notes = ["required"] if field.required else []
    notes += ["deprecated"] if field.deprecated else []
    star = "*" if field.repeated else ""
    name = f"`{field.name}`{star}" + (f" ({', '.join(notes)})" if notes else "")
    source = "Caffe" if field.source == "caffe" else f"fork {field.source}"
    cells = [str(field.number), name, _kind(field), _default(field), source, meaning(field.owner.name, field.name)]
    return f"| {' | '.join(cells)} |"


def _kind(field: Field) -> str:
    if field.message is not None:
        known = field.message.name
        return known if known in OLD else f"[{known}](#{known.lower()})"
    if field.enum is not None:
        return ", ".join(f"`{name}`" for name in field.enum.numbers)
    return field.declaration.kind


def _default(field: Field) -> str:
    if field.message is not None or field.repeated:
        return ""
    default = field.declaration.default
    if default is None:
        return f"`{field.enum.name.rpartition('.')[2]}`: first" if field.enum and len(field.enum.numbers) > 40 else ""
    return f"`{default}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")

"""Writes docs/options-darknet.md from the options tables (`make pages`)."""

from __future__ import annotations

import inspect
import re
import types
import typing
from typing import Any

from tests.docs.key_meanings import meaning
from undertow.darknet.files.datafile import DataOptions
from undertow.darknet.files.fork_keys import Effect
from undertow.darknet.files.option_fields import OptionField, Options, option_fields
from undertow.darknet.files.options import SECTIONS, SectionType
from undertow.darknet.files.options_layers import ACTIVATIONS, FORK_ACTIVATIONS, LayerOptions

HEAD = """# All options of a cfg, and of a .data file

Written from the tables that read the files. Defaults are the original program's. *2018* is the C program, *fork* what
AlexeyAB's version added; reading as the 2018 program (`-dialect darknet-cpu`) knows nothing of the latter. A key that
is in none of these tables is told with its line and the nearest known key; `strict` readers refuse it.

A cfg is a list of sections. The first is `[net]`; each further one is a layer, numbered from 0. `key=value` stand one
on a line, `#` and `;` begin comments, of two equal keys the first counts. Flags are 0 or 1, lists are separated by
commas.

"""

# What a default is that depends on other keys.
DEPENDS = {
    "inputs": "height * width * channels",
    "max_crop": "2 * width",
    "min_crop": "width",
    "max_ratio": "max_crop / width",
    "min_ratio": "min_crop / width",
    "sgdr_cycle": "max_batches",
    "stride_x": "stride",
    "stride_y": "stride",
    "size": "stride",
    "padding": "size - 1",
    "anchors": "0.5 for each",
    "mask": "all",
    "from": "must be given",
    "state_constrain": "32 * time_steps",
}
KINDS = {int: "whole number", float: "number", bool: "0 or 1", str: "word"}


def page() -> str:
    """The whole page."""
    kinds = list(dict.fromkeys(SECTIONS.values()))
    lines = [HEAD + "Sections: " + ", ".join(f"[{kind.name}](#{_slug(kind.name)})" for kind in kinds) + ".", ""]
    lines += ["## A .data file", "", "Names the pictures, the classes and the folders of a detector or classifier.", ""]
    lines += _table("data", option_fields(DataOptions), False)
    lines += _section(kinds[0])
    lines += ["## Every layer", "", "These keys are understood in every section after `[net]`.", ""]
    common = option_fields(LayerOptions)
    lines += _table("", common, False)
    for kind in kinds[1:]:
        lines += _section(kind, tuple(common))
    lines += ["## Activations", "", "Of the 2018 program: " + ", ".join(f"`{name}`" for name in ACTIVATIONS) + "."]
    lines += ["Of the fork: " + ", ".join(f"`{name}`" for name in FORK_ACTIVATIONS) + ".", ""]
    return "\n".join(lines).rstrip() + "\n"


def _slug(name: str) -> str:
    return name.lower()


def _section(kind: SectionType, without: tuple[str, ...] = ()) -> list[str]:
    lines = [f"## [{kind.name}]", ""]
    also = f" Also written {', '.join(f'`[{name}]`' for name in kind.aliases)}." if kind.aliases else ""
    source = "Of AlexeyAB's fork." if kind.fork else "Of the 2018 program."
    lines += [f"{_about(kind.options)}{source}{also}", ""]
    fields = {key: field for key, field in option_fields(kind.options).items() if key not in without}
    lines += _table(kind.name, fields, kind.fork) if fields else ["No keys of its own.", ""]
    return lines + _not_followed(kind)


def _about(options: type[Options]) -> str:
    """What the docstring says of the section itself: `[name]: so and so.`, without its keys."""
    text = (inspect.getdoc(options) or "").partition("\n\n")[0].replace("\n", " ")
    found = re.match(r"\[\w+\](?: or \[\w+\])*: (?P<about>[^.]+\.)", text)
    return found["about"][0].upper() + found["about"][1:] + " " if found else ""


def _table(section: str, fields: dict[str, OptionField], fork: bool) -> list[str]:
    lines = ["| key | value | default | program | meaning |", "|---|---|---|---|---|"]
    for key, field in fields.items():
        of_fork = fork or field.fork or (section == "data" and key == "difficult")
        cells = [f"`{key}`", _values(field), _default(key, field, section), "fork" if of_fork else "2018"]
        lines.append(f"| {' | '.join([*cells, meaning(section, key)])} |")
    return [*lines, ""]


def _values(field: OptionField) -> str:
    if field.choices == ACTIVATIONS:
        return "an [activation](#activations)"
    if field.choices:
        words = ", ".join(f"`{word}`" for word in field.choices)
        more = f"; fork: {', '.join(f'`{word}`' for word in field.fork_choices)}" if field.fork_choices else ""
        return words + more
    if field.file_name:
        return "file or folder"
    kind = _plain(field.type)
    text = f"{KINDS[typing.get_args(kind)[0]]}s" if typing.get_origin(kind) is tuple else KINDS[kind]
    return text if field.least is None else f"{text} from {field.least:g}"


def _plain(kind: Any) -> Any:
    """`int` of `int | None`."""
    if isinstance(kind, types.UnionType):
        return next(item for item in typing.get_args(kind) if item is not type(None))
    return kind


def _default(key: str, field: OptionField, section: str) -> str:
    kind = DataOptions if section == "data" else SECTIONS[section].options if section else LayerOptions
    value = kind.__dataclass_fields__[field.name].default
    if key in DEPENDS and value is None:
        return DEPENDS[key]
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _not_followed(kind: SectionType) -> list[str]:
    """Keys of the fork that are known and not followed, by what they would change."""
    known = dict(kind.fork_keys)
    if kind.name != "net":
        for key in SECTIONS["avgpool"].fork_keys:  # those of every section
            known.pop(key, None)
    lines = []
    for effect in (Effect.OUTPUT, Effect.TRAINING, Effect.LOSS):
        keys = [key for key, entry in known.items() if entry.effect is effect and "*" not in entry.neutral]
        if keys:
            shown = ", ".join(f"`{key}`" for key in keys)
            lines.append(f"Of the fork, and not followed (changes {effect.value}): {shown}.")
    return [*lines, ""] if lines else []


if __name__ == "__main__":
    print(page(), end="")

"""Writes docs/dialects.md from the dataclass itself (`make pages`)."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

from undertow.darknet.dialect import DIALECTS, Dialect
from undertow.kernels.reference.batchnorm import BatchNormRule, Scaling

HEAD = """# Dialects: where the programs that read Darknet's files differ

One file, several programs: the 2018 C program on a CPU, the same on a GPU, AlexeyAB's fork, and the true derivatives of
the documented losses. Every difference that changes a number is a field of `undertow.darknet.dialect.Dialect`; `exact`
is what Undertow trains with unless told otherwise. At inference all of them give what the program gave that a file was
made for. Where the original crashes or reads foreign memory, see [the deviations](darknet-deviations.md).

"""


def page() -> str:
    """The whole page."""
    names = list(DIALECTS)
    lines = [f"| field | {' | '.join(names)} | meaning, and place in the original |", "|---" * (len(names) + 2) + "|"]
    meanings = meanings_of(inspect.getdoc(Dialect) or "")
    for field in fields(Dialect):
        if field.name != "name":
            values = [shown(getattr(dialect, field.name)) for dialect in DIALECTS.values()]
            lines.append(f"| `{field.name}` | {' | '.join(values)} | {meanings[field.name]} |")
    return HEAD + "\n".join(lines) + "\n"


def meanings_of(text: str) -> dict[str, str]:
    """From a docstring with `field: meaning` paragraphs, whose further lines are indented."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines()[1:]:
        begins = re.match(r"(\w+): (.+)", line)
        if begins:
            name = begins[1]
            found[name] = begins[2]
        elif line.startswith(" ") and name:
            found[name] += f" {line.strip()}"
    return found


def shown(value: Any) -> str:
    """A field's value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, BatchNormRule):
        back = f"; back: {_scaling(value.backward)}" if value.backward else ""
        return _scaling(value.forward) + back
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _scaling(scaling: Scaling) -> str:
    epsilon = f"{scaling.epsilon:g}"
    root = f"sqrt(v + {epsilon})" if scaling.placement == "inside" else f"sqrt(v) + {epsilon}"
    return f"{root}, v over {scaling.divisor}"


if __name__ == "__main__":
    print(page(), end="")

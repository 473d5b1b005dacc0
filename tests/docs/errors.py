"""Writes docs/errors.md by making each mistake and noting the answer (`make pages`)."""

from __future__ import annotations

import contextlib
import inspect
import tempfile

import undertow.errors as errors
from tests.docs.error_cases import GROUPS, message_of

HEAD = """# Errors and what to do

Every message says what is wrong, where (file and line, byte, layer), why, and after *To mend it* what to do. Commands
print it as one line and end with status 2; in Python it is an exception of `undertow.errors`, whose fields `reason`,
`file`, `line`, `offset`, `layer` and `remedy` hold the parts. A traceback from inside is a bug of ours: please report
it.

A *warning* (`UndertowWarning`) tells of something that was accepted as the original program accepts it. With
`-strict`, or `strict=True`, it is an error.

The messages below are real: this page is written by making each mistake and noting the answer.

"""


def page() -> str:
    """The whole page."""
    lines = [HEAD + "| kind | when |", "|---|---|"]
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, (errors.UndertowError, errors.UndertowWarning)):
            about = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
            lines.append(f"| `{kind.__name__}` | {about} |")
    lines += ["| `TypeError` | As in Python: an argument of the wrong type. |", ""]
    for group, cases in GROUPS.items():
        lines += [f"## {group}", ""]
        for case in cases:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                kind_name, text = message_of(case)
            seen = case.seen[0].upper() + case.seen[1:]
            lines += [f"### {seen}", "", "```text", f"{kind_name}: {text}", "```", "", case.advice, ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")

"""Errors about files end with what to do: the house form of messages, held for every place that raises one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import undertow
from undertow.errors import FormatError

PACKAGE = Path(undertow.__file__).parent


def without_remedy(source: str) -> list[int]:
    """Lines that make a FormatError without a remedy."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "FormatError"]
    return [call.lineno for call in made if "remedy" not in {keyword.arg for keyword in call.keywords}]


@pytest.mark.parametrize("part", ["darknet", "data", "layers"])
def test_errors_about_files_tell_what_to_do(part):
    found = {
        str(path.relative_to(PACKAGE)): without_remedy(path.read_text()) for path in (PACKAGE / part).rglob("*.py")
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_search_finds_what_it_looks_for():
    assert without_remedy('raise FormatError("x")\nraise FormatError("x", remedy="y")') == [1]


def test_the_form_of_a_message():
    error = FormatError("it is cut", file="a.cfg", line=3, offset=7, layer=1, remedy="fetch it again")
    assert str(error) == "a.cfg:3: byte 7: layer 1: it is cut. To mend it: fetch it again"

"""Every error that the source of undertow.caffe raises says what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import undertow.caffe

FOLDER = Path(undertow.caffe.__file__).parent
OURS = ("FormatError", "ShapeError", "UndertowError", "NonFiniteError")
ERRORS = (*OURS, "CaffeError", "CannotOpen", "NoSuchLayer", "NoPicture")
# Methods that make an error of a layer: error(reason, remedy, field), refusal(...); the layer's place is put in there.
METHODS = ("error", "refusal")
# Methods whose signature asks for a remedy, and classes that bring their own.
GIVEN = ("proto/text_format.py", "proto/text_tokens.py", "proto/wire.py", "data/lmdb_file.py")
# Its errors reach the user through a layer, which tells its own place and remedy.
BELOW = ("blob.py",)


def silent(path: Path) -> Iterator[str]:
    """Errors in a source file without a remedy, as line and reason."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        method = isinstance(node.func, ast.Attribute) and name in METHODS
        if not (name in ERRORS or method) or any(keyword.arg == "remedy" for keyword in node.keywords):
            continue
        if method and len(node.args) > 1:
            continue
        yield f"{path.relative_to(FOLDER)}:{node.lineno}: {ast.unparse(node)[:150]}"


def test_the_search_finds_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.caffe.test_remedies.FOLDER", tmp_path)
    path = tmp_path / "a.py"
    path.write_text('raise FormatError("a")\nraise self.error("b")\nraise self.error("b", "c")\nX("a", remedy="b")\n')
    assert [line.split(": ")[0] for line in silent(path)] == ["a.py:1", "a.py:2"]


def test_every_error_has_a_remedy() -> None:
    files = [path for path in FOLDER.rglob("*.py") if str(path.relative_to(FOLDER)) not in GIVEN + BELOW]
    assert len(files) > 80
    assert [line for path in files for line in silent(path)] == []

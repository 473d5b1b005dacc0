"""Every page of the documentation does what it says: all its Python and all its commands run, or say why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.session import Session, agrees, commands, pieces
from tests.docs.setups import SETUPS, SHORTER

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Run by tests of their own, with the filters for warnings that they need.
ELSEWHERE = {"from-scratch.md": "tests/docs/test_from_scratch.py"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("model", "script"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in ELSEWHERE], ids=lambda page: page.name)
@pytest.mark.filterwarnings("default::undertow.errors.UndertowWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")
def test_a_page_does_what_it_says(page: Path, folder: Path) -> None:
    todo = [p for p in pieces(page) if not p.reason and (p.kind == "python" or commands(p))]
    if not todo:
        pytest.skip("a page without code")
    setup = SETUPS.get(page.name)
    session = Session(shortened(page, folder), (setup() if setup else None) or {})
    session.run()
    assert sum(session.ran.values()) > 0


def shortened(page: Path, folder: Path) -> Path:
    """The page with its long runs made short; a copy where there are any."""
    text = page.read_text(encoding="utf-8")
    for long, short in SHORTER.get(page.name, {}).items():
        assert long in text, f"{page.name} no longer says {long}"
        text = text.replace(long, short)
    copy = folder / f"page-{page.name}"
    copy.write_text(text, encoding="utf-8")
    return copy


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_not_run_says_why(page: Path) -> None:
    for piece in pieces(page):
        assert not piece.reason or len(piece.reason) > 15, f"{page.name}:{piece.line}"


def test_pages_that_run_elsewhere_do() -> None:
    for page, test in ELSEWHERE.items():
        assert (ROOT / "docs" / page).exists()
        assert page in (ROOT / test).read_text(encoding="utf-8")


def test_a_session_notices_a_wrong_page(folder: Path) -> None:
    page = folder / "wrong.md"
    page.write_text("```python\nprint(1)\n```\n```text\n2\n```\n")
    with pytest.raises(AssertionError):
        Session(page).run()
    page.write_text("```console\n$ undertow explain nowhere.prototxt\n```\n")
    with pytest.raises(AssertionError, match=r"wrong\.md:1"):
        Session(page).run()
    page.write_text("<!-- not run: it is made to fail -->\n```python\n1 / 0\n```\n")
    Session(page).run()


def test_the_comparison_of_lines_notices_a_change() -> None:
    assert agrees(["a 1.00", "...", "b 2"], ["a 1.01", "x", "y", "b 2"]) is None
    assert agrees(["a 1.00"], ["a 1.2"]) == "a 1.00"
    assert agrees(["a", "b"], ["a", "c"]) == "b"
    assert agrees(["a"], ["a", "more"]) == "more"

"""The site: every page is in its navigation, every link leads somewhere, made pages are as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import api, field_meanings, key_meanings
from tests.docs.links import ROOT, broken, slugs
from tests.docs.write import MADE, text_of
from undertow.caffe.proto import get_schema
from undertow.darknet.files.datafile import DataOptions
from undertow.darknet.files.option_fields import option_fields
from undertow.darknet.files.options import SECTIONS

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken(page)


@pytest.mark.parametrize("page", api.PAGES, ids=lambda page: page.module)
def test_links_of_the_api_lead_somewhere(page: api.Page) -> None:
    assert not broken(DOCS / "api" / page.file)


def test_the_check_of_links_notices(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One two\n[x](#one-two) [y](#three) [z](b.md) `[c](d.md)`\n```text\n[e](f.md)\n```\n")
    assert broken(page) == ["#three", "b.md"]
    assert slugs("## A\n## A\n### `b_c`, d\n") == {"a", "a-1", "b_c-d"}


def test_no_page_is_in_the_navigation_twice() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^]]+\]\(([\w/-]+\.md)\)", index, re.MULTILINE)
    assert len(listed) == len(set(listed)) > 15


@pytest.mark.parametrize("name", MADE)
def test_a_made_page_is_that_of_the_code(name: str) -> None:
    page = (DOCS / MADE[name]).read_text(encoding="utf-8")
    assert page == text_of(name), "write it again: make pages"


def test_every_kind_of_error_is_shown() -> None:
    shown = (DOCS / "errors.md").read_text(encoding="utf-8")
    for kind in ("FormatError", "ShapeError", "GraphError", "MissingPackage", "NonFiniteError", "UndertowWarning"):
        assert f"\n{kind}: " in shown


def test_every_public_name_is_documented() -> None:
    assert not api.missing(), "public names without a docstring: say what it gives, shapes, ranges, errors"


def test_a_missing_docstring_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import undertow.data.small as small

    monkeypatch.setattr(small.digits, "__doc__", None)
    page = api.Page("undertow.data.small", "")
    monkeypatch.setattr(api, "PAGES", (page,))
    assert api.missing() == ["undertow.data.small.digits"]


def test_meanings_are_of_keys_that_exist() -> None:
    keys = {f"{kind.name}.{key}" for kind in SECTIONS.values() for key in option_fields(kind.options)}
    keys |= {f"data.{key}" for key in option_fields(DataOptions)}
    known = keys | {key.partition(".")[2] for key in keys}
    assert set(key_meanings.MEANINGS) <= known
    fields = {f"{message.name}.{field.name}" for message in get_schema().messages.values() for field in message.fields}
    assert set(field_meanings.MEANINGS) <= fields | {field.partition(".")[2] for field in fields}


def test_the_site_asks_for_nothing_outside(site: Path) -> None:
    assert (site / "searchindex.js").stat().st_size > 10_000
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)\"|<link[^>]* href=\"([^\"]+)\"", text)
        assert not [item for pair in loaded for item in pair if "//" in item], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet.name

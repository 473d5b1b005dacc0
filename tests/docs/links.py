"""Links of the pages, looked at without building the site: files, anchors, pages that are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs import api
from tests.docs.blocks import FENCE

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,4} (?P<text>.+)$", re.MULTILINE)
LABEL = re.compile(r"^\((?P<name>[\w.-]+)\)=$", re.MULTILINE)


def text_of(page: Path) -> str:
    """A page's text; of one of the API's pages what would be written."""
    if page.parent == ROOT / "docs" / "api":
        made = {"index.md": api.index_text} | {p.file: lambda p=p: api.page_text(p) for p in api.PAGES}  # type: ignore[misc]
        return made[page.name]()
    return page.read_text(encoding="utf-8")


def exists(path: Path) -> bool:
    """Whether a file is there, or is made with the site."""
    made = {"index.md", *(page.file for page in api.PAGES)}
    return path.exists() or (path.parent == ROOT / "docs" / "api" and path.name in made)


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them, and its labels."""
    found: dict[str, int] = {}
    made = {match["name"] for match in LABEL.finditer(text)}
    for match in HEADING.finditer(FENCE.sub("", text)):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match["text"])
        slug = re.sub(r"[^\w\- ]", "", shown.lower().strip()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        made.add(f"{slug}-{count}" if count else slug)
    return made


def links(text: str) -> Iterator[str]:
    """All link targets, code left out."""
    bare = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    yield from (match["target"] for match in LINK.finditer(bare))


def _has(file: Path, anchor: str, page: Path, text: str) -> bool:
    return anchor in slugs(text if file == page else text_of(file))


def broken(page: Path) -> list[str]:
    """Links of a page to files or anchors that are not there."""
    wrong = []
    text = text_of(page)
    for target in links(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not exists(file) or (anchor and file.suffix == ".md" and not _has(file, anchor, page, text)):
            wrong.append(target)
    return wrong

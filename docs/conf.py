"""The site: `make docs` builds it from the pages of this folder. Sphinx, MyST for Markdown, Furo for the looks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pygments.lexers.configs import IniLexer
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from tests.docs.api import write_pages  # noqa: E402

project = "Undertow"
author = "The Undertow authors"
copyright = "The Undertow authors, MIT licence"  # noqa: A001
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Undertow"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
# Summaries are fetched, which a page opened from a file may not do.
html_show_search_summary = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "github-dark"
# Slugs as GitHub makes them, so that links with anchors work here and there.
myst_heading_anchors = 4
# Colours are not worth a failure: a block that is no valid JSON, with dots for what is left out, is shown plain.
suppress_warnings = ["misc.highlighting_failure"]
myst_links_external_new_tab = False

_SECTION = re.compile(r"^## (?P<caption>.+)\n(?P<body>(?:(?!^## ).*\n?)*)", re.MULTILINE)
_LINK = re.compile(r"^- \[(?P<title>[^]]+)\]\((?P<page>[\w/-]+)\.md\)", re.MULTILINE)


def toctrees(index: str) -> str:
    """The navigation: under each heading of the first page, the pages that its list links to; then all others."""
    made = []
    others = {path.stem for path in DOCS.glob("*.md")} - {"index", *(page for _, page in _LINK.findall(index))}
    for section in _SECTION.finditer(index):
        pages = [f"{title} <{page}>" for title, page in _LINK.findall(section["body"])]
        if pages:
            made.append(_toctree(section["caption"], pages))
    if others:
        made.append(_toctree("More", sorted(others)))
    return "\n\n".join(made)


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        source[0] += "\n\n" + toctrees(source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx: write the API's pages, put the navigation in, name two languages it does not know."""
    write_pages(DOCS / "api")
    app.connect("source-read", _add_navigation)
    app.add_lexer("prototxt", TextLexer)
    app.add_lexer("cfg", IniLexer)

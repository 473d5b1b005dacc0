"""The built site in a browser, from files: no outside requests, no errors, search, light and dark, a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PAGES = ("index", "start", "fine-tune", "backward", "options-darknet", "errors", "explain", "api/undertow")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'undertow[browser]')")
    with api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield found
        found.close()


def opened(browser: Any, scheme: str = "light", width: int = 1280) -> tuple[Any, list[str]]:
    """A page, and what goes wrong on it: errors, and requests for anything but files."""
    page = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
    )
    return page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_load_from_files_alone(site: Path, browser: Any, scheme: str) -> None:
    page, wrong = opened(browser, scheme)
    shades = set()
    for name in PAGES:
        page.goto(f"file://{site}/{name}.html")
        shades.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.locator("h1").count() >= 1
    assert not wrong
    (shade,) = shades
    red = int(shade.partition("(")[2].split(",")[0])
    assert (red > 200) == (scheme == "light")


def test_search_finds_a_page_offline(site: Path, browser: Any) -> None:
    page, wrong = opened(browser)
    page.goto(f"file://{site}/search.html?q=subdivisions")
    page.locator("#search-results li a", has_text="All options of a cfg").wait_for(timeout=10_000)
    assert not wrong


def test_nothing_is_wider_than_a_narrow_screen(site: Path, browser: Any) -> None:
    page, _ = opened(browser, width=400)
    for name in PAGES:
        page.goto(f"file://{site}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, name

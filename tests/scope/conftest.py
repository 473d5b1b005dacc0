"""A real browser for the tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'undertow[browser]'")
    if not CHROMIUM.exists():
        pytest.skip("needs Debian's chromium")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that may not complain, nor ask for anything from outside."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.set_default_timeout(20_000)
    yield page
    page.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:"))] == []

"""The page of dialects says what the dialects are."""

from __future__ import annotations

from pathlib import Path

from tests.docs.dialects import page

PAGE = Path(__file__).parent.parent.parent / "docs" / "dialects.md"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it again: python -m tests.docs.dialects > docs/dialects.md"
    )


def test_every_field_says_what_it_means() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    for row in rows:
        meaning = row.split(" | ")[-1]
        assert len(meaning) > 40, row

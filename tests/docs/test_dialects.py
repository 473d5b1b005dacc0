"""The page of dialects says what the dialects are."""

from __future__ import annotations

from tests.docs.dialects import page


def test_every_field_says_what_it_means() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    for row in rows:
        meaning = row.split(" | ")[-1]
        assert len(meaning) > 40, row

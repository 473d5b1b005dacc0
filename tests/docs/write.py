"""Writes all pages that are made from the code: python -m tests.docs.write (`make pages`)."""

from __future__ import annotations

import importlib
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
# By module of this package; its `page()` gives the text.
MADE = {
    "backward": "backward.md",
    "darknet_commands": "darknet-commands.md",
    "dialects": "dialects.md",
    "errors": "errors.md",
    "options_caffe": "options-caffe.md",
    "options_darknet": "options-darknet.md",
}


def text_of(name: str) -> str:
    """What a page should say."""
    text: str = importlib.import_module(f"tests.docs.{name}").page()
    return text


if __name__ == "__main__":
    for name, file in MADE.items():
        (DOCS / file).write_text(text_of(name), encoding="utf-8")

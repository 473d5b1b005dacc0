"""Fonts for labels in any language, with nothing to install.

Pillow brings a font with the ASCII letters. For other letters the fonts of the system are asked, then the one that
matplotlib brings; what none of them can show is written in plain letters where there is a reading (é as e), else
as "?".
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
# Found by name in the system's font folders; those with most scripts first.
_SYSTEM_FONTS = (
    "NotoSansCJK-Regular.ttc",
    "Arial Unicode.ttf",
    "msyh.ttc",
    "YuGothM.ttc",
    "malgun.ttf",
    "NotoSans-Regular.ttf",
    "DejaVuSans.ttf",
    "arial.ttf",
    "Arial.ttf",
    "LiberationSans-Regular.ttf",
)
_NO_CHARACTER = "\uffff"


def lettering(text: str, size: int, font: str | os.PathLike[str] | None = None) -> tuple[Font, str]:
    """A font of `size` pixels and the text to write with it, changed only where no font has the letters.

    font: a font file to use before all others. Raises OSError where it cannot be read.
    """
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if font is not None:
        chosen: Font = ImageFont.truetype(os.fspath(font), size)
        return chosen, _shown(text, chosen)
    if text.isascii():
        return _default(size), text
    for candidate in _others():
        chosen = _named(candidate, size)
        if all(_has(chosen, letter) for letter in text):
            return chosen, text
    fullest = max(
        (_named(name, size) for name in _others()), key=lambda font: _count(font, text), default=_default(size)
    )
    return fullest, _shown(text, fullest)


def _shown(text: str, font: Font) -> str:
    """The text with every letter the font lacks replaced by its plain reading or "?"."""
    return "".join(letter if _has(font, letter) else _plain(letter) for letter in text)


def _plain(letter: str) -> str:
    decomposed = unicodedata.normalize("NFKD", letter.replace("ß", "ss"))
    return "".join(part for part in decomposed if part.isascii()) or "?"


def _count(font: Font, text: str) -> int:
    return sum(_has(font, letter) for letter in text)


def _has(font: Font, letter: str) -> bool:
    """Whether the font draws the letter differently from a character that does not exist."""
    if letter.isascii():
        return True
    return bytes(font.getmask(letter)) != bytes(font.getmask(_NO_CHARACTER))


@lru_cache(maxsize=1)
def _others() -> tuple[str, ...]:
    return tuple(_available())


def _available() -> Iterator[str]:
    matplotlib = find_spec("matplotlib")
    folders = matplotlib.submodule_search_locations if matplotlib else None
    bundled = [str(Path(folder) / "mpl-data/fonts/ttf/DejaVuSans.ttf") for folder in folders or ()]
    for name in (*_SYSTEM_FONTS, *bundled):
        try:
            ImageFont.truetype(name, 12)
        except OSError:
            continue
        yield name


@lru_cache(maxsize=64)
def _named(name: str, size: int) -> Font:
    return ImageFont.truetype(name, size)


@lru_cache(maxsize=16)
def _default(size: int) -> Font:
    return ImageFont.load_default(size)

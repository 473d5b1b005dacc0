"""Pages put together from the files of this package: served in parts, or as one file that needs no network.

Modules import each other by names ("scope/dom", "uplot") that an import map resolves: to paths of the server, or to
data: addresses that hold the modules themselves. Both kinds of page run the same files.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_HERE = Path(__file__).parent
VENDOR = _HERE / "vendor"
SHARED = _HERE / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css"}
# Nothing outside the page may be asked for; modules and pictures may stand in it.
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' data: {scripts}; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Page:
    """title: of the window. start: the module that runs, by its name. styles: paths under the package, in order.

    folders: name -> folder whose modules are called `name/module`; those shared by all pages are called `scope/...`.
    """

    title: str
    start: str
    styles: tuple[str, ...] = ("page/base.css", "vendor/uplot.css")
    folders: Mapping[str, Path] = field(default_factory=dict)

    def modules(self) -> dict[str, Path]:
        """All modules: name -> file."""
        found = {path.stem: path for path in sorted(VENDOR.glob("*.js"))}
        for name, folder in {"scope": SHARED, **self.folders}.items():
            found |= {f"{name}/{path.stem}": path for path in sorted(folder.glob("*.js"))}
        return found

    def files(self) -> dict[str, tuple[bytes, str]]:
        """What a server has to hand out besides the page: path -> (content, media type)."""
        found = {f"/modules/{name}.js": path for name, path in self.modules().items()}
        found |= {f"/styles/{style}": _HERE / style for style in self.styles}
        return {path: (file.read_bytes(), _KINDS[file.suffix]) for path, file in found.items()}

    def served(self, data: Any = None) -> str:
        """The HTML of the page for a server that hands out `files()`. data: see `whole`."""
        imports = {name: f"/modules/{name}.js" for name in self.modules()}
        styles = "".join(f'<link rel="stylesheet" href="/styles/{style}">' for style in self.styles)
        if data is None:
            return self._html(imports, styles, "")
        text = json_text(data).replace("<", r"\u003c")  # no value may end the element
        return self._html(imports, styles, f'<script type="application/json" id="data">{text}</script>\n')

    def whole(self, data: Any) -> str:
        """The HTML of the page with everything in it. data: what `embedded("data")` gives in the page; packed JSON."""
        imports = {name: _address(path) for name, path in self.modules().items()}
        styles = "".join(f"<style>{(_HERE / style).read_text(encoding='utf-8')}</style>" for style in self.styles)
        packed = base64.b64encode(zlib.compress(json_text(data).encode(), 9)).decode("ascii")
        return self._html(imports, styles, f'<script type="text/plain" id="data" data-packed>{packed}</script>\n')

    def _html(self, imports: dict[str, str], styles: str, embedded: str) -> str:
        map_text, start_text = json.dumps({"imports": imports}), f'import "{self.start}";'
        policy = _POLICY.format(scripts=" ".join(_hash(text) for text in (map_text, start_text)))
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{html.escape(self.title)}</title>\n<link rel="icon" href="data:,">\n{styles}\n'
            f'<script type="importmap">{map_text}</script>\n</head>\n<body>\n'
            f'<noscript>This page needs JavaScript.</noscript>\n{embedded}<script type="module">{start_text}</script>\n'
            "</body>\n</html>\n"
        )


def json_text(data: Any) -> str:
    """JSON that browsers read: numbers that are not finite become null, "inf" or "-inf"; arrays become lists."""
    return json.dumps(_plain(data), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else None if math.isnan(number) else "inf" if number > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def _address(path: Path) -> str:
    return f"data:{_KINDS[path.suffix]};base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") + "'"

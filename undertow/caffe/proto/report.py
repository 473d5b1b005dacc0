"""Oddities that are accepted: a warning, or in strict reading an error."""

from __future__ import annotations

import os
import warnings

from undertow.errors import FormatError, UndertowWarning, describe


def complain(
    reason: str,
    *,
    strict: bool,
    file: str | os.PathLike[str] | None = None,
    line: int | None = None,
    layer: str | None = None,
    remedy: str | None = None,
) -> None:
    """Warn in the house form, or raise a FormatError when strict."""
    if strict:
        raise FormatError(reason, file=file, line=line, layer=layer, remedy=remedy)
    name = None if file is None else os.fspath(file)
    warnings.warn(describe(reason, name, line, None, layer, remedy), UndertowWarning, stacklevel=3)

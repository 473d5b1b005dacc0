"""Where in the code something is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undertow.core.function import Function

_ROOT = Path(__file__).resolve().parents[2]


def place_of(function: Callable[..., Any] | type) -> str:
    """`undertow/functions/conv.py:64`; the whole path for code outside the package, "" where there is none."""
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return ""
    if file is None:
        return ""
    path = Path(file).resolve()
    return f"{path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path}:{line}"


def backward_place(function: Function) -> str:
    """Where the backward of an operation is written: `file:line (Class.backward)`."""
    kind = type(function)
    method = "backward" if kind.backward is not Function.backward else "backward_graph"
    owner = next((base for base in kind.__mro__ if method in vars(base)), kind)
    return f"{place_of(getattr(kind, method))} ({owner.__name__}.{method})"

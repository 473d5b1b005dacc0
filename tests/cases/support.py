"""The small broken inputs that tests in this folder read."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from undertow.errors import UndertowWarning

INPUTS = Path(__file__).parent / "inputs"
Result = TypeVar("Result")


def case(name: str) -> Path:
    """The folder of a case, by the beginning of its name."""
    (found,) = INPUTS.glob(f"{name}-*")
    return found


def copied(name: str, target: Path) -> Path:
    """A copy of a case's folder that a test may add files to."""
    return Path(shutil.copytree(case(name), target, dirs_exist_ok=True))


def warned(function: Callable[[], Result]) -> tuple[Result, list[str]]:
    """The result of a call and the messages of the UndertowWarnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    return result, [str(item.message) for item in caught if issubclass(item.category, UndertowWarning)]

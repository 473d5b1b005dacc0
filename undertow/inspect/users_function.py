"""Functions of the user's: found by name, called, and what goes wrong inside them told with its place."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undertow.core.variable import Variable
from undertow.errors import FormatError, ShapeError, UndertowError

_PACKAGE = str(Path(__file__).resolve().parents[1])
_SHAPES = "give --shape once for each argument, as in --shape 2x3x8x8"
_MOST_NAMES = 12


def load_function(text: str) -> Any:
    """The function of `module:function` or `file.py:function`, looked up from the working folder too."""
    module_name, _, name = text.rpartition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name.removesuffix(".py").replace(os.sep, "."))
    except ImportError as problem:
        remedy = "module:function, with a module beside you or one that is installed"
        raise FormatError(f"the module '{module_name}' cannot be imported: {problem}", remedy=remedy) from problem
    except Exception as problem:
        raise _told(problem, module_name, "importing it") from problem
    module = found
    for part in name.split("."):
        if not hasattr(found, part):
            raise FormatError(f"the module '{module_name}' has no '{name}'", remedy=_functions_of(module))
        found = getattr(found, part)
    if not callable(found):
        raise FormatError(f"'{text}' is no function", remedy=_functions_of(module))
    return found


def _functions_of(module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, types.FunctionType)]
    own = [name for name in names if getattr(module, name).__module__ == module.__name__]
    if not own:
        return "write a function of arrays there that returns a Variable"
    return f"its functions are {', '.join(own[:_MOST_NAMES])}{'...' if len(own) > _MOST_NAMES else ''}"


def call_function(function: Any, inputs: Sequence[Variable], source: str) -> list[Variable]:
    """The Variables it returns. Raises ShapeError for a wrong number of arguments, UndertowError for all else."""
    try:
        result = function(*inputs)
    except TypeError as problem:
        if _is_own(problem):
            raise _told(problem, source, "calling it") from problem
        reason = f"it cannot be called with {len(inputs)} arrays: {problem}"
        raise ShapeError(reason, file=source or None, remedy=_SHAPES) from problem
    except Exception as problem:
        raise _told(problem, source, "calling it") from problem
    found = [y for y in (result if isinstance(result, tuple | list) else [result]) if isinstance(y, Variable)]
    if not found:
        remedy = "return what functions of undertow make of the arguments"
        raise UndertowError(
            "it returns no Variable: there is nothing to go back from", file=source or None, remedy=remedy
        )
    return found


def _is_own(problem: BaseException) -> bool:
    """Whether it was raised inside the function, and not by calling it with other arguments than it has."""
    frames = traceback.extract_tb(problem.__traceback__)
    return len(frames) > 1


def _told(problem: Exception, source: str, doing: str) -> UndertowError:
    """The error with the user's own line that led to it."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [f for f in frames if not os.path.abspath(f.filename).startswith(_PACKAGE) and "importlib" not in f.filename]
    own = [frame for frame in own if "site-packages" not in frame.filename]
    file, line = (own[-1].filename, own[-1].lineno) if own else (source or None, None)
    if file is not None and os.path.abspath(file).startswith(os.getcwd() + os.sep):
        file = os.path.relpath(file)
    if isinstance(problem, UndertowError):
        if problem.file is not None:
            return problem
        return type(problem)(
            problem.reason, file=file, line=line, layer=problem.layer, remedy=problem.remedy or _SHAPES
        )
    remedy = "mend it there, or give arguments it can take with --shape"
    return UndertowError(f"{doing} raised {type(problem).__name__}: {problem}", file=file, line=line, remedy=remedy)

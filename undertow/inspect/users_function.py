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
    """The function of `module:function` or `path/file.py:function`, looked up from the working folder too.

    A file that lies in a package is imported as a part of it, so that its relative imports are found.
    """
    module_name, _, name = text.rpartition(":")
    dotted, folder = module_name, os.getcwd()
    if module_name.endswith(".py") or os.sep in module_name:
        dotted, folder = _module_of(module_name)
    elif not module_name or module_name.startswith("."):
        remedy = "module:function or path/file.py:function"
        raise FormatError(f"there is no module called '{module_name}'", remedy=remedy)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(dotted)
    except ImportError as problem:
        remedy = "module:function, with a module beside you or one that is installed"
        if "no known parent package" in str(problem):
            remedy = "write an empty __init__.py beside it, or name it as package.module:function"
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


def _module_of(path: str) -> tuple[str, str]:
    """The name of the module in a file, with the packages it lies in, and the folder to look for it from."""
    file = Path(path if path.endswith(".py") else f"{path}.py").resolve()
    if not file.is_file():
        raise FormatError("there is no such file", file=path, remedy="module:function or path/file.py:function")
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    dotted = ".".join(parts)
    for name in (dotted, parts[0]):
        known = getattr(sys.modules.get(name), "__file__", None)
        if known is not None and not Path(known).resolve().is_relative_to(folder):
            reason = f"a module called '{name}' is imported already, from {known}"
            raise FormatError(reason, file=path, remedy="give the file another name")
    if not all(part.isidentifier() for part in parts):
        raise FormatError(f"'{dotted}' is no name of a module", file=path, remedy="letters, digits and _ only")
    return dotted, str(folder)


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

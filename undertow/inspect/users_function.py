"""Functions of the user's: found by name, called, and what goes wrong inside them told with its place."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undertow.core.variable import Parameter, Variable
from undertow.errors import FormatError, ShapeError, UndertowError
from undertow.inspect.batches import read_arrays
from undertow.inspect.record import Array
from undertow.layers import Module
from undertow.optimizers import Optimizer

_PACKAGE = str(Path(__file__).resolve().parents[1])
_STDLIB = os.path.dirname(os.__file__) + os.sep
_SHAPES = "give the shape of each argument, as in --shape 2x3x8x8,2x4, or arrays as --data FILE.npz"
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
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if missing and dotted != missing and not dotted.startswith(f"{missing}."):
            remedy = f"install '{missing}', which it imports, or take that import out"
        if "no known parent package" in str(problem):
            remedy = "write an empty __init__.py beside it, or name it as package.module:function"
        raise FormatError(f"the module '{module_name}' cannot be imported: {problem}", remedy=remedy) from problem
    except (Exception, SystemExit) as problem:
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


def call_function(function: Any, arguments: Arguments, source: str) -> Any:
    """What it returns. Raises ShapeError for arguments that it does not take, UndertowError for all else."""
    takes_any = _takes_any(function)
    try:
        result = function(*arguments.plain, **arguments.named)
    except TypeError as problem:
        if _is_own(problem):
            raise _told(problem, source, "calling it", takes_any) from problem
        remedy = _SHAPES if takes_any else "leave -shape and -data out: it takes no arguments"
        raise ShapeError(arguments.refused(problem), file=source or None, remedy=remedy) from problem
    except (Exception, SystemExit) as problem:
        raise _told(problem, source, "calling it", takes_any) from problem
    if inspect.iscoroutine(result):
        result.close()
        reason = "it is an async function: calling it makes a coroutine, and computes nothing"
        raise UndertowError(reason, file=source or None, remedy="name a plain one, with def in place of async def")
    return result


def _takes_any(function: Any) -> bool:
    """Whether a function takes arguments at all, as far as it tells."""
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


@dataclass(frozen=True)
class Arguments:
    """What a function is called with. about: what they are, in words."""

    plain: list[Variable] = field(default_factory=list)
    named: dict[str, Variable] = field(default_factory=dict)
    about: str = "its own data"

    @property
    def all(self) -> list[Variable]:
        return [*self.plain, *self.named.values()]

    def refused(self, problem: TypeError) -> str:
        """Why a function cannot be called with them."""
        count = len(self.all)
        given = "no arguments" if count == 0 else f"{count} arrays" if count > 1 else "one array"
        return f"it cannot be called with {given}: {problem}"


def random_arguments(shapes: Sequence[Sequence[int]], seed: int) -> Arguments:
    """Random numbers of these shapes, float32; none without shapes."""
    rng = np.random.default_rng(seed)
    made = [Variable(rng.standard_normal(tuple(shape)).astype(np.float32), f"x{i}") for i, shape in enumerate(shapes)]
    sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
    about = f"random arrays {sizes}, seed {seed} (give --data for real ones)"
    return Arguments(made, about=about) if made else Arguments()


def read_arguments(function: Any, path: str | os.PathLike[str]) -> Arguments:
    """The arrays of an .npy or .npz: by name where the function has arguments of these names, else in order.

    Whole numbers, such as labels, get no gradient. Raises FormatError for a file that holds none.
    """
    if not os.path.exists(path):
        raise FormatError("there is no such file", file=path, remedy="check the path")
    arrays = read_arrays(path)
    wrong = next((name for name, array in arrays.items() if array.dtype.kind not in "fiub"), None)
    if wrong is not None or not arrays:
        what = f"'{wrong}' holds no numbers" if arrays else "it holds no arrays"
        raise FormatError(what, file=path, remedy="save the arguments with np.savez(file, x=..., t=...)")
    made = {name: Variable(array, name, requires_grad=array.dtype.kind == "f") for name, array in arrays.items()}
    about = f"{os.fspath(path)}, " + ", ".join(
        f"{name} {'x'.join(map(str, array.shape)) or '1'}" for name, array in arrays.items()
    )
    try:
        by_name = set(arrays) <= set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        by_name = False
    return Arguments(named=made, about=about) if by_name else Arguments(list(made.values()), about=about)


@dataclass(frozen=True)
class Returned:
    """What a function handed back, of this kind. roots: what is differentiated. inputs: the batch it made, by name.

    left: how many single numbers besides the loss could be differentiated too, and are not.
    """

    roots: list[Variable]
    inputs: dict[str, Array]
    optimizers: list[Optimizer]
    kind: str
    left: int = 0


def taken_apart(result: Any) -> Returned:
    """A loss, or (loss, inputs, ...): inputs are arrays or Variables that nothing made, in tuples and dicts too.

    A single number that stands first is the loss alone; what else was computed is then no root.
    """
    items = list(_items(result, ""))
    made = [value for _, value in items if isinstance(value, Variable) and value.creator is not None]
    numbers = sum(value.size == 1 and value.requires_grad for value in made)
    left = numbers - 1 if numbers > 1 and made[0].size == 1 else 0
    found = Returned([], {}, [], "None" if result is None else type(result).__name__, left)
    if not made:
        made = [value for _, value in items if isinstance(value, Variable)][:1]
    found.roots.extend(made[:1] if made and made[0].size == 1 else made)
    for name, value in items:
        if isinstance(value, Optimizer):
            found.optimizers.append(value)
        elif isinstance(value, Variable) and value.creator is None and value not in found.roots:
            found.inputs[value.name or name] = value.data
        elif isinstance(value, np.ndarray):
            found.inputs[name] = value
    return found


def _items(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        pairs = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, tuple | list):
        pairs = [(f"{name}.{i}" if name else str(i), part) for i, part in enumerate(value)]
    else:
        yield name, value
        return
    for key, part in pairs:
        yield from _items(part, key)


def surroundings(function: Any) -> dict[str, Any]:
    """What a function can see by name: its own object (itself, if it is one) with its fields, closure, module."""
    plain = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    found: dict[str, Any] = {} if isinstance(plain, types.FunctionType) else {"": plain}
    if isinstance(plain, types.MethodType):
        found = {"": plain.__self__}
        plain = inspect.unwrap(plain.__func__)
    if not isinstance(found.get(""), Module):
        found |= vars(found.get("")) if hasattr(found.get(""), "__dict__") else {}
    if isinstance(plain, types.FunctionType):
        cells = zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True)
        found |= {name: cell.cell_contents for name, cell in cells if _filled(cell)}
        found |= {name: value for name, value in plain.__globals__.items() if name not in found}
    return found


def names_around(around: Mapping[str, Any]) -> dict[str, Parameter]:
    """The parameters of the models that a function can see, by name: of several models with the model's before it."""
    models = {name: value for name, value in around.items() if isinstance(value, Module)}
    sizes = {name: len(list(model.parameters())) for name, model in models.items()}
    found: dict[str, Parameter] = {}
    known: set[int] = set()
    parts = []
    for name in sorted(models, key=lambda name: -sizes[name]):  # a model before the layers it consists of
        fresh = {own: x for own, x in models[name].named_parameters() if id(x) not in known}
        known |= {id(x) for x in fresh.values()}
        parts += [(name, fresh)] if fresh else []
    for name, fresh in parts:
        prefix = f"{name}." if len(parts) > 1 and name else ""
        found |= {f"{prefix}{own}": x for own, x in fresh.items()}
    return found


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises where nothing was assigned yet
    except ValueError:
        return False
    return True


def _is_own(problem: BaseException) -> bool:
    """Whether it was raised inside the function, and not by calling it with other arguments than it has."""
    frames = traceback.extract_tb(problem.__traceback__)
    return len(frames) > 1


def _told(problem: Exception | SystemExit, source: str, doing: str, takes_any: bool = False) -> UndertowError:
    """The error with the user's own line that led to it. takes_any: whether other arguments could help."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [f for f in frames if not os.path.abspath(f.filename).startswith(_PACKAGE) and "importlib" not in f.filename]
    own = [f for f in own if "site-packages" not in f.filename and not f.filename.startswith(_STDLIB)]
    file, line = (own[-1].filename, own[-1].lineno) if own else (source or None, None)
    if file is not None and os.path.abspath(file).startswith(os.getcwd() + os.sep):
        file = os.path.relpath(file)
    if isinstance(problem, SystemExit):
        remedy = "put what runs the program under: if __name__ == '__main__':"
        return UndertowError(f"{doing} ended the program", file=file, line=line, remedy=remedy)
    if isinstance(problem, UndertowError):
        if problem.file is not None:
            return problem
        remedy = problem.remedy or (_SHAPES if takes_any else "change that line, or what it reads")
        return type(problem)(problem.reason, file=file, line=line, layer=problem.layer, remedy=remedy)
    remedy = "change that line, or what it reads"
    if takes_any:
        remedy += "; or give other arguments with --shape or --data"
    return UndertowError(f"{doing} raised {type(problem).__name__}: {problem}", file=file, line=line, remedy=remedy)

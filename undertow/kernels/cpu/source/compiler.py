"""`@kernel`: a function that is compiled once, as a C symbol.

An ordinary `@njit` callee is linked into every caller and optimised again there, which made the first
compilation several times longer. A kernel is a `cfunc` whose address is registered as an LLVM symbol:
other kernels call it through that symbol, Python through ctypes (which releases the GIL).
"""
# mypy: ignore-errors

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cfunc, njit, types
from numba.core.dispatcher import Dispatcher
from numba.core.types.functions import ExternalFunction

# Division by zero gives inf as in C; a check for it would stop LLVM from vectorising. Inlining a kernel into
# its C entry removes Numba's error reporting, which would need Numba at run time.
INLINE = {"forceinline": True, "error_model": "numpy"}

# External functions an object file may refer to that every process has.
LIBC = frozenset({"memset", "memcpy", "memmove", "expf", "logf", "log1pf", "expm1f", "tanhf", "powf", "sqrt"})


class Source(NamedTuple):
    """A kernel before compilation. name: `module.function`. signature: one letter per argument, i or f."""

    name: str
    symbol: str
    signature: str
    function: Callable[..., None]


class Compiled(NamedTuple):
    """A kernel after it. entry: its symbol in the object code. keep: the object that owns the machine code.

    code is empty where the object code needs Numba's runtime, so that it cannot be stored.
    """

    address: int
    entry: str
    code: bytes
    keep: Any


SOURCES: dict[str, Source] = {}
_BY_EXTERNAL: dict[ExternalFunction, str] = {}
_TYPES = {"i": types.int64, "f": types.float32}


def kernel(function=None, *, floats: tuple[str, ...] = ()):
    """Declare a kernel. floats: names of the arguments that are float32; all others are int64."""
    if function is None:
        return lambda f: kernel(f, floats=floats)
    module = function.__module__.rsplit(".", 1)[-1]
    arguments = inspect.signature(function).parameters
    signature = "".join("f" if name in floats else "i" for name in arguments)
    source = Source(f"{module}.{function.__name__}", f"undertow_{module}_{function.__name__}", signature, function)
    external = ExternalFunction(source.symbol, types.void(*[_TYPES[letter] for letter in signature]))
    SOURCES[source.name] = source
    _BY_EXTERNAL[external] = source.name
    return external


def inline(function):
    """A helper that becomes part of the kernels that call it."""
    return njit(**INLINE)(function)


def requirements(name: str) -> tuple[str, ...]:
    """Names of the kernels that a kernel calls, directly or through inlined helpers, in order of mention."""
    found: dict[str, None] = {}
    pending, seen = [SOURCES[name].function], set()
    while pending:
        function = pending.pop()
        seen.add(function)
        for word in function.__code__.co_names:
            value = function.__globals__.get(word)
            if isinstance(value, ExternalFunction):
                found[_BY_EXTERNAL[value]] = None
            elif isinstance(value, Dispatcher) and value.py_func not in seen:
                pending.append(value.py_func)
    return tuple(found)


def compile_kernel(name: str) -> Compiled:
    """Compile one kernel; the symbols of its `requirements` must be registered already."""
    source = SOURCES[name]
    signature = types.void(*[_TYPES[letter] for letter in source.signature])
    compiled = cfunc(signature, nopython=True, **INLINE)(source.function)
    library = compiled._library  # the only place where Numba keeps the object code
    known = LIBC | {SOURCES[other].symbol for other in requirements(name)}
    alone = all(
        function.name in known or function.name.startswith("llvm.")
        for function in library._final_module.functions
        if function.is_declaration
    )
    code = library._get_compiled_object() if alone else b""
    return Compiled(compiled.address, compiled._wrapper_name, code, compiled)

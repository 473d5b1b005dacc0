"""Compiled kernels by name: from the cache folder if they are there, else compiled and put there.

`Kernels("direct").forward` is the compiled function `forward` of `source/direct.py`. A call releases the GIL; within
`jobs.recording` it is noted instead. Numba is imported only when something has to be compiled.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from undertow.kernels.cpu import cache, jobs
from undertow.kernels.cpu.target import target


class Kernel:
    """A compiled kernel, called with Python numbers."""

    __slots__ = ("_address", "_call", "_row", "_signature")

    def __init__(self, address: int, signature: str) -> None:
        self._call = ctypes.CFUNCTYPE(None, *[_LETTERS[letter] for letter in signature])(address)
        self._address, self._signature = address, signature
        self._row: jobs.Row | None = None

    def __call__(self, *arguments: Any) -> None:
        noted = jobs.here.jobs
        if noted is None:
            self._call(*arguments)
            return
        if self._row is None:
            self._row = jobs.Row(self._address, self._signature)
        noted.add(self._row, arguments)


_lock = threading.RLock()
_calls: dict[str, Kernel] = {}
_keep: list[Any] = []
_engine: Any = None
_machine: Any = None
_LETTERS: dict[str, Any] = {"i": ctypes.c_int64, "f": ctypes.c_float}


class Kernels:
    """The kernels of one source module, compiled or loaded at first use."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__"):
            raise AttributeError(name)
        call = load(f"{self._module}.{name}")
        setattr(self, name, call)
        return call


def symbol(name: str) -> str:
    """The name under which the kernel `module.function` is known to other kernels."""
    return "undertow_" + name.replace(".", "_")


def load(name: str) -> Kernel:
    """The kernel `module.function` as a function of Python numbers."""
    call = _calls.get(name)
    if call is None:
        with _lock:
            call = _calls.get(name)
            if call is None:
                stored = cache.read(name)
                call = _compile(name) if stored is None else _link(name, stored)
                _calls[name] = call
    return call


def _link(name: str, stored: cache.Stored) -> Kernel:
    """Make stored object code callable."""
    import llvmlite.binding as llvm

    for other in stored.requires:
        load(other)
    engine = _own_engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(stored.code))
    engine.finalize_object()
    return _publish(name, engine.get_function_address(stored.entry), stored.signature)


def _compile(name: str) -> Kernel:
    cache.try_out()
    where = f"once; kept in {cache.root()}"
    cache.tell(cache.Notice("compiling", f"compiling kernels for this processor ({where})", name))
    module = importlib.import_module("undertow.kernels.cpu.source." + name.split(".")[0])
    compiler = importlib.import_module("undertow.kernels.cpu.source.compiler")
    if name not in compiler.SOURCES:
        raise AttributeError(f"{module.__name__} has no kernel {name.split('.')[1]}")
    requires = compiler.requirements(name)
    for other in requires:
        load(other)
    start = time.perf_counter()
    made = compiler.compile_kernel(name)
    signature = compiler.SOURCES[name].signature
    _keep.append(made.keep)
    call = _publish(name, made.address, signature)
    if made.code:
        cache.write(name, cache.Stored(made.entry, signature, requires, made.code))
    seconds = time.perf_counter() - start
    cache.tell(cache.Notice("compiled", f"compiled {name} in {seconds:.2f} s", name, seconds))
    return call


def _publish(name: str, address: int, signature: str) -> Kernel:
    import llvmlite.binding as llvm

    llvm.add_symbol(symbol(name), address)
    return Kernel(address, signature)


def assemble(name: str, text: str, symbols: Sequence[str]) -> dict[str, int]:
    """Addresses of functions written as LLVM code; their object code is kept beside the kernels."""
    import llvmlite.binding as llvm

    with _lock:
        engine = _own_engine()
        stored = cache.read(name)
        if stored is None or stored.signature != text:
            module = llvm.parse_assembly(text)
            module.verify()
            stored = cache.Stored(symbols[0], text, (), _machine.emit_object(module))
            cache.write(name, stored)
        engine.add_object_file(llvm.ObjectFileRef.from_data(stored.code))
        engine.finalize_object()
        return {symbol: engine.get_function_address(symbol) for symbol in symbols}


def _own_engine() -> Any:
    """The execution engine that stored object code is loaded into."""
    global _engine, _machine
    if _engine is None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        here = target()
        _machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=here.name, features=here.features, opt=3, jit=True
        )
        _engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine)
    return _engine

"""`import darknet` and `CDLL("libdarknet.so")` for scripts that were written for the original."""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from undertow.darknet.wrapper.library import Library

_LIBRARIES = ("libdarknet.so", "libdark.so", "libdarknet.dylib", "darknet.dll", "yolo_cpp_dll.dll")
_OriginalCDLL = ctypes.CDLL


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives our module for the name `darknet` where there is no other, such as a darknet.py beside the script.

    It is asked first: a mere folder of that name (the C program's, mostly) would otherwise count as a module. What such
    a folder holds can still be imported as darknet.NAME.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "darknet":
            return None
        folders: list[str] = []
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None and found.origin is not None:
                return found
            folders += found.submodule_search_locations or [] if found is not None else []
        spec = importlib.machinery.ModuleSpec(fullname, self)
        spec.submodule_search_locations = folders or None
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        ours = importlib.import_module("undertow.darknet.wrapper.module")
        module = ModuleType("darknet", ours.__doc__)
        module.__dict__.update({name: value for name, value in vars(ours).items() if not name.startswith("__")})
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It is filled already."""


class _CDLL(ctypes.CDLL):
    """ctypes.CDLL, except that Darknet's library is ours, whether or not there is such a file."""

    def __new__(cls, name: Any = None, *rest: Any, **named: Any) -> Any:
        if isinstance(name, (str, bytes, os.PathLike)):
            base = os.fsdecode(name).replace("\\", "/").rsplit("/", 1)[-1]
            if base in _LIBRARIES:
                return Library()
        return super().__new__(cls)


_finder = _Finder()


def install() -> None:
    """From now on `darknet` and its C library mean this package, in the whole program."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _load_with(_CDLL)


def uninstall() -> None:
    """Undo `install`."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    known = sys.modules.get("darknet")
    if known is not None and getattr(known.__spec__, "loader", None) is _finder:
        del sys.modules["darknet"]
    _load_with(_OriginalCDLL)


def _load_with(kind: type[ctypes.CDLL]) -> None:
    for owner, name in ((ctypes, "CDLL"), (ctypes.cdll, "_dlltype")):
        setattr(owner, name, kind)

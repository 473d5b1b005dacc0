"""`import caffe` for scripts that were written for the original: the name then means this package."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from undertow.errors import UndertowError

_NAME, _PACKAGE = "caffe", "undertow.caffe"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `caffe` and everything inside it as the modules of this package: the same objects under two names.

    A module that is not here is taken from a folder `caffe` on Python's path, which a checkout of Caffe or of a fork
    has: SSD's scripts say `from caffe.model_libs import *`, and people keep modules of their own there.
    """

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        try:
            found = importlib.util.find_spec(_ours(fullname))
        except ModuleNotFoundError:
            found = None
        if found is None:
            inside = fullname.removeprefix(f"{_NAME}.")
            return importlib.machinery.PathFinder.find_spec(fullname, path if "." in inside else _checkouts())
        package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ours(spec.name))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed under its own name, which it keeps."""
        name = module.__spec__.name if module.__spec__ is not None else ""
        if name in self._specs:
            module.__spec__ = self._specs.pop(name)


def _checkouts() -> list[str]:
    return [folder for entry in sys.path if os.path.isdir(folder := os.path.join(entry, _NAME))]


def _ours(name: str) -> str:
    return _PACKAGE + name.removeprefix(_NAME)


_finder = _Finder()


def install() -> None:
    """From now on `import caffe` and `from caffe.proto import caffe_pb2` mean this package, in the whole program.

    Raises UndertowError where another caffe has been imported already.
    """
    known = sys.modules.get(_NAME)
    if known is not None and known is not sys.modules.get(_PACKAGE):
        raise UndertowError(
            f"another caffe has been imported already, from {getattr(known, '__file__', 'somewhere')}",
            remedy="call undertow.caffe.install() before the first import caffe",
        )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Undo `install`: the names are free again."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        del sys.modules[name]

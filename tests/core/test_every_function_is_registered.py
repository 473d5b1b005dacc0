"""No operation of the package escapes the registry."""

from __future__ import annotations

import importlib
import pkgutil

import undertow
from undertow.core.function import Function
from undertow.core.registry import find
from undertow.errors import MissingPackage

# Classes that are no operations themselves, and why.
NOT_OPERATIONS = {
    "NonDifferentiable": "base of operations without a gradient",
    "Reduction": "base of the reductions over axes",
    "Extreme": "base of max and min",
    "_Choice": "base of maximum and minimum",
    "DifferenceLoss": "base of the losses of a difference",
    "Recurrent": "base of the fused recurrent layers",
    "PythonCall": "runs a layer class of the user's",
    "LayerCall": "runs a Caffe layer with its own forward and backward",
    "PlannedStep": "stands behind what a plan returned and cannot be differentiated",
}


def _subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


def test_every_function_is_registered():
    for module in pkgutil.walk_packages(undertow.__path__, "undertow."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except MissingPackage:
            continue
    ours = [kind for kind in _subclasses(Function) if kind.__module__.startswith("undertow.")]
    assert len(ours) > 50
    escaped = {kind.__qualname__ for kind in ours if find(kind) is None}
    assert not escaped - set(NOT_OPERATIONS)

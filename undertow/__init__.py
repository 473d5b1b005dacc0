"""Undertow: neural networks with backpropagation done in the open.

    import numpy as np
    import undertow as ut

    x = ut.Variable(np.array(0.5))
    y = ut.square(ut.exp(ut.square(x)))
    y.backward()
    x.grad          # 3.297442541400256

`ut.darknet` (networks in Darknet's formats), `ut.layers`, `ut.optimizers`, `ut.data` and `ut.initializers` are
loaded when first used.
"""

from __future__ import annotations

from undertow import starting as starting  # first: the others take a while

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

from undertow.core import *  # noqa: F403
from undertow.core import __all__ as _core_names
from undertow.errors import UndertowError as UndertowError
from undertow.errors import UndertowWarning as UndertowWarning
from undertow.functions import *  # noqa: F403
from undertow.functions import __all__ as _function_names

if TYPE_CHECKING:
    from undertow import darknet as darknet
    from undertow import data as data
    from undertow import layers as layers
    from undertow import optimizers as optimizers

__version__ = "0.1.0"

# Name -> module that holds it (the module itself when both are equal): loaded at first use, so that
# `import undertow` stays quick.
_LAZY: dict[str, str] = {
    "darknet": "undertow.darknet",
    "data": "undertow.data",
    "layers": "undertow.layers",
    "optimizers": "undertow.optimizers",
    "initializers": "undertow.layers.initializers",
    "draw": "undertow.inspect.draw",
    "trace": "undertow.inspect.tracing",
    "watch": "undertow.inspect.watch",
    "save": "undertow.layers.saving",
    "load": "undertow.layers.saving",
    "Module": "undertow.layers",
    "plan": "undertow.plans",
    "set_threads": "undertow.kernels.select",
}

__all__ = [*_core_names, *_function_names, *_LAZY, "UndertowError", "UndertowWarning"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'undertow' has no attribute '{name}'")
    module = importlib.import_module(_LAZY[name])
    value = (
        module
        if _LAZY[name].rpartition(".")[2] == name and not hasattr(module, name)
        else getattr(module, name, module)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

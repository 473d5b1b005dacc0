"""Which backend a call goes to, seen through a stand-in for the compiled one."""

from __future__ import annotations

import inspect
import sys
import types
import warnings

import numpy as np
import pytest

from undertow.core.modes import precision
from undertow.errors import UndertowWarning
from undertow.kernels import reference, select
from undertow.kernels.geometry import ConvGeometry

KERNELS = [
    name
    for name, member in vars(select).items()
    if inspect.isfunction(member) and member.__module__ == select.__name__ and not name.startswith("_")
]
KERNELS.remove("set_threads")
KERNELS.remove("compiled")


@pytest.fixture
def compiled(monkeypatch):
    """A compiled backend that answers every conv2d with an empty array and supports batches of one."""
    module = types.ModuleType("undertow.kernels.cpu")
    module.supports = lambda name, x, *rest: name == "conv2d" and len(x) == 1
    module.begin = lambda: None
    module.conv2d = lambda x, w, b, geometry: np.empty(0)
    monkeypatch.setitem(sys.modules, "undertow.kernels.cpu", module)
    select._compiled_backend.cache_clear()
    yield module
    select._compiled_backend.cache_clear()


def call(dtype=np.float32, batch=1, weights=None):
    x, w = np.ones((batch, 1, 3, 3), dtype), np.ones((2, 1, 3, 3), weights or dtype)
    return select.conv2d(x, w, None, ConvGeometry())


def test_float32_goes_to_the_compiled_kernels(compiled):
    assert call().size == 0


def test_other_types_precisions_and_unsupported_calls_go_to_the_reference(compiled):
    assert call(np.float64).tolist() == [[[[9]], [[9]]]]
    assert call(weights=np.float64).size == 2
    assert call(batch=2).size == 4
    with precision("reference"):
        assert call().size == 2
    with precision("precise"):
        assert call().size == 0


def test_without_compiled_kernels_one_warning_and_the_reference(monkeypatch):
    monkeypatch.setitem(sys.modules, "undertow.kernels.cpu", None)
    select._compiled_backend.cache_clear()
    try:
        with pytest.warns(UndertowWarning, match="NumPy ones are used.*pip install numba"):
            assert call().size == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call().size == 2
            select.set_threads(1)
    finally:
        select._compiled_backend.cache_clear()


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_the_signature_of_its_reference(name):
    assert inspect.signature(getattr(select, name)) == inspect.signature(getattr(reference, name))


def test_every_kernel_of_the_reference_can_be_selected():
    assert set(KERNELS) == set(reference.__all__)

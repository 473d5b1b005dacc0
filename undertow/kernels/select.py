"""The one place where a kernel's backend is chosen, call by call.

Functions call the names below, never a backend. A call goes to `undertow.kernels.cpu` (compiled, float32) when
all its arrays of values are float32, `precision("reference")` is not in force and that backend says that it
supports these arguments; otherwise to `undertow.kernels.reference` (NumPy, any float type), which is given whole
numbers as floats (`undertow.core.reals`). Both give the same shapes and meaning; the docstrings stand in the reference.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from undertow.core.modes import current_precision
from undertow.core.reals import as_reals
from undertow.errors import UndertowWarning
from undertow.kernels import reference
from undertow.kernels.geometry import ConvGeometry, Pair, PoolGeometry, Windows
from undertow.kernels.reference.batchnorm import EXACT, BatchNormForward, BatchNormGradients, BatchNormRule
from undertow.kernels.reference.layernorm import LayerNormForward, LayerNormGradients
from undertow.kernels.reference.lrn import LrnOptions
from undertow.kernels.reference.pooling import PoolKind

Array = np.ndarray[Any, Any]


def conv2d(x: Array, w: Array, b: Array | None, geometry: ConvGeometry) -> Array:
    """`reference.conv2d`."""
    return _run("conv2d", x, w, b, geometry)


def conv2d_backward_data(gy: Array, w: Array, x_shape: Sequence[int], geometry: ConvGeometry) -> Array:
    """`reference.conv2d_backward_data`."""
    return _run("conv2d_backward_data", gy, w, x_shape, geometry)


def conv2d_backward_weights(gy: Array, x: Array, w_shape: Sequence[int], geometry: ConvGeometry) -> Array:
    """`reference.conv2d_backward_weights`."""
    return _run("conv2d_backward_weights", gy, x, w_shape, geometry)


def convnd(x: Array, w: Array, b: Array | None, geometry: Windows) -> Array:
    """`reference.convnd`."""
    return _run("convnd", x, w, b, geometry)


def convnd_backward_data(gy: Array, w: Array, x_shape: Sequence[int], geometry: Windows) -> Array:
    """`reference.convnd_backward_data`."""
    return _run("convnd_backward_data", gy, w, x_shape, geometry)


def convnd_backward_weights(gy: Array, x: Array, w_shape: Sequence[int], geometry: Windows) -> Array:
    """`reference.convnd_backward_weights`."""
    return _run("convnd_backward_weights", gy, x, w_shape, geometry)


def im2col(image: Array, kernel: Sequence[int], geometry: Windows) -> Array:
    """`reference.im2col`."""
    return _run("im2col", image, kernel, geometry)


def col2im(cols: Array, image_shape: Sequence[int], kernel: Sequence[int], geometry: Windows) -> Array:
    """`reference.col2im`."""
    return _run("col2im", cols, image_shape, kernel, geometry)


def pool2d(kind: PoolKind, x: Array, geometry: PoolGeometry) -> tuple[Array, Array | None]:
    """`reference.pool2d`."""
    return _run("pool2d", kind, x, geometry)


def pool2d_backward(
    kind: PoolKind, gy: Array, indexes: Array | None, x_shape: Sequence[int], geometry: PoolGeometry
) -> Array:
    """`reference.pool2d_backward`."""
    return _run("pool2d_backward", kind, gy, indexes, x_shape, geometry)


def max_pool2d_gather(x: Array, indexes: Array) -> Array:
    """`reference.max_pool2d_gather`."""
    return _run("max_pool2d_gather", x, indexes)


def batch_norm(x: Array, gamma: Array, beta: Array, rule: BatchNormRule = EXACT) -> BatchNormForward:
    """`reference.batch_norm`."""
    return _run("batch_norm", x, gamma, beta, rule)


def batch_norm_backward(
    gy: Array, x_hat: Array, gamma: Array, variance: Array, rule: BatchNormRule = EXACT
) -> BatchNormGradients:
    """`reference.batch_norm_backward`."""
    return _run("batch_norm_backward", gy, x_hat, gamma, variance, rule)


def batch_norm_inference(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, rule: BatchNormRule = EXACT
) -> Array:
    """`reference.batch_norm_inference`."""
    return _run("batch_norm_inference", x, gamma, beta, mean, variance, rule)


def batch_norm_inference_backward(
    gy: Array, x: Array, gamma: Array, mean: Array, variance: Array, rule: BatchNormRule = EXACT
) -> BatchNormGradients:
    """`reference.batch_norm_inference_backward`."""
    return _run("batch_norm_inference_backward", gy, x, gamma, mean, variance, rule)


def activate(x: Array, name: str) -> Array:
    """`reference.activate`."""
    return _run("activate", x, name)


def activate_backward(gy: Array, saved: Array, name: str, from_output: bool = False) -> Array:
    """`reference.activate_backward`."""
    return _run("activate_backward", gy, saved, name, from_output)


def broken_line(x: Array, above: float, below: float) -> Array:
    """`reference.broken_line`."""
    return _run("broken_line", x, above, below)


def broken_line_backward(gy: Array, saved: Array, above: float, below: float) -> Array:
    """`reference.broken_line_backward`."""
    return _run("broken_line_backward", gy, saved, above, below)


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-5) -> LayerNormForward:
    """`reference.layer_norm`."""
    return _run("layer_norm", x, gamma, beta, epsilon)


def layer_norm_backward(gy: Array, x_hat: Array, deviation: Array, gamma: Array) -> LayerNormGradients:
    """`reference.layer_norm_backward`."""
    return _run("layer_norm_backward", gy, x_hat, deviation, gamma)


def lrn(x: Array, options: LrnOptions) -> tuple[Array, Array]:
    """`reference.lrn`."""
    return _run("lrn", x, options)


def lrn_backward(gy: Array, x: Array, y: Array, scale: Array, options: LrnOptions) -> Array:
    """`reference.lrn_backward`."""
    return _run("lrn_backward", gy, x, y, scale, options)


def upsample2d(x: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.upsample2d`."""
    return _run("upsample2d", x, factor, scale)


def upsample2d_backward(gy: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.upsample2d_backward`."""
    return _run("upsample2d_backward", gy, factor, scale)


def downsample2d(x: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.downsample2d`."""
    return _run("downsample2d", x, factor, scale)


def downsample2d_backward(gy: Array, factor: Pair, scale: float = 1.0) -> Array:
    """`reference.downsample2d_backward`."""
    return _run("downsample2d_backward", gy, factor, scale)


def softmax(x: Array, axis: int = 1) -> Array:
    """`reference.softmax`."""
    return _run("softmax", x, axis)


def softmax_backward(gy: Array, y: Array, axis: int = 1) -> Array:
    """`reference.softmax_backward`."""
    return _run("softmax_backward", gy, y, axis)


def log_softmax(x: Array, axis: int = 1) -> Array:
    """`reference.log_softmax`."""
    return _run("log_softmax", x, axis)


def log_softmax_backward(gy: Array, y: Array, axis: int = 1) -> Array:
    """`reference.log_softmax_backward`."""
    return _run("log_softmax_backward", gy, y, axis)


def darknet_accumulate(updates: Array, gradient: Array, factor: float = 1.0) -> None:
    """`reference.darknet_accumulate`, in place."""
    _run("darknet_accumulate", updates, gradient, factor)


def darknet_update(values: Array, updates: Array, decay: float, rate: float, momentum: float) -> None:
    """`reference.darknet_update`, in place."""
    _run("darknet_update", values, updates, decay, rate, momentum)


def momentum_update(
    values: Array, gradient: Array, velocity: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """`reference.momentum_update`, in place."""
    _run("momentum_update", values, gradient, velocity, scale, decay, rate, momentum)


def caffe_update(
    values: Array, gradient: Array, history: Array, scale: float, decay: float, rate: float, momentum: float
) -> None:
    """`reference.caffe_update`, in place."""
    _run("caffe_update", values, gradient, history, scale, decay, rate, momentum)


class Together:
    """`darknet_update`, `momentum_update` or `caffe_update` on many parameters, in one go where kernels can.

    rule: "darknet", "momentum" or "caffe". A copy begins anew.
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self._compiled: Any = None

    def __reduce__(self) -> tuple[type[Together], tuple[str]]:
        return Together, (self.rule,)

    def __call__(self, rows: Sequence[tuple[Array, ...]], numbers: Sequence[tuple[float, ...]]) -> None:
        """rows: for each parameter the arrays that the rule's function takes, numbers: the numbers behind them."""
        name = f"{self.rule}_update"
        backend = None if current_precision() == "reference" else _compiled_backend()
        if backend is None or not all(a.dtype == np.float32 and a.size for arrays in rows for a in arrays):
            fits = False
        else:
            fits = all(backend.fits_update(*arrays) for arrays in rows)
        if backend is None or not fits:
            for arrays, own in zip(rows, numbers, strict=True):
                _run(name, *arrays, *own)
            return
        if self._compiled is None:
            self._compiled = backend.Together(self.rule)
        self._compiled(rows, numbers)


def all_finite(x: Array) -> bool:
    """`reference.all_finite`."""
    return bool(_run("all_finite", x))


class AllFinite:
    """`all_finite` of many arrays, in one go where kernels can. A copy begins anew."""

    def __init__(self) -> None:
        self._compiled: Any = None

    def __reduce__(self) -> tuple[type[AllFinite], tuple[()]]:
        return AllFinite, ()

    def __call__(self, arrays: Sequence[Array]) -> bool:
        backend = None if current_precision() == "reference" else _compiled_backend()
        if backend is None or not all(backend.fits_update(a) and a.size for a in arrays):
            return all(map(all_finite, arrays))
        if self._compiled is None:
            self._compiled = backend.AllFinite()
        return bool(self._compiled(arrays))


def compiled(*arrays: Array) -> ModuleType | None:
    """`undertow.kernels.cpu`, for an operation that has kernels of its own there; None where they may not be used."""
    allowed = current_precision() != "reference" and all(a.size and a.dtype == np.float32 for a in arrays)
    return _compiled_backend() if allowed else None


def set_threads(count: int | None) -> None:
    """Let the compiled kernels use this many threads in the whole process; None: all processors.

    The reference kernels take what NumPy's BLAS takes (OPENBLAS_NUM_THREADS and the like).
    """
    if _compiled_backend() is not None:
        importlib.import_module("undertow.kernels.cpu.threads").set_threads(count)


# Where indexes stand among the arguments; and what takes values as they are: it tests or moves them, or works in place.
_INDEXES = {"pool2d_backward": 2, "max_pool2d_gather": 1}
_ANY_TYPE = frozenset(
    {"all_finite", "im2col", "darknet_accumulate", "darknet_update", "momentum_update", "caffe_update"}
)


def _run(name: str, *arguments: Any) -> Any:
    """The kernel of that name, from the backend that fits the arguments."""
    indexes = _INDEXES.get(name)
    if current_precision() != "reference" and _all_float32(arguments, indexes):
        compiled = _compiled_backend()
        if compiled is not None and compiled.supports(name, *arguments):
            compiled.begin()
            return getattr(compiled, name)(*arguments)
    if name not in _ANY_TYPE:
        arguments = as_reals(arguments, () if indexes is None else (indexes,))
    return getattr(reference, name)(*arguments)


def _all_float32(arguments: tuple[Any, ...], indexes: int | None) -> bool:
    """Whether every array among the arguments is float32; indexes: the position of one that holds whole numbers."""
    return all(
        argument.dtype == np.float32
        for i, argument in enumerate(arguments)
        if isinstance(argument, np.ndarray) and i != indexes
    )


@functools.cache
def _compiled_backend() -> ModuleType | None:
    """`undertow.kernels.cpu`, imported at the first call that could use it; None, said once, if it cannot be."""
    try:
        compiled = importlib.import_module("undertow.kernels.cpu")
    except ImportError as error:
        warnings.warn(
            UndertowWarning(
                f"the compiled kernels cannot be loaded ({error}); the slower NumPy ones are used. "
                f"To mend it: pip install numba"
            ),
            stacklevel=2,
        )
        return None
    return compiled if hasattr(compiled, "supports") else None

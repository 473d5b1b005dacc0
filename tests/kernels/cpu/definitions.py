"""Convolution and its gradients by their definition, in float64: what the kernels are compared to."""

from __future__ import annotations

import numpy as np

from undertow.kernels.geometry import ConvGeometry


def _windows(x: np.ndarray, kernel: tuple[int, int], geometry: ConvGeometry) -> np.ndarray:
    """A writable view [N, C, kh, kw, Ho, Wo] of a padded image."""
    (sy, sx), (dy, dx) = geometry.stride, geometry.dilation
    n, c, h, w = x.shape
    kh, kw = kernel
    out_h, out_w = (h - dy * (kh - 1) - 1) // sy + 1, (w - dx * (kw - 1) - 1) // sx + 1
    a, b, d, e = x.strides
    return np.lib.stride_tricks.as_strided(
        x, (n, c, kh, kw, out_h, out_w), (a, b, d * dy, e * dx, d * sy, e * sx), writeable=True
    )


def _padded(x: np.ndarray, geometry: ConvGeometry) -> np.ndarray:
    top, bottom, left, right = geometry.pad
    return np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))


def _groups(total: int, geometry: ConvGeometry) -> list[slice]:
    size = total // geometry.groups
    return [slice(g * size, (g + 1) * size) for g in range(geometry.groups)]


def conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, geometry: ConvGeometry) -> np.ndarray:
    windows = _windows(_padded(x, geometry), w.shape[2:], geometry)
    parts = [
        np.einsum("ncijyx,ocij->noyx", windows[:, ci], w[co].astype(np.float64), optimize=True)
        for ci, co in zip(_groups(x.shape[1], geometry), _groups(w.shape[0], geometry), strict=True)
    ]
    y = np.concatenate(parts, axis=1)
    return y if b is None else y + b.astype(np.float64)[:, None, None]


def conv2d_backward_data(gy: np.ndarray, w: np.ndarray, x_shape: tuple[int, ...], geometry: ConvGeometry) -> np.ndarray:
    gx = _padded(np.zeros(x_shape), geometry)
    for ci, co in zip(_groups(x_shape[1], geometry), _groups(w.shape[0], geometry), strict=True):
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                part = np.einsum("noyx,oc->ncyx", gy[:, co].astype(np.float64), w[co, :, i, j], optimize=True)
                _windows(gx, w.shape[2:], geometry)[:, ci, i, j] += part
    top, _, left, _ = geometry.pad
    return gx[:, :, top : top + x_shape[2], left : left + x_shape[3]]


def conv2d_backward_weights(
    gy: np.ndarray, x: np.ndarray, w_shape: tuple[int, ...], geometry: ConvGeometry
) -> np.ndarray:
    windows = _windows(_padded(x, geometry), w_shape[2:], geometry)
    parts = [
        np.einsum("ncijyx,noyx->ocij", windows[:, ci], gy[:, co].astype(np.float64), optimize=True)
        for ci, co in zip(_groups(x.shape[1], geometry), _groups(w_shape[0], geometry), strict=True)
    ]
    return np.concatenate(parts, axis=0)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square of the difference over that of the expected values."""
    assert actual.shape == expected.shape
    scale = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64))))
    error = float(np.sqrt(np.mean(np.square(actual - expected, dtype=np.float64))))
    return error / scale if scale > 0 else error

"""Random convolution problems over any number of spatial dimensions, small enough for a loop nest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from undertow.kernels.geometry import ConvGeometry, ConvNdGeometry


@dataclass(frozen=True)
class Problem:
    x: np.ndarray
    w: np.ndarray
    b: np.ndarray
    geometry: ConvGeometry | ConvNdGeometry


@st.composite
def convolutions(draw, dims: int = 2, most: int = 7) -> Problem:
    def numbers(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    kernel, stride, dilation = numbers(1, 3), numbers(1, 3), numbers(1, 2)
    pad = tuple(draw(st.integers(0, 2)) for _ in range(2 * dims))
    reach = [
        d * (k - 1) + 1 - pad[2 * i] - pad[2 * i + 1] for i, (d, k) in enumerate(zip(dilation, kernel, strict=True))
    ]
    spatial = tuple(draw(st.integers(max(1, r), max(1, r) + most - 1)) for r in reach)
    groups, per_group, filters = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch = draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = ConvGeometry if dims == 2 else ConvNdGeometry
    return Problem(
        x=rng.standard_normal((batch, groups * per_group, *spatial)),
        w=rng.standard_normal((groups * filters, per_group, *kernel)),
        b=rng.standard_normal(groups * filters),
        geometry=kind(stride, pad, dilation, groups),
    )

"""What this processor offers: its name and the vector width the kernels are generated for."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from undertow.errors import UndertowError

PANEL = 16  # output channels per panel of packed weights, the same on every processor


class Target(NamedTuple):
    """name, features: as LLVM spells them. lanes: floats per vector, 8 or 16."""

    name: str
    features: str
    lanes: int


@cache
def target() -> Target:
    """The processor this process runs on; UNDERTOW_VECTOR=8 or 16 overrides the vector width."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8
    wish = os.environ.get("UNDERTOW_VECTOR")
    if wish:
        if wish not in ("8", "16"):
            raise UndertowError(f"UNDERTOW_VECTOR is {wish!r}", remedy="set it to 8 or 16, or leave it out")
        lanes = int(wish)
    return Target(llvm.get_host_cpu_name(), features.flatten(), lanes)

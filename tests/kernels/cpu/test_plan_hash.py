"""The fingerprint sees every byte."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.kernels.cpu.raw.plan_hash import fingerprint


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 1000, (1 << 18) + 3])
def test_equal_arrays_have_equal_fingerprints_and_edited_ones_others(size: int) -> None:
    array = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    before = fingerprint(array)
    assert fingerprint(array.copy()) == before
    for place in {0, size // 2, size - 1} if size else ():
        edited = array.copy()
        edited[place] = np.nextafter(edited[place], np.float32(9))
        assert fingerprint(edited) != before


def test_swapped_values_are_seen() -> None:
    array = np.arange(64, dtype=np.float32)
    swapped = array.copy()
    swapped[:8], swapped[8:16] = array[8:16], array[:8]
    assert fingerprint(array) != fingerprint(swapped)
    assert fingerprint(np.zeros(8, np.float32)) != fingerprint(np.zeros(16, np.float32))

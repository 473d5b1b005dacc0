"""The kernels at the other vector width, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from undertow.errors import UndertowError
from undertow.kernels.cpu import target

HERE = Path(__file__).parent
KERNELS = ("convolution", "pooling", "batchnorm", "activation", "rows_pool", "sparse")


@pytest.mark.skipif(target.target().lanes == 8, reason="this processor has one vector width only")
def test_all_kernels_with_vectors_of_eight():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "not random"]
        + [str(HERE / f"test_{name}.py") for name in KERNELS],
        env={**os.environ, "UNDERTOW_VECTOR": "8"},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_other_widths_are_refused(monkeypatch):
    monkeypatch.setenv("UNDERTOW_VECTOR", "12")
    with pytest.raises(UndertowError, match="8 or 16"):
        target.target.__wrapped__()

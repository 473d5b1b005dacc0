"""The loader's measurement runs, on a small net."""

from __future__ import annotations

import pytest

import undertow as ut
from benchmarks import loader


def test_rates_of_loader_and_training() -> None:
    try:
        rates = loader.measure("yolov3-tiny", 2, 64, 1, rounds=1)
    finally:
        ut.set_threads(None)
    assert min(rates.loader, rates.training, rates.both) > 0
    assert 0 <= rates.waited <= 1
    assert rates.ratio == pytest.approx(rates.loader / rates.training)
    assert "loader / training" in "\n".join(rates.lines(1))

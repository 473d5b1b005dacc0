"""Batch norm put into the convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.darknet.layers.small import Section, build, conv, net, samples
from undertow.core.modes import precision
from undertow.darknet.dialect import ALEXEYAB, DARKNET_CPU, EXACT, Dialect
from undertow.darknet.fold import fold_batch_norm

SECTIONS: list[Section] = [
    net(),
    conv(4, batch_normalize=1, activation="leaky"),
    conv(4, batch_normalize=1, activation="mish"),
    conv(4, batch_normalize=1, share_index=-1, groups=1),
    ("shortcut", {"from": "-2,-3", "weights_type": "per_channel", "weights_normalization": "relu"}),
    conv(2),
]


@pytest.mark.parametrize("dialect", [EXACT, ALEXEYAB, DARKNET_CPU], ids=lambda dialect: dialect.name)
def test_folding_leaves_the_output(dialect: Dialect) -> None:
    network = build(SECTIONS, dialect)
    images, _ = samples(network)
    before = network.predict(images).copy()
    fold_batch_norm(network)
    np.testing.assert_allclose(network.predict(images), before, rtol=1e-9)
    assert all("scales" not in layer.arrays() for layer in network.layers)


def test_folding_after_planned_passes() -> None:
    network = build(SECTIONS, dtype=np.float32)
    images = samples(network)[0].astype(np.float32)
    with precision("precise"):
        for _ in range(4):
            before = network.predict(images).copy()
        fold_batch_norm(network)
        for _ in range(4):
            np.testing.assert_allclose(network.predict(images), before, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_predicting_warns_of_no_numbers_that_nobody_computes_with() -> None:
    network = build(SECTIONS)
    images, _ = samples(network)
    assert np.isfinite(network.predict(images)).all()

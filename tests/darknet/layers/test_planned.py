"""Training and predicting with plans gives what training and predicting without them gives, for every kind of layer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.darknet.layers.small import Section, conv, net, samples
from tests.darknet.layers.test_heads import detection, detection_truth, instances, region, region_truth
from tests.darknet.layers.test_simple import NETS
from undertow.darknet.dialect import DARKNET_CPU, EXACT, Dialect
from undertow.darknet.files.cfg import make_config
from undertow.darknet.network import Network

ISEG: list[Section] = [net(), conv(5, activation="linear"), ("iseg", {"classes": 2, "ids": 3})]
MASKED: list[Section] = [net(), ("connected", {"output": 3, "activation": "tanh"}), ("cost", {"type": "masked"})]
CASES: dict[str, tuple[list[Section], np.ndarray | None, int]] = {
    **{name: (sections, None, 0) for name, sections in NETS.items()},
    "detection by chance": (detection(random=1), detection_truth(), 64000 - 6),
    "region at the end of its warm-up": (region(softmax=1, rescore=1), region_truth(), 12800 - 6),
    "iseg": (ISEG, instances(), 0),
    "logistic": ([*MASKED[:2], ("logistic", {})], np.eye(3)[[0, 2]], 0),
    "masked cost": (MASKED, np.array([[1, -1234, 0.5], [-1234, 2, 0]]), 0),
}


@pytest.mark.parametrize("dialect", [EXACT, DARKNET_CPU], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("name", CASES)
def test_plans_change_nothing(name: str, dialect: Dialect) -> None:
    sections, given, seen = CASES[name]
    networks = [Network(make_config(sections), dialect, seed=3) for _ in range(2)]
    for network, planned in zip(networks, (True, False), strict=True):
        network.planned, network.keep_deltas, network.seen = planned, False, seen
    for number in range(6):
        images, truth = samples(networks[0], seed=number)
        truth = truth if given is None else given
        costs = [network.train_datum(images.astype(np.float32), truth.astype(np.float32)) for network in networks]
        assert costs[0] == pytest.approx(costs[1], rel=1e-5)
    for one, other in zip(networks[0].layers, networks[1].layers, strict=True):
        for key, array in one.arrays().items():
            scale = np.abs(other.arrays()[key]).max(initial=1e-6)
            assert np.allclose(array, other.arrays()[key], atol=1e-5 * scale), key
    images, _ = samples(networks[0], seed=77)
    found = [network.predict(images.astype(np.float32)) for network in networks]
    assert np.allclose(*found, rtol=1e-4, atol=1e-5)

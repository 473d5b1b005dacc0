"""Cases in which the programs differ in arithmetic: batch norm's epsilons, and a printed loss that is not the loss."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.core import Variable
from undertow.darknet import Network
from undertow.darknet.dialect import DIALECTS, EXACT
from undertow.darknet.files.cfg import make_config


@pytest.mark.parametrize(
    ("dialect", "first", "kept"),
    [("darknet-cpu", -1.069044396, 0.99), ("alexeyab", -1.069043440, 0.9), ("darknet-gpu", -1.069043440, 0.99)],
)
def test_37_epsilon_and_momentum_of_batch_norm(dialect: str, first: float, kept: float) -> None:
    """Mean 3 and variance 3.5 as statistics give the values of the case; in training all divide by N-1: 14/3."""
    config = make_config([("net", {"width": 2, "height": 2, "channels": 1}), ("batchnorm", {})])
    net = Network(config, DIALECTS[dialect], dtype=np.float64)
    x = np.array([1.0, 2, 3, 6]).reshape(1, 1, 2, 2)
    (layer,) = net.layers
    net.forward(x)
    scale = np.sqrt(14 / 3) + 1e-6 if dialect == "darknet-cpu" else np.sqrt(14 / 3 + 1e-5)
    np.testing.assert_allclose(layer.output.ravel(), (x.ravel() - 3) / scale, rtol=1e-9)
    np.testing.assert_allclose(layer.rolling_mean, [3 * (1 - kept)], rtol=1e-6)
    layer.rolling_mean[0], layer.rolling_variance[0] = 3, 3.5
    assert net.predict(x).flat[0] == pytest.approx(first, abs=1e-9)


def test_38_the_printed_loss_of_yolo_is_not_the_one_its_gradient_belongs_to() -> None:
    config = make_config([
        ("net", {"width": 4, "height": 4, "channels": 7, "batch": 1}),
        ("yolo", {"classes": 2, "num": 1, "mask": "0", "anchors": "2,3"}),
    ])  # fmt: skip
    net = Network(config, EXACT, dtype=np.float64)
    x = np.random.default_rng(2).standard_normal((1, 7, 4, 4))
    truth = np.zeros((1, net.truths))
    truth[0, :5] = 0.4, 0.6, 0.5, 0.4, 1

    def both(values: np.ndarray) -> tuple[float, float]:
        net.forward(values, truth)
        assert net.loss is not None
        return float(net.loss.data), net.cost

    given = Variable(x)
    net.forward(given, truth)
    net.backward()
    assert given.grad is not None
    direction = np.random.default_rng(3).standard_normal(x.shape)
    slope = float((given.grad * direction).sum())
    above, below = both(x + 1e-6 * direction), both(x - 1e-6 * direction)
    of_loss, of_printed = ((one - other) / 2e-6 for one, other in zip(above, below, strict=True))
    assert of_loss == pytest.approx(slope, rel=1e-5)
    assert abs(of_printed - slope) > 0.1 * abs(slope)

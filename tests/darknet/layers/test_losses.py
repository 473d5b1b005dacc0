"""Softmax over a class tree and logistic: derivatives in `exact`, masked truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.darknet.layers.small import build, check_network, net, samples
from undertow.darknet.dialect import DARKNET_CPU, DARKNET_GPU
from undertow.errors import FormatError, ShapeError

TREE = "animal -1\nvehicle -1\ncat 0\ndog 0\nbird 0\ncar 1\ntruck 1\n"


@pytest.fixture
def tree(tmp_path: Path) -> str:
    path = tmp_path / "a.tree"
    path.write_text(TREE)
    return str(path)


def connected(output: int) -> tuple[str, dict[str, object]]:
    return "connected", {"output": output, "activation": "linear"}


def hierarchical_truth() -> np.ndarray:
    """A dog, and a vehicle of unknown kind; groups that are not on the way are marked."""
    truth = np.full((2, 7), -1234.0)
    truth[0, :5] = (1, 0, 0, 1, 0)
    truth[1, :2] = (0, 1)
    return truth


def test_gradients_of_a_softmax_over_a_tree(tree: str) -> None:
    network = build([net(), connected(7), ("softmax", {"tree": tree, "temperature": 1.5})])
    images, _ = samples(network)
    check_network(network, images, hierarchical_truth())
    groups = network.layers[1].output
    assert np.allclose(groups[:, :2].sum(1), 1)
    assert np.allclose(groups[:, 2:5].sum(1), 1)
    assert np.allclose(groups[:, 5:].sum(1), 1)


def test_marked_truth_counts_on_the_cpu_only(tree: str) -> None:
    for dialect in (DARKNET_CPU, DARKNET_GPU):
        network = build([net(), connected(7), ("softmax", {"tree": tree})], dialect)
        network.forward(samples(network)[0], hierarchical_truth())
        network.backward()
        layer = network.layers[1]
        marked = hierarchical_truth() == -1234
        expected = hierarchical_truth() - layer.output
        if dialect is DARKNET_GPU:
            expected[marked] = 0
            assert (layer.element_loss[marked] == 0).all()
        assert np.allclose(layer.delta.reshape(2, 7), expected, rtol=1e-12)


def test_gradients_of_logistic() -> None:
    network = build([net(), connected(4), ("logistic", {})])
    images, truth = samples(network)
    check_network(network, images, np.abs(truth))
    output = network.layers[1].output.reshape(2, 4)
    entropy = -(np.abs(truth) * np.log(output) + (1 - np.abs(truth)) * np.log(1 - output))
    network.backward()
    assert network.cost == pytest.approx(entropy.sum(), rel=1e-12)
    assert np.allclose(network.layers[1].element_loss, entropy, rtol=1e-12)
    assert np.allclose(network.layers[1].delta.reshape(2, 4), np.abs(truth) - output, rtol=1e-12)


def test_a_tree_of_another_size_is_told(tree: str) -> None:
    network = build([net(), connected(7), ("softmax", {"tree": tree})])
    with pytest.raises(ShapeError, match=r"7 classes, the layer has 5.*let the layer have 7 classes") as caught:
        build([net(), connected(5), ("softmax", {"tree": tree})])
    assert caught.value.file == network.config.file
    with pytest.raises(FormatError, match="there is no such file"):
        build([net(), connected(5), ("softmax", {"tree": tree + "x"})])


@pytest.mark.parametrize(
    "values",
    [
        {"type": "seg", "noobj": 0.3},
        {"type": "sse", "thresh": 1.0},
        {"type": "L1", "smooth": 0.4},
        {"type": "masked"},
        {"type": "smooth"},
        {"type": "wgan"},
    ],
    ids=str,
)
def test_gradients_of_costs(values: dict[str, object]) -> None:
    network = build([net(), connected(6), ("cost", {"scale": 0.5, **values})])
    images, truth = samples(network)
    truth = truth * 3
    truth[0, :2], truth[1, 3] = 0, -1234 if values["type"] == "masked" else 0
    check_network(network, images, truth)


def test_a_masked_cost_writes_over_its_input_on_the_cpu() -> None:
    sections = [net(), connected(3), ("cost", {"type": "masked"}), ("route", {"layers": "0"})]
    truth = np.array([[1.0, -1234, 2], [-1234, 0.5, 1]])
    for dialect, marked in ((DARKNET_CPU, True), (DARKNET_GPU, False)):
        network = build(sections, dialect)
        network.forward(samples(network)[0], truth)
        network.backward()
        assert np.array_equal(network.layers[0].output.reshape(2, 3) == -1234, (truth == -1234) & marked)
        assert np.array_equal(network.layers[2].output, network.layers[0].output)
        assert (network.layers[1].delta[truth == -1234] == 0).all()
        assert (network.layers[0].delta.reshape(2, 3)[truth == -1234] == 0).all()


def test_small_deltas_are_left_out() -> None:
    network = build([net(), connected(6), ("cost", {"thresh": 3.0})])
    images, truth = samples(network)
    network.forward(images, truth)
    difference = truth - network.layers[0].output.reshape(2, 6)
    small = np.abs(difference) < 0.5
    assert small.any()
    assert not small.all()
    assert np.allclose(network.layers[1].delta, np.where(small, 0, difference), rtol=1e-12)
    assert network.cost == pytest.approx((difference**2).sum(), rel=1e-12)

"""Deconvolutional, local, reorg, normalising layers, dropout, crop: derivatives in `exact`, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.darknet.layers.small import COST, Section, build, check_network, conv, net, samples
from undertow.darknet.dialect import DARKNET_CPU
from undertow.darknet.layers.draws import Draws, uniforms
from undertow.darknet.layers.layers_reorg import Reorg
from undertow.darknet.layers.normal_functions import lrn_window
from undertow.data.crand import GlibcRandom

NETS: dict[str, list[Section]] = {
    "deconvolutional": [
        net(),
        ("deconvolutional", {"filters": 2, "size": 4, "stride": 2, "padding": 1, "activation": "tanh"}),
        ("deconvolutional", {"filters": 2, "size": 3, "pad": 1, "activation": "linear", "batch_normalize": 1}),
        COST,
    ],
    "local": [
        net(),
        ("local", {"filters": 3, "size": 3, "pad": 1, "activation": "tanh"}),
        ("local", {"filters": 2, "size": 2, "stride": 2, "activation": "logistic"}),
        COST,
    ],
    "local with a window of 5": [net(), ("local", {"filters": 2, "size": 5, "pad": 1, "activation": "tanh"}), COST],
    "reorg": [net(width=4, height=6, channels=4), ("reorg", {"stride": 2}), conv(2), COST],
    "reorg reverse": [net(channels=8), ("reorg", {"stride": 2, "reverse": 1}), conv(2), COST],
    "reorg flatten": [net(), ("reorg", {"flatten": 1}), ("reorg", {"flatten": 1, "reverse": 1}), conv(2), COST],
    "reorg extra": [net(), ("reorg", {"extra": 3}), ("connected", {"output": 4, "activation": "tanh"}), COST],
    "batchnorm": [net(), conv(4), ("batchnorm", {}), conv(2), COST],
    "normalization": [net(), conv(6), ("normalization", {"size": 5, "alpha": 0.3, "beta": 0.6}), conv(2), COST],
    "l2norm": [net(), conv(4), ("l2norm", {}), conv(2), COST],
    "dropout": [net(), conv(4), ("dropout", {"probability": 0.3}), ("connected", {"output": 3}), ("dropout", {}), COST],
    "crop": [net(), ("crop", {"crop_width": 4, "crop_height": 3, "flip": 1}), conv(2), COST],
}


@pytest.mark.parametrize("name", NETS)
def test_exact_gradients_are_derivatives_of_the_loss(name: str) -> None:
    network = build(NETS[name])
    check_network(network, *samples(network))


@pytest.mark.parametrize("name", ["batchnorm", "dropout", "crop"])
def test_prediction_does_not_depend_on_the_batch(name: str) -> None:
    network = build(NETS[name])
    images, _ = samples(network)
    both = network.predict(images).copy()
    assert np.allclose(both[:1], network.predict(images[:1]), rtol=1e-12)


def reorg_of_the_original(x: np.ndarray, stride: int, forward: bool) -> np.ndarray:
    """The loops of reorg_cpu over flat arrays."""
    batch, c, h, w = x.shape
    flat, out, out_c = x.ravel(), np.zeros(x.size), c // (stride * stride)
    for b, k, j, i in np.ndindex(batch, c, h, w):
        here = i + w * (j + h * (k + c * b))
        offset = k // out_c
        there = (
            i * stride
            + offset % stride
            + w * stride * (j * stride + offset // stride + h * stride * (k % out_c + out_c * b))
        )
        if forward:
            out[there] = flat[here]
        else:
            out[here] = flat[there]
    return out


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(4, 4, 6), (8, 2, 4), (12, 6, 2)])
def test_reorg_moves_values_as_the_original(shape: tuple[int, int, int], reverse: bool) -> None:
    channels, height, width = shape
    section = ("reorg", {"stride": 2, "reverse": int(reverse)})
    network = build([net(width=width, height=height, channels=channels), section])
    assert isinstance(network.layers[0], Reorg)
    x, _ = samples(network)
    assert np.array_equal(network.predict(x).ravel(), reorg_of_the_original(x, 2, reverse))


def test_the_window_of_normalization_forgets_a_channel() -> None:
    assert lrn_window(7, 5).tolist() == [
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 1, 0, 0],
        [0, 1, 0, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 1, 1],
        [0, 0, -1, 1, 1, 1, 1],
        [0, 0, -1, 0, 1, 1, 1],
    ]


def test_a_batchnorm_layer_learns_in_exact_only(rng: np.random.Generator) -> None:
    for dialect, moved in ((None, True), (DARKNET_CPU, False)):
        network = build(NETS["batchnorm"], *([] if dialect is None else [dialect]))
        layer = network.layers[1]
        scales, biases = layer.scales.copy(), layer.biases.copy()
        network.train_datum(*samples(network))
        first = layer.scale_updates.copy()
        assert np.abs(first).min() > 0
        assert np.array_equal(layer.biases, biases)
        assert np.array_equal(layer.scales, scales) != moved
        network.train_datum(*samples(network))
        if not moved:
            assert np.allclose(layer.scale_updates, 2 * first, rtol=0.2)


def test_dropout_in_place_and_not(rng: np.random.Generator) -> None:
    original, exact = build(NETS["dropout"], DARKNET_CPU), build(NETS["dropout"])
    images, truth = samples(exact)
    for network in (original, exact):
        network.forward(images, truth)
        network.backward()
        dropped = network.layers[1].rand < 0.3
        assert dropped.any()
        assert (network.layers[1].output[dropped] == 0).all()
        assert np.array_equal(network.layers[0].output[dropped] == 0, np.full(dropped.sum(), network is original))
    assert original.layers[1].output is original.layers[0].output
    assert np.array_equal(original.layers[1].delta, original.layers[0].delta)
    # tanh takes its slope from values that were divided by 1 - probability: some other gradient.
    assert not np.allclose(original.layers[0].weight_updates, exact.layers[0].weight_updates, rtol=1e-3)


def test_a_dropout_of_nothing_hides_no_overwriting() -> None:
    """The delta that a 1x1 convolution overwrites is that of the layer before a dropout in place."""
    pointwise = ("convolutional", {"filters": 4, "size": 1, "activation": "linear"})
    plain = [net(), conv(4), pointwise, ("shortcut", {"from": -2, "activation": "linear"}), COST]
    dropped = [net(), conv(4), ("dropout", {"probability": 0}), pointwise, ("shortcut", {"from": 0}), COST]
    updates = []
    for sections in (plain, dropped):
        network = build(sections, DARKNET_CPU)
        for layer in network.layers:
            for name, array in layer.arrays().items():
                array[...] = 0.1 * np.cos(np.arange(array.size)).reshape(array.shape) if name == "weights" else 0.5
        network.forward(*samples(network))
        network.backward()
        updates.append(network.layers[0].weight_updates)
    assert np.abs(updates[0]).max() > 0
    assert np.allclose(*updates, rtol=1e-10)


def test_draws_follow_from_seed_samples_and_layer() -> None:
    seen = [64]
    draws, others = Draws(7, lambda: seen[0]), Draws(8, lambda: seen[0])
    first = uniforms(draws.of(2).start(), (2, 3))
    assert first.dtype == np.float32
    assert np.array_equal(first, uniforms(draws.of(2).start(), (2, 3)))
    assert not np.array_equal(first, uniforms(draws.of(3).start(), (2, 3)))
    assert not np.array_equal(first, uniforms(others.of(2).start(), (2, 3)))
    seen[0] = 128
    assert not np.array_equal(first, uniforms(draws.of(2).start(), (2, 3)))
    assert ((first >= 0) & (first < 1)).all()


def test_draws_of_the_c_library() -> None:
    draws, numbers = Draws(0, lambda: 0), GlibcRandom(1234)
    draws.source = GlibcRandom(1234)
    found = uniforms(draws.of(1).start(), (2, 2))
    assert found.dtype == np.float32
    assert found.ravel().tolist() == [numbers.uniform(0, 1) for _ in range(4)]
    assert draws.of(2).start().index(5) == numbers.rand() % 5


def test_networks_with_one_seed_drop_the_same(rng: np.random.Generator) -> None:
    from undertow.darknet.files.cfg import make_config
    from undertow.darknet.network import Network

    def rand(seed: int, passes: int) -> Any:
        network = Network(make_config(NETS["dropout"]), seed=seed)
        images, truth = samples(network)
        for _ in range(passes):
            network.train_datum(images, truth)
        return network.layers[1].rand

    assert np.array_equal(rand(1, 2), rand(1, 2))
    assert not np.array_equal(rand(1, 1), rand(1, 2))
    assert not np.array_equal(rand(1, 1), rand(2, 1))


@pytest.mark.parametrize("source", ["connected", "upsample"])
def test_shortcut_adds_rows_and_images_of_one_pixel(source: str) -> None:
    """To the original the outputs of a connected layer are channels of one pixel."""
    first = {"connected": ("connected", {"output": 6}), "upsample": ("upsample", {"stride": 2})}[source]
    network = build([
        net(height=6), first, ("connected", {"output": 5}), ("shortcut", {"from": -2, "activation": "linear"}),
    ])  # fmt: skip
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6))
    y = network.predict(x)
    added, before = network.layers[0].output, network.layers[1].output
    expected = before.reshape(2, -1).copy()
    count = min(expected.shape[1], added.shape[1])
    expected[:, :count] += added.reshape(2, added.shape[1], -1)[:, :count, 0]
    np.testing.assert_allclose(y.reshape(2, -1), expected, rtol=1e-12)

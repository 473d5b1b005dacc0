"""Numbers that are not finite and that a ReLU, a pooling or a logistic hides: the first one is found and named."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.darknet.layers.small import Section, build, conv, net, samples
from undertow.core.modes import train_mode
from undertow.darknet.dialect import EXACT
from undertow.darknet.learning.bounds import SAFE, doubtful_layer, largest
from undertow.darknet.network import Network
from undertow.errors import NonFiniteError

FILTERS = {"activation": "relu"}
POOL: Section = ("maxpool", {"size": 2, "stride": 2})
TAIL: list[Section] = [("connected", {"output": 4, "activation": "logistic"}), ("cost", {"type": "sse"})]
PLAIN = [net(width=8, height=8), conv(5, **FILTERS), POOL, conv(6, **FILTERS), conv(4, **FILTERS), *TAIL]
NORMAL = [
    net(width=8, height=8), conv(5, batch_normalize=1, **FILTERS), POOL, conv(6, batch_normalize=1, **FILTERS),
    conv(4, batch_normalize=1, **FILTERS), *TAIL,
]  # fmt: skip


def made(sections: list[Section], planned: bool) -> Network:
    network = build(sections, dtype=np.float32)
    network.keep_deltas, network.planned = False, planned
    return network


def step(network: Network, images: Any = None) -> float:
    given, truth = samples(network)
    chosen = given if images is None else images
    with np.errstate(all="ignore"):
        return network.train_datum(chosen.astype(np.float32), truth.astype(np.float32))


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("passes", [0, 3])
@pytest.mark.parametrize(
    ("sections", "layer", "name", "value", "told"),
    [
        (PLAIN, 0, "weights", -np.inf, "weights"),
        (PLAIN, 0, "weights", np.nan, "weights"),
        (PLAIN, 2, "biases", -np.inf, "biases"),
        (PLAIN, 3, "weights", np.nan, "weights"),
        (PLAIN, 4, "weights", np.inf, "weights"),
        # finite, but what comes of them is not: minus infinity before the ReLU
        (PLAIN, 0, "weights", -3e38, "input of "),
        (PLAIN, 4, "biases", -3e38, None),
        (NORMAL, 0, "weights", -np.inf, "weights"),
        (NORMAL, 2, "weights", np.nan, "weights"),
        (NORMAL, 2, "biases", -np.inf, "biases"),
        (NORMAL, 3, "scales", np.inf, "scales"),
        (NORMAL, 2, "weights", -3e38, "input of "),
        (NORMAL, 2, "rolling_mean", np.inf, "rolling_mean"),
        (NORMAL, 3, "rolling_variance", np.nan, "rolling_variance"),
    ],
)
def test_the_first_ruined_array_is_named(
    sections: list[Section], layer: int, name: str, value: float, told: str | None, passes: int, planned: bool
) -> None:
    network = made(sections, planned)
    for _ in range(passes):
        step(network)
    array = network.layers[layer].arrays()[name]
    if abs(value) == 3e38:
        array[...] = value
    else:
        array.reshape(-1)[-1] = value
    if told is None:  # as large as it is, it overflows nowhere
        assert math.isfinite(step(network))
        return
    before = {index: dict(at.arrays()) for index, at in enumerate(network.layers)}
    kept = {index: {key: np.array(a) for key, a in arrays.items()} for index, arrays in before.items()}
    with pytest.raises(NonFiniteError) as caught:
        step(network)
    assert (caught.value.layer, (caught.value.tensor or "").startswith(told)) == (layer, True), caught.value
    for index, arrays in kept.items():
        for key in ("weights", "biases", "scales"):
            if key in arrays:
                np.testing.assert_array_equal(before[index][key], arrays[key])


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("sections", [PLAIN, NORMAL])
@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
def test_pictures(sections: list[Section], value: float, planned: bool) -> None:
    network = made(sections, planned)
    step(network)
    images = samples(network)[0].astype(np.float32)
    images[1, 2, 3, 3] = value
    with pytest.raises(NonFiniteError, match="the pictures hold 1 of"):
        step(network, images)


def test_a_search_leaves_the_network_as_it_was() -> None:
    """Values too large to be sure of, but finite: the pass is searched, and gives what it gives without."""
    sections = [*NORMAL[:2], conv(4, activation="linear"), ("dropout", {"probability": 0.5}), POOL, *TAIL]
    networks = made(sections, True), made(sections, True)
    for network in networks:
        network.layers[1].weights[...] *= 1e36
        network.layers[4].weights[...] *= 1e-36
    searched, unsearched = networks
    assert searched.hidden.is_doubtful(samples(searched)[0].astype(np.float32))
    unsearched.hidden.is_doubtful = lambda images: False  # type: ignore[method-assign]
    assert step(searched) == step(unsearched)
    for one, other in zip(searched.layers, unsearched.layers, strict=True):
        for name, array in one.arrays().items():
            np.testing.assert_array_equal(array, other.arrays()[name])


SQUARE = {"width": 8, "height": 8}
NETS: dict[str, list[Section]] = {
    "plain": PLAIN,
    "normal": NORMAL,
    "xnor": [net(**SQUARE), conv(6), conv(4, xnor=1), ("cost", {})],
    "groups": [net(**SQUARE), conv(6), conv(4, groups=2, activation="leaky"), ("cost", {})],
    "deconvolutional": [
        net(**SQUARE), ("deconvolutional", {"filters": 4, "size": 3, "stride": 2, "activation": "linear"}), ("cost", {})
    ],
    "local": [net(**SQUARE), ("local", {"filters": 3, "size": 3, "pad": 1, "activation": "leaky"}), ("cost", {})],
    "joined": [
        net(**SQUARE), conv(4, activation="linear"), conv(4, activation="relu"),
        ("shortcut", {"from": -2, "activation": "leaky"}), ("route", {"layers": "-1,-3"}), ("cost", {}),
    ],
    "resampled": [
        net(**SQUARE), conv(4, activation="linear"), ("upsample", {"stride": 2, "scale": 3}),
        ("upsample", {"stride": -4}), ("dropout", {"probability": 0.9}), ("avgpool", {}), ("softmax", {}),
    ],
    "normalizations": [
        net(**SQUARE), conv(8, activation="linear"), ("normalization", {"size": 3}), ("batchnorm", {}), ("l2norm", {}),
        ("cost", {}),
    ],
    "products": [
        net(**SQUARE), conv(4, activation="linear"), ("sam", {"from": -1}), ("avgpool", {}),
        ("scale_channels", {"from": -2}), ("cost", {}),
    ],
    "gru": [net(channels=0, width=0, height=0, inputs=6, time_steps=3), ("gru", {"output": 4}), ("cost", {})],
    "lstm": [
        net(channels=0, width=0, height=0, inputs=6, time_steps=3), ("lstm", {"output": 4, "batch_normalize": 1}),
        ("cost", {}),
    ],
    "rnn": [
        net(channels=0, width=0, height=0, inputs=6, time_steps=3),
        ("rnn", {"output": 4, "activation": "leaky", "shortcut": 1}), ("cost", {}),
    ],
    "crnn": [
        net(**SQUARE, time_steps=3), ("crnn", {"output_filters": 4, "hidden_filters": 3, "activation": "leaky"}),
        ("cost", {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_no_value_is_beyond_its_bound(name: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Bounds of outputs as they are computed, against outputs, for pictures of noise and of large values."""
    from undertow.darknet.learning import bounds

    network = made(NETS[name], False)
    found: list[float] = []
    inner = bounds._bounds

    def keep(*given: Any) -> tuple[float, float]:
        raw, out = inner(*given)
        found.append(out)
        return raw, out

    monkeypatch.setattr(bounds, "_bounds", keep)
    images, truth = (array.astype(np.float32) for array in samples(network))
    for scale in (1, -1 if name == "normalizations" else -1000):
        found.clear()
        given = (images * scale + rng.standard_normal(images.shape)).astype(np.float32)
        assert doubtful_layer(network, lambda given=given: largest(given)) is None  # type: ignore[misc]
        with train_mode():
            network.forward(given, truth)
        for layer, bound in zip(network.layers[:-1], found[:-1], strict=True):  # a cost is looked at itself
            assert largest(layer.output) <= bound * (1 + 1e-5), f"layer {layer.index} [{layer.type}]"


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_each_parameter_that_is_ruined_makes_a_doubt(name: str, value: float) -> None:
    """1e38 for what multiplies; in batch normalisation statistics see what comes of weights."""
    network = made(NETS[name], False)
    for layer in network.layers:
        for key, parameter in layer.parameters.items():
            seen = layer.batch_normalize and key.endswith("weights")
            if seen or (value == 1e38 and key.endswith("biases")):
                continue
            kept = parameter.data.copy()
            parameter.data.reshape(-1)[0] = value
            assert doubtful_layer(network, lambda: 1.0) == layer.index, key
            parameter.data[...] = kept
    assert doubtful_layer(network, lambda: 1.0) is None
    assert doubtful_layer(network, lambda: SAFE) is None or not network.layers[0].batch_normalize


def test_what_is_proven_is_asked_again_after_updates_and_for_larger_pictures() -> None:
    network = made(PLAIN, False)
    images = samples(network)[0].astype(np.float32)
    assert not network.hidden.is_doubtful(images)
    network.layers[0].weights[0] = np.inf
    assert not network.hidden.is_doubtful(images), "nothing says that it changed"
    network.updates_done += 1
    assert network.hidden.is_doubtful(images)
    network.layers[0].weights[0] = 1
    assert not network.hidden.is_doubtful(images)
    assert network.hidden.is_doubtful(images * np.float32(1e33))
    assert network.dialect is EXACT

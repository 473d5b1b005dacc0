"""Networks built from cfgs: Darknet's fields and flow, true derivatives in `exact`, its own in `darknet-cpu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow.core import Variable, check_gradients, no_grad, test_mode
from undertow.darknet.dialect import DARKNET_CPU, DARKNET_GPU, DIALECTS, EXACT, Dialect, dialect_named
from undertow.darknet.files.cfg import make_config, parse_cfg, read_cfg
from undertow.darknet.files.options import SECTIONS
from undertow.darknet.layers.layer import updates_name
from undertow.darknet.layers.sections import LAYERS
from undertow.darknet.network import Network
from undertow.errors import GraphError, ShapeError, UndertowError

GOLDENS = Path(__file__).parent.parent / "goldens" / "darknet"

NET = ("net", {"batch": 2, "width": 8, "height": 8, "channels": 3, "momentum": 0.9, "decay": 0.01})


def conv(filters: int, size: int = 3, **values: Any) -> tuple[str, dict[str, Any]]:
    return "convolutional", {"filters": filters, "size": size, "pad": 1, "activation": "leaky", **values}


DETECTOR = [
    NET,
    conv(4, batch_normalize=1),
    ("maxpool", {"size": 2, "stride": 2}),
    conv(6, batch_normalize=1),
    conv(3, size=1),
    conv(6),
    ("shortcut", {"from": -3, "activation": "linear"}),
    ("upsample", {"stride": 2}),
    ("route", {"layers": "-1,0"}),
    conv(14, size=1, activation="linear"),
    ("yolo", {"anchors": "2,3,5,4", "num": 2, "classes": 2, "ignore_thresh": 0.4}),
]

CLASSIFIER = [
    NET,
    conv(4, stride=2),
    ("avgpool", {}),
    ("connected", {"output": 5, "activation": "tanh", "batch_normalize": 1}),
    ("connected", {"output": 3, "activation": "linear"}),
    ("softmax", {"temperature": 1.5}),
]

REGRESSION = [
    NET,
    conv(2, size=1, activation="loggy"),
    conv(3, activation="elu"),
    ("cost", {"type": "smooth", "scale": 0.5}),
]


def detector_truth() -> np.ndarray:
    truth = np.zeros((2, 450))
    truth[0, :10] = (0.3, 0.4, 0.3, 0.4, 1, 0.7, 0.7, 0.6, 0.5, 0)
    truth[1, :5] = (0.52, 0.1, 0.2, 0.15, 0)
    return truth


def build(sections: list[tuple[str, dict[str, Any]]], dialect: Dialect = EXACT, dtype: Any = np.float64) -> Network:
    network = Network(make_config(sections), dialect, seed=3, dtype=dtype)
    rng = np.random.default_rng(5)
    for layer in network.layers:
        for name, array in layer.arrays().items():
            if name != "weights":
                array[...] = rng.uniform(0.5, 1.5, array.shape)
    return network


def truth_for(network: Network) -> np.ndarray:
    if network.layers[-1].type == "yolo":
        return detector_truth()
    if network.layers[-1].type == "softmax":
        return np.eye(3)[[0, 2]]
    return np.random.default_rng(9).uniform(-3, 3, (2, network.outputs))


@pytest.mark.parametrize("sections", [DETECTOR, CLASSIFIER, REGRESSION], ids=["detector", "classifier", "regression"])
@pytest.mark.parametrize("training", [True, False])
def test_exact_gradients_are_derivatives_of_the_loss(sections: Any, training: bool, rng: np.random.Generator) -> None:
    network = build(sections)
    if not training and network.layers[-1].type == "yolo":
        pytest.skip("yolo has a loss in training only, as in the original")
    places = [(layer, name) for layer in network.layers for name in layer.parameters]
    arrays = [layer.parameters[name].data for layer, name in places]

    def loss(images: Variable, *parameters: Variable) -> Variable:
        for (layer, name), parameter in zip(places, parameters, strict=True):
            layer.parameters[name] = parameter  # type: ignore[assignment]
        network.forward(images, truth_for(network))
        assert network.loss is not None
        return network.loss

    images = rng.uniform(0, 1, (2, 3, 8, 8))
    if training:
        check_gradients(loss, [images, *arrays], rtol=1e-5)
    else:
        with test_mode():
            check_gradients(loss, [images, *arrays], rtol=1e-5)


def test_the_original_loses_residual_gradients() -> None:
    """A 1x1 convolution after the source of a shortcut: the whole derivative in `exact`, a part in `darknet-cpu`."""
    folder = GOLDENS / "conv_1x1_overwrites"
    with np.load(folder / "trace.npz") as trace:
        images, truth = trace["it0/input"], trace["it0/truth"]
    gradients = {}
    for dialect in (EXACT, DARKNET_CPU, DARKNET_GPU):
        network = Network(read_cfg(folder / "net.cfg"), dialect)
        network.load_weights(folder / "init.weights")
        network.forward(images, truth)
        network.backward()
        # The cost is the sum of squares, the deltas are those of half of it.
        gradients[dialect.name] = -2 * network.layers[0].weight_updates.reshape(-1)[16]
    assert gradients["exact"] == pytest.approx(21.19, abs=0.005)
    assert gradients["darknet-gpu"] == pytest.approx(21.19, abs=0.005)
    assert gradients["darknet-cpu"] == pytest.approx(9.53, abs=0.005)


def test_training_flow_of_the_c_program(rng: np.random.Generator) -> None:
    sections = [("net", {**NET[1], "batch": 4, "subdivisions": 2, "learning_rate": 0.1}), *CLASSIFIER[1:]]
    network = build(sections)
    before = network.layers[0].weights.copy()
    assert (network.batch, network.subdivisions, network.n) == (2, 2, 5)
    images, truth = rng.uniform(0, 1, (2, 3, 8, 8)), np.eye(3)[[0, 2]]
    cost = network.train_datum(images, truth)
    assert cost == network.cost > 0
    assert network.seen == 2
    assert np.array_equal(network.layers[0].weights, before)
    first = network.layers[0].weight_updates.copy()
    assert np.abs(first).max() > 0
    network.train_datum(images, truth)
    assert network.seen == 4
    moved = before + 0.1 / 4 * (2 * first - 0.01 * 4 * before)
    assert np.allclose(network.layers[0].weights, moved, rtol=1e-10)
    assert np.allclose(network.layers[0].weight_updates, 0.9 * (2 * first - 0.04 * before), rtol=1e-10)
    assert network.layers[0].weight_updates is network.optimizer.updates["layer00/weights"]


def test_fields_of_layers(rng: np.random.Generator) -> None:
    network = build(DETECTOR)
    network.train_datum(rng.uniform(0, 1, (2, 3, 8, 8)), detector_truth())
    layer = network.layers[0]
    assert (layer.type, layer.w, layer.h, layer.c, layer.n) == ("convolutional", 8, 8, 3, 4)
    assert (layer.out_w, layer.out_h, layer.out_c, layer.inputs, layer.outputs) == (8, 8, 4, 192, 256)
    assert (layer.size, layer.stride, layer.pad, layer.groups, layer.nweights, layer.nbiases) == (3, 1, 1, 1, 108, 4)
    assert layer.activation == "leaky"
    assert layer.batch_normalize
    for name in ("x", "x_norm", "output", "delta"):
        assert getattr(layer, name).shape == (2, 4, 8, 8), name
    for name in ("mean", "variance", "mean_delta", "variance_delta", "rolling_mean", "rolling_variance", "scales"):
        assert getattr(layer, name).shape == (4,), name
    assert layer.weights.shape == layer.weight_updates.shape == (4, 3, 3, 3)
    assert layer.bias_updates.shape == layer.scale_updates.shape == (4,)
    normalized = (layer.x - layer.mean.reshape(1, -1, 1, 1)) / (np.sqrt(layer.variance.reshape(1, -1, 1, 1)) + 1e-6)
    assert np.allclose(layer.x_norm, normalized, rtol=1e-12)
    assert (network.inputs, network.outputs, network.truths) == (192, 14 * 64, 450)
    assert network.workspace.dtype == np.float32
    assert network.delta is None
    with pytest.raises(AttributeError, match="maxpool layer has no 'weights'"):
        _ = network.layers[1].weights


def test_mean_and_variance_deltas_are_gradients(rng: np.random.Generator) -> None:
    """Sums over the channel of what reaches the normalised values, with the original's epsilon."""
    network = build(DETECTOR, DARKNET_CPU)
    network.train_datum(rng.uniform(0, 1, (2, 3, 8, 8)), detector_truth())
    layer = network.layers[2]
    slope = np.where(layer.output > 0, 1, 0.1)
    assert layer.mean_delta.shape == (6,)
    # delta = d/dx through normalisation adds up to zero over a channel: the mean takes its own part back.
    assert np.allclose(layer.delta.sum((0, 2, 3)), 0, atol=1e-9)
    assert slope.shape == layer.delta.shape


def test_updates_names() -> None:
    assert [updates_name(name) for name in ("weights", "biases", "scales")] == [
        "weight_updates",
        "bias_updates",
        "scale_updates",
    ]


def test_deltas_are_kept_only_when_asked_for(rng: np.random.Generator) -> None:
    network = build(DETECTOR)
    network.keep_deltas = False
    network.train_datum(rng.uniform(0, 1, (2, 3, 8, 8)), detector_truth())
    with pytest.raises(GraphError, match="keep_deltas"):
        _ = network.layers[0].delta


def test_adam_is_followed_except_on_the_cpu(rng: np.random.Generator) -> None:
    sections = [("net", {**NET[1], "adam": 1, "learning_rate": 0.01, "decay": 0, "eps": 0}), *CLASSIFIER[1:]]
    images, truth = rng.uniform(0, 1, (2, 3, 8, 8)), np.eye(3)[[0, 2]]
    for dialect in (EXACT, DARKNET_GPU, DARKNET_CPU):
        network = build(sections, dialect)
        before = network.layers[0].weights.copy()
        network.train_datum(images, truth)
        # The first step of Adam is as long as the rate, whatever the gradient.
        steps = np.abs(network.layers[0].weights - before)
        assert np.allclose(steps, 0.01, rtol=1e-6) == (dialect is not DARKNET_CPU)


def test_input_gradient_when_asked_for(rng: np.random.Generator) -> None:
    network = build(CLASSIFIER)
    images = Variable(rng.uniform(0, 1, (2, 3, 8, 8)))
    network.forward(images, np.eye(3)[[0, 2]])
    network.backward()
    assert images.grad is not None
    assert np.array_equal(network.delta, -images.grad)  # type: ignore[arg-type]


def test_edited_weights_take_effect(rng: np.random.Generator) -> None:
    network = build(CLASSIFIER)
    images = rng.uniform(0, 1, (2, 3, 8, 8))
    before = network.predict(images).copy()
    network.layers[0].weights.reshape(-1)[3] += 1
    assert not np.allclose(network.predict(images), before)


def test_assigned_weights_take_effect(rng: np.random.Generator) -> None:
    network = build(CLASSIFIER)
    layer = network.layers[0]
    behind = layer.parameter("weights").data
    layer.weights = rng.standard_normal(layer.weights.shape)
    layer.biases = [1.5] * layer.nbiases
    assert layer.weights is behind
    np.testing.assert_array_equal(layer.parameter("biases").data, 1.5)
    layer.weights = np.arange(float(layer.nweights))  # flat, as Darknet keeps them
    np.testing.assert_array_equal(behind.ravel(), np.arange(layer.nweights))
    with pytest.raises(ShapeError, match="layer 0: 'weights' has shape"):
        layer.weights = np.zeros(3)


def test_a_refused_pass_is_not_counted(rng: np.random.Generator) -> None:
    network = build(CLASSIFIER)
    with pytest.raises(ShapeError):
        network.train_datum(rng.uniform(0, 1, (2, 3, 4, 4)), np.eye(3)[[0, 2]])
    assert network.seen == 0


def test_prediction_uses_rolling_statistics(rng: np.random.Generator) -> None:
    network = build(DETECTOR)
    images = rng.uniform(0, 1, (2, 3, 8, 8))
    both, one = network.predict(images).copy(), network.predict(images[:1])
    assert np.allclose(both[:1], one, rtol=1e-12)
    assert network.layers[-1].cost == 0


def test_rolling_statistics_move_by_a_hundredth(rng: np.random.Generator) -> None:
    network = build(DETECTOR)
    layer = network.layers[0]
    before = layer.rolling_mean.copy()
    network.forward(rng.uniform(0, 1, (2, 3, 8, 8)), detector_truth())
    assert np.allclose(layer.rolling_mean, 0.99 * before + 0.01 * layer.mean, rtol=1e-12)


def test_resize_keeps_what_was_learned(rng: np.random.Generator) -> None:
    network = build(DETECTOR)
    weights = network.layers[0].weights
    network.resize(16, 24)
    assert network.layers[0].weights is weights
    assert network.layers[0].weight_updates is network.optimizer.updates["layer00/weights"]
    assert network.predict(rng.uniform(0, 1, (1, 3, 24, 16))).shape == (1, 14, 24, 16)
    classifier = build([NET, conv(4), ("connected", {"output": 3}), ("softmax", {})])
    with pytest.raises(ShapeError, match="depend on the size"):
        classifier.resize(16, 16)


def test_weights_files_round_trip(tmp_path: Path) -> None:
    network = build(DETECTOR, dtype=np.float32)
    network.seen = 6400
    network.save_weights(tmp_path / "a.weights")
    other = Network(network.config, seed=99)
    found = other.load_weights(tmp_path / "a.weights")
    assert other.seen == 6400
    assert not found.is_partial
    other.save_weights(tmp_path / "b.weights")
    assert (tmp_path / "a.weights").read_bytes() == (tmp_path / "b.weights").read_bytes()


def test_wrong_input_is_told() -> None:
    network = build(CLASSIFIER)
    with pytest.raises(ShapeError, match=r"samples of 3 x 8 x 8 = 192 values, got an array \(2, 3, 4, 4\)"):
        network.predict(np.zeros((2, 3, 4, 4)))
    with pytest.raises(ShapeError, match="takes 2 samples"):
        network.train_datum(np.zeros((3, 3, 8, 8)), np.zeros((3, 3)))
    with pytest.raises(ShapeError, match="truth has 7 values per sample, layer 4"):
        network.train_datum(np.zeros((2, 3, 8, 8)), np.zeros((2, 7)))
    with pytest.raises(GraphError, match="no loss"):
        build(CLASSIFIER[:-1]).backward()
    with no_grad(), pytest.raises(GraphError, match="nothing went through"):
        _ = build(CLASSIFIER).output


def test_truth_of_an_unknown_class_is_told(rng: np.random.Generator) -> None:
    truth = detector_truth()
    truth[0, 4] = 2
    with pytest.raises(UndertowError, match="class 2, the yolo layer knows 2"):
        build(DETECTOR).train_datum(rng.uniform(0, 1, (2, 3, 8, 8)), truth)


def test_every_section_type_of_2018_is_built() -> None:
    names = (
        "convolutional deconvolutional connected local maxpool avgpool shortcut route upsample reorg activation "
        "batchnorm normalization l2norm dropout crop softmax logistic cost detection region yolo iseg rnn gru lstm crnn"
    )
    assert set(names.split()) <= set(LAYERS) <= {kind.name for kind in SECTIONS.values()} - {"net"}


def test_dialects_by_name() -> None:
    assert dialect_named("exact") is EXACT
    assert set(DIALECTS) == {"exact", "darknet-cpu", "darknet-gpu", "alexeyab"}
    with pytest.raises(ValueError, match="there are exact, darknet-cpu"):
        dialect_named("cudnn")


def test_a_stop_leaves_earlier_layers_alone(rng: np.random.Generator) -> None:
    sections = [NET, conv(3), conv(3, stopbackward=1), *CLASSIFIER[1:]]
    network = build(sections)
    network.train_datum(rng.uniform(0, 1, (2, 3, 8, 8)), np.eye(3)[[0, 2]])
    assert network.layers[1].parameters["weights"].grad is None
    assert np.abs(network.layers[1].delta).max() > 0
    assert np.abs(network.layers[2].weight_updates).max() > 0


def _rates(original: bool = False, dialect: str = "exact", **values: Any) -> list[float]:
    """The rates of the first updates of a network with these options."""
    net = {"width": 2, "height": 2, "channels": 1, "learning_rate": 1.0, **values}
    text = "\n".join(["[net]", *(f"{key}={value}" for key, value in net.items()), "[softmax]"])
    policy = Network(parse_cfg(text, original=original), dialect_named(dialect)).policy
    return [policy(iteration) for iteration in range(5)]


def test_the_original_reads_no_more_scales_than_steps() -> None:
    rates = _rates(original=True, policy="steps", steps="1,3", scales="0.5,0.5,9")
    assert rates == [1, 0.5, 0.5, 0.25, 0.25]


def test_the_fork_counts_to_the_step_of_a_sigmoid_in_signed_numbers() -> None:
    rising = [1 / (1 + np.exp(-2.0 * (i - 2))) for i in range(5)]
    np.testing.assert_allclose(_rates(dialect="alexeyab", policy="sigmoid", gamma=-2, step=2), rising)
    np.testing.assert_allclose(_rates(policy="sigmoid", gamma=-2, step=2), [1, 1, *rising[2:]])

"""rnn, gru, lstm, crnn: derivatives in `exact`, the C program's way back in `darknet-cpu`, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.darknet.layers.small import COST, Section, build, check_network, net, samples
from undertow.core import Variable, check_gradients
from undertow.darknet.dialect import DARKNET_CPU, DARKNET_GPU, EXACT
from undertow.darknet.layers.recurrent_original import InnerStep, MatrixProduct
from undertow.errors import ShapeError
from undertow.functions import darknet_activation, linear
from undertow.functions.norm_batch import RunningStatistics, batch_norm

SEQUENCE: Section = ("net", {"batch": 3, "time_steps": 3, "inputs": 4, "momentum": 0.9, "decay": 0.1})
OUT: Section = ("connected", {"output": 2, "activation": "tanh"})


def recurrent(kind: str, **values: Any) -> list[Section]:
    if kind == "crnn":
        first = net(batch=3, time_steps=2, width=3, height=4, channels=2)
        return [first, (kind, {"hidden_filters": 2, "output_filters": 3, "activation": "tanh", **values}), COST]
    return [SEQUENCE, (kind, {"output": 3, **values}), OUT, COST]


KINDS = ["rnn", "gru", "lstm", "crnn"]


@pytest.mark.parametrize("normalized", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_exact_gradients_are_derivatives_of_the_loss(kind: str, normalized: int) -> None:
    network = build(recurrent(kind, batch_normalize=normalized))
    check_network(network, *samples(network), rtol=1e-4 if normalized else 1e-5)


@pytest.mark.parametrize("sections", [recurrent("rnn", shortcut=1), recurrent("crnn", shortcut=1)])
def test_exact_gradients_with_shortcut(sections: list[Section]) -> None:
    network = build(sections)
    check_network(network, *samples(network))


def test_exact_gradients_of_gru_with_tanh_and_of_a_stack() -> None:
    network = build([SEQUENCE, ("gru", {"output": 3, "tanh": 1}), ("lstm", {"output": 2}), OUT, COST])
    check_network(network, *samples(network))


@pytest.mark.parametrize("kind", KINDS)
def test_updates_deltas_and_names(kind: str) -> None:
    network = build(recurrent(kind))
    images, truth = samples(network)
    network.forward(images, truth)
    network.backward()
    layer = network.layers[0]
    specs = {spec.name for spec in network.shapes[0].parameters}
    assert specs == set(layer.arrays())
    for name in layer.inner:
        part = getattr(layer, name)
        assert part.output.shape[0] == part.delta.shape[0] == network.batch
        # The bias receives the delta as it is.
        axes = (0, *range(2, part.delta.ndim))
        assert np.allclose(part.delta.sum(axes), part.bias_updates, rtol=1e-10)
        assert part.bias_updates is network.optimizer.updates[f"layer00/{name}/biases"]
    assert layer.delta.size == layer.output.size
    assert np.abs(layer.delta).max() > 0


def test_the_input_layer_of_rnn_gets_another_delta_on_the_cpu() -> None:
    """Everything but the input layer has the true gradient in the original."""
    found = {}
    for dialect in (EXACT, DARKNET_CPU):
        network = build(recurrent("rnn"), dialect)
        images, truth = samples(network)
        network.forward(images, truth)
        network.backward()
        found[dialect.name] = {name: array.copy() for name, array in network.layers[0].updates.items()}
    exact, original = found["exact"], found["darknet-cpu"]
    for name in exact:
        same = np.allclose(exact[name], original[name], rtol=1e-8)
        assert same == (not name.startswith("input_layer/")), name
    # The slope of the logistic comes in twice: at most a quarter is left.
    assert np.abs(original["input_layer/bias_updates"]).max() < np.abs(exact["input_layer/bias_updates"]).max() / 3


def test_only_decay_moves_a_gru_on_the_cpu() -> None:
    network = build(recurrent("gru"), DARKNET_CPU)
    before = {name: array.copy() for name, array in network.layers[0].arrays().items()}
    network.train_datum(*samples(network))
    rate = network.learning_rate
    for name, array in network.layers[0].arrays().items():
        factor = 1 - rate * 0.1 if name.endswith("weights") else 1
        assert np.allclose(array, before[name] * factor, rtol=1e-12), name
    assert np.abs(network.layers[0].delta).max() > 0


def test_crnn_learns_in_exact_only() -> None:
    for dialect in (EXACT, DARKNET_CPU):
        network = build(recurrent("crnn"), dialect)
        before = network.layers[0].input_layer.weights.copy()
        network.train_datum(*samples(network))
        assert np.abs(network.layers[0].input_layer.weight_updates).max() > 0
        assert np.array_equal(network.layers[0].input_layer.weights, before) == (dialect is DARKNET_CPU)


def test_learning_rates_reach_inner_layers_in_exact_only() -> None:
    sections = recurrent("lstm", learning_rate=0.5)
    assert build(sections).optimizer.entries["layer00/wi/weights"].rate == 0.5
    assert build(sections, DARKNET_CPU).optimizer.entries["layer00/wi/weights"].rate == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_in_two_parts_at_inference(kind: str) -> None:
    """The state goes on from one prediction to the next: how text is generated letter by letter."""
    whole = build(recurrent(kind))
    images, _ = samples(whole)
    steps = whole.layers[0].steps
    together = whole.predict(images).copy()
    sections = recurrent(kind)
    sections[0] = (sections[0][0], {**sections[0][1], "time_steps": 1})
    single = build(sections)
    parts = [single.predict(part).copy() for part in images.reshape(steps, 3, *images.shape[1:])]
    assert np.allclose(np.concatenate(parts), together, rtol=1e-12)
    assert not np.allclose(whole.predict(images), together)
    whole.reset_state()
    assert np.array_equal(whole.predict(images), together)


def test_which_states_go_on_in_training() -> None:
    for dialect, carried in ((EXACT, ""), (DARKNET_CPU, "gru lstm"), (DARKNET_GPU, "rnn gru lstm")):
        for kind in KINDS:
            network = build(recurrent(kind), dialect)
            images, truth = samples(network)
            outputs = []
            for _ in range(2):
                network.forward(images, truth)
                outputs.append(network.layers[0].output.copy())
            assert np.array_equal(*outputs) == (kind not in carried.split()), (dialect.name, kind)


def test_rows_that_are_no_sequences() -> None:
    network = build(recurrent("rnn"))
    with pytest.raises(ShapeError, match="time_steps=3 times a number of sequences, got 4 rows"):
        network.predict(np.zeros((4, 4)))


def test_one_normalised_step_goes_back_as_darknets_batch_norm(rng: np.random.Generator) -> None:
    rule = DARKNET_CPU.batch_norm
    arrays = [rng.standard_normal((5, 3)), rng.standard_normal((2, 3)), np.zeros(2), rng.uniform(0.5, 2, 2)]
    gy = rng.standard_normal((5, 2))
    running = RunningStatistics(np.zeros(2), np.zeros(2), 0.01)
    step = InnerStep(MatrixProduct(), "tanh", rule, running)
    step.begin(arrays[1:])
    y = step.forward(arrays[0])
    step.gradients[0] = gy
    gx = step.backward(0, arrays[0])
    x, w, b, scales = (Variable(array) for array in arrays)
    expected = darknet_activation(batch_norm(linear(x, w), scales, b, rule), "tanh", "darknet")
    expected.grad = gy
    expected.backward()
    assert np.allclose(y, expected.data, rtol=1e-12)
    for ours, other in zip((gx, *step.found), (x, w, b, scales), strict=True):
        assert other.grad is not None
        assert np.allclose(ours, other.grad, rtol=1e-9, atol=1e-12)
    assert np.allclose(running.mean, 0.01 * (arrays[0] @ arrays[1].T).mean(0), rtol=1e-12)


def test_an_input_layer_alone_is_differentiated_rightly(rng: np.random.Generator) -> None:
    """The original's step without the recurrence is the derivative."""
    arrays = rng.standard_normal((5, 3)), rng.standard_normal((2, 3)), rng.standard_normal(2)
    step = InnerStep(MatrixProduct(), "logistic")
    step.begin(arrays[1:])
    step.forward(arrays[0])
    step.gradients[0] = np.ones((5, 2))
    gx = step.backward(0, arrays[0])
    check_gradients(lambda *args: darknet_activation(linear(*args), "logistic").sum(), list(arrays))
    x, w, b = (Variable(array) for array in arrays)
    darknet_activation(linear(x, w, b), "logistic").sum().backward()
    assert x.grad is not None
    assert np.allclose(gx, x.grad, rtol=1e-12)

"""Planned training and prediction of Darknet networks against the unplanned way."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys

import numpy as np
import pytest

import undertow as ut
from undertow.darknet import planning
from undertow.darknet.files.cfg import parse_cfg
from undertow.darknet.learning import nonfinite
from undertow.darknet.network import Network
from undertow.errors import NonFiniteError
from undertow.plans.unit_conv import ConvUnit

CFG = """
[net]
batch=2
subdivisions={subdivisions}
width={size}
height={size}
channels=3
momentum=0.9
decay=0.0005
learning_rate=0.001
policy=constant

[convolutional]
batch_normalize=1
filters=16
size=3
stride=1
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
batch_normalize=1
filters=16
size=1
stride=1
pad=1
activation=leaky

[convolutional]
batch_normalize=1
filters=16
size=3
stride=1
pad=1
activation=leaky

[shortcut]
from=-3
activation=linear

[convolutional]
size=1
stride=1
pad=1
filters=14
activation=linear

[yolo]
mask=0,1
anchors=4,5, 12,10
classes=2
num=2
ignore_thresh=.5
truth_thresh=1

[route]
layers=-3

[upsample]
stride=2

[route]
layers=-1, 0

[convolutional]
size=1
stride=1
pad=1
filters=14
activation={last}

[yolo]
mask=0,1
anchors=4,5, 12,10
classes=2
num=2
ignore_thresh=.5
truth_thresh=1
"""


def network(planned: bool, size: int = 32, subdivisions: int = 1, last: str = "linear") -> Network:
    net = Network(parse_cfg(CFG.format(size=size, subdivisions=subdivisions, last=last)), seed=4)
    net.planned, net.keep_deltas = planned, False
    return net


def settled() -> Network:
    """A planned network with statistics as after some training."""
    net = network(True)
    rng = np.random.default_rng(6)
    for layer in net.layers:
        if layer.batch_normalize:
            layer.rolling_mean[...] = rng.normal(0, 0.1, layer.n)
            layer.rolling_variance[...] = rng.uniform(0.5, 1.5, layer.n)
    return net


def batch(net: Network, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.zeros((net.batch, net.truths), np.float32)
    for row in truth:
        for k in range(3):
            row[5 * k : 5 * k + 5] = (*rng.uniform(0.2, 0.8, 2), *rng.uniform(0.1, 0.4, 2), rng.integers(2))
    return rng.random((net.batch, 3, net.h, net.w), dtype=np.float32), truth


def same_state(a: Network, b: Network, tolerance: float = 1e-4) -> None:
    for one, other in zip(a.layers, b.layers, strict=True):
        for name, array in one.arrays().items():
            np.testing.assert_allclose(array, other.arrays()[name], rtol=tolerance, atol=tolerance, err_msg=name)
        for name, array in one.updates.items():
            distance = np.linalg.norm(array - other.updates[name])
            assert distance <= tolerance * np.linalg.norm(array) + 1e-5, (one.index, name)


def units(net: Network) -> list[ConvUnit]:
    program = net._plans._train.last
    assert program is not None, net._plans._train.reason()
    return [unit for unit in program.units if isinstance(unit, ConvUnit)]


@pytest.mark.parametrize("subdivisions", [1, 2])
def test_training_with_plans_goes_as_without(subdivisions: int) -> None:
    planned, plain = network(True, subdivisions=subdivisions), network(False, subdivisions=subdivisions)
    for k in range(4):
        costs = planned.train_datum(*batch(planned, k)), plain.train_datum(*batch(plain, k))
        assert costs[0] == pytest.approx(costs[1], rel=1e-4)
        same_state(planned, plain)
    assert [len(unit.calls) for unit in units(planned)].count(4) == 1
    assert planned.loss is not None


def test_the_first_pass_is_a_replay_already() -> None:
    net = network(True)
    net.train_datum(*batch(net, 0))
    assert net._plans._train.is_replaying
    assert all(layer._function is not None for layer in net.layers if layer.type == "yolo")
    statistics = [layer.statistics for layer in net.layers if layer.type == "yolo"]
    plain = network(False)
    plain.forward(*batch(plain, 0))
    for found, layer in zip(statistics, [layer for layer in plain.layers if layer.type == "yolo"], strict=True):
        assert found.count == layer.statistics.count


def test_a_deep_copy_trains_by_itself() -> None:
    net = network(planned=True)
    for seed in range(2):
        net.train_datum(*batch(net, seed))
    twin = copy.deepcopy(net)
    for seed in range(2, 4):
        net.train_datum(*batch(net, seed))
    for seed in range(2, 4):
        twin.train_datum(*batch(twin, seed))
    same_state(net, twin)


def test_sizes_come_and_go() -> None:
    planned, plain = network(True), network(False)
    for k, size in enumerate((32, 48, 32, 48)):
        for net in (planned, plain):
            net.resize(size, size)
        costs = planned.train_datum(*batch(planned, k)), plain.train_datum(*batch(plain, k))
        assert costs[0] == pytest.approx(costs[1], rel=1e-4)
        assert planned._plans._train.is_replaying
    same_state(planned, plain)


def test_prediction_with_plans_gives_the_same_and_shows_all_layers() -> None:
    net = settled()
    for k in range(3):
        images, _ = batch(net, k)
        found = net.predict(images).copy()
        assert net._plans._predict.is_replaying
        heads = [layer.output.copy() for layer in net.layers if layer.type == "yolo"]
        hidden = net.layers[2].output.copy()
        net.planned = False
        np.testing.assert_allclose(found, net.predict(images), rtol=1e-4, atol=1e-5)
        for head, layer in zip(heads, [layer for layer in net.layers if layer.type == "yolo"], strict=True):
            np.testing.assert_allclose(head, layer.output, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(hidden, net.layers[2].output)
        net.planned = True


def test_weights_loaded_between_predictions_take_effect() -> None:
    net = settled()
    images, _ = batch(net, 0)
    net.predict(images)
    for layer in net.layers:
        for array in layer.arrays().values():
            array *= np.float32(1.25)
    found = net.predict(images).copy()
    net.planned = False
    np.testing.assert_allclose(found, net.predict(images), rtol=1e-4, atol=1e-5)


def test_pictures_of_another_type_are_converted_each_time() -> None:
    net = settled()
    for k in range(3):
        images = batch(net, k)[0].astype(np.float64)
        found = net.predict(images).copy()
        net.planned = False
        np.testing.assert_allclose(found, net.predict(images), rtol=1e-4, atol=1e-5)
        net.planned = True


def test_a_ruined_pass_names_the_array_and_leaves_the_updates() -> None:
    net = network(True)
    net.train_datum(*batch(net, 0))
    before = {layer.index: {n: a.copy() for n, a in layer.updates.items()} for layer in net.layers}
    net.layers[5].weights[3] = np.nan
    with pytest.raises(NonFiniteError, match="layer 5"):
        net.train_datum(*batch(net, 1))
    for layer in net.layers:
        for name, array in layer.updates.items():
            np.testing.assert_array_equal(array, before[layer.index][name])


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("passes", [0, 1, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_ruined_pictures_leave_the_network_as_it_was(planned: bool, passes: int, value: float) -> None:
    net = network(planned)
    net.keep_deltas = False
    for k in range(passes):
        net.train_datum(*batch(net, k))

    def state() -> dict[tuple[int, str], np.ndarray]:
        places = [(layer, {**layer.arrays(), **layer.updates}) for layer in net.layers]
        return {(layer.index, name): a.copy() for layer, found in places for name, a in found.items()}

    before, seen = state(), net.seen
    images, truth = batch(net, passes)
    images[0, 0, 3, 3] = value
    for _ in range(2):
        with np.errstate(all="ignore"), pytest.raises(NonFiniteError, match="pictures"):
            net.train_datum(images, truth)
        assert net.seen == seen
        for key, values in state().items():
            np.testing.assert_array_equal(values, before[key], err_msg=str(key))
    net.train_datum(*batch(net, passes + 1))


def test_accumulators_are_searched_within_the_replay() -> None:
    """What a replay has found finite is not read again before the update; all the rest is."""
    net = network(True)
    net.train_datum(*batch(net, 0))
    weights = [net.optimizer.updates[n] for n, e in net.optimizer.entries.items() if e.parameter.data.ndim == 4]
    assert net._plans.finite == {id(array) for array in weights}
    for ruined in (weights[0], weights[-1], net.layers[0].scale_updates):
        before, kept = [p.data.copy() for p in net.parameters()], ruined.flat[-1]
        ruined.flat[-1] = np.nan
        with pytest.raises(NonFiniteError, match="_updates"):
            net.train_datum(*batch(net, 1))
        for parameter, values in zip(net.parameters(), before, strict=True):
            assert np.array_equal(parameter.data, values)
        ruined.flat[-1] = kept
        net.train_datum(*batch(net, 2))
    net.planned = False
    net.train_datum(*batch(net, 3))
    assert not net._plans.finite


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_an_infinite_output_is_noticed_although_the_cost_is_finite(planned: bool, first: bool) -> None:
    """A class of a yolo layer: its logistic is one, which is a finite error where the class is asked for."""
    net = network(planned)
    if not first:
        net.train_datum(*batch(net, 0))
    before = {layer.index: {n: a.copy() for n, a in layer.updates.items()} for layer in net.layers}
    net.layers[5].biases[5] = net.layers[5].weights[5] = 3.4e38
    expected = pytest.raises(NonFiniteError, match=r"layer 5: output \(convolutional\) holds")
    with np.errstate(invalid="ignore"), expected as caught:
        net.train_datum(*batch(net, 1))
    assert np.isfinite(net.cost)
    assert (caught.value.layer, caught.value.tensor) == (5, "output")
    for layer in net.layers:
        for name, array in layer.updates.items():
            np.testing.assert_array_equal(array, before[layer.index][name])


LOSSES = {
    "softmax": (4, "[avgpool]\n[softmax]"),
    "logistic": (4, "[avgpool]\n[logistic]"),
    "cost": (4, "[avgpool]\n[cost]\ntype=sse"),
    "region": (14, "[region]\nanchors=1,1,2,2\nclasses=2\nnum=2\nsoftmax=1"),
    "iseg": (5, "[iseg]\nclasses=2\nids=3"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_a_loss_is_given_is_at_hand_before_the_way_back(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In replays too: it is what shows that numbers are not finite."""
    filters, text = LOSSES[loss]
    head = CFG.format(size=16, subdivisions=1, last="linear")
    head = head[: head.index("[convolutional]\nsize=1\nstride=1\npad=1\nfilters=14")]
    cfg = f"{head}[convolutional]\nsize=1\nfilters={filters}\nactivation=linear\n{text}\n"
    seen: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for planned in (True, False):
        net = Network(parse_cfg(cfg), seed=4)
        net.planned, net.keep_deltas = planned, False
        module = planning if planned else nonfinite

        def look(net: Network, planned: bool = planned) -> None:
            given = net.layers[-1].loss_input
            assert given is not None
            seen[planned].append(given.reshape(-1).copy())

        monkeypatch.setattr(module, "check_losses", look)
        truth = np.zeros((net.batch, net.truths), np.float32)
        truth[:, 0] = -1 if loss == "iseg" else 0
        for k in range(3):
            images = np.random.default_rng(k).random((net.batch, 3, 16, 16), np.float32)
            net.train_datum(images, truth)
    assert len(seen[False]) == 3
    for planned_one, plain in zip(seen[True], seen[False], strict=True):
        np.testing.assert_allclose(planned_one, plain, rtol=1e-3, atol=1e-4)


def test_reference_precision_gives_the_bits_of_the_unplanned_way() -> None:
    planned, plain = network(True), network(False)
    with ut.precision("reference"):
        for k in range(3):
            assert planned.train_datum(*batch(planned, k)) == plain.train_datum(*batch(plain, k))
        same_state(planned, plain, tolerance=0)


def test_layers_with_a_state_are_never_planned() -> None:
    text = "[net]\nbatch=2\ninputs=4\n[rnn]\noutput=3\nhidden=3\nactivation=tanh\n[softmax]\n[cost]\n"
    net = Network(parse_cfg(text))
    first = net.predict(np.ones((2, 4), np.float32)).copy()
    assert not np.array_equal(first, net.predict(np.ones((2, 4), np.float32)))
    assert not net._plans.possible


def test_hooks_see_every_operation(caplog: pytest.LogCaptureFixture) -> None:
    net = network(True)
    net.train_datum(*batch(net, 0))
    with caplog.at_level(logging.WARNING, "undertow.plan"), ut.TimerHook() as timer:
        net.train_datum(*batch(net, 1))
    assert timer.calls["Conv"] == 5
    assert len(caplog.records) == 1


def test_checked_plans_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_CHECK_PLAN", "2")
    net, plain = network(True), network(False)
    for k in range(5):
        assert net.train_datum(*batch(net, k)) == pytest.approx(plain.train_datum(*batch(plain, k)), rel=1e-4)
    same_state(net, plain)


def test_without_the_compiled_kernels_networks_run_unplanned() -> None:
    script = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "llvmlite"):
            raise ImportError(name)
sys.meta_path.insert(0, Hidden())
import warnings
warnings.simplefilter("ignore")
import numpy as np
from undertow.darknet.files.cfg import parse_cfg
from undertow.darknet.network import Network
lines = ["[net]", "batch=1", "width=8", "height=8", "channels=3"]
lines += ["[convolutional]", "filters=2", "size=3", "pad=1", "activation=leaky"]
cfg = chr(10).join(lines)
net = Network(parse_cfg(cfg))
print(net.predict(np.ones((1, 3, 8, 8), np.float32)).shape, net._plans.possible)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 2, 8, 8) False"

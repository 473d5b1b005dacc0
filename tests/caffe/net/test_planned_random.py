"""Random nets, planned against layer by layer: every blob, every gradient, the loss, over several iterations.

Both are compared with a net of float64 numbers: the plan may be a few times as far from it as the layers are.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.caffe.net.random_nets import RandomNet, random_net
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text, upgrade_net
from undertow.errors import UndertowError

ITERATIONS = 3
FACTOR, FLOOR = 20.0, 1e-4


def build(random: RandomNet, phase: str, dialect: str, dtype: type) -> Net:
    message = parse_text("\n".join(random.lines), "NetParameter")
    upgrade_net(message)
    net = Net(message, phase, dialect=dialect, dtype=dtype, seed=3)
    rng = np.random.default_rng(4)
    for layer in net.layers:
        if layer.type == "BatchNorm":
            for blob, value in zip(layer.blobs, (0.1, 1.5, 1), strict=True):
                blob.data[...] = value + 0.2 * rng.random(blob.shape)
    for name, values in random.values.items():
        if name in net.blobs:
            net.blobs[name].data[...] = values
    return net


def one_by_one(net: Net) -> float:
    loss = net.forward_from_to(0, len(net.layers) - 1)
    net.backward()
    return loss


def numbers(net: Net, loss: float) -> dict[str, np.ndarray]:
    found = {"the loss": np.asarray(loss)}
    for name, blob in net.blobs.items():
        found[f"data of {name}"], found[f"diff of {name}"] = blob.data.copy(), blob.diff.copy()
    for index, blob in enumerate(net.param_blobs):
        found[f"data of parameter {index}"], found[f"diff of parameter {index}"] = blob.data.copy(), blob.diff.copy()
    return found


def distance(a: np.ndarray, b: np.ndarray, size: float) -> float:
    """As a share of the norm; what is hundreds of times smaller than `size` has cancelled and is mostly rounding."""
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    valid = np.isfinite(b)
    a, b = a[valid].astype(np.float64), b[valid]
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-2 * size + 1e-6)) if b.size else 0.0


def synchronise(net: Net, source: Net) -> None:
    net.rng.bit_generator.state = source.rng.bit_generator.state
    for mine, theirs in zip(net.param_blobs, source.param_blobs, strict=True):
        mine.data[...] = theirs.data


def outcome(net: Net, run) -> tuple[float, str]:
    try:
        return run(net), ""
    except UndertowError as error:
        return 0.0, f"{type(error).__name__}: {error}"


class IncomparableError(Exception):
    """Not a ValueError: NumPy raises those where a plan is wrong, and they must not look like a skipped net."""


def hold_against_layers(random: RandomNet, phase: str, dialect: str) -> str | None:
    """What differs most beyond rounding; None otherwise. IncomparableError for a net that cannot be built or run."""
    try:
        planned, plain, exact = (build(random, phase, dialect, t) for t in (np.float32, np.float32, np.float64))
    except UndertowError as error:
        raise IncomparableError(str(error)) from error
    if planned.plans.reason:
        raise IncomparableError(planned.plans.reason)
    for iteration in range(ITERATIONS):
        for net in (plain, exact):
            synchronise(net, planned)
        runs = [(planned, Net.forward_backward), (plain, one_by_one), (exact, one_by_one)]
        if iteration == 1 and random.maybe(0.5):
            runs[0] = (planned, lambda net: (net.evaluate(), net.backward())[0])
        if iteration == 0:
            for net in (planned, plain, exact):
                net.clear_param_diffs()
        results = []
        for net, run in runs:
            with np.errstate(all="ignore"):
                loss, error = outcome(net, run)
            results.append((loss, error))
        if results[0][1] or results[1][1]:
            if results[0][1] != results[1][1]:
                return f"iteration {iteration}: planned {results[0][1]!r}, plain {results[1][1]!r}"
            raise IncomparableError(results[0][1])
        if iteration == 0 and random.maybe(0.4):
            continue  # nobody looks: what the next pass needs must be there all the same
        found, other, true = (numbers(net, loss) for (net, _), (loss, _) in zip(runs, results, strict=True))
        gradients = [values[np.isfinite(values)] for key, values in true.items() if key.startswith("diff of param")]
        largest = max((float(np.linalg.norm(values)) for values in gradients), default=0.0)
        for key, right in true.items():
            size = largest if key.startswith("diff") else 0.0
            error = distance(other[key], right, size)
            if not distance(found[key], right, size) <= FACTOR * error + FLOOR:
                return (
                    f"iteration {iteration}: {key}: planned {distance(found[key], right, size):.3g}, plain {error:.3g}"
                )
        for net in (planned, plain, exact):
            for blob, rate in zip(net.learnable_params, net.params_lr, strict=True):
                blob.data[...] -= 0.02 * rate * blob.diff
            net.clear_param_diffs()
    return None


@pytest.mark.parametrize("seed", range(60))
def test_a_random_net_gives_what_its_layers_give_one_by_one(seed):
    random = random_net(seed)
    phase, dialect = random.pick("TRAIN", "TRAIN", "TRAIN", "TEST"), random.pick("exact", "caffe")
    try:
        problem = hold_against_layers(random, phase, dialect)
    except IncomparableError as reason:
        pytest.skip(f"nothing to compare: {reason}")
    assert problem is None, "\n".join([f"{problem} ({phase}, {dialect})", *random.lines])


@pytest.mark.parametrize("seed", range(60))
def test_keeping_fewer_blobs_changes_no_bit(seed: int) -> None:
    """The command keeps the outputs alone; a run that is watched keeps all, and must be the same run."""
    random = random_net(seed)
    phase, dialect = random.pick("TRAIN", "TRAIN", "TRAIN", "TEST"), random.pick("exact", "caffe")
    try:
        nets = [build(random, phase, dialect, np.float32) for _ in range(2)]
    except UndertowError as reason:
        pytest.skip(f"nothing to compare: {reason}")
    nets[1].plans.keep_all = False
    synchronise(nets[1], nets[0])
    for _ in range(ITERATIONS):
        (loss, told), (other, also_told) = (outcome(net, Net.forward_backward) for net in nets)
        assert told == also_told
        if told:
            pytest.skip(f"nothing to compare: {told}")
        np.testing.assert_array_equal(loss, other)
        for name in nets[0].outputs:
            np.testing.assert_array_equal(nets[0].blobs[name].data, nets[1].blobs[name].data, name)
        for mine, theirs in zip(nets[0].param_blobs, nets[1].param_blobs, strict=True):
            np.testing.assert_array_equal(mine.data, theirs.data)
            np.testing.assert_array_equal(mine.diff, theirs.diff)
        if random.maybe(0.3):  # a way back by the layers, which then do the pass again
            planned = [blob.diff.copy() for blob in nets[0].learnable_params]
            for net in nets:
                net.clear_param_diffs()
                net.backward()
            for mine, theirs in zip(nets[0].learnable_params, nets[1].learnable_params, strict=True):
                size = np.abs(mine.diff).max(initial=1)
                np.testing.assert_allclose(mine.diff, theirs.diff, rtol=1e-3, atol=1e-3 * min(size, 1e30))
            for net in nets:
                for blob, diff in zip(net.learnable_params, planned, strict=True):
                    blob.diff[...] = diff
        for net in nets:
            for blob, rate in zip(net.learnable_params, net.params_lr, strict=True):
                blob.data[...] -= 0.02 * rate * blob.diff
            net.clear_param_diffs()

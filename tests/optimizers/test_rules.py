"""Update rules against PyTorch (float64), against what Caffe and Darknet recorded, and against plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow.core import Parameter
from undertow.errors import UndertowError
from undertow.optimizers import (
    SGD,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    DarknetAdam,
    DarknetParameter,
    DarknetSGD,
    Multipliers,
    Optimizer,
    RMSProp,
    rules,
)

STEPS = 6

Make = Callable[[list[Parameter]], Optimizer]
TORCH: list[tuple[str, Make, str, dict[str, Any]]] = [
    ("sgd", lambda p: SGD(p, 0.1), "SGD", {"lr": 0.1}),
    ("sgd decay", lambda p: SGD(p, 0.1, weight_decay=0.3), "SGD", {"lr": 0.1, "weight_decay": 0.3}),
    ("momentum", lambda p: SGD(p, 0.1, 0.9), "SGD", {"lr": 0.1, "momentum": 0.9}),
    ("nesterov", lambda p: SGD(p, 0.1, 0.8, True), "SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True}),
    ("adagrad", lambda p: AdaGrad(p, 0.2), "Adagrad", {"lr": 0.2}),
    ("adadelta", lambda p: AdaDelta(p, 0.7, 0.8, 1e-3), "Adadelta", {"lr": 0.7, "rho": 0.8, "eps": 1e-3}),
    ("rmsprop", lambda p: RMSProp(p, 0.05, 0.8, 1e-4), "RMSprop", {"lr": 0.05, "alpha": 0.8, "eps": 1e-4}),
    ("adam", lambda p: Adam(p, 0.05, 0.8, 0.95, 1e-3), "Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3}),
    ("adam decay", lambda p: Adam(p, 0.05, weight_decay=0.2), "Adam", {"lr": 0.05, "weight_decay": 0.2}),
    ("adamw", lambda p: AdamW(p, 0.05, weight_decay=0.2), "AdamW", {"lr": 0.05, "weight_decay": 0.2}),
    ("adamw default", lambda p: AdamW(p), "AdamW", {}),
]


@pytest.mark.parametrize(("make", "name", "options"), [c[1:] for c in TORCH], ids=[c[0] for c in TORCH])
def test_same_path_as_pytorch(make: Make, name: str, options: dict[str, Any], rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    starts = [rng.normal(size=(3, 4)), rng.normal(size=5)]
    ours = [Parameter(start.copy()) for start in starts]
    theirs = [torch.tensor(start, requires_grad=True) for start in starts]
    optimizer, other = make(ours), getattr(torch.optim, name)(theirs, **options)
    for _ in range(STEPS):
        for mine, peer in zip(ours, theirs, strict=True):
            mine.grad = rng.normal(size=mine.shape)
            peer.grad = torch.tensor(mine.grad)
        optimizer.update()
        other.step()
    for mine, peer in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.data, peer.detach().numpy(), rtol=1e-12, atol=1e-14)


CAFFE: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "solver_sgd_momentum": (SGD, {"rate": 0.1, "momentum": 0.9}),
    "solver_sgd_momentum_l2": (SGD, {"rate": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
    "solver_sgd_clip": (SGD, {"rate": 0.1, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.2}),
    "solver_sgd_clip_not_reached": (SGD, {"rate": 0.1, "momentum": 0.9, "clip_norm": 100}),
    "solver_nesterov": (SGD, {"rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "solver_adagrad": (AdaGrad, {"rate": 0.1, "eps": 1e-8}),
    "solver_adagrad_delta_l2": (AdaGrad, {"rate": 0.1, "eps": 0.01, "weight_decay": 0.02}),
    "solver_adadelta": (AdaDelta, {"rate": 1.0, "rho": 0.95, "eps": 1e-6}),
    "solver_rmsprop": (RMSProp, {"rate": 0.01, "decay": 0.9, "eps": 1e-8}),
}


@pytest.mark.reference
@pytest.mark.parametrize("case", sorted(CAFFE))
def test_first_updates_recorded_from_caffe(case: str, reference_data: Path) -> None:
    with np.load(reference_data / "goldens" / "caffe" / case / "trace.npz") as trace:
        arrays = dict(trace)
    names = sorted(key[:-5] for key in arrays if key.startswith("param/") and key.endswith("/data"))
    parameters = {name: Parameter(arrays[f"{name}/data"].copy()) for name in names}
    kind, options = CAFFE[case]
    # every second blob is a bias, with lr_mult 2 and decay_mult 0 in these nets
    optimizer = kind(parameters, **options, multipliers={"param/*/1": Multipliers(rate=2.0, decay=0.0)})
    for iteration in (1, 2):
        for name, parameter in parameters.items():
            parameter.grad = arrays[f"it{iteration}/{name}/grad"]
        optimizer.update()
        for name, parameter in parameters.items():
            expected = arrays[f"it{iteration}/{name}/data"]
            np.testing.assert_allclose(parameter.data, expected, rtol=2e-6, atol=2e-7, err_msg=f"{name} {iteration}")


DARKNET_CASES = [
    "opt_subdivisions", "opt_momentum", "opt_decay", "opt_burn_in", "opt_steps", "opt_exp", "conv_lr_scale",
]  # fmt: skip
KINDS = {"weights": "weight_updates", "biases": "bias_updates", "scales": "scale_updates"}


DARKNET = Path(__file__).parents[1] / "goldens" / "darknet"


@pytest.mark.parametrize("case", DARKNET_CASES)
def test_updates_recorded_from_darknet(case: str, request: pytest.FixtureRequest) -> None:
    folder = DARKNET / case
    if not folder.is_dir():
        folder = request.getfixturevalue("reference_data") / "goldens" / "darknet" / case
    with np.load(folder / "trace.npz") as trace:
        arrays = dict(trace)
    passes = sum(key.endswith("/updated") for key in arrays)
    updated = [k for k in range(passes) if arrays[f"it{k}/updated"]]
    assert len(updated) >= 2
    multipliers = learning_rates(folder / "net.cfg")
    for earlier, later in itertools.pairwise(updated):
        replay(arrays, multipliers, earlier, later)


def learning_rates(cfg: Path) -> dict[int, float]:
    """The `learning_rate=` of every layer of a small golden cfg that has one."""
    layer, found = -2, {}
    for line in cfg.read_text().splitlines():
        if line.startswith("["):
            layer += 1
        elif line.startswith("learning_rate") and layer >= 0:
            found[layer] = float(line.partition("=")[2])
    return found


def replay(arrays: dict[str, np.ndarray], multipliers: dict[int, float], earlier: int, later: int) -> None:
    """Start from what the update of pass `earlier` left, feed the gradients of the passes up to `later`, compare."""
    start = f"it{earlier}/post/"
    names = [key[len(start) :] for key in arrays if key.startswith(start) and key.rpartition("/")[2] in KINDS]
    entries = []
    for name in names:
        multiplier = multipliers.get(int(name[5:7]), 1.0)
        values = Parameter(arrays[start + name].copy())
        entries.append(DarknetParameter(name, values, name.endswith("weights"), multiplier))
    _, momentum, decay = (float(value) for value in arrays["meta/lr_momentum_decay"])
    optimizer = DarknetSGD(entries, momentum=momentum, decay=decay)
    optimizer.load_state({name: arrays[accumulator(start, name)] for name in names})
    before = {name: arrays[accumulator(start, name)] for name in names}
    for k in range(earlier + 1, later + 1):
        for entry in entries:
            now = arrays[accumulator(f"it{k}/", entry.name)]
            entry.parameter.grad = before[entry.name] - now
            before[entry.name] = now
        optimizer.accumulate()
    batch = int(arrays["meta/batch"]) * int(arrays["meta/subdivisions"])
    optimizer.update(float(arrays[f"it{later}/lr"]), batch)
    end = f"it{later}/post/"
    for entry in entries:
        close(entry.parameter.data, arrays[end + entry.name], entry.name)
        close(optimizer.updates[entry.name], arrays[accumulator(end, entry.name)], entry.name)


def accumulator(prefix: str, name: str) -> str:
    layer, _, kind = name.rpartition("/")
    return f"{prefix}{layer}/{KINDS[kind]}"


def close(ours: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert np.abs(ours - expected).max() <= 1e-6 * np.abs(expected).max() + 1e-12, name


def test_darknet_rule_against_a_plain_loop(rng: np.random.Generator) -> None:
    values, updates = rng.normal(size=4), rng.normal(size=4)
    expected_values, expected_updates = values.copy(), updates.copy()
    for i in range(4):
        expected_updates[i] -= 0.01 * 8 * expected_values[i]
        expected_values[i] += 0.5 / 8 * expected_updates[i]
        expected_updates[i] *= 0.9
    rules.darknet_update(values, updates, rate=0.5, batch=8, momentum=0.9, decay=0.01)
    np.testing.assert_allclose(values, expected_values, rtol=1e-14)
    np.testing.assert_allclose(updates, expected_updates, rtol=1e-14)


@pytest.mark.parametrize("make", [c[1] for c in TORCH], ids=[c[0] for c in TORCH])
def test_rules_keep_float32_write_in_place_and_spare_the_gradient(make: Make, rng: np.random.Generator) -> None:
    data = rng.normal(size=7).astype(np.float32)
    gradient = rng.normal(size=7).astype(np.float32)
    before, untouched = data.copy(), gradient.copy()
    parameter = Parameter(data)
    parameter.grad = gradient
    optimizer = make([parameter])
    optimizer.update()
    assert parameter.data is data
    assert data.dtype == np.float32
    assert not np.array_equal(before, data)
    np.testing.assert_array_equal(gradient, untouched)
    assert all(array.dtype == np.float32 for key, array in optimizer.state().items() if array.ndim)


def test_darknets_adam_against_a_plain_loop(rng: np.random.Generator) -> None:
    """Decay for every parameter, the rate not divided by the batch, the accumulator cleared."""
    start = {"l/weights": rng.standard_normal(4), "l/biases": rng.standard_normal(3)}
    parameters = {name: Parameter(array.copy()) for name, array in start.items()}
    entries = [DarknetParameter(name, p, name == "l/weights", 0.5) for name, p in parameters.items()]
    optimizer = DarknetAdam(entries, decay=0.01, beta1=0.8, beta2=0.9, epsilon=1e-3)
    expected = {name: array.copy() for name, array in start.items()}
    moments = {name: [np.zeros_like(array), np.zeros_like(array)] for name, array in start.items()}
    for t in range(1, 4):
        for name, w in expected.items():
            gradient = rng.standard_normal(w.shape)
            parameters[name].grad = gradient
            for i in range(len(w)):
                d = -gradient[i] - 0.01 * 8 * w[i]
                m, v = moments[name]
                m[i] = 0.8 * m[i] + 0.2 * d
                v[i] = 0.9 * v[i] + 0.1 * d * d
                w[i] += 0.5 * 0.3 * (m[i] / (1 - 0.8**t)) / (math.sqrt(v[i] / (1 - 0.9**t)) + 1e-3)
        optimizer.accumulate()
        optimizer.update(0.3, 8)
    for name, w in expected.items():
        np.testing.assert_allclose(parameters[name].data, w, rtol=1e-12)
        assert not optimizer.updates[name].any()


def test_darknets_adam_goes_on_from_its_state(rng: np.random.Generator) -> None:
    def run(passes: int, state: dict[str, np.ndarray] | None, start: np.ndarray) -> tuple[np.ndarray, DarknetAdam]:
        parameter = Parameter(start.copy())
        optimizer = DarknetAdam([DarknetParameter("l/weights", parameter, True)])
        if state is not None:
            optimizer.load_state(state)
        for _ in range(passes):
            parameter.grad = np.cos(parameter.data)
            optimizer.accumulate()
            optimizer.update(0.1, 2)
        return parameter.data, optimizer

    start = rng.standard_normal(5)
    whole, _ = run(4, None, start)
    half, optimizer = run(2, None, start)
    assert int(optimizer.steps) == 2
    assert np.array_equal(run(2, optimizer.state(), half)[0], whole)
    with pytest.raises(UndertowError, match="missing"):
        run(1, {"l/weights": np.zeros(5)}, start)

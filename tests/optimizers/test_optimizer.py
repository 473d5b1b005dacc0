"""What all optimisers share: rates, decay, clipping, multipliers, state, and errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from undertow.core import Parameter, Variable
from undertow.errors import NonFiniteError, ShapeError, UndertowError
from undertow.optimizers import (
    SGD,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    DarknetParameter,
    DarknetSGD,
    Multipliers,
    Optimizer,
    RMSProp,
    policies,
)

KINDS: dict[str, Callable[[dict[str, Parameter]], Optimizer]] = {
    "sgd": lambda p: SGD(p, policies.Step(0.1, 2, 0.5)),
    "momentum": lambda p: SGD(p, 0.1, momentum=0.9),
    "adagrad": AdaGrad,
    "adadelta": AdaDelta,
    "rmsprop": RMSProp,
    "adam": Adam,
    "adamw": AdamW,
    "random rate": lambda p: SGD(p, policies.Random(0.1, 2.0, seed=5)),
}


def two_parameters(rng: np.random.Generator) -> dict[str, Parameter]:
    return {"first.weight": Parameter(rng.normal(size=(2, 3))), "first.bias": Parameter(rng.normal(size=2))}


def set_gradients(parameters: dict[str, Parameter], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for parameter in parameters.values():
        parameter.grad = rng.normal(size=parameter.shape)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_run_continued_from_its_state_is_bit_identical(kind: str, rng: np.random.Generator) -> None:
    whole = two_parameters(rng)
    optimizer = KINDS[kind](whole)
    for step in range(3):
        set_gradients(whole, step)
        optimizer.update()
    saved = optimizer.state()
    resumed = {name: Parameter(p.data.copy()) for name, p in whole.items()}
    continued = KINDS[kind](resumed)
    continued.load_state(saved)
    for step in range(3, 7):
        for parameters, runner in ((whole, optimizer), (resumed, continued)):
            set_gradients(parameters, step)
            runner.update()
    for name in whole:
        np.testing.assert_array_equal(whole[name].data, resumed[name].data)
    assert continued.iteration == 7
    assert continued.rate == optimizer.rate


def test_state_is_a_copy(rng: np.random.Generator) -> None:
    parameters = two_parameters(rng)
    optimizer = SGD(parameters, 0.1, momentum=0.9)
    set_gradients(parameters, 0)
    optimizer.update()
    saved = optimizer.state()
    kept = {key: array.copy() for key, array in saved.items()}
    set_gradients(parameters, 1)
    optimizer.update()
    for key in kept:
        np.testing.assert_array_equal(saved[key], kept[key])


def test_a_policy_sets_the_rate_of_each_update() -> None:
    parameter = Parameter(np.zeros(1))
    optimizer = SGD([parameter], policies.Steps(1.0, (1, 3), (0.5, 0.1)))
    positions = []
    for _ in range(4):
        parameter.grad = np.array([-1.0])
        optimizer.update()
        positions.append(parameter.data.item())
    assert positions == pytest.approx([1.0, 1.5, 2.0, 2.05])


def test_both_decays_enter_the_gradient() -> None:
    parameter = Parameter(np.array([2.0, -4.0, 0.0]))
    parameter.grad = np.array([0.1, 0.1, 0.1])
    SGD([parameter], 1.0, weight_decay=0.25, l1_decay=0.01).update()
    np.testing.assert_allclose(parameter.data, [2 - (0.1 + 0.5 + 0.01), -4 - (0.1 - 1 - 0.01), -0.1])


def test_multipliers_go_by_name_and_the_first_pattern_wins() -> None:
    names = ["conv.weight", "conv.bias", "head.weight"]
    parameters = {name: Parameter(np.array([1.0])) for name in names}
    optimizer = SGD(
        parameters,
        0.1,
        weight_decay=0.5,
        multipliers={"*.bias": Multipliers(rate=2.0, decay=0.0), "conv.*": Multipliers(rate=0.0)},
    )
    for parameter in parameters.values():
        parameter.grad = np.array([1.0])
    optimizer.update()
    moved = [parameters[name].data.item() for name in names]
    assert moved == pytest.approx([1.0, 1 - 0.2, 1 - 0.1 * 1.5])


def test_decoupled_decay_has_multipliers_too() -> None:
    parameters = {"w": Parameter(np.array([1.0])), "b": Parameter(np.array([1.0]))}
    optimizer = AdamW(parameters, 0.1, weight_decay=0.5, multipliers={"b": Multipliers(decay=0.0)})
    for parameter in parameters.values():
        parameter.grad = np.array([0.0])
    optimizer.update()
    assert [p.data.item() for p in parameters.values()] == pytest.approx([1 - 0.1 * 0.5, 1.0])


def test_clipping_by_value_and_by_the_norm_of_all_gradients() -> None:
    parameters = [Parameter(np.zeros(2)), Parameter(np.zeros(1))]
    gradients = [np.array([3.0, -0.5]), np.array([4.0])]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    SGD(parameters, 1.0, clip_value=1.0).update()
    np.testing.assert_allclose(np.concatenate([p.data for p in parameters]), [-1.0, 0.5, -1.0])
    for parameter in parameters:
        parameter.data[...] = 0
    norm = np.sqrt(9 + 0.25 + 16)
    SGD(parameters, 1.0, clip_norm=0.1).update()
    np.testing.assert_allclose(np.concatenate([p.data for p in parameters]), np.array([-3, 0.5, -4]) * 0.1 / norm)
    np.testing.assert_array_equal(parameters[0].grad, [3.0, -0.5])


def test_clipping_against_pytorch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    gradients = [rng.normal(size=(4, 3)), rng.normal(size=6)]
    parameters = [Parameter(np.zeros(g.shape)) for g in gradients]
    peers = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in gradients]
    for parameter, peer, gradient in zip(parameters, peers, gradients, strict=True):
        parameter.grad, peer.grad = gradient, torch.tensor(gradient)
    torch.nn.utils.clip_grad_norm_(peers, 0.7)
    SGD(parameters, 1.0, clip_norm=0.7).update()
    for parameter, peer in zip(parameters, peers, strict=True):
        # PyTorch divides by norm + 1e-6
        np.testing.assert_allclose(-parameter.data, peer.grad.numpy(), rtol=1e-6)


def test_a_parameter_without_a_gradient_stays_and_adam_counts_its_own_updates() -> None:
    early, late = Parameter(np.array([1.0])), Parameter(np.array([1.0]))
    optimizer = Adam({"early": early, "late": late}, 0.1)
    for _ in range(50):
        early.grad = np.array([1.0])
        optimizer.update()
    assert late.data.item() == 1.0
    late.grad = np.array([1e-3])
    early.grad = None
    optimizer.update()
    # the first step of Adam is rate * sign(gradient), whenever it comes
    assert late.data.item() == pytest.approx(0.9, abs=1e-4)


def test_update_follows_backward_through_the_engine() -> None:
    parameter = Parameter(np.array([3.0, -2.0]))
    optimizer = SGD([parameter], 0.25)
    for _ in range(40):
        optimizer.clear_grads()
        (parameter * parameter).sum().backward()
        optimizer.update()
    np.testing.assert_allclose(parameter.data, [0, 0], atol=1e-9)


def test_errors_leave_the_parameters_as_they_were() -> None:
    parameter = Parameter(np.array([1.0]))
    optimizer = SGD([parameter], policies.Poly(0.1, length=2, power=0.5), clip_norm=1.0)
    with pytest.raises(UndertowError, match="no parameter has a gradient"):
        optimizer.update()
    parameter.grad = np.array([np.nan])
    with pytest.raises(NonFiniteError, match="norm of the gradients at iteration 0 is nan"):
        optimizer.update()
    optimizer.iteration = 3
    parameter.grad = np.array([1.0])
    with pytest.raises(NonFiniteError, match="learning rate at iteration 3 is nan"):
        optimizer.update()
    assert parameter.data.item() == 1.0


def test_wrong_targets_are_refused() -> None:
    with pytest.raises(UndertowError, match="no parameters"):
        SGD([])
    with pytest.raises(TypeError, match="'0' is a Variable"):
        SGD([Variable(np.zeros(1))])  # type: ignore[list-item]
    with pytest.raises(UndertowError, match=r"pattern 'bais' fits no parameter.*the names are w"):
        SGD({"w": Parameter(np.zeros(1))}, multipliers={"bais": Multipliers()})
    twins = [Parameter(np.zeros(1), name="w"), Parameter(np.zeros(1), name="w")]
    with pytest.raises(UndertowError, match="same name"):
        SGD(twins)
    with pytest.raises(ValueError, match="nesterov needs"):
        SGD(twins[:1], nesterov=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("iteration"), "lacks iteration"),
        (lambda s: s.pop("squares/w"), "lacks squares/w"),
        (lambda s: s.update({"velocity/w": s["mean/w"]}), "'velocity/w' is not part of the state of this Adam"),
        (lambda s: s.update({"mean/x": s["mean/w"]}), "'mean/x' is not part"),
        (lambda s: s.update({"mean/w": np.zeros(3)}), r"'mean/w' has shape \(3,\), this optimiser needs \(2,\)"),
        (lambda s: s.update({"updates/w": np.zeros(2)}), r"needs \(\)"),
    ],
)
def test_states_that_do_not_fit_are_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    parameter = Parameter(np.ones(2))
    optimizer = Adam({"w": parameter})
    parameter.grad = np.ones(2)
    optimizer.update()
    state = optimizer.state()
    change(state)
    before = optimizer.state()
    with pytest.raises(UndertowError, match=message):
        optimizer.load_state(state)
    for key, array in optimizer.state().items():
        np.testing.assert_array_equal(array, before[key])


def test_gradient_of_another_shape_is_refused() -> None:
    parameter = Parameter(np.ones(2))
    parameter.grad = np.ones((1, 2))
    with pytest.raises(ShapeError, match="gradient of shape"):
        SGD([parameter]).update()


def test_darknet_accumulators_carry_over_and_are_checked() -> None:
    weights, biases = Parameter(np.array([2.0])), Parameter(np.array([1.0]))
    entries = [DarknetParameter("l/weights", weights, True), DarknetParameter("l/biases", biases, False, rate=2.0)]
    optimizer = DarknetSGD(entries, momentum=0.5, decay=0.1)
    for _ in range(2):  # two subdivisions of 3 images, loss a mean over them
        weights.grad, biases.grad = np.array([1.0]), np.array([-1.0])
        optimizer.accumulate(factor=3.0)
    assert weights.grad is None
    optimizer.update(rate=0.6, batch=6)
    assert weights.data.item() == pytest.approx(2 + 0.1 * (-6 - 0.1 * 6 * 2))
    assert biases.data.item() == pytest.approx(1 + 0.2 * 6)
    assert optimizer.updates["l/biases"].item() == 3.0
    state = optimizer.state()
    with pytest.raises(UndertowError, match="missing: l/biases"):
        optimizer.load_state({"l/weights": state["l/weights"]})
    with pytest.raises(ShapeError, match="accumulator 'l/biases'"):
        optimizer.load_state({**state, "l/biases": np.zeros(2)})
    with pytest.raises(UndertowError, match="same name"):
        DarknetSGD([entries[0], entries[0]])

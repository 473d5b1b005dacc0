"""Learning-rate policies against Darknet's and Caffe's recorded rates, PyTorch, and their formulas."""

from __future__ import annotations

import configparser
import math
from pathlib import Path

import numpy as np
import pytest

from undertow.errors import UndertowWarning
from undertow.optimizers import policies

DARKNET_CASES = [
    "constant", "constant_burn_in", "constant_burn_in_power1", "exp", "poly", "poly_default_power",
    "poly_fractional_power", "random", "sigmoid_negative_gamma", "sigmoid_positive_gamma", "step", "steps",
    "steps_burn_in", "time_steps", "unknown_policy",
]  # fmt: skip
WHOLE = {"burn_in", "step", "max_batches"}
REAL = {"learning_rate", "power", "scale", "gamma"}


def net_options(cfg: Path) -> dict[str, object]:
    """The policy options of a small golden cfg, as `from_darknet` takes them."""
    parser = configparser.ConfigParser(strict=False)
    parser.read_string(cfg.read_text())
    options: dict[str, object] = {}
    for key, text in parser["net"].items():
        if key in WHOLE:
            options[key] = int(text)
        elif key in REAL:
            options[key] = float(text)
        elif key == "steps":
            options[key] = tuple(int(part) for part in text.split(","))
        elif key == "scales":
            options[key] = tuple(float(part) for part in text.split(","))
        elif key == "policy":
            options[key] = text
    return options


DARKNET = Path(__file__).parents[1] / "goldens" / "darknet" / "lr_policies"


@pytest.mark.parametrize("case", DARKNET_CASES)
def test_rates_recorded_from_darknet(case: str) -> None:
    options = net_options(DARKNET / f"{case}.cfg")
    with np.load(DARKNET / "trace.npz") as trace:
        batch_numbers, expected = trace[f"{case}/batch_num"], trace[f"{case}/rate"]
        images = int(trace[f"{case}/batch"]) * int(trace[f"{case}/subdivisions"])
        np.testing.assert_array_equal(trace[f"{case}/seen"] // images, batch_numbers)
        uniform = trace[f"{case}/uniform"] if case == "random" else None
    for index, batch_number in enumerate(batch_numbers):
        if uniform is not None:
            options["draw"] = lambda _, value=float(uniform[index]): value
        rate = make_darknet(case, options)(int(batch_number))
        # poly takes 1 - b/n in float32 there: near its zero the relative error of that difference shows
        scale = max(abs(float(expected[index])), 1e-4) if np.isfinite(expected[index]) else 1.0
        assert np.float32(rate) == pytest.approx(expected[index], abs=2e-6 * scale, nan_ok=True)


def make_darknet(case: str, options: dict[str, object]) -> policies.Policy:
    if case != "unknown_policy":
        return policies.from_darknet(**options)  # type: ignore[arg-type]
    with pytest.warns(UndertowWarning, match="knows no policy 'cosine'"):
        return policies.from_darknet(**options)  # type: ignore[arg-type]


def test_every_darknet_trace_is_covered() -> None:
    assert sorted(path.stem for path in DARKNET.glob("*.cfg")) == DARKNET_CASES


CAFFE_CASES = {
    "solver_lr_fixed": policies.from_caffe("fixed", base_lr=0.1),
    "solver_lr_inv": policies.from_caffe("inv", base_lr=0.1, gamma=0.2, power=0.75),
    "solver_lr_multistep_adjacent": policies.from_caffe("multistep", base_lr=0.1, gamma=0.5, stepvalue=(4, 5)),
    "solver_lr_poly": policies.from_caffe("poly", base_lr=0.1, power=2, max_iter=12),
    "solver_lr_step": policies.from_caffe("step", base_lr=0.1, gamma=0.5, stepsize=3),
}


@pytest.mark.reference
@pytest.mark.parametrize("case", sorted(CAFFE_CASES))
def test_rates_recorded_from_caffe(case: str, reference_data: Path) -> None:
    with np.load(reference_data / "goldens" / "caffe" / case / "trace.npz") as trace:
        expected = trace["lr"]
    rates = [CAFFE_CASES[case](iteration) for iteration in range(len(expected))]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_equal_steps_of_multistep_are_passed_one_by_one() -> None:
    policy = policies.MultiStep(1.0, (3, 3, 3, 10), 0.5)
    assert [policy(i) for i in range(8)] == [1, 1, 1, 0.5, 0.25, 0.125, 0.125, 0.125]


def test_sigmoids_of_caffe_and_of_both_darknets() -> None:
    caffe = policies.from_caffe("sigmoid", base_lr=2.0, gamma=0.5, stepsize=10)
    assert caffe(6) == pytest.approx(2.0 / (1 + math.exp(0.5 * 4)))
    fork = policies.from_darknet("sigmoid", learning_rate=2.0, gamma=0.5, step=10, unsigned=False)
    assert fork(6) == pytest.approx(2.0 / (1 + math.exp(-0.5 * 4)))
    assert policies.from_darknet("sigmoid", learning_rate=2.0, gamma=0.5, step=10)(6) == 0.0


def test_exponential_against_its_formula() -> None:
    assert policies.from_caffe("exp", base_lr=0.3, gamma=0.9)(7) == pytest.approx(0.3 * 0.9**7)


def test_sgdr_follows_the_loop_of_the_fork() -> None:
    policy = policies.from_darknet("sgdr", learning_rate=0.1, max_batches=10, learning_rate_min=0.01)
    # cycles 0..10, 11..30, 31..70: each ends at the minimum
    assert policy(0) == pytest.approx(0.1)
    assert [policy(end) for end in (10, 30, 70)] == pytest.approx([0.01] * 3)
    assert policy(20) == pytest.approx((0.1 + 0.01) / 2)
    assert policy(11) == pytest.approx(0.01 + 0.5 * 0.09 * (1 + math.cos(math.pi / 20)))


def test_sgdr_with_equal_cycles_far_out() -> None:
    policy = policies.SGDR(0.1, cycle=5, growth=1, minimum=0.0)
    first = [policy(i) for i in range(1, 6)]
    assert [policy(i) for i in range(10**12 + 1, 10**12 + 6)] == pytest.approx(first)


def test_cosine_against_pytorch() -> None:
    torch = pytest.importorskip("torch")
    policy = policies.Cosine(0.3, length=8, minimum=0.02)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8, eta_min=0.02)
    for iteration in range(9):
        assert policy(iteration) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert policy(1000) == 0.02


def test_warm_restarts_between_their_ends_against_pytorch() -> None:
    torch = pytest.importorskip("torch")
    policy = policies.SGDR(0.3, cycle=4, growth=2, minimum=0.02)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4, T_mult=2, eta_min=0.02)
    for iteration in range(28):
        if iteration not in (4, 12):  # there PyTorch has already restarted
            assert policy(iteration) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_random_rates_follow_from_seed_and_iteration() -> None:
    policy, again = policies.Random(0.5, power=2.0, seed=3), policies.Random(0.5, power=2.0, seed=3)
    rates = [policy(i) for i in range(2000)]
    assert rates[7] == again(7)
    assert rates[7] != policies.Random(0.5, power=2.0, seed=4)(7)
    assert np.mean(rates) == pytest.approx(0.5 / 3, abs=0.01)  # the mean of u squared is 1/3


def test_burn_in_wraps_any_policy() -> None:
    inner = policies.Step(0.4, step=2, scale=0.5)
    warm = policies.burn_in(inner, 4, power=2)
    assert [warm(i) for i in range(6)] == pytest.approx([0, 0.4 / 16, 0.4 / 4, 0.4 * 9 / 16, 0.1, 0.1])
    assert policies.burn_in(inner, 0) is inner


def test_as_policy_takes_numbers_and_policies() -> None:
    assert policies.as_policy(0.25)(99) == 0.25
    inner = policies.Exp(1.0, 0.5)
    assert policies.as_policy(inner) is inner


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: policies.Step(0.1, 0, 0.5), "step must be at least 1, got 0"),
        (lambda: policies.from_darknet("poly"), "max_batches"),
        (lambda: policies.Steps(0.1, (1, 2), (0.5,)), "2 steps but 1 scales"),
        (lambda: policies.SGDR(0.1, cycle=4, growth=0), "sgdr_mult"),
        (lambda: policies.from_caffe("multi_step", base_lr=1), "did you mean 'multistep'"),
        (lambda: policies.from_caffe("qqq", base_lr=1), "it knows fixed, step"),
    ],
)
def test_impossible_policies_are_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()

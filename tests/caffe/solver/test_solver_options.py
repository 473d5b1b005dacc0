"""Fields of a solver prototxt: every refusal has file, line, reason and remedy; what Caffe computes is taken."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from tests.caffe.solver.nets import write_solver
from undertow.caffe import solver_options
from undertow.caffe.proto import parse_text, read_solver
from undertow.caffe.solver import Solver
from undertow.caffe.solver_options import Checker
from undertow.errors import FormatError, UndertowWarning
from undertow.optimizers.caffe import RULES

FIXED = 'net: "n" lr_policy: "fixed"\n'
# Fields on the second line, what is said of them, and what mends it.
REFUSED = [
    *[
        (f"{FIXED}{name}: {value}", f"{name} must be a finite number, here it is {shown}", f"write {name}: ")
        for name in ("base_lr", "gamma", "power", "momentum", "weight_decay", "momentum2", "delta", "rms_decay")
        for value, shown in (("nan", "nan"), ("inf", "inf"), ("-inf", "-inf"), ("1e60", "inf"))
    ],
    (FIXED + "clip_gradients: nan", "clip_gradients must be a number", "largest norm"),
    ('net: "n"\nlr_policy: "stepp"', "unknown lr_policy 'stepp'", "did you mean 'step'"),
    ('net: "n"\nlr_policy: "Step"', "unknown lr_policy 'Step'", "did you mean 'step'"),
    ('\nnet: "n" base_lr: 1', "lr_policy is not given", "use one of fixed, step"),
    ('net: "n"\nlr_policy: "step" gamma: 0.1', "step needs a stepsize of at least 1, here it is 0", "stepsize: "),
    ('net: "n" lr_policy: "sigmoid"\nstepsize: -5', "sigmoid needs a stepsize .* here it is -5", "stepsize: "),
    *[
        (f'net: "n" lr_policy: "{policy}" stepsize: 3\ngamma: -0.5', "gamma must not be negative.* -0.5", "gamma: ")
        for policy in ("step", "exp", "inv", "multistep", "sigmoid")
    ],
    ('net: "n"\nlr_policy: "poly"', "lr_policy poly needs max_iter", "write max_iter: "),
    (FIXED + 'type: "sgd"', "unknown solver type 'sgd'", "did you mean 'SGD'"),
    (FIXED + 'type: "LBFGS"', "unknown solver type 'LBFGS'", "use one of SGD"),
    (FIXED + 'type: "Adam" solver_type: SGD', "both given", "remove solver_type"),
    (FIXED + "momentum: 1.5", "SGD needs a momentum of at least -1 and at most 1, here it is 1.5", "momentum: 0.9"),
    (FIXED + "momentum: -3", "SGD needs a momentum", "momentum: 0.9"),
    ('net: "n" lr_policy: "fixed" type: "Nesterov"\nmomentum: 9', "Nesterov needs a momentum", "momentum: 0.9"),
    ('net: "n" lr_policy: "fixed" type: "Adam"\nmomentum: 1', "Adam needs a momentum of .* below 1", "momentum: 0.9"),
    ('net: "n" lr_policy: "fixed" type: "Adam"\nmomentum2: 1', "Adam needs a momentum2 .* below 1", "momentum2: 0.999"),
    ('net: "n" lr_policy: "fixed" type: "Adam"\ndelta: -1', "Adam needs a delta of at least 0, here it is -1", "1e-8"),
    ('net: "n" lr_policy: "fixed" type: "AdaDelta"\nmomentum: -0.5', "AdaDelta needs a momentum of at least 0", "0.95"),
    ('net: "n" lr_policy: "fixed" type: "AdaDelta"\ndelta: -1', "AdaDelta needs a delta", "1e-8"),
    ('net: "n" lr_policy: "fixed" type: "AdaGrad"\nmomentum: 0.9', "AdaGrad has no momentum", "remove momentum"),
    ('net: "n" lr_policy: "fixed" type: "AdaGrad"\ndelta: -1e-8', "AdaGrad needs a delta", "1e-8"),
    ('net: "n" lr_policy: "fixed" type: "RMSProp"\nmomentum: 0.9', "RMSProp has no momentum", "remove momentum"),
    ('net: "n" lr_policy: "fixed" type: "RMSProp"\nrms_decay: 1', "rms_decay of at least 0 and below 1", "0.99"),
    ('net: "n" lr_policy: "fixed" type: "RMSProp"\ndelta: -2', "RMSProp needs a delta", "1e-8"),
    (FIXED + 'regularization_type: "L3"', "unknown regularization_type 'L3'", "use L1 or L2"),
    (FIXED + "iter_size: 0", "iter_size must be at least 1, here it is 0", "iter_size: 1"),
    (FIXED + "average_loss: -2", "average_loss must be at least 1, here it is -2", "average_loss: 1"),
    (FIXED + "display: -1", "display must not be negative, here it is -1", "0 for no lines"),
    (FIXED + "snapshot: -1", "snapshot must not be negative, here it is -1", "0 for none"),
    (FIXED + "test_interval: -3", "test_interval must not be negative, here it is -3", "test_interval: 500"),
    (FIXED + "test_interval: -3 test_iter: 2", "test_interval must not be negative, here it is -3", "remove test_iter"),
    (FIXED + "max_iter: -10", "max_iter must not be negative, here it is -10", "max_iter: "),
    ('\nlr_policy: "fixed"', "no train net is given", "give exactly one of net, net_param"),
    (FIXED + 'train_net: "x"', "net and train_net are given", "give exactly one of"),
    (FIXED + "train_net_param {}", "net and train_net_param are given", "give exactly one of"),
    (FIXED + "test_iter: 3", "there are test nets, but no test_interval", "test_interval: 500"),
    (FIXED + "test_iter: 0 test_interval: 3", "test_iter must be at least 1, here it is 0", "test_iter: 100"),
    (FIXED + "test_iter: -1 test_interval: 3", "test_iter must be at least 1, here it is -1", "test_iter: 100"),
    (
        FIXED + 'test_net: "a" test_net: "b" test_iter: 1 test_interval: 3',
        "test_iter is given 1 times for 2 test nets", "once for each test net",
    ),
    (
        'train_net: "n" lr_policy: "fixed"\ntest_net: "a" test_iter: 1 test_iter: 1 test_interval: 3',
        "test_iter is given 2 times for 1 test nets", "once for each test net",
    ),
    (
        FIXED + "test_iter: 3 test_interval: 3 test_state {} test_state {}",
        "test_state is given 2 times for 1 test nets", "or not at all",
    ),
    (FIXED + 'eval_type: "segmentation"', "there is no eval_type 'segmentation'", "use classification, detection"),
    (FIXED + 'eval_type: "detection" ap_version: "12point"', "there is no ap_version '12point'", "use Integral"),
    (FIXED + 'snapshot: 5 snapshot_prefix: "/no/such/folder/x"', "snapshots cannot be written", "make the folder"),
    (FIXED + "base_rl: 0.1", "SolverParameter has no field base_rl", "did you mean base_lr?"),
    (FIXED + "momentum: fast", "expected a number for momentum, found 'fast'", "without quotes"),
    (FIXED + "max_iter: 1e4", "expected a whole number for max_iter, found '1e4'", "in digits"),
    (FIXED + "snapshot_format: JSON", "JSON", "HDF5"),
    (FIXED + 'base_lr: "0.1"', "expected a number for base_lr", "without quotes"),
    (FIXED + "base_lr: 0.1 base_lr: 0.2", "`base_lr` is not repeated but given twice", "the first stands in line 2"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason", "remedy"), REFUSED, ids=lambda word: word[-50:])
def test_every_refusal_has_file_line_reason_and_remedy(tmp_path: Path, text: str, reason: str, remedy: str) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        Checker(read_solver(path), path).all()
    error = caught.value
    assert error.file == str(path)
    assert error.line == (1 if text.startswith("\n") else 2)
    assert re.search(reason, error.reason)
    assert error.remedy
    assert remedy in error.remedy


def test_solver_refuses_as_the_checker_does(tmp_path: Path) -> None:
    path = write_solver(tmp_path, "momentum: nan")
    with pytest.raises(
        FormatError, match=r"solver.prototxt:2: momentum must be a finite number, here it is nan\. To mend"
    ):
        Solver(path)
    with pytest.raises(FormatError, match="no train net is given"):
        Solver(parse_text('base_lr: 1 lr_policy: "fixed"', "SolverParameter"))


def test_every_rule_has_its_ranges() -> None:
    assert set(solver_options._RANGES) == set(RULES)


@pytest.mark.parametrize(
    "text",
    [
        "momentum: 1", "momentum: -1", "momentum: 0", 'type: "Adam" momentum: 0 momentum2: 0 delta: 0',
        'type: "AdaDelta" momentum: 1', "power: -3", "gamma: -1", "weight_decay: 0", "base_lr: 0", "clip_gradients: -1",
        "clip_gradients: inf", "max_iter: 0", "random_seed: -7", "display: 0",
    ],
)  # fmt: skip
def test_what_caffe_computes_is_taken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(FIXED + (text if "base_lr" in text else f"base_lr: 0.1 {text}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checker(read_solver(path), path).all()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("base_lr: -0.1", "base_lr is negative: the loss is climbed"),
        ("weight_decay: -1", "weight_decay is negative: weights are driven away"),
        ("clip_gradients: 0", "clip_gradients 0 makes every gradient 0"),
    ],
)
def test_what_is_hardly_meant_is_told(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(FIXED + (text if "base_lr" in text else f"base_lr: 0.1 {text}"))
    with pytest.warns(UndertowWarning, match=f"solver.prototxt:2: {what}"):
        Checker(read_solver(path), path).all()


def test_a_rate_that_falls_to_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text('net: "n"\nlr_policy: "step" stepsize: 3 base_lr: 0.1')
    with pytest.warns(UndertowWarning, match="lr_policy step with gamma 0: the rate falls to 0"):
        Checker(read_solver(path), path).all()


def test_no_rate_is_told(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(FIXED)
    with pytest.warns(UndertowWarning, match="solver.prototxt:1: base_lr is not given, so the rate is 0"):
        Checker(read_solver(path), path).all()


def test_a_negative_rate_climbs(tmp_path: Path) -> None:
    path = write_solver(tmp_path)
    path.write_text(path.read_text().replace("base_lr: 0.1", "base_lr: -0.1"))
    with pytest.warns(UndertowWarning, match="climbed"):
        solver = Solver(path)
    losses = []
    for _ in range(20):
        solver.step(1)
        losses.append(solver.last_loss)
    assert losses[-1] > losses[0]
    solver.close()

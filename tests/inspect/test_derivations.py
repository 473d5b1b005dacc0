"""Every differentiable operation says how its way back follows, in the symbols of its own formulas."""

from __future__ import annotations

import re

import numpy as np
import pytest

import undertow as ut
import undertow.caffe.table
import undertow.darknet.network
from undertow.core.registry import Operation, operation, operations
from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.norm_batch import BatchNorm
from undertow.inspect.derivations import DERIVATIONS, derivation_of, variants
from undertow.inspect.derivations.activations import DARKNET
from undertow.inspect.record import Call
from undertow.inspect.specific import SLOPES, backward_of, forward_of
from undertow.kernels.reference.activations import ACTIVATIONS
from undertow.kernels.reference.batchnorm import DARKNET_CPU, BatchNormRule

KNOWN = [e for e in operations() if e.gradient != "none" and e.function.__module__.startswith("undertow.")]
# Symbols of several letters that are no words of everyday English.
LETTERS = ("alpha", "beta", "gamma", "delta", "kappa", "epsilon", "eps", "x_hat", "log_q", "cont", "gloss")
# Indices of elements, e (Euler's number), T (transposed), L (the loss), a (the article).
FREE = {"i", "j", "e", "T", "L", "a"}
# Words that look like the gradient or a small change of something.
WORDS = {"do", "go", "get", "got", "did", "delta", "done", "gets"}


def symbols(text: str) -> set[str]:
    """The symbols of a formula without what stands before them as in gx and dx: single letters and LETTERS."""
    found = set()
    for word in re.findall(r"[A-Za-z]+(?:_[a-z]+)?'?", re.sub("[Tt]he C program", "", text)):
        word = word.removesuffix("'")
        if word not in LETTERS:
            word = re.sub(r"_[ijt]$", "", word)
        while (word not in WORDS and re.fullmatch(r"[gd](\w{1,2}|[a-z]_[a-z])", word)) or word[1:] in LETTERS:
            word = word[1:]
        if len(word) == 1 or word in LETTERS or re.fullmatch(r"[a-z]_[a-z]", word):
            found.add(word)
    return found


def defined(lines: tuple[str, ...]) -> set[str]:
    """What a derivation introduces itself: `X = the windows of x`."""
    return {name for line in lines for name in re.findall(r"\b([A-Za-z]\w*) =(?!=)", line)}


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.name)
def test_every_operation_has_a_derivation_in_its_own_symbols(entry: Operation) -> None:
    lines = DERIVATIONS[entry.name]
    assert 2 <= len(lines) <= 6
    assert len(set(lines)) == len(lines)
    allowed = symbols(f"{entry.forward} {entry.backward}") | defined(lines) | FREE
    assert symbols(" ".join(lines)) <= allowed


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.name)
def test_a_derivation_arrives_at_each_gradient_of_the_formula(entry: Operation) -> None:
    text = " ".join(DERIVATIONS[entry.name])
    for name in re.findall(r"(?<![\w'])(g[a-z]\w*)(?:\[[^\]]*\])*(?=,? =|, g| \+=)", entry.backward):
        assert re.search(rf"\b{re.escape(name)}\b|\b{re.escape(name.removesuffix('_i'))}_", text), name


def test_a_symbol_of_another_formula_is_seen() -> None:
    assert symbols("gX = W^T gy, dh_n and the C program") == {"X", "W", "T", "y", "h_n"}
    assert symbols("so gloss beta dx_hat gets done") == {"gloss", "beta", "x_hat"}


def test_no_derivation_is_of_an_operation_that_is_not_there() -> None:
    assert set(DERIVATIONS) == {entry.name for entry in KNOWN}
    assert set(DARKNET) == set(ACTIVATIONS) == set(SLOPES)


def called(function: ut.Function, *arrays: np.ndarray) -> Call:
    result = function(*[ut.Variable(a, requires_grad=True) for a in arrays])
    return Call(function, function.inputs, (result,), (True,) * len(arrays))


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_an_activation_is_derived_by_its_name(name: str) -> None:
    call = called(DarknetActivation(name), np.linspace(-2, 2, 5))
    lines = derivation_of(call)
    assert lines[1:] == DARKNET[name]
    assert symbols(" ".join(lines)) <= symbols(f"{forward_of(call)} {backward_of(call)}") | defined(lines) | FREE


def batch_norm(rule: BatchNormRule, given: bool) -> tuple[str, ...]:
    statistics = (np.zeros(2), np.ones(2)) if given else ()
    x = np.random.default_rng(0).standard_normal((4, 2))
    return derivation_of(called(BatchNorm(rule, *statistics), x, np.ones(2), np.zeros(2)))


def test_batch_norm_is_derived_as_it_runs() -> None:
    own, given = batch_norm(BatchNormRule(), False), batch_norm(BatchNormRule(), True)
    assert own == DERIVATIONS["batch_norm"]
    assert given == variants("batch_norm")["with given statistics"]
    assert "constants" in given[0]
    assert not any("dmean" in line for line in given)
    for original, word in (
        (batch_norm(DARKNET_CPU, False), "C program"),
        (batch_norm(DARKNET_CPU, True), "given here"),
    ):
        assert original[:-1] == own
        assert word in original[-1]
    assert variants("conv2d") == {}


def test_a_batch_norm_follows_its_derivation_line_by_line() -> None:
    """The lines of the derivation, computed one after the other, lead to what the operation computes."""
    rng = np.random.default_rng(3)
    x, gamma, beta, gy, dx = (rng.standard_normal(shape) for shape in ((6, 2), (2,), (2,), (6, 2), (6, 2)))
    function = BatchNorm(BatchNormRule())
    call = called(function, x, gamma, beta)
    n, mean, variance = len(x), x.mean(0), x.var(0)
    q = s = np.sqrt(variance + function.rule.forward.epsilon)
    h, gh = (x - mean) / s, gamma * gy
    ds = ((x - mean) * dx).sum(0) / (n * q)
    dh = (dx - dx.sum(0) / n) / s - h * ds / s
    gx = (gh - gh.sum(0) / n) / s - (x - mean) * (gh * h).sum(0) / (n * s * q)
    np.testing.assert_allclose((gh * dh).sum(0), (gx * dx).sum(0), rtol=1e-10)
    np.testing.assert_allclose(call.function.backward(gy)[0], gx, atol=1e-12)


def test_the_formulas_of_an_lstm_name_gates_after_their_activation() -> None:
    for name in ("lstm", "lstm_unit", "darknet_lstm"):
        entry = operation(name)
        assert not re.search(r"\bs\([ifo]\)|tanh\(g\)", entry.forward + entry.backward)

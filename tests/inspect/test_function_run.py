"""`undertow trace module:function`: the numbers of a graph of the user's own, and how far its parameters move."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from undertow.cli import main
from undertow.errors import FormatError, UndertowError
from undertow.inspect.explain import explain
from undertow.inspect.function_run import run_function, trace_function
from undertow.inspect.trace_file import load_trace
from undertow.scope.document import document
from undertow.scope.recording import Request, record

NAME = "functions_that_are_traced"
MODULE = """import numpy as np

import undertow as ut
from undertow import layers, optimizers


class Net(ut.Module):
    def __init__(self):
        self.fc1 = layers.Linear(6, 4, rng=1)
        self.fc2 = layers.Linear(3, 6, rng=2)

    def forward(self, x):
        return self.fc2(ut.tanh(self.fc1(x)))


net = Net()
x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
t = np.array([0, 1, 2, 0, 1])


def loss():
    return ut.softmax_cross_entropy(net(x), t), {"picture": x, "t": t}


def given(x, t):
    return ut.softmax_cross_entropy(net(x), t)


def raw(x):
    return net(x), ut.square(x)


def with_prediction():
    y = net(x)
    return ut.softmax_cross_entropy(y, t), y


def returned():
    return loss(), optimizers.SGD(net, 0.5, momentum=0.9)


class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = optimizers.SGD(self.model, 0.25)

    def loss(self):
        return ut.softmax_cross_entropy(self.model(x), t)


trainer = Trainer()


def plain_step():
    net.clear_grads()
    loss()[0].backward()
    for p in net.parameters():
        p.data -= 0.25 * p.grad


def twice():
    plain_step()
    plain_step()


def penalised():
    x = ut.Variable(np.ones((2, 4), np.float32))
    y = ut.sum(ut.square(net(x)))
    slope = ut.grad(y, x, create_graph=True)
    return ut.sum(ut.square(slope))
"""
WITH_ADAM = MODULE + "\n\noptimizer = optimizers.Adam(net, 0.01)\n"


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = MODULE) -> None:
    (folder / f"{NAME}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, NAME, raising=False)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    written(tmp_path, monkeypatch)
    return NAME


def by_hand(folder: Path) -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Loss, weights and their gradients of that net, by NumPy in float64."""
    net = sys.modules[NAME].net
    x, t = sys.modules[NAME].x.astype(np.float64), sys.modules[NAME].t
    w1, b1, w2, b2 = (p.data.astype(np.float64) for p in (net.fc1.weight, net.fc1.bias, net.fc2.weight, net.fc2.bias))
    h = np.tanh(x @ w1.T + b1)
    y = h @ w2.T + b2
    p = np.exp(y) / np.exp(y).sum(1, keepdims=True)
    loss = -np.log(p[np.arange(5), t]).mean()
    gy = (p - np.eye(3)[t]) / 5
    gh = gy @ w2 * (1 - h * h)
    return loss, {"fc1": w1, "fc2": w2}, {"fc1": gh.T @ x, "fc2": gy.T @ h, "at fc1": gh, "at fc2": gy}


def norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def test_the_numbers_are_those_of_numpy(module: str, tmp_path: Path) -> None:
    found = trace_function(f"{module}:loss")
    loss, weights, gradients = by_hand(tmp_path)
    assert [layer.type for layer in found.layers] == ["linear", "tanh", "linear", "softmax_cross_entropy"]
    assert [layer.name for layer in found.layers] == ["fc1", "1", "fc2", "3"]
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert found.input_rms == pytest.approx(np.sqrt(np.mean(sys.modules[NAME].x ** 2)))
    for layer, name in ((found.layers[0], "fc1"), (found.layers[2], "fc2")):
        assert layer.gradient.norm == pytest.approx(norm(gradients[f"at {name}"]), rel=1e-4)
        seen = layer.parameters["weight"]
        assert seen.norm == pytest.approx(norm(weights[name]), rel=1e-5)
        assert seen.gradient == pytest.approx(norm(gradients[name]), rel=1e-4)
        assert seen.update == pytest.approx(0.01 * norm(gradients[name]) / norm(weights[name]), rel=1e-4)
    assert found.layers[0].gradient.saturated is not None
    assert (found.rate, found.rule) == (0.01, "")


def test_a_returned_optimiser_tells_how_far_it_would_move_and_moves_nothing(module: str, tmp_path: Path) -> None:
    found = trace_function(f"{module}:returned")
    net = sys.modules[NAME].net
    before = [p.data.copy() for p in net.parameters()]
    _, weights, gradients = by_hand(tmp_path)
    assert found.rule == "SGD with rate 0.5"
    assert found.layers[2].parameters["weight"].update == pytest.approx(
        0.5 * norm(gradients["fc2"]) / norm(weights["fc2"]), rel=1e-4
    )
    again = trace_function(f"{module}:returned")
    assert all(np.array_equal(p.data, old) for p, old in zip(net.parameters(), before, strict=True))
    assert [layer.update for layer in again.layers] == pytest.approx([x.update for x in found.layers], nan_ok=True)
    # A rate that is asked for goes first.
    assert trace_function(f"{module}:returned", rate=0.5).layers[0].update == pytest.approx(found.layers[0].update)


def test_a_method_sees_the_fields_of_its_object(module: str) -> None:
    found = trace_function(f"{module}:trainer.loss")
    assert found.rule == "SGD with rate 0.25"
    assert [layer.name for layer in found.layers] == ["model.fc1", "1", "model.fc2", "3"]


def test_an_optimiser_that_stands_in_the_module_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, monkeypatch, WITH_ADAM)
    found = trace_function(f"{NAME}:loss")
    module = sys.modules[NAME]
    weight = module.net.fc1.weight.data
    assert found.rule == "Adam with rate 0.01"
    # Adam's first step is rate * sign(gradient), as good as.
    assert found.layers[0].parameters["weight"].update == pytest.approx(0.01 * math.sqrt(24) / norm(weight), rel=1e-3)
    assert (module.optimizer.iteration, module.optimizer.memory) == (0, {})


def test_a_step_that_goes_back_and_updates_by_itself(module: str, tmp_path: Path) -> None:
    written_before = trace_function(f"{module}:loss")
    _, weights, gradients = by_hand(tmp_path)
    found = trace_function(f"{module}:plain_step")
    assert found.rule == "the function's own update"
    assert found.loss == pytest.approx(written_before.loss)
    assert [x.gradient.norm for x in found.layers] == pytest.approx([x.gradient.norm for x in written_before.layers])
    for layer, name in ((found.layers[0], "fc1"), (found.layers[2], "fc2")):
        assert layer.parameters["weight"].update == pytest.approx(
            0.25 * norm(gradients[name]) / norm(weights[name]), rel=1e-4
        )
    with pytest.raises(UndertowError, match="it goes back more than once"):
        trace_function(f"{module}:twice")


def test_of_a_loss_and_a_prediction_the_loss_is_differentiated(module: str) -> None:
    found = trace_function(f"{module}:with_prediction")
    assert found.layers[-1].gradient.norm == 1
    assert found.notes == []


def test_results_without_a_loss_begin_with_random_gradients(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{module}:raw", "-shape", "2x4"]) == 0
    told = capsys.readouterr()
    assert "the result is no loss: the gradient begins as random numbers at it" in told.err
    assert "no loss, rate 0.01 behind update/weight" in told.out
    assert f"{module}:raw: random arrays 2x4, seed 0 (give --data for real ones)" in told.out


def test_a_gradient_of_a_gradient_is_part_of_the_computation(module: str) -> None:
    found = trace_function(f"{module}:penalised")
    assert found.layers[-1].type == "sum"
    assert found.layers[-1].gradient.norm == 1
    assert len(found.layers) > 8


def test_arguments_from_a_file(module: str, tmp_path: Path) -> None:
    loss = trace_function(f"{module}:loss").loss
    x, t = sys.modules[NAME].x, sys.modules[NAME].t
    np.savez(tmp_path / "named.npz", t=t, x=x)
    np.savez(tmp_path / "in_order.npz", x, t)
    for name in ("named", "in_order"):
        found = trace_function(f"{module}:given", data=tmp_path / f"{name}.npz")
        assert found.loss == pytest.approx(loss)
    assert "x 5x4" in trace_function(f"{module}:given", data=tmp_path / "named.npz").about
    assert explain(f"{module}:given", data=tmp_path / "named.npz").about == "4 operations on 5, 5x4"
    np.savez(tmp_path / "words.npz", x=np.array(["a"]))
    with pytest.raises(FormatError, match="'x' holds no numbers"):
        trace_function(f"{module}:given", data=tmp_path / "words.npz")
    with pytest.raises(FormatError, match="there is no such file"):
        trace_function(f"{module}:given", data=tmp_path / "absent.npz")


def test_two_runs_are_compared(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{module}:loss", "-out", "one.npz"]) == 0
    assert main(["trace", f"{module}:loss", "-compare", "one.npz"]) == 0
    assert "forward: no layer's output parts by more than 0.001" in capsys.readouterr().out
    sys.modules[NAME].net.fc2.weight.data[:] *= 2
    assert main(["trace", f"{module}:loss", "-compare", "one.npz"]) == 0
    assert "forward: layer fc2 (linear) is the first to part" in capsys.readouterr().out
    assert main(["trace", f"{module}:returned", "-out", "two.npz"]) == 0
    assert load_trace("two.npz").rule == "SGD with rate 0.5"


def test_explain_and_scope_name_and_number_things_alike(module: str) -> None:
    traced = run_function(f"{module}:loss").trace
    explained = explain(f"{module}:loss")
    page = document(record(Request(f"{module}:loss")), live=False)
    assert [row.name for row in explained.rows[::-1]] == [layer.name for layer in traced.layers]
    assert [layer["name"] for layer in page["layers"]] == [layer.name for layer in traced.layers]
    assert explained.find("fc2").index == explained.find(2).index == 2
    for layer, seen in zip(page["runs"][0]["layers"], traced.layers, strict=True):
        assert layer["gradient"]["norm"] == pytest.approx(seen.gradient.norm)
        assert {name: values[2] for name, values in layer["parameters"].items()} == pytest.approx(
            {name: p.update for name, p in seen.parameters.items()}, nan_ok=True
        )
    step = document(record(Request(f"{module}:plain_step")), live=False)
    assert step["runs"][0]["layers"][0]["gradient"]["norm"] > 0
    assert step["layers"][0]["skipped"] == page["layers"][0]["skipped"]


def test_a_layer_that_is_used_twice_has_two_names() -> None:
    w = ut.Parameter(np.ones((3, 3)), name="fc.weight")
    with ut.trace() as found:
        ut.sum(ut.linear(ut.linear(ut.Variable(np.ones((1, 3))), w), w)).backward()
    assert [layer.name for layer in found.layers] == ["fc", "fc (2)", "2"]

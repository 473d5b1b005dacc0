"""Layers that run the same operations again and again are told once, with counts that add up."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from undertow.cli import main
from undertow.functions.linalg import Linear
from undertow.inspect import repeats
from undertow.inspect.explain import explain, explain_function
from undertow.inspect.formulas import is_free
from undertow.inspect.repeats import counted, sequence
from undertow.inspect.specific import name_of
from undertow.inspect.story import story

LSTM = """[net]
batch=2
inputs=3
time_steps=3

[lstm]
output=2
batch_normalize=0

[cost]
"""


def unfolded(text: str) -> list[str]:
    """The names that a folded line stands for."""
    inner = re.search(r"(\d+) times \(([^()]*)\)", text)
    if inner:
        block = ", ".join([inner[2]] * int(inner[1]))
        return unfolded(text.replace(inner[0], block, 1))
    found = []
    for part in text.split(", "):
        several = re.fullmatch(r"(\d+) times (.*)", part)
        found += [several[2]] * int(several[1]) if several else [part]
    return found


def test_folding_loses_and_invents_nothing() -> None:
    for names in ("a", "abab", "aabaab", "xabbabby", "abcabcabd", "aaaa", "abcd", "ababxabab"):
        lines = sequence(list(names))
        parts = lines[1:-1] or [lines[0].removeprefix("Forward it runs ").partition(";")[0].replace(", then ", ", ")]
        assert [name for part in parts for name in unfolded(part.strip())] == list(names)
    assert sequence(list("abab"))[1:-1] == ["  2 times (a, b)"]


def test_lines_are_counted_in_order() -> None:
    assert counted(["a", "b", "a"]) == ["a, 2 times", "b"]


def test_a_recurrent_layer_tells_each_kind_of_operation_once(tmp_path) -> None:
    path = tmp_path / "lstm.cfg"
    path.write_text(LSTM)
    found = explain(path)
    record = found.find(0)
    expected = Counter(name_of(call) for call in record.calls if not is_free(call))
    told = story(found, 0)
    heads = [line for line in told if re.match(r"[a-z_]\S*( \w+)?(: \S+x|, \d+ times:)", line) and "layer" not in line]
    names = [re.split("[:,]", line)[0] for line in heads]
    assert sorted(names) == sorted(expected)
    assert sum("in numbers" in line for line in told) == len(expected)
    assert f"Each kind of operation is told once: {len(expected)} kinds, {sum(expected.values())} operations." in told
    formula = next(row.formula for row in found.rows if row.index == 0)
    assert len(set(formula)) == len(formula) < sum(expected.values())
    activated = [line for line in formula if "darknet_activation logistic" in line]
    counts = [re.search(r", (\d+) times$", line) for line in activated]
    assert sum(int(count[1]) if count else 1 for count in counts) == expected["darknet_activation logistic"]


def test_operations_of_ones_own_with_one_name_are_told_apart() -> None:
    def twin(factor: float) -> type[ut.Function]:
        class Twin(ut.Function):
            def forward(self, x: np.ndarray) -> np.ndarray:
                return x * factor

            def backward(self, gy: np.ndarray) -> np.ndarray:
                return gy * factor

        return Twin

    from undertow.inspect.repeats import kinds

    found = explain_function(lambda x: twin(2.0)()(twin(3.0)()(x)), [(2, 2)])
    assert len(kinds(call for record in found.records for call in record.calls)) == 2


def test_steps_that_are_not_computed_are_told_as_if_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rnn.cfg"
    text = "[net]\nbatch=1\ntime_steps=12\ninputs=6\n[rnn]\noutput=5\nactivation=tanh\n[connected]\noutput=6\n"
    path.write_text(f"{text}[softmax]\n")
    called = []
    whole = Linear.forward
    monkeypatch.setattr(Linear, "forward", lambda self, *xs: (called.append(1), whole(self, *xs))[1])
    spared = explain(path)
    few = len(called)
    monkeypatch.setattr(repeats, "_COMPUTED", 1000)
    computed = explain(path)
    assert few < len(called) - few
    assert spared.rows == computed.rows
    assert story(spared, 1) == story(computed, 1)
    path.write_text(path.read_text().replace("time_steps=12", "time_steps=120"))
    assert main(["explain", str(path)]) == 0
    assert "120 steps, one after the other" in capsys.readouterr().err

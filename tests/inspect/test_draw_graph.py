"""Pictures of graphs: the DOT text, what its labels say, and the files Graphviz makes of it."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

import undertow as ut
from undertow import Parameter, Variable

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


@pytest.fixture
def y():
    x = Variable(np.array([[0.5, 1.0, 2.0]], np.float32), name="x")
    w = Parameter(np.ones((3, 2), np.float32), name="w")
    y = ut.sum(ut.tanh(x @ w) * 2.0)
    y.name = "y"
    return y


def labels(text):
    """The labels of the nodes, by node."""
    found = re.findall(r'^  (\w+) \[label="((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    return {node: label.replace("\\n", "\n") for node, label in found}


def edges(text):
    return re.findall(r"^  (\w+) -> (\w+);$", text, re.MULTILINE)


def test_every_value_and_function_is_there_once(y):
    text = ut.draw(y)
    nodes = labels(text)
    functions = sorted(label for node, label in nodes.items() if node.startswith("f"))
    assert functions == ["MatMul", "Mul", "Sum", "Tanh"]
    # x, w, their product, its tanh, the constant 2, twice that, y.
    assert sum(node.startswith("v") for node in nodes) == 7
    assert len(edges(text)) == 2 + 1 + 2 + 1 + 4


def test_edges_follow_the_computation(y):
    text = ut.draw(y)
    nodes = labels(text)
    by_label = {label.split("\n")[0]: node for node, label in nodes.items()}
    assert (by_label["x"], by_label["MatMul"]) in edges(text)
    assert (by_label["w"], by_label["MatMul"]) in edges(text)
    assert (by_label["Sum"], by_label["y"]) in edges(text)


def test_labels_show_name_shape_type_and_number(y):
    shown = set(labels(ut.draw(y)).values())
    assert "x\n1 x 3 float32" in shown
    assert "w\n3 x 2 float32" in shown
    assert "2\nfloat32" in shown
    assert f"y\n{y.data.item():.6g}\nfloat32" in shown


def test_labels_show_gradients(y):
    assert "grad" not in ut.draw(y)
    y.backward()
    x = y.creator.input.creator.input.creator.input.creator.input
    assert f"x\n1 x 3 float32\n|grad| {np.linalg.norm(x.grad):.4g}" in labels(ut.draw(y)).values()
    single = Variable(np.array(3.0), name="t")
    z = single * single
    z.backward()
    assert "t\n3\nfloat64\ngrad 6" in labels(ut.draw(z)).values()


def test_kinds_of_values_look_different(y):
    text = ut.draw(y)
    styles = dict(re.findall(r'label="(x|w|2|y)\\n[^"]*", (.*)\]', text))
    assert len(set(styles.values())) == 4


def test_names_are_shown_as_they_are(tmp_path):
    name = 'a "b" \\N <i>&lt; ü\n{c|d}'
    x = Variable(np.ones(2), name=name)
    text = ut.draw(x * 1.0)
    assert '"a \\"b\\" \\\\N <i>&amp;lt; ü\\n{c|d}\\n2 float64"' in text
    if shutil.which("dot"):
        ut.draw(x * 1.0, tmp_path / "names.svg")
        svg = (tmp_path / "names.svg").read_text(encoding="utf-8")
        assert "a &quot;b&quot; \\N &lt;i&gt;&amp;lt; ü" in svg
        assert "{c|d}" in svg


def test_control_characters_do_no_harm():
    assert "\x00" not in ut.draw(Variable(np.ones(2), name="a\x00\x1b[31m"))


def test_several_results_and_shared_parts():
    x = Variable(np.array(1.0), name="x")
    a = ut.exp(x)
    text = ut.draw([a * 2.0, a * 3.0])
    assert sorted(label for node, label in labels(text).items() if node.startswith("f")) == ["Exp", "Mul", "Mul"]


def test_a_function_with_outputs_that_are_gone():
    x = Variable(np.arange(6.0))
    first = ut.split(x, 3)[0]
    assert len(labels(ut.draw(first))) == 3


def test_a_lone_value_without_data():
    assert labels(ut.draw(Variable(None, name="later"))) == {"v0": "later\nno data"}


def test_a_long_chain_needs_no_recursion():
    y = Variable(np.array(1.0))
    for _ in range(5000):
        y = -y
    assert ut.draw(y).count("Neg") == 5000


def test_sideways(y):
    assert "rankdir=TB" in ut.draw(y)
    assert "rankdir=LR" in ut.draw(y, sideways=True)


def test_text_files_hold_the_text(y, tmp_path):
    for ending in ("dot", "gv"):
        path = tmp_path / f"graph.{ending}"
        assert ut.draw(y, path) == path.read_text(encoding="utf-8")


@needs_dot
@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_pictures(ending, start, y, tmp_path):
    path = tmp_path / f"graph.{ending}"
    ut.draw(y, str(path))
    assert path.read_bytes().startswith(start)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@needs_dot
def test_the_picture_shows_the_labels(y, tmp_path):
    y.backward(retain_grad=True)
    ut.draw(y, tmp_path / "graph.svg")
    svg = (tmp_path / "graph.svg").read_text(encoding="utf-8")
    for text in ("MatMul", "Tanh", "1 x 3 float32", "|grad|", ">w<", ">y<"):
        assert text in svg


def test_without_graphviz_the_message_says_what_to_install(y, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ut.UndertowError, match=r"needs the program 'dot' of Graphviz.*apt install graphviz.*\.dot file"
    ):
        ut.draw(y, tmp_path / "graph.svg")
    assert list(tmp_path.iterdir()) == []
    assert ut.draw(y, tmp_path / "graph.dot").startswith("digraph")


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell to stand in for dot")
def test_what_graphviz_complains_of_is_passed_on(y, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho 'out of ink' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ut.UndertowError, match="could not draw the graph: out of ink"):
        ut.draw(y, tmp_path / "graph.svg")
    assert not (tmp_path / "graph.svg").exists()


def test_another_ending_is_refused(y, tmp_path):
    with pytest.raises(ut.UndertowError, match=r"cannot be written as '\.bmp'.*\.dot, \.gv, \.svg, \.png, \.pdf"):
        ut.draw(y, tmp_path / "graph.bmp")

"""Runs every example in its quick form and checks what came out, not only that it ran."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str) -> Any:
    return load(name).main(["--quick", *arguments])


def colours(path: Path) -> int:
    with Image.open(path) as picture:
        picture.load()
        return len(picture.convert("RGB").getcolors(1 << 24))


def test_three_ways_and_differences_give_the_same_slope() -> None:
    slopes = run("three_steps")
    assert slopes["by differences"] == pytest.approx(3.297442541400256, abs=1e-6)
    for name in ("by hand", "by following the notes", "by backward"):
        assert slopes[name] == 3.297442541400256, name
    assert run("three_steps", "--x", "0")["by backward"] == 0


def test_higher_derivatives_match_the_formulas(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curves = run("higher_derivatives", "--out", str(tmp_path))
    x = np.linspace(-4, 4, 41)
    sine = [np.sin(x), np.cos(x), -np.sin(x), -np.cos(x), np.sin(x)]
    t = np.tanh(x)
    tanh = [t, 1 - t**2, -2 * t * (1 - t**2), (1 - t**2) * (6 * t**2 - 2)]
    for found, expected in ((curves["sin"], sine), (curves["tanh"], tanh)):
        assert len(found) == len(expected)
        for ours, formula in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, formula, atol=1e-12)
    assert colours(tmp_path / "derivatives.png") > 100


def test_newton_arrives_where_gradient_descent_is_still_walking() -> None:
    results = run("rosenbrock")
    (walked, steps), (arrived, jumps) = results["gradient descent"], results["Newton"]
    np.testing.assert_allclose(arrived, [1, 1], atol=1e-3)
    assert jumps < 10
    assert steps == 2000
    assert 0.1 < walked[0] < 0.99  # in the valley, on its way
    assert walked[1] == pytest.approx(walked[0] ** 2, abs=0.01)


def test_the_spiral_is_learned(tmp_path: Path) -> None:
    result = run("spiral", "--out", str(tmp_path))
    assert result["train"] > 0.97
    assert result["test"] > 0.95
    assert colours(tmp_path / "spiral.png") > 100


def test_lenet_reads_the_small_digits_and_resumes_exactly(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    whole = run("mnist_lenet")
    assert whole["accuracy"] > 0.95
    run("mnist_lenet", "--out", str(tmp_path), "--epochs", "1")
    resumed = run("mnist_lenet", "--out", str(tmp_path), "--resume")
    assert resumed == whole


@pytest.mark.reference
def test_lenet_reads_the_real_mnist(reference_data: Path) -> None:
    result = run("mnist_lenet", "--data", str(reference_data / "data" / "mnist"))
    assert result["accuracy"] > 0.86  # after three rounds over 2,000 pictures; PyTorch comes to 0.895
    assert result["updates"] == 375


def test_the_lstm_goes_on_with_the_wave(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("sine_lstm", "--out", str(tmp_path))
    assert result["error"] < 0.006  # the noise alone is 0.0025
    assert result["drift"] < 0.45  # silence would be 0.64 away, a wave of opposite phase 1.27
    assert colours(tmp_path / "sine.png") > 100


def test_the_gru_knows_more_than_frequencies(tmp_path: Path) -> None:
    result = run("char_gru")
    assert result["loss"] < 0.7 * result["frequencies"]
    assert len(result["sample"]) > 400
    own = tmp_path / "text.txt"
    own.write_text("ein kurzer Text, immer wieder. " * 60, encoding="utf-8")
    parrot = run("char_gru", "--text", str(own))
    assert parrot["loss"] < 0.9 * parrot["frequencies"]
    assert set(parrot["sample"]) <= set(own.read_text(encoding="utf-8"))


def test_the_vae_beats_the_average_digit(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    result = run("vae", "--out", str(tmp_path))
    assert result["loss"] < result["average"] - 1.5
    assert colours(tmp_path / "digits_map.png") > 100


def test_a_small_ssd_learns_to_find_things(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    pytest.importorskip("scipy")
    assert run("tiny_ssd", "--out", str(tmp_path / "ssd")) > 0.25
    lines = (tmp_path / "ssd" / "results" / "found_square.txt").read_text().splitlines()
    assert all(re.fullmatch(r"test0\d\d [\d.e-]+( \d+){4}", line) for line in lines)
    assert len({line.split()[0] for line in lines}) == 16


def test_every_example_is_tested_here_and_listed_in_the_readme() -> None:
    tested = set(re.findall(r'run\("(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert tested == set(NAMES)
    listed = set(re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert listed == set(NAMES)


def test_an_example_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "three_steps.py")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1].split() == ["by", "backward", "3.29744254140026"]


@pytest.mark.parametrize("name", NAMES)
def test_every_example_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = load(name)
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--quick" in shown
    assert f"python examples/{name}.py" in shown

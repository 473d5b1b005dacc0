"""Functions of the user's: what is wrong with them is told with their own line, and a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from undertow.cli import main
from undertow.errors import FormatError
from undertow.inspect.users_function import load_function

MODULE = """import numpy as np

import undertow as ut

w = ut.Parameter(np.ones((3, 2)), name="w")
number = 1


def fine(x):
    return ut.sum(ut.linear(x, w))


def raises(x):
    raise RuntimeError("inside")


def wrong_type(x):
    return ut.sum(x) + len(3)


def plain(x):
    return np.sum(x.data)


def constant(x):
    return ut.sum(ut.Variable(np.ones(3), requires_grad=False))


def infinite(x):
    return ut.sum(ut.log(x * 0 - 1))


def leaves(x):
    raise SystemExit(1)


def returns(value):
    return lambda: value() if callable(value) else value


complex_loss = returns(ut.Variable(np.ones(3, complex)))
complex_number = returns(ut.Variable(np.array(1j)))
whole = returns(ut.Variable(np.ones(3, int)))
truth = returns(ut.Variable(np.array(True)))
cut = returns(ut.Variable(np.array(3.0)))
two_of_a_list = returns(lambda: [ut.sum(w), ut.mean(w)])
two_of_a_tuple = returns(lambda: (ut.sum(w), ut.mean(w)))
only_parameter = returns(w)


def misfit():
    return ut.sum(ut.linear(np.ones((2, 5)), w))


def divides():
    return 1 / 0


async def later():
    return ut.sum(w)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "users_functions_under_test"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.parametrize(
    ("function", "shape", "said"),
    [
        ("raises", "2x2", ".py:14: calling it raised RuntimeError: inside. To mend it:"),
        ("wrong_type", "2x2", ".py:18: calling it raised TypeError: object of type 'int' has no len()"),
        ("fine", "2x5", ".py:10: linear: x of shape (2, 5) does not fit weights of shape (3, 2)"),
        ("fine", "2x2,2x2", "it cannot be called with 2 arrays"),
        ("fine", None, "it cannot be called with no arguments"),
        ("leaves", "2x2", ".py:34: calling it ended the program. To mend it: put what runs the program under: if"),
        (
            "plain",
            "2x2",
            "it returns no Variable, but float32: there is nothing to go back from. To mend it: return the loss",
        ),
        ("absent", "2x2", "has no 'absent'. To mend it: its functions are fine, raises, wrong_type"),
        ("number", "2x2", "is no function. To mend it: its functions are fine"),
    ],
)
@pytest.mark.parametrize("command", [["explain"], ["trace"], ["scope", "-html", "page.html"]])
def test_what_is_wrong_is_told_with_its_place(
    command: list[str], function: str, shape: str | None, said: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command[0], f"{module}:{function}", *(["-shape", shape] if shape else []), *command[1:]]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not Path("page.html").exists()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", ["trace", "explain"])
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("complex_loss", "its result has values of type complex128: gradients go back from floats alone"),
        ("complex_number", "its result has values of type complex128"),
        ("whole", "its result has values of type int64"),
        ("truth", "its result has values of type bool"),
        ("cut", "nothing leads to the loss"),
        ("two_of_a_list", "returns a list of 2 single numbers"),
        ("misfit", "does not fit weights of shape (3, 2); x (..., n), w (m, n). To mend it: change that line"),
        ("divides", "ZeroDivisionError: division by zero. To mend it: change that line, or what it reads\n"),
        ("later", "it is an async function"),
    ],
)
def test_functions_without_arguments(
    command: str, function: str, said: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"{module}:{function}"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "shape of each argument" not in told


def test_arguments_for_a_function_without_any(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{module}:cut", "-shape", "2"]) == 2
    assert "To mend it: leave -shape and -data out: it takes no arguments" in capsys.readouterr().err


def test_what_is_taken_as_the_loss_is_told(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("trace", "explain"):
        assert main([command, f"{module}:two_of_a_tuple"]) == 0
        printed = capsys.readouterr()
        assert "of the 2 single numbers that it returns, the first is the loss" in printed.out + printed.err
    assert main(["trace", f"{module}:only_parameter"]) == 0
    assert "no operation took part" in capsys.readouterr().out


def test_a_complex_loss_inside_of_a_trace_has_no_number() -> None:
    import numpy as np

    import undertow as ut

    with ut.trace() as found:
        ut.Variable(np.array(1j)).backward()
    assert np.isnan(found.loss)


def test_a_function_without_a_gradient(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["scope", "-html", "page.html"], ["trace"]):
        assert main([words[0], f"{module}:constant", "-shape", "2", *words[1:]]) == 2
        assert "depends on no parameter and no argument" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_finite_are_shown_without_warnings(module: str) -> None:
    assert main(["explain", f"{module}:infinite", "-shape", "2"]) == 0
    assert main(["scope", f"{module}:infinite", "-shape", "2", "-html", "page.html"]) == 0


def test_a_module_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users_broken_module.py").write_text("import numpy\n\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "users_broken_module:f", "-shape", "2"]) == 2
    assert "users_broken_module.py:3: importing it raised ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trace", "absent_module:f"], "the module 'absent_module' cannot be imported: No module named"),
        (
            ["trace", "m:f", "-batch", "2"],
            "-batch is for a cfg and a prototxt, and this is a function. To mend it: leave",
        ),
        (["trace", "m:f", "-shape", "2", "-data", "f.npz"], "brings the shapes of a function's arguments along"),
        (["explain", "net.prototxt", "-data", "f.npz"], "arrays for a function alone: a net gets a random batch"),
        (["trace", "absent.cfg"], "absent.cfg: there is no such file"),
        (["explain", "absent.cfg", "-dialect", "c"], "there is no dialect 'c' here"),
        (["explain", "net.prototxt", "-size", "8"], "-size is for a cfg, and this is a prototxt"),
        (["explain", "net.prototxt", "-shape", "4"], "no input takes samples of 4"),
        (["scope", "net.prototxt", "-html", "."], ".: this is a folder"),
        (["scope", "net.prototxt", "-html", "absent/page.html"], "there is no such folder to write into"),
        (["scope", "trace.npz"], "scope shows networks, this is a trace. To mend it: undertow trace trace.npz"),
    ],
)
def test_words_that_lead_nowhere(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.scope.networks import LENET

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(LENET)
    (tmp_path / "trace.npz").write_bytes(b"")
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "one batch forward" not in told


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": "word"}, "data.npz: 'images' holds no numbers"),
        ({"images": (2, 3, 8, 8)}, "data.npz: the network takes samples of 3 x 16 x 16, got an array (2, 3, 8, 8)"),
        ({"images": (0, 3, 16, 16)}, "got an array (0, 3, 16, 16)"),
        ({"images": (2, 3, 16, 16), "truth": (2, 99)}, "data.npz: the truth of 2 samples has 2 x 5 values"),
        ({"images": (2, 3, 16, 16), "truth": "word"}, "data.npz: the truth holds no numbers"),
    ],
)
def test_arrays_that_do_not_fit(
    arrays: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import numpy as np

    from tests.scope.networks import RESIDUAL

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.cfg").write_text(RESIDUAL)
    made = {k: np.array([v, v]) if isinstance(v, str) else np.zeros(v, np.float32) for k, v in arrays.items()}  # type: ignore[arg-type]
    np.savez(tmp_path / "data.npz", **made)
    assert main(["trace", "net.cfg", "-data", "data.npz"]) == 2
    assert said in capsys.readouterr().err


def test_an_input_takes_another_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.scope.networks import LENET

    (tmp_path / "net.prototxt").write_text(LENET)
    assert main(["explain", str(tmp_path / "net.prototxt"), "-shape", "1x32x32"]) == 0
    assert "conv1  Convolution      1x1x32x32 -> 1x20x28x28" in capsys.readouterr().out


def test_files_and_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = tmp_path / "users_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner.parent / "other.py").write_text("import undertow as ut\n\n\ndef f(x):\n    return ut.sum(ut.tanh(x))\n")
    (inner / "users_module.py").write_text("from ..other import f\n")
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "users_loose.py").write_text("from . import other\n")
    (loose / "json.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    for text in ("users_package/inner/users_module.py:f", "users_package/inner/users_module:f",
                 f"{inner}/users_module.py:f", "users_package.inner.users_module:f"):  # fmt: skip
        assert main(["explain", text, "-shape", "2x3"]) == 0
        assert "tanh: gx = (1 - y^2) gy" in capsys.readouterr().out
    for text, said in (
        ("loose/users_loose.py:f", "To mend it: write an empty __init__.py beside it"),
        ("loose/none.py:f", "loose/none.py: there is no such file"),
        ("loose/json.py:f", "a module called 'json' is imported already"),
        ("../none:f", "there is no such file"),
        (".loose:f", "there is no module called '.loose'"),
    ):
        assert main(["explain", text, "-shape", "2x3"]) == 2
        assert said in capsys.readouterr().err


def test_a_missing_module_that_a_module_imports_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needs.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(FormatError, match=r"install 'nowhere_to_be_found', which it imports"):
        load_function("needs:f")
    with pytest.raises(FormatError, match=r"a module beside you"):
        load_function("missing_itself:f")


def test_a_python_file_without_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "trace", "scope"):
        assert main([command, "model.py"]) == 2
        assert "this is a Python file" in capsys.readouterr().err

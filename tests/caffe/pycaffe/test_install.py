"""`import caffe`, scripts run as they are, and the names of the whole program."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import undertow.caffe as caffe
from tests.caffe.pycaffe.nets import write
from undertow.errors import UndertowError, UndertowWarning

ROOT = Path(__file__).parents[3]
# glog's line: letter, month and day, time with microseconds, process, file and line.
LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] ")


@pytest.fixture
def installed() -> Iterator[None]:
    caffe.install()
    yield
    caffe.uninstall()


def test_names_of_the_original_are_this_package(installed: None) -> None:
    for name in (
        "",
        ".io",
        ".proto",
        ".proto.caffe_pb2",
        ".draw",
        ".coord_map",
        ".net_spec",
        ".classifier",
        ".pycaffe",
    ):
        assert importlib.import_module(f"caffe{name}") is importlib.import_module(f"undertow.caffe{name}")
    module = importlib.import_module("caffe.coord_map")
    assert module.__name__ == "undertow.caffe.coord_map"
    assert module.__spec__ is not None
    assert module.__spec__.name == "undertow.caffe.coord_map"
    assert importlib.import_module("caffe._caffe").layer_type_list() == caffe.layer_type_list()
    with pytest.raises(ImportError):
        importlib.import_module("caffe.nothing")
    caffe.install()
    caffe.uninstall()
    assert "caffe" not in sys.modules


def test_nets_and_solvers_in_the_modules_that_scripts_take_them_from(installed: None) -> None:
    for module in (importlib.import_module("caffe._caffe"), importlib.import_module("caffe.pycaffe")):
        assert module.Net is caffe.Net
        assert module.SGDSolver is caffe.SGDSolver
        assert module.AdamSolver is caffe.AdamSolver
        with pytest.raises(AttributeError, match="Nothing"):
            module.Nothing  # noqa: B018
    assert caffe._caffe.Layer is caffe.Layer
    assert caffe._caffe.get_solver is caffe.get_solver
    assert caffe._caffe.Blob is caffe.Blob


def test_modules_of_a_checkout_are_found_beside_this_package(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "python" / "caffe"
    (folder / "more").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('the compiled package is not imported')\n")
    (folder / "io.py").write_text("raise RuntimeError('this package has it')\n")
    (folder / "model_libs_of_a_fork.py").write_text(
        "import caffe\nfrom caffe import layers as L\nfrom .proto import caffe_pb2\nVALUE = caffe.TEST\n"
    )
    (folder / "more" / "inner.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path / "python"))
    module = importlib.import_module("caffe.model_libs_of_a_fork")
    assert module.VALUE == 1
    assert module.L is caffe.layers
    assert module.caffe_pb2 is caffe.proto.caffe_pb2
    assert importlib.import_module("caffe.io") is caffe.io
    assert importlib.import_module("caffe.more.inner").VALUE == 5
    with pytest.raises(ImportError):
        importlib.import_module("caffe.more.nothing")


def test_another_caffe_is_not_replaced() -> None:
    sys.modules["caffe"] = ModuleType("caffe")
    try:
        with pytest.raises(UndertowError, match="another caffe has been imported"):
            caffe.install()
    finally:
        del sys.modules["caffe"]


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", "undertow.caffe", *words], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_a_script_runs_as_it_is(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "helper.py").write_text("FACTOR = 3\n")
    (tmp_path / "script.py").write_text(
        "import sys\nimport caffe\nfrom caffe import layers as L\nfrom helper import FACTOR\n"
        "caffe.set_mode_cpu()\n"
        "class Own(caffe.Layer):\n    pass\n"
        "net = caffe.Net(sys.argv[1], caffe.TRAIN)\n"
        "caffe.log('hello log')\n"
        "print(__name__, sys.argv, FACTOR, sorted(net.forward()))\n"
    )
    done = run("script.py", "net.prototxt", "-x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ ['script.py', 'net.prototxt', '-x'] 3 ['loss']\n"
    lines = done.stderr.splitlines()
    assert any(LINE.match(line) and line.endswith("] hello log") for line in lines)
    quiet = run("script.py", "net.prototxt", cwd=tmp_path, GLOG_minloglevel="2")
    assert "hello log" not in quiet.stderr
    assert run("nothing.py", cwd=tmp_path).returncode == 2
    assert run("--help", cwd=tmp_path).returncode == 0
    done = run("-c", "import sys, caffe\nprint(sys.argv[1:], caffe.TEST)", "a", cwd=tmp_path)
    assert done.stdout == "['a'] 1\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("print 'hello'\n", 1, "print 'hello'"),
        ("import caffe\ntry:\n    pass\nexcept OSError, e:\n    pass\n", 4, "multiple exception types"),
        ("for i in xrange(3):\n    pass\n", 1, "name 'xrange' is not defined: for i in xrange(3):"),
        ("\nimport cPickle\n", 2, "No module named 'cPickle'"),
        ("import caffe\nfor p in caffe.Net('net.prototxt', 0).params.iteritems():\n    pass\n", 2, "'iteritems'"),
        ("eval('print 1')\n", 1, "eval('print 1')"),
    ],
)
def test_scripts_for_python_2_are_told_how_to_go_on(tmp_path: Path, text: str, line: int, reason: str) -> None:
    write(tmp_path)
    (tmp_path / "script.py").write_text(text)
    done = run("script.py", cwd=tmp_path, GLOG_minloglevel="3")
    assert done.returncode == 1
    (told,) = done.stderr.splitlines()
    assert re.match(rf"error: (.*/)?script\.py:{line}: ", told)
    assert reason in told
    assert re.search(r"`2to3 -w (.*/)?script\.py`", told)


def test_tabs_lists_and_programs_of_python_2(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("if 1:\n        pass\n\tpass\n")
    told = run("script.py", cwd=tmp_path).stderr
    assert re.search(r"error: .*script\.py:3: inconsistent use of tabs.* `expand -t 8 .*script\.py` makes blanks", told)
    (tmp_path / "script.py").write_text("print({1: 2}.keys()[0])\n")
    told = run("script.py", cwd=tmp_path).stderr
    assert "script.py" in told
    assert told.rstrip().endswith("puts list(...) around it.")
    assert "error: program.py:1: Missing parentheses" in run("-c", "print 1", cwd=tmp_path).stderr


def test_python_2_in_a_module_of_a_script_is_told_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def show():\n    print 1\n")
    (tmp_path / "script.py").write_text("import helper\n")
    told = run("script.py", cwd=tmp_path).stderr
    assert re.search(r"error: .*helper\.py:2: Missing parentheses.* `2to3 -w .*helper\.py`", told)


def test_one_number_in_an_array_is_told_of_where_numpy_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import numpy as np\nprint('%.1f' % np.ones(1))\n")
    done = run("script.py", cwd=tmp_path)
    if done.returncode == 0:  # NumPy before 2.4
        assert done.stdout == "1.0\n"
    else:
        assert done.stderr.rstrip().endswith("pip install 'numpy<2.4'.")
        assert "script.py" in done.stderr
    (tmp_path / "script.py").write_text("len(5)\n")
    assert "numpy" not in run("script.py", cwd=tmp_path).stderr


def test_errors_of_this_project_are_told_with_the_lines_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import caffe\ndef load():\n    return caffe.Net('no.prototxt', caffe.TEST)\nload()\n"
    )
    done = run("script.py", cwd=tmp_path, GLOG_minloglevel="3")
    assert done.returncode == 1
    assert re.sub(r" +\S*script\.py", " script.py", done.stderr) == (
        "error: Could not open file no.prototxt. To mend it: check the path\n"
        " script.py:4: load()\n"
        " script.py:3: return caffe.Net('no.prototxt', caffe.TEST)\n"
    )


def test_other_errors_of_scripts_are_shown_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("undefined\n")
    done = run("script.py", cwd=tmp_path)
    assert done.stderr.endswith("NameError: name 'undefined' is not defined\n")
    assert "Traceback" in done.stderr
    assert "2to3" not in done.stderr


def test_names_of_the_whole_program() -> None:
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)
    assert caffe.__version__ == "1.0.0"
    for name in ("Data", "Convolution", "InnerProduct", "Python"):
        assert name in caffe.layer_type_list()
    assert caffe.has_nccl() is False
    with pytest.warns(UndertowWarning, match="on the CPU"):
        caffe.set_mode_gpu()
    caffe.set_device(0)
    caffe.set_solver_count(2)
    assert caffe.solver_count() == 2
    with pytest.raises(RuntimeError, match="no NCCL here that could link 2 solvers"):
        caffe.NCCL(None, caffe.NCCL.new_uid())
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    assert caffe.solver_rank() == 0
    timer = caffe.Timer()
    timer.start()
    timer.stop()
    assert 0 <= timer.ms == timer.ms


def test_names_inside_the_modules() -> None:
    """What the original's modules import is found there by scripts."""
    from undertow.caffe import coord_map, draw, net_spec, pycaffe

    assert draw.caffe_pb2 is net_spec.caffe_pb2 is caffe.proto.caffe_pb2
    assert coord_map.L is caffe.layers
    assert (pycaffe.Timer, pycaffe.NCCL) == (caffe.Timer, caffe.NCCL)


def test_everything_exported_is_there() -> None:
    for name in caffe.__all__:
        assert hasattr(caffe, name), name

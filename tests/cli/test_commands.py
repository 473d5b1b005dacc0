"""The words of the command itself: help, versions, what is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import undertow as package
from tests.cli.conftest import Answer
from undertow.cli.darknet import ELSEWHERE, groups, singles


def test_help_lists_every_function_and_flag(undertow: Callable[..., Answer]) -> None:
    answer = undertow("darknet", "help")
    assert answer.status == 0
    for command in (*(command for group in groups().values() for command in group), *singles().values()):
        assert f"undertow {command.usage}" in answer.out
        for flag in command.flags:
            assert flag.usage in answer.out
            assert flag.help in answer.out
    assert "undertow demo" in undertow("help").out
    assert undertow("--help").status == 0
    assert undertow().status == 2


def test_help_of_one_function(undertow: Callable[..., Answer]) -> None:
    answer = undertow("darknet", "detector", "train", "--help")
    assert answer.status == 0
    assert "-save_every N" in answer.out
    assert "-ext_output" not in answer.out
    assert undertow("darknet", "detector", "train", "-h").out == answer.out


@pytest.mark.parametrize("word", ["help", "--help", "-h"])
def test_help_of_the_detector(undertow: Callable[..., Answer], word: str) -> None:
    answer = undertow("darknet", "detector", word)
    assert answer.status == 0
    assert all(f"undertow {command.usage}" in answer.out for command in groups()["detector"])
    assert undertow("darknet", "help", "detector").out == answer.out
    assert "undertow darknet rnn" not in answer.out


@pytest.mark.parametrize(
    "words",
    [
        "trace NET -out NET", "trace NET -data BATCH -out LINK", "scope NET -html NET",
        "scope NET -data BATCH -html ./BATCH", "convert NET WEIGHTS WEIGHTS", "darknet partial NET WEIGHTS WEIGHTS 1",
        "darknet average NET WEIGHTS OTHER WEIGHTS", "darknet detector test DATA NET WEIGHTS PHOTO.jpg -out PHOTO",
        "caffe compute_image_mean BATCH BATCH",
    ],
)  # fmt: skip
def test_what_a_command_reads_is_not_written_over(
    undertow: Callable[..., Answer], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NET", "BATCH", "WEIGHTS", "OTHER", "DATA", "PHOTO.jpg"):
        (tmp_path / name).write_text("[net]\n")
    (tmp_path / "LINK").symlink_to("BATCH")
    answer = undertow(*words.split())
    assert answer.status == 2
    assert "would write over" in answer.err
    assert "which this command reads. To mend it: give what is written another name" in answer.err
    assert all(path.read_text() == "[net]\n" for path in tmp_path.iterdir())


def test_files_of_another_kind_are_not_written_over(
    undertow: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.cfg").write_text("[net]\nwidth=4\nheight=4\nchannels=1\n[softmax]\n")
    (tmp_path / "other.cfg").write_text("mine")
    for words in (["scope", "net.cfg", "-html"], ["trace", "net.cfg", "-out"]):
        answer = undertow(*words, "other.cfg")
        assert answer.status == 2
        assert "other.cfg: there is such a file, and by its name it is no " in answer.err
    assert (tmp_path / "other.cfg").read_text() == "mine"


def test_version(undertow: Callable[..., Answer]) -> None:
    assert undertow("--version").out == f"undertow {package.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["darkent"], "there is no command 'darkent'. To mend it: did you mean darknet?"),
        (["detector", "test"], "undertow darknet detector ..."),
        (["darknet", "detectr"], "there is no function 'detectr'. To mend it: did you mean detector?"),
        (["darknet", "regressor", "train"], "'regressor' of the C program is not offered. To mend it: "),
        (["darknet", "detector"], "which function?"),
        (["darknet", "detector", "trian"], "did you mean train?"),
        (["darknet", "detector", "extract"], "'detector extract' of the C program is not offered. To mend it: "),
        (["darknet", "detector", "train"], "DATA is missing"),
    ],
)
def test_unknown_words_are_answered_with_the_nearest(
    undertow: Callable[..., Answer], words: list[str], message: str
) -> None:
    assert message in undertow(*words).error


def test_functions_that_are_there_are_not_called_missing() -> None:
    for name, group in groups().items():
        assert not {command.name.split()[-1] for command in group} & set(ELSEWHERE[name])
    assert not {*groups(), *singles()} & set(ELSEWHERE[""])


def test_every_function_of_the_original_is_there_or_answered() -> None:
    """The words of examples/darknet.c, detector.c, classifier.c and rnn.c."""
    words = {
        "": "average yolo super lsd detector detect cifar go rnn coco classify classifier regressor isegmenter "
        "segmenter art tag 3d test nightmare rgbgr reset denormalize statistics normalize rescale ops speed oneoff "
        "oneoff2 print partial visualize mkimg imtest",
        "detector": "test train valid valid2 recall demo map calc_anchors draw",
        "classifier": "predict fout try train demo gun threat test csv label valid validmulti valid10 validcrop "
        "validfull",
        "rnn": "train valid validtactic vec generate generatetactic",
    }
    for group, names in words.items():
        known = {*groups(), *singles()} if not group else {one.name.split()[-1] for one in groups()[group]}
        assert set(names.split()) <= known | set(ELSEWHERE[group])


def test_the_module_is_the_command(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "undertow", "darknet", "detector", "test", "no.data", "no.cfg", "no.weights"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: no.data: cannot be read: No such file or directory")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.parametrize("how", ["module", "script", "library"])
def test_ctrl_c_during_the_imports(how: str, tmp_path: Path) -> None:
    """NumPy's place is taken by a module that sends the signal, as somebody does who presses the keys at once."""
    (tmp_path / "numpy").mkdir()
    send = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"
    (tmp_path / "numpy" / "__init__.py").write_text(send)
    script = tmp_path / ("undertow" if how == "script" else "mine.py")
    script.write_text("import sys\nfrom undertow.cli import main\nsys.exit(main())\n")
    words = ["-m", "undertow"] if how == "module" else [str(script)]
    folder = str(Path(package.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), folder))}
    done = subprocess.run(
        [sys.executable, *words, "help"], env=environment, capture_output=True, text=True, check=False
    )
    if how == "library":  # a program of somebody else's: Python's own way
        assert "KeyboardInterrupt" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_the_command_starts_quickly_and_without_optional_packages() -> None:
    """Help needs neither NumPy-heavy modules nor rich nor matplotlib."""
    code = (
        "import sys; from undertow.cli import main; main(['--version']); "
        "print([name for name in ('rich', 'matplotlib', 'PIL', 'sklearn') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ("-nogpu", "detector", "test"),
        ("-i", "0", "detector", "test"),
        ("-i=0", "-nogpu", "detector", "test"),
        ("detector", "-thresh", ".3", "test"),
        ("detector", "-i", "0", "-gpus", "0,1", "test"),
        ("-nogpu", "detector", "-thresh", ".3", "test", "-hier", ".4"),
    ],
)
def test_flags_may_stand_before_the_function(undertow: Callable[..., Answer], words: tuple[str, ...]) -> None:
    answer = undertow("darknet", *words)
    assert answer.status == 2
    assert "darknet detector test: DATA is missing" in answer.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-thersh", ".3", "detector", "test"), "darknet has no flag '-thersh'. To mend it: did you mean -thresh?"),
        (("detector", "-nogpu"), "detector: which function?"),
        (("-nogpu", "detecter"), "there is no function 'detecter'"),
        (("-thresh", "much", "detector", "test"), "-thresh takes a number, not 'much'"),
        (("-nogpu", "partial"), "darknet partial: CFG is missing"),
    ],
)
def test_bad_flags_before_the_function(undertow: Callable[..., Answer], words: tuple[str, ...], message: str) -> None:
    answer = undertow("darknet", *words)
    assert answer.status == 2
    assert message in answer.err


def test_flags_before_help(undertow: Callable[..., Answer]) -> None:
    assert undertow("darknet", "-nogpu", "help").out == undertow("darknet", "help").out
    assert undertow("darknet", "detector", "-nogpu", "-h").out == undertow("darknet", "detector", "help").out

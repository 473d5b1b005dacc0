"""Cfg or prototxt is told by what stands in the file; all commands that take both agree on it."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path

import pytest

from undertow.cli import main
from undertow.inspect.sources import is_prototxt

CFG = "[net]\nbatch=1\nwidth=4\nheight=4\nchannels=1\n[convolutional]\nfilters=2\nsize=1\nactivation=linear\n"
NET = 'layer { name: "a" type: "Input" top: "a" input_param { shape { dim: [1, 3] } } }\n'
NET += 'layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 2 } }\n'


@pytest.mark.parametrize(
    ("text", "caffe"),
    [
        (CFG, False),
        ("\n# a: b {\n; c {\n\n  [net]", False),
        ("batch=1\n[net]", False),
        ("batch = a:b", False),
        (NET, True),
        ("\ufeff# [net]\n\nname: 'a=b'", True),
        ("layer\n{", True),
        ('#[net]\ninput:"x=1"', True),
        ("net_param <", True),
    ],
)
def test_what_stands_first_decides(tmp_path: Path, text: str, caffe: bool) -> None:
    for name in ("a.cfg", "a.prototxt", "a.pt", "a.txt", "a"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert is_prototxt(path) == caffe


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\0\1\2", b"!"])
def test_else_the_name_does(tmp_path: Path, content: bytes) -> None:
    for name, caffe in (("a.cfg", False), ("a.prototxt", True), ("a.pt", True), ("a", False)):
        (tmp_path / name).write_bytes(content)
        assert is_prototxt(tmp_path / name) == is_prototxt(tmp_path / "missing" / name) == caffe


@pytest.mark.parametrize("name", ["net.pt", "net.txt", "net.cfg"])
def test_commands_take_a_prototxt_of_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path = tmp_path / name
    path.write_text(NET)
    for words in (["explain"], ["trace"], ["trace", "-dialect", "caffe"], ["check"]):
        assert main([words[0], str(path), *words[1:]]) in (0, 1)
        answer = capsys.readouterr()
        assert "InnerProduct" in answer.out or words == ["check"], answer
        assert "[net]" not in answer.out + answer.err
    assert main(["scope", str(path), "-html", str(tmp_path / "a.html")]) == 0
    packed = re.search(r'id="data" data-packed>(.*?)</script>', (tmp_path / "a.html").read_text(), re.S)
    assert packed is not None
    assert b"InnerProduct" in zlib.decompress(base64.b64decode(packed[1]))
    capsys.readouterr()
    assert main(["convert", str(path), "in", "out"]) == 2
    assert "is a Caffe prototxt" in capsys.readouterr().err


def test_commands_take_a_cfg_of_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(CFG)
    for command in ("explain", "trace"):
        assert main([command, str(path)]) == 0
        assert "convolutional" in capsys.readouterr().out
    assert main(["scope", str(path), "-html", str(tmp_path / "a.html")]) == 0

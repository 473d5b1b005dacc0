"""`undertow check` on nets for texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_check import checked, said
from tests.cli.test_rnn import TEXT, write_cfg
from tests.cli.test_rnn import folder as folder


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_the_time_of_a_recurrent_net_is_measured(undertow: Any, folder: Path, kind: str) -> None:
    write_cfg(folder, kind)
    answer = undertow("check", "net.cfg", "text.txt")
    assert answer.status == 0, answer.out
    assert "(measured)" in answer.out
    assert "picture" not in answer.out.replace("for pictures loaded ahead", "")
    assert "3 streams of 4 samples in an iteration, 12 samples at once" in answer.out


def test_convolutions_within_a_recurrent_net(undertow: Any, folder: Path) -> None:
    write_cfg(folder)
    text = (folder / "net.cfg").read_text().replace("[gru]\noutput=12", "[crnn]\nhidden_filters=8\noutput_filters=8")
    (folder / "net.cfg").write_text(text.replace("inputs=256\n", "inputs=256\nwidth=1\nheight=1\nchannels=256\n"))
    answer = undertow("check", "net.cfg")
    assert answer.status == 0, answer.out
    assert "(measured)" in answer.out


def test_a_text_is_counted(undertow: Any, folder: Path) -> None:
    status, lines, numbers = checked(undertow, "net.cfg", "text.txt")
    assert status == 0, lines
    assert numbers["text.txt"] == {"characters": len(TEXT), "different": len(set(TEXT))}
    assert numbers["rounds"] == pytest.approx(8 * 3 * 4 / len(TEXT))
    assert said(lines, "warning", "max_batches=8 ends before")


def test_texts_that_cannot_be_learned(undertow: Any, folder: Path) -> None:
    (folder / "text.txt").write_bytes(b"abc\0def")
    status, lines, _ = checked(undertow, "net.cfg", "text.txt")
    assert status == 1
    assert said(lines, "error", "byte 3", "0 is no character")
    assert said(checked(undertow, "net.cfg", "none.txt")[1], "error", "none.txt")
    (folder / "text.txt").write_text("ab")
    assert said(checked(undertow, "net.cfg", "text.txt")[1], "warning", "shorter than time_steps=4")
    (folder / "text.txt").write_text("7 300")
    assert said(checked(undertow, "net.cfg", "text.txt", "-tokenized")[1], "error", "'300' is no token")


def test_a_data_file_is_none(undertow: Any, folder: Path) -> None:
    (folder / "some.data").write_text("classes=2\n")
    status, lines, _ = checked(undertow, "net.cfg", "some.data")
    assert status == 0
    assert said(lines, "warning", "some.data is not looked at", "-file of rnn train")


def test_a_net_that_gives_another_number_of_values(undertow: Any, folder: Path) -> None:
    text = (folder / "net.cfg").read_text()
    (folder / "net.cfg").write_text(text.replace("output=256", "output=255"))
    status, lines, _ = checked(undertow, "net.cfg", "text.txt")
    assert status == 1
    assert said(lines, "error", "layer 2: a net for texts", "here 255 and 256")


def test_batch_norm_over_one_value_is_told_before_anything_is_trained(undertow: Any, folder: Path) -> None:
    write_cfg(folder, "rnn")
    text = (folder / "net.cfg").read_text().replace("batch=3", "batch=1").replace("=12", "=12\nbatch_normalize=1")
    (folder / "net.cfg").write_text(text)
    wanted = "net.cfg:14: layer 0: cannot train: batch norm in [rnn]"
    checked = undertow("check", "net.cfg", "-quick")
    assert checked.status == 1
    assert f"error: cfg: {wanted}" in checked.out
    trained = undertow("darknet", "rnn", "train", "net.cfg", "-file", "text.txt")
    assert trained.status == 2
    assert wanted in trained.err
    assert not list(folder.rglob("*.weights"))


def test_a_text_for_a_recurrent_net_that_takes_pictures(undertow: Any, folder: Path) -> None:
    """`rnn train` and `check` say the same of it; nothing of the text is quoted."""
    write_cfg(folder)
    text = (folder / "net.cfg").read_text().replace("[gru]\noutput=12", "[crnn]\nhidden_filters=8\noutput_filters=8")
    (folder / "net.cfg").write_text(text.replace("inputs=256\n", "width=1\nheight=1\nchannels=256\n"))
    answer = undertow("check", "net.cfg", "text.txt", "-quick")
    trained = undertow("darknet", "rnn", "train", "net.cfg", "-file", "text.txt")
    reason = "net.cfg:1: a net for texts takes characters, this one takes pictures"
    assert answer.status == 1
    assert f"error: data: {reason}" in answer.out
    assert f"error: {reason}" in trained.err
    assert "cat" not in answer.out
    (folder / "some.dat").write_text("classes=2\n")
    told = undertow("check", "net.cfg", "some.dat", "-quick").out
    assert "train= is missing" in told
    assert reason not in told

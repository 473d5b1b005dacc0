"""Which program a file was made for."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.darknet.training.scenes import make_scene
from undertow.darknet import load, training
from undertow.darknet.dialect import ALEXEYAB, EXACT
from undertow.darknet.files.cfg import parse_cfg
from undertow.darknet.files.choice import choose_dialect
from undertow.darknet.files.weights_header import WeightsHeader
from undertow.errors import FormatError

NET = "[net]\nwidth=8\nheight=8\nchannels=3\n"
CONV = "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=leaky\n"


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        (NET + CONV.replace("leaky", "mish"), "activation=mish in line 9"),
        (NET + CONV + "[route]\nlayers=-1\ngroups=2\n", "groups=2 in line 12"),
        (NET + CONV + "[avgpool]\n[scale_channels]\nfrom=-2\n", r"section \[scale_channels\] in line 11"),
        (NET + "mosaic=1\n" + CONV, "mosaic=1 in line 5"),
        (NET + CONV + "[crnn]\noutput=4\nhidden=4\npad=1\n", "output=4 in line 11"),
        (NET + CONV, None),
        (NET + "flip=0\n" + CONV, None),
        ("[net]\ninputs=8\n[rnn]\noutput=4\nhidden=4\n", None),
    ],
)
def test_what_the_cfg_says(text: str, sign: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "undertow.darknet"):
        dialect, why = choose_dialect(parse_cfg(text, "n.cfg"))
    assert dialect.name == ("exact" if sign is None else "alexeyab")
    assert sign is None or re.match(sign, why)
    assert f"n.cfg: dialect {dialect.name}" in caplog.text


@pytest.mark.parametrize(("revision", "name"), [(0, "exact"), (4, "exact"), (5, "alexeyab")])
def test_what_the_weights_say(revision: int, name: str, tmp_path: Path) -> None:
    cfg, weights = tmp_path / "n.cfg", tmp_path / "n.weights"
    cfg.write_text(NET + CONV)
    weights.write_bytes(WeightsHeader(0, 2, revision).pack() + bytes(4 * (4 + 4 * 3 * 9)))
    net = load(cfg, weights)
    assert net.dialect.name == name
    assert net.letterbox == (name == "exact")
    net.save_weights(tmp_path / "again.weights")
    assert (tmp_path / "again.weights").read_bytes()[8] == (5 if name == "alexeyab" else 0)


def test_training_goes_by_the_cfg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights to begin with may come from any program; a cfg of the fork would be trained by another loss."""
    scene = make_scene(tmp_path / "scene")
    monkeypatch.chdir(tmp_path)
    start = tmp_path / "start.weights"
    load(scene.cfg, dialect=ALEXEYAB).save_weights(start)
    assert load(scene.cfg, start).dialect is ALEXEYAB
    assert training(scene.data, scene.cfg, start).net.dialect is EXACT
    scene.cfg.write_text(scene.cfg.read_text().replace("activation=leaky", "activation=mish"))
    with pytest.raises(FormatError, match=r"tiny\.cfg:42: training \[yolo\] in the dialect alexeyab"):
        training(scene.data, scene.cfg, start)
    assert training(scene.data, scene.cfg, start, dialect=EXACT).net.layers[0].activation == "mish"

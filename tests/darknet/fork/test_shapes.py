"""Shapes and parameter counts of the nets that the fork ships."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from undertow.darknet import Network
from undertow.darknet.detection.decode import Frame
from undertow.darknet.files.cfg import Config, parse_cfg, read_cfg
from undertow.darknet.files.shapes import infer_shapes
from undertow.errors import FormatError, UndertowWarning

NOT_YET = {"yolov4-tiny_contrastive.cfg": r"\[contrastive\] of AlexeyAB's fork is not supported yet"}


def head_of_the_fork(anchors: str, num: int, mask: str, **read: bool) -> Config:
    filters = 6 * len(mask.split(","))
    text = f"""[net]
width=32
height=32
channels=3
[convolutional]
filters={filters}
activation=linear
[yolo]
classes=1
scale_x_y=1.05
num={num}
anchors={anchors}
mask={mask}
"""
    return parse_cfg(text, "a.cfg", **read)


@pytest.mark.parametrize(
    ("anchors", "num", "mask", "told", "meant"),
    [
        # cspx-p7-mish.cfg: the fork's loop ends after num pairs, and the last mask lies behind them
        ("1,2, 3,4, 5,6", 2, "0,1", "6 values, num=2 needs 4.*the first 4 count", [(1, 2), (3, 4)]),
        ("1,2, 3,4, 5,6", 2, "1,2", "mask names anchor 2.*that the file gives", [(1, 2), (3, 4), (5, 6)]),
        # cspx-p7-mish_hp.cfg: blanks go before commas are looked for, so that two numbers become one
        ("1,2   3,4, 5,6", 3, "0,2", "5 values, num=3 needs 6.*the rest is 0.5", [(1, 23), (4, 5), (6, 0.5)]),
    ],
)
def test_anchors_that_do_not_match_their_number(
    anchors: str, num: int, mask: str, told: str, meant: list[tuple[float, float]]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = Network(head_of_the_fork(anchors, num, mask))
    assert any(re.search(told, str(warning.message)) for warning in caught)
    assert net.layers[-1].anchors.tolist() == [list(pair) for pair in meant]
    net.predict(np.zeros((1, 3, 32, 32), np.float32))
    threshold, found = -1.0, net.layers[-1].head()
    boxes = found.candidates(Frame((32, 32), (32, 32)), threshold).boxes
    first, second = (meant[int(index)] for index in mask.split(","))
    np.testing.assert_allclose(boxes[:2, 2:], np.array([first, second]) / 32, rtol=1e-6)  # exp(0) times the anchor


def test_anchors_that_do_not_match_are_refused_where_nothing_is_defined() -> None:
    with pytest.raises(FormatError, match="mask names anchor 2"), warnings.catch_warnings(action="ignore"):
        Network(head_of_the_fork("1,2, 3,4", 2, "1,2"))
    with pytest.raises(FormatError, match="anchors has 6 values"):
        Network(head_of_the_fork("1,2, 3,4, 5,6", 2, "0,1", strict=True))
    of_2018 = head_of_the_fork("1,2, 3,4, 5,6", 2, "0,1").to_text().replace("scale_x_y=1.05\n", "")
    with pytest.raises(FormatError, match="anchors has 6 values"):
        Network(parse_cfg(of_2018, "a.cfg"))


@pytest.mark.reference
def test_cfgs_that_the_fork_ships(reference_data: Path) -> None:
    """The files are not ours to hold; UNDERTOW_DARKNET_FORK_CFG names the cfg folder of AlexeyAB's source tree."""
    folder = os.environ.get("UNDERTOW_DARKNET_FORK_CFG")
    if not folder:
        pytest.skip("UNDERTOW_DARKNET_FORK_CFG does not name the cfg folder of the fork's sources")
    zoo = json.loads((reference_data / "goldens" / "alexeyab" / "cfg_zoo.json").read_text())
    for name, recorded in zoo.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndertowWarning)
            if name in NOT_YET:
                with pytest.raises(FormatError, match=NOT_YET[name]):
                    infer_shapes(read_cfg(Path(folder) / name))
                continue
            shapes = infer_shapes(read_cfg(Path(folder) / name), fork=True)
        if not recorded["loads"]:
            continue  # the fork crashes or gives up; what it would have made of them is not known
        output = recorded["output"]
        assert shapes.output.out_shape == (output["c"], output["h"], output["w"]), name
        assert shapes.output.outputs == output["outputs"], name
        assert shapes.parameters == recorded["params"], name
        assert Counter(layer.type for layer in shapes) == recorded["layer_types"], name
        if recorded["bflops"] and not any(getattr(layer.options, "xnor", False) for layer in shapes):
            # The fork counts poolings and shortcuts too; of xnor a 32nd.
            assert shapes.bflops == pytest.approx(recorded["bflops"], rel=0.03), name
        for head in recorded["heads"]:
            assert shapes[head["layer"]].out_shape == (head["c"], head["h"], head["w"]), name
            assert shapes[head["layer"]].type == head["type"], name


def test_operations_of_recurrent_convolutions_are_counted() -> None:
    text = "[net]\nwidth=8\nheight=8\nchannels=3\n[{}]\nbatch_normalize=1\nsize=3\npad=1\noutput=4\n{}"
    crnn = infer_shapes(parse_cfg(text.format("crnn", "hidden=2\n"), "a.cfg"), fork=True)
    assert crnn.bflops == pytest.approx(2 * 9 * 64 * (3 * 2 + 2 * 2 + 2 * 4) / 1e9)
    lstm = infer_shapes(parse_cfg(text.format("conv_lstm", "peephole=1\n"), "a.cfg"), fork=True)
    assert lstm.bflops == pytest.approx(2 * 9 * 64 * 4 * (4 * 3 + 4 * 4 + 3 * 4) / 1e9)

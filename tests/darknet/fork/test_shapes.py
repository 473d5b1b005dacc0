"""Shapes and parameter counts of the nets that the fork ships."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from pathlib import Path

import pytest

from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.shapes import infer_shapes
from undertow.errors import FormatError, UndertowWarning

# Broken files: masks beyond num=, and anchors without a comma between them, which the fork reads from foreign memory.
BROKEN = {"cspx-p7-mish.cfg": "anchors has 40 values", "cspx-p7-mish_hp.cfg": "anchors has 31 values"}
NOT_YET = {"yolov4-tiny_contrastive.cfg": r"\[contrastive\] of AlexeyAB's fork is not supported yet"}


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
            if name in BROKEN | NOT_YET:
                with pytest.raises(FormatError, match=(BROKEN | NOT_YET)[name]):
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
        for head in recorded["heads"]:
            assert shapes[head["layer"]].out_shape == (head["c"], head["h"], head["w"]), name
            assert shapes[head["layer"]].type == head["type"], name

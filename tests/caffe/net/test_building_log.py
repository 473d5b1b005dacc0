"""What a net tells while it is built, in Caffe's words."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.building_log import building_lines
from undertow.caffe.glog import LOGGER
from undertow.caffe.net import Net, infer_shapes

IP = 'inner_product_param { num_output: 5 weight_filler { type: "gaussian" } }'
LAYERS = (
    inputs(x=(4, 3), t=(4, 5)),
    layer("ip", "InnerProduct", "x", rest=IP),
    layer("relu", "ReLU", "ip", top="ip"),
    layer("loss", "EuclideanLoss", "ip t"),
)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The lines that are logged at level INFO."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield lines
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def test_layers_shapes_memory_and_gradients() -> None:
    lines = list(building_lines(net(*LAYERS, force=False, dtype=np.float32)))
    assert lines[0].startswith("Initializing net from parameters: \n")
    start = lines.index("Creating Layer ip")
    assert lines[start : start + 5] == [
        "Creating Layer ip",
        "ip <- x",
        "ip -> ip",
        "Setting up ip",
        "Top shape: 4 5 (20)",
    ]
    assert lines[start + 5] == f"Memory required for data: {4 * (12 + 20 + 20)}"
    assert "relu -> ip (in-place)" in lines
    loss = lines.index("Setting up loss")
    assert lines[loss + 1 : loss + 4] == [
        "Top shape: (1)",
        "    with loss weight 1",
        f"Memory required for data: {4 * (12 + 20 + 20 + 20 + 1)}",
    ]
    assert "ip needs backward computation." in lines
    assert "in_x does not need backward computation." in lines
    assert lines[-2:] == ["This network produces output loss", "Network initialization done."]


def test_told_only_where_lines_of_that_level_are_shown(told: list[str]) -> None:
    built = net(*LAYERS)
    assert told == list(building_lines(built))
    told.clear()
    infer_shapes(built.message)
    LOGGER.setLevel(logging.WARNING)
    net(*LAYERS)
    assert told == []


def test_values_of_parameters_are_left_out() -> None:
    lines = list(building_lines(Net(net(*LAYERS).to_message(), "TRAIN")))
    assert lines[0] == "Creating Layer in_x"

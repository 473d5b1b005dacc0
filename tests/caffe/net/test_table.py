"""The table of layer types: complete, documented, open to types of the user's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import undertow.functions as F
from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.layer import Layer
from undertow.caffe.proto import get_schema
from undertow.caffe.proto.schema import forks_with
from undertow.caffe.table import LAYER_TYPES, LayerType, register_layer
from undertow.core.variable import Variable

PAGE = Path(__file__).parents[3] / "docs" / "caffe-nets.md"
# What `caffe.layer_type_list()` of Caffe 1.0 gives on the CPU.
CAFFE = """AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop Data
Deconvolution Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data HDF5Output HingeLoss Im2col
ImageData InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN MemoryData MultinomialLogisticLoss PReLU Parameter
Pooling Power Python RNN ReLU Reduction Reshape SPP Scale Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax
SoftmaxWithLoss Split Swish TanH Threshold Tile WindowData"""  # fmt: skip


def test_all_61_types_of_caffe() -> None:
    assert len(CAFFE.split()) == 61
    assert set(CAFFE.split()) <= set(LAYER_TYPES)


def test_the_page_lists_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Layer types")[2].partition("A type of your own")[0]
    listed = set(re.findall(r"\b[A-Z]\w+", text)) & set(LAYER_TYPES)
    assert listed == set(LAYER_TYPES)


def test_options_are_fields_of_the_schema() -> None:
    fields = get_schema()["LayerParameter"].by_name
    for name, kind in LAYER_TYPES.items():
        known = not kind.options or kind.options in fields or forks_with("LayerParameter", kind.options)
        assert known, name
        assert kind.bottoms[0] <= kind.bottoms[1], name
        assert (kind.build.__doc__ or "").strip(), name


class Squash(Layer):
    """y = x / (1 + |x|)."""

    def compute(self, bottom: Sequence[Variable], params: Sequence[Variable]) -> Variable:
        return bottom[0] / (F.abs(bottom[0]) + 1)


@pytest.fixture
def squash() -> Iterator[None]:
    register_layer("Squash", LayerType(Squash))
    yield
    del LAYER_TYPES["Squash"]


@pytest.mark.usefixtures("squash")
def test_a_type_of_the_users(rng: np.random.Generator) -> None:
    built = net(inputs(x=(2, 3)), layer("y", "Squash", "x"))
    built.blobs["x"].data[...] = x = rng.standard_normal((2, 3))
    built.forward()
    built.blobs["y"].diff[...] = 1
    built.backward()
    np.testing.assert_allclose(built.blobs["y"].data, x / (1 + np.abs(x)))
    np.testing.assert_allclose(built.blobs["x"].diff, 1 / (1 + np.abs(x)) ** 2)

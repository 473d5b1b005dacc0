"""The table of layers that can be built: section type -> class."""

from __future__ import annotations

from undertow.darknet.files.cfg import Section
from undertow.darknet.files.layer_shape import LayerShape
from undertow.darknet.files.options import unsupported_section
from undertow.darknet.files.options_layers import CrnnOptions
from undertow.darknet.layers.layer import BuildContext, Layer
from undertow.darknet.layers.layers_fork import (
    Empty,
    GaussianYolo,
    Implicit,
    LocalAvgpool,
    Reorg3d,
    Sam,
    ScaleChannels,
)
from undertow.darknet.layers.layers_fork_recurrent import ConvLstm, ForkCrnn, History
from undertow.darknet.layers.layers_heads import Detection, Iseg, Region
from undertow.darknet.layers.layers_local import Local
from undertow.darknet.layers.layers_loss import Cost, Logistic, Softmax, Yolo
from undertow.darknet.layers.layers_normal import Batchnorm, L2norm, Normalization
from undertow.darknet.layers.layers_plain import Activation, Avgpool, Maxpool, Route, Shortcut, Upsample
from undertow.darknet.layers.layers_random import Crop, Dropout
from undertow.darknet.layers.layers_recurrent import Crnn, Gru, Lstm, Rnn
from undertow.darknet.layers.layers_reorg import Reorg
from undertow.darknet.layers.layers_weighted import Connected, Convolutional, Deconvolutional

LAYERS: dict[str, type[Layer]] = {
    layer.type: layer
    for layer in (
        Convolutional,
        Deconvolutional,
        Connected,
        Local,
        Maxpool,
        Avgpool,
        Route,
        Shortcut,
        Upsample,
        Reorg,
        Activation,
        Batchnorm,
        Normalization,
        L2norm,
        Dropout,
        Crop,
        Softmax,
        Logistic,
        Cost,
        Detection,
        Region,
        Yolo,
        Iseg,
        Rnn,
        Gru,
        Lstm,
        Crnn,
        LocalAvgpool,
        Reorg3d,
        ScaleChannels,
        Sam,
        Implicit,
        Empty,
        GaussianYolo,
        ConvLstm,
        History,
    )
}


def build_layer(section: Section, shape: LayerShape, context: BuildContext) -> Layer:
    """The layer of a section. Raises FormatError, with file and line, for a type that nothing builds yet."""
    if shape.type not in LAYERS:
        raise unsupported_section(section, LAYERS)
    layer = LAYERS[shape.type]
    if isinstance(shape.options, CrnnOptions) and shape.options.of_fork:
        layer = ForkCrnn
    return layer(shape.options, shape, context)

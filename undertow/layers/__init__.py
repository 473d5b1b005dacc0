"""Layers: parameters and the functions they go into; initialisers; saving."""

from undertow.layers import initializers
from undertow.layers.activations import (
    ELU,
    GELU,
    SELU,
    Activation,
    LeakyReLU,
    Mish,
    PReLU,
    ReLU,
    Sigmoid,
    Softmax,
    Softplus,
    Swish,
    Tanh,
)
from undertow.layers.convolution import Conv2d, ConvNd, Deconv2d, DeconvNd
from undertow.layers.dense import Dropout, Embedding, Flatten, Linear
from undertow.layers.module import Module, ModuleList, Sequential
from undertow.layers.normalization import LRN, BatchNorm, GroupNorm, LayerNorm
from undertow.layers.pooling import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from undertow.layers.recurrent import GRU, LSTM, RNN
from undertow.layers.saving import load, save

__all__ = [
    "ELU",
    "GELU",
    "GRU",
    "LRN",
    "LSTM",
    "RNN",
    "SELU",
    "Activation",
    "AvgPool2d",
    "BatchNorm",
    "Conv2d",
    "ConvNd",
    "Deconv2d",
    "DeconvNd",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool2d",
    "GroupNorm",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleList",
    "PReLU",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Swish",
    "Tanh",
    "initializers",
    "load",
    "save",
]

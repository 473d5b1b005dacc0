"""Small networks for the tests of explain and trace."""

from __future__ import annotations

RESIDUAL = """
[net]
batch=2
width=16
height=16
channels=3
learning_rate=0.01

[convolutional]
batch_normalize=1
filters=8
size=3
stride=1
pad=1
activation=leaky

[convolutional]
filters=4
size=1
stride=1
activation=relu

[convolutional]
filters=8
size=3
stride=1
pad=1
activation=leaky

[shortcut]
from=-3
activation=linear

[maxpool]
size=2
stride=2

[connected]
output=5
activation=linear

[softmax]
"""

CLASSIFIER = """
name: "small"
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 1 dim: 8 dim: 8 } shape { dim: 2 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 0 }
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "ip" type: "InnerProduct" bottom: "conv1" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "aside" type: "Sigmoid" bottom: "ip" top: "aside" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""

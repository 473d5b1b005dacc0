"""Networks for the tests of the page about one network."""

from __future__ import annotations

from tests.inspect.nets import RESIDUAL

LENET = """
name: "LeNet"
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 1 dim: 28 dim: 28 } shape { dim: 2 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1"
  inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""

# One output read by two layers: Caffe puts a Split in, whose two gradients meet at conv1.
BRANCHES = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 1 dim: 8 dim: 8 } shape { dim: 2 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv1" top: "relu" }
layer { name: "sum" type: "Eltwise" bottom: "conv1" bottom: "relu" top: "sum" }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""

ROWS = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 6 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
"""

DETECTOR = """
[net]
batch=1
width=64
height=64
channels=3
learning_rate=0.01

[convolutional]
batch_normalize=1
filters=8
size=3
stride=2
pad=1
activation=leaky

[convolutional]
filters=21
size=1
activation=linear

[yolo]
mask=0,1,2
anchors=8,8, 20,20, 40,40
classes=2
num=3
ignore_thresh=.7
truth_thresh=1
"""

REGION = (
    DETECTOR[: DETECTOR.index("[yolo]")]
    + "[region]\nanchors=4,4, 10,10, 20,20\nclasses=2\ncoords=4\nnum=3\nsoftmax=1\nbias_match=1\nobject_scale=5\n"
)

GRID = (
    DETECTOR[: DETECTOR.index("[convolutional]\nfilters=21")]
    + "[connected]\noutput=108\nactivation=linear\n\n"
    + "[detection]\nclasses=2\ncoords=4\nrescore=1\nside=3\nnum=2\nsqrt=1\ncoord_scale=5\n"
)

__all__ = ["BRANCHES", "DETECTOR", "GRID", "LENET", "REGION", "RESIDUAL", "ROWS"]

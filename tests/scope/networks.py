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


def _ssd_head(source: str, bottom: str, outputs: int) -> str:
    return f"""
layer {{ name: "{source}" type: "Convolution" bottom: "{bottom}" top: "{source}"
  convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "{source}_perm" type: "Permute" bottom: "{source}" top: "{source}_perm"
  permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
layer {{ name: "{source}_flat" type: "Flatten" bottom: "{source}_perm" top: "{source}_flat" }}"""


def _ssd_conv(name: str, bottom: str) -> str:
    return f"""
layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ num_output: 8
  kernel_size: 3 pad: 1 stride: 2 weight_filler {{ type: "msra" }} }} }}
layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}"""


def _ssd_prior(name: str, bottom: str, size: int) -> str:
    return f"""
layer {{ name: "{name}" type: "PriorBox" bottom: "{bottom}" bottom: "data" top: "{name}" prior_box_param {{
  min_size: {size} max_size: {2 * size} variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }} }}"""


def _ssd_join(name: str, *bottoms: str, axis: int = 1) -> str:
    below = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f"""
layer {{ name: "{name}" type: "Concat" {below} top: "{name}" concat_param {{ axis: {axis} }} }}"""


_SSD_BODY = "".join((
    _ssd_conv("c1", "data"), _ssd_conv("c2", "c1"), _ssd_conv("c3", "c2"),
    _ssd_head("loc2", "c2", 8), _ssd_head("conf2", "c2", 6), _ssd_prior("prior2", "c2", 8),
    _ssd_head("loc3", "c3", 8), _ssd_head("conf3", "c3", 6), _ssd_prior("prior3", "c3", 16),
    _ssd_join("loc", "loc2_flat", "loc3_flat"), _ssd_join("conf", "conf2_flat", "conf3_flat"),
    _ssd_join("prior", "prior2", "prior3", axis=2),
))  # fmt: skip

# Two scales, two default boxes in each cell, two classes beside the background.
SSD = f"""
layer {{ name: "data" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: 1 dim: 3 dim: 32 dim: 32 }} shape {{ dim: 1 dim: 1 dim: 2 dim: 8 }} }} }}
{_SSD_BODY}
layer {{ name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "prior" bottom: "label" top: "loss"
  propagate_down: true propagate_down: true propagate_down: false propagate_down: false
  multibox_loss_param {{ num_classes: 3 code_type: CENTER_SIZE mining_type: MAX_NEGATIVE }} }}
"""

# One scale more, to be put before the Concats.
SSD_FOURTH = "".join((
    _ssd_conv("c4", "c3"), _ssd_head("loc4", "c4", 8), _ssd_head("conf4", "c4", 6), _ssd_prior("prior4", "c4", 30),
    "\n",
))  # fmt: skip

SSD_TEST = f"""
layer {{ name: "data" type: "Input" top: "data"
  input_param {{ shape {{ dim: 1 dim: 3 dim: 32 dim: 32 }} }} }}
{_SSD_BODY}
layer {{ name: "scores" type: "Reshape" bottom: "conf" top: "scores"
  reshape_param {{ shape {{ dim: 0 dim: -1 dim: 3 }} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "scores" top: "prob" softmax_param {{ axis: 2 }} }}
layer {{ name: "flat" type: "Flatten" bottom: "prob" top: "flat" }}
layer {{ name: "found" type: "DetectionOutput" bottom: "loc" bottom: "flat" bottom: "prior" top: "found"
  detection_output_param {{ num_classes: 3 code_type: CENTER_SIZE keep_top_k: 20 confidence_threshold: 0.05
    nms_param {{ nms_threshold: 0.45 top_k: 100 }} }} }}
"""

__all__ = ["BRANCHES", "DETECTOR", "GRID", "LENET", "REGION", "RESIDUAL", "ROWS", "SSD", "SSD_FOURTH", "SSD_TEST"]

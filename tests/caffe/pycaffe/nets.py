"""Small nets for scripts."""

from __future__ import annotations

from pathlib import Path

RANDOM = """
name: "small" force_backward: true
layer { type: "DummyData" name: "in" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 2 dim: 5 dim: 5 } shape { dim: 4 }
    data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } } }
layer { type: "Convolution" name: "conv" bottom: "data" top: "c" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { type: "ReLU" name: "relu" bottom: "c" top: "c" }
layer { type: "InnerProduct" name: "ip" bottom: "c" top: "y"
  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { type: "SoftmaxWithLoss" name: "loss" bottom: "y" bottom: "label" top: "loss" loss_weight: 2 }
"""

DEPLOY = """
name: "deploy" force_backward: true
layer { type: "Input" name: "in" top: "data" input_param { shape { dim: 4 dim: 3 } } }
layer { type: "InnerProduct" name: "ip" bottom: "data" top: "h"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { type: "TanH" name: "tanh" bottom: "h" top: "t" }
layer { type: "InnerProduct" name: "ip2" bottom: "t" top: "y"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
"""


def write(folder: Path, text: str = RANDOM, name: str = "net.prototxt") -> str:
    """The path of a file with this text."""
    path = folder / name
    path.write_text(text)
    return str(path)

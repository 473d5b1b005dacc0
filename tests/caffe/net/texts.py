"""Nets from short texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text, upgrade_net
from undertow.core.function import Function


def inputs(**shapes: tuple[int, ...]) -> str:
    """Input layers."""
    lines = []
    for name, shape in shapes.items():
        dims = " ".join(f"dim: {length}" for length in shape)
        lines.append(f'layer {{ name: "in_{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}')
    return "\n".join(lines)


def layer(name: str, kind: str, bottom: str = "", top: str = "", rest: str = "") -> str:
    """One layer; bottoms and tops separated by blanks, the top is called like the layer when none is given."""
    bottoms = " ".join(f'bottom: "{b}"' for b in bottom.split())
    tops = " ".join(f'top: "{t}"' for t in (top or name).split()) if top != "-" else ""
    return f'layer {{ name: "{name}" type: "{kind}" {bottoms} {tops} {rest} }}'


def net(*parts: str, phase: str = "TRAIN", force: bool = True, **options: Any) -> Net:
    """The net of these texts, built for float64 and true derivatives unless said otherwise."""
    text = "\n".join(["force_backward: true" if force else "", *parts])
    message = parse_text(text, "NetParameter")
    upgrade_net(message)
    return Net(message, phase, **{"dtype": np.float64, "seed": 1, **options})


class NetCall(Function):
    """A net's forward and backward on blobs as one operation, from values of blobs and parameters to those of tops.

    names: input blobs, in the order of the arguments; after them come all parameters. outputs: the blobs handed out.
    """

    def __init__(self, net: Net, names: list[str], outputs: list[str]) -> None:
        self.net, self.names, self.outputs_ = net, names, outputs

    def forward(self, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        for place, value in zip(self._places(), values, strict=True):
            place.data[...] = value
        for part in self.net.layers:
            if hasattr(part, "reset"):
                part.reset()
        self.net.forward()
        return tuple(self.net.blobs[name].data.copy() for name in self.outputs_)

    def backward(self, *gys: np.ndarray) -> tuple[np.ndarray, ...]:
        self.net.clear_param_diffs()
        for blob in self.net.blob_list:
            blob.diff[...] = 0
        for name, gy in zip(self.outputs_, gys, strict=True):
            self.net.blobs[name].diff[...] = gy
        self.net.backward()
        return tuple(place.diff.copy() for place in self._places())

    def _places(self) -> list[Any]:
        return [self.net.blobs[name] for name in self.names] + self.net.learnable_params

"""The same nets in PyTorch eager, from the same cfg."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from benchmarks.kernels.static_net import Section, read_cfg


class TorchNet(nn.Module):
    """forward returns the inputs of the yolo layers."""

    def __init__(self, cfg: str | Path, linear: bool = False) -> None:
        super().__init__()
        self.sections = read_cfg(cfg, linear)
        self.layers = nn.ModuleList()
        self.kept: set[int] = set()
        channels: list[int] = []
        before = 3
        for i, section in enumerate(self.sections):
            layer: nn.Module = nn.Identity()
            if section["type"] == "convolutional":
                layer, before = _convolution(section, before), int(section["filters"])
            elif section["type"] == "route":
                sources = self._sources(i, section["layers"])
                self.kept.update(sources)
                before = sum(channels[k] for k in sources)
            elif section["type"] == "shortcut":
                self.kept.update(self._sources(i, section["from"]))
            self.layers.append(layer)
            channels.append(before)

    @staticmethod
    def _sources(i: int, text: str) -> list[int]:
        return [i + k if k < 0 else k for k in map(int, text.split(","))]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        outputs: dict[int, torch.Tensor] = {}
        heads = []
        for i, (section, layer) in enumerate(zip(self.sections, self.layers, strict=True)):
            kind = section["type"]
            if kind == "convolutional":
                x = layer(x)
            elif kind == "shortcut":
                x = x + outputs[self._sources(i, section["from"])[0]]
            elif kind == "route":
                sources = [outputs[k] for k in self._sources(i, section["layers"])]
                x = torch.cat(sources, 1) if len(sources) > 1 else sources[0]
            elif kind == "upsample":
                x = functional.interpolate(x, scale_factor=2, mode="nearest")
            elif kind == "maxpool" and int(section["stride"]) == 1:
                x = functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=float("-inf")), 2, 1)
            elif kind == "maxpool":
                x = functional.max_pool2d(x, 2, 2)
            elif kind == "yolo":
                heads.append(x)
            if i in self.kept:
                outputs[i] = x
        return heads

    def convolutions(self) -> list[nn.Sequential]:
        return [layer for layer in self.layers if isinstance(layer, nn.Sequential)]


def _convolution(section: Section, channels: int) -> nn.Sequential:
    size, normalized = int(section["size"]), bool(int(section.get("batch_normalize", 0)))
    filters, stride = int(section["filters"]), int(section["stride"])
    parts: list[nn.Module] = [nn.Conv2d(channels, filters, size, stride, size // 2, bias=not normalized)]
    if normalized:
        parts.append(nn.BatchNorm2d(filters))
    if section["activation"] == "leaky":
        parts.append(nn.LeakyReLU(0.1, inplace=True))
    return nn.Sequential(*parts)

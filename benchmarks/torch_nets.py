"""The same Darknet networks in PyTorch, with the same loss and the same update."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from undertow.darknet.network import Network


class TorchNet(nn.Module):
    """A Network with its parameters' values.

    It may have convolutional, maxpool, avgpool, route, shortcut, upsample, yolo and softmax layers.
    """

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.kinds = [layer.type for layer in net.layers]
        self.layers: list[Any] = list(net.layers)
        self.blocks = nn.ModuleList(_block(layer) for layer in net.layers)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The inputs of the yolo and softmax layers."""
        outputs: list[torch.Tensor] = []
        heads: list[torch.Tensor] = []
        for kind, layer, block in zip(self.kinds, self.layers, self.blocks, strict=True):
            if kind == "route":
                parts = [outputs[i] for i in layer.input_layers]
                x = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            elif kind == "shortcut":
                x = x + outputs[layer.source]
            elif kind in ("yolo", "softmax"):
                heads.append(x)
            elif kind == "maxpool" and layer.stride == 1:
                x = functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=float("-inf")), 2, 1)
            else:
                x = block(x)
            outputs.append(x)
        return heads


def _block(layer: Any) -> nn.Module:
    if layer.type == "convolutional":
        conv = nn.Conv2d(layer.c, layer.n, layer.size, layer.stride, layer.pad, bias=not layer.batch_normalize)
        _copy(conv.weight, layer.weights)
        parts: list[nn.Module] = [conv]
        if layer.batch_normalize:
            norm = nn.BatchNorm2d(layer.n, eps=1e-5, momentum=0.01)
            _copy(norm.weight, layer.scales)
            _copy(norm.bias, layer.biases)
            _copy(cast(torch.Tensor, norm.running_mean), layer.rolling_mean)
            _copy(cast(torch.Tensor, norm.running_var), layer.rolling_variance)
            parts.append(norm)
        else:
            _copy(cast(torch.Tensor, conv.bias), layer.biases)
        if layer.activation == "leaky":
            parts.append(nn.LeakyReLU(0.1, inplace=True))
        return nn.Sequential(*parts)
    if layer.type == "maxpool":
        return nn.MaxPool2d(layer.size, layer.stride)
    if layer.type == "upsample":
        return nn.Upsample(scale_factor=layer.stride, mode="nearest")
    if layer.type == "avgpool":
        return nn.AdaptiveAvgPool2d(1)
    return nn.Identity()


def _copy(to: torch.Tensor, values: np.ndarray) -> None:
    with torch.no_grad():
        to.copy_(torch.from_numpy(np.array(values, order="C")))


class TorchResidual(nn.Module):
    """relu(main(x) + shortcut(x))."""

    def __init__(self, main: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.main(x) + self.shortcut(x), inplace=True)


class TorchLSTM(nn.Module):
    """An LSTM, from zeros, and a dense layer on its last output. x: (steps, batch, in_size)."""

    def __init__(self, hidden: int, in_size: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(in_size, hidden)
        self.dense = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.dense(self.lstm(x)[0][-1]))


TargetAndWeight = tuple[torch.Tensor, torch.Tensor]


class Targets:
    """The yolo loss with targets and weights ready-made: what Undertow's assignment gave, once, for a batch.

    The loss is Undertow's: cross entropy of x, y, objectness and classes, half the squared error of w and h, weighted.
    PyTorch is thus spared the work of assigning.
    """

    def __init__(self, net: Network) -> None:
        self.parts: list[TargetAndWeight] = []
        for layer in net.layers:
            if layer.type == "yolo":
                assignment = cast(Any, layer)._function.assignment
                self.parts.append((_tensor(assignment.target), _tensor(assignment.weight)))

    @classmethod
    def of(cls, parts: list[TargetAndWeight]) -> Targets:
        """Those of each head, (batch, n, 5 + classes, h, w) both."""
        targets = cls.__new__(cls)
        targets.parts = parts
        return targets

    def loss(self, heads: list[torch.Tensor]) -> torch.Tensor:
        """The sum over the heads."""
        total = torch.zeros(())
        for x, (target, weight) in zip(heads, self.parts, strict=True):
            raw = x.reshape(target.shape)
            entropy = weight * (functional.softplus(raw) - target * raw)
            error = target[:, :, 2:4] - raw[:, :, 2:4]
            total = total + entropy[:, :, :2].sum() + entropy[:, :, 4:].sum()
            total = total + 0.5 * (weight[:, :, 2:4] * error * error).sum()
        return total


class ClassTargets:
    """The loss of a softmax layer: the sum of the cross entropies. truth: one row of 0 and a 1 per sample."""

    def __init__(self, truth: np.ndarray) -> None:
        self.classes = torch.from_numpy(truth.argmax(axis=1))

    def loss(self, heads: list[torch.Tensor]) -> torch.Tensor:
        return functional.cross_entropy(heads[0].flatten(1), self.classes, reduction="sum")


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array, np.float32, order="C"))


class TorchTrainer:
    """One training step at a time."""

    def __init__(self, net: Network, memory_format: torch.memory_format, compiled: bool = False) -> None:
        self.format = memory_format
        self.model = cast(Any, TorchNet(net)).to(memory_format=memory_format)
        self.run: Any = torch.compile(self.model) if compiled else self.model
        decaying = [p for p in self.model.parameters() if p.ndim == 4]
        others = [p for p in self.model.parameters() if p.ndim != 4]
        batch = net.batch * net.subdivisions
        groups = [
            {"params": decaying, "weight_decay": net.options.decay * batch},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.SGD(groups, lr=net.learning_rate / batch, momentum=net.options.momentum)

    def step(self, images: torch.Tensor, targets: Targets | ClassTargets) -> float:
        """Forward, loss, backward, update."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = targets.loss(self.run(images.to(memory_format=self.format)))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

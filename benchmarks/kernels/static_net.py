"""A Darknet net as a fixed sequence of kernel calls on fixed buffers: the floor under any plan.

Nothing is allocated in a step; gradients share an arena by lifetime; batch norm works in place and recovers its
input from its output; concatenations are slices of one buffer; a shortcut is fused into the convolution before it.
Covers what yolov3 and yolov3-tiny need: convolutional, maxpool, route, shortcut, upsample, yolo.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undertow.kernels.cpu.raw import batchnorm, direct, pooling
from undertow.kernels.cpu.raw.batchnorm import Slope
from undertow.kernels.cpu.raw.convolution import Convolution
from undertow.kernels.cpu.raw.parts import SLOTS, Epilogue
from undertow.kernels.cpu.raw.pooling import Pool
from undertow.kernels.cpu.raw.tensor import Scratch, Tensor, aligned_bytes
from undertow.kernels.geometry import ConvGeometry

LEAKY, EPSILON = 0.1, 1e-5
Section = dict[str, str]


def read_cfg(path: str | Path, linear: bool = False) -> list[Section]:
    """The sections of a cfg behind [net], each with its type. linear: without activations."""
    sections: list[Section] = []
    for line in Path(path).read_text().splitlines():
        text = line.split("#")[0].strip()
        if text.startswith("["):
            sections.append({"type": text[1:-1]})
        elif "=" in text:
            key, value = (part.strip() for part in text.split("=", 1))
            sections[-1][key] = "linear" if linear and key == "activation" else value
    return sections[1:]


def floats(count: int) -> np.ndarray:
    return aligned_bytes(4 * count).view(np.float32)


@dataclass(eq=False)
class Image:
    """N x H x W x C floats, in memory of their own or as a slice of another image's channels."""

    n: int
    h: int
    w: int
    c: int
    parent: Image | None = None
    channel: int = 0
    memory: np.ndarray | None = None

    def root(self) -> tuple[Image, int]:
        image, first = self, 0
        while image.parent is not None:
            first += image.channel
            image = image.parent
        return image, first

    @property
    def size(self) -> int:
        return self.n * self.h * self.w * self.c

    @property
    def tensor(self) -> Tensor:
        image, first = self.root()
        assert image.memory is not None
        return Tensor(image.memory.ctypes.data + 4 * first, 4 * image.c, self.n, self.h, self.w, self.c)

    @property
    def array(self) -> np.ndarray:
        image, first = self.root()
        assert image.memory is not None
        whole = image.memory[: image.size].reshape(image.n, image.h, image.w, image.c)
        return whole[..., first : first + self.c].transpose(0, 3, 1, 2)

    def like(self, c: int | None = None) -> Image:
        return Image(self.n, self.h, self.w, c or self.c)


@dataclass(eq=False)
class Node:
    """One layer. z: its output; g: the gradient of z; source: the node before it; x: its input."""

    type: str
    z: Image
    source: Node | None = None
    x: Image | None = None
    g: Image | None = None
    accumulate: bool = False  # whether g of the source is written before this node's turn
    head: bool = False
    parts: list[Node] = field(default_factory=list)  # of a route
    other: Node | None = None  # of a shortcut
    residual: Node | None = None  # the shortcut fused into this convolution
    conv: Any = None
    pool: Any = None


class Conv:
    """A convolution with its batch norm and activation: weights, statistics, per-channel numbers."""

    def __init__(self, section: Section, x: Image, fast: bool, rng: np.random.Generator, memory: Scratch) -> None:
        k, stride, c = int(section["size"]), int(section["stride"]), int(section["filters"])
        pad = k // 2 if int(section.get("pad", 0)) else 0
        geometry = ConvGeometry((stride, stride), (pad,) * 4)
        self.layer = Convolution(x.n, x.h, x.w, x.c, c, (k, k), geometry, fast)
        self.normalized = bool(int(section.get("batch_normalize", 0)))
        self.slope = LEAKY if section["activation"] == "leaky" else 1.0
        self.w, self.gw = floats(self.layer.packed_size // 4), floats(self.layer.packed_size // 4)
        initial = (rng.standard_normal((c, x.c, k, k)) * np.sqrt(2 / (k * k * x.c))).astype(np.float32)
        self.layer.pack(initial.ctypes.data, self.w.ctypes.data, memory)
        self.bias, self.gbias, self.gamma, self.ggamma = (np.zeros(c, np.float32) for _ in range(4))
        self.gamma[:] = 1
        self.sums = np.zeros((SLOTS, 2, c))
        # scale, shift: y * scale + shift; k1, k0: x_hat = y * k1 + k0; c1, c2, c3: gx = c1 g + c2 y + c3
        self.scale, self.shift, self.k1, self.k0, self.c1, self.c2, self.c3 = np.zeros((7, c), np.float32)
        self.inverse = np.zeros(c)
        self.y: Any = None
        self.gy: Any = None
        self.out: Any = None
        self.in_place = False


def at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


class StaticNet:
    """forward(), backward() of a cfg at one size; heads are the inputs of the yolo layers."""

    def __init__(self, cfg: str | Path, batch: int, size: int, *, fast: bool = True, linear: bool = False) -> None:
        self.rng, self.fast, self.memory = np.random.default_rng(0), fast, Scratch()
        self.nodes: list[Node] = []
        self.x = Image(batch, size, size, 3, memory=floats(batch * size * size * 3))
        self._build(read_cfg(cfg, linear))
        self.heads = [node for node in self.nodes if node.head]
        self._give_memory()
        self._give_gradients()

    def _build(self, sections: list[Section]) -> None:
        outputs: list[Node] = []
        node: Node | None = None
        for i, section in enumerate(sections):
            before, kind = node, section["type"]
            x = before.z if before else self.x
            if kind == "yolo":
                assert before is not None
                before.head = True
                outputs.append(before)
                continue
            if kind == "route":
                indexes = [int(v) for v in section["layers"].split(",")]
                parts = [outputs[i + v if v < 0 else v] for v in indexes]
                if len(parts) == 1:
                    node = parts[0]
                    outputs.append(node)
                    continue
                node = self._route(parts)
            else:
                node = self._layer(kind, section, x, before)
                if kind == "shortcut":
                    assert before is not None
                    before.residual, node.other = node, outputs[i + int(section["from"])]
            self.nodes.append(node)
            outputs.append(node)

    def _route(self, parts: list[Node]) -> Node:
        z = parts[0].z.like(sum(part.z.c for part in parts))
        first = 0
        for part in parts:
            part.z.parent, part.z.channel = z, first
            first += part.z.c
        return Node("route", z, parts=parts)

    def _layer(self, kind: str, section: Section, x: Image, before: Node | None) -> Node:
        if kind == "convolutional":
            conv = Conv(section, x, self.fast, self.rng, self.memory)
            z = Image(x.n, conv.layer.out_h, conv.layer.out_w, conv.layer.outputs)
            return Node(kind, z, before, x, conv=conv)
        if kind == "maxpool":
            stride = int(section["stride"])
            z = Image(x.n, x.h // stride, x.w // stride, x.c)
            node = Node(kind, z, before, x, pool=Pool(2, 2, stride, stride, 0, 0))
            node.conv = np.zeros(z.size, np.int32)  # the winners
            return node
        factor = 2 if kind == "upsample" else 1
        return Node(kind, Image(x.n, x.h * factor, x.w * factor, x.c), before, x)

    def _give_memory(self) -> None:
        for node in self.nodes:
            if node.type == "convolutional":
                conv = node.conv
                conv.in_place = conv.normalized and node.residual is None
                conv.y = node.z
                conv.out = node.residual.z if node.residual else node.z
                if node.residual:
                    conv.y = node.z.like()
                    conv.y.memory = floats(conv.y.size)
            if node.z.parent is None and not (node.type == "convolutional" and node.residual):
                node.z.memory = floats(node.z.size)

    def _give_gradients(self) -> None:
        """Gradients as slices and aliases like the outputs, then an arena shared by lifetime."""
        for node in self.nodes:
            node.g = node.z.like()
        for node in self.nodes:
            first = 0
            for part in node.parts:
                assert part.g is not None
                part.g.parent, part.g.channel = node.g, first
                first += part.z.c
        for node in reversed(self.nodes):  # x' = x + f(x): the gradient of x is added into that of x'
            if node.other is not None:
                assert node.other.g is not None
                node.other.g.parent = node.g
        written = {id(part) for node in self.nodes for part in node.parts}
        written |= {id(node.other) for node in self.nodes if node.other is not None}
        life: dict[Image, tuple[int, int]] = {}

        def touch(image: Image, step: int) -> None:
            first, last = life.get(image.root()[0], (step, step))
            life[image.root()[0]] = min(first, step), max(last, step)

        for step, node in enumerate(reversed(self.nodes)):
            assert node.g is not None
            if node.head:
                touch(node.g, 0)
            if node.type == "route":
                continue
            incoming = node.residual.g if node.residual else node.g
            assert incoming is not None
            touch(incoming, step)
            if node.type == "convolutional":
                node.conv.gy = node.z.like() if node.residual else node.g
                touch(node.conv.gy, step)
            if node.source is not None and node.type != "shortcut":
                node.accumulate = id(node.source) in written
                written.add(id(node.source))
                assert node.source.g is not None
                touch(node.source.g, step)
        self._place(life)

    def _place(self, life: dict[Image, tuple[int, int]]) -> None:
        """First fit, largest first."""
        placed: list[tuple[int, int, int, int]] = []
        offsets: dict[Image, int] = {}
        for image, (first, last) in sorted(life.items(), key=lambda item: -item[0].size):
            size, offset = -(-image.size // 1024) * 1024, 0
            for start, length, begin, end in sorted(placed):
                if not (last < begin or end < first) and offset < start + length and start < offset + size:
                    offset = start + length
            placed.append((offset, size, first, last))
            offsets[image] = offset
        self.arena = floats(max(offset + size for offset, size, _, _ in placed))
        for image, offset in offsets.items():
            image.memory = self.arena[offset:]

    # ---- a step --------------------------------------------------------------------------------------
    def forward(self) -> None:
        for node in self.nodes:
            if node.type == "convolutional":
                self._convolve(node)
            elif node.type == "maxpool":
                pooling.max_forward(_tensor(node.x), node.z.tensor, at(node.conv), node.pool)
            elif node.type == "upsample":
                pooling.replicate(_tensor(node.x), node.z.tensor, 2, 2, 1.0)

    def backward(self) -> None:
        """From the gradients in the heads' g."""
        for node in reversed(self.nodes):
            if node.type == "convolutional":
                self._convolve_backward(node)
            elif node.type == "maxpool":
                assert node.source is not None
                target = _tensor(node.source.g)
                pooling.max_backward(_tensor(node.g), at(node.conv), target, node.pool, accumulate=node.accumulate)
            elif node.type == "upsample":
                assert node.source is not None
                target = _tensor(node.source.g)
                pooling.block_sum(_tensor(node.g), target, 2, 2, 1.0, accumulate=node.accumulate)

    def _convolve(self, node: Node) -> None:
        conv, x = node.conv, _tensor(node.x)
        if not conv.normalized:
            conv.layer.forward(x, at(conv.w), conv.y.tensor, self.memory, Epilogue(bias=at(conv.bias)))
            return
        conv.sums.fill(0)
        conv.layer.forward(x, at(conv.w), conv.y.tensor, self.memory, Epilogue(sums=at(conv.sums)))
        first, second = conv.sums.sum(0)
        count = conv.y.tensor.pixels
        mean = first / count
        conv.inverse = 1 / np.sqrt(np.maximum(second / count - mean * mean, 0) + EPSILON)
        conv.scale[:] = conv.gamma * conv.inverse
        conv.shift[:] = conv.bias - mean * conv.scale
        if conv.in_place:  # x_hat from y = gamma * x_hat + bias
            conv.k1[:], conv.k0[:] = 1 / conv.gamma, -conv.bias / conv.gamma
        else:
            conv.k1[:], conv.k0[:] = conv.inverse, -mean * conv.inverse
        residual = node.residual.other.z.tensor if node.residual and node.residual.other else None
        batchnorm.affine(conv.y.tensor, conv.out.tensor, at(conv.scale), at(conv.shift), conv.slope, residual)

    def _convolve_backward(self, node: Node) -> None:
        conv = node.conv
        gz = _tensor(node.residual.g if node.residual else node.g)
        gy, y = conv.gy.tensor, conv.y.tensor
        if conv.normalized:
            slope = Slope(conv.slope, at(conv.scale), at(conv.shift), conv.in_place)
            conv.sums.fill(0)
            batchnorm.backward_sums(gz, y, at(conv.k1), at(conv.k0), at(conv.sums), self.memory, slope)
            conv.gbias[:], conv.ggamma[:] = first, second = conv.sums.sum(0)
            a, count = conv.gamma * conv.inverse, y.pixels
            conv.c1[:], conv.c2[:] = a, -a * second / count * conv.k1
            conv.c3[:] = -a * (first + second * conv.k0) / count
            batchnorm.backward(gz, y, gy, at(conv.c1), at(conv.c2), at(conv.c3), slope)
        else:
            with self.memory.frame():
                parts = direct.bias_gradient(gy, self.memory)
                views = [(ctypes.c_double * gy.c).from_address(part) for part in parts]
                conv.gbias[:] = np.sum([np.frombuffer(part) for part in views], axis=0)
        conv.layer.backward_weights(_tensor(node.x), gy, at(conv.gw), self.memory)
        if node.source is not None:
            target = _tensor(node.source.g)
            conv.layer.backward_data_from(gy, at(conv.w), target, self.memory, accumulate=node.accumulate)

    # ---- exchange with the outside --------------------------------------------------------------------
    def convolutions(self) -> list[Conv]:
        return [node.conv for node in self.nodes if node.type == "convolutional"]

    def as_oihw(self, conv: Conv, packed: np.ndarray) -> np.ndarray:
        """Weights or their gradient as (outputs, inputs, kh, kw)."""
        layer = conv.layer
        result = np.zeros((layer.outputs, layer.inputs, layer.window.kh, layer.window.kw), np.float32)
        layer.unpack(at(packed), at(result), self.memory)
        return result

    def set_gradients(self, gradients: list[np.ndarray]) -> None:
        """Put the gradients of the heads where backward() expects them."""
        for node, gradient in zip(self.heads, gradients, strict=True):
            assert node.g is not None
            node.g.array[...] = gradient


def _tensor(image: Image | None) -> Tensor:
    assert image is not None
    return image.tensor

"""Random nets out of nearly all layer types, as texts: small enough that a pass takes milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

FILL = 'weight_filler { type: "gaussian" std: 0.3 } bias_filler { type: "uniform" min: -0.3 max: 0.3 }'
ELEMENTWISE = {
    "ReLU": ("", "relu_param { negative_slope: 0.2 }", "relu_param { negative_slope: -0.5 }"),
    "ELU": ("", "elu_param { alpha: 0.5 }"),
    "Sigmoid": ("",),
    "TanH": ("",),
    "BNLL": ("",),
    "Swish": ("", "swish_param { beta: 1.5 }"),
    "Clip": ("clip_param { min: -1 max: 1.5 }",),
    "ReLU6": ("",),
    "Power": ("power_param { scale: 0.7 shift: 0.1 }", "power_param { power: 2 }", "power_param { power: 0 }"),
    "Exp": ("exp_param { scale: 0.05 }",),
    "Dropout": ("", "dropout_param { dropout_ratio: 0.2 }"),
    "PReLU": ("", "prelu_param { channel_shared: true }"),
    "BatchNorm": ("", "", "batch_norm_param { use_global_stats: true }"),
    "Scale": (
        "scale_param { bias_term: true filler { type: 'uniform' min: 0.4 max: 1.5 } }",
        "scale_param { filler { type: 'uniform' min: -1 max: 1 } }",
        "scale_param { axis: 0 num_axes: 2 filler { type: 'uniform' min: 0.5 max: 1 } }",
        "scale_param { axis: -1 bias_term: true filler { type: 'uniform' min: 0.5 max: 1 } }",
        "scale_param { num_axes: 0 bias_term: true filler { value: 1.3 } }",
    ),
    "Bias": ("bias_param { filler { type: 'uniform' min: -1 max: 1 } }",),
}
OTHER_TOP = {
    "AbsVal": ("",),
    "Threshold": ("",),
    "Softmax": ("", "softmax_param { axis: 0 }"),
    "LRN": ("", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }"),
    "MVN": ("", "mvn_param { across_channels: true }", "mvn_param { normalize_variance: false }"),
    "Normalize": ("norm_param { across_spatial: false }", "norm_param { channel_shared: false }"),
    "Permute": ("permute_param { order: 0 order: 1 order: 3 order: 2 }",),
}
PARAMETERS = {"BatchNorm": 0, "Scale": 1, "PReLU": 1, "Bias": 1, "Convolution": 1, "InnerProduct": 1}


@dataclass
class RandomNet:
    """A net's text, grown from the front.

    values: the numbers of its inputs. read: blobs that cannot be changed in place any more. force: force_backward.
    """

    rng: np.random.Generator
    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    force: bool = False
    count: int = 0

    def pick(self, *choices: Any) -> Any:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def maybe(self, share: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < share)

    def name(self) -> str:
        """A new one."""
        self.count += 1
        return f"b{self.count}"

    def add(
        self, kind: str, bottoms: list[str], tops: list[str], more: str = "", parameters: int | None = None
    ) -> None:
        """A layer, sometimes with propagate_down and rates of its own."""
        self.read.update(set(bottoms) - set(tops))
        if parameters is None:
            parameters = PARAMETERS.get(kind, 0)
        if parameters and "param {" not in more and self.maybe(0.15):
            more += " param { lr_mult: 0 }"
        if bottoms and "propagate_down" not in more and "Loss" not in kind and self.maybe(0.05):
            more += " " + " ".join(f"propagate_down: {self.pick('true', 'false')}" for _ in bottoms)
        names = " ".join([f'bottom: "{b}"' for b in bottoms] + [f'top: "{t}"' for t in tops])
        self.lines.append(f'layer {{ name: "l{len(self.lines)}" type: "{kind}" {names} {more} }}')

    def input(self, shape: tuple[int, ...], values: Any = None) -> str:
        """An Input layer."""
        name = self.name()
        dims = " ".join(f"dim: {n}" for n in shape)
        self.add("Input", [], [name], f"input_param {{ shape {{ {dims} }} }}")
        self.values[name] = self.rng.standard_normal(shape) if values is None else values
        self.shapes[name] = shape
        return name

    def give(self, kind: str, bottom: str, shape: tuple[int, ...], more: str = "", **options: Any) -> str:
        """A layer with one bottom and a top of its own."""
        top = self.name()
        self.add(kind, [bottom], [top], more, **options)
        self.shapes[top] = shape
        return top

    def elementwise(self, x: str) -> str:
        """A layer that may work in place."""
        kind = self.pick(*ELEMENTWISE, "BatchNorm", "Scale", "ReLU", "Dropout")
        more = self.pick(*ELEMENTWISE[kind])
        if kind == "BatchNorm" and self.maybe(0.5):
            self._elementwise(kind, x, more, True)
            return self._elementwise("Scale", x, self.pick(*ELEMENTWISE["Scale"][:2]), True)
        return self._elementwise(kind, x, more, self.maybe(0.6))

    def _elementwise(self, kind: str, x: str, more: str, in_place: bool) -> str:
        if in_place and x not in self.read:
            self.add(kind, [x], [x], more)
            return x
        return self.give(kind, x, self.shapes[x], more)

    def other(self, x: str) -> str:
        """A layer that needs a top of its own."""
        shape = self.shapes[x]
        if len(shape) != 4:
            return self.dense(x)
        n, c, h, w = shape
        maker = self.pick(
            self.convolution, self.convolution, self.convolution, self.pooling, self.dense, self.branches, self.cut,
            self.tops_apart, self.simple, self.simple, self.resized, self.second_bottom,
        )  # fmt: skip
        return maker(x) if min(h, w) >= 3 and n * c * h * w < 4000 else self.dense(x)

    def simple(self, x: str) -> str:
        """The same shape, a top of its own."""
        kind = self.pick(*OTHER_TOP)
        n, c, h, w = self.shapes[x]
        if kind == "Threshold" and self.force:
            return x
        if kind == "Threshold":
            y = self.give(kind, x, self.shapes[x], "propagate_down: false")
            self.add("Silence", [y], [])
            return x
        shape = (n, c, w, h) if kind == "Permute" else self.shapes[x]
        return self.give(kind, x, shape, self.pick(*OTHER_TOP[kind]))

    def convolution(self, x: str) -> str:
        """Of any kind; now and then with another one's weights."""
        n, c, h, w = self.shapes[x]
        k, pad, stride = self.pick(1, 3, 3, 3), self.pick(0, 1), self.pick(1, 1, 2)
        kind = self.pick("Convolution", "Convolution", "Convolution", "Deconvolution", "ConvolutionDepthwise")
        group = 2 if c % 2 == 0 and self.maybe(0.3) and kind == "Convolution" else 1
        outputs = c if kind == "ConvolutionDepthwise" else self.pick(2, 4, 6)
        bias = self.pick("", "bias_term: false")
        options = f"num_output: {outputs} kernel_size: {k} pad: {pad} stride: {stride} {bias} {FILL}"
        options += f" group: {group}" if group > 1 else ""
        more = f"convolution_param {{ {options} }}" + self._shared(f"conv {outputs} {c // group} {k}")
        if kind == "Deconvolution":
            sizes = tuple(stride * (s - 1) + k - 2 * pad for s in (h, w))
        else:
            sizes = tuple((s + 2 * pad - k) // stride + 1 for s in (h, w))
        if min(sizes) < 1:
            return x
        if kind != "Convolution":
            more = f"convolution_param {{ {options} }}"
        return self.give(kind, x, (n, outputs, *sizes), more, parameters=1)

    def _shared(self, key: str, mode: str = "") -> str:
        if not self.maybe(0.3):
            return ""
        name = self.shared.setdefault(key, f"w{len(self.shared)}")
        return f' param {{ name: "{name}" {mode} }}'

    def pooling(self, x: str) -> str:
        """Any pooling."""
        n, c, h, w = self.shapes[x]
        how = self.pick("MAX", "AVE")
        if self.maybe(0.2):
            return self.give("Pooling", x, (n, c, 1, 1), f"pooling_param {{ pool: {how} global_pooling: true }}")
        k, stride = self.pick(2, 3), self.pick(1, 2)
        sizes = tuple(-(-(s - k) // stride) + 1 for s in (h, w))
        more = f"pooling_param {{ pool: {how} kernel_size: {k} stride: {stride} }}"
        if how == "MAX" and self.maybe(0.2):
            top, mask = self.name(), self.name()
            self.add("Pooling", [x], [top, mask], more)
            self.add("Silence", [mask], [], "propagate_down: false")
            self.shapes[top] = (n, c, *sizes)
            return top
        return self.give("Pooling", x, (n, c, *sizes), more)

    def dense(self, x: str) -> str:
        """A fully connected layer, now and then after a Flatten or Reshape, now and then shared."""
        shape = self.shapes[x]
        size = int(np.prod(shape[1:]))
        if len(shape) > 2 and self.maybe(0.5):
            options = self.pick(("Flatten", ""), ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }"))
            x = self.give(options[0], x, (shape[0], size), options[1])
            if self.maybe(0.3):
                x = self.elementwise(x)
        outputs = self.pick(5, 6, size if size < 20 else 8)
        turned = self.maybe(0.2)
        mode, key = "", f"dense {outputs} {size} {turned}"
        if self.maybe(0.5):
            mode, key = "share_mode: PERMISSIVE", f"permissive {outputs * size}"
        more = f"inner_product_param {{ num_output: {outputs} transpose: {str(turned).lower()} {FILL} }}"
        return self.give("InnerProduct", x, (shape[0], outputs), more + self._shared(key, mode))

    def branches(self, x: str) -> str:
        """Two ways from one blob, joined again."""
        a, b = x, x
        for _ in range(self.pick(0, 1, 2)):
            a = self._same_shape(a)
        for _ in range(self.pick(1, 2)):
            b = self._same_shape(b)
        top, n = self.name(), self.shapes[x]
        if self.maybe(0.5):
            axis = self.pick(0, 1, 1, 2, 3, -1)
            self.add("Concat", [a, b], [top], f"concat_param {{ axis: {axis} }}")
            length = tuple(2 * s if i == axis % 4 else s for i, s in enumerate(n))
            self.shapes[top] = length
            if axis == 0:
                self.shapes[top] = n
                parts = [self.name(), self.name()]
                self.add("Slice", [top], parts, "slice_param { axis: 0 }")
                self.shapes.update(dict.fromkeys(parts, n))
                self.add("Eltwise", parts, [top + "s"])
                self.shapes[top + "s"] = n
                return top + "s"
            return top
        how = self.pick("", "eltwise_param { coeff: 0.5 coeff: -1 }", "eltwise_param { operation: MAX }",
                        "eltwise_param { operation: PROD }")  # fmt: skip
        self.add("Eltwise", [a, b], [top], how)
        self.shapes[top] = n
        return top

    def _same_shape(self, x: str) -> str:
        if self.maybe(0.4):
            c = self.shapes[x][1]
            more = f"convolution_param {{ num_output: {c} kernel_size: 3 pad: 1 {FILL} }}"
            return self.give("Convolution", x, self.shapes[x], more)
        # In place on one of two ways is what a Split makes of it.
        kind = self.pick("ReLU", "Sigmoid", "BatchNorm", "Dropout", "TanH", "Power")
        return self.give(kind, x, self.shapes[x], ELEMENTWISE[kind][0])

    def cut(self, x: str) -> str:
        """A Slice whose parts go different ways."""
        shape = self.shapes[x]
        axis = self.pick(1, 2, 3)
        if shape[axis] < 3:
            return x
        point = int(self.rng.integers(1, shape[axis]))
        parts = [self.name(), self.name()]
        self.add("Slice", [x], parts, f"slice_param {{ axis: {axis} slice_point: {point} }}")
        for part, length in zip(parts, (point, shape[axis] - point), strict=True):
            self.shapes[part] = tuple(length if i == axis else n for i, n in enumerate(shape))
        if self.maybe(0.5):
            done = [self.elementwise(part) for part in parts]
            top = self.name()
            self.add("Concat", done[::-1], [top], f"concat_param {{ axis: {axis} }}")
            self.shapes[top] = shape
            return top
        if self.maybe(0.5):
            self.add("Silence", [parts[1]], [])
        else:
            self.loss(parts[1])
        return parts[0]

    def tops_apart(self, x: str) -> str:
        """Looked at by layers without a gradient, or by a loss on the way."""
        kind = self.pick("ArgMax", "loss", "Reduction")
        if kind == "ArgMax" and not self.force:
            top = self.name()
            self.add("ArgMax", [x], [top], "argmax_param { top_k: 1 } propagate_down: false")
        elif kind == "Reduction":
            top = self.name()
            how = self.pick("SUM", "ASUM", "SUMSQ", "MEAN")
            weight = self.pick("loss_weight: 0.02", "")
            self.add("Reduction", [x], [top], f"reduction_param {{ operation: {how} axis: 1 }} {weight}")
        else:
            self.loss(x)
        return x

    def resized(self, x: str) -> str:
        """Of another size."""
        n, c, h, w = self.shapes[x]
        kind = self.pick("Interp", "Tile", "SPP", "Crop", "ShuffleChannel", "Im2col")
        if kind == "Interp":
            return self.give(kind, x, (n, c, 2 * h - 1, 2 * w - 1), "interp_param { zoom_factor: 2 }")
        if kind == "Tile":
            return self.give(kind, x, (n, c, 2 * h, w), "tile_param { axis: 2 tiles: 2 }")
        if kind == "SPP":
            return self.give(kind, x, (n, 5 * c), "spp_param { pyramid_height: 2 pool: MAX }")
        if kind == "ShuffleChannel":
            return self.give(kind, x, (n, c, h, w), f"shuffle_channel_param {{ group: {2 if c % 2 == 0 else 1} }}")
        if kind == "Im2col":
            return self.give(kind, x, (n, 4 * c, h - 1, w - 1), "convolution_param { kernel_size: 2 }")
        size, top = self.input((n, c, h - 1, w - 1)), self.name()
        self.add("Crop", [x, size], [top], "crop_param { axis: 2 offset: 1 offset: 0 }")
        self.shapes[top] = (n, c, h - 1, w - 1)
        return top

    def second_bottom(self, x: str) -> str:
        """A second operand comes from an input or from the net itself."""
        n, c, h, w = self.shapes[x]
        kind, top = self.pick("Scale", "Bias", "Axpy", "BatchReindex", "PairScale"), self.name()
        self.shapes[top] = (n, c, h, w)
        if kind == "Axpy":
            self.add(kind, [self.input((n, c)), x, self.input((n, c, h, w))], [top])
        elif kind == "BatchReindex":
            self.add(kind, [x, self.input((n,), self.rng.integers(0, n, n))], [top])
        elif kind == "PairScale":
            pooled = self.give("Pooling", x, (n, c, 1, 1), "pooling_param { pool: AVE global_pooling: true }")
            flat = self.give("Flatten", pooled, (n, c))
            self.add("Scale", [x, flat], [top], "scale_param { axis: 0 }", parameters=0)
        else:
            second = self.input((c,))
            self.add(kind, [x, second], [top], "", parameters=0)
        return top

    def recurrent(self) -> None:
        """A way of its own through a recurrent layer to a loss."""
        steps, streams, size = 3, 2, 4
        x = self.input((steps, streams, size))
        cont = self.input((steps, streams), self.rng.integers(0, 2, (steps, streams)))
        top = self.name()
        self.add(self.pick("LSTM", "RNN"), [x, cont], [top], f"recurrent_param {{ num_output: 3 {FILL} }}")
        self.shapes[top] = (steps, streams, 3)
        target, loss = self.input((steps, streams, 3)), self.name()
        self.add("EuclideanLoss", [top, target], [loss])

    def embedded(self) -> None:
        """A way of its own through an Embed layer to a loss."""
        index, top = self.input((4,), self.rng.integers(0, 5, 4)), self.name()
        self.add("Embed", [index], [top], "embed_param { num_output: 3 input_dim: 5 weight_filler "
                 "{ type: 'gaussian' std: 0.3 } bias_term: true }")  # fmt: skip
        target, loss = self.input((4, 3)), self.name()
        self.add("EuclideanLoss", [top, target], [loss])

    def loss(self, x: str) -> None:
        """A loss of any kind on a blob."""
        shape = self.shapes[x]
        n, size, top = shape[0], int(np.prod(shape[1:])), self.name()
        weight = self.pick("", "loss_weight: 0.5", "loss_weight: 0.1")
        kind = self.pick("SoftmaxWithLoss", "EuclideanLoss", "HingeLoss", "SigmoidCrossEntropyLoss", "ContrastiveLoss",
                         "SmoothL1Loss", "MultinomialLogisticLoss", "Accuracy")  # fmt: skip
        if kind in ("EuclideanLoss", "SmoothL1Loss"):
            self.add(kind, [x, self.input(shape)], [top], weight)
        elif kind == "SigmoidCrossEntropyLoss":
            self.add(kind, [x, self.input(shape, self.rng.integers(0, 2, shape))], [top], weight)
        elif kind == "ContrastiveLoss":
            flat = self.give("Flatten", x, (n, size))
            self.add(kind, [flat, self.input((n, size)), self.input((n,), self.rng.integers(0, 2, n))], [top], weight)
        else:
            classes = 5
            y = self.dense(x)
            classes = self.shapes[y][1]
            labels = self.input((n,), self.rng.integers(0, classes, n))
            if kind == "MultinomialLogisticLoss":
                y = self.give("Softmax", y, self.shapes[y])
            if kind == "Accuracy" and not self.force:
                self.add("Accuracy", [y, labels], [top])
                top = self.name()
            if kind == "Accuracy":
                kind = "SoftmaxWithLoss"
            self.add(kind, [y, labels], [top], weight)


def random_net(seed: int) -> RandomNet:
    """A net of this number."""
    net = RandomNet(np.random.default_rng(seed))
    n, c, size = net.pick(2, 3, 4), net.pick(1, 2, 3, 4), net.pick(5, 7, 8)
    x = net.input((n, c, size, size))
    if net.maybe(0.15):
        net.force = True
        net.lines.insert(0, "force_backward: true")
    if net.maybe(0.2):
        net.recurrent()
    if net.maybe(0.1):
        net.embedded()
    if net.maybe(0.9):
        x = net.convolution(x)
    for _ in range(int(net.rng.integers(2, 9))):
        x = net.elementwise(x) if net.maybe(0.5) else net.other(x)
    for _ in range(net.pick(1, 1, 2)):
        net.loss(x)
    return net

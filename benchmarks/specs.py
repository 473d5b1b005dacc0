"""The classifiers that are measured: LeNet (as in Caffe's examples), CIFAR-10 quick, ResNet-50, and MobileNet."""

from __future__ import annotations

from benchmarks.layered import Part, Spec


def _lenet() -> Spec:
    parts: list[Part] = [
        ("conv", 20, 5), ("max", 2, 2), ("conv", 50, 5), ("max", 2, 2), ("flat",), ("dense", 500), ("relu",),
        ("dense", 10),
    ]  # fmt: skip
    return Spec(1, 28, 10, 0.01, parts)


def _cifar_quick() -> Spec:
    parts: list[Part] = [
        ("conv", 32, 5, 1, 2), ("max", 2, 2), ("relu",), ("conv", 32, 5, 1, 2), ("relu",), ("average", 2),
        ("conv", 64, 5, 1, 2), ("relu",), ("average", 2), ("flat",), ("dense", 64), ("dense", 10),
    ]  # fmt: skip
    return Spec(3, 32, 10, 0.01, parts)


def _convolved(filters: int, size: int, stride: int = 1, groups: int = 1) -> list[Part]:
    return [("conv", filters, size, stride, size // 2, groups, False), ("norm",)]


def _bottleneck(filters: int, stride: int, first: bool) -> Part:
    main = [
        *_convolved(filters, 1), ("relu",), *_convolved(filters, 3, stride), ("relu",), *_convolved(4 * filters, 1),
    ]  # fmt: skip
    return ("residual", main, _convolved(4 * filters, 1, stride) if first else [])


def _resnet50() -> Spec:
    """He and others 2015, with the stride in the 3x3 convolution as is usual now."""
    parts: list[Part] = [*_convolved(64, 7, 2), ("relu",), ("max", 3, 2, 1)]
    for filters, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        parts += [_bottleneck(filters, stride if i == 0 else 1, i == 0) for i in range(blocks)]
    return Spec(3, 224, 1000, 0.0001, [*parts, ("global",), ("flat",), ("dense", 1000)])


def _mobilenet() -> Spec:
    """Howard and others 2017, width 1."""
    parts: list[Part] = [*_convolved(32, 3, 2), ("relu",)]
    channels = 32
    widths = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for filters, stride in widths:
        parts += [*_convolved(channels, 3, stride, channels), ("relu",), *_convolved(filters, 1), ("relu",)]
        channels = filters
    return Spec(3, 224, 1000, 0.0001, [*parts, ("global",), ("flat",), ("dense", 1000)])


def plain(depth: int) -> Spec:
    """So many equal 3x3 convolutions with batch norm and relu, for the cost against depth."""
    inner = [part for _ in range(depth) for part in (*_convolved(64, 3), ("relu",))]
    return Spec(64, 52, 10, 0.001, [*inner, ("global",), ("flat",), ("dense", 10)])


SPECS: dict[str, Spec] = {
    "lenet": _lenet(),
    "cifar-quick": _cifar_quick(),
    "resnet50": _resnet50(),
    "mobilenet": _mobilenet(),
}

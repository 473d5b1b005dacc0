"""The networks that are measured, written out as Darknet cfgs."""

from __future__ import annotations

from pathlib import Path

from undertow.darknet.files.cfg import Config, parse_cfg, read_cfg
from undertow.errors import UndertowError

_TINY_ANCHORS = "10,14, 23,27, 37,58, 81,82, 135,169, 344,319"
_ANCHORS = "10,13, 16,30, 33,23, 30,61, 62,45, 59,119, 116,90, 156,198, 373,326"


class _Writer:
    """Collects sections."""

    def __init__(self, batch: int, size: int, channels: int = 3) -> None:
        self.sections: list[str] = []
        self.add(
            "net", batch=batch, subdivisions=1, width=size, height=size, channels=channels, momentum=0.9, decay=0.0005,
            learning_rate=0.00001, max_batches=500200, policy="constant",
        )  # fmt: skip

    def add(self, name: str, **options: object) -> None:
        self.sections.append(f"[{name}]\n" + "\n".join(f"{key}={value}" for key, value in options.items()))

    def conv(self, filters: int, size: int = 3, stride: int = 1) -> None:
        self.add(
            "convolutional", batch_normalize=1, filters=filters, size=size, stride=stride, pad=1, activation="leaky"
        )

    def head(self, mask: str, anchors: str, classes: int, ignore: float) -> None:
        self.add("convolutional", size=1, stride=1, pad=1, filters=3 * (5 + classes), activation="linear")
        self.add(
            "yolo", mask=mask, anchors=anchors, classes=classes, num=len(anchors.split(",")) // 2, jitter=0.3,
            ignore_thresh=ignore, truth_thresh=1, random=0,
        )  # fmt: skip

    def config(self, name: str) -> Config:
        return parse_cfg("\n\n".join(self.sections) + "\n", name)


def yolov3_tiny(batch: int, size: int) -> Config:
    """YOLOv3-tiny for 80 classes."""
    net = _Writer(batch, size)
    for filters in (16, 32, 64, 128, 256):
        net.conv(filters)
        net.add("maxpool", size=2, stride=2)
    net.conv(512)
    net.add("maxpool", size=2, stride=1)
    net.conv(1024)
    net.conv(256, 1)
    net.conv(512)
    net.head("3,4,5", _TINY_ANCHORS, 80, 0.7)
    net.add("route", layers=-4)
    net.conv(128, 1)
    net.add("upsample", stride=2)
    net.add("route", layers="-1, 8")
    net.conv(256)
    net.head("0,1,2", _TINY_ANCHORS, 80, 0.7)
    return net.config("yolov3-tiny")


def _darknet53(net: _Writer) -> None:
    net.conv(32)
    for filters, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        net.conv(filters, 3, 2)
        for _ in range(blocks):
            net.conv(filters // 2, 1)
            net.conv(filters)
            net.add("shortcut", **{"from": -3}, activation="linear")


def yolov3(batch: int, size: int) -> Config:
    """YOLOv3 for 80 classes."""
    net = _Writer(batch, size)
    _darknet53(net)
    for filters, mask, lateral in ((512, "6,7,8", 61), (256, "3,4,5", 36), (128, "0,1,2", None)):
        for _ in range(3):
            net.conv(filters, 1)
            net.conv(2 * filters)
        net.head(mask, _ANCHORS, 80, 0.7)
        if lateral is not None:
            net.add("route", layers=-4)
            net.conv(filters // 2, 1)
            net.add("upsample", stride=2)
            net.add("route", layers=f"-1, {lateral}")
    return net.config("yolov3")


def darknet53(batch: int, size: int) -> Config:
    """Darknet-53 as a classifier of 1000 classes."""
    net = _Writer(batch, size)
    _darknet53(net)
    net.add("avgpool")
    net.add("convolutional", filters=1000, size=1, stride=1, pad=1, activation="linear")
    net.add("softmax", groups=1)
    return net.config("darknet53")


NETS = {"yolov3-tiny": yolov3_tiny, "yolov3": yolov3, "darknet53": darknet53}


def config_of(name: str, batch: int, size: int) -> Config:
    """A net by name, or from a cfg file."""
    if name in NETS:
        return NETS[name](batch, size)
    if not Path(name).exists():
        raise UndertowError(
            f"there is no net '{name}' and no file of that name",
            remedy=f"give one of {', '.join(NETS)}, or the path of a cfg",
        )
    return read_cfg(name).with_values(0, {"batch": batch, "subdivisions": 1, "width": size, "height": size})

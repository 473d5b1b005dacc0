"""The cfg of YOLOv3, written from its plan: Darknet-53's residual stages, and three heads."""

from __future__ import annotations

ANCHORS = "10,13, 16,30, 33,23, 30,61, 62,45, 59,119, 116,90, 156,198, 373,326"
STAGES = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))


def _conv(filters: int, size: int, stride: int = 1) -> str:
    return (
        f"[convolutional]\nbatch_normalize=1\nfilters={filters}\nsize={size}\nstride={stride}\npad=1\n"
        "activation=leaky\n\n"
    )


def _head(filters: int, mask: str, classes: int) -> str:
    pair = _conv(filters, 1) + _conv(2 * filters, 3)
    outputs = 3 * (classes + 5)
    return (
        pair * 3
        + f"[convolutional]\nsize=1\nstride=1\npad=1\nfilters={outputs}\nactivation=linear\n\n"
        + f"[yolo]\nmask={mask}\nanchors={ANCHORS}\nclasses={classes}\nnum=9\nignore_thresh=.7\ntruth_thresh=1\n\n"
    )


def yolov3_cfg(classes: int = 80) -> str:
    """107 layers, 23 residuals."""
    text = "[net]\nbatch=64\nsubdivisions=16\nwidth=608\nheight=608\nchannels=3\nlearning_rate=0.001\n\n"
    text += _conv(32, 3)
    for filters, times in STAGES:
        text += _conv(filters, 3, 2)
        text += (_conv(filters // 2, 1) + _conv(filters, 3) + "[shortcut]\nfrom=-3\nactivation=linear\n\n") * times
    text += _head(512, "6,7,8", classes)
    for filters, mask, source in ((256, "3,4,5", 61), (128, "0,1,2", 36)):
        text += (
            "[route]\nlayers=-4\n\n" + _conv(filters, 1) + f"[upsample]\nstride=2\n\n[route]\nlayers=-1, {source}\n\n"
        )
        text += _head(filters, mask, classes)
    return text

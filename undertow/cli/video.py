"""`undertow darknet detector demo`: objects in a video or in the pictures of a folder, frame by frame."""

from __future__ import annotations

import sys
import time
from collections import deque
from contextlib import ExitStack
from typing import Any

import numpy as np

from undertow.cli.messages import say
from undertow.cli.shared import (
    COMMON,
    GPUS_IDLE,
    HIER,
    SHOWING,
    computing,
    introduce,
    loaded,
    take_tree_threshold,
    threshold,
)
from undertow.cli.words import Command, Flag, UsageError, Words

_NO_CAMERA = "there are no cameras here; give a video file or a folder of pictures"
_NO_WINDOW = "no windows are opened here"


def demo(words: Words) -> int:
    """detector demo DATA CFG WEIGHTS VIDEO"""
    from undertow.darknet.detection.draw import draw_detections
    from undertow.darknet.detection.frames import open_frames
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.learning.trainer import detection_head
    from undertow.darknet.runs import class_names

    if not words["VIDEO"]:
        raise UsageError("detector demo: VIDEO is missing, and there are no cameras here",
                         remedy="give a video file or a folder of pictures")  # fmt: skip
    out = words["out_filename"] or words["out"]
    with computing(words), ExitStack() as stack:
        source = read_data(words["DATA"], words["strict"])
        net = loaded(words)
        net.names = class_names(source, detection_head(net))
        frames = open_frames(words["VIDEO"])
        take_tree_threshold(net, words)
        introduce(net)
        print(f"Demo\nvideo file: {words['VIDEO']}")
        writers = _writers(frames, out, words["prefix"], stack)
        average = Averaged(net, words["avg"] if words["avg"] is not None else 3 if frames.video else 1)
        start = before = time.perf_counter()
        for pixels in frames:
            picture, found = average.find(pixels, words["thresh"], words["nms"])
            now = time.perf_counter()
            _show(found, 1 / max(now - before, 1e-9))
            before = now
            drawn = draw_detections(picture, found, len(net.names))
            for writer in writers:
                writer.write(drawn)
        seconds = time.perf_counter() - start
    count = writers[0].count
    say(f"{count} frames, {count / max(seconds, 1e-9):.1f} a second; written: {', '.join(map(str, writers))}")
    return 0


def _writers(frames: Any, out: str, prefix: str, stack: ExitStack) -> list[Any]:
    """What the flags ask for; without any, a video for a video and pictures for pictures."""
    from undertow.darknet.detection.frames import PictureWriter, VideoWriter

    if not out and not prefix:
        out, prefix = ("demo.mp4", "") if frames.video else ("", "demo")
    writers: list[Any] = [PictureWriter(prefix)] if prefix else []
    return writers + ([stack.enter_context(VideoWriter(out, frames.rate))] if out else [])


class Averaged:
    """Finds objects by the mean of what the heads gave for the last few frames, as the C program does (demo.c).

    The original begins with zeros for the frames before the first; here the mean is over those there were.
    """

    def __init__(self, net: Any, count: int) -> None:
        self.net = net
        self._kept: deque[list[Any]] = deque(maxlen=count)

    def find(self, pixels: Any, threshold: float, nms: float) -> tuple[Any, Any]:
        """The frame as a picture (c, h, w), and what is found in it."""
        from undertow.core.variable import Variable
        from undertow.darknet.detection.detector import as_picture, fit_picture
        from undertow.darknet.layers.layers_loss import HeadLayer
        from undertow.data.images import to_float

        net = self.net
        shown = to_float(pixels)
        picture = shown if net.c == 3 else as_picture(shown.mean(axis=0, keepdims=True), net.c)
        net.predict(fit_picture(net, picture)[None])
        heads = [layer for layer in net.layers if isinstance(layer, HeadLayer)]
        if self._kept.maxlen != 1:
            self._kept.append([head.output.copy() for head in heads])
            for head, outputs in zip(heads, zip(*self._kept, strict=True), strict=True):
                head.take_output(Variable(np.mean(outputs, axis=0), requires_grad=False))
        size = shown.shape[2], shown.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
            candidates = net.candidates(size, threshold)
            candidates = net.suppress(candidates, nms) if nms else candidates
        return shown, candidates.detections(net.names, threshold, size)


def _show(found: Any, rate: float) -> None:
    """What the C program prints for each frame; on a terminal it takes the place of the frame before."""
    clear = "\033[2J\033[1;1H" if sys.stdout.isatty() else ""
    lines = [f"{one.name}: {100 * one.confidence:.0f}%" for one in found]
    print("\n".join([f"{clear}\nFPS:{rate:.1f}", "Objects:\n", *lines]), flush=True)


DEMO = Command(
    "darknet detector demo",
    ("DATA", "CFG", "WEIGHTS", "[VIDEO]"),
    (
        threshold(0.5, "least confidence"),
        Flag("nms", "number", "of boxes that overlap by more, one stays; 0 keeps all (0.4)", "X", 0.4, least=0, most=1),
        HIER,
        Flag("avg", "whole", "frames whose outputs are averaged (3 for a video, 1 for pictures)", "N", least=1),
        Flag("prefix", "text", "write frames as NAME_00000000.jpg... (demo, for pictures)", "NAME"),
        Flag("out_filename", "text", "write a video (demo.mp4, for a video): .mp4, .mkv, .mov, .avi", "FILE"),
        Flag("out", "text", "the same", "FILE"),
        Flag("letter_box", "switch", "fit pictures with grey bars, whatever the dialect says"),
        Flag("c", "whole", "which camera; accepted, there is none", "N", answer=_NO_CAMERA),
        Flag("w", "whole", "width of the camera's picture; accepted", "N", answer=_NO_CAMERA),
        Flag("fps", "whole", "pictures a second of the camera; accepted", "N", answer=_NO_CAMERA),
        Flag("s", "whole", "accepted, as in the C program, which does nothing with it", "N", answer="has no effect"),
        Flag("fullscreen", "switch", "accepted: no windows are opened", answer=_NO_WINDOW),
        Flag("ext_output", "switch", "accepted: boxes are drawn", answer="boxes are drawn, not printed"),
        GPUS_IDLE,
        *SHOWING,
        *COMMON,
    ),
    "find objects in a video (pip install 'undertow[video]') or in a folder of pictures; write the frames with boxes",
    demo,
)

"""Yolo heads as recorded in the goldens, read without the library's own cfg reader."""

from __future__ import annotations

import numpy as np

from tests.data.goldens import Golden
from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.decode import YoloHead, get_network_boxes


def sections(golden: Golden) -> list[tuple[str, dict[str, str]]]:
    """(name, options) of each section of net.cfg."""
    found: list[tuple[str, dict[str, str]]] = []
    for line in (golden.folder / "net.cfg").read_text().splitlines():
        if line.startswith("["):
            found.append((line.strip("[] "), {}))
        elif "=" in line:
            key, value = line.split("=", 1)
            found[-1][1][key.strip()] = value.strip()
    return found


def yolo_heads(golden: Golden) -> list[YoloHead]:
    """The heads with their recorded outputs, in network order."""
    heads = []
    for number, (name, options) in enumerate(sections(golden)[1:]):
        if name == "yolo":
            mask = tuple(int(word) for word in options["mask"].split(","))
            anchors = golden.arrays[f"layer{number:02d}/biases"].reshape(-1, 2)
            output = golden.arrays[f"layer{number:02d}/output"]
            channels = len(mask) * (5 + int(options["classes"]))
            if output.ndim == 2:
                side = int((output.size // channels) ** 0.5)
                output = output.reshape(1, channels, side, side)
            heads.append(YoloHead(output, anchors, mask, int(options["classes"])))
    return heads


def candidates(golden: Golden) -> Candidates:
    """`get_network_boxes` of the recorded heads with the recorded arguments."""
    case, net = golden.case, sections(golden)[0][1]
    image_size = tuple(case["image"]) if "image" in case else (case["image_w"], case["image_h"])
    letterbox = bool(case.get("letter", 1))  # the 2018 program knows nothing else
    return get_network_boxes(
        yolo_heads(golden),
        (int(net["width"]), int(net["height"])),
        image_size,
        case["thresh"],
        relative=bool(case["relative"]),
        letterbox=letterbox,
    )


def same(golden: Golden, stage: str, ours: Candidates) -> None:
    """Same boxes in the same order: boxes to float32 rounding, objectness and probabilities exactly."""
    recorded = golden.arrays[f"{stage}/bbox"]
    assert ours.boxes.shape == recorded.shape
    assert np.abs(ours.boxes - recorded).max() <= 3e-7 * np.abs(recorded).max()
    assert np.array_equal(ours.objectness, golden.arrays[f"{stage}/objectness"])
    assert np.array_equal(ours.probabilities, golden.arrays[f"{stage}/prob"])

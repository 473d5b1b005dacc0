"""`undertow darknet detector`: train, test, map, valid and recall, with the words and flags of the C programs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from undertow.cli.messages import say
from undertow.cli.scope_flags import SCOPE, scope_page
from undertow.cli.shared import (
    BACKUP_EVERY,
    COMMON,
    GPUS,
    GPUS_IDLE,
    HIER,
    SHOWING,
    computing,
    each_path,
    introduce,
    loaded,
    take_tree_threshold,
    threshold,
)
from undertow.cli.trainings import options_of, run_training
from undertow.cli.words import Command, Flag, UsageError, Words
from undertow.darknet.detection.boxes import Detection

_USUAL = (GPUS_IDLE, *COMMON)
_SHOWN = (
    Flag("letter_box", "switch", "fit pictures with grey bars, whatever the dialect says"),
    HIER,
)


def train(words: Words) -> int:
    """detector train DATA CFG [WEIGHTS]"""
    from undertow.darknet.runs import training

    options = options_of(
        words,
        seed=words["seed"],
        validate_every=words["map_every"],
        validate_rounds=words["mAP_epochs"],
        validate=words["map"] or words["map_every"] is not None,
        iou_threshold=words["iou_thresh"],
        confidence=words["thresh"],
        mirror=not words["no_flip"],
    )
    make = partial(training, words["DATA"], words["CFG"], words["WEIGHTS"] or None, options)
    with scope_page(words) as show:
        recorder = None
        if show is not None:
            from undertow.scope.runs.darknet import RunRecorder

            recorder = RunRecorder(words["scope_folder"], words["scope_every"], show)
        return run_training(words, "darknet detector train", make, recorder=recorder)


def test(words: Words) -> int:
    """detector test DATA CFG WEIGHTS [IMAGE]; without IMAGE, paths are read from stdin."""
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.learning.trainer import detection_head
    from undertow.darknet.runs import class_names

    with computing(words):
        source = read_data(words["DATA"], words["strict"])
        net = loaded(words)
        net.names = class_names(source, detection_head(net))
        take_tree_threshold(net, words)
        introduce(net)
        return each_path(words["IMAGE"], lambda path: _test_one(net, path, words))


def _test_one(net: Any, path: str, words: Words) -> None:
    """Print what is found in one picture, as the C program does, and write the picture with its boxes."""
    from undertow.darknet.detection.detector import as_picture, detect
    from undertow.darknet.detection.draw import draw_detections, save_image

    picture = as_picture(path, net.c)
    start = time.perf_counter()
    found = detect(net, picture, words["thresh"], words["nms"])
    print(f"{path}: Predicted in {time.perf_counter() - start:f} seconds.")
    for one in found:
        print(_printed(one, words["ext_output"]))
    drawn = picture_name(words["out"] or "predictions")
    save_image(draw_detections(picture, found, len(net.names)), drawn)
    sys.stdout.flush()
    say(f"drawn: {drawn}")


def _printed(found: Detection, extended: bool) -> str:
    """`dog: 57%`, with -ext_output followed by the box in pixels as AlexeyAB's program prints it."""
    line = f"{found.name}: {100 * found.confidence:.0f}%"
    if not extended:
        return line
    left, top, _, _ = found.pixel_box.sides
    box = found.pixel_box
    return f"{line}\t(left_x: {left:4.0f}   top_y: {top:4.0f}   width: {box.w:4.0f}   height: {box.h:4.0f})"


def measure(words: Words) -> int:
    """detector map DATA CFG WEIGHTS"""
    from undertow.cli.progress import Counting
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.runs import validation_set

    if words["points"] not in (0, 11, 101):
        raise UsageError(f"-points {words['points']}: there are 0, 11 and 101", remedy="leave it out for the area")
    with computing(words):
        source = read_data(words["DATA"], words["strict"])
        net = loaded(words)
        pictures = validation_set(source, net)
        take_tree_threshold(net, words)
        introduce(net)
        with Counting("pictures") as tick:
            evaluation = pictures.measure(
                net,
                iou_threshold=words["iou_thresh"],
                points=words["points"],
                confidence=words["thresh"],
                tick=tick,
            )
    print("\n".join(evaluation.lines()))
    absent = sum(result.truths == 0 for result in evaluation.classes)
    if absent:
        say(f"{absent} classes have no object in these pictures and are left out of the mean")
    return 0


def write(words: Words) -> int:
    """detector valid DATA CFG WEIGHTS"""
    from undertow.darknet.detection.validation import MAP_NMS, MAP_THRESHOLD

    return write_found(words, None, MAP_THRESHOLD, MAP_NMS)


def write_mirrored(words: Words) -> int:
    """detector valid2 DATA CFG WEIGHTS"""
    from undertow.darknet.detection.validation import MAP_NMS, MAP_THRESHOLD

    return write_found(words, None, MAP_THRESHOLD, MAP_NMS, mirrored=True)


def write_found(
    words: Words, kind: str | None, least: float, nms: float, first_pixel: int = 1, mirrored: bool = False
) -> int:
    """Write what is found in valid=. kind: of the files, as eval= says unless given; see `write_results`."""
    from undertow.cli.progress import Counting
    from undertow.darknet.detection.pictures import find_in_pictures
    from undertow.darknet.detection.results import write_results
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.learning.trainer import detection_head
    from undertow.darknet.runs import class_names, listed

    with computing(words):
        source = read_data(words["DATA"], words["strict"])
        net = loaded(words)
        names = class_names(source, detection_head(net))
        images = listed(source, "valid")
        take_tree_threshold(net, words)
        introduce(net)
        with Counting("pictures") as tick:
            found = find_in_pictures(net, images.paths, least, nms, net.suppress, tick, mirrored)
            folder = source.folder("results", "results")
            kind = kind or source.options.evaluation
            files = write_results(found, kind, folder, names, words["out"], first_pixel)
    for file in files:
        say(f"written: {file}")
    return 0


def recall(words: Words) -> int:
    """detector recall DATA CFG WEIGHTS"""
    from undertow.cli.progress import Counting
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.runs import validation_set

    with computing(words):
        source = read_data(words["DATA"], words["strict"])
        net = loaded(words)
        pictures = validation_set(source, net)
        take_tree_threshold(net, words)
        introduce(net)
        with Counting("pictures") as tick:
            result = pictures.measure_recall(net, iou_threshold=words["iou_thresh"], tick=tick)
    print(
        f"{result.pictures:5d} {result.found:5d} {result.truths:5d}\tRPs/Img: {result.proposals_per_picture:.2f}\t"
        f"IOU: {100 * result.average_iou:.2f}%\tRecall:{100 * result.recall:.2f}%"
    )
    return 0


def detect_shortcut(words: Words) -> int:
    """detect CFG WEIGHTS [IMAGE]: test with the names of cfg/coco.data."""
    return test(replace(words, words={**words.words, "DATA": "cfg/coco.data"}))


def picture_name(name: str) -> Path:
    """The C program adds .jpg to any name; one that ends in a picture's ending is kept."""
    return Path(name if Path(name).suffix.lower() in (".jpg", ".jpeg", ".png", ".bmp") else f"{name}.jpg")


TEST_FLAGS = (
    threshold(0.5, "least confidence"),
    Flag("nms", "number", "of boxes that overlap by more, one stays; 0 keeps all (0.45)", "X", 0.45, least=0, most=1),
    Flag("out", "text", "name of the drawn picture (predictions.jpg)", "NAME"),
    Flag("ext_output", "switch", "print the boxes too, in pixels"),
    Flag("fullscreen", "switch", "accepted: no windows are opened", answer="no windows are opened here"),
    *_SHOWN,
    *SHOWING,
    *_USUAL,
)
_IOU = Flag("iou_thresh", "number", "least overlap with a true box (0.5)", "X", 0.5, least=0, most=1)
_VALID_FLAGS = (
    Flag("out", "text", "name of the file (coco_results), or beginning of the names (comp4_det_test_)", "NAME"),
    *_SHOWN,
    *_USUAL,
)

COMMANDS = (
    Command(
        "darknet detector train",
        ("DATA", "CFG", "[WEIGHTS]"),
        (
            Flag("clear", "switch", "count from iteration 0 again, whatever the weights have seen"),
            Flag("map", "switch", "measure mAP on the pictures of valid= now and then; keep NAME_best.weights"),
            Flag("map_every", "whole", "the same, every N iterations", "N", least=1),
            Flag("mAP_epochs", "whole", "with -map: every N rounds through the pictures (4)", "N", 4, least=1),
            threshold(0.25, "with -map: confidence at which right and wrong are counted"),
            _IOU,
            BACKUP_EVERY,
            Flag("save_every", "whole", "keep NAME_N.weights every N iterations", "N", least=1),
            Flag("chart", "text", "where the chart goes (chart_NAME.png in the folder of backup=)", "FILE"),
            Flag("seed", "whole", "of the first weights and of all draws (0)", "N", 0, least=0),
            *SCOPE,
            Flag("no_flip", "switch", "never mirror pictures: for objects that have a left and a right"),
            Flag("plain", "switch", "Darknet's lines on a terminal too"),
            GPUS,
            *SHOWING,
            *COMMON,
        ),
        "learn from the pictures of train=; a NAME.backup given as WEIGHTS goes on exactly",
        train,
    ),
    Command(
        "darknet detector test",
        ("DATA", "CFG", "WEIGHTS", "[IMAGE]"),
        TEST_FLAGS,
        "find objects in a picture and draw them; without IMAGE, paths are read from stdin",
        test,
    ),
    Command(
        "darknet detector map",
        ("DATA", "CFG", "WEIGHTS"),
        (
            threshold(0.25, "confidence at which right and wrong are counted"),
            _IOU,
            Flag("points", "whole", "0: area under the curve; 11: VOC 2007; 101: COCO (0)", "N", 0, least=0),
            *_SHOWN,
            *_USUAL,
        ),
        "average precision of each class on the pictures of valid=",
        measure,
    ),
    Command(
        "darknet detector valid",
        ("DATA", "CFG", "WEIGHTS"),
        _VALID_FLAGS,
        "write what is found in the pictures of valid= to the folder of results=, in the form that eval= names",
        write,
    ),
    Command(
        "darknet detector valid2",
        ("DATA", "CFG", "WEIGHTS"),
        _VALID_FLAGS,
        "the same, of the mean of what the net says about each picture and about its mirror image",
        write_mirrored,
    ),
    Command(
        "darknet detector recall",
        ("DATA", "CFG", "WEIGHTS"),
        (_IOU, *_SHOWN, *_USUAL),
        "how many of the true boxes of valid= some proposal covers",
        recall,
    ),
)
DETECT = Command(
    "darknet detect",
    ("CFG", "WEIGHTS", "[IMAGE]"),
    TEST_FLAGS,
    "detector test with the names of cfg/coco.data",
    detect_shortcut,
)

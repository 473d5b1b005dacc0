"""`undertow darknet segmenter` and `isegmenter`: train and test, with the words and flags of the C program."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from undertow.cli.detector import picture_name
from undertow.cli.messages import say
from undertow.cli.shared import (
    BACKUP_EVERY,
    COMMON,
    GPUS,
    GPUS_IDLE,
    computing,
    each_path,
    introduce,
    loaded,
)
from undertow.cli.trainings import options_of, run_training
from undertow.cli.words import Command, Flag, Words


def _train(name: str, instances: bool) -> Callable[[Words], int]:
    """The function of segmenter train or isegmenter train: DATA CFG [WEIGHTS]."""

    def run(words: Words) -> int:
        from undertow.cli.progress import SegmenterLines
        from undertow.darknet.segmenter_runs import segmenter_training

        options = options_of(words, seed=words["seed"], mirror=not words["no_flip"])
        files = words["DATA"], words["CFG"], words["WEIGHTS"] or None
        make = partial(segmenter_training, *files, options, instances=instances)
        return run_training(words, f"darknet {name} train", make, lines=SegmenterLines)

    return run


def _test(instances: bool) -> Callable[[Words], int]:
    """The function of segmenter test or isegmenter test: DATA CFG WEIGHTS [IMAGE]."""

    def run(words: Words) -> int:
        from undertow.darknet.learning.segmenter import check_segmenter
        from undertow.darknet.segmenter_runs import mask_to_rgb, predict_maps
        from undertow.data.images import load_image, save_image

        with computing(words):
            net = loaded(words)
            check_segmenter(net.shapes, instances)
            introduce(net)
            drawn = picture_name(words["out"] or "predictions.png")

            def one(path: str) -> None:
                picture = load_image(path, net.c)
                start = time.perf_counter()
                maps = predict_maps(net, picture, instances)
                print(f"Predicted: {maps.reshape(-1)[0]:f}")
                print(f"{path}: Predicted in {time.perf_counter() - start:f} seconds.", flush=True)
                save_image(mask_to_rgb(maps), drawn)
                say(f"drawn: {drawn}")

            return each_path(words["IMAGE"], one)

    return run


def _commands(name: str, instances: bool, what: str) -> tuple[Command, ...]:
    return (
        Command(
            f"darknet {name} train",
            ("DATA", "CFG", "[WEIGHTS]"),
            (
                Flag("clear", "switch", "count from iteration 0 again, whatever the weights have seen"),
                Flag("save_every", "whole", "keep NAME_N.weights every N iterations (every round)", "N", least=1),
                Flag("chart", "text", "where the chart goes (chart_NAME.png in the folder of backup=)", "FILE"),
                Flag("seed", "whole", "of the first weights and of all draws (0)", "N", 0, least=0),
                Flag("no_flip", "switch", "never mirror pictures, as with flip=0"),
                Flag("plain", "switch", "Darknet's lines on a terminal too"),
                Flag("display", "switch", "accepted: no windows are opened", answer="no windows are opened here"),
                BACKUP_EVERY,
                GPUS,
                *COMMON,
            ),
            f"learn {what} from the pictures of train= and their masks; a NAME.backup given as WEIGHTS goes on exactly",
            _train(name, instances),
        ),
        Command(
            f"darknet {name} test",
            ("DATA", "CFG", "WEIGHTS", "[IMAGE]"),
            (Flag("out", "text", "name of the drawn picture (predictions.png)", "NAME"), GPUS_IDLE, *COMMON),
            "draw the classes of a picture's parts in colours; without IMAGE, paths are read from stdin",
            _test(instances),
        ),
    )


SEGMENTER = _commands("segmenter", False, "which class each part of a picture belongs to")
ISEGMENTER = _commands("isegmenter", True, "that and which object, for nets that end in [iseg],")

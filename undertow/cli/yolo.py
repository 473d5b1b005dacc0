"""`undertow darknet yolo`: the C program's words for YOLOv1, over the functions of `detector`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from undertow.cli import detector
from undertow.cli.words import Command, Flag, Words

# examples/yolo.c has its lists and the names of VOC written into the program.
_DATA = Flag("data", "text", "the .data file with the lists and names (cfg/voc.data)", "FILE", "cfg/voc.data")
# Its least confidence and overlap in valid; its boxes count pixels from 0.
_VALID_THRESHOLD, _VALID_NMS = 0.001, 0.5


def _with_data(run: Callable[[Words], int]) -> Callable[[Words], int]:
    """A function of `detector` that takes DATA from -data."""
    return lambda words: run(replace(words, words={**words.words, "DATA": words["data"]}))


def _valid(words: Words) -> int:
    """yolo valid CFG WEIGHTS: files of VOC, whatever eval= says."""
    return detector.write_found(words, "voc", _VALID_THRESHOLD, _VALID_NMS, first_pixel=0)


def _command(name: str, run: Callable[[Words], int], summary: str, flags: Sequence[Flag] | None = None) -> Command:
    """The command of `detector` of this name, without DATA."""
    like = next(one for one in detector.COMMANDS if one.name == f"darknet detector {name}")
    words = tuple(word for word in like.words if word != "DATA")
    return Command(f"darknet yolo {name}", words, (_DATA, *(flags or like.flags)), summary, _with_data(run))


def _other_default(flag: Flag, **defaults: Any) -> Flag:
    if flag.name not in defaults:
        return flag
    now = defaults[flag.name]
    return replace(flag, default=now, help=flag.help.replace(f"({flag.default:g})", f"({now:g})"))


_TEST = tuple(_other_default(flag, thresh=0.2, nms=0.4) for flag in detector.TEST_FLAGS)

COMMANDS = (
    _command("train", detector.train, "detector train, for nets that end in [detection]"),
    _command("test", detector.test, "detector test with the defaults of YOLOv1", _TEST),
    _command("valid", _valid, "write VOC's files of what is found in valid=; pixels counted from 0, as the C program"),
    _command("recall", detector.recall, "detector recall: how many of the true boxes of valid= some proposal covers"),
)

"""What `explain`, `trace` and `scope` share: flags of pictures, and which flag is for which kind of network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from undertow.cli.words import Flag, UsageError, Words
from undertow.errors import FormatError
from undertow.inspect.sources import is_prototxt

if TYPE_CHECKING:
    from undertow.inspect.caffe_inputs import PictureValues

PICTURE_VALUES = (
    Flag("mean", "text", "of a prototxt: taken from the picture's values 0..255, blue first", "B,G,R"),
    Flag("scale", "number", "of a prototxt: then they are multiplied by it (1/255; 1 with -mean)", "X"),
)
PHASE = Flag(
    "phase", "text", "TRAIN, or TEST: as in detection, with the statistics that were learned", "NAME",
    choices=("TRAIN", "TEST"),
)  # fmt: skip
DATA = Flag(
    "data",
    "text",
    "a picture, a .data file or an .npz; of a function its arguments (a random batch, and says so)",
    "FILE",
)
RATE = Flag(
    "rate", "number", "learning rate behind update/weight (the cfg's; a function's optimiser's; 0.01)", "X", least=0
)
CFG, PROTOTXT, FUNCTION, TRACE = "a cfg", "a prototxt", "a function", "a trace"
# Flags that some kinds of networks have no use for.
_USED_BY = {
    "weights": (CFG, PROTOTXT),
    "data": (CFG, PROTOTXT, FUNCTION),
    "truth": (CFG, PROTOTXT),
    "names": (CFG, PROTOTXT),
    "batch": (CFG, PROTOTXT),
    "size": (CFG,),
    "shape": (PROTOTXT, FUNCTION),
    "mean": (PROTOTXT,),
    "scale": (PROTOTXT,),
    "dialect": (CFG, PROTOTXT),
    "dialects": (CFG, PROTOTXT),
    "precision": (CFG, PROTOTXT, FUNCTION),
    "phase": (CFG, PROTOTXT),
    "rate": (CFG, PROTOTXT, FUNCTION),
    "seed": (CFG, PROTOTXT, FUNCTION),
    "out": (CFG, PROTOTXT, FUNCTION),
}


def kind_of(net: str) -> str:
    """Which kind of network the first word of a command names; of a file, what stands in it decides."""
    if net.endswith(".npz"):
        return TRACE
    if ":" in net and not os.path.isfile(net):
        return FUNCTION
    return PROTOTXT if is_prototxt(net) else CFG


def check_dialects(net: str, names: Sequence[str]) -> None:
    """Raises UsageError for a dialect that networks of this kind do not have."""
    from undertow.caffe.dialect import DIALECTS as OF_CAFFE
    from undertow.darknet.dialect import DIALECTS

    known = OF_CAFFE if kind_of(net) == PROTOTXT else DIALECTS
    for name in names:
        if name not in known:
            raise UsageError(f"there is no dialect '{name}' here", remedy=f"one of {', '.join(known)}")


def dialects_of(words: Words) -> list[str]:
    """The dialects of -dialect or -dialects; none where neither is given. Raises UsageError."""
    if words["dialects"] and words["dialect"]:
        raise UsageError("-dialect and -dialects are one flag: give one of them")
    text = words["dialects"] or words["dialect"] or ""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise UsageError(f"-dialects {text}: there is no name", remedy="-dialects NAME,NAME")
    check_dialects(words["NET"], names)
    return names


def check_page(path: str | None) -> None:
    """Raises FormatError for a page that could not be written, before anything runs."""
    if path and (os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or ".")):
        what = "this is a folder" if os.path.isdir(path) else "there is no such folder to write into"
        raise FormatError(what, file=path, remedy="-html FILE.html, in a folder that is there")
    check_ending(path, "html", (".html", ".htm"))


def check_ending(path: str | None, flag: str, endings: Sequence[str]) -> None:
    """Raises FormatError for a file that is there and by its name something else than what the flag writes."""
    if path and os.path.isfile(path) and not path.lower().endswith(tuple(endings)):
        what = f"there is such a file, and by its name it is no {endings[0]}: it would be written over"
        raise FormatError(what, file=path, remedy=f"-{flag} FILE{endings[0]}, or remove it before")


Spared = Sequence[tuple[int, ...]]


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, spared: Spared, left: int = 2
) -> tuple[list[str], list[str]]:
    """The lines of a table that fits a terminal, and the names of the columns left out for that.

    spared: places of columns that may be left out, together, in this order. left: so many stand to the left.
    """
    from undertow.inspect.text import columns

    shown = list(range(len(head)))
    lines = columns(head, rows, left)
    for places in spared:
        if max(map(len, lines)) <= width:
            break
        shown = [place for place in shown if place not in places]
        aligned = sum(place < left for place in shown)
        lines = columns([head[i] for i in shown], [[row[i] for i in shown] for row in rows], aligned)
    return lines, [name for i, name in enumerate(head) if i not in shown]


def quietly() -> np.errstate:
    """Numbers that are not finite are shown where they stand, and not as warnings of NumPy besides."""
    return np.errstate(all="ignore")


def check_network(net: str) -> None:
    """Raises FormatError for a file that is not there, before anything is said about running it."""
    if kind_of(net) != FUNCTION and not os.path.exists(net):
        remedy = "name a .cfg, a .prototxt or module:function; for scope also the folder of a recorded training"
        raise FormatError("there is no such file", file=net, remedy=remedy)


def check_flags(words: Words) -> None:
    """Raises UsageError for a flag that would be without effect on this kind of network."""
    kind = kind_of(words["NET"])
    if kind == CFG and words["NET"].endswith(".py"):
        raise UsageError("this is a Python file, and no function of it is named", remedy=f"{words['NET']}:FUNCTION")
    for flag in words.given:
        used = _USED_BY.get(flag.name, (kind,))
        if kind not in used:
            remedy = "-shape CxHxW" if flag.name == "size" and kind == PROTOTXT else f"leave -{flag.name} out"
            raise UsageError(f"-{flag.name} is for {' and '.join(used)}, and this is {kind}", remedy=remedy)
    if kind == FUNCTION and {"shape", "data"} <= {flag.name for flag in words.given}:
        raise UsageError("-data brings the shapes of a function's arguments along", remedy="leave -shape out")
    _check_batch(words, kind)


def _check_batch(words: Words, kind: str) -> None:
    """A picture is one sample of a cfg's batch and fills a prototxt's; arrays bring their number along."""
    from undertow.inspect.batches import PICTURES

    ending = os.path.splitext(words["data"] or "")[1].lower() if kind in (CFG, PROTOTXT) else ""
    if "batch" in {flag.name for flag in words.given} and ending in (".npz", *(PICTURES if kind == CFG else ())):
        what = "arrays have as many samples as they have" if ending == ".npz" else "a picture is one sample"
        raise UsageError(f"-batch is for a random batch or a .data file; {what}", remedy="leave -batch out")


def picture_values(words: Words) -> PictureValues | None:
    """What -mean and -scale ask for; None where neither is given. Raises UsageError."""
    from undertow.inspect.batches import PICTURES
    from undertow.inspect.caffe_inputs import PictureValues

    if words["mean"] is None and words["scale"] is None:
        return None
    try:
        mean = tuple(float(word) for word in words["mean"].split(",")) if words["mean"] else ()
    except ValueError:
        mean = (float("nan"),)
    if not all(abs(value) < 1e6 for value in mean) or len(mean) not in (0, 1, 3):
        raise UsageError(f"-mean takes one number or three, not '{words['mean']}'", remedy="-mean 104,117,123")
    if os.path.splitext(words["data"] or "")[1].lower() not in PICTURES:
        flag = "mean" if words["mean"] is not None else "scale"
        what = "arrays are taken as they are" if words["data"] else "a random batch is taken as it is"
        raise UsageError(f"-{flag} is for a picture, {what}", remedy=f"leave -{flag} out, or give -data PICTURE")
    usual = 1.0 if mean else 1 / 255
    return PictureValues(mean, usual if words["scale"] is None else words["scale"], bgr=True)


def names_of(words: Words) -> Sequence[str]:
    """The names of the classes: one a line, or of a Caffe label map, by number."""
    path = words["names"]
    if not path:
        return ()
    if path.endswith(".prototxt"):
        from undertow.caffe.annosets import read_label_map

        numbers = {number: name for name, number in read_label_map(path).items() if 0 <= number < 100_000}
        return [numbers.get(i, f"class {i}") for i in range(max(numbers, default=-1) + 1)]
    from undertow.darknet.files.names import read_names

    return read_names(path)

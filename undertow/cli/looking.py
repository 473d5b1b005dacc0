"""What `undertow trace` and `undertow scope` share: flags of pictures, and which flag is for which kind of network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from undertow.cli.words import Flag, UsageError, Words
from undertow.errors import FormatError

if TYPE_CHECKING:
    from undertow.inspect.caffe_inputs import PictureValues

PICTURE_VALUES = (
    Flag("mean", "text", "of a prototxt: taken from the picture's values 0..255, blue first", "B,G,R"),
    Flag("scale", "number", "of a prototxt: then they are multiplied by it (1/255; 1 with -mean)", "X"),
)
_CFG, _PROTOTXT, _FUNCTION, _TRACE = "a cfg", "a prototxt", "a function", "a trace"
# Flags that some kinds of networks have no use for.
_USED_BY = {
    "weights": (_CFG, _PROTOTXT),
    "data": (_CFG, _PROTOTXT),
    "truth": (_CFG, _PROTOTXT),
    "names": (_CFG, _PROTOTXT),
    "batch": (_CFG, _PROTOTXT),
    "size": (_CFG,),
    "shape": (_PROTOTXT, _FUNCTION),
    "mean": (_PROTOTXT,),
    "scale": (_PROTOTXT,),
    "dialect": (_CFG, _PROTOTXT),
    "dialects": (_CFG, _PROTOTXT),
    "precision": (_CFG, _PROTOTXT, _FUNCTION),
    "rate": (_CFG, _PROTOTXT, _FUNCTION),
    "seed": (_CFG, _PROTOTXT, _FUNCTION),
    "out": (_CFG, _PROTOTXT),
}


def kind_of(net: str) -> str:
    """Which kind of network the first word of a command names."""
    if net.endswith(".prototxt"):
        return _PROTOTXT
    if net.endswith(".npz"):
        return _TRACE
    return _FUNCTION if ":" in net and not os.path.isfile(net) else _CFG


def check_network(net: str) -> None:
    """Raises FormatError for a file that is not there, before anything is said about running it."""
    if kind_of(net) != _FUNCTION and not os.path.exists(net):
        remedy = "name a .cfg, a .prototxt, module:function, or the folder of a recorded training"
        raise FormatError("there is no such file", file=net, remedy=remedy)


def check_flags(words: Words) -> None:
    """Raises UsageError for a flag that would be without effect on this kind of network."""
    kind = kind_of(words["NET"])
    for flag in words.given:
        used = _USED_BY.get(flag.name, (kind,))
        if kind not in used:
            remedy = "-shape CxHxW" if flag.name == "size" and kind == _PROTOTXT else f"leave -{flag.name} out"
            raise UsageError(f"-{flag.name} is for {' and '.join(used)}, and this is {kind}", remedy=remedy)


def picture_values(words: Words) -> PictureValues | None:
    """What -mean and -scale ask for; None where neither is given. Raises UsageError."""
    from undertow.inspect.caffe_inputs import PictureValues

    if words["mean"] is None and words["scale"] is None:
        return None
    try:
        mean = tuple(float(word) for word in words["mean"].split(",")) if words["mean"] else ()
    except ValueError:
        mean = (float("nan"),)
    if not all(abs(value) < 1e6 for value in mean) or len(mean) not in (0, 1, 3):
        raise UsageError(f"-mean takes one number or three, not '{words['mean']}'", remedy="-mean 104,117,123")
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

"""`undertow convert`: weights files cut, re-headed, averaged, listed, and as safetensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, UsageError, Words

if TYPE_CHECKING:
    from undertow.darknet.convert import Held


def convert(words: Words) -> int:
    """convert CFG IN [OUT]; several files in IN, with commas between, are averaged."""
    from undertow.darknet.convert import read_held, write_held
    from undertow.darknet.files.cfg import read_cfg
    from undertow.inspect.sources import is_prototxt

    if is_prototxt(words["CFG"]):
        raise UsageError(
            f"convert is for a Darknet cfg and its weights, and {words['CFG']} is a Caffe prototxt",
            remedy="undertow caffe -h lists the commands for Caffe's files",
        )
    if not words["OUT"] and not words["list"]:
        raise UsageError("convert: OUT is missing", remedy="give a file to write, or -list")
    config = read_cfg(words["CFG"], words["strict"])
    files = [read_held(config, path, words["strict"]) for path in words["IN"].split(",")]
    held = files[0]
    if len(files) > 1:
        if any(other.arrays.keys() != held.arrays.keys() for other in files):
            raise UsageError("the files to average hold different layers", remedy="cut them to one length first")
        arrays = {
            key: np.asarray(np.mean([other.arrays[key] for other in files], axis=0, dtype=np.float64), np.float32)
            for key in held.arrays
        }
        held = replace(held, arrays=arrays)
    if words["layers"] is not None:
        held = held.cut(words["layers"])
    held = held.with_header(words["header"])
    if words["list"]:
        print("\n".join(_listing(held)))
    if words["OUT"]:
        write_held(held, words["OUT"])
        say(f"{len(held.arrays)} arrays of {held.layers} layers: {words['OUT']}")
    return 0


def _listing(held: Held) -> list[str]:
    header = held.header
    version = f"{header.major}.{header.minor}.{header.revision}"
    lines = [f"version {version}, {header.seen} images seen, header of {header.size} bytes, {held.layers} layers"]
    for key, name in held.names().items():
        array = held.arrays[key]
        shape = "x".join(map(str, array.shape))
        lines.append(f"{name:40} {shape:>18} {array.min():12.6g} {array.mean():12.6g} {array.max():12.6g}")
    return lines


CONVERT = Command(
    "convert",
    ("CFG", "IN", "[OUT]"),
    (
        Flag("layers", "whole", "keep only the first N layers: a backbone", "N", least=1),
        Flag("header", "text", "form of the header: keep, new or old", "FORM", "keep", choices=("keep", "new", "old")),
        Flag("list", "switch", "print version, counter, and name, shape, least, mean and greatest of each array"),
        Flag("strict", "switch", "oddities in the files are errors, not warnings"),
    ),
    "weights to .safetensors and back byte for byte, cut, listed; several in IN, with commas, are averaged",
    convert,
)

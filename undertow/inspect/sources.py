"""Which of the two languages a network's file is written in, whatever the file is called."""

from __future__ import annotations

import os
import re

_ENDINGS = (".prototxt", ".pt")
_LOOKED_AT = 65536  # bytes: long comments may stand in front
_COMMENT = re.compile(r"\s*([#;][^\n]*(\n|\Z)\s*)*")
_CFG = re.compile(r"\[|[A-Za-z_][\w -]*=")
_PROTOTXT = re.compile(r"[A-Za-z_]\w*\s*[:{<]")


def is_prototxt(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a Caffe prototxt rather than a Darknet cfg.

    What stands first decides: `[section]` or `key=value` is Darknet's, `name: ...` or `layer {` is Caffe's. Where that
    says nothing, or there is no such file, the name does.
    """
    start = _COMMENT.sub("", _beginning(path), count=1)
    if _CFG.match(start):
        return False
    return bool(_PROTOTXT.match(start)) or os.fspath(path).endswith(_ENDINGS)


def _beginning(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(_LOOKED_AT).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return ""

"""Which program a cfg and its weights were made for, and whether it can be trained here."""

from __future__ import annotations

import logging
import os

from undertow.darknet.dialect import ALEXEYAB, EXACT, Dialect
from undertow.darknet.files.cfg import Config
from undertow.darknet.files.fork_keys import Effect
from undertow.darknet.files.options import fork_sign, section_type, training_gaps
from undertow.darknet.files.textfiles import show, telling_system_errors
from undertow.darknet.files.weights_header import FORK_REVISION, LONG_HEADER, parse_headers
from undertow.errors import FormatError

PathLike = str | os.PathLike[str]

_log = logging.getLogger("undertow.darknet")
_FORK_HEADS = ("yolo", "Gaussian_yolo")


def choose_dialect(config: Config, weights: PathLike | None = None) -> tuple[Dialect, str]:
    """The dialect a network was made for, and why, in words for the log.

    AlexeyAB's fork where the cfg has a section, key or word that only the fork knows, or the weights say that the fork
    wrote them; else `exact`. Raises FormatError for a weights file without a header.
    """
    sign = fork_sign(config)
    if sign is None and weights is not None and os.path.isfile(weights) and _revision(weights) >= FORK_REVISION:
        sign = "the version in the weights file"
    if sign is None:
        chosen, why = EXACT, "nothing of AlexeyAB's fork in the files"
    else:
        chosen, why = ALEXEYAB, f"{sign} is of AlexeyAB's fork"
    _log.info("%s: dialect %s: %s", config.file, chosen.name, why)
    return chosen, why


def check_trainable(config: Config, dialect: Dialect) -> None:
    """Raise FormatError, with file and line, for a network whose loss is not here yet: those of AlexeyAB's fork."""
    gaps = training_gaps(config, Effect.LOSS)
    if gaps:
        shown = f"{gaps[0].key}={show(gaps[0].value or '')}"
        raise FormatError(
            f"training with {shown} is not supported yet: AlexeyAB's fork has another loss then",
            file=config.file,
            line=gaps[0].line,
            remedy="use the network for detection only, or remove the key",
        )
    for section in config.layers if dialect.fork else ():
        if section_type(section).name in _FORK_HEADS:
            raise FormatError(
                f"training [{section.name}] in the dialect {dialect.name} is not supported yet: the fork weights boxes "
                "and leaves out objectness by rules of its own",
                file=config.file,
                line=section.line,
                remedy=f"train in the dialect {EXACT.name}, by the loss of the 2018 program",
            )


def _revision(weights: PathLike) -> int:
    name = os.fspath(weights)
    with telling_system_errors(name, "read"), open(weights, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return next(iter(parse_headers(stream.read(LONG_HEADER), name, size))).revision

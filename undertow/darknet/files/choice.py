"""Which program a cfg and its weights were made for, and whether it can be trained here."""

from __future__ import annotations

import logging
import os

from undertow.darknet.dialect import ALEXEYAB, EXACT, Dialect
from undertow.darknet.files.cfg import Config, Entry
from undertow.darknet.files.fork_keys import Effect, ForkKey
from undertow.darknet.files.options import fork_sign, section_type, training_gaps
from undertow.darknet.files.textfiles import show, telling_system_errors
from undertow.darknet.files.weights_header import FORK_REVISION, LONG_HEADER, parse_headers
from undertow.errors import FormatError

PathLike = str | os.PathLike[str]

_log = logging.getLogger("undertow.darknet")
_FOLLOWED_IN_DETECTION = {"scale_x_y": ForkKey(Effect.LOSS, ("1",)), "new_coords": ForkKey(Effect.LOSS, ("0",))}
_BY_EXACT = f"train in the dialect {EXACT.name}, by the loss of the 2018 program"


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
    """Raise FormatError, with file and line, for a network whose loss is not here yet: those of AlexeyAB's fork.

    The remedy names all that has to change.
    """
    for section in config.layers:
        if section_type(section).name == "Gaussian_yolo":
            raise FormatError(
                "training [Gaussian_yolo] is not supported yet: its loss is not here, in any dialect",
                file=config.file,
                line=section.line,
                remedy="use the network for detection only, or train one with [yolo] instead",
            )
    head = next((s for s in config.layers if dialect.fork and section_type(s).name == "yolo"), None)
    gaps = sorted((*training_gaps(config, Effect.LOSS), *_outputs_without_loss(config)), key=lambda gap: gap.line)
    if gaps:
        names = list(dict.fromkeys(show(gap.key) for gap in gaps))
        keys = "the key" if len(names) == 1 else f"the keys {', '.join(names)}"
        raise FormatError(
            f"training with {show(gaps[0].key)}={show(gaps[0].value or '')} is not supported yet: "
            "AlexeyAB's fork has another loss then",
            file=config.file,
            line=gaps[0].line,
            remedy=f"use the network for detection only, or remove {keys}{f' and {_BY_EXACT}' if head else ''}",
        )
    if head:
        raise FormatError(
            f"training [yolo] in the dialect {dialect.name} is not supported yet: the fork weights boxes "
            "and leaves out objectness by rules of its own",
            file=config.file,
            line=head.line,
            remedy=_BY_EXACT,
        )


def _outputs_without_loss(config: Config) -> list[Entry]:
    """Keys of [yolo] that detection follows and the loss does not, where they change something."""
    found = [
        (section, section.find(key), key)
        for section in config.layers
        if section_type(section).name == "yolo"
        for key in _FOLLOWED_IN_DETECTION
    ]
    return [
        entry
        for section, entry, key in found
        if entry is not None and not _FOLLOWED_IN_DETECTION[key].is_neutral(entry.value or "", section)
    ]


def _revision(weights: PathLike) -> int:
    name = os.fspath(weights)
    with telling_system_errors(name, "read"), open(weights, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return next(iter(parse_headers(stream.read(LONG_HEADER), name, size))).revision

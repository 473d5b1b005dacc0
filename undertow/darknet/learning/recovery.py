"""Which weights a training begins with: those given, or, when that checkpoint is broken, the one before it."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from undertow.darknet.files.weights import WeightsFile
from undertow.darknet.learning.checkpoint import fits, previous_path, state_files
from undertow.darknet.network import Network
from undertow.errors import FormatError, UndertowWarning

_NO_CHECKPOINT = "it is not the file that was saved with the state beside it: damaged since then, or replaced"


@dataclass(frozen=True)
class Beginning:
    """What a training begins with. path: of the file in the net now; given: by the user. found: what it held.

    remarks: why it is another file than the given one, and whatever else was wrong.
    """

    path: Path
    given: Path
    found: WeightsFile
    remarks: list[str] = field(default_factory=list)

    @property
    def fell_back(self) -> bool:
        """Whether the file given is broken, and the one before it was taken."""
        return self.path != self.given


@dataclass
class _Tried:
    """One file that was loaded, or why it could not be."""

    path: Path
    found: WeightsFile | None = None
    told: list[warnings.WarningMessage] = field(default_factory=list)
    problem: FormatError | None = None
    fits: bool = False

    @property
    def whole(self) -> bool:
        """Whether everything a checkpoint holds is there, and of the usual kind."""
        return self.found is not None and not self.found.report

    def reason(self) -> str:
        """What is wrong with it as a checkpoint."""
        if self.problem is not None:
            return self.problem.reason
        if self.found is not None and self.found.report:
            return self.found.report[0]
        return _NO_CHECKPOINT


def load_beginning(weights: str | os.PathLike[str], net: Network, strict: bool = False) -> Beginning:
    """Load the weights that a training begins with into the net.

    A whole file beside which no state stands is taken as it is. Of a checkpoint, the first of the given one and the
    previous one that fits its state is taken. Where none does, but the file given is whole, it is taken alone.
    Raises FormatError when no file can be loaded; it tells what else there is.
    """
    given = Path(weights)
    previous = previous_path(given)
    if not previous.exists() and not state_files(given):
        return Beginning(given, given, net.load_weights(given, strict=strict))
    remarks: list[str] = []
    tried = []
    for path in (given, previous):
        one = _try(path, net, strict)
        tried.append(one)
        weights_alone = one.whole and path == given and not state_files(given, own=True)
        if one.found is not None and (one.fits or weights_alone):
            if path != given:
                remarks.append(f"{given}: {tried[0].reason()}")
                remarks.append(
                    f"{path}, saved before it, after iteration {net.batch_number}, is taken instead; to begin with the "
                    f"weights of {given.name} all the same, copy that file under another name"
                )
            _tell(one)
            return Beginning(path, given, one.found, remarks)
    return _without_state(given, tried, net, strict)


def _without_state(given: Path, tried: list[_Tried], net: Network, strict: bool) -> Beginning:
    """Weights of a file that no state fits: the given one if it is whole, else the previous one."""
    for one in tried:
        if one.whole:
            found = net.load_weights(one.path, strict=strict)
            remarks = [] if one.path == given else [f"{given}: {tried[0].reason()}", f"{one.path} is taken instead"]
            return Beginning(one.path, given, found, remarks)
    before = f"{tried[1].path}: {tried[1].reason()}" if tried[1].path.exists() else "there is none"
    raise FormatError(
        f"this checkpoint is broken: {tried[0].reason()}; and the one before it cannot be used: {before}",
        file=given,
        remedy=_what_else(given),
    )


def _try(path: Path, net: Network, strict: bool) -> _Tried:
    one = _Tried(path)
    with warnings.catch_warnings(record=True) as one.told:
        warnings.simplefilter("always", UndertowWarning)
        try:
            one.found = net.load_weights(path, strict=strict)
        except FormatError as problem:
            one.problem = problem
            return one
    one.fits = one.whole and fits(path, net)
    return one


def _tell(one: _Tried) -> None:
    for warning in one.told:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _what_else(given: Path) -> str:
    """Other weights of the same net in the folder, the newest first."""
    name = given.name.split(".")[0]
    try:
        others = [path for path in given.parent.glob(f"{name}_*.weights") if path.is_file()]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        others = []
    if not others:
        return "begin with the weights that this training began with"
    return f"go on with the newest other weights of this net, {others[0]}"

"""Which weights a training begins with: those given, or, when that checkpoint is broken, the one before it."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from undertow.darknet.files.weights import WeightsFile
from undertow.darknet.learning.checkpoint import fits, judge_states, kept_shapes, previous_path, state_files, state_path
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
    broken_states: list[FormatError] = field(default_factory=list)
    other_seen: list[int] = field(default_factory=list)

    @property
    def contradicted(self) -> bool:
        """Whether a whole state beside it says that these are not the weights it was saved with."""
        return not self.fits and bool(self.other_seen)

    @property
    def damaged(self) -> bool:
        """Whether these can be no other weights, put there later: they have seen what the state has seen."""
        return self.contradicted and self.found is not None and self.found.seen in self.other_seen

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
        if not state_files(self.path, own=True):
            return f"its state, {state_path(self.path)}, is not there any more"
        if self.broken_states and not self.contradicted:
            problem = self.broken_states[0]
            return f"its state, {problem.file}, is broken ({problem.reason}), so that nothing tells if it is whole"
        return _NO_CHECKPOINT


def load_beginning(
    weights: str | os.PathLike[str], net: Network, strict: bool = False, *, alone: bool = False
) -> Beginning:
    """Load the weights that a training begins with into the net.

    A whole file beside which no checkpoint stands is taken as it is. Of a checkpoint, the first of the given one and
    the previous one that fits its state is taken. Where none does, or the previous one is of a later iteration than
    whole weights that have lost their state, the file given is taken alone.
    alone: nothing but weights is wanted (-clear), so that a whole file without its state is taken at once.
    Raises FormatError when no file can be loaded; it tells what else there is, or that the cfg is another net's.
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
        enough = one.whole and path == given and alone and not state_files(given, own=True)
        if one.found is not None and (enough or (one.fits and not _is_later(one, tried[0]))):
            if path != given:
                remarks += _instead(tried[0], path, net)
            _tell(one)
            return Beginning(path, given, one.found, remarks)
    return _without_state(given, tried, net, strict)


def _instead(given: _Tried, path: Path, net: Network) -> list[str]:
    """What is told when the checkpoint before, which is in the net now, takes the place of the given one."""
    return [
        f"{given.path}: {given.reason()}",
        f"{path}, saved before it, after iteration {net.batch_number}, is taken instead; {_all_the_same(given.path)}",
    ]


def _all_the_same(given: Path) -> str:
    return f"to begin with the weights of {given.name} all the same, copy that file under another name"


def _is_later(one: _Tried, given: _Tried) -> bool:
    """Whether it has seen more than whole weights without a state: then another training left it, not this one."""
    if not given.whole or state_files(given.path, own=True) or one.found is None or given.found is None:
        return False
    return one.found.seen > given.found.seen


def _without_state(given: Path, tried: list[_Tried], net: Network, strict: bool) -> Beginning:
    """Weights of a file that no state fits: the given one if it is whole, else the previous one.

    What its own state says to be damaged is not taken; other weights that were put in its place are, for want of any.
    """
    whole = [one for one in tried if one.whole]
    for one in sorted(whole, key=lambda one: one.contradicted):
        if not one.damaged:
            found = net.load_weights(one.path, strict=strict)
            remarks = [] if one.path == given else _instead(tried[0], one.path, net)
            return Beginning(one.path, given, found, remarks)
    _check_cfg(given, net)
    before = f"{tried[1].path}: {tried[1].reason()}" if tried[1].path.exists() else "there is none"
    raise FormatError(
        f"this checkpoint is broken: {tried[0].reason()}; and the one before it cannot be used: {before}",
        file=given,
        remedy=f"{_what_else(given)}; {_all_the_same(given)}" if tried[0].damaged else _what_else(given),
    )


def _check_cfg(given: Path, net: Network) -> None:
    """Raise FormatError when the states near a checkpoint tell that it was made with another cfg."""
    here = {name: array.shape for name, array in net.optimizer.updates.items()}
    for there in kept_shapes(given):
        # Adam keeps more, which does not say what the layers are.
        names = {name for name in there if name.startswith("layer") and not name.endswith(("/m", "/v"))} | here.keys()
        differing = sorted((_layer_of(name), name) for name in names if there.get(name) != here.get(name))
        if differing:
            layer, name = differing[0]
            array = name.partition("/")[2]
            raise FormatError(
                f"this checkpoint was made with another cfg than {net.config.file}: its layer {layer} has "
                f"{_sized(array, there.get(name))}, with this cfg it has {_sized(array, here.get(name))}",
                file=given,
                remedy="give the cfg of that training; to begin another net with its first layers, cut them out with "
                "undertow darknet partial",
            )


def _layer_of(name: str) -> int:
    return int(name.removeprefix("layer").partition("/")[0])


def _sized(name: str, shape: tuple[int, ...] | None) -> str:
    return f"no {name}" if shape is None else f"{name} of {' x '.join(map(str, shape))}"


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
    one.broken_states, one.other_seen = judge_states(path, net)
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

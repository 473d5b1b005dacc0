"""What a .weights file leaves out, kept beside it, so that training goes on as if it had never stopped.

Beside NAME.backup stands NAME.backup.npz with the momentum accumulators, counters and averages. It carries a digest
of the parameters it belongs to: a .weights file that was put in NAME.backup's place later is never mixed with it.
The pair saved before is kept as NAME.backup.previous and NAME.backup.previous.npz.

Writing goes in steps, each of which is done or not: the new pair as NAME.backup.next(.npz), the present one under the
names of the previous, then the new files onto their own names. Whenever the machine stops, the weights that stand
there, and one of these states, fit together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undertow.darknet.files.cfg import Config
from undertow.darknet.network import Network
from undertow.errors import FormatError, UndertowError
from undertow.files import keep_copy, move
from undertow.layers.saving import load, save

Array = np.ndarray[Any, Any]
VERSION = 1
_DIGEST = 32


@dataclass
class Progress:
    """Where a training stands besides the network itself.

    seed: of the draws. average: of the loss, None before the first iteration. cost_sum, passes: of the iteration that
    is under way, when it stopped between two updates. best_map, last_map, map_iteration: of validations so far.
    """

    seed: int = 0
    average: float | None = None
    cost_sum: float = 0.0
    passes: int = 0
    last_map: float | None = None
    best_map: float | None = None
    map_iteration: int = 0


@dataclass
class Restored:
    """What `load_checkpoint` found.

    used: momentum and averages were taken. remarks: why not, or what differs from the run that wrote them.
    """

    used: bool
    progress: Progress = field(default_factory=Progress)
    remarks: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether training goes on bit for bit as if it had never stopped."""
        return self.used and not self.remarks


def state_path(weights: str | os.PathLike[str]) -> Path:
    """Where the state that belongs to a .weights file stands."""
    return Path(f"{os.fspath(weights)}.npz")


def previous_path(weights: str | os.PathLike[str]) -> Path:
    """Where the weights saved before the last stand; their state stands beside them."""
    return Path(f"{os.fspath(weights)}.previous")


def save_checkpoint(
    path: str | os.PathLike[str],
    net: Network,
    progress: Progress,
    config: Config,
    images: tuple[str, ...],
    *,
    settings: Mapping[str, str] | None = None,
    broken: bool = False,
) -> None:
    """Write weights to `path` and the rest of the training's state beside them; keep the pair that stood there.

    config: the cfg as it was read. images: the list that samples are drawn from; both only as digests.
    settings: what else the numbers depend on, by the names that a user knows.
    broken: what stands at `path` is known to be broken: it is moved to PATH.broken, and the previous pair stays.
    Raises OSError or FormatError where nothing can be written; what stood there before still stands then.
    """
    weights, state = _following(path), state_path(_following(path))
    if state.exists() and not weights.exists():
        move(state, state_path(path))  # an earlier save was cut short after its weights had got their place
    written = False
    try:
        net.save_weights(weights)
        save(state, _state(net, progress, config, images, settings or {}))
        written = True
        _make_room(Path(path), broken)
        move(weights, path)
        move(state, state_path(path))
    except BaseException:
        if not written or weights.exists():
            state.unlink(missing_ok=True)
            weights.unlink(missing_ok=True)
        raise


def _state(
    net: Network, progress: Progress, config: Config, images: tuple[str, ...], settings: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "updates": net.optimizer.state(),
        "seen": net.seen,
        "updates_done": net.updates_done,
        "batches": np.array([net.batch, net.subdivisions]),
        "parameters": parameter_digest(net),
        "config": _text_digest(config.to_text()),
        "images": _text_digest("\n".join(images)),
        "settings": {name: np.frombuffer(value.encode(), np.uint8) for name, value in settings.items()},
        "progress": {name: _number(value) for name, value in vars(progress).items()},
        "carried": {f"{layer.index}/{name}": a for layer in net.layers for name, a in layer.carried().items()},
    }


def _make_room(path: Path, broken: bool) -> None:
    """Keep what stands at `path` under another name, before the new pair takes its place."""
    if broken:
        if path.exists():
            move(path, f"{path}.broken")
    elif path.exists():
        if state_path(path).exists():
            keep_copy(state_path(path), state_path(previous_path(path)))
        keep_copy(path, previous_path(path))


def load_checkpoint(
    path: str | os.PathLike[str],
    net: Network,
    seed: int,
    config: Config,
    images: tuple[str, ...],
    settings: Mapping[str, str] | None = None,
) -> Restored | None:
    """Take the state that belongs to the weights just loaded from `path`; None when there is no state at all.

    seed, config, images, settings: of the run that begins, to tell whether it draws the same samples and computes the
    same numbers.
    """
    remarks: list[str] = []
    states = list(_fitting_states(path, net, remarks))
    if not states and not remarks:
        return None
    for state in states:
        try:
            net.optimizer.load_state(_part(state, "updates/"))
        except UndertowError as problem:
            remarks.append(str(problem))
            continue
        return _restored(state, net, seed, config, images, settings or {})
    return Restored(False, remarks=remarks)


def fits(path: str | os.PathLike[str], net: Network) -> bool:
    """Whether a state near `path` belongs to the weights just loaded from there."""
    return any(True for _ in _fitting_states(path, net, []))


def judge_states(path: str | os.PathLike[str], net: Network) -> tuple[list[FormatError], list[int]]:
    """Of the states that stand beside weights just loaded from `path`: what is wrong with those that are broken, and
    how many samples the weights had seen that the whole ones belong to, where those are other weights.
    """
    broken, others = [], []
    digest = parameter_digest(net)
    for file in state_files(path, own=True):
        try:
            state = _read_state(file)
        except FormatError as problem:
            broken.append(problem)
            continue
        if not np.array_equal(state["parameters"], digest):
            others.append(int(state["seen"]))
    return broken, others


def kept_shapes(path: str | os.PathLike[str]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Of each state near `path` that can be read: names and shapes of the accumulators, as `DarknetSGD.state` has."""
    for file in state_files(path):
        try:
            state = _read_state(file)
        except FormatError:
            continue
        yield {name: array.shape for name, array in _part(state, "updates/").items()}


def _fitting_states(path: str | os.PathLike[str], net: Network, remarks: list[str]) -> Iterator[dict[str, Array]]:
    """The states near `path` that belong to the parameters of the net; about others, remarks."""
    digest = parameter_digest(net)
    for file in state_files(path):
        try:
            state = _read_state(file)
        except FormatError as problem:
            remarks.append(str(problem))
            continue
        if np.array_equal(state["parameters"], digest):
            yield state
        else:
            remarks.append(f"{file} belongs to other weights")


def state_files(path: str | os.PathLike[str], own: bool = False) -> list[Path]:
    """States that may belong to the weights at `path`: of a save that was cut short, they stand under other names.

    own: without those of the previous checkpoint.
    """
    first = Path(os.fspath(path).removesuffix(".previous"))
    names = dict.fromkeys(map(state_path, (path, _following(first), *(() if own else (first, previous_path(first))))))
    return [file for file in names if file.exists()]


def parameter_digest(net: Network) -> Array:
    """32 bytes that stand for all parameters, rolling statistics and the number of samples seen."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    digest.update(str(net.seen).encode())
    for layer in net.layers:
        for name, array in layer.arrays().items():
            digest.update(f"{layer.index}/{name}/{array.shape}".encode())
            digest.update(np.ascontiguousarray(array, "<f4").data)
    return np.frombuffer(digest.digest(), np.uint8)


def _restored(
    state: dict[str, Array],
    net: Network,
    seed: int,
    config: Config,
    images: tuple[str, ...],
    settings: Mapping[str, str],
) -> Restored:
    progress = _progress(_part(state, "progress/"))
    net.updates_done = int(state["updates_done"])
    for layer in net.layers:
        layer.carry(_part(state, f"carried/{layer.index}/"))
    remarks = []
    if progress.seed != seed:
        remarks.append(f"the run began with -seed {progress.seed}, from here on it is {seed}")
        progress.seed = seed
    remarks += _changed(_part(state, "settings/"), settings)
    if not np.array_equal(state["config"], _text_digest(config.to_text())):
        remarks.append("the cfg has changed since then")
    if not np.array_equal(state["images"], _text_digest("\n".join(images))):
        remarks.append("the list of images has changed since then")
    if (net.batch, net.subdivisions) != tuple(state["batches"]):
        # Sums of an unfinished iteration mean nothing with other batches.
        progress.cost_sum, progress.passes = 0.0, 0
    return Restored(True, progress, remarks)


def _changed(before: dict[str, Array], settings: Mapping[str, str]) -> list[str]:
    """What is told about settings that are not those of the run that was saved; older states do not know them all."""
    told = {name: bytes(before[name]).decode(errors="replace") for name in settings if name in before}
    return [
        f"the run began with {name} {old}, from here on it is {settings[name]}"
        for name, old in told.items()
        if old != settings[name]
    ]


def _read_state(file: Path) -> dict[str, Array]:
    state = load(file)
    expected = {"version", "seen", "updates_done", "batches", "parameters", "config", "images"}
    expected |= {f"progress/{name}" for name in vars(Progress())}
    missing = sorted(expected - state.keys())
    if missing or int(state["version"]) != VERSION:
        reason = f"'{missing[0]}' is missing" if missing else f"version {int(state['version'])} of this kind of file"
        raise FormatError(
            f"this is no state of a training that can be read here: {reason}",
            file=file,
            remedy="go on without it: the weights alone are enough to continue",
        )
    return state


def _following(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.next")


def _part(state: dict[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def _number(value: float | int | None) -> float | int:
    return np.nan if value is None else value


def _progress(state: dict[str, Array]) -> Progress:
    def optional(name: str) -> float | None:
        return None if np.isnan(state[name]) else float(state[name])

    return Progress(
        seed=int(state["seed"]),
        average=optional("average"),
        cost_sum=float(state["cost_sum"]),
        passes=int(state["passes"]),
        last_map=optional("last_map"),
        best_map=optional("best_map"),
        map_iteration=int(state["map_iteration"]),
    )


def _text_digest(text: str) -> Array:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_DIGEST)
    return np.frombuffer(digest.digest(), np.uint8)

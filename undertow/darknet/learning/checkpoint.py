"""What a .weights file leaves out, kept beside it, so that training goes on as if it had never stopped.

Beside NAME.backup stands NAME.backup.npz with the momentum accumulators, counters and averages. It carries a digest
of the parameters it belongs to: a .weights file that was put in NAME.backup's place later is never mixed with it.

Writing takes three renames: the new state as NAME.backup.next.npz, the new NAME.backup, and then the state onto its
own name. Whenever the machine stops, one of the two states fits the weights that stand there.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undertow.darknet.files.cfg import Config
from undertow.darknet.network import Network
from undertow.errors import FormatError, ShapeError, UndertowError
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


def save_checkpoint(
    path: str | os.PathLike[str], net: Network, progress: Progress, config: Config, images: tuple[str, ...]
) -> None:
    """Write weights to `path` and the rest of the training's state beside them.

    config: the cfg as it was read. images: the list that samples are drawn from; both only as digests.
    """
    following = _following(path)
    save(
        following,
        {
            "version": VERSION,
            "updates": net.optimizer.state(),
            "seen": net.seen,
            "updates_done": net.updates_done,
            "batches": np.array([net.batch, net.subdivisions]),
            "parameters": parameter_digest(net),
            "config": _text_digest(config.to_text()),
            "images": _text_digest("\n".join(images)),
            "progress": {name: _number(value) for name, value in vars(progress).items()},
        },
    )
    net.save_weights(path)
    os.replace(following, state_path(path))


def load_checkpoint(
    path: str | os.PathLike[str], net: Network, seed: int, config: Config, images: tuple[str, ...]
) -> Restored | None:
    """Take the state that belongs to the weights just loaded from `path`; None when there is no state at all.

    seed, config, images: of the run that begins, to tell whether it draws the same samples.
    """
    candidates = [file for file in (state_path(path), _following(path)) if file.exists()]
    if not candidates:
        return None
    remarks = []
    digest = parameter_digest(net)
    for file in candidates:
        try:
            state = _read_state(file)
            if not np.array_equal(state["parameters"], digest):
                remarks.append(f"{file} belongs to other weights")
                continue
            net.optimizer.load_state(_part(state, "updates/"))
        except (FormatError, ShapeError, UndertowError) as problem:
            remarks.append(str(problem))
            continue
        return _restored(state, net, seed, config, images)
    return Restored(False, remarks=remarks)


def parameter_digest(net: Network) -> Array:
    """32 bytes that stand for all parameters, rolling statistics and the number of samples seen."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    digest.update(str(net.seen).encode())
    for layer in net.layers:
        for name, array in layer.arrays().items():
            digest.update(f"{layer.index}/{name}/{array.shape}".encode())
            digest.update(np.ascontiguousarray(array, "<f4").data)
    return np.frombuffer(digest.digest(), np.uint8)


def _restored(state: dict[str, Array], net: Network, seed: int, config: Config, images: tuple[str, ...]) -> Restored:
    progress = _progress(_part(state, "progress/"))
    net.updates_done = int(state["updates_done"])
    remarks = []
    if progress.seed != seed:
        remarks.append(f"the run began with -seed {progress.seed}, from here on it is {seed}")
        progress.seed = seed
    if not np.array_equal(state["config"], _text_digest(config.to_text())):
        remarks.append("the cfg has changed since then")
    if not np.array_equal(state["images"], _text_digest("\n".join(images))):
        remarks.append("the list of images has changed since then")
    if (net.batch, net.subdivisions) != tuple(state["batches"]):
        # Sums of an unfinished iteration mean nothing with other batches.
        progress.cost_sum, progress.passes = 0.0, 0
    return Restored(True, progress, remarks)


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
    return Path(f"{os.fspath(path)}.next.npz")


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

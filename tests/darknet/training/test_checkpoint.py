"""Stopping and going on gives the bits of a run that never stopped."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from undertow.core.modes import precision
from undertow.darknet import DIALECTS, Network, TrainOptions, load, training
from undertow.darknet.layers.head_statistics import HeadStatistics
from undertow.darknet.learning import trainer
from undertow.darknet.learning.checkpoint import load_checkpoint, parameter_digest, state_path
from undertow.darknet.learning.trainer import Iteration, Trainer, TrainingWatcher
from undertow.layers.saving import load as load_arrays
from undertow.layers.saving import save


class Recorder(TrainingWatcher):
    """Keeps what it is told; asks for a stop after so many passes."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.notes: list[str] = []
        self.iterations: list[Iteration] = []
        self.sizes: list[tuple[int, int]] = []
        self.passes, self.stop_after = 0, stop_after
        self.trainer: Trainer | None = None

    def started(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def note(self, text: str) -> None:
        self.notes.append(text)

    def resized(self, size: tuple[int, int]) -> None:
        self.sizes.append(size)

    def passed(self, heads: list[tuple[int, HeadStatistics]]) -> None:
        self.passes += 1
        if self.passes == self.stop_after and self.trainer is not None:
            self.trainer.request_stop("test")

    def iterated(self, iteration: Iteration) -> None:
        self.iterations.append(iteration)


def run(
    scene: Scene, weights: Path | None = None, stop_after: int | None = None, **options: int
) -> tuple[Trainer, Recorder]:
    recorder = Recorder(stop_after)
    made = training(scene.data, scene.cfg, weights, TrainOptions(**options), watcher=recorder)  # type: ignore[arg-type]
    made.run()
    return made, recorder


def everything(net: Network) -> list[np.ndarray]:
    return [parameter_digest(net), *net.optimizer.state().values()]


def same(a: Network, b: Network) -> bool:
    return all(map(np.array_equal, everything(a), everything(b)))


def test_what_a_killed_run_left_is_removed_when_a_training_starts(scene: Scene) -> None:
    half, weights = (
        scene.folder / "backup" / name for name in (".tiny.backup.0ab_cdef.undertow.part", "a.weights.part")
    )
    half.parent.mkdir()
    half.write_bytes(b"half")
    weights.write_bytes(b"of somebody else")
    _, told = run(scene, stop_after=1)
    assert any("left half written: .tiny.backup.0ab_cdef" in note for note in told.notes)
    assert weights.exists()
    assert not half.exists()


@pytest.mark.parametrize("passes", [1, 4, 7])
def test_a_stopped_run_goes_on_bit_for_bit(scene: Scene, passes: int) -> None:
    whole, told = run(scene)
    stopped, first = run(scene, stop_after=passes)
    assert stopped.net.seen == passes * 2
    resumed, second = run(scene, scene.backup)
    assert any("going on exactly" in note for note in second.notes)
    assert same(whole.net, resumed.net)
    numbers = [(i.number, i.loss, i.average, i.rate) for i in first.iterations + second.iterations]
    assert numbers == [(i.number, i.loss, i.average, i.rate) for i in told.iterations]


def test_multi_scale_goes_on_bit_for_bit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SIZE_STEP": 16, "SMALLEST_STEPS": 1, "SIZES": 4, "SIZE_ITERATIONS": 2, "LAST_ITERATIONS": 2, "LAST_SIZE": 32
    }.items():  # fmt: skip
        monkeypatch.setattr(trainer, name, value)
    scene.write_cfg(random=1, max_batches=8)
    whole, told = run(scene)
    sizes = [iteration.size[0] for iteration in told.iterations]
    assert sizes[0::2] == sizes[1::2]
    assert len(set(sizes)) > 2
    assert sizes[-2:] == [32, 32]
    run(scene, stop_after=7)
    resumed, second = run(scene, scene.backup)
    assert [iteration.size[0] for iteration in second.iterations] == sizes[3:]
    assert same(whole.net, resumed.net)


def test_weights_alone_go_on_as_in_the_original(scene: Scene) -> None:
    whole, _ = run(scene)
    run(scene, stop_after=4)
    state_path(scene.backup).unlink()
    resumed, told = run(scene, scene.backup)
    assert [iteration.number for iteration in told.iterations] == [3, 4, 5, 6]
    assert any("momentum" in note and "as in the original" in note for note in told.notes)
    assert not same(whole.net, resumed.net)


def test_clear_counts_from_zero_and_takes_no_momentum(scene: Scene) -> None:
    run(scene, stop_after=4)
    recorder = Recorder()
    made = training(scene.data, scene.cfg, scene.backup, TrainOptions(clear=True), watcher=recorder)
    assert made.net.seen == 0
    assert made.iteration == 0
    assert all(not array.any() for array in made.net.optimizer.state().values())


def test_momentum_is_not_mixed_with_other_weights(scene: Scene) -> None:
    run(scene, stop_after=2)
    other = load(scene.cfg, seed=9)
    other.seen = 8
    other.save_weights(scene.backup)
    made, told = run(scene, scene.backup)
    assert any("belongs to other weights" in note for note in told.notes)
    assert any("starts from zero" in note for note in told.notes)
    assert made.iteration == 6


def test_a_broken_state_falls_back_to_the_original(scene: Scene) -> None:
    run(scene, stop_after=4)
    content = state_path(scene.backup).read_bytes()
    state_path(scene.backup).write_bytes(content[: len(content) // 2])
    made, told = run(scene, scene.backup)
    assert any("npz" in note for note in told.notes)
    assert made.iteration == 6


@pytest.mark.parametrize("step", ["state", "weights", "rename"])
def test_dying_between_the_renames_leaves_a_pair_that_fits(
    scene: Scene, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stops after one of the three steps of the second backup."""
    run(scene, stop_after=2)
    kept = scene.folder / "kept"
    shutil.copytree(scene.folder / "backup", kept)
    first = load(scene.cfg, scene.backup)
    run(scene, scene.backup, stop_after=4)
    new_weights, new_state = scene.backup.read_bytes(), state_path(scene.backup).read_bytes()
    shutil.rmtree(scene.folder / "backup")
    kept.rename(scene.folder / "backup")
    following = scene.backup.with_name("tiny.backup.next.npz")
    following.write_bytes(new_state)
    if step in ("weights", "rename"):
        scene.backup.write_bytes(new_weights)
    if step == "rename":
        os.replace(following, state_path(scene.backup))
    made = training(scene.data, scene.cfg)
    made.net.load_weights(scene.backup)
    restored = load_checkpoint(scene.backup, made.net, 0, made.net.config, made.pictures.paths)
    assert restored is not None
    assert restored.exact
    assert (made.net.seen == first.seen) == (step == "state")


def test_what_differs_from_the_first_run_is_told(scene: Scene) -> None:
    run(scene, stop_after=2)
    scene.write_cfg(rate=0.02)
    (scene.folder / "train.txt").write_text("images/1.png\nimages/2.png\n")
    _, told = run(scene, scene.backup, seed=5)
    text = "\n".join(told.notes)
    for words in ("-seed 0", "the cfg has changed", "the list of images has changed", "but not bit for bit"):
        assert words in text


@pytest.mark.parametrize("name", ["-dialect", "-precision", "-no_flip"])
def test_other_arithmetic_or_draws_are_told(scene: Scene, name: str) -> None:
    """Each of them changes the numbers from here on, so nothing may claim that the run goes on exactly."""
    run(scene, stop_after=2)
    told = Recorder()
    dialect = DIALECTS["darknet-cpu"] if name == "-dialect" else None
    options = TrainOptions(mirror=name != "-no_flip")
    with precision("precise" if name == "-precision" else "fast"):
        training(scene.data, scene.cfg, scene.backup, options, dialect=dialect, watcher=told)
    text = "\n".join(told.notes)
    changed = {"-dialect": "exact, from here on it is darknet-cpu", "-precision": "fast, from here on it is precise"}
    assert f"began with {name} {changed.get(name, 'off, from here on it is on')}" in text
    assert "but not bit for bit" in text
    assert "exactly" not in text


def test_a_state_from_before_settings_were_kept_is_taken(scene: Scene) -> None:
    run(scene, stop_after=2)
    state = load_arrays(state_path(scene.backup))
    save(state_path(scene.backup), {key: value for key, value in state.items() if not key.startswith("settings/")})
    _, told = run(scene, scene.backup, stop_after=1)
    assert any("going on exactly" in note for note in told.notes)


def test_weights_that_know_another_net_keep_their_error(scene: Scene) -> None:
    """A state with accumulators of another shape is told; nothing of it is taken."""
    run(scene, stop_after=2)
    state = state_path(scene.backup).read_bytes()
    text = scene.cfg.read_text().replace("filters=6", "filters=5")
    scene.cfg.write_text(text)
    net = load(scene.cfg)
    net.seen = 4
    net.save_weights(scene.backup)
    state_path(scene.backup).write_bytes(state)
    restored = load_checkpoint(scene.backup, net, 0, net.config, ())
    assert restored is not None
    assert not restored.used

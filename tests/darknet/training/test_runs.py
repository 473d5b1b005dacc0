"""What a whole run promises: same seed, same weights; sizes that change; memory that stays; what stops it."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import undertow as ut
from tests.cli.conftest import start
from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_checkpoint import Recorder, everything, run, same
from undertow.darknet import TrainOptions, load, training
from undertow.darknet.learning import trainer
from undertow.darknet.learning.checkpoint import state_path
from undertow.errors import FormatError, UndertowError


@pytest.fixture
def threads() -> Iterator[None]:
    yield
    ut.set_threads(None)


def small_sizes(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    defaults = {
        "SIZE_STEP": 16, "SMALLEST_STEPS": 1, "SIZES": 3, "SIZE_ITERATIONS": 2, "LAST_ITERATIONS": 2, "LAST_SIZE": 32
    }  # fmt: skip
    for name, value in (defaults | values).items():
        monkeypatch.setattr(trainer, name, value)


# --- same seed, same weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_same_seed_and_thread_count_give_the_same_weights(
    scene: Scene, count: int, threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of threads that load pictures, and in which order they are done."""
    small_sizes(monkeypatch)
    scene.write_cfg(random=1, max_batches=8)
    ut.set_threads(count)
    first, _ = run(scene, workers=1, seed=4)
    for workers in (1, 2, 5):
        assert same(first.net, run(scene, workers=workers, seed=4)[0].net)
    other, _ = run(scene, workers=1, seed=5)
    assert not same(first.net, other.net)


# --- sizes -----------------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_original(scene: Scene) -> None:
    """dim = (rand() % 10 + 10) * 32, every 10 iterations; 608 from max_batches - 200 on (examples/detector.c)."""
    scene.write_cfg(random=1, max_batches=2000)
    made = training(scene.data, scene.cfg)
    sizes = [made.size_at(iteration) for iteration in range(2000)]
    assert all(width == height for width, height in sizes)
    blocks = [sizes[start : start + 10] for start in range(0, 2000, 10)]
    assert all(len(set(block)) == 1 for block in blocks)
    drawn = [block[0][0] for block in blocks[:180]]
    assert set(drawn) == {32 * number for number in range(10, 20)}
    assert sizes[1810:] == [(608, 608)] * 190
    scene.write_cfg(random=0, max_batches=2000)
    fixed = training(scene.data, scene.cfg)
    assert {fixed.size_at(iteration) for iteration in range(2000)} == {(32, 32)}


def test_sizes_change_under_plans(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size has its plan, kept for its next turn; planned and unplanned steps move the weights alike."""
    small_sizes(monkeypatch, LAST_ITERATIONS=3)
    scene.write_cfg(random=1, max_batches=12)
    planned, told = run(scene)
    assert len({iteration.size for iteration in told.iterations}) == 3
    assert planned.net._plans._train.last is not None
    assert planned.net._plans._train.reason() is None
    recorder = Recorder()
    plain = training(scene.data, scene.cfg, watcher=recorder)
    plain.net.planned = False
    plain.run()
    assert [one.size for one in recorder.iterations] == [one.size for one in told.iterations]
    np.testing.assert_allclose(
        [one.loss for one in recorder.iterations], [one.loss for one in told.iterations], rtol=2e-3
    )


# --- memory ----------------------------------------------------------------------------------------------------


class Memory(Recorder):
    """Bytes that the process has resident, at every 10th iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.resident: list[int] = []

    def iterated(self, iteration: trainer.Iteration) -> None:
        if iteration.number % 10 == 0:
            gc.collect()
            self.resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)


def growth(scene: Scene, iterations: int) -> float:
    """Mebibytes by which the last third of a run is above the middle third."""
    told = Memory()
    training(scene.data, scene.cfg, options=TrainOptions(backup_every=50), watcher=told).run()
    third = iterations // 30
    return float(np.median(told.resident[2 * third :]) - np.median(told.resident[third : 2 * third])) / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize(("iterations", "allowed"), [(240, 2.0), pytest.param(1200, 2.0, marks=pytest.mark.long)])
def test_memory_does_not_grow(scene: Scene, iterations: int, allowed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sizes that change and checkpoints, after all sizes have been met. A leak of 30 kB a step would be seen."""
    small_sizes(monkeypatch, SIZE_ITERATIONS=5, SIZE_STEP=32)
    scene.write_cfg(random=1, max_batches=iterations, rate=0.001)
    assert growth(scene, iterations) < allowed


# --- what stops a run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_and_going_on_gives_the_same_bytes(scene: Scene, sent: signal.Signals) -> None:
    scene.write_cfg(max_batches=60, rate=0.001)
    words = ("darknet", "detector", "train", scene.data, scene.cfg)
    process = start(*words, cwd=scene.folder)
    assert process.stdout is not None
    for line in process.stdout:
        if re.match(r"\d{2}: ", line):
            process.send_signal(sent)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + sent, err
    assert load(scene.cfg, scene.backup).batch_number < 60
    answer = start(*words, scene.backup, cwd=scene.folder)
    _, err = answer.communicate(timeout=120)
    assert answer.returncode == 0, err
    assert "going on exactly" in err
    resumed = (scene.folder / "backup" / "tiny_final.weights").read_bytes()
    whole = start(*words, cwd=scene.folder)
    whole.communicate(timeout=120)
    assert (scene.folder / "backup" / "tiny_final.weights").read_bytes() == resumed


def test_a_picture_that_stops_a_strict_run_costs_nothing(scene: Scene) -> None:
    """All passes before it are saved; with the picture mended the run ends as if it had never been broken."""
    whole, _ = run(scene)
    good = scene.image(4).read_bytes()
    scene.image(4).write_bytes(good[:100])
    recorder = Recorder()
    made = training(scene.data, scene.cfg, watcher=recorder)
    made.pictures.strict = True  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match=r"4\.png"):
        made.run()
    assert made.net.seen > 0
    assert any(f"{scene.backup} holds everything up to here" in note for note in recorder.notes)
    scene.image(4).write_bytes(good)
    resumed, told = run(scene, scene.backup)
    assert any("going on exactly" in note for note in told.notes)
    assert same(whole.net, resumed.net)


def test_a_picture_that_cannot_be_read_is_skipped_and_going_on_skips_it_too(scene: Scene) -> None:
    scene.image(4).write_bytes(b"no picture")
    whole, _ = run(scene)
    run(scene, stop_after=7)
    resumed, _ = run(scene, scene.backup)
    assert same(whole.net, resumed.net)


# --- weights alone ---------------------------------------------------------------------------------------------


def test_weights_alone_take_the_schedule_from_seen(scene: Scene) -> None:
    """As the original: the iteration is seen / batch, the rate follows from it, the momentum is zero."""
    _, told = run(scene, save_every=4)
    weights = scene.folder / "backup" / "tiny_4.weights"
    assert not state_path(weights).exists()
    made = training(scene.data, scene.cfg, weights)
    assert (made.iteration, made.net.seen) == (4, 16)
    assert made.net.learning_rate == told.iterations[3].rate
    assert not any(array.any() for array in everything(made.net)[1:])
    _, more = run(scene, weights)
    assert [one.number for one in more.iterations] == [5, 6]
    assert [one.rate for one in more.iterations] == [one.rate for one in told.iterations[4:]]
    _, again = run(scene, weights, clear=True)
    assert [one.number for one in again.iterations] == [1, 2, 3, 4, 5, 6]
    assert [one.rate for one in again.iterations] == [one.rate for one in told.iterations]


def test_weights_past_max_batches_say_so(scene: Scene) -> None:
    run(scene)
    final = scene.folder / "backup" / "tiny_final.weights"
    scene.write_cfg(max_batches=4)
    with pytest.raises(UndertowError, match=r"seen 24 images, which is iteration 6, and max_batches is 4.*-clear"):
        training(scene.data, scene.cfg, final)

"""A full disk costs a save, never the training; only the last save is an error, and it says what is left."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_checkpoint import Recorder, run, same
from undertow.darknet import Trainer, TrainOptions, load, train, training
from undertow.darknet.learning import saver
from undertow.darknet.learning.checkpoint import previous_path, state_path
from undertow.errors import UndertowError, UndertowWarning
from undertow.files import atomic_write


class Disk:
    """Fails writes while it is full; counts them."""

    def __init__(self) -> None:
        self.full, self.refused = False, 0

    def fsync(self, descriptor: int) -> None:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    return made


class Filling(Recorder):
    """The disk is full between two iterations."""

    def __init__(self, disk: Disk, first: int, last: int) -> None:
        super().__init__()
        self.disk, self.first, self.last = disk, first, last

    def iterated(self, iteration: Any) -> None:
        super().iterated(iteration)
        self.disk.full = self.first <= iteration.number <= self.last


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_full_disk_costs_saves_and_is_told_once(scene: Scene, disk: Disk) -> None:
    scene.write_cfg(max_batches=12)
    whole, _ = run(scene)
    told = Filling(disk, 3, 7)
    with pytest.warns(UndertowWarning) as caught:
        training(scene.data, scene.cfg, options=TrainOptions(backup_every=1, save_every=2), watcher=told).run()
    messages = [str(one.message) for one in caught]
    assert len(messages) == 1
    assert str(scene.backup) in messages[0]
    assert "No space left on device" in messages[0]
    assert "To mend it: make room on the disk" in messages[0]
    assert disk.refused == 5 + 2
    left = names(scene.folder / "backup")
    assert {"tiny_2.weights", "tiny_8.weights", "tiny_final.weights"} <= left
    assert not {"tiny_4.weights", "tiny_6.weights"} & left
    assert not any(".next" in name or name.endswith(".part") for name in left)
    again = load(scene.cfg, scene.folder / "backup" / "tiny_final.weights")
    for one, other in zip(whole.net.parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(one.data, other.data)


def test_what_was_saved_before_stays_whole_while_the_disk_is_full(scene: Scene, disk: Disk) -> None:
    run(scene, stop_after=4)
    kept = {path: path.read_bytes() for path in (scene.backup, state_path(scene.backup))}
    made = training(scene.data, scene.cfg, scene.backup)
    made.net.seen += 4
    disk.full = True
    with pytest.raises(UndertowError, match="No space left"):
        made.save_backup()
    assert {path: path.read_bytes() for path in kept} == kept
    assert not previous_path(scene.backup).exists()


def test_the_last_save_keeps_its_result_where_there_is_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing can be written into the folder of the weights any more."""
    whole, _ = run(scene, stop_after=9)
    scene.backup.unlink()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    usual = saver.save_checkpoint

    def refuse(path: Path, *given: Any, **options: Any) -> None:
        if path.parent == scene.folder / "backup":
            raise OSError(errno.EROFS, "Read-only file system")
        usual(path, *given, **options)

    monkeypatch.setattr(saver, "save_checkpoint", refuse)
    with pytest.raises(UndertowError, match=r"iteration 4 cannot be written: Read-only.* it was kept as ") as caught:
        run(scene, stop_after=9)
    kept = Path(str(caught.value).split("it was kept as ")[1].split(",")[0])
    monkeypatch.undo()
    resumed, told = run(scene, kept)
    assert any("going on exactly" in note for note in told.notes)
    monkeypatch.chdir(scene.folder)
    left, _ = run(scene)
    assert same(left.net, resumed.net)
    assert whole.net.seen == 18


def test_a_last_save_that_fails_names_the_weights_that_are_there(scene: Scene, disk: Disk) -> None:
    told = Filling(disk, 5, 99)
    with pytest.raises(UndertowError) as caught:
        training(scene.data, scene.cfg, options=TrainOptions(backup_every=2), watcher=told).run()
    message = str(caught.value)
    assert "the result of iteration 6 cannot be written" in message
    assert "nor elsewhere" in message
    assert f"{scene.backup} holds the last save that succeeded; {previous_path(scene.backup)} the one before" in message
    assert "To mend it: make room" in message
    disk.full = False
    resumed, more = run(scene, scene.backup)
    assert [iteration.number for iteration in more.iterations] == [5, 6]
    whole, _ = run(scene)
    assert same(whole.net, resumed.net)


def test_final_weights_that_cannot_be_written_are_in_the_backup(scene: Scene) -> None:
    (scene.folder / "backup" / "tiny_final.weights").mkdir(parents=True)
    with pytest.raises(UndertowError, match=r"tiny_final\.weights: .*tiny\.backup holds the same weights"):
        train(scene.data, scene.cfg)
    assert load(scene.cfg, scene.backup).batch_number == 6


@pytest.fixture
def largest_file() -> Iterator[Any]:
    """Sets the size that no file may exceed."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def how_it_ends(made: Trainer) -> str:
    try:
        made.run()
    except UndertowError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize(("size", "final"), [(0, False), (1000, False), (9000, True)])
def test_files_that_may_not_grow(scene: Scene, largest_file: Any, size: int, final: bool) -> None:
    """The system's own refusal, in the midst of writing. final: the weights are smaller, the state is not."""

    class Limiting(Recorder):
        def iterated(self, iteration: Any) -> None:
            super().iterated(iteration)
            largest_file(resource.RLIM_INFINITY if iteration.number == 5 else size)

    made = training(scene.data, scene.cfg, options=TrainOptions(backup_every=1), watcher=Limiting())
    with pytest.warns(UndertowWarning) as caught:
        ended = how_it_ends(made)
    largest_file(resource.RLIM_INFINITY)
    assert ("the result of iteration 6 cannot be written: File too large" in ended) == (not final)
    assert all("File too large; training goes on" in str(one.message) for one in caught)
    assert len(caught) == 1 + final  # from iteration 1 on, and after the end again
    left = names(scene.folder / "backup")
    assert left == {"tiny.backup", "tiny.backup.npz"} | ({"tiny_final.weights"} if final else set())
    resumed, told = run(scene, scene.backup)
    assert any("going on exactly" in note for note in told.notes)
    whole, _ = run(scene)
    assert same(whole.net, resumed.net)


def test_atomic_write_tells_the_reason_when_the_disk_fills_while_closing(tmp_path: Path, largest_file: Any) -> None:
    largest_file(10)
    with pytest.raises(OSError, match="File too large"), atomic_write(tmp_path / "a") as stream:
        stream.write(bytes(100))
    assert not names(tmp_path)

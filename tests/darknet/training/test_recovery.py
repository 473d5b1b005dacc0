"""Broken, cut, foreign and missing checkpoints: the one before is taken, and it is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_checkpoint import Recorder, run, same
from undertow.darknet import TrainOptions, load, training
from undertow.darknet.learning.checkpoint import previous_path, state_path
from undertow.errors import FormatError


@pytest.fixture
def stopped(scene: Scene) -> Scene:
    """A run stopped in iteration 5, with checkpoints of iterations 2 and 4 and of the stop after pass 9."""
    run(scene, stop_after=9, backup_every=2)
    assert previous_path(scene.backup).exists()
    return scene


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-101])


def cut_between_layers(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 20 + 4 * 6 * (4 + 27)])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def text(path: Path) -> None:
    path.write_text("not weights")


def foreign(path: Path) -> None:
    net = load(path.parent.parent / "tiny.cfg", seed=77)
    net.seen = 16
    net.save_weights(path)


def not_finite(path: Path) -> None:
    net = load(path.parent.parent / "tiny.cfg", path)
    net.layers[0].weights[0] = np.nan
    net.save_weights(path)


def missing(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [cut, cut_between_layers, flip, zero, text, foreign, not_finite, missing])
def test_broken_weights_fall_back_to_the_checkpoint_before(stopped: Scene, damage: Callable[[Path], None]) -> None:
    damage(stopped.backup)
    resumed, told = run(stopped, stopped.backup)
    notes = "\n".join(told.notes)
    assert f"{previous_path(stopped.backup)}, saved before it, after iteration 4, is taken instead" in notes
    assert "going on exactly" in notes
    assert [iteration.number for iteration in told.iterations] == [5, 6]
    whole, _ = run(stopped)
    assert same(whole.net, resumed.net)


@pytest.mark.parametrize("damage", [cut, flip, text, zero])
def test_a_broken_state_falls_back_to_the_checkpoint_before(stopped: Scene, damage: Callable[[Path], None]) -> None:
    damage(state_path(stopped.backup))
    resumed, told = run(stopped, stopped.backup)
    assert "is taken instead" in "\n".join(told.notes)
    whole, _ = run(stopped)
    assert same(whole.net, resumed.net)


def test_the_good_checkpoint_outlives_the_broken_one(stopped: Scene) -> None:
    """The first save after a fallback does not push the broken file over the good one."""
    cut(stopped.backup)
    broken, good = stopped.backup.read_bytes(), previous_path(stopped.backup).read_bytes()
    run(stopped, stopped.backup, stop_after=1)
    assert previous_path(stopped.backup).read_bytes() == good
    assert Path(f"{stopped.backup}.broken").read_bytes() == broken
    assert load(stopped.cfg, stopped.backup).seen == 18


def test_both_broken_says_so_and_what_else_there_is(stopped: Scene) -> None:
    load(stopped.cfg).save_weights(stopped.folder / "backup" / "tiny_2.weights")
    cut(stopped.backup)
    text(previous_path(stopped.backup))
    with pytest.raises(FormatError) as caught:
        run(stopped, stopped.backup)
    message = str(caught.value)
    assert "this checkpoint is broken: " in message
    assert "and the one before it cannot be used: " in message
    assert "To mend it: go on with the newest other weights of this net, " in message
    assert "tiny_2.weights" in message


def test_a_broken_checkpoint_without_another_says_so(stopped: Scene) -> None:
    cut(stopped.backup)
    for path in (previous_path(stopped.backup), state_path(previous_path(stopped.backup))):
        os.unlink(path)
    with pytest.raises(FormatError, match=r"one before it cannot be used: there is none.*began with"):
        run(stopped, stopped.backup)


def test_a_deleted_state_falls_back_to_the_checkpoint_before(stopped: Scene) -> None:
    state_path(stopped.backup).unlink()
    resumed, told = run(stopped, stopped.backup)
    notes = "\n".join(told.notes)
    assert f"{stopped.backup}: its state, {state_path(stopped.backup)}, is not there any more" in notes
    assert f"{previous_path(stopped.backup)}, saved before it, after iteration 4, is taken instead" in notes
    whole, _ = run(stopped)
    assert same(whole.net, resumed.net)


def test_weights_without_any_state_are_weights_alone(stopped: Scene) -> None:
    """So are those under another name, and those whose momentum is not wanted."""
    state_path(stopped.backup).unlink()
    copied = stopped.backup.with_name("mine.weights")
    copied.write_bytes(stopped.backup.read_bytes())
    cleared = training(stopped.data, stopped.cfg, stopped.backup, TrainOptions(clear=True), watcher=Recorder())
    assert np.array_equal(cleared.net.layers[0].weights, load(stopped.cfg, copied).layers[0].weights)
    state_path(previous_path(stopped.backup)).unlink()
    for weights in (stopped.backup, copied):
        _, told = run(stopped, weights)
        assert not any("instead" in note for note in told.notes)
        assert any("as in the original" in note for note in told.notes)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ("filters=8", "filters=9", r"layer 1 has \w+ of 8(\D.*)?, with this cfg it has \w+ of 9"),
        ("filters=6\nsize=3", "filters=6\nsize=5", "layer 0 has weights of 6 x 3 x 3 x 3, .* of 6 x 3 x 5 x 5"),
        ("batch_normalize=1\nfilters=6", "filters=6", "layer 0 has scales of 6, with this cfg it has no scales"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("damage", [None, "state"])
def test_another_cfg_is_not_called_damage(
    stopped: Scene, before: str, now: str, message: str, damage: str | None
) -> None:
    if damage:
        cut(state_path(stopped.backup))
    stopped.cfg.write_text(stopped.cfg.read_text().replace(before, now))
    with pytest.raises(FormatError, match=rf"made with another cfg than .*tiny\.cfg: its {message}") as caught:
        run(stopped, stopped.backup)
    assert "broken" not in str(caught.value)
    assert "To mend it: give the cfg of that training" in str(caught.value)


def test_the_checkpoint_before_can_be_given_itself(stopped: Scene) -> None:
    resumed, told = run(stopped, previous_path(stopped.backup))
    assert [iteration.number for iteration in told.iterations] == [5, 6]
    whole, _ = run(stopped)
    assert same(whole.net, resumed.net)


@pytest.mark.parametrize("damage", [cut, flip, text, zero])
def test_a_broken_state_is_what_is_blamed(stopped: Scene, damage: Callable[[Path], None]) -> None:
    """Not the weights, which are whole."""
    damage(state_path(stopped.backup))
    _, told = run(stopped, stopped.backup)
    assert f"{stopped.backup}: its state, {state_path(stopped.backup)}, is broken (" in told.notes[1], told.notes


def test_damaged_weights_give_way_to_whole_ones_without_a_state(stopped: Scene) -> None:
    flip(stopped.backup)
    before = load(stopped.cfg, previous_path(stopped.backup))
    state_path(previous_path(stopped.backup)).unlink()
    begun = training(stopped.data, stopped.cfg, stopped.backup, TrainOptions(), watcher=(told := Recorder()))
    assert same(begun.net, before)
    notes = "\n".join(told.notes)
    assert f"{stopped.backup}: it is not the file that was saved" in notes
    assert f"{previous_path(stopped.backup)}, saved before it, after iteration 4, is taken instead" in notes
    assert "momentum starts from zero" in notes


def test_damaged_weights_that_are_all_there_is_are_refused(stopped: Scene) -> None:
    flip(stopped.backup)
    damaged = stopped.backup.with_name("mine.weights")
    damaged.write_bytes(stopped.backup.read_bytes())
    for path in (previous_path(stopped.backup), state_path(previous_path(stopped.backup))):
        path.unlink()
    with pytest.raises(FormatError, match=r"this checkpoint is broken.*tiny\.backup all the same, copy that file"):
        run(stopped, stopped.backup)
    run(stopped, damaged)


def test_other_weights_put_in_the_place_of_a_checkpoint_are_taken(stopped: Scene) -> None:
    for path in (previous_path(stopped.backup), state_path(previous_path(stopped.backup))):
        path.unlink()
    foreign(stopped.backup)
    _, told = run(stopped, stopped.backup)
    assert "belongs to other weights" in "\n".join(told.notes)

"""The flow of the C program's train_detector: what is computed, printed and saved, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from tests.darknet.training.test_checkpoint import Recorder
from undertow.darknet import Network, TrainOptions, load, train, training
from undertow.darknet.detection.evaluate import Evaluation
from undertow.darknet.dialect import EXACT
from undertow.darknet.learning.trainer import TrainingWatcher, train_step
from undertow.data.augment import Colours, DetectionOptions
from undertow.errors import FormatError, NonFiniteError, UndertowError, UndertowWarning


class Files(TrainingWatcher):
    def __init__(self) -> None:
        self.saved_files: list[str] = []
        self.maps: list[tuple[int, float]] = []

    def saved(self, path: Path) -> None:
        self.saved_files.append(path.name)

    def validated(self, number: int, evaluation: Evaluation, best: bool) -> None:
        self.maps.append((number, evaluation.mean_average_precision))


def nothing(net: Network, images: np.ndarray, truth: np.ndarray) -> float:
    """A pass that only counts."""
    net.seen += net.batch
    return 1.0


def test_losses_are_those_of_the_passes_by_hand(scene: Scene) -> None:
    recorder = Recorder()
    made = training(scene.data, scene.cfg, options=TrainOptions(seed=2), watcher=recorder)
    made.run()
    net = load(scene.cfg, seed=2)
    net.keep_deltas = False  # as the trainer has it: planned passes, to the last digit
    average = -1.0
    for number, told in enumerate(recorder.iterations):
        costs = []
        for first in (number * 4, number * 4 + 2):
            samples = [made.pictures.sample(first + i, (32, 32)) for i in range(2)]
            costs.append(net.train_datum(np.stack([s.image for s in samples]), np.stack([s.truth for s in samples])))
        loss = sum(costs) / (2 * net.batch)
        average = 0.9 * (loss if average < 0 else average) + 0.1 * loss
        assert (told.number, told.loss, told.rate) == (number + 1, loss, net.learning_rate)
        assert told.average == pytest.approx(average, rel=1e-12)
        assert told.images == (number + 1) * 4
    assert net.batch_number == 6
    assert [told.rate for told in recorder.iterations[:4]] == [0.01 * (i / 4) ** 4 for i in (1, 2, 3)] + [0.01]


def test_the_loss_falls(scene: Scene) -> None:
    scene.write_cfg(max_batches=60, rate=0.005)
    recorder = Recorder()
    training(scene.data, scene.cfg, watcher=recorder).run()
    losses = [told.loss for told in recorder.iterations]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


@pytest.mark.parametrize(
    ("save_every", "weights"),
    [
        (None, [*range(100, 1000, 100), 10000, 20000]),
        (7000, [7000, 14000]),
    ],
)
def test_files_are_saved_when_the_original_saves_them(
    scene: Scene, save_every: int | None, weights: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write_cfg(max_batches=20050, batch=1, subdivisions=1)
    files = Files()
    made = training(scene.data, scene.cfg, options=TrainOptions(save_every=save_every), watcher=files)
    made.step = nothing
    monkeypatch.setattr(made, "_samples", lambda: Endless())
    monkeypatch.setattr("undertow.darknet.learning.saver.save_checkpoint", lambda *given, **options: None)
    monkeypatch.setattr(made.net, "save_weights", lambda path: None)
    made.run()
    backups = [name for name in files.saved_files if name == "tiny.backup"]
    assert len(backups) == 201  # every 100, and the last state
    numbered = [name for name in files.saved_files if name not in ("tiny.backup", "tiny_final.weights")]
    assert numbered == [f"tiny_{number}.weights" for number in weights]
    assert files.saved_files[-2:] == ["tiny_final.weights", "tiny.backup"]


class Endless:
    """Samples without pictures."""

    def __next__(self) -> Any:
        class Empty:
            image, truth, path = np.zeros(1), np.zeros(1), ""

        return Empty

    def __enter__(self) -> Endless:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_validation_measures_saves_the_best_and_goes_on_bit_for_bit(scene: Scene) -> None:
    plain = training(scene.data, scene.cfg)
    plain.run()
    files = Files()
    made = training(scene.data, scene.cfg, options=TrainOptions(validate=True, validate_every=2), watcher=files)
    result = made.run()
    assert [number for number, _ in files.maps] == [2, 4, 6]
    assert result.best_map == max(value for _, value in files.maps)
    assert "tiny_best.weights" in files.saved_files
    for a, b in zip(plain.net.parameters(), made.net.parameters(), strict=True):
        np.testing.assert_array_equal(a.data, b.data)


def test_validation_comes_every_four_rounds_but_not_before_burn_in(scene: Scene) -> None:
    scene.write_cfg(max_batches=1000)
    made = training(scene.data, scene.cfg, options=TrainOptions(validate=True))
    assert made._next_validation() == 100
    made.progress.map_iteration = 100
    made.pictures.paths = made.pictures.paths * 50  # 300 pictures, 4 per iteration
    assert made._next_validation() == 400


def test_a_value_that_is_not_finite_names_layer_array_iteration_and_pictures(scene: Scene) -> None:
    def ruin(net: Network, images: np.ndarray, truth: np.ndarray) -> float:
        if net.batch_number == 3:
            net.layers[1].weights[2] = np.nan
        return train_step(net, images, truth)

    made = training(scene.data, scene.cfg)
    made.step = ruin
    scene.backup.parent.mkdir()
    made.save_backup()
    kept = scene.backup.read_bytes()
    with pytest.raises(NonFiniteError) as caught:
        made.run()
    message = str(caught.value)
    assert "layer 1: in iteration 4: weights (convolutional) holds 54 of 432 values that are not finite" in message
    assert "images/" in message
    assert f"{scene.backup} holds the last good state" in message
    assert scene.backup.read_bytes() == kept
    file = scene.folder / "backup" / "tiny_nonfinite.json"
    assert str(file) in message
    facts = json.loads(file.read_text())
    assert (facts["iteration"], facts["layer"], facts["tensor"]) == (4, 1, "weights")
    assert facts["last_good_checkpoint"] == str(scene.backup)
    drawn = [made.pictures.sample(number, (32, 32)).path for number in (12, 13)]
    assert facts["pictures"] == list(dict.fromkeys(drawn))
    assert all(path in message for path in drawn)


def test_an_infinite_output_that_costs_nothing_stops_with_its_pictures(scene: Scene) -> None:
    """The logistic of an infinite class is one: a finite cost, and gradients that are finite for the most part."""

    def ruin(net: Network, images: np.ndarray, truth: np.ndarray) -> float:
        if net.batch_number == 3:
            net.layers[2].weights[5] = net.layers[2].biases[5] = 3.4e38
        return train_step(net, images, truth)

    made = training(scene.data, scene.cfg)
    made.step = ruin
    scene.backup.parent.mkdir()
    made.save_backup()
    kept = scene.backup.read_bytes()
    with pytest.raises(NonFiniteError, match=r"layer 2: in iteration 4: output \(convolutional\) holds"):
        made.run()
    facts = json.loads((scene.folder / "backup" / "tiny_nonfinite.json").read_text())
    drawn = [made.pictures.sample(number, (32, 32)).path for number in (12, 13)]
    assert (facts["iteration"], facts["layer"], facts["tensor"]) == (4, 2, "output")
    assert facts["pictures"] == list(dict.fromkeys(drawn))
    assert scene.backup.read_bytes() == kept


def test_a_ruined_update_names_all_pictures_of_the_iteration(scene: Scene) -> None:
    """In the second pass of iteration 2 the sums are found out; the first pass may have ruined them."""

    def ruin(net: Network, images: np.ndarray, truth: np.ndarray) -> float:
        if net.seen == 6:
            net.layers[1].weight_updates[0] = np.inf
        return train_step(net, images, truth)

    made = training(scene.data, scene.cfg)
    made.step = ruin
    with pytest.raises(NonFiniteError, match=r"in iteration 2: weight_updates .* there is no checkpoint yet") as caught:
        made.run()
    assert (caught.value.layer, caught.value.tensor) == (1, "weight_updates")
    facts = json.loads((scene.folder / "backup" / "tiny_nonfinite.json").read_text())
    drawn = [made.pictures.sample(number, (32, 32)).path for number in range(4, 8)]
    assert (facts["iteration"], facts["pictures"]) == (2, list(dict.fromkeys(drawn)))
    assert facts["last_good_checkpoint"] is None


def test_an_update_that_overflows_is_found_in_its_own_iteration(scene: Scene) -> None:
    """The sums are finite, the moved weights are not."""

    def ruin(net: Network, images: np.ndarray, truth: np.ndarray) -> float:
        cost = train_step(net, images, truth)
        if net.updates_done == 3:
            net.layers[0].rolling_variance[1] = np.inf
        return cost

    made = training(scene.data, scene.cfg)
    made.step = ruin
    with pytest.raises(NonFiniteError, match=r"layer 0: in iteration 3: rolling_variance"):
        made.run()


def test_ruined_parameters_never_replace_a_good_backup(scene: Scene) -> None:
    made = training(scene.data, scene.cfg)
    scene.backup.parent.mkdir()
    made.save_backup()
    kept = scene.backup.read_bytes()
    made.net.layers[0].rolling_mean[0] = np.inf
    made.net.seen += 4
    with pytest.raises(NonFiniteError, match=r"layer 0: rolling_mean"):
        made.save_backup()
    assert scene.backup.read_bytes() == kept


def test_gradients_that_overflow_stop_before_the_update(scene: Scene) -> None:
    made = training(scene.data, scene.cfg)
    made.net.layers[1].weight_updates[0, 0, 0, 0] = np.inf
    before = made.net.layers[0].weights.copy()
    with pytest.raises(NonFiniteError, match=r"layer 1: .*weight_updates"):
        made.run()
    np.testing.assert_array_equal(made.net.layers[0].weights, before)


def test_nothing_left_to_train_is_said(scene: Scene) -> None:
    final = train(scene.data, scene.cfg).weights
    with pytest.raises(UndertowError, match=r"iteration 6, and max_batches is 6.*-clear"):
        training(scene.data, scene.cfg, final)
    training(scene.data, scene.cfg, final, TrainOptions(clear=True))


def test_a_cfg_without_max_batches_or_without_a_head(scene: Scene) -> None:
    scene.write_cfg(max_batches=0)
    with pytest.raises(FormatError, match=r"tiny\.cfg:1: max_batches is missing or 0"):
        training(scene.data, scene.cfg)
    text = scene.cfg.read_text()
    scene.cfg.write_text(text[: text.index("[yolo]")])
    with pytest.raises(FormatError, match=r"no \[yolo\], \[region\] or"):
        training(scene.data, scene.cfg)


def test_unreadable_pictures_are_told_once_each(scene: Scene) -> None:
    scene.image(3).write_bytes(b"nothing")
    scene.write_cfg(max_batches=12)
    recorder = Recorder()
    made = training(scene.data, scene.cfg, watcher=recorder)
    result = made.run()
    assert result.skipped == 1
    assert len([note for note in recorder.notes if "3.png" in note and "skipped" in note]) == 1


def test_augmentation_is_that_of_the_cfg(scene: Scene) -> None:
    assert training(scene.data, scene.cfg).pictures.augmentation == DetectionOptions(0.2, Colours(0.1, 1.5, 1.5))
    assert not training(scene.data, scene.cfg, options=TrainOptions(mirror=False)).pictures.augmentation.flip
    scene.cfg.write_text(scene.cfg.read_text().replace("hue=.1", "hue=.1\nflip=0"))
    assert not training(scene.data, scene.cfg, dialect=EXACT).pictures.augmentation.flip


def test_ruined_weights_given_are_blamed_themselves(scene: Scene) -> None:
    """Not the pictures, nor the rate; and a checkpoint that another run left is not the last good state of this."""
    net = load(scene.cfg)
    scene.backup.parent.mkdir()
    net.save_weights(scene.backup)
    net.layers[0].weights[1] = np.inf
    net.save_weights(scene.folder / "bad.weights")
    with pytest.warns(UndertowWarning, match="27 infinite values"):
        made = training(scene.data, scene.cfg, scene.folder / "bad.weights")
    with pytest.raises(NonFiniteError) as caught:
        made.run()
    message = str(caught.value)
    assert "in iteration 1: " in message
    assert "bad.weights, which this training began with, held such numbers already: layer 0 holds 27" in message
    assert "there is no checkpoint yet" in message
    assert message.endswith("To mend it: begin with weights saved before that")
    facts = json.loads((scene.folder / "backup" / "tiny_nonfinite.json").read_text())
    assert "held such numbers already" in facts["cause"]


def test_the_weights_begun_with_are_the_last_good_state_before_the_first_checkpoint(scene: Scene) -> None:
    given = scene.folder / "given.weights"
    load(scene.cfg).save_weights(given)
    made = training(scene.data, scene.cfg, given)
    made.net.layers[1].weights[2] = np.nan
    with pytest.raises(NonFiniteError, match=r"given\.weights holds the last good state"):
        made.run()


def test_a_rate_below_0_is_the_cause_where_it_is_one(scene: Scene) -> None:
    scene.write_cfg(rate=-0.01)
    made = training(scene.data, scene.cfg)
    made.net.layers[1].weights[2] = np.nan
    with pytest.raises(NonFiniteError, match=r"learning_rate=-0\.01 lets the loss rise.*to a number above 0"):
        made.run()

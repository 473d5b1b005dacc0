from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.darknet.training.scenes import Scene
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.labels import LabelReader
from undertow.darknet.learning.dataset import Sample, TrainingSet
from undertow.data.augment import Colours, DetectionOptions, augment_detection
from undertow.data.crand import CounterRandom
from undertow.data.images import load_pixels
from undertow.errors import FormatError, UndertowWarning

AUGMENTATION = DetectionOptions(0.3, Colours(0.1, 1.5, 1.5))


def training_set(scene: Scene, seed: int = 3, **options: object) -> TrainingSet:
    images = read_image_list(scene.folder / "train.txt")
    return TrainingSet(images, LabelReader(2, (32, 32)), AUGMENTATION, seed=seed, **options)  # type: ignore[arg-type]


def same(a: Sample, b: Sample) -> bool:
    return a.path == b.path and np.array_equal(a.image, b.image) and np.array_equal(a.truth, b.truth)


def test_a_sample_follows_from_seed_and_counter_alone(scene: Scene) -> None:
    first, second = training_set(scene), training_set(scene)
    forwards = [first.sample(counter, (32, 32)) for counter in range(12)]
    with ThreadPoolExecutor(4) as pool:
        backwards = list(pool.map(lambda counter: second.sample(counter, (32, 32)), reversed(range(12))))
    assert all(map(same, forwards, reversed(backwards)))
    assert not same(forwards[0], training_set(scene, seed=4).sample(0, (32, 32)))
    assert len({sample.path for sample in forwards}) > 2


def test_a_sample_is_a_drawn_picture_with_darknets_augmentation(scene: Scene) -> None:
    pictures = training_set(scene)
    sample = pictures.sample(7, (48, 32))
    random = CounterRandom(3, 7)
    index = random.index(6)
    pixels = load_pixels(scene.image(index)).transpose(2, 0, 1)
    image, truth = augment_detection(pixels, pictures.boxes[index], (48, 32), AUGMENTATION, random)
    assert sample.path == str(scene.image(index))
    np.testing.assert_array_equal(sample.image, image)
    np.testing.assert_array_equal(sample.truth, truth.reshape(-1))
    assert sample.image.shape == (3, 32, 48)
    assert sample.truth.shape == (450,)


def test_unreadable_pictures_are_skipped_and_counted(scene: Scene) -> None:
    whole = scene.image(1).read_bytes()
    scene.image(1).write_bytes(whole[: len(whole) // 2])
    scene.image(4).write_bytes(b"")
    pictures = training_set(scene)
    samples = [pictures.sample(counter, (32, 32)) for counter in range(30)]
    assert {Path(sample.path).stem for sample in samples} == {"0", "2", "3", "5"}
    assert sorted(issue.file for issue in pictures.skipped) == [str(scene.image(1)), str(scene.image(4))]
    again = training_set(scene)
    assert all(same(again.sample(counter, (32, 32)), samples[counter]) for counter in (29, 11, 3))


def test_a_list_without_one_readable_picture_is_an_error(scene: Scene) -> None:
    for number in range(6):
        scene.image(number).write_bytes(b"nothing")
    with pytest.raises(FormatError, match="none of the 6 pictures can be read"):
        training_set(scene).sample(0, (32, 32))


def test_every_thread_learns_that_no_picture_is_readable(scene: Scene) -> None:
    """Also those that come after the one that met the last picture: a training would never end otherwise."""
    for number in range(6):
        scene.image(number).write_bytes(b"nothing")
    pictures = training_set(scene)
    for counter in range(3):
        with pytest.raises(FormatError, match="none of the 6 pictures can be read"):
            pictures.sample(counter, (32, 32))


def test_strict_refuses_the_first_unreadable_picture(scene: Scene) -> None:
    for number in range(6):
        scene.image(number).write_bytes(b"nothing")
    with pytest.raises(FormatError, match="no picture in a known format"):
        training_set(scene, strict=True).sample(0, (32, 32))


def test_broken_label_files_are_told_at_once_with_their_number(scene: Scene) -> None:
    scene.image(2).with_suffix(".txt").write_text("0 0,5 0,5 0,2 0,2\n")
    scene.image(5).with_suffix(".txt").write_text("1 0.5\n")
    with pytest.raises(FormatError, match=r"2\.txt:1: .*decimal comma.*1 more label files are broken"):
        training_set(scene)


def test_missing_labels_mean_no_boxes_and_are_counted(scene: Scene) -> None:
    scene.image(0).with_suffix(".txt").unlink()
    pictures = training_set(scene)
    assert len(pictures.boxes[0]) == 0
    assert pictures.labels.summary.missing == 1
    assert any("labels" in line and "0.txt" in line for line in pictures.labels.summary.lines())


def test_a_rotation_tag_on_a_labelled_picture_is_told(scene: Scene) -> None:
    for number in range(6):
        image = Image.open(scene.image(number))
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(scene.image(number), exif=exif)
    with pytest.warns(UndertowWarning, match="EXIF orientation 6"):
        training_set(scene).sample(0, (32, 32))


def test_pictures_with_more_boxes_than_count(scene: Scene) -> None:
    assert training_set(scene, boxes=1).crowded == 6
    assert training_set(scene, boxes=1).sample(0, (32, 32)).truth.shape == (5,)


def test_channels_must_be_those_of_pictures(scene: Scene) -> None:
    with pytest.raises(FormatError, match="the net takes 4"):
        training_set(scene, channels=4)
    assert training_set(scene, channels=1).sample(0, (32, 32)).image.shape == (1, 32, 32)

"""DataTransformer against loops written from the formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.caffe.data.samples import pictures
from undertow.caffe.data import DataTransformer, read_mean, write_mean
from undertow.caffe.proto import new_message, parse_text, write_binary
from undertow.errors import FormatError, ShapeError


def transformer(text: str, phase: str = "TEST") -> DataTransformer:
    return DataTransformer(parse_text(text, "TransformationParameter"), phase)


def by_loops(
    image: np.ndarray, mean: np.ndarray, scale: float, top: int, left: int, crop: int, mirror: bool
) -> np.ndarray:
    result = np.empty((len(image), crop, crop), np.float32)
    for c in range(len(image)):
        for h in range(crop):
            for w in range(crop):
                value = np.float32(image[c, top + h, left + w]) - np.float32(mean[c, top + h, left + w])
                result[c, h, crop - 1 - w if mirror else w] = value * np.float32(scale)
    return result


def test_mean_picture_scale_and_centre_crop(tmp_path: Path) -> None:
    image = pictures(1, (3, 7, 10))[0]
    mean = (np.random.default_rng(1).random((3, 7, 10)) * 255).astype(np.float32)
    write_mean(mean, tmp_path / "mean.binaryproto")
    made = transformer(f'mean_file: "{tmp_path}/mean.binaryproto" scale: 0.0125 crop_size: 4')
    np.testing.assert_array_equal(made.transform(image), by_loops(image, mean, 0.0125, 1, 3, 4, False))
    assert made.shape_of(image.shape) == (3, 4, 4)
    assert not made.random


def test_training_crops_and_mirrors_at_random() -> None:
    image = pictures(1, (3, 5, 6))[0]
    made = transformer("crop_size: 4 mirror: true mean_value: 1 mean_value: 2 mean_value: 3", "TRAIN")
    mean = np.broadcast_to(np.array([1, 2, 3]).reshape(3, 1, 1), image.shape)
    possible = {
        (top, left, mirror): by_loops(image, mean, 1, top, left, 4, mirror)
        for top in range(2) for left in range(3) for mirror in (False, True)
    }  # fmt: skip
    seen = set()
    for number in range(200):
        result = made.transform(image, np.random.default_rng(number))
        (key,) = (key for key, values in possible.items() if np.array_equal(values, result))
        seen.add(key)
    assert seen == set(possible)
    assert made.random


def test_float_pictures_and_float64_results() -> None:
    image = np.random.default_rng(0).random((2, 3, 3))
    made = DataTransformer(
        new_message("TransformationParameter", scale=0.5, mean_value=[0.25]), "TEST", dtype=np.float64
    )
    np.testing.assert_array_equal(made.transform(image), (image - 0.25) * 0.5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("crop_size: 8", "crop_size 8 does not fit into a picture of 6 x 8"),
        ("mean_value: 1 mean_value: 2", "2 mean_value for 3 channels"),
    ],
)
def test_what_does_not_fit_the_picture(text: str, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        transformer(text).transform(pictures(1)[0])


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="mean_file and mean_value"):
        transformer('mean_file: "a" mean_value: 1')
    with pytest.raises(FormatError, match="force_color and force_gray"):
        transformer("force_color: true force_gray: true")
    with pytest.raises(FormatError, match=r"nothing\.binaryproto"):
        transformer(f'mean_file: "{tmp_path}/nothing.binaryproto"')


def test_a_mean_of_another_size(tmp_path: Path) -> None:
    write_mean(np.zeros((3, 5, 5), np.float32), tmp_path / "m.binaryproto")
    with pytest.raises(ShapeError, match=r"mean picture has shape \(3, 5, 5\)"):
        transformer(f'mean_file: "{tmp_path}/m.binaryproto"').transform(pictures(1)[0])


def test_mean_files_of_both_forms_and_wrong_ones(tmp_path: Path) -> None:
    mean = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    path = tmp_path / "m.binaryproto"
    write_mean(mean, path)
    np.testing.assert_array_equal(read_mean(path), mean)
    new = new_message("BlobProto", data=mean.reshape(-1))
    new.mutable("shape").dim.extend([1, 2, 3, 4])
    write_binary(new, path)
    np.testing.assert_array_equal(read_mean(path), mean)
    new.shape.dim[0] = 2
    new.data = np.concatenate([mean.reshape(-1)] * 2)
    write_binary(new, path)
    with pytest.raises(FormatError, match=r"not \(2, 2, 3, 4\)"):
        read_mean(path)

"""segmenter and isegmenter: files of masks, their way with the picture, learning, going on, and the commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.darknet.training.test_checkpoint import Recorder, same
from undertow.cli import main
from undertow.darknet import TrainOptions, load
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.masks import Mask, read_masks
from undertow.darknet.files.paths import mask_path
from undertow.darknet.learning.segmenter import INSTANCES, SegmentationSet, class_maps, instance_truth
from undertow.darknet.segmenter_runs import mask_to_rgb, predict_maps, segmenter_training
from undertow.data.augment import ClassifierDraw, ClassifierOptions
from undertow.data.images import image_size, load_image
from undertow.errors import FormatError

NET = """[net]
batch=4
subdivisions=2
width=32
height=32
channels=3
learning_rate=0.005
max_batches={max_batches}
min_crop=34
max_crop=44
angle=5
policy=constant
[convolutional]
batch_normalize=1
filters=12
size=3
stride=2
pad=1
activation=leaky
[convolutional]
batch_normalize=1
filters=12
size=3
stride=2
pad=1
activation=leaky
[convolutional]
filters={filters}
size=1
activation=linear
{head}
"""
HEADS = {True: (5, "[iseg]\nclasses=2\nids=3"), False: (2, "[logistic]")}
COLORS = ((220, 40, 40), (40, 60, 230))


def runs(mask: np.ndarray) -> str:
    """The line of a mask, by the definition: lengths in turn outside and inside."""
    lengths, inside, length = [], False, 0
    for value in mask.reshape(-1):
        if bool(value) != inside:
            lengths.append(length)
            inside, length = not inside, 0
        length += 1
    return ",".join(map(str, [*lengths, length]))


@dataclass
class Set:
    """Pictures of two rectangles on noise; a data file, masks, and cfgs of both kinds."""

    folder: Path
    masks: list[list[tuple[int, np.ndarray]]]

    @property
    def data(self) -> Path:
        return self.folder / "seg.data"

    def image(self, number: int) -> str:
        return str(self.folder / "images" / f"{number}.png")

    def mask(self, number: int) -> Path:
        return self.folder / "mask" / f"{number}.txt"

    def cfg(self, instances: bool, max_batches: int = 6) -> Path:
        filters, head = HEADS[instances]
        path = self.folder / "seg.cfg"
        path.write_text(NET.format(max_batches=max_batches, filters=filters, head=head))
        return path


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Set:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(8)
    (tmp_path / "images").mkdir()
    (tmp_path / "mask").mkdir()
    made = Set(tmp_path, [])
    for number in range(6):
        pixels = rng.integers(90, 160, (40, 56, 3), dtype=np.uint8)
        masks = []
        for label, color in enumerate(COLORS):
            y, x = rng.integers(2, 18), rng.integers(2 + 28 * label, 8 + 28 * label)
            mask = np.zeros((40, 56), bool)
            mask[y : y + 18, x : x + 18] = True
            pixels[mask] = color
            masks.append((label, mask))
        made.masks.append(masks)
        Image.fromarray(pixels).save(made.image(number))
        made.mask(number).write_text("".join(f"{label} {runs(mask)}\n" for label, mask in masks))
    (tmp_path / "train.txt").write_text("".join(f"images/{number}.png\n" for number in range(6)))
    made.data.write_text(f"train=train.txt\nbackup={tmp_path}/backup\n")
    return made


# --- files ------------------------------------------------------------------------------------------------------


def test_runs_are_read_as_load_rle_does(scene: Set) -> None:
    scene.mask(0).write_text("1 3,2,50\n\n0 0,2240\n1 2238\n")
    first, second, third = read_masks(scene.image(0), 2)
    assert (first.label, second.label) == (1, 0)
    wanted = np.zeros(2240)
    wanted[3:5] = 1
    wanted[55:] = 1  # what follows the last run has the other kind
    np.testing.assert_array_equal(first.pixels((56, 40)).reshape(-1), wanted)
    assert second.pixels((56, 40)).all()
    assert third.pixels((56, 40)).sum() == 2
    for number in range(1, 6):
        for mask, (label, pixels) in zip(read_masks(scene.image(number), 2), scene.masks[number], strict=True):
            assert mask.label == label
            np.testing.assert_array_equal(mask.pixels((56, 40)), pixels)


def test_where_masks_lie(tmp_path: Path) -> None:
    assert mask_path("voc/images/train/a.jpg") == "voc/mask/train/a.txt"
    assert mask_path("voc/JPEGImages/a.b.png") == "voc/mask/a.b.txt"
    assert mask_path("photos/a.jpg") == "photos/a.txt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 3,x,5\n", r"mask/2\.txt:1: '1 3,x,5' is no mask.*write lines such as"),
        ("0 1\n1 3,-2,5\n", r"mask/2\.txt:2: "),
        ("7 3,5\n", r"mask/2\.txt:1: class 7, the network knows 0 to 1"),
        ("0 2000,300\n", r"mask/2\.txt:1: the runs cover 2300 pixels, the picture of 56 x 40 has 2240"),
        ("0 99999999999\n", r"mask/2\.txt:1: a run of 99999999999 pixels"),
        (None, r"mask/2\.txt: cannot be read: No such file"),
    ],
)
def test_broken_masks_are_told_before_the_first_iteration(scene: Set, text: str | None, message: str) -> None:
    if text is None:
        scene.mask(2).unlink()
        scene.mask(4).unlink()
    else:
        scene.mask(2).write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        segmenter_training(scene.data, scene.cfg(True), instances=True)
    assert ("1 more files of masks are broken" in str(caught.value)) == (text is None)


# --- samples ----------------------------------------------------------------------------------------------------


def pictures(scene: Set, instances: bool, **options: float) -> SegmentationSet:
    given = ClassifierOptions(34, 44, 32, **options)  # type: ignore[arg-type]
    return SegmentationSet(read_image_list(scene.folder / "train.txt"), 2, given, (8, 8), instances, seed=4)


def coverage(sample_image: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """(8, 8): the share of each 4 x 4 pixels that has nearly this colour."""
    near = np.abs(sample_image * 255 - np.array(color)[:, None, None]).max(axis=0) < 60
    return near.reshape(8, 4, 8, 4).mean(axis=(1, 3))


@pytest.mark.parametrize("instances", [True, False])
@pytest.mark.parametrize("counter", range(6))
def test_masks_go_where_the_pixels_go(scene: Set, instances: bool, counter: int) -> None:
    """Turned, zoomed, cut and mirrored: the truth is where the colours are."""
    sample = pictures(scene, instances, angle=20.0, aspect=1.2).sample(counter, (32, 32))
    for label, color in enumerate(COLORS):
        if instances:
            truth = sample.truth.reshape(INSTANCES, 65)
            assert truth[label, 0] == label
            mask = truth[label, 1:].reshape(8, 8)
        else:
            mask = sample.truth.reshape(2, 8, 8)[label]
        # Cells at the edge of an object are a share; its inside and outside are certain.
        seen = coverage(sample.image, color)
        inside, outside = mask[seen == 1], mask[seen == 0]
        assert not len(inside) or inside.mean() > 0.9
        assert outside.mean() < 0.1
    if instances:
        assert truth[2, 0] == -1
        assert not truth[3:].any()


# What rotate_crop_image, flip_image and resize_image of the C program, compiled by themselves, make of two masks in a
# picture of 7 x 5, for a net of 8 x 8 with 4 x 4 cells: radians, scale, dx, dy, aspect, flip; then, as fill_truth_iseg
# and load_data_seg do it, each mask as an instance and as a map.
TWO = ("9,3,4,3,4,3", "0,2,5,2,20,6")
ORIGINAL = [
    ((0.2, 1.3, 0.7, -0.4, 1.1, False), [
        ([0, 0, 0, 0, 0.0117895, 0.68543, 0.177678, 0, 0, 1, 0.370097, 0, 0, 0, 0, 0],
         [0, 0, 0, 0, 0.0176842, 0.47211, 0.446778, 0, 0, 1, 0.85837, 0, 0, 0.5123, 0.176091, 0]),
        ([0, 0, 0, 0, 0.913249, 0, 0, 0, 0.118768, 0, 0.121388, 0.200375, 0.331384, 0.702368, 0.310123, 0],
         [0, 0, 0, 0, 0.869873, 0, 0, 0, 0.356305, 0, 0, 0, 0.0785985, 0.4877, 0.823909, 0.839881]),
    ]),
    ((-0.15, 1.6, -1.2, 0.9, 0.9, True), [
        ([0.34134, 0.629088, 0.498007, 0, 0.570475, 1, 0.765738, 0, 0.240509, 0.486997, 0.258922, 0, 0, 0, 0, 0],
         [0.517009, 0.685127, 0.367472, 0, 1, 1, 0.617473, 0, 0.970994, 0.842946, 0.542744, 0, 0, 0, 0, 0]),
        ([0, 0, 0.38393, 0.978637, 0, 0, 0, 0, 0.348573, 0.513003, 0.709141, 0.57905, 0.241177, 0.0487057, 0, 0],
         [0, 0, 0.569324, 0.978637, 0, 0, 0, 0, 0, 0.157054, 0.325172, 0.341309, 0.7751, 0.606982, 0.438864, 0.237905]),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("view", "wanted"), ORIGINAL)
def test_the_truth_is_that_of_the_original(
    view: tuple[float, float, float, float, float, bool], wanted: list[tuple[list[float], list[float]]]
) -> None:
    one = np.float32(1)
    draw = ClassifierDraw(view[:5], view[5], np.float32(0), one, one)
    masks = [Mask(k, np.array(line.split(","), np.int64), "mask.txt", k + 1) for k, line in enumerate(TWO)]
    instances = instance_truth(masks, (7, 5), draw, (8, 8), (4, 4))
    maps = class_maps(masks, (7, 5), draw, (8, 8), (4, 4), 3)
    for k, (instance, seen) in enumerate(wanted):
        assert instances[k, 0] == k
        np.testing.assert_allclose(instances[k, 1:], instance, atol=2e-5)
        np.testing.assert_allclose(maps[k].reshape(-1), seen, atol=2e-5)
    assert not maps[2].any()
    both = class_maps([Mask(0, mask.runs, "", 1) for mask in masks], (7, 5), draw, (8, 8), (4, 4), 1)
    assert (both[0] >= maps[:2].max(axis=0) - 1e-6).all()


def test_more_objects_than_there_is_room_for(scene: Set) -> None:
    scene.mask(0).write_text("1 5,5\n" * (INSTANCES + 5))
    told = Recorder()
    made = segmenter_training(scene.data, scene.cfg(True), instances=True, watcher=told)
    assert f"1 pictures hold more than the {INSTANCES} objects that count" in told.notes
    counter = next(n for n in range(100) if made.pictures.sample(n, (32, 32)).path.endswith("0.png"))
    assert (made.pictures.sample(counter, (32, 32)).truth.reshape(INSTANCES, 65)[:, 0] == 1).all()


def test_a_picture_without_objects(scene: Set) -> None:
    for number in range(6):
        scene.mask(number).write_text("")
    sample = pictures(scene, True).sample(0, (32, 32))
    assert sample.truth[0] == -1
    assert not sample.truth[1:].any()


# --- training ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [True, False])
def test_it_learns_where_the_classes_are(scene: Set, instances: bool) -> None:
    told = Recorder()
    made = segmenter_training(scene.data, scene.cfg(instances, 120), instances=instances, watcher=told)
    result = made.run()
    losses = [iteration.loss for iteration in told.iterations]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:5])
    assert result.weights == scene.folder / "backup" / "seg.weights"
    net = load(scene.folder / "seg.cfg", result.weights)
    right = []
    for number in range(6):
        maps = predict_maps(net, load_image(scene.image(number)), instances)
        assert maps.shape == (2, 8, 8)
        for label, mask in scene.masks[number]:
            # The picture is fitted in with bars: 32 x 22 of 32 rows, from row 5 on.
            shrunk = np.asarray(Image.fromarray(mask).resize((32, 22)))
            cells = np.pad(shrunk, ((5, 5), (0, 0))).reshape(8, 4, 8, 4).mean(axis=(1, 3))
            right += [maps[label][cells == 1].mean() > 0.5, maps[label][cells == 0].mean() < 0.3]
    assert np.mean(right) > 0.9


@pytest.mark.parametrize("instances", [True, False])
def test_a_stopped_run_goes_on_bit_for_bit(scene: Set, instances: bool) -> None:
    cfg = scene.cfg(instances)

    def run(weights: Path | None, stop_after: int | None = None) -> tuple[object, Recorder]:
        told = Recorder(stop_after)
        made = segmenter_training(scene.data, cfg, weights, TrainOptions(seed=2), instances=instances, watcher=told)
        made.run()
        return made.net, told

    whole, _ = run(None)
    run(None, stop_after=5)
    resumed, told = run(scene.folder / "backup" / "seg.backup")
    assert any("going on exactly" in note for note in told.notes)
    assert same(whole, resumed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("instances", "change", "message"),
    [
        (True, ("[iseg]\nclasses=2\nids=3", "[logistic]"), r"the last layer is \[logistic\], not \[iseg\].*segmenter"),
        (False, ("[logistic]", ""), r"the last layer is \[convolutional\], which learns no map"),
        (False, ("width=32", "width=30"), r"8 x 8 cells does not divide an input of 30 x 32"),
    ],
)
def test_nets_that_learn_no_masks(scene: Set, instances: bool, change: tuple[str, str], message: str) -> None:
    cfg = scene.cfg(instances)
    cfg.write_text(cfg.read_text().replace(*change))
    with pytest.raises(FormatError, match=message):
        segmenter_training(scene.data, cfg, instances=instances)


# --- commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "instances"), [("segmenter", False), ("isegmenter", True)])
def test_the_commands(scene: Set, capfd: pytest.CaptureFixture[str], name: str, instances: bool) -> None:
    cfg = scene.cfg(instances)

    def undertow(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        return main(["darknet", name, *map(str, words)]), *capfd.readouterr()

    status, out, err = undertow("train", scene.data, cfg, "-gpus", "0,1", "-display")
    assert status == 0, err
    lines = out.splitlines()
    assert lines[:4] == ["seg", "1", "Learning Rate: 0.005, Momentum: 0.9, Decay: 0.0001", "6"]
    assert sum(line.startswith("Loaded: ") for line in lines) == 6
    pattern = r"6, 4\.000: [\d.]+, [\d.]+ avg, 0\.005000 rate, [\d.]+ seconds, 24 images"
    assert any(re.fullmatch(pattern, line) for line in lines)
    assert "-display: no windows are opened here" in err
    assert "6 pictures to learn from, 12 objects of 2 classes" in err
    weights = scene.folder / "backup" / "seg.weights"
    status, out, err = undertow("test", scene.data, cfg, weights, scene.image(1), "-out", "parts.png")
    assert status == 0, err
    assert re.fullmatch(rf"Predicted: [\d.]+\n{scene.image(1)}: Predicted in [\d.]+ seconds\.\n", out)
    assert image_size(scene.folder / "parts.png") == (8, 8)
    assert undertow("demo")[0] == 2


def test_colours_of_classes() -> None:
    maps = np.zeros((6, 1, 6), np.float32)
    maps[range(6), 0, range(6)] = 1
    # offset = k * 123457 mod 6 along magenta, blue, cyan, green, yellow, red; its third corner value is drawn as red.
    wanted = []
    corners = [(1, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0), (1, 1, 0), (1, 0, 0)]
    for label in range(6):
        ratio = (label * 123457 % 6) / 6 * 5
        low, high = corners[int(np.floor(ratio))], corners[int(np.ceil(ratio))]
        wanted.append([low[c] + (ratio - np.floor(ratio)) * (high[c] - low[c]) for c in (2, 1, 0)])
    np.testing.assert_allclose(mask_to_rgb(maps)[:, 0].T, wanted, atol=3e-3)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("[avgpool]\n[softmax]\n", "one answer for the whole picture, as classifiers do.*use classifier"),
        ("[convolutional]\nfilters=7\n[yolo]\nmask=0\nanchors=8,8\nclasses=2\nnum=1\n", "finds boxes.*use detector"),
    ],
)
@pytest.mark.parametrize("command", ["train", "test"])
def test_nets_of_other_kinds(
    scene: Set, capfd: pytest.CaptureFixture[str], command: str, end: str, message: str
) -> None:
    cfg = scene.cfg(False)
    cfg.write_text(cfg.read_text().partition("[logistic]")[0] + end)
    more = ["", scene.image(0)] if command == "test" else []
    assert main(["darknet", "segmenter", command, str(scene.data), str(cfg), *more]) == 2
    assert re.search(message, capfd.readouterr().err)

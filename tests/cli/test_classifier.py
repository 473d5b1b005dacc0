"""classifier train, valid, predict and the rest through the command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Answer
from undertow.darknet import TrainOptions, load
from undertow.darknet.classifier_runs import classifier_training
from undertow.darknet.detection.classify import with_leaves
from undertow.darknet.files.class_labels import MASKED, PathLabels, TagFiles, fill_hierarchy
from undertow.darknet.files.tree import read_tree
from undertow.errors import FormatError

Command = Callable[..., Answer]
CFG = """[net]
batch=4
subdivisions=2
width=16
height=16
channels=3
learning_rate=0.05
max_batches={max_batches}
max_crop=18
angle=7
hue=.1
saturation=1.3
exposure=1.3
aspect=1.2
random={random}

[convolutional]
batch_normalize=1
filters=6
size=3
stride=2
pad=1
activation=leaky

[convolutional]
filters=3
size=1
activation=linear

[avgpool]

[softmax]
"""
COLORS = {"red": (200, 40, 40), "green": (40, 190, 40), "blue": (40, 40, 200)}


class Pictures:
    """A folder with colour.data, colour.cfg, lists and a picture of some size in each of three colours, four times."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.cfg = folder, folder / "colour.data", folder / "colour.cfg"
        rng = np.random.default_rng(3)
        (folder / "pictures").mkdir(parents=True)
        paths = []
        for number in range(12):
            name = list(COLORS)[number % 3]
            size = rng.integers(17, 30, 2)
            pixels = np.clip(np.array(COLORS[name]) + rng.normal(0, 30, (*size, 3)), 0, 255).astype(np.uint8)
            paths.append(folder / "pictures" / f"{number}_{name}.png")
            Image.fromarray(pixels).save(paths[-1])
        (folder / "all.list").write_text("".join(f"{path}\n" for path in paths))
        (folder / "labels.list").write_text("".join(f"_{name}\n" for name in COLORS))
        (folder / "names.list").write_text("".join(f"{name}\n" for name in COLORS))
        lists = "".join(f"{key}={folder}/all.list\n" for key in ("train", "valid", "test"))
        self.data.write_text(
            f"classes=3\n{lists}labels={folder}/labels.list\nnames={folder}/names.list\nbackup={folder}/backup\ntop=2\n"
        )
        self.write_cfg()
        self.paths = paths

    def write_cfg(self, max_batches: int = 8, random: int = 0) -> None:
        self.cfg.write_text(CFG.format(max_batches=max_batches, random=random))

    def weights(self) -> Path:
        net = load(self.cfg, seed=5)
        net.layers[1].weights[...] *= 4
        net.save_weights(self.folder / "some.weights")
        return self.folder / "some.weights"


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pictures:
    monkeypatch.chdir(tmp_path)
    return Pictures(tmp_path / "set")


# --- train ------------------------------------------------------------------------------------------------------


def test_train_prints_darknets_lines_and_learns(undertow: Command, pictures: Pictures) -> None:
    pictures.write_cfg(max_batches=60)
    answer = undertow("darknet", "classifier", "train", pictures.data, pictures.cfg, "-topk_every", 30, "-gpus", "0,1")
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert lines[:5] == ["colour", "1", "Learning Rate: 0.05, Momentum: 0.9, Decay: 0.0001", "12", "16 18"]
    iterations = [line for line in lines if re.match(r"\d+, ", line)]
    assert len(iterations) == 60
    for number, line in enumerate(iterations, start=1):
        pattern = (
            rf"{number}, {4 * number / 12:.3f}: [\d.]+, [\d.]+ avg, 0\.050000 rate, [\d.]+ seconds, {4 * number} images"
        )
        assert re.fullmatch(pattern, line), line
    assert " accuracy top1 = 1.000000, top2 = 1.000000 " in lines
    assert "the C program would take 8 at 0.1 on 2 GPUs" in answer.err
    written = {path.name for path in (pictures.folder / "backup").iterdir()}
    assert {
        "colour.weights",
        "colour_1.weights",
        "colour_20.weights",
        "colour_best.weights",
        "colour.backup",
    } <= written
    accuracy = (pictures.folder / "backup" / "colour_accuracy.csv").read_text().splitlines()
    assert accuracy[0] == "iteration,accuracy,top1,k,pictures"
    assert accuracy[-1] == "60,1,1,2,12"


@pytest.mark.parametrize("random", [0, 1])
def test_a_training_that_was_stopped_goes_on_exactly(
    undertow: Command, pictures: Pictures, random: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from undertow.darknet.learning import classifier
    from undertow.darknet.learning.trainer import Trainer

    monkeypatch.setattr(classifier, "SIZE_ITERATIONS", 3)
    monkeypatch.setattr(classifier, "SMALLEST_STEPS", 1)
    monkeypatch.setattr(classifier, "SIZES", 2)
    pictures.write_cfg(random=random)
    train = ("darknet", "classifier", "train", pictures.data, pictures.cfg)
    assert undertow(*train).status == 0
    final = pictures.folder / "backup" / "colour.weights"
    whole = final.read_bytes()
    final.unlink()
    usual = Trainer._next

    def stopping(trainer: Trainer, samples: object) -> object:
        if trainer.net.seen == 18:  # in the middle of iteration 5
            trainer.request_stop("test")
        return usual(trainer, samples)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "_next", stopping)
    stopped = undertow(*train)
    assert "to go on: undertow darknet classifier train" in stopped.err
    monkeypatch.setattr(Trainer, "_next", usual)
    backup = pictures.folder / "backup" / "colour.backup"
    assert "going on exactly" in undertow(*train, backup).err
    assert final.read_bytes() == whole
    if random:
        assert "Resizing\n" in stopped.out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("classes=3", "classes=4"), "the net gives 3 values, the .data file says classes=4"),
        (("labels=", "label="), "labels= is missing"),
        (("labels.list", "wrong.list"), "no picture has a label in its path"),
    ],
)
def test_files_that_do_not_fit_are_told(
    undertow: Command, pictures: Pictures, change: tuple[str, str], message: str
) -> None:
    (pictures.folder / "wrong.list").write_text("one\ntwo\nthree\n")
    pictures.data.write_text(pictures.data.read_text().replace(*change))
    assert message in undertow("darknet", "classifier", "train", pictures.data, pictures.cfg).error


def test_unclear_labels_are_told(undertow: Command, pictures: Pictures) -> None:
    (pictures.folder / "labels.list").write_text("0_red\nre\nblue\n")
    pictures.write_cfg(max_batches=1)
    answer = undertow("darknet", "classifier", "train", pictures.data, pictures.cfg)
    assert "pictures have more than one label in their path, the first is" in answer.err
    pictures.cfg.write_text(pictures.cfg.read_text().replace("width=16", "width=32"))
    assert "square pictures" in undertow("darknet", "classifier", "train", pictures.data, pictures.cfg).error


def test_grey_pictures_and_tags(undertow: Command, pictures: Pictures) -> None:
    for path in pictures.paths:
        path.with_suffix(".txt").write_text("0 2\n")
    pictures.data.write_text(pictures.data.read_text() + "tag=1\n")
    pictures.cfg.write_text(pictures.cfg.read_text().replace("channels=3", "channels=1"))
    assert undertow("darknet", "classifier", "train", pictures.data, pictures.cfg).status == 0
    pictures.paths[0].with_suffix(".txt").write_text("0 x\n")
    assert "'x' is no class number" in undertow("darknet", "classifier", "train", pictures.data, pictures.cfg).error


@pytest.mark.parametrize(("flip", "mirror", "mirrored"), [(1, True, True), (0, True, False), (1, False, False)])
def test_mirroring_can_be_forbidden(pictures: Pictures, flip: int, mirror: bool, mirrored: bool) -> None:
    """Pictures that are red on the left only, and nothing else done to them."""
    for path in pictures.paths:
        pixels = np.zeros((16, 16, 3), np.uint8)
        pixels[:, :8, 0] = 255
        Image.fromarray(pixels).save(path)
    text = pictures.cfg.read_text().replace("max_crop=18", f"max_crop=16\nflip={flip}").replace("angle=7", "angle=0")
    pictures.cfg.write_text(text.replace("aspect=1.2", "aspect=1"))
    trainer = classifier_training(pictures.data, pictures.cfg, options=TrainOptions(mirror=mirror))
    samples = [trainer.pictures.sample(number, (16, 16)).image for number in range(12)]
    assert any(image[0, 8, 12] > image[0, 8, 3] for image in samples) == mirrored


# --- valid, predict and the others ------------------------------------------------------------------------------


def test_predict(undertow: Command, pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("darknet", "classifier", "predict", pictures.data, pictures.cfg, pictures.weights())
    answer = undertow(*words, pictures.paths[0])
    assert re.fullmatch(r"(?: ?\d+\.\d\d%: (?:red|green|blue)\n){2}", answer.out)
    assert f"{pictures.paths[0]}: Predicted in " in answer.err
    assert undertow(*words, pictures.paths[0], "-t", 3).out.startswith(answer.out)
    assert "absent.png: cannot be opened" in undertow(*words, "absent.png").error
    assert "-t 0: at least 1" in undertow(*words, "-t", 0).error


@pytest.mark.parametrize("form", ["valid", "valid10", "validfull", "validmulti"])
def test_validations_count_from_picture_to_picture(undertow: Command, pictures: Pictures, form: str) -> None:
    answer = undertow("darknet", "classifier", form, pictures.data, pictures.cfg, pictures.weights())
    lines = [line for line in answer.out.splitlines() if "top 1: " in line]
    assert len(lines) == 12
    for number, line in enumerate(lines):
        assert re.fullmatch(rf"{number}: top 1: [01]\.\d{{6}}, top 2: [01]\.\d{{6}}", line)


@pytest.mark.parametrize("form", ["valid", "validfull", "predict", "label", "csv"])
def test_a_detector_is_no_classifier(undertow: Command, pictures: Pictures, form: str) -> None:
    head = "[yolo]\nmask=0\nanchors=8,8\nclasses=3\nnum=1\n"
    pictures.cfg.write_text(
        CFG.format(max_batches=2, random=0).replace("filters=3", "filters=8").split("[avgpool]")[0] + head
    )
    more = [pictures.paths[0]] if form == "predict" else []
    answer = undertow("darknet", "classifier", form, pictures.data, pictures.cfg, "", *more)
    assert "[yolo] finds boxes: its numbers are no probabilities of classes" in answer.error


def test_outputs_that_are_no_numbers_are_told(
    undertow: Command, pictures: Pictures, capfd: pytest.CaptureFixture[str]
) -> None:
    """By one warning of our own, none of NumPy's; the guesses are those of the C program."""
    net = load(pictures.cfg)
    net.layers[0].weights[0] = np.nan
    net.save_weights(pictures.folder / "nan.weights")
    answer = undertow("darknet", "classifier", "valid", pictures.data, pictures.cfg, pictures.folder / "nan.weights")
    assert answer.status == 0
    assert "RuntimeWarning" not in answer.err
    told = [line for line in answer.warnings if "the output of the net holds NaN or infinite values" in line]
    assert len(told) == 1
    assert "11: top 1: 0.333333, top 2: 0.666667" in answer.out


def test_nets_that_cannot_be_resized_say_so(undertow: Command, pictures: Pictures) -> None:
    pictures.cfg.write_text(pictures.cfg.read_text().replace("[avgpool]", "[connected]\noutput=3\nactivation=linear"))
    answer = undertow("darknet", "classifier", "validfull", pictures.data, pictures.cfg, pictures.weights())
    assert "the network cannot be resized to" in answer.error


original = pytest.mark.skipif(shutil.which("darknet") is None, reason="the original darknet program is not installed")


@original
@pytest.mark.darknet_program
@pytest.mark.parametrize("form", ["valid", "valid10", "validfull", "validmulti", "predict", "label", "fout"])
def test_the_original_program_prints_the_same(undertow: Command, pictures: Pictures, form: str) -> None:
    more = {"predict": [pictures.paths[0]], "fout": [pictures.folder / "all.list"]}.get(form, [])
    words = ["classifier", form, pictures.data, pictures.cfg, pictures.weights(), *more]
    theirs = subprocess.run(
        ["darknet", *map(str, words)], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    ).stdout.splitlines()
    ours = undertow("darknet", *words).out.splitlines()
    # It prints one more blank or two at the ends of lines, and the net's sizes where it resizes.
    theirs = [line for line in theirs if len(line.split()) > 1 or form == "label"]
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        numbers = r"-?\d+\.?\d*(?:e-?\d+)?"
        assert re.sub(numbers, "#", our.strip()) == re.sub(numbers, "#", their.strip())
        assert [float(n) for n in re.findall(numbers, our)] == pytest.approx(
            [float(n) for n in re.findall(numbers, their)], abs=2e-4, rel=1e-3
        )


def test_validcrop_counts_by_thousands(undertow: Command, pictures: Pictures) -> None:
    (pictures.folder / "all.list").write_text("".join(f"{pictures.paths[i % 12]}\n" for i in range(2100)))
    answer = undertow("darknet", "classifier", "validcrop", pictures.data, pictures.cfg, pictures.weights())
    lines = answer.out.splitlines()
    assert [line.split()[-2] for line in lines] == ["1050", "1050"]
    assert re.fullmatch(r"2: top 1: [\d.]+, top 2: [\d.]+, [\d.]+ seconds, 1050 images", lines[1])


def test_lists_of_guesses(undertow: Command, pictures: Pictures) -> None:
    words = (pictures.data, pictures.cfg, pictures.weights())
    rows = [line.split("\t") for line in undertow("darknet", "classifier", "test", *words).out.splitlines()]
    assert [row[0] for row in rows] == [str(path) for path in pictures.paths]
    assert all(sum(map(float, row[1:])) == pytest.approx(1, abs=1e-4) for row in rows)
    best = undertow("darknet", "classifier", "csv", *words, "-t", 1).out.splitlines()
    assert all(re.fullmatch(r".*\.png\t[012]", line) for line in best)


# --- classes ----------------------------------------------------------------------------------------------------


def test_labels_stand_in_paths_below_the_list() -> None:
    labels = PathLabels(["cat", "", "cats", "dog"], "/home/cats")
    assert labels.all_in("/home/cats/dog/1.png") == [3]
    assert labels.all_in("/home/cats/my_cats/1.png") == [0, 2]
    assert labels.first_in("/home/cats/my_cats/1.png") == 0
    assert labels.first_in("/home/cats/1.png") == -1
    assert labels.truth("/x/cat.png", 4).tolist() == [1, 0, 0, 0]


def test_parents_of_a_class_are_true_and_silent_groups_masked(tmp_path: Path) -> None:
    (tmp_path / "tree").write_text("animal -1\nthing -1\ncat 0\ndog 0\ncup 1\ncar 1\n")
    tree = read_tree(tmp_path / "tree")
    truth = fill_hierarchy(np.array([0, 0, 0, 1, 0, 0], np.float32), tree)
    assert truth.tolist() == [1, 0, 0, 1, MASKED, MASKED]
    (tmp_path / "leaves").write_text("cat\ncar\nghost\n")
    chosen, found = with_leaves(tree, tmp_path / "leaves")
    assert found == 2
    assert chosen.predictions(np.full(6, 0.5), only_leaves=True).tolist() == [0, 0, 0.25, 0, 0, 0.25]


def test_tags_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 7\n3\n")
    assert TagFiles().truth(str(tmp_path / "a.png"), 4).tolist() == [0, 1, 0, 1]
    assert TagFiles().all_in(str(tmp_path / "b.png")) == []
    (tmp_path / "a.txt").write_text("-1")
    with pytest.raises(FormatError, match="'-1' is no class number"):
        TagFiles().all_in(str(tmp_path / "a.png"))

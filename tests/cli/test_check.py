"""`undertow check`: each kind of finding, on a small data set broken on purpose."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from undertow.darknet.files.memory import PROCESS
from undertow.darknet.learning import trainer


def checked(undertow: Any, *words: object) -> tuple[int, list[str], dict[str, Any]]:
    answer = undertow("check", *words, "-json", "-quick")
    found = json.loads(answer.out)
    return answer.status, [f"{one['level']}: {one['text']}" for one in found["findings"]], found["numbers"]


def said(lines: list[str], *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in lines)


def test_a_sound_data_set_has_no_errors(undertow: Any, scene: Scene) -> None:
    status, lines, numbers = checked(undertow, scene.cfg, scene.data)
    assert status == 0, lines
    pictures = next(value for name, value in numbers.items() if name.endswith("train.txt"))
    assert pictures["pictures"] == 6
    assert pictures["boxes"] == 12
    assert numbers["time_is"] == "estimated"
    assert numbers["memory_bytes"] > 0


def test_the_anchors_fit_is_the_mean_of_the_best_overlaps(undertow: Any, scene: Scene) -> None:
    _, _, numbers = checked(undertow, scene.cfg, scene.data)
    overlaps = []
    for path in sorted((scene.folder / "images").glob("*.txt")):
        for line in path.read_text().splitlines():
            w, h = (32 * float(word) for word in line.split()[3:])
            shared = [min(w, side) * min(h, side) for side in (8, 16)]
            overlaps.append(max(s / (w * h + a * a - s) for s, a in zip(shared, (8, 16), strict=True)))
    assert numbers["anchor_iou"] == pytest.approx(sum(overlaps) / len(overlaps), rel=1e-5)


def test_classes_that_differ_name_the_filters(undertow: Any, scene: Scene) -> None:
    scene.data.write_text(scene.data.read_text().replace("classes=2", "classes=3"))
    (scene.folder / "obj.names").write_text("a\nb\nc\n")
    status, lines, _ = checked(undertow, scene.cfg, scene.data)
    assert status == 1
    assert said(lines, "error", "classes=3 here", "filters=16")  # 2 anchors * (3 + 5)


def test_broken_labels_missing_and_unreadable_pictures_are_counted(undertow: Any, scene: Scene) -> None:
    scene.image(0).with_suffix(".txt").write_text("0 0.5 0.5 0.2\n")
    scene.image(1).with_suffix(".txt").write_text("7 0.5 0.5 0.2 0.2\n" + "1 0.5 0.5 0.2 0.2\n" * 2)
    scene.image(2).write_bytes(b"not a picture")
    scene.image(3).unlink()
    scene.image(4).with_suffix(".txt").unlink()
    status, lines, numbers = checked(undertow, scene.cfg, scene.data)
    counts = next(value for name, value in numbers.items() if name.endswith("train.txt"))
    assert status == 1
    assert (counts["broken_labels"], counts["unreadable"], counts["missing"], counts["duplicates"]) == (1, 1, 1, 1)
    assert said(lines, "class out of range")
    assert said(lines, "label file missing")
    assert said(lines, "broken label files", "0.txt")


def test_steps_beyond_the_end(undertow: Any, scene: Scene) -> None:
    _, lines, _ = checked(undertow, scene.cfg)
    assert said(lines, "warning", "steps=10 is not before max_batches=6")


def test_max_batches_that_is_missing(undertow: Any, scene: Scene) -> None:
    text = scene.cfg.read_text()
    scene.cfg.write_text(text.replace("max_batches=6\n", ""))
    status, lines, numbers = checked(undertow, scene.cfg, scene.data)
    assert status == 1
    assert said(lines, "error", "tiny.cfg:1", "max_batches is missing or 0")
    assert numbers["max_batches"] == 0


def test_anchors_of_a_region_layer_are_in_cells(undertow: Any, scene: Scene) -> None:
    """Anchors of 1 and 2 cells of an 8 x 8 grid are those of 4 and 8 pixels of 32."""
    text = scene.cfg.read_text()
    head = "[region]\nanchors=1,1,2,2\nclasses=2\nnum=2\n"
    scene.cfg.write_text(text[: text.index("[yolo]")] + head)
    status, lines, numbers = checked(undertow, scene.cfg, scene.data)
    assert status == 0, lines
    overlaps = []
    for path in sorted((scene.folder / "images").glob("*.txt")):
        for line in path.read_text().splitlines():
            w, h = (32 * float(word) for word in line.split()[3:])
            shared = [min(w, side) * min(h, side) for side in (4, 8)]
            overlaps.append(max(s / (w * h + a * a - s) for s, a in zip(shared, (4, 8), strict=True)))
    assert numbers["anchor_iou"] == pytest.approx(sum(overlaps) / len(overlaps), rel=1e-5)


def test_classes_of_a_detection_layer_are_compared_too(undertow: Any, scene: Scene) -> None:
    text = scene.cfg.read_text()
    head = "[connected]\noutput=192\nactivation=linear\n\n[detection]\nclasses=2\ncoords=4\nside=4\nnum=2\n"
    scene.cfg.write_text(text[: text.index("[convolutional]\nsize=1")] + head)
    assert checked(undertow, scene.cfg, scene.data)[0] == 0
    scene.data.write_text(scene.data.read_text().replace("classes=2", "classes=3"))
    (scene.folder / "obj.names").write_text("a\nb\nc\n")
    status, lines, _ = checked(undertow, scene.cfg, scene.data)
    assert status == 1
    assert said(lines, "error", "classes=3 here", "output=208")  # 4 * 4 * (2 * 5 + 3)


def test_weights_that_have_passed_the_end(undertow: Any, scene: Scene) -> None:
    from undertow import darknet

    net = darknet.load(scene.cfg)
    net.seen = 400
    net.save_weights("old.weights")
    status, lines, numbers = checked(undertow, scene.cfg, scene.data, "old.weights")
    assert status == 1
    assert numbers["layers_loaded"] == numbers["layers_wanted"] == 3
    assert said(lines, "error", "iteration 100, past max_batches=6")
    net.seen = 0
    net.save_weights("part.weights", cutoff=2)
    _, lines, _ = checked(undertow, scene.cfg, scene.data, "part.weights")
    assert said(lines, "fills 2 of 3 layers, all before layer 2")


def test_a_cfg_that_is_none_is_an_error_with_its_line(undertow: Any, scene: Scene) -> None:
    scene.cfg.write_text(scene.cfg.read_text().replace("filters=14", "filters=15"))
    status, lines, _ = checked(undertow, scene.cfg)
    assert status == 1
    assert said(lines, "error", "tiny.cfg:", "filters=14")


def test_the_time_can_be_measured(undertow: Any, scene: Scene) -> None:
    answer = undertow("check", scene.cfg, scene.data)
    assert answer.status == 0, answer.out
    assert "(measured)" in answer.out
    numbers = json.loads(undertow("check", scene.cfg, scene.data, "-json").out)["numbers"]
    assert numbers["peak_memory_bytes"] > numbers["pass_memory_bytes"] > 0


def test_the_memory_of_a_training_counts_the_largest_size_and_what_is_loaded_ahead(undertow: Any, scene: Scene) -> None:
    _, lines, numbers = checked(undertow, scene.cfg)
    ahead = max(4, 4 * trainer.usual_workers())  # batch=4 pictures of 3 * 32 * 32 values with 90 boxes of 5
    assert numbers["loaded_ahead_bytes"] == 4 * ahead * (3 * 32 * 32 + 450)
    assert numbers["memory_bytes"] == numbers["pass_memory_bytes"] + numbers["loaded_ahead_bytes"] + PROCESS
    scene.write_cfg(random=1)
    _, lines, larger = checked(undertow, scene.cfg)
    assert said(lines, "samples of 608 x 608 (random=1)")
    scene.write_cfg(size=608)
    whole = checked(undertow, scene.cfg)[2]
    assert all(larger[name] == whole[name] for name in whole if name.endswith("_bytes"))


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("policy=step\nstep=0", "policy=step with step=0"),
        ("policy=step\nstep=-2", "policy=step with step=-2"),
        ("policy=poly\nmax_batches=0", "policy=poly with max_batches=0"),
        ("policy=sgdr\nsgdr_cycle=0", "policy=sgdr with a cycle of 0"),
    ],
)
def test_a_policy_that_cannot_be_counted(undertow: Any, scene: Scene, policy: str, reason: str) -> None:
    scene.cfg.write_text(f"[net]\nwidth=32\nheight=32\nchannels=3\n{policy}\n[convolutional]\n[softmax]\n")
    line = f"{scene.cfg}:6: {reason}"
    assert line in undertow("check", scene.cfg, "-quick").out
    assert line in undertow("explain", scene.cfg).error
    assert line in undertow("darknet", "speed", scene.cfg, "1").error


def test_a_loss_that_is_not_here_is_refused_at_once(undertow: Any, scene: Scene) -> None:
    """Whatever the dialect, with the same line, before anything is printed about the network."""
    text = scene.cfg.read_text()
    scene.cfg.write_text(text.replace("[yolo]", "[Gaussian_yolo]").replace("filters=14", "filters=22"))
    line = 1 + text[: text.index("[yolo]")].count("\n")
    wanted = f"{scene.cfg}:{line}: training [Gaussian_yolo] is not supported yet"
    assert wanted in undertow("check", scene.cfg, "-quick").out
    for flags in ((), ("-dialect", "exact")):
        answer = undertow("darknet", "detector", "train", scene.data, scene.cfg, *flags)
        assert wanted in answer.error
        assert "exact" not in answer.error
        assert "BFLOPs" not in answer.err + answer.out
        assert undertow("explain", scene.cfg, *flags).status == 0


@pytest.mark.parametrize(("section", "key"), [("softmax", "tree"), ("region", "map"), ("region", "tree")])
def test_a_file_that_the_cfg_names_and_that_is_not_there(undertow: Any, scene: Scene, section: str, key: str) -> None:
    head = "[net]\nwidth=32\nheight=32\nchannels=3\nmax_batches=9\n[convolutional]\nfilters=25\n"
    scene.cfg.write_text(f"{head}[{section}]\n{key}=data/9k.{key}\n")
    wanted = f"{scene.cfg}:8: layer 1: {key}=data/9k.{key}: there is no such file"
    assert wanted in undertow("check", scene.cfg, "-quick").out
    assert wanted in undertow("darknet", "speed", scene.cfg, "1").error


def test_weights_that_are_not_finite(undertow: Any, scene: Scene) -> None:
    from undertow import darknet

    net = darknet.load(scene.cfg)
    net.layers[0].arrays()["weights"].flat[3] = np.nan
    net.save_weights("nan.weights")
    status, lines, _ = checked(undertow, scene.cfg, scene.data, "nan.weights")
    assert status == 1
    assert said(lines, "error", "nan.weights: layer 0 holds 1 NaN in its weights", "stops in its first iteration")


@pytest.mark.parametrize(("rate", "reason"), [("0", "nothing is learned"), ("-0.001", "losses rise")])
def test_a_rate_that_does_not_learn(undertow: Any, scene: Scene, rate: str, reason: str) -> None:
    text = scene.cfg.read_text().splitlines()
    scene.cfg.write_text("\n".join(f"learning_rate={rate}" if "learning_rate" in line else line for line in text))
    status, lines, _ = checked(undertow, scene.cfg)
    assert status == 1
    assert said(lines, "error", f"learning_rate={rate} in", reason)


def test_an_anchor_twice_in_one_mask(undertow: Any, scene: Scene) -> None:
    scene.cfg.write_text(scene.cfg.read_text().replace("mask=0,1", "mask=1,1"))
    lines = checked(undertow, scene.cfg)[1]
    assert said(lines, "warning", "mask= names anchor 1 more than once")
    assert said(lines, "warning", "anchor 0 is in no mask=")
    assert not said(lines, "several")


def test_pictures_that_are_cut_short_are_unreadable(undertow: Any, scene: Scene) -> None:
    """As the training finds them, although their headers are whole."""
    data = scene.image(0).read_bytes()
    scene.image(0).write_bytes(data[: len(data) * 3 // 4])
    numbers = checked(undertow, scene.cfg, scene.data)[2]
    assert next(value for name, value in numbers.items() if name.endswith("train.txt"))["unreadable"] == 1


def test_pictures_that_are_measured_on_too_and_those_named_again(undertow: Any, scene: Scene) -> None:
    source = scene.data.read_text()
    train = next(line.partition("=")[2].strip() for line in source.splitlines() if line.startswith("train"))
    rest = [line for line in source.splitlines() if not line.startswith("valid")]
    scene.data.write_text("\n".join([*rest, f"valid={train}"]))
    assert said(checked(undertow, scene.cfg, scene.data)[1], "warning", "(valid=) is the list of train=", "6 of 6")
    first = f"{scene.image(0)}\n"
    (scene.folder / "few.txt").write_text(first)
    (scene.folder / "again.txt").write_text(first * 3 + f"{scene.image(1)}\n")
    kept = [line for line in rest if not line.startswith("train")]
    scene.data.write_text("\n".join([*kept, f"train={scene.folder}/again.txt", f"valid={scene.folder}/few.txt"]))
    lines = checked(undertow, scene.cfg, scene.data)[1]
    assert said(lines, "note", "1 pictures that", "again.txt names more than once", "0.png")
    assert said(lines, "warning", "few.txt (valid=) shares pictures with the list of train=", "1 of 2")


def test_what_a_training_refuses_before_it_begins_is_an_error(undertow: Any, scene: Scene) -> None:
    text = scene.cfg.read_text()
    head = "[region]\nanchors=1,1,2,2\nclasses=2\nnum=2\nmap=scene/some.map\n"
    scene.cfg.write_text(text[: text.index("[yolo]")] + head)
    (scene.folder / "some.map").write_text("0\n")
    (scene.folder / "obj.names").write_text("a\n")
    scene.data.write_text(scene.data.read_text().replace("classes=2", "classes=1"))
    status, lines, _ = checked(undertow, scene.cfg, scene.data)
    assert status == 1
    assert said(lines, "error", "obj.names: classes=2 but 1 names")
    (scene.folder / "obj.names").write_text("a\nb\n")
    scene.cfg.write_text(text.replace("[yolo]", "[yolo]\njitter=2"))
    scene.data.write_text(scene.data.read_text().replace("classes=1", "classes=2"))
    status, lines, _ = checked(undertow, scene.cfg, scene.data)
    assert status == 1
    assert said(lines, "error", "jitter is a share")


def test_a_folder_for_weights_that_cannot_be_made(undertow: Any, scene: Scene) -> None:
    lines = [line for line in scene.data.read_text().splitlines() if not line.startswith("backup")]
    (scene.folder / "file").write_text("")
    scene.data.write_text("\n".join([*lines, f"backup={scene.folder}/file/weights"]))
    status, lines, _ = checked(undertow, scene.cfg, scene.data)
    assert status == 1
    assert said(lines, "error", "file is no folder")


def test_names_may_be_missing(undertow: Any, scene: Scene) -> None:
    lines = [line for line in scene.data.read_text().splitlines() if not line.startswith("names")]
    scene.data.write_text("\n".join(lines))
    status, lines, _ = checked(undertow, scene.cfg, scene.data)
    assert status == 0, lines
    assert said(lines, "warning", "names= is missing")

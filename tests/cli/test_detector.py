"""detector train, test, map and recall through the command line."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from tests.cli.conftest import Answer, start
from tests.darknet.training.scenes import Scene
from undertow.darknet import load, train
from undertow.errors import UndertowError

Command = Callable[..., Answer]


@pytest.fixture
def weights(scene: Scene) -> Path:
    scene.write_cfg(max_batches=120, rate=0.005)
    return train(scene.data, scene.cfg).weights


# --- train ------------------------------------------------------------------------------------------------------


def test_train_prints_darknets_lines(undertow: Command, scene: Scene) -> None:
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg)
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert lines[:2] == ["tiny", "Learning Rate: 0.01, Momentum: 0.9, Decay: 0.0005"]
    heads = [line for line in lines if line.startswith("Region 3 Avg IOU: ")]
    assert len(heads) == 12
    assert all(
        re.fullmatch(
            r"Region 3 Avg IOU: (nan|[\d.]+), Class: \S+, Obj: \S+, No Obj: [\d.]+, \.5R: \S+, \.75R: \S+,  count: \d+",
            line,
        )
        for line in heads
    )
    iterations = [line for line in lines if re.match(r"\d+: ", line)]
    assert len(iterations) == 6
    for number, line in enumerate(iterations, start=1):
        pattern = rf"{number}: [\d.]+, [\d.]+ avg, 0\.0\d+ rate, [\d.]+ seconds, {4 * number} images"
        assert re.fullmatch(pattern, line)
    kinds = [line.split()[0].rstrip("0123456789:") or "number" for line in lines[2:]]
    assert kinds == ["Loaded", "Region", "Region", "number"] * 6
    assert "dialect exact" in answer.err
    assert (scene.folder / "backup" / "tiny_final.weights").exists()


def test_train_with_map_keeps_the_best_and_draws_the_chart(undertow: Command, scene: Scene) -> None:
    pytest.importorskip("matplotlib")
    chart = scene.folder / "here.png"
    answer = undertow(
        "darknet", "detector", "train", scene.data, scene.cfg, "-map_every", "3", "-save_every", "2", "-chart", chart,
        "-iou_thresh", ".4", "-thresh", ".3",
    )  # fmt: skip
    assert answer.status == 0
    assert answer.out.count("mean average precision (mAP@0.40)") == 2
    assert answer.out.count("for conf_thresh = 0.30, TP") == 2
    names = {path.name for path in (scene.folder / "backup").iterdir()}
    assert {"tiny_best.weights", "tiny_2.weights", "tiny_4.weights", "tiny_6.weights", "tiny_map.csv"} <= names
    assert chart.exists()


def test_train_answers_flags_for_gpus_in_one_line(undertow: Command, scene: Scene) -> None:
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg, "-gpus", "0,1", "-i", "0", "-dont_show")
    assert answer.status == 0
    said = [line for line in answer.err.splitlines() if line.startswith("-gpus")]
    assert len(said) == 1
    assert "4 images per iteration at rate 0.01" in said[0]
    assert "the C program would take 8 at 0.02 on 2 GPUs" in said[0]


def test_weights_that_are_done_are_told(undertow: Command, scene: Scene) -> None:
    undertow("darknet", "detector", "train", scene.data, scene.cfg)
    final = scene.folder / "backup" / "tiny_final.weights"
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg, final)
    assert "there is nothing left to train" in answer.error
    assert undertow("darknet", "detector", "train", scene.data, scene.cfg, final, "-clear").status == 0


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_stops_and_says_how_to_go_on(scene: Scene, sent: signal.Signals, status: int) -> None:
    scene.write_cfg(max_batches=100000)
    process = start("darknet", "detector", "train", scene.data, scene.cfg, "-seed", "3", cwd=scene.folder)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("12: "):
            process.send_signal(sent)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert "Traceback" not in err
    go_on = f"to go on: undertow darknet detector train {scene.data} {scene.cfg} {scene.backup} -seed 3"
    assert go_on in err
    done = load(scene.cfg, scene.backup)
    assert done.seen >= 48
    numbers = [int(line.split(":")[0]) for line in out.splitlines() if re.match(r"\d+: ", line)]
    assert done.batch_number == max([12, *numbers])


def test_an_unwritable_folder_is_one_message(undertow: Command, scene: Scene) -> None:
    (scene.folder / "backup").write_text("a file where a folder should be")
    assert "backup" in undertow("darknet", "detector", "train", scene.data, scene.cfg).error


# --- test -------------------------------------------------------------------------------------------------------


def test_test_prints_and_draws(undertow: Command, scene: Scene, weights: Path) -> None:
    found = load(scene.cfg, weights, names=["red", "blue"]).detect(scene.image(1), threshold=0.1)
    assert found
    answer = undertow("darknet", "detector", "test", scene.data, scene.cfg, weights, scene.image(1), "-thresh", "0.1")
    lines = answer.out.splitlines()
    assert answer.status == 0
    assert re.fullmatch(rf"{re.escape(str(scene.image(1)))}: Predicted in [\d.]+ seconds\.", lines[0])
    assert lines[1:] == [f"{one.name}: {100 * one.confidence:.0f}%" for one in found]
    with Image.open("predictions.jpg") as drawn:
        assert drawn.size == (56, 40)


def test_ext_output_adds_the_boxes(undertow: Command, scene: Scene, weights: Path) -> None:
    words = ("darknet", "detector", "test", scene.data, scene.cfg, weights, scene.image(1))
    answer = undertow(*words, "-thresh", "0.1", "-ext_output", "-out", "found.png")
    one = load(scene.cfg, weights).detect(scene.image(1), threshold=0.1)[0]
    left, top, _, _ = one.pixel_box.sides
    box = f"(left_x: {left:4.0f}   top_y: {top:4.0f}   width: {one.pixel_box.w:4.0f}   height: {one.pixel_box.h:4.0f})"
    assert answer.out.splitlines()[1].endswith(box)
    assert Path("found.png").exists()


def test_pictures_named_on_stdin(
    undertow: Command, scene: Scene, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{scene.image(0)}\n\nmissing.png\n{scene.image(1)}\n"))
    answer = undertow("darknet", "detector", "test", scene.data, scene.cfg, weights)
    assert answer.out.count("Predicted in") == 2
    assert "missing.png" in answer.error


def test_nms_and_threshold_change_what_is_found(undertow: Command, scene: Scene, weights: Path) -> None:
    words = ("darknet", "detector", "test", scene.data, scene.cfg, weights, scene.image(2), "-thresh", "0.02")
    counts = [len(undertow(*words, "-nms", nms).out.splitlines()) for nms in ("0", "0.3")]
    assert counts[0] > counts[1] > 1


def test_too_few_names_are_an_error(undertow: Command, scene: Scene, weights: Path) -> None:
    (scene.folder / "obj.names").write_text("red\n")
    answer = undertow("darknet", "detector", "test", scene.data, scene.cfg, weights, scene.image(0))
    assert "classes=2 but 1 names" in answer.error


# --- map and recall -----------------------------------------------------------------------------------------------


def test_map_prints_as_alexeyabs_program(undertow: Command, scene: Scene, weights: Path) -> None:
    answer = undertow("darknet", "detector", "map", scene.data, scene.cfg, weights, "-thresh", "0.2")
    assert answer.status == 0
    patterns = (
        r"class_id = 0, name = red, ap = [\d.]+% +\(TP = \d+, FP = \d+\)",
        r"class_id = 1, name = blue, ap = [\d.]+% +\(TP = \d+, FP = \d+\)",
        r"for conf_thresh = 0\.20, precision = [\d.]+, recall = [\d.]+, F1-score = [\d.]+",
        r"for conf_thresh = 0\.20, TP = \d+, FP = \d+, FN = \d+, average IoU = [\d.]+ %",
        r"IoU threshold = 50 %, used Area-Under-Curve for each unique Recall",
        r"mean average precision \(mAP@0\.50\) = [\d.]+, or [\d.]+ %",
    )
    for pattern, line in zip(patterns, answer.out.splitlines(), strict=True):
        assert re.fullmatch(pattern, line), line


def test_map_at_other_points_and_overlaps(undertow: Command, scene: Scene, weights: Path) -> None:
    words = ("darknet", "detector", "map", scene.data, scene.cfg, weights)
    assert "used 11 Recall-points" in undertow(*words, "-points", "11").out
    assert "-points 13: there are 0, 11 and 101" in undertow(*words, "-points", "13").error
    assert "mAP@0.75" in undertow(*words, "-iou_thresh", ".75").out


def test_classes_without_objects_are_told(undertow: Command, scene: Scene, weights: Path) -> None:
    for number in range(6):
        labels = scene.image(number).with_suffix(".txt")
        labels.write_text(labels.read_text().splitlines()[0] + "\n")
    answer = undertow("darknet", "detector", "map", scene.data, scene.cfg, weights)
    assert "1 classes have no object" in answer.err


def test_recall(undertow: Command, scene: Scene, weights: Path) -> None:
    answer = undertow("darknet", "detector", "recall", scene.data, scene.cfg, weights)
    assert re.fullmatch(r" +6 +\d+ +12\tRPs/Img: [\d.]+\tIOU: [\d.]+%\tRecall:[\d.]+%\n", answer.out)


def test_detect_looks_for_the_names_of_coco(undertow: Command, scene: Scene, weights: Path) -> None:
    assert "cfg/coco.data" in undertow("darknet", "detect", scene.cfg, weights, scene.image(0)).error
    Path("cfg").mkdir()
    Path("cfg/coco.data").write_text(f"classes=2\nnames={scene.folder / 'obj.names'}\n")
    assert undertow("darknet", "detect", scene.cfg, weights, scene.image(0)).status == 0


def test_a_dialect_can_be_asked_for(undertow: Command, scene: Scene, weights: Path) -> None:
    words = ("darknet", "detector", "map", scene.data, scene.cfg, weights)
    assert "dialect darknet-cpu" in undertow(*words, "-dialect", "darknet-cpu", "-precision", "reference").err
    assert "did you mean darknet-cpu?" in undertow(*words, "-dialect", "darknet_cpu").error


def test_valid_writes_the_results(undertow: Command, scene: Scene, weights: Path) -> None:
    with open(scene.data, "a") as stream:
        stream.write("results=found\n")
    assert undertow("darknet", "detector", "valid", scene.data, scene.cfg, weights).status == 0
    lines = Path("found/comp4_det_test_red.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} <= {"0", "1", "2", "3", "4", "5"}
    assert len(lines) > 6


def test_names_that_the_terminal_lacks_are_shown_escaped(
    scene: Scene, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scene.folder / "obj.names").write_text("rot\n犬\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = start("darknet", "detector", "map", scene.data, scene.cfg, weights, cwd=scene.folder)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert r"name = \u72ac" in out


@pytest.mark.parametrize("function", ["test", "map", "valid", "recall"])
def test_empty_weights_are_random_ones_and_told(scene: Scene, undertow: Command, function: str) -> None:
    image = [scene.folder / "images" / "0.png"] if function == "test" else []
    answer = undertow("darknet", "detector", function, scene.data, scene.cfg, "", *image)
    assert answer.status == 0, answer.err
    assert answer.warnings == [
        f"warning: no WEIGHTS: the parameters of {scene.cfg} are random, so what is computed means nothing"
    ]


def test_gpus_that_are_no_numbers(scene: Scene, undertow: Command) -> None:
    answer = undertow("darknet", "detector", "train", scene.data, scene.cfg, "-gpus", "0,a")
    assert "-gpus takes whole numbers with commas between them, not '0,a'" in answer.error


def test_lines_of_an_iteration_that_nothing_completes_are_not_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from undertow.cli.progress import training_watcher

    class Line:
        def line(self, index: int) -> str:
            return f"Region {index}"

    def stopped() -> None:
        with training_watcher(plain=True) as watcher:
            watcher.passed([(3, cast(Any, Line()))])
            assert capfd.readouterr().out == ""
            raise UndertowError("no more pictures")

    with pytest.raises(UndertowError):
        stopped()
    assert capfd.readouterr().out == "Region 3\n"

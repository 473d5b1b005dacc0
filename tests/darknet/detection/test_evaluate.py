"""Average precision by hand, against COCO's own program, and against a literal reading of the definitions."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.evaluate import (
    average_precision,
    count,
    evaluate,
    evaluate_coco,
    evaluate_recall,
    precision_recall,
)
from undertow.darknet.detection.matching import IGNORED, RIGHT, WRONG, Predictions, Truth, Verdicts, judge, pair
from undertow.errors import ShapeError

BOX = (0.5, 0.5, 0.4, 0.4)
NEAR = (0.52, 0.5, 0.4, 0.4)  # IoU with BOX 0.905
FAR = (0.2, 0.2, 0.1, 0.1)


def truth(*rows: tuple[object, ...], ignored: tuple[bool, ...] = ()) -> Truth:
    return Truth([row[0] for row in rows], [row[1] for row in rows], np.array(ignored, bool))


def found(*rows: tuple[object, ...]) -> Predictions:
    boxes, scores, classes = zip(*rows, strict=True) if rows else ((), (), ())
    return Predictions(boxes, scores, classes)


def judged(predictions: list[Predictions], truths: list[Truth], threshold: float = 0.5, rule: str = "voc") -> Verdicts:
    """The verdicts on class 0."""
    return judge(pair(predictions, truths, rule)[0], threshold, rule)


def test_verdicts_by_hand() -> None:
    predictions = [found((NEAR, 0.9, 0), (BOX, 0.8, 0), (FAR, 0.7, 0), (BOX, 0.6, 1)), found((BOX, 0.85, 0))]
    truths = [truth((BOX, 0)), truth((BOX, 0))]
    verdicts = judged(predictions, truths)
    assert verdicts.scores.tolist() == [0.9, 0.85, 0.8, 0.7]
    assert verdicts.verdicts.tolist() == [RIGHT, RIGHT, WRONG, WRONG]
    assert verdicts.ious[:2] == pytest.approx([0.38 / 0.42, 1])
    assert verdicts.truths == 2
    precision, recall = precision_recall(verdicts)
    assert precision == pytest.approx([1, 1, 2 / 3, 1 / 2])
    assert recall == pytest.approx([0.5, 1, 1, 1])


def test_the_rules_part_where_two_objects_compete() -> None:
    """The second detection overlaps the taken object most, but the free one enough."""
    left, right = (0.4, 0.5, 0.4, 0.4), (0.5, 0.5, 0.4, 0.4)
    predictions = [found((left, 0.9, 0), ((0.44, 0.5, 0.4, 0.4), 0.8, 0))]
    truths = [truth((left, 0), (right, 0))]
    assert judged(predictions, truths, rule="voc").verdicts.tolist() == [RIGHT, WRONG]
    assert judged(predictions, truths, rule="coco").verdicts.tolist() == [RIGHT, RIGHT]


def test_threshold_itself_counts_for_coco_alone() -> None:
    whole, half = (0.5, 0.5, 1.0, 0.5), (0.25, 0.5, 0.5, 0.5)  # IoU exactly 0.5
    for rule, verdict in (("voc", WRONG), ("coco", RIGHT)):
        assert judged([found((half, 0.9, 0))], [truth((whole, 0))], 0.5, rule).verdicts.tolist() == [verdict]


@pytest.mark.parametrize("rule", ["voc", "coco"])
def test_ignored_objects_count_neither_way(rule: str) -> None:
    predictions = [found((BOX, 0.9, 0), (BOX, 0.8, 0), (FAR, 0.7, 0))]
    verdicts = judged(predictions, [truth((BOX, 0), (FAR, 0), ignored=(True, False))], 0.5, rule)
    assert verdicts.verdicts.tolist() == [IGNORED, IGNORED, RIGHT]
    assert verdicts.truths == 1
    assert average_precision(*precision_recall(verdicts)) == 1


def test_average_precision_by_hand() -> None:
    precision, recall = np.array([1, 1 / 2, 2 / 3, 1 / 2]), np.array([0.25, 0.25, 0.5, 0.5])
    assert average_precision(precision, recall) == pytest.approx(0.25 + 0.25 * 2 / 3)
    assert average_precision(precision, recall, 11) == pytest.approx((3 * 1 + 3 * 2 / 3) / 11)
    assert average_precision(precision, recall, 101) == pytest.approx((26 * 1 + 25 * 2 / 3) / 101)
    assert average_precision(np.zeros(0), np.zeros(0), 11) == 0
    assert average_precision(np.zeros(0), np.zeros(0)) == 0


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 40), st.sampled_from([0, 11, 101]))
def test_average_precision_as_defined(hits: list[bool], truths: int, points: int) -> None:
    truths = max(truths, sum(hits))
    tp = np.cumsum(hits)
    precision, recall = tp / np.arange(1, len(hits) + 1), tp / truths

    def best_from(level: float) -> float:
        return max((p for p, r in zip(precision, recall, strict=True) if r >= level), default=0.0)

    if points:
        expected = sum(best_from(point / (points - 1)) for point in range(points)) / points
    else:
        expected = sum(best_from((number + 1) / truths) / truths for number in range(truths))
    assert average_precision(precision, recall, points) == pytest.approx(expected)


def random_set(seed: int, pictures: int, classes: int, crowds: bool) -> tuple[list[Predictions], list[Truth]]:
    """Pixel boxes; detections are true boxes moved a little, some of another class, some anywhere; scores repeat."""
    rng = np.random.default_rng(seed)
    predictions, truths = [], []
    for _ in range(pictures):
        n = rng.integers(0, 9)
        boxes = np.concatenate([rng.uniform(50, 400, (n, 2)), rng.uniform(8, 150, (n, 2))], axis=1)
        kinds = rng.integers(0, classes, n)
        truths.append(Truth(boxes, kinds, rng.random(n) < (0.25 if crowds else 0)))
        copies = np.repeat(np.arange(n), rng.integers(0, 4, n))
        moved = boxes[copies] * rng.uniform(0.85, 1.15, (len(copies), 4))
        stray = np.concatenate([rng.uniform(50, 400, (3, 2)), rng.uniform(8, 150, (3, 2))], axis=1)
        given = np.concatenate([np.where(rng.random(len(copies)) < 0.9, kinds[copies], 0), rng.integers(0, classes, 3)])
        scores = np.round(rng.random(len(given)), 1 if seed % 2 else 6)
        predictions.append(Predictions(np.concatenate([moved, stray]), scores, given))
    return predictions, truths


def coco_numbers(predictions: list[Predictions], truths: list[Truth], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The first 12 numbers of COCO's own evaluation, and its precision array for all areas and 100 detections."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def corner(box: np.ndarray) -> list[float]:
        return [box[0] - box[2] / 2, box[1] - box[3] / 2, box[2], box[3]]

    annotations = [
        {
            "image_id": image,
            "category_id": int(kind) + 1,
            "bbox": corner(box),
            "area": box[2] * box[3],
            "iscrowd": int(crowd),
        }
        for image, real in enumerate(truths)
        for box, kind, crowd in zip(real.boxes, real.classes, real.ignored, strict=True)
    ]
    results = [
        {"image_id": image, "category_id": int(kind) + 1, "bbox": corner(box), "score": float(score)}
        for image, seen in enumerate(predictions)
        for box, score, kind in zip(seen.boxes, seen.scores, seen.classes, strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "info": {},
            "images": [{"id": image} for image in range(len(truths))],
            "annotations": [{"id": number + 1, **row} for number, row in enumerate(annotations)],
            "categories": [{"id": number + 1, "name": str(number)} for number in range(classes)],
        }
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats, evaluation.eval["precision"][:, :, :, 0, 2]


@pytest.mark.parametrize("crowds", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_coco_numbers_are_those_of_pycocotools(seed: int, crowds: bool) -> None:
    predictions, truths = random_set(seed, pictures=25, classes=4, crowds=crowds)
    stats, precision = coco_numbers(predictions, truths, 5)  # class 5 never occurs
    ours = evaluate_coco(predictions, truths, 5)
    assert ours.average_precision == pytest.approx(stats[0], abs=1e-6)
    assert ours.at_50 == pytest.approx(stats[1], abs=1e-6)
    assert ours.at_75 == pytest.approx(stats[2], abs=1e-6)
    assert ours.average_recall == pytest.approx(stats[8], abs=1e-6)
    np.testing.assert_allclose(ours.per_class[:4], precision[:, :, :4].mean(axis=(0, 1)), atol=1e-6)
    assert np.isnan(ours.per_class[4])


@pytest.mark.parametrize("scores", [(0.9, 0.8), (0.8, 0.9), (0.7, 0.7)])
def test_coco_hand_made_sets(scores: tuple[float, float]) -> None:
    """Overlaps that sit exactly on a threshold, equal scores, more than 100 detections, recalls of n/100."""
    whole, half = (64.0, 64.0, 64.0, 32.0), (48.0, 64.0, 32.0, 32.0)
    predictions = [
        found((half, scores[0], 0), (whole, scores[1], 0)),
        found(*[(whole, 0.5 - k / 1000, 0) for k in range(150)]),
    ]
    truths = [truth((whole, 0)), truth((whole, 0), *[((500.0 + 40 * k, 64.0, 32.0, 32.0), 0) for k in range(98)])]
    stats, _ = coco_numbers(predictions, truths, 1)
    ours = evaluate_coco(predictions, truths, 1)
    assert [ours.average_precision, ours.at_50, ours.at_75, ours.average_recall] == pytest.approx(
        [stats[0], stats[1], stats[2], stats[8]], abs=1e-6
    )


def test_evaluation_of_a_small_set() -> None:
    predictions = [found((NEAR, 0.9, 0), (FAR, 0.6, 0), (FAR, 0.2, 1)), found((BOX, 0.3, 1))]
    truths = [truth((BOX, 0), (FAR, 1)), truth((BOX, 0))]
    result = evaluate(predictions, truths, ["cat", "dog", "cow"])
    cat, dog, cow = result.classes
    assert (cat.truths, cat.average_precision) == (2, pytest.approx(0.5))
    assert (dog.truths, dog.average_precision) == (1, pytest.approx(0.5))  # the stray is scored above the hit
    assert np.isnan(cow.average_precision)
    assert result.mean_average_precision == pytest.approx(0.5)
    assert (result.counts.true_positives, result.counts.false_positives, result.counts.false_negatives) == (1, 2, 2)
    assert result.counts.precision == pytest.approx(1 / 3)
    assert result.counts.recall == pytest.approx(1 / 3)
    assert result.counts.f1 == pytest.approx(1 / 3)
    assert result.counts.average_iou == pytest.approx(0.38 / 0.42 / 3)
    with_absent = evaluate(predictions, truths, ["cat", "dog", "cow"], absent_classes=True)
    assert with_absent.mean_average_precision == pytest.approx(1 / 3)
    report = "\n".join(result.lines())
    assert "class_id = 0, name = cat, ap = 50.00%   (TP = 1, FP = 1)" in report
    assert "class_id = 2, name = cow, ap = 0.00%   (TP = 0, FP = 0)" in report
    assert "TP = 1, FP = 2, FN = 2, average IoU = 30.16 %" in report
    assert "mean average precision (mAP@0.50) = 0.500000, or 50.00 %" in report


def test_confidence_is_strict() -> None:
    verdicts = judged([found((BOX, 0.25, 0))], [truth((BOX, 0))])
    assert count(verdicts, 0.25).true_positives == 0
    assert count(verdicts, 0.24).true_positives == 1


def test_nothing_found_and_nothing_there() -> None:
    assert evaluate([found()], [truth((BOX, 0))], ["cat"]).mean_average_precision == 0
    empty = evaluate([found((BOX, 0.9, 0))], [truth()], ["cat"])
    assert empty.mean_average_precision == 0
    assert empty.counts.false_positives == 1
    assert evaluate([], [], ["cat"]).counts.precision == 0
    assert evaluate_coco([found()], [truth((BOX, 0))], 1).average_precision == 0


def test_predictions_of_candidates() -> None:
    candidates = Candidates(
        np.array([BOX, FAR], np.float32), np.array([0.9, 0.8], np.float32), np.array([[0.5, 0.1], [0, 0.3]], np.float32)
    )
    predictions = Predictions.of(candidates)
    assert predictions.classes.tolist() == [0, 1, 1]
    assert predictions.scores == pytest.approx([0.5, 0.1, 0.3])
    np.testing.assert_allclose(predictions.boxes, np.array([BOX, BOX, FAR]), rtol=1e-6)


def test_recall_of_proposals() -> None:
    candidates = Candidates(
        np.array([NEAR, FAR, BOX], np.float32), np.array([0.9, 0.5, 0], np.float32), np.zeros((3, 1), np.float32)
    )
    nothing = Candidates(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros((0, 1), np.float32))
    result = evaluate_recall([candidates, nothing], [truth((BOX, 0), (FAR, 3)), truth((BOX, 1))])
    assert (result.proposals, result.truths, result.found) == (2, 3, 2)
    assert result.proposals_per_picture == 1
    assert result.recall == pytest.approx(2 / 3)
    assert result.average_iou == pytest.approx((0.38 / 0.42 + 1 + 0) / 3, rel=1e-5)


def test_lists_that_do_not_belong_together() -> None:
    with pytest.raises(ShapeError, match="2 pictures"):
        pair([found(), found()], [truth()])
    with pytest.raises(ShapeError, match="1 boxes, 2 classes"):
        Truth([BOX], [0, 1])
    with pytest.raises(ShapeError, match="1 scores"):
        Predictions([BOX, BOX], [0.5], [0, 1])

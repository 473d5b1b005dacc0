"""SSD's loss, evaluation and the layers of the R-CNN family against references written out box by box."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.boxes import coverage, decode, encode, match, overlaps, project, suppress
from undertow.caffe.net import Net
from undertow.errors import UndertowError

CLASSES, COUNT = 3, 30
VARIANCE = [0.1, 0.1, 0.2, 0.2]


def iou(a: np.ndarray, b: np.ndarray) -> float:
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if w <= 0 or h <= 0:
        return 0.0
    return w * h / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h)


def reference(loc, conf, priors, objects, *, ratio=3.0, mining=True, neg_overlap=0.5, every=True):  # type: ignore
    """The loss as the paper tells it: match, count, mine, sum; the divisor is the number of matched boxes."""
    matched, total_places, total_classes = 0, 0.0, 0.0
    for image in range(len(loc)):
        things = [row for row in objects if row[0] == image]
        table = np.array([[iou(p, t[3:7]) for t in things] for p in priors]).reshape(len(priors), len(things))
        owner: dict[int, int] = {}
        while len(set(owner.values())) < len(things):
            pairs = [
                (table[p, t], -p, -t)
                for p, t in product(range(len(priors)), range(len(things)))
                if p not in owner and t not in owner.values() and table[p, t] > 1e-6
            ]
            if not pairs:
                break
            _, p, t = max(pairs)
            owner[-p] = -t
        if every:
            for p in range(len(priors)):
                if p not in owner and len(things) and table[p].max() >= 0.5:
                    owner[p] = int(table[p].argmax())
        losses = {}
        for p in range(len(priors)):
            label = int(things[owner[p]][1]) if p in owner else 0
            scores = conf[image, p]
            losses[p] = math.log(sum(math.exp(s - scores.max()) for s in scores)) + scores.max() - scores[label]
        rest = [p for p in range(len(priors)) if p not in owner]
        if mining:
            rest = [p for p in rest if len(things) and table[p].max() < neg_overlap]
            rest = sorted(rest, key=lambda p: -losses[p])[: int(len(owner) * ratio)]
        matched += len(owner)
        total_classes += sum(losses[p] for p in [*owner, *rest])
        for p, t in owner.items():
            box, (left, top, right, bottom) = things[t][3:7], priors[p]
            w, h = right - left, bottom - top
            target = [
                ((box[0] + box[2]) / 2 - (left + right) / 2) / w / VARIANCE[0],
                ((box[1] + box[3]) / 2 - (top + bottom) / 2) / h / VARIANCE[1],
                math.log((box[2] - box[0]) / w) / VARIANCE[2],
                math.log((box[3] - box[1]) / h) / VARIANCE[3],
            ]
            for d in loc[image, p] - target:
                total_places += d * d / 2 if abs(d) < 1 else abs(d) - 0.5
    return (total_places + total_classes) / max(1, matched)


def random_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    corners = rng.uniform(0, 0.6, (count, 2))
    return np.concatenate([corners, corners + rng.uniform(0.1, 0.4, (count, 2))], 1)


def multibox(options: str, loc: np.ndarray, conf: np.ndarray, priors: np.ndarray, objects: np.ndarray) -> Net:
    rest = f"multibox_loss_param {{ num_classes: {conf.shape[-1]} code_type: CENTER_SIZE {options} }}"
    values = {
        "loc": loc.reshape(len(loc), -1),
        "conf": conf.reshape(len(conf), -1),
        "prior": np.stack([priors.reshape(-1), np.tile(VARIANCE, len(priors))])[None],
        "truth": np.reshape(objects, (1, 1, -1, 8)),
    }
    text = layer("y", "MultiBoxLoss", "loc conf prior truth", rest=rest)
    built = net(inputs(**{name: value.shape for name, value in values.items()}), text)
    for name, value in values.items():
        built.blobs[name].data[...] = value
    return built


@pytest.mark.parametrize("mining", [True, False])
@pytest.mark.parametrize("every", [True, False])
def test_the_loss_by_hand(mining: bool, every: bool, rng: np.random.Generator) -> None:
    priors = random_boxes(rng, COUNT)
    loc, conf = rng.standard_normal((3, COUNT, 4)), rng.standard_normal((3, COUNT, CLASSES))
    things = random_boxes(rng, 4)
    objects = [[image, label, 0, *box, 0] for (image, label), box in
               zip([(0, 1), (0, 2), (2, 1), (2, 1)], things, strict=True)]  # fmt: skip
    options = (
        f"mining_type: {'MAX_NEGATIVE' if mining else 'NONE'} "
        f"match_type: {'PER_PREDICTION' if every else 'BIPARTITE'} neg_overlap: 0.4"
    )
    built = multibox(options, loc, conf, priors, np.array(objects))
    expected = reference(loc, conf, priors, objects, mining=mining, every=every, neg_overlap=0.4)
    assert built.forward() == pytest.approx(expected, rel=1e-12)


def test_without_objects_nothing_is_learned_when_mining(rng: np.random.Generator) -> None:
    loc, conf = rng.standard_normal((1, 5, 4)), rng.standard_normal((1, 5, 2))
    built = multibox("", loc, conf, random_boxes(rng, 5), np.full((1, 8), -1.0))
    assert built.forward() == 0
    built.backward()
    assert not built.blobs["conf"].diff.any()
    built = multibox("mining_type: NONE", loc, conf, random_boxes(rng, 5), np.full((1, 8), -1.0))
    logs = conf - np.log(np.exp(conf).sum(-1, keepdims=True))
    assert built.forward() == pytest.approx(-logs[..., 0].sum())


def test_the_divisors(rng: np.random.Generator) -> None:
    priors, loc, conf = random_boxes(rng, 6), rng.standard_normal((2, 6, 4)), rng.standard_normal((2, 6, 2))
    objects = np.array([[0, 1, 0, *priors[0], 0], [0, 1, 0, *priors[3], 0], [1, 1, 0, *priors[2], 0]])
    sums = {}
    for mode in ("VALID", "FULL", "BATCH_SIZE", "NONE"):
        built = multibox("match_type: BIPARTITE", loc, conf, priors, objects)
        built.layer_dict["y"].message.mutable("loss_param").normalization = mode
        sums[mode] = built.forward()
    assert sums["VALID"] * 3 == pytest.approx(sums["NONE"])
    assert sums["FULL"] * 12 == pytest.approx(sums["NONE"])
    assert sums["BATCH_SIZE"] * 2 == pytest.approx(sums["NONE"])


def test_difficult_objects_and_propagate_down(rng: np.random.Generator) -> None:
    priors, loc, conf = random_boxes(rng, 6), rng.standard_normal((1, 6, 4)), rng.standard_normal((1, 6, 2))
    objects = np.array([[0, 1, 0, *priors[0], 0], [0, 1, 0, *priors[3], 1]])
    left_out = multibox("use_difficult_gt: false", loc, conf, priors, objects).forward()
    assert left_out == pytest.approx(multibox("", loc, conf, priors, objects[:1]).forward())
    both = multibox("", loc, conf, priors, objects)
    parts = []
    for flags in ([True, False, False, False], [False, True, False, False]):
        both.layer_dict["y"].message.propagate_down = flags
        parts.append(both.forward())
    both.layer_dict["y"].message.propagate_down = []
    assert both.forward() == pytest.approx(sum(parts))


def test_hard_examples_keep_the_worst_boxes(rng: np.random.Generator) -> None:
    priors, loc, conf = random_boxes(rng, 8), rng.standard_normal((1, 8, 4)), rng.standard_normal((1, 8, 2))
    objects = np.array([[0, 1, 0, *priors[0], 0]])
    options = "mining_type: HARD_EXAMPLE sample_size: 3 match_type: BIPARTITE loc_weight: 0"
    logs = conf[0] - np.log(np.exp(conf[0]).sum(-1, keepdims=True))
    places = np.abs(loc[0, 0])
    first = np.where(places < 1, places**2 / 2, places - 0.5).sum()
    losses = np.array([first - logs[0, 1], *-logs[1:, 0]])
    worst = np.argsort(-losses)[:3]
    expected = sum(losses[i] if i else losses[0] - first for i in worst)
    assert multibox(options, loc, conf, priors, objects).forward() == pytest.approx(expected)


def test_boxes_apart_when_mining_with_suppression(rng: np.random.Generator) -> None:
    """Three boxes in one place: only the worst of them counts as background."""
    box = np.array([0.5, 0.5, 0.9, 0.9])
    priors = np.stack([np.array([0.0, 0, 0.3, 0.3]), box, box + 0.001, box - 0.001])
    conf = np.array([[[0.0, 0], [0, 3], [0, 5], [0, 1]]])
    objects = np.array([[0, 1, 0, 0, 0, 0.3, 0.3, 0]])
    options = "nms_param { nms_threshold: 0.5 top_k: 50 } use_prior_for_nms: true loc_weight: 0"
    expected = math.log(2) + math.log(1 + math.exp(5))
    assert multibox(options, np.zeros((1, 4, 4)), conf, priors, objects).forward() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "row", "reason"),
    [
        ("", [0, 0, 0, 0.1, 0.1, 0.4, 0.4, 0], "class of the background"),
        ("", [0, 5, 0, 0.1, 0.1, 0.4, 0.4, 0], "not one of the 2 classes"),
        ("share_location: false", [0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0], "share_location"),
        ("background_label_id: 7", [0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0], "none of the 2 classes"),
        ("do_neg_mining: false", [0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0], "contradicts"),
    ],
)
def test_what_is_refused(options: str, row: list[float], reason: str, rng: np.random.Generator) -> None:
    priors = np.array([[0.1, 0.1, 0.4, 0.4], [0.05, 0.1, 0.3, 0.4]])
    with pytest.raises(UndertowError, match=reason):
        multibox(options + " overlap_threshold: 0", np.zeros((1, 2, 4)), np.zeros((1, 2, 2)), priors,
                 np.array([row])).forward()  # fmt: skip


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
@pytest.mark.parametrize("in_target", [True, False])
def test_codes_are_inverse(code: str, in_target: bool, rng: np.random.Generator) -> None:
    boxes, priors, variance = random_boxes(rng, 9), random_boxes(rng, 9), rng.uniform(0.1, 0.3, (9, 4))
    offsets = encode(boxes, priors, variance, code, in_target)
    np.testing.assert_allclose(decode(offsets, priors, variance, code, in_target), boxes, atol=1e-12)


def test_matching_leaves_out_boxes_that_cross_the_border() -> None:
    boxes = np.array([[-0.1, 0, 0.5, 0.5], [0.1, 0.1, 0.6, 0.6]])
    truth = np.array([[0.0, 0, 0.5, 0.5]])
    assert match(truth, boxes, 0.3).truth.tolist() == [0, 0]
    assert match(truth, boxes, 0.3, inside=True).truth.tolist() == [-2, 0]
    assert match(truth, boxes, 0.9).truth.tolist() == [0, -1]


def test_suppression_and_windows() -> None:
    boxes = np.array([[0.0, 0, 0.4, 0.4], [0.02, 0, 0.42, 0.4], [0.5, 0.5, 0.9, 0.9], [0.0, 0, 0.4, 0.41]])
    assert suppress(boxes, np.array([0.5, 0.9, 0.3, 0.6]), 0.5) == [1, 2]
    assert suppress(boxes, np.array([0.5, 0.9, 0.3, 0.6]), 0.5, top_k=1) == [1]
    assert overlaps(boxes[0], boxes[1]) == pytest.approx(iou(boxes[0], boxes[1]))
    window = np.array([0.2, 0.2, 0.6, 0.6])
    moved, stay = project(boxes[[0, 2]], window)
    np.testing.assert_allclose(moved, [[0, 0, 0.5, 0.5], [0.75, 0.75, 1, 1]])
    assert stay.all()
    assert coverage(boxes[0], window) == pytest.approx(0.25)


def evaluate(found: list[list[float]], truth: list[list[float]], rest: str = "") -> np.ndarray:
    built = net(
        inputs(d=(1, 1, len(found), 7), t=(1, 1, len(truth), 8)),
        layer("y", "DetectionEvaluate", "d t", rest=f"detection_evaluate_param {{ num_classes: 3 {rest} }}"),
        phase="TEST",
        force=False,
    )
    built.blobs["d"].data[...], built.blobs["t"].data[...] = [[found]], [[truth]]
    built.forward()
    return built.blobs["y"].data[0, 0]


def test_detections_judged() -> None:
    truth = [[0, 1, 0, 0.1, 0.1, 0.5, 0.5, 0], [0, 1, 1, 0.6, 0.6, 0.9, 0.9, 1], [1, 2, 0, 0, 0, 0.3, 0.3, 0]]
    found = [
        [0, 1, 0.6, 0.1, 0.1, 0.5, 0.5],
        [0, 1, 0.9, 0.1, 0.1, 0.5, 0.45],
        [0, 1, 0.5, 0.6, 0.6, 0.9, 0.9],
        [0, 2, 0.8, 0.6, 0.6, 0.9, 0.9],
        [1, 2, 0.7, 0.5, 0.5, 0.9, 0.9],
    ]
    rows = evaluate(found, truth)
    counts = [[-1, 1, 2, -1, -1], [-1, 2, 1, -1, -1]]
    assert rows[:2].tolist() == counts
    expected = [[0, 1, 0.9, 1, 0], [0, 1, 0.6, 0, 1], [0, 1, 0.5, 1, 0], [0, 2, 0.8, 0, 1], [1, 2, 0.7, 0, 1]]
    np.testing.assert_allclose(rows[2:], expected)
    easy = evaluate(found, truth, "evaluate_difficult_gt: false")
    assert easy[0].tolist() == [-1, 1, 1, -1, -1]
    np.testing.assert_allclose(easy[4], [0, 1, 0.5, 0, 0])
    assert evaluate([[0, -1, -1, -1, -1, -1, -1]], truth).tolist() == counts


def test_regions_by_hand(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 8, 6, 7))
    regions = np.array([[0, 0, 0, 9, 7], [1, 4, 3, 5, 3], [0, 10, 8, 40, 40], [1, 60, 60, 70, 70]], float)
    largest = net(inputs(x=x.shape, r=regions.shape),
                  layer("y", "ROIPooling", "x r", rest="propagate_down: true propagate_down: false "
                        "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }"))  # fmt: skip
    mean = net(inputs(x=x.shape, r=regions.shape),
               layer("y", "PSROIPooling", "x r", rest="propagate_down: true propagate_down: false "
                     "psroi_pooling_param { output_dim: 2 group_size: 2 spatial_scale: 0.5 }"))  # fmt: skip
    for built in (largest, mean):
        built.blobs["x"].data[...], built.blobs["r"].data[...] = x, regions
        built.forward()
    for r, (image, *corners) in enumerate(regions):
        left, top, right, bottom = (math.floor(c * 0.5 + 0.5) for c in corners)
        h, w = max(bottom - top + 1, 1) / 2, max(right - left + 1, 1) / 3
        for i, j in product(range(2), range(3)):
            rows = range(max(0, math.floor(i * h) + top), min(6, math.ceil((i + 1) * h) + top))
            columns = range(max(0, math.floor(j * w) + left), min(7, math.ceil((j + 1) * w) + left))
            for c in range(8):
                values = [x[int(image), c, row, column] for row, column in product(rows, columns)]
                assert largest.blobs["y"].data[r, c, i, j] == (max(values) if values else 0)
        start = [corners[0] * 0.5, corners[1] * 0.5]
        size = [max((corners[k + 2] + 1 - corners[k]) * 0.5, 0.1) / 2 for k in range(2)]
        for i, j, c in product(range(2), range(2), range(2)):
            rows = range(math.floor(i * size[1] + start[1]), min(6, math.ceil((i + 1) * size[1] + start[1])))
            columns = range(math.floor(j * size[0] + start[0]), min(7, math.ceil((j + 1) * size[0] + start[0])))
            values = [x[int(image), (c * 2 + i) * 2 + j, row, column] for row, column in product(rows, columns)]
            found = mean.blobs["y"].data[r, c, i, j]
            assert found == pytest.approx(sum(values) / len(values) if values else 0, abs=1e-12)


def test_smooth_l1_with_weights(rng: np.random.Generator) -> None:
    x, t, inner, outer = (rng.standard_normal((3, 2, 2, 1)) * 2 for _ in range(4))
    built = net(inputs(x=x.shape, t=t.shape, a=x.shape, b=x.shape),
                layer("y", "SmoothL1Loss", "x t a b", rest="smooth_l1_loss_param { sigma: 2 }"))  # fmt: skip
    for name, value in zip("xtab", (x, t, inner, outer), strict=True):
        built.blobs[name].data[...] = value
    d = np.abs(inner * (x - t))
    expected = (outer * np.where(d < 0.25, 2 * d**2, d - 0.125)).sum() / 3
    assert built.forward() == pytest.approx(expected)


def test_a_region_outside_the_batch() -> None:
    built = net(inputs(x=(1, 1, 4, 4), r=(1, 5)),
                layer("y", "ROIPooling", "x r", rest="roi_pooling_param { pooled_h: 1 pooled_w: 1 }"))  # fmt: skip
    built.blobs["r"].data[...] = [[3, 0, 0, 1, 1]]
    with pytest.raises(UndertowError, match=r"image 3, the batch has 1"):
        built.forward()
    for values, reason in (([np.nan, 0, 0, 1, 1], "image -1"), ([0, 0, np.inf, 1, 1], "not a number")):
        built.blobs["r"].data[...] = [values]
        with pytest.raises(UndertowError, match=reason):
            built.forward()
    built.blobs["r"].data[...] = [[0, -1e30, -1e30, 1e30, 1e30]]
    built.blobs["x"].data[0, 0, 2, 2] = 3
    built.forward()
    assert built.blobs["y"].data.item() == 3


def test_sizes_of_pictures_decide_in_pixels(tmp_path: Path) -> None:
    """In a picture of 10 x 20 pixels corners are pixels that belong to the box: 9 wide is 10, 11 wide 12."""
    (tmp_path / "sizes.txt").write_text("a 10 20\n")
    truth, found = [[0, 1, 0, 0, 0, 0.45, 0.9, 0]], [[0, 1, 0.5, 0, 0, 0.55, 0.9]]
    overlap = (10 * 10) / (12 * 10)  # 9 / 11 without the pixel that belongs to both ends
    rest = f'name_size_file: "{tmp_path}/sizes.txt" overlap_threshold: '
    assert evaluate(found, truth, rest + f"{overlap - 0.001}")[2, 3:].tolist() == [1, 0]
    assert evaluate(found, truth, rest + f"{overlap + 0.001}")[2, 3:].tolist() == [0, 1]
    assert evaluate(found, truth, f"overlap_threshold: {9 / 11 + 0.001}")[2, 3:].tolist() == [0, 1]
    with pytest.raises(UndertowError, match="WARP only"):
        evaluate(found, truth, "resize_param { resize_mode: FIT_SMALL_SIZE height: 3 width: 3 }")
    (tmp_path / "sizes.txt").write_text("a 10\n")
    with pytest.raises(UndertowError, match=r"sizes\.txt:1: a line is `name height width`"):
        evaluate(found, truth, rest + "0.5")


def test_dropout_scaled_when_testing() -> None:
    """In training values stay or go; in a test all are multiplied by what is kept."""
    options = "dropout_param { dropout_ratio: 0.25 scale_train: false }"
    for phase, expected in (("TRAIN", {0.0, 1.0}), ("TEST", {0.75})):
        built = net(inputs(x=(50, 4)), layer("y", "Dropout", "x", rest=options), phase=phase)
        built.blobs["x"].data[...] = 1
        built.forward()
        assert set(built.blobs["y"].data.reshape(-1).tolist()) == expected


class Proposals(caffe.Layer):
    """Regions and weights from scores, as layers of Faster R-CNN make them; nothing goes back."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        assert self.param_str == "'feat_stride': 16"

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape(2, 5)
        top[1].reshape(2, 8)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = [[0, 0, 0, 40, 40], [0, 16, 16, 100, 100]]
        top[1].data[...] = 1

    def backward(self, top, propagate_down, bottom):  # type: ignore[no-untyped-def]
        bottom[0].diff[...] = 0


def test_regions_of_a_layer_above_parameters() -> None:
    """As in Faster R-CNN's train.prototxt: rois and weights come from a layer that needs a backward pass itself."""
    conv = 'convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }'
    fc = 'inner_product_param { num_output: 8 weight_filler { type: "xavier" } }'
    proposals = "python_param { module: 'rpn.proposal_layer' layer: 'ProposalLayer' param_str: \"'feat_stride': 16\" }"
    built = net(
        inputs(x=(1, 3, 8, 8), t=(2, 8)),
        layer("c", "Convolution", "x", rest=conv),
        layer("p", "Python", "c", "rois w", proposals),
        layer("r", "ROIPooling", "c rois", rest="roi_pooling_param { pooled_w: 2 pooled_h: 2 spatial_scale: 0.0625 }"),
        layer("fc", "InnerProduct", "r", rest=fc),
        layer("drop", "Dropout", "fc", "fc", "dropout_param { dropout_ratio: 0.5 scale_train: false }"),
        layer("loss", "SmoothL1Loss", "fc t w w", rest="loss_weight: 1 smooth_l1_loss_param { sigma: 3.0 }"),
        force=False,
        python=lambda module, name: Proposals,
    )
    built.blobs["x"].data[...] = np.arange(192).reshape(1, 3, 8, 8) / 100
    built.blobs["t"].data[...] = 9
    assert built.forward() > 0
    built.clear_param_diffs()
    built.backward()
    assert built.params["c"][0].diff.any()

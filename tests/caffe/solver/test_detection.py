"""A small SSD: made data, its own loss, samplers, evaluation; it learns to find squares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from undertow.caffe.data import datum_from_pixels, new_database
from undertow.caffe.net import Net
from undertow.caffe.proto import new_message, parse_text
from undertow.caffe.scores import MeanScores, average_precision
from undertow.caffe.solver import Solver
from undertow.errors import UndertowError


def pictures_with_squares(path: Path, count: int, seed: int) -> Path:
    """Noise with a blue square of class 1 or a red one of class 2."""
    rng = np.random.default_rng(seed)
    with new_database(path, "lmdb") as put:
        for index in range(count):
            picture = rng.integers(0, 90, (3, 32, 32)).astype(np.uint8)
            label, side = int(rng.integers(1, 3)), int(rng.integers(8, 15))
            top, left = rng.integers(0, 32 - side, 2)
            picture[0 if label == 1 else 2, top : top + side, left : left + side] = 230
            record = new_message("AnnotatedDatum", datum=datum_from_pixels(picture), type="BBOX")
            group = record.add("annotation_group")
            group.group_label = label
            box = group.add("annotation").mutable("bbox")
            box.xmin, box.ymin, box.xmax, box.ymax = (v / 32 for v in (left, top, left + side, top + side))
            put(b"%05d" % index, record.to_bytes())
    return path


def head(source: str, outputs: int) -> str:
    """Predictions of one kind, brought to (n, boxes * values)."""
    return f"""
layer {{ name: "{source}" type: "Convolution" bottom: "c3" top: "{source}"
        convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "{source}_perm" type: "Permute" bottom: "{source}" top: "{source}_perm"
        permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
layer {{ name: "{source}_flat" type: "Flatten" bottom: "{source}_perm" top: "{source}_flat" }}"""


def conv(name: str, bottom: str, outputs: int, stride: int) -> str:
    return f"""
layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ num_output: {outputs}
        kernel_size: 3 pad: 1 stride: {stride} weight_filler {{ type: "msra" }} }} }}
layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}"""


SAMPLERS = """annotated_data_param { batch_sampler { max_sample: 1 max_trials: 1 }
    batch_sampler { sampler { min_scale: 0.7 max_scale: 1 } sample_constraint { min_object_coverage: 0.9 }
                    max_sample: 1 max_trials: 20 } }"""


def data(source: Path, phase: str, extra: str) -> str:
    return f"""
layer {{ name: "data" type: "AnnotatedData" top: "data" top: "label" include {{ phase: {phase} }}
        transform_param {{ mean_value: 45 scale: 0.02 resize_param {{ resize_mode: WARP height: 32 width: 32 }}
                           emit_constraint {{ emit_type: CENTER }} {"mirror: true" if phase == "TRAIN" else ""} }}
        data_param {{ source: "{source}" backend: LMDB batch_size: 16 }} {extra} }}"""


def small_ssd(folder: Path) -> str:
    train = pictures_with_squares(folder / "train", 160, 1)
    held_out = pictures_with_squares(folder / "test", 32, 2)
    return "".join((
        data(train, "TRAIN", SAMPLERS), data(held_out, "TEST", "annotated_data_param { anno_type: BBOX }"),
        conv("c1", "data", 12, 2), conv("c2", "c1", 16, 2), conv("c3", "c2", 24, 1), head("loc", 8), head("conf", 6),
        """
layer { name: "prior" type: "PriorBox" bottom: "c3" bottom: "data" top: "prior" prior_box_param {
        min_size: 9 min_size: 13 clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "loss" type: "MultiBoxLoss" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior" bottom: "label"
        top: "loss" include { phase: TRAIN } propagate_down: true propagate_down: true propagate_down: false
        propagate_down: false loss_param { normalization: VALID }
        multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE overlap_threshold: 0.5 neg_overlap: 0.5
                              mining_type: MAX_NEGATIVE neg_pos_ratio: 3 } }
layer { name: "scores" type: "Reshape" bottom: "conf_flat" top: "scores" include { phase: TEST }
        reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }
layer { name: "prob" type: "Softmax" bottom: "scores" top: "prob" softmax_param { axis: 2 } include { phase: TEST } }
layer { name: "prob_flat" type: "Flatten" bottom: "prob" top: "prob_flat" include { phase: TEST } }
layer { name: "found" type: "DetectionOutput" bottom: "loc_flat" bottom: "prob_flat" bottom: "prior" top: "found"
        include { phase: TEST } detection_output_param { num_classes: 3 code_type: CENTER_SIZE keep_top_k: 20
        confidence_threshold: 0.05 nms_param { nms_threshold: 0.45 top_k: 100 } } }
layer { name: "eval" type: "DetectionEvaluate" bottom: "found" bottom: "label" top: "eval" include { phase: TEST }
        detection_evaluate_param { num_classes: 3 overlap_threshold: 0.5 } }""",
    ))  # fmt: skip


@pytest.mark.filterwarnings("ignore:nothing was detected")
def test_a_small_ssd_learns(tmp_path: Path) -> None:
    text = f"""net_param {{ {small_ssd(tmp_path)} }} type: "Adam" base_lr: 0.006 lr_policy: "fixed" momentum: 0.9
        momentum2: 0.999 test_iter: 2 test_interval: 1000 test_initialization: false eval_type: "detection"
        ap_version: "11point" random_seed: 3"""
    solver = Solver(parse_text(text, "SolverParameter"))
    (name, _, before), *more = solver.test(0)
    assert (name, more) == ("eval", [])
    assert before < 0.2
    solver.step(150)
    assert solver.loss.value < 6
    assert solver.test(0)[0][2] > 0.6
    solver.close()


class Growing(caffe.Layer):
    """One number more in every pass."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        self.count = 0

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        self.count += 1
        top[0].reshape(self.count)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = 1


def test_outputs_that_change_in_number_have_no_means() -> None:
    text = 'layer { name: "p" type: "Python" top: "y" python_param { module: "m" layer: "L" } }'
    net, scores = Net(parse_text(text), "TEST", python=lambda module, name: Growing), MeanScores()
    net.forward()
    scores.add(net)
    net.forward()
    with pytest.raises(UndertowError, match='eval_type: "detection"'):
        scores.add(net)


def test_average_precision_by_hand() -> None:
    """Of four things three are found: right, wrong, right, right."""
    scores, right = np.array([0.6, 0.9, 0.7, 0.8]), np.array([1.0, 1, 1, 0])
    # by score: 1, 0, 1, 1; precision 1, 1/2, 2/3, 3/4 at recall 1/4, 1/4, 2/4, 3/4
    assert average_precision(scores, right, 4) == pytest.approx((1 + 2 / 3 + 3 / 4) / 4)
    assert average_precision(scores, right, 4, "MaxIntegral") == pytest.approx((1 + 3 / 4 + 3 / 4) / 4)
    assert average_precision(scores, right, 4, "11point") == pytest.approx((3 * 1 + 5 * 3 / 4) / 11)
    assert average_precision(scores[:0], right[:0], 4) == 0


def test_unknown_kinds_of_evaluation() -> None:
    for line, reason in (('eval_type: "segmentation"', "eval_type"),
                         ('eval_type: "detection" ap_version: "VOC"', "ap_version 'VOC'")):  # fmt: skip
        text = f'net_param {{ layer {{ name: "a" type: "DummyData" top: "a" }} }} lr_policy: "fixed" base_lr: 1 {line}'
        with pytest.raises(UndertowError, match=reason):
            Solver(parse_text(text, "SolverParameter"))


@pytest.mark.reference
def test_a_detectors_own_training_net(reference_data: Path, tmp_path: Path) -> None:
    """YuFaceDetect's train.prototxt as it is, but for the name of the database and the size of batches."""
    text = (reference_data / "data/caffe/yufacedetect-v1/yufacedetectnet-open-v1.train.prototxt").read_text()
    source = one_class(tmp_path / "db")
    text = text.replace("../FACE/lmdb/FACE_trainval_lmdb/", str(source)).replace("batch_size: 16", "batch_size: 2")
    param = new_message("SolverParameter", net_param=parse_text(text, "NetParameter"), base_lr=0.001, momentum=0.9,
                        lr_policy="fixed", type="SGD", random_seed=1)  # fmt: skip
    solver = Solver(param)
    assert solver.net.blobs["data"].shape == (2, 3, 320, 320)
    losses = []
    for _ in range(6):
        solver.step(1)
        losses.append(solver.loss.value)
    assert np.isfinite(losses).all()
    assert min(losses[3:]) < losses[0]
    solver.close()


def one_class(path: Path) -> Path:
    """Pictures with one large bright square each, in a box of class 1."""
    with new_database(path, "lmdb") as put:
        for index in range(4):
            picture = np.zeros((3, 80, 80), np.uint8)
            picture[:, 20:60, 10 + index : 50 + index] = 200
            record = new_message("AnnotatedDatum", datum=datum_from_pixels(picture), type="BBOX")
            group = record.add("annotation_group")
            group.group_label = 1
            box = group.add("annotation").mutable("bbox")
            box.xmin, box.ymin, box.xmax, box.ymax = (10 + index) / 80, 0.25, (50 + index) / 80, 0.75
            put(b"%d" % index, record.to_bytes())
    return path

"""Detection, region and iseg: derivatives in `exact`, what is asked of which output, and boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.darknet.layers.small import Section, build, check_network, conv, net, samples
from undertow.core.gradcheck import GradientCheckError
from undertow.darknet.detection.boxes import box_iou
from undertow.darknet.detection.detector import detect, fit_picture
from undertow.darknet.dialect import DARKNET_CPU, DARKNET_GPU
from undertow.darknet.files.cfg import parse_cfg
from undertow.darknet.layers.region_assignment import RegionAssignment
from undertow.darknet.network import Network
from undertow.data.resize import resize_image
from undertow.errors import FormatError, UndertowError

TREE = "animal -1\nvehicle -1\ncat 0\ndog 0\nbird 0\ncar 1\ntruck 1\n"


def detection(**values: Any) -> list[Section]:
    rule = {"classes": 3, "coords": 4, "side": 2, "num": 2, "coord_scale": 5, "noobject_scale": 0.5, **values}
    return [net(), conv(2), ("connected", {"output": 4 * (3 + 2 * 5), "activation": "linear"}), ("detection", rule)]


def detection_truth() -> np.ndarray:
    truth = np.zeros((2, 4, 8))
    truth[0, 1] = (1, 0, 1, 0, 0.3, 0.6, 0.4, 0.3)
    truth[0, 2] = (1, 1, 0, 0, 0.7, 0.1, 0.2, 0.25)
    truth[1, 3] = (1, 0, 0, 1, 0.5, 0.5, 0.9, 0.6)
    return truth.reshape(2, -1)


def region(classes: int = 3, coords: int = 4, **values: Any) -> list[Section]:
    anchors = "0.6,0.8,1.5,1.2"
    rule = {
        "anchors": anchors,
        "num": 2,
        "classes": classes,
        "coords": coords,
        "thresh": 0.3,
        "bias_match": 1,
        **values,
    }
    return [net(), conv(2 * (coords + 1 + classes), activation="linear"), ("region", rule)]


def region_truth(coords: int = 4) -> np.ndarray:
    truth = np.zeros((2, 30, coords + 1))
    boxes = [(0.3, 0.4, 0.25, 0.3), (0.8, 0.7, 0.4, 0.5), (0.6, 0.1, 0.3, 0.3)]
    for row, box, label in zip(((0, 0), (0, 1), (1, 0)), boxes, (1, 0, 2), strict=True):
        truth[row] = (*box, *(0.2,) * (coords - 4), label)
    return truth.reshape(2, -1)


def trained(sections: list[Section], truth: np.ndarray, *dialect: Any, seen: int = 20000) -> Network:
    network = build(sections, *dialect)
    network.seen = seen
    network.forward(samples(network)[0], truth)
    network.backward()
    return network


@pytest.mark.parametrize("values", [{}, {"softmax": 1}, {"sqrt": 1, "forced": 1}, {"random": 1}])
def test_gradients_of_detection(values: dict[str, Any]) -> None:
    network = build(detection(**values))
    network.layers[1].biases[...] += 1  # sizes above 0, so that boxes overlap
    check_network(network, samples(network)[0], detection_truth())


@pytest.mark.parametrize(
    ("seen", "coords", "values"),
    [
        (20000, 4, {"softmax": 1, "object_scale": 5}),
        (0, 4, {"softmax": 1}),
        (20000, 4, {"class_scale": 2, "bias_match": 0}),
        (20000, 7, {"softmax": 1, "mask_scale": 1.5}),
        (20000, 4, {"softmax": 1, "background": 1, "noobject_scale": 0.5}),
        (20000, 4, {"background": 1}),
    ],
)
def test_gradients_of_region(seen: int, coords: int, values: dict[str, Any]) -> None:
    network = build(region(coords=coords, **values))
    network.seen = seen
    check_network(network, samples(network)[0], region_truth(coords))


@pytest.fixture
def tree(tmp_path: Path) -> str:
    (tmp_path / "a.tree").write_text(TREE)
    return str(tmp_path / "a.tree")


def test_region_with_a_tree(tree: str) -> None:
    """Groups on the way to the class are asked for; a class without a box goes to the box that is surest of it."""
    network = build(region(classes=7, tree=tree))
    network.seen = 20000
    truth = region_truth().reshape(2, 30, 5)
    truth[0, 0, 4], truth[0, 1, 4] = 3, 5
    truth[1] = 0
    truth[1, 0] = (1e6, 1e6, 0, 0, 2)
    images = samples(network)[0]
    check_network(network, images, truth.reshape(2, -1))
    layer = network.layers[1]
    output = layer.output.reshape(2, 2, 12, 5, 6)
    for begin, end in ((5, 7), (7, 10), (10, 12)):
        assert np.allclose(output[:, :, begin:end].sum(2), 1)
    weight = layer._function.assignment.weight
    # The first truth: dog, so its animals and the roots, not the vehicles.
    row, column = int(0.4 * 5), int(0.3 * 6)
    asked = weight[0, :, 5:, row, column].max(0)
    assert asked.tolist() == [1, 1, 1, 1, 1, 0, 0]
    chances = output[1, :, 4] * output[1, :, 5] * output[1, :, 7]
    n, row, column = np.unravel_index(chances.argmax(), chances.shape)
    assert weight[1, n, 5:, row, column].tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert weight[1, :, 5:].sum() == 5
    assert weight[1, :, :4].sum() == 0
    assert weight[1, n, 4, row, column] == 0
    assert layer.statistics.class_count == 3
    assert layer.statistics.count == 2


def test_region_sends_nothing_back_on_the_cpu() -> None:
    for dialect, moved in ((DARKNET_CPU, False), (DARKNET_GPU, True)):
        network = trained(region(softmax=1), region_truth(), dialect)
        assert (np.abs(network.layers[0].delta).max() > 0) == moved
        assert np.abs(network.layers[1].delta).max() > 0
        assert network.cost == pytest.approx((network.layers[1].delta ** 2).sum(), rel=1e-10)


def test_region_on_a_gpu_goes_through_the_logistic() -> None:
    """backward_region_layer_gpu: gradient_array for x, y and objectness, everything else as it is."""
    network = trained(region(softmax=1), region_truth(), DARKNET_GPU)
    head, output = network.layers[1].delta, network.layers[1].output
    expected = head.reshape(2, 2, 8, 5, 6).copy()
    for entry in (0, 1, 4):
        y = output.reshape(expected.shape)[:, :, entry]
        expected[:, :, entry] *= y * (1 - y)
    assert np.allclose(network.layers[0].delta, expected.reshape(head.shape), rtol=1e-10)


def test_rescored_objectness_is_a_constant() -> None:
    network = trained(region(softmax=1, rescore=1), region_truth())
    assignment = network.layers[1]._function.assignment
    row, column = int(0.4 * 5), int(0.3 * 6)
    n = int(assignment.weight[0, :, 0, row, column].argmax())
    output = assignment.output[0, n, :, row, column]
    box = (output[0] + column) / 6, (output[1] + row) / 5
    anchors = network.layers[1].rule.anchors[n]
    found = np.array([*box, np.exp(output[2]) * anchors[0] / 6, np.exp(output[3]) * anchors[1] / 5])
    assert assignment.target[0, n, 4, row, column] == pytest.approx(
        float(box_iou(found, np.array([0.3, 0.4, 0.25, 0.3]))), rel=1e-10
    )
    plain = trained(region(softmax=1), region_truth()).layers[1]._function.assignment
    assert plain.target[0, n, 4, row, column] == 1
    detected = trained(detection(rescore=1), detection_truth()).layers[2]
    assert detected.statistics.iou == pytest.approx(
        float(detected.rule.blocks(detected._function.assignment.target)[1].sum()), rel=1e-10
    )


def test_gradients_of_region_where_the_rescored_target_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is the overlap, and moves with the box: differences of the loss see that, its gradient does not."""
    network = build(region(softmax=1, rescore=1, object_scale=5))
    network.seen = 20000
    images, truth = samples(network)[0], region_truth()
    with pytest.raises(GradientCheckError):
        check_network(network, images, truth)
    ask, held = RegionAssignment.object, dict[tuple[int, ...], float]()

    def ask_for_the_first(self: RegionAssignment, *place_and_overlap: Any) -> None:
        *place, overlap = place_and_overlap
        ask(self, *place, held.setdefault(tuple(place), overlap))

    monkeypatch.setattr(RegionAssignment, "object", ask_for_the_first)
    network.forward(images, truth)
    assert len(held) == 3
    assert all(0 < overlap < 1 for overlap in held.values())
    check_network(network, images, truth)
    assert len(held) == 3


def test_mask_coefficients_are_read_right_in_exact_only() -> None:
    truth = region_truth(7).reshape(2, 30, 8)
    truth[0, 0, 4:7] = (0.1, 0.2, 0.3)
    row, column = int(0.4 * 5), int(0.3 * 6)
    for dialect, expected, scale in (([], [0.1, 0.2, 0.3], 1.5), ([DARKNET_CPU], [0.2, 0.3, 1], 1)):
        network = trained(region(coords=7, softmax=1, mask_scale=1.5), truth.reshape(2, -1), *dialect)
        assignment = network.layers[1]._function.assignment
        n = int(assignment.weight[0, :, 0, row, column].argmax())
        assert np.allclose(assignment.target[0, n, 4:7, row, column], expected, rtol=1e-6)
        assert (assignment.weight[0, n, 4:7, row, column] == scale).all()


def test_random_boxes_answer_at_first_only() -> None:
    """Afterwards the best box answers."""

    def chosen(seen: int, **values: Any) -> list[int]:
        layer = trained(detection(**values), detection_truth(), seen=seen).layers[2]
        weight = layer.rule.blocks(layer._function.assignment.weight)[2][..., 0]
        found: list[int] = weight.argmax(axis=2)[weight.any(axis=2)].tolist()
        return found

    assert 15 < np.sum([chosen(seen, random=1) for seen in range(0, 40, 2)]) < 45
    assert chosen(64000, random=1) == chosen(64000)


def test_lines_as_darknet_prints_them() -> None:
    head = trained(region(softmax=1), region_truth()).layers[1]
    assert head.statistics.line(1).startswith("Region Avg IOU: 0.")
    assert head.statistics.line(1).endswith("count: 3")
    head = trained(detection(), detection_truth()).layers[2]
    assert head.statistics.line(2).startswith("Detection Avg IOU: 0.")
    assert head.statistics.line(2).endswith(", count: 3")


def test_truth_that_makes_no_sense() -> None:
    truth = region_truth()
    truth[0, 4] = 3
    with pytest.raises(UndertowError, match="class 3, the region layer knows 3"):
        trained(region(), truth)
    with pytest.raises(FormatError, match="forced=1"):
        build([net(), ("connected", {"output": 4 * 8}), ("detection", {**detection()[3][1], "num": 1, "forced": 1})])


def instances() -> np.ndarray:
    """Two instances in the first picture, one in the second."""
    truth = np.zeros((2, 90, 31))
    truth[0, 0, :8] = (1, 1, 1, 0, 0, 1, 0, 0)
    truth[0, 1, 0], truth[0, 1, 20:25] = 0, 1
    truth[0, 2:, 0] = truth[1, 1:, 0] = -1
    truth[1, 0, 0], truth[1, 0, 11:17] = 1, 1
    return truth.reshape(2, -1)


def test_gradients_of_iseg() -> None:
    network = build([net(), conv(5, activation="linear"), ("iseg", {"classes": 2, "ids": 3})])
    check_network(network, samples(network)[0], instances())


def test_means_of_iseg_are_constants_in_the_original() -> None:
    sections: list[Section] = [net(), conv(5, activation="linear"), ("iseg", {"classes": 2, "ids": 3})]
    exact, original = trained(sections, instances()), trained(sections, instances(), DARKNET_CPU)
    assert np.array_equal(exact.layers[1].delta, original.layers[1].delta)
    assert np.array_equal(original.layers[0].delta, original.layers[1].delta)
    assert not np.allclose(exact.layers[0].delta, exact.layers[1].delta)
    # In the picture with one instance a mean is pulled as much up as down unless the counts differ.
    embedding = original.layers[1].delta[1, 2:].reshape(3, -1)
    e = original.layers[1].output[1, 2:].reshape(3, -1)
    mean = e[:, 10:16].mean(1, keepdims=True)
    expected = -0.1 * e
    expected[:, 10:16] += 0.1 * np.where(mean - e[:, 10:16] < 0, -1, 1)
    assert np.allclose(embedding, 0.01 * expected, rtol=1e-10)


def test_boxes_of_a_tree(tree: str) -> None:
    network = build(region(classes=7, tree=tree))
    network.predict(samples(network)[0])
    found = network.candidates((60, 50), 0.3)
    head = network.layers[1].head()
    maps = head.output[0].reshape(2, 12, 30)
    assert len(found) == 60
    for place in (0, 17, 41):
        objectness = maps[place // 30, 4, place % 30]
        conditional = maps[place // 30, 5:, place % 30]
        if objectness <= 0.3:
            assert not found.probabilities[place].any()
            continue
        label = network.layers[1].softmax_tree.top_prediction(
            network.layers[1].softmax_tree.predictions(conditional), 0.5
        )
        assert found.probabilities[place].nonzero()[0].tolist() == [label]
        assert found.probabilities[place, label] == pytest.approx(objectness, rel=1e-6)


def test_boxes_of_detection_are_relative_when_asked() -> None:
    network = build(detection(sqrt=1))
    network.predict(samples(network)[0])
    relative, pixels = (network.candidates((60, 50), 0.1, relative=r) for r in (True, False))
    assert np.allclose(relative.boxes * [60, 50, 60, 50], pixels.boxes, rtol=1e-5)
    assert len(relative) == 8


def test_pictures_for_yolov1_are_stretched() -> None:
    network = build(detection(sqrt=1), dtype=np.float32)
    assert not network.letterbox
    assert build(region()).letterbox
    picture = np.random.default_rng(2).random((3, 20, 60), np.float32)
    fitted = fit_picture(network, picture)
    assert fitted.shape == (3, 5, 6)
    assert np.array_equal(fitted, resize_image(picture, 6, 5))
    network.layers[1].biases[...] = 1
    for found in detect(network, picture, 0.2, 0.4):
        assert found.image_size == (60, 20)
        assert 0 <= found.box.x <= 2


@pytest.mark.parametrize(
    "sections",
    [
        [net(), conv(10, activation="linear"), ("region", {**region()[2][1], "classes": 0, "softmax": 1})],
        [net(), ("connected", {"output": 40}), ("detection", {**detection()[3][1], "classes": 0, "softmax": 1})],
        [net(), conv(2), ("iseg", {"classes": 0, "ids": 2})],
        [net(), conv(2), ("iseg", {"classes": 2, "ids": 0})],
    ],
    ids=["region", "detection", "iseg without classes", "iseg without embeddings"],
)
def test_heads_without_classes(sections: list[Section]) -> None:
    network = build(sections)
    truth = np.zeros((2, network.truths)) if sections[-1][0] != "iseg" else np.full((2, network.truths), -1.0)
    network.train_datum(samples(network)[0], truth)
    assert network.cost > 0
    assert np.isfinite(network.predict(samples(network)[0])).all()


def test_detection_needs_boxes_of_four_values() -> None:
    with pytest.raises(FormatError, match="coords=1"):
        build([net(), ("connected", {"output": 4 * 7}), ("detection", {**detection()[3][1], "coords": 1})])


@pytest.mark.filterwarnings("ignore::undertow.errors.UndertowWarning")
@pytest.mark.parametrize(("name", "channels"), [("yolo", 14), ("region", 14)])
def test_anchors_that_an_original_cfg_leaves_out_are_a_half(name: str, channels: int) -> None:
    text = (
        f"[net]\nwidth=8\nheight=8\nchannels=3\n[convolutional]\nfilters={channels}\nsize=1\nactivation=linear\n"
        f"[{name}]\nclasses=2\nnum=2\nanchors=3,4\n"
    )
    layer = Network(parse_cfg(text, original=True)).layers[-1]
    np.testing.assert_array_equal(layer.biases, np.array([3, 4, 0.5, 0.5], np.float32))  # type: ignore[attr-defined]

"""Pictures with boxes: what chance does to both agrees, and SSD's rules are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from undertow.caffe.annosets import AnnosetOptions, convert_annoset
from undertow.caffe.boxes import overlaps
from undertow.caffe.data import datum_from_pixels, new_database
from undertow.caffe.data.annotations import accepts, draw_windows
from undertow.caffe.data.distortion import Distorter, bgr_to_hsv, hsv_to_bgr
from undertow.caffe.data.resizing import Resizer, resize
from undertow.caffe.net import Net
from undertow.caffe.proto import new_message, parse_text
from undertow.errors import UndertowError, UndertowWarning

VOC = """<annotation><size><width>40</width><height>30</height></size>
<object><name>dog</name><difficult>1</difficult>
<bndbox><xmin>4</xmin><ymin>3</ymin><xmax>20</xmax><ymax>15</ymax></bndbox></object>
<object><name>cat</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>40</xmax><ymax>30</ymax></bndbox></object>
<object><name>dog</name><bndbox><xmin>10</xmin><ymin>6</ymin><xmax>30</xmax><ymax>24</ymax></bndbox></object>
</annotation>"""
LABELS = 'item { name: "none" label: 0 } item { name: "cat" label: 1 } item { name: "dog" label: 2 }'


def one_rectangle(path: Path, count: int = 1, shape: tuple[int, int] = (60, 80)) -> Path:
    """A database of black pictures with one white rectangle each, in a box of class 3."""
    rng = np.random.default_rng(0)
    with new_database(path, "lmdb") as put:
        for number in range(count):
            top, left = rng.integers(5, 20, 2)
            bottom, right = rng.integers(30, 50, 2)
            picture = np.zeros((3, *shape), np.uint8)
            picture[:, top:bottom, left:right] = 255
            record = new_message("AnnotatedDatum", datum=datum_from_pixels(picture), type="BBOX")
            group = record.add("annotation_group")
            group.group_label = 3
            place = group.add("annotation").mutable("bbox")
            place.xmin, place.ymin = left / shape[1], top / shape[0]
            place.xmax, place.ymax = right / shape[1], bottom / shape[0]
            put(b"%08d" % number, record.to_bytes())
    return path


def annotated_net(source: Path, transform: str = "", anno: str = "", batch: int = 1, phase: str = "TRAIN") -> Net:
    text = (
        f'layer {{ name: "d" type: "AnnotatedData" top: "data" top: "label" transform_param {{ {transform} }} '
        f'annotated_data_param {{ {anno} }} data_param {{ source: "{source}" backend: LMDB batch_size: {batch} }} }}'
    )
    return Net(parse_text(text, "NetParameter"), phase, seed=4)


WARP = "resize_param { resize_mode: WARP height: 90 width: 70 interp_mode: NEAREST }"
EVERYTHING = (
    f"{WARP} mirror: true expand_param {{ prob: 0.5 max_expand_ratio: 3 }} emit_constraint {{ emit_type: CENTER }}"
)
SAMPLERS = """batch_sampler { max_sample: 1 max_trials: 1 }
batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
                sample_constraint { min_jaccard_overlap: 0.3 } max_sample: 1 max_trials: 50 }"""


@pytest.mark.parametrize(
    ("transform", "anno"),
    [
        ("", ""),
        (WARP, ""),
        ("mirror: true crop_size: 50", ""),
        ("crop_h: 50 crop_w: 70", ""),
        ("resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 60 width: 120 interp_mode: NEAREST }", ""),
        ("resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 90 width: 60 interp_mode: NEAREST }", ""),
        ("resize_param { resize_mode: FIT_SMALL_SIZE height: 90 width: 90 interp_mode: NEAREST }", ""),
        (EVERYTHING, ""),
        (EVERYTHING, SAMPLERS),
    ],
)
def test_the_box_stays_around_its_object(transform: str, anno: str, tmp_path: Path) -> None:
    net = annotated_net(one_rectangle(tmp_path / "db", 4), transform, anno)
    seen = 0
    for _ in range(40):
        net.forward()
        picture, rows = net.blobs["data"].data[0, 0], net.blobs["label"].data[0, 0]
        if rows[0, 0] < 0:
            continue
        seen += 1
        assert rows.shape == (1, 8)
        assert rows[0, [0, 1, 2, 7]].tolist() == [0, 3, 0, 0]
        ys, xs = np.nonzero(picture > 128)
        height, width = picture.shape
        painted = np.array([xs.min() / width, ys.min() / height, (xs.max() + 1) / width, (ys.max() + 1) / height])
        np.testing.assert_allclose(rows[0, 3:7], painted, atol=0.06)
    assert seen > 25
    net.layers[0].close()


@pytest.mark.parametrize(("mode", "factors"), [("FIT_SMALL_SIZE", [2, 1.6, 2, 1.6]), ("WARP", [1, 1, 1, 1])])
def test_boxes_in_units_of_ones_own(mode: str, factors: list[float], tmp_path: Path) -> None:
    """A picture of 60 x 80 becomes 90 x 120, of which a crop of 80 x 80 is seen, told in units of 50 x 40."""
    source = one_rectangle(tmp_path / "db")
    text = f"crop_size: 80 resize_param {{ resize_mode: {mode} height: 90 width: 90 interp_mode: NEAREST"
    found = []
    for units in ("", "height_scale: 50 width_scale: 40"):
        net = annotated_net(source, f"{text} {units} }}", phase="TEST")
        net.forward()
        found.append(net.blobs["label"].data[0, 0, 0, 3:7].copy())
        net.layers[0].close()
    np.testing.assert_allclose(found[1], found[0] * factors, rtol=1e-5)


def test_a_unit_larger_than_the_crop(tmp_path: Path) -> None:
    resize = "resize_mode: FIT_SMALL_SIZE height: 90 width: 90 height_scale: 81 width_scale: 9"
    text = f"crop_size: 80 resize_param {{ {resize} }}"
    with pytest.raises(UndertowError, match=r"the crop of 80 x 80 is smaller than height_scale and width_scale"):
        annotated_net(one_rectangle(tmp_path / "db"), text).forward()


def test_a_batch_lists_all_objects_and_resumes_exactly(tmp_path: Path) -> None:
    net = annotated_net(one_rectangle(tmp_path / "db", 6), EVERYTHING, SAMPLERS, batch=4)
    for _ in range(3):
        net.forward()
    position = net.layers[0].data_state()
    net.forward()
    expected = net.blobs["data"].data.copy(), net.blobs["label"].data.copy()
    assert net.blobs["data"].shape == (4, 3, 90, 70)
    assert set(expected[1][0, 0, :, 0]) <= {0, 1, 2, 3}
    net.layers[0].load_data_state(position)
    net.forward()
    assert np.array_equal(net.blobs["data"].data, expected[0])
    assert np.array_equal(net.blobs["label"].data, expected[1])
    net.layers[0].close()


def test_a_canvas_is_filled_with_the_mean(tmp_path: Path) -> None:
    transform = "expand_param { prob: 1 max_expand_ratio: 4 } mean_value: 104 mean_value: 117 mean_value: 123 " + WARP
    net = annotated_net(one_rectangle(tmp_path / "db"), transform)
    net.forward()
    values = net.blobs["data"].data[0]
    assert {tuple(v) for v in np.unique(values.reshape(3, -1), axis=1).T} == {
        (0, 0, 0), (-104, -117, -123), (151, 138, 132)
    }  # fmt: skip
    net.layers[0].close()


def test_windows_follow_their_rules(rng: np.random.Generator) -> None:
    boxes = np.array([[0.2, 0.2, 0.5, 0.6], [0.6, 0.1, 0.9, 0.4]])
    text = f"{SAMPLERS} batch_sampler {{ sampler {{ min_scale: 0.2 max_scale: 0.9 }} sample_constraint {{ min_object_coverage: 0.9 }} max_sample: 3 }}"  # noqa: E501
    samplers = parse_text(text, "AnnotatedDataParameter").batch_sampler
    for _ in range(30):
        windows = draw_windows(boxes, samplers, rng)
        assert windows[0].tolist() == [0, 0, 1, 1]
        for window in windows:
            assert (window >= 0).all()
            assert (window <= 1 + 1e-12).all()
        if len(windows) > 1:
            assert accepts(windows[1], boxes, samplers[1].sample_constraint) or accepts(
                windows[1], boxes, samplers[2].sample_constraint
            )
    rule = parse_text("sample_constraint { min_jaccard_overlap: 0.3 }", "BatchSampler").sample_constraint
    window = np.array([0.1, 0.1, 0.6, 0.6])
    assert accepts(window, boxes, rule) == (overlaps(window, boxes).max() >= 0.3)
    assert not accepts(np.array([0, 0, 0.1, 0.1]), boxes, rule)


@pytest.mark.parametrize("kind", ["LINEAR", "NEAREST", "AREA", "CUBIC", "LANCZOS4"])
@pytest.mark.parametrize("size", [(30, 30), (60, 70), (20, 70), (10, 13)])
def test_sizes_and_colours_are_opencvs(kind: str, size: tuple[int, int], rng: np.random.Generator) -> None:
    cv2 = pytest.importorskip("cv2")
    picture = rng.integers(0, 256, (3, 40, 53)).astype(np.uint8)
    rows = np.ascontiguousarray(picture.transpose(1, 2, 0))
    theirs = cv2.resize(rows, size[::-1], interpolation=getattr(cv2, f"INTER_{kind}")).transpose(2, 0, 1)
    assert np.abs(resize(picture, *size, kind).astype(int) - theirs).max() <= (kind in ("AREA", "LANCZOS4"))
    hsv = cv2.cvtColor(rows, cv2.COLOR_BGR2HSV).transpose(2, 0, 1)
    assert np.abs(bgr_to_hsv(picture).astype(int) - hsv).max() <= 1
    hsv[0] += 20  # beyond the 180 steps there are
    back = cv2.cvtColor(np.ascontiguousarray(hsv.transpose(1, 2, 0)), cv2.COLOR_HSV2BGR).transpose(2, 0, 1)
    assert np.abs(hsv_to_bgr(hsv).astype(int) - back).max() <= 1


def test_distortion_by_chance(rng: np.random.Generator) -> None:
    param = new_message("DistortionParameter", brightness_prob=1.0, brightness_delta=10.0)
    picture = np.full((3, 4, 4), 100, np.uint8)
    found = {int(Distorter(param).distort(picture, rng)[0, 0, 0]) for _ in range(60)}
    assert min(found) >= 90
    assert max(found) <= 110
    assert len(found) > 5
    nothing = Distorter(new_message("DistortionParameter"))
    coloured = rng.integers(0, 256, (3, 5, 5)).astype(np.uint8)
    assert np.array_equal(nothing.distort(coloured, rng), coloured)
    grey = Distorter(new_message("DistortionParameter", saturation_prob=1.0))
    assert np.ptp(grey.distort(coloured, rng), axis=0).max() == 0
    with pytest.raises(UndertowError, match="contrast_lower"):
        Distorter(new_message("DistortionParameter", contrast_prob=1.0, contrast_lower=2.0, contrast_upper=1.0))


def test_padding_and_sizes() -> None:
    param = parse_text("resize_mode: FIT_LARGE_SIZE_AND_PAD height: 4 width: 8 pad_value: 7", "ResizeParameter")
    found = Resizer(param).resize(np.full((1, 5, 5), 9, np.uint8), None)
    assert found[0].tolist() == [[7, 7, 9, 9, 9, 9, 7, 7]] * 4
    param.resize_mode = "FIT_SMALL_SIZE"
    assert Resizer(param).size(10, 10) == (8, 8)
    with pytest.raises(UndertowError, match="height and width"):
        Resizer(parse_text("height: 3", "ResizeParameter"))


def annotations(folder: Path, kind: str) -> Path:
    """Two pictures, one with the objects above, and their list."""
    for name in ("a", "b"):
        Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(folder / f"{name}.png")
    (folder / "map.prototxt").write_text(LABELS)
    things = [("dog", 4, 3, 20, 15, 1), ("cat", 0, 0, 40, 30, 0), ("dog", 10, 6, 30, 24, 0)]
    numbers = {"cat": 1, "dog": 2}
    texts = {
        "xml": VOC,
        "txt": "\n".join(f"{numbers[n]} {a} {b} {c} {d}" for n, a, b, c, d, _ in things),
        "json": json.dumps({
            "image": {"height": 30, "width": 40},
            "annotation": [{"category_id": n, "bbox": [a, b, c - a, d - b], "iscrowd": hard}
                           for n, a, b, c, d, hard in things],
        }),
    }  # fmt: skip
    (folder / f"a.{kind}").write_text(texts[kind])
    (folder / "list.txt").write_text(f"a.png a.{kind}\nb.png missing.{kind}\nnone.png a.{kind}\n")
    return folder / "list.txt"


@pytest.mark.parametrize("kind", ["xml", "json", "txt"])
@pytest.mark.parametrize("encoded", [True, False])
def test_annotation_files(kind: str, encoded: bool, tmp_path: Path) -> None:
    options = AnnosetOptions(label_type=kind, label_map_file=str(tmp_path / "map.prototxt"), encoded=encoded)
    listed = annotations(tmp_path, kind)
    with pytest.warns(UndertowWarning, match=r"left out.*none\.png"):
        result = convert_annoset(f"{tmp_path}/", listed, tmp_path / "db", options)
    assert (result.stored, result.skipped) == (2, 1)
    net = annotated_net(tmp_path / "db", batch=2, phase="TEST")
    net.forward()
    rows = net.blobs["label"].data[0, 0]
    hard = float(kind != "txt")
    expected = [[0, 2, 0, 0.1, 0.1, 0.5, 0.5, hard], [0, 2, 1, 0.25, 0.2, 0.75, 0.8, 0], [0, 1, 0, 0, 0, 1, 1, 0]]
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    net.layers[0].close()


def test_what_is_wrong_with_annotations(tmp_path: Path) -> None:
    listed = annotations(tmp_path, "xml")
    options = AnnosetOptions(label_map_file=str(tmp_path / "map.prototxt"))
    for text, reason in (("<annotation", "no annotation of type xml"), (VOC.replace("cat", "cow"), "'cow' is not in"),
                         (VOC.replace("<width>40", "<width>0"), "size is 0 x 30")):  # fmt: skip
        (tmp_path / "a.xml").write_text(text)
        with pytest.raises(UndertowError, match=reason):
            convert_annoset(f"{tmp_path}/", listed, tmp_path / "db", options)
        assert not (tmp_path / "db").exists()
    (tmp_path / "a.xml").write_text(VOC)
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(tmp_path / "b.png")
    with pytest.raises(UndertowError, match=r"list.txt: b.png: 2400 values, the first picture has 3600. To mend it"):
        convert_annoset(f"{tmp_path}/", listed, tmp_path / "db", replace(options, check_size=True))
    assert not (tmp_path / "db").exists()
    with pytest.raises(UndertowError, match="label map is not given"):
        convert_annoset(f"{tmp_path}/", listed, tmp_path / "db")


@pytest.mark.parametrize(
    ("transform", "anno", "reason"),
    [
        ("noise_param { convert_to_lab: true }", "", "convert_to_lab"),
        ("expand_param { max_expand_ratio: 1 }", "", "above 1"),
        ("", "batch_sampler { sampler { min_scale: 0 } }", "min_scale"),
        ("resize_param { height: 4 }", "", "height and width"),
        ("resize_param { height: 4000000000 width: 4000000000 }", "", "too many"),
        ("crop_size: 200", "", "does not fit"),
    ],
)
def test_options_that_cannot_be(transform: str, anno: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=reason):
        annotated_net(one_rectangle(tmp_path / "db"), transform, anno)


def test_a_database_of_another_kind(tmp_path: Path) -> None:
    with new_database(tmp_path / "db", "lmdb") as put:
        put(b"0", datum_from_pixels(np.zeros((1, 2, 2), np.uint8)).to_bytes())
    with pytest.raises(UndertowError, match="convert_annoset"):
        annotated_net(tmp_path / "db")

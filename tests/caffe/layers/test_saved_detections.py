"""SSD's `save_output_param`: the files that DetectionOutput writes, as the fork writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text
from undertow.caffe.saved_detections import SavedDetections
from undertow.errors import FormatError, UndertowError, UndertowWarning

MAP = 'item { name: "none" label: 0 } item { name: "cat" label: 1 } item { name: "18" label: 2 }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "map.prototxt").write_text(MAP)
    (tmp_path / "sizes.txt").write_text("000001 100 200\n42 50 50\n")
    return tmp_path


def options(folder: Path, kind: str, more: str = "") -> str:
    return (
        f'output_directory: "{folder}/new/results" output_name_prefix: "p_" output_format: "{kind}" '
        f'label_map_file: "{folder}/map.prototxt" name_size_file: "{folder}/sizes.txt" {more}'
    )


def saved(folder: Path, kind: str, more: str = "") -> SavedDetections:
    return SavedDetections(parse_text(options(folder, kind, more), "SaveOutputParameter"), 0)


FIRST = np.array([[1, 0.987654321, 0.1, 0.2, 0.512345, 0.6], [2, 0.5, -0.3, 0.25, 1.7, 0.75]], np.float32)
SECOND = np.array([[1, 0.25, 0.5, 0.5, 0.9, 0.8]], np.float32)


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "new" / "results").iterdir())}


def test_a_file_for_each_class_in_voc_form(folder: Path) -> None:
    """Corners are whole pixels, cut: 0.512345 of 200 pixels is 102.47, 82.47 wide from 20; scores have six digits."""
    files = saved(folder, "VOC")
    files.add(FIRST)
    assert not (folder / "new").exists()
    files.add(SECOND)
    assert read(folder) == {
        "p_cat.txt": "000001 0.987654 20 20 102 60\n42 0.25 25 25 45 40\n",
        "p_18.txt": "000001 0.5 0 25 200 75\n",
    }
    files.add(SECOND[:0])
    files.add(SECOND[:0])
    assert read(folder) == {"p_cat.txt": "", "p_18.txt": ""}


def test_one_list_in_coco_form(folder: Path) -> None:
    """Boxes are left, top, width, height to hundredths; texts that are numbers stand without quotes, as there."""
    files = saved(folder, "COCO")
    files.add(FIRST)
    files.add(SECOND)
    text = read(folder)["p_.json"]
    assert [list(found.values()) for found in json.loads(text)] == [
        ["000001", "cat", [20, 20, pytest.approx(82.47), 40], pytest.approx(0.987654321, rel=1e-7)],
        ["000001", 18, [0, 25, 200, 50], 0.5],
        [42, "cat", [25, 25, 20, 15], 0.25],
    ]
    files.add(SECOND[:0])
    files.add(SECOND[:0])
    assert json.loads(read(folder)["p_.json"]) == []


def test_one_list_in_the_form_of_ilsvrc_and_fewer_images_than_names(folder: Path) -> None:
    files = saved(folder, "ILSVRC", "num_test_image: 1")
    files.add(FIRST)
    assert read(folder) == {"p_.txt": "000001 1 0.987654 20 20 102 60\n000001 2 0.5 0 25 200 75\n"}
    files.add(SECOND)
    assert read(folder) == {"p_.txt": "000001 1 0.25 100 50 180 80\n"}


def test_boxes_go_back_through_the_resizing(folder: Path) -> None:
    """An image of 100 x 200 fills the middle half of a square; FIT_SMALL_SIZE may have a unit of its own."""
    boxes = np.array([[0.25, 0.5, 0.75, 0.7], [0.1, 0.0, 0.2, 0.2]], np.float32)
    padded = saved(folder, "VOC", "resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 30 width: 30 }")
    # The second box lies in the padding alone: the original leaves it as it is.
    expected = [[50, 50, 100, 40], [20, 0, 20, 20]]
    np.testing.assert_allclose(padded.in_pixels(boxes, 100, 200), expected, rtol=1e-5)
    tall = padded.in_pixels(boxes[:1, [1, 0, 3, 2]], 200, 100)
    np.testing.assert_allclose(tall, [[50, 50, 40, 100]], rtol=1e-5)
    unit = "resize_param { resize_mode: FIT_SMALL_SIZE height: 30 width: 30 height_scale: 80 width_scale: 300 }"
    np.testing.assert_allclose(saved(folder, "VOC", unit).in_pixels(boxes[:1], 100, 200), [[75, 40, 125, 16]])
    plain = saved(folder, "VOC", "resize_param { resize_mode: WARP height: 30 width: 30 }")
    np.testing.assert_allclose(plain.in_pixels(boxes[:1], 100, 200), [[50, 50, 100, 20]], rtol=1e-5)


def small_net(rest: str) -> Net:
    return net(inputs(a=(2, 4), b=(2, 3), c=(1, 2, 4)),
               layer("y", "DetectionOutput", "a b c", rest=f"detection_output_param {{ num_classes: 3 {rest} }}"),
               force=False, phase="TEST")  # fmt: skip


def test_the_layer_writes_after_the_last_image(folder: Path) -> None:
    built = small_net(f"confidence_threshold: 0.4 save_output_param {{ {options(folder, 'VOC')} }}")
    built.blobs["b"].data[...] = [[0, 0.5, 0], [0, 0, 0.75]]
    built.blobs["c"].data[0, 0] = [0.1, 0.2, 0.5, 0.6]
    built.forward()
    assert read(folder) == {"p_cat.txt": "000001 0.5 20 20 100 60\n", "p_18.txt": "42 0.75 5 10 25 30\n"}
    built.blobs["b"].data[...] = 0
    built.forward()
    assert read(folder) == {"p_cat.txt": "", "p_18.txt": ""}


def test_what_cannot_be_written_is_told(folder: Path) -> None:
    small_net('save_output_param { label_map_file: "data/VOC0712/labelmap_voc.prototxt" }')  # of a deploy.prototxt
    for lacking in ("label_map_file", "name_size_file"):
        kept = re.sub(rf'{lacking}: "[^"]*"', "", options(folder, "VOC"))
        with pytest.warns(UndertowWarning, match=f"no results are written: save_output_param has no {lacking}"):
            small_net(f"save_output_param {{ {kept} }}")
    with pytest.warns(UndertowWarning, match="visualize is not followed"):
        small_net("visualize: true")
    for kind, more, reason in (
        ("XML", "", "output_format 'XML' is unknown"),
        ("VOC", "num_test_image: 3", "num_test_image is 3, name_size_file has 2 images"),
        ("VOC", "num_test_image: 0", "num_test_image is 0"),
    ):
        with pytest.raises(FormatError, match=reason) as told:
            small_net(f"save_output_param {{ {options(folder, kind, more)} }}")
        assert told.value.layer == "'y' (DetectionOutput)"
    for text, reason in (
        ('item { name: "a" label: 1 } item { name: "b" label: 1 }', r"map\.prototxt:1: label 1 or name 'b' is given"),
        ('item { name: "a/b" label: 1 }', "'a/b' cannot be part of a file's name"),
    ):
        (folder / "map.prototxt").write_text(text)
        with pytest.raises(FormatError, match=reason):
            small_net(f"save_output_param {{ {options(folder, 'VOC')} }}")
    (folder / "map.prototxt").write_text('item { name: "none" label: 0 }')
    built = small_net(f"save_output_param {{ {options(folder, 'VOC')} }}")
    with pytest.raises(FormatError, match="class 1 is not in the label map") as told:
        built.forward()
    assert told.value.layer == "'y' (DetectionOutput)"
    (folder / "map.prototxt").write_text(MAP)
    (folder / "new").write_text("a file where the folder should be")
    built = small_net(f"save_output_param {{ {options(folder, 'VOC')} }}")
    with pytest.raises(UndertowError, match="new/results: cannot be written"):
        built.forward()

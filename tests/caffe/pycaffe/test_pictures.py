"""Classifier, Detector and drawing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import undertow.caffe as caffe
from tests.caffe.pycaffe.nets import RANDOM, write
from undertow.caffe import draw
from undertow.caffe.proto import parse_text
from undertow.caffe.proto.schema import get_schema
from undertow.errors import FormatError, MissingPackage, ShapeError, UndertowError

MEAN_NET = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }
layer { name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param { pool: AVE global_pooling: true } }
layer { name: "mean" type: "Flatten" bottom: "p" top: "mean" }
"""


def files(tmp_path: Path) -> tuple[str, str]:
    """A net whose output is the mean of each channel, and its (empty) weights."""
    path = write(tmp_path, MEAN_NET)
    caffe.Net(path, caffe.TEST).save(str(tmp_path / "w"))
    return path, str(tmp_path / "w")


def test_classifier_prepares_pictures(tmp_path: Path, rng: np.random.Generator) -> None:
    picture = rng.random((6, 6, 3)).astype(np.float32)
    options = {"mean": np.array([10.0, 20, 30]), "raw_scale": 255, "channel_swap": (2, 1, 0), "input_scale": 0.5}
    classifier = caffe.Classifier(*files(tmp_path), **options)
    found = classifier.predict([picture], oversample=False)
    expected = (picture.mean((0, 1))[::-1] * 255 - [10, 20, 30]) * 0.5
    np.testing.assert_allclose(found, expected[None], rtol=1e-4)
    assert isinstance(classifier, caffe.Net)


def test_classifier_crops(tmp_path: Path) -> None:
    """Of a picture with one bright corner, four of ten crops see it whole: two plain ones, two mirrored."""
    classifier = caffe.Classifier(*files(tmp_path), image_dims=[10, 10])
    picture = np.zeros((10, 10, 3), np.float32)
    picture[:4, :4] = 1
    assert classifier.predict([picture, picture], oversample=False).shape == (2, 3)
    np.testing.assert_allclose(classifier.predict([picture], oversample=False)[0], 4 / 36, rtol=1e-5)
    # Corners see 16, 0, 0 and 0 bright pixels, the middle 4; and so do their mirror images.
    np.testing.assert_allclose(classifier.predict([picture])[0], 20 / 36 / 5, rtol=1e-5)


def picture_file(tmp_path: Path) -> str:
    pixels = np.zeros((20, 20, 3), np.uint8)
    pixels[5:15, 5:15] = 200
    Image.fromarray(pixels).save(tmp_path / "p.png")
    return str(tmp_path / "p.png")


def test_detector_reads_windows(tmp_path: Path) -> None:
    path = picture_file(tmp_path)
    detector = caffe.Detector(*files(tmp_path))
    found = detector.detect_windows([(path, [np.array([5, 5, 15, 15]), np.array([0, 0, 5, 5])])])
    assert [item["filename"] for item in found] == [path, path]
    np.testing.assert_allclose(found[0]["prediction"], 200 / 255, rtol=1e-4)
    np.testing.assert_allclose(found[1]["prediction"], 0, atol=1e-6)
    assert list(found[1]["window"]) == [0, 0, 5, 5]
    assert detector.detect_windows([]) == []
    with pytest.raises(ShapeError, match="is empty"):
        detector.detect_windows([(path, [np.array([5, 5, 5, 15])])])


def test_detector_with_context_fills_with_the_mean(tmp_path: Path) -> None:
    """Of 6 pixels one on each side is context; beyond the picture lies the mean, which becomes 0."""
    path = picture_file(tmp_path)
    detector = caffe.Detector(*files(tmp_path), mean=np.full(3, 100.0), raw_scale=255, context_pad=1)
    image = caffe.io.load_image(path)
    inside = detector.crop(image, np.array([7, 7, 12, 12]))
    assert inside.shape == (6, 6, 3)
    np.testing.assert_allclose(inside, 200 / 255, rtol=1e-4)
    corner = detector.crop(image, np.array([0, 0, 4, 4]))
    np.testing.assert_allclose(corner[0], 100 / 255, rtol=1e-5)
    np.testing.assert_allclose(corner[:, 0], 100 / 255, rtol=1e-5)
    np.testing.assert_allclose(corner[2:4, 2:4], 0, atol=1e-6)
    detector.context_pad = 3
    with pytest.raises(UndertowError, match="leaves nothing of 6 pixels"):
        detector.crop(image, np.array([7, 7, 12, 12]))


# --- drawing ----------------------------------------------------------------------------------------------


def message() -> object:
    text = (
        RANDOM
        + """
    layer { type: "Pooling" name: "pool" bottom: "c" top: "p" pooling_param { pool: AVE kernel_size: 2 }
      include { phase: TEST } }
    """
    )
    return parse_text(text, "NetParameter")


def test_text_of_a_net() -> None:
    text = draw.dot_text(message())
    assert text.startswith('digraph "small" {')
    assert '"conv_Convolution" [label="conv\\n(Convolution)\\nkernel size: 3\\nstride: 1\\npad: 0"' in text
    assert '"conv_Convolution" -> "c_blob" [label="3"];' in text
    assert 'fillcolor="#90EE90"' in text  # the ReLU works in place
    assert "pool: AVE" not in text
    assert "(Pooling AVE)" in text
    assert "Pooling" not in draw.dot_text(message(), phase=0)
    assert "lr mult: 1.0, 2.0" in draw.dot_text(message(), display_lrm=True)


def test_protobuf_gives_the_same_text() -> None:
    text_format = pytest.importorskip("google.protobuf.text_format")
    net = caffe.proto.caffe_pb2.NetParameter()
    text_format.Merge(message().to_text(), net)  # type: ignore[attr-defined]
    for phase in (None, caffe.TRAIN, caffe.TEST):
        assert draw.dot_text(net, "TB", phase=phase) == draw.dot_text(message(), "TB", phase=phase)


def test_files(tmp_path: Path) -> None:
    draw.draw_net_to_file(message(), str(tmp_path / "net.dot"))
    assert (tmp_path / "net.dot").read_text() == draw.dot_text(message(), "LR")
    with pytest.raises((FormatError, UndertowError)):
        draw.draw_net_to_file(message(), str(tmp_path / "net.x y"))
    if shutil.which("dot"):
        draw.draw_net_to_file(message(), str(tmp_path / "net.png"))
        assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
        with pytest.raises(FormatError, match="cannot draw nosuch"):
            draw.draw_net(message(), "LR", "nosuch")


@pytest.mark.parametrize("name", ["pydot", "pydotplus"])
def test_a_graph_of_pydot(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Dot:
        def __init__(self, *given: object, **settings: object) -> None:
            made.append(f"graph {given[0]}")

        add_node = add_edge = lambda self, item: None

    pydot = SimpleNamespace(
        Dot=Dot,
        Node=lambda name, **style: made.append(f"node {name}"),
        Edge=lambda source, target, label: made.append("edge"),
    )
    for module in ("pydot", "pydotplus"):
        monkeypatch.setitem(sys.modules, module, pydot if module == name else None)
    assert isinstance(draw.get_pydot_graph(message(), "LR"), Dot)
    text = draw.dot_text(message())
    assert made.count("edge") == text.count(" -> ")
    assert sum(line.startswith("node") for line in made) == text.count("shape=")


def test_without_pydot_the_graph_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydot", None)
    monkeypatch.setitem(sys.modules, "pydotplus", None)
    with pytest.raises(ImportError, match=r"needs the package 'pydot'.*pip install 'undertow\[draw\]'") as caught:
        draw.get_pydot_graph(message(), "LR")
    assert isinstance(caught.value, MissingPackage)


def test_selective_search_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "selective_search_ijcv_with_python", None)
    detector = caffe.Detector(*files(tmp_path))
    with pytest.raises(MissingPackage, match=r"github.com/sergeyk.*or give windows to detect_windows"):
        detector.detect_selective_search(["a.png"])


def test_pooling_methods_by_number() -> None:
    methods = get_schema()["PoolingParameter"].enums["PoolMethod"].numbers
    assert {number: name for name, number in methods.items()} == draw.get_pooling_types_dict()


def test_labels() -> None:
    layers = {layer.name: layer for layer in message().layer}  # type: ignore[attr-defined]
    assert draw.get_layer_lr_mult(layers["conv"]) == (1, 2)
    assert draw.get_layer_lr_mult(layers["ip"]) == (1, 1)
    with pytest.raises(ValueError, match="do not have a learning rate"):
        draw.get_layer_lr_mult(layers["relu"])
    assert draw.get_edge_label(layers["ip"]) == "6"
    assert draw.choose_color_by_layertype("Pooling") == "#FF9900"


def test_what_is_no_picture(tmp_path: Path) -> None:
    classifier = caffe.Classifier(*files(tmp_path))
    for wrong in (np.zeros((4, 4)), np.zeros((0, 4, 3))):
        with pytest.raises(ShapeError, match=r"\(height, width, channels\), here is an array of shape"):
            classifier.predict([wrong])
    with pytest.raises(ShapeError, match="no pictures to predict"):
        classifier.predict([])
    with pytest.raises(ValueError, match=r"new_dims is 2 whole numbers of at least 1, not \(0, 5\)"):
        caffe.io.resize_image(np.zeros((4, 4, 3)), (0, 5))
    with pytest.raises(ShapeError, match=r"data has shape \(4, 3, 6, 6\), the array \(4, 4, 6, 6\)"):
        classifier.predict([np.zeros((6, 6, 4), np.float32)], oversample=False)


def test_a_mean_picture_of_one_value_is_resized() -> None:
    transformer = caffe.io.Transformer({"data": (1, 3, 4, 4)})
    transformer.set_mean("data", np.full((3, 9, 9), 128.0))
    np.testing.assert_array_equal(transformer.mean["data"], np.full((3, 4, 4), 128.0))

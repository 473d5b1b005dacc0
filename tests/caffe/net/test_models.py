"""Models of other people meet the outputs that OpenCV gave for them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from undertow.caffe.net import Net
from undertow.errors import UndertowWarning

pytestmark = pytest.mark.reference

SCALE = np.float32(0.00390625)


def recorded(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "expected_opencv.npz", allow_pickle=False) as archive:
        return dict(archive)


def mnist(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 10,000 test images (n, 1, 28, 28) from 0 to below 1, and their labels."""

    def read(name: str, header: int) -> np.ndarray:
        path = next((data / "mnist").rglob(f"{name}*"))
        raw = path.read_bytes()
        return np.frombuffer(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, np.uint8, offset=header)

    images = read("t10k-images", 16).reshape(-1, 1, 28, 28).astype(np.float32) * SCALE
    return images, read("t10k-labels", 8)


def outputs(net: Net, images: np.ndarray, batch: int = 500, output: str | None = None) -> np.ndarray:
    """One output of a net for all images, batch by batch."""
    name = output or net.outputs[0]
    blob = net.blobs[net.inputs[0]]
    found = []
    for start in range(0, len(images), batch):
        rows = images[start : start + batch]
        blob.reshape(*rows.shape)
        blob.data[...] = rows
        net.forward()
        found.append(net.blobs[name].data.copy())
    return np.concatenate(found)


def close(ours: np.ndarray, theirs: np.ndarray, atol: float = 1e-5, rtol: float = 1e-3) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def test_lenet(reference_data: Path) -> None:
    folder = reference_data / "data" / "caffe" / "lenet"
    net = Net(folder / "lenet.prototxt", weights=folder / "lenet_iter_10000.caffemodel")
    images, labels = mnist(reference_data / "data")
    expected = recorded(folder)
    prob = outputs(net, images)
    close(prob[:64], expected["prob_first64"])
    found = prob.argmax(1)
    assert np.array_equal(found, expected["argmax_all"])
    assert (found != labels).sum() == 86  # 99.14 %


def test_lenet_in_the_format_of_2014(reference_data: Path) -> None:
    folder = reference_data / "data" / "caffe" / "lenet_v1_2014"
    net = Net(folder / "lenet.prototxt", weights=folder / "lenet_iter_5000.caffemodel")
    images, labels = mnist(reference_data / "data")
    assert (outputs(net, images).argmax(1) == labels).mean() == pytest.approx(0.9893)


def test_cifar10_quick(reference_data: Path) -> None:
    folder = reference_data / "data" / "caffe" / "cifar10_quick"
    net = Net(folder / "cifar10_quick.prototxt", weights=folder / "cifar10_quick_iter_4000.caffemodel")
    expected = recorded(folder)
    close(outputs(net, expected["input"]), expected["prob"])
    close(net.blobs["conv1"].data, expected["conv1"], atol=1e-3)
    other = Net(folder / "cifar10_quick.prototxt")
    report = other.copy_from(folder / "cifar10_quick_iter_5000.caffemodel.h5")
    assert report.copied == ["conv1", "conv2", "conv3", "ip1", "ip2"]
    assert not report.only_in_net


@pytest.mark.parametrize(
    ("number", "blobs"),
    [(1, ("conv4-2", "prob1")), (2, ("conv5-2", "prob1")), (3, ("conv6-2", "conv6-3", "prob1"))],
)
def test_mtcnn(reference_data: Path, number: int, blobs: tuple[str, ...]) -> None:
    folder = reference_data / "data" / "caffe" / "mtcnn"
    net = Net(folder / f"det{number}.prototxt")
    with pytest.warns(UndertowWarning, match="fields that are not in the schema"):
        net.copy_from(folder / f"det{number}.caffemodel")
    expected = recorded(folder)
    outputs(net, expected[f"det{number}_in"], output="prob1")
    for name in blobs:
        close(net.blobs[name].data, expected[f"det{number}_{name}"].reshape(net.blobs[name].shape))


def photo(data: Path, name: str) -> Image.Image:
    return Image.open(next((data / "images").rglob(name)))


def test_landmarks(reference_data: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="resizing as in the recording needs OpenCV")
    data = reference_data / "data"
    folder = data / "caffe" / "landmark106"
    face = np.asarray(photo(data, "astronaut.png").convert("RGB"))[50:220, 140:310, ::-1]
    resized = cv2.resize(np.ascontiguousarray(face), (112, 112)).astype(np.float32) / 255
    net = Net(folder / "landmark106.prototxt", weights=folder / "landmark106.caffemodel")
    found = outputs(net, resized.transpose(2, 0, 1)[None])
    close(found.reshape(1, 212), recorded(folder)["out"], atol=1e-3)


def test_super_resolution(reference_data: Path) -> None:
    folder = reference_data / "data" / "caffe" / "wechat_qr"
    net = Net(folder / "sr.prototxt", weights=folder / "sr.caffemodel")
    expected = recorded(folder)
    small = expected["sr_in"].astype(np.float32)[None, None] / 255
    close(outputs(net, small), expected["sr"], atol=1e-4)


def test_ultraface(reference_data: Path) -> None:
    """Raw box regressions and scores of a net with SSD's Permute."""
    cv2 = pytest.importorskip("cv2", reason="resizing as in the recording needs OpenCV")
    data = reference_data / "data"
    folder = data / "caffe" / "ultraface-rfb-320"
    picture = np.asarray(photo(data, "astronaut.png").convert("RGB"))
    image = (cv2.resize(picture, (320, 240)).astype(np.float32) - 127) / 128
    net = Net(folder / "RFB-320.prototxt", weights=folder / "RFB-320.caffemodel")
    expected = recorded(folder)
    outputs(net, image.transpose(2, 0, 1)[None])
    found = {name: net.blobs[name].data.reshape(1, 4420, -1) for name in net.outputs}
    for name, values in found.items():
        close(values, expected["boxes" if values.shape[2] == 4 else "scores"].reshape(values.shape), atol=1e-4)
        assert name
    assert sorted(values.shape[2] for values in found.values()) == [2, 4]


def test_qr_detector(reference_data: Path) -> None:
    data = reference_data / "data"
    folder = data / "caffe" / "wechat_qr"
    grey = np.asarray(photo(data, "qr_on_dog.png").convert("L")).astype(np.float32) / 255
    net = Net(folder / "detect.prototxt", weights=folder / "detect.caffemodel")
    assert net.blobs[net.inputs[0]].shape[1] == 1
    found = outputs(net, grey[None, None])
    box = found[0, 0][found[0, 0, :, 2].argmax()]
    assert box[1:3] == pytest.approx([1, 0.9999], abs=1e-3)
    assert box[3:] == pytest.approx([0.5486, 0.3811, 0.7367, 0.6300], abs=2e-3)


def test_face_detector(reference_data: Path) -> None:
    """SSD with Normalize, PriorBox and DetectionOutput."""
    cv2 = pytest.importorskip("cv2", reason="resizing as in the recording needs OpenCV")
    data = reference_data / "data"
    folder = data / "caffe" / "yufacedetect-v1"
    picture = np.asarray(photo(data, "astronaut.png").convert("RGB"))[..., ::-1]
    image = cv2.resize(np.ascontiguousarray(picture), (320, 240)).astype(np.float32)
    net = Net(folder / "yufacedetectnet-open-v1.prototxt")
    with pytest.warns(UndertowWarning, match="LayerParameter field 145"):
        net.copy_from(folder / "yufacedetectnet-open-v1.caffemodel")
    rows = outputs(net, image.transpose(2, 0, 1)[None])[0, 0]
    best = rows[rows[:, 2].argsort()[::-1][:2]]
    np.testing.assert_allclose(best[0], [0, 1, 0.9995, 0.3496, 0.0979, 0.5358, 0.3430], atol=1e-3)
    np.testing.assert_allclose(best[1], [0, 1, 0.2819, 0.7782, 0.0128, 0.8403, 0.1806], atol=1e-3)


def test_a_converted_yolo_net(reference_data: Path) -> None:
    """234 layers with Upsample: it builds, its weights fit, and it runs."""
    folder = reference_data / "data" / "caffe" / "mobilenetv2-yolov3-nano-voc"
    net = Net(folder / "MobileNetV2-YOLOv3-Nano-voc.prototxt")
    report = net.copy_from(folder / "MobileNetV2-YOLOv3-Nano-voc.caffemodel")
    assert not report.only_in_net
    net.forward()
    assert all(np.isfinite(net.blobs[name].data).all() for name in net.outputs)

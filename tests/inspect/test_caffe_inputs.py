"""What a Caffe net that is looked into gets: pictures with the means of its data layer, objects, random values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.scope.networks import LENET, SSD
from undertow.cli import main
from undertow.errors import FormatError, ShapeError
from undertow.inspect.caffe_inputs import PictureValues, fill_inputs, read_objects, values_of
from undertow.inspect.caffe_run import DATA_LAYERS, open_net
from undertow.inspect.trace_nets import trace_caffe

ANNOTATED = SSD[SSD.index("layer {", 10) :]  # without its Input layer
DATA_LAYER = """
layer { name: "data" type: "AnnotatedData" top: "data" top: "label"
  transform_param { mean_value: 10 mean_value: 20 mean_value: 30 scale: 0.5 }
  data_param { source: "absent" batch_size: 4 backend: LMDB } }
"""


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.new("RGB", (64, 32), (200, 100, 50)).save(tmp_path / "flat.png")
    return tmp_path / "flat.png"


def test_values_of_pictures() -> None:
    picture = np.array([200.0, 100.0, 50.0], np.float32).reshape(3, 1, 1) / 255
    got = PictureValues((10, 20, 30), 0.5, bgr=True).of(picture)
    assert got.reshape(-1) == pytest.approx([(50 - 10) / 2, (100 - 20) / 2, (200 - 30) / 2])
    assert PictureValues().of(picture).reshape(-1) == pytest.approx(picture.reshape(-1))
    with pytest.raises(ShapeError, match="2 means for a picture of 3 channels"):
        PictureValues((1, 2)).of(picture)


def test_a_picture_in_place_of_a_data_layer_gets_its_means(tmp_path: Path, picture: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(DATA_LAYER + ANNOTATED)
    (tmp_path / "objects.txt").write_text("1 6 4 26 16\n2 32 16 60 30\n")
    found = trace_caffe(net, shape=(3, 32, 32), data=picture, truth=tmp_path / "objects.txt")
    assert found.layers[0].output.mean == pytest.approx((20 + 40 + 85) / 3)
    assert "BGR, 0 to 255, minus 10, 20, 30, times 0.5" in found.about
    assert "random" not in found.about
    assert found.loss > 0


def test_what_a_picture_becomes_is_told_and_means_need_a_picture(
    tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = str(tmp_path / "net.prototxt")
    Path(net).write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }\n'
        'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }\n'
    )
    assert main(["trace", net, "-data", str(picture)]) == 0
    head = capsys.readouterr().out.splitlines()
    assert head[0].endswith("flat.png (stretched to 8x8, RGB, 0 to 1)")
    assert head[1].startswith("no loss, rate")
    for command in ("trace", "scope"):
        assert main([command, net, "-mean", "104,117,123"]) == 2
        assert "-mean is for a picture, a random batch is taken as it is" in capsys.readouterr().err


def test_objects_in_pixels_of_their_picture(tmp_path: Path, picture: Path) -> None:
    (tmp_path / "objects.txt").write_text("1 16 8 32 16\n2 0 0 64 32\n")
    rows = read_objects(tmp_path / "objects.txt", picture)
    assert rows == pytest.approx(np.array([[0, 1, 0, 0.25, 0.25, 0.5, 0.5, 0], [0, 2, 1, 0, 0, 1, 1, 0]]))
    np.save(tmp_path / "objects.npy", rows)
    assert np.array_equal(read_objects(tmp_path / "objects.npy", None), rows)


def test_every_place_of_the_batch_gets_the_objects_of_the_picture(tmp_path: Path, picture: Path) -> None:
    (tmp_path / "net.prototxt").write_text(SSD)
    (tmp_path / "objects.txt").write_text("1 16 8 32 16\n")
    net, _ = open_net(tmp_path / "net.prototxt", batch=3)
    # Only the pictures are the batch; its label input keeps one picture's axes until it is filled.
    fill_inputs(net, picture, truth=tmp_path / "objects.txt")
    rows = net.blobs["label"].data.reshape(-1, 8)
    assert rows[:, 0].tolist() == [0, 1, 2]
    assert (rows[:, 1] == 1).all()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("yolo.txt", "0 0.5 0.5 0.2 0.2\n", "these look like Darknet's labels"),
        ("words.txt", "cat 1 2 3 4\n", "this is no annotation of type txt"),
        ("absent.txt", None, "there is no such file"),
    ],
)
def test_objects_that_cannot_be_read(tmp_path: Path, picture: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=said):
        read_objects(tmp_path / name, picture)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 16 8 32 16", "object 0 has class 0: the background, 0. To mend it: classes of this net are 1, 2"),
        ("7 16 8 32 16", "object 0 has class 7: none of the 3"),
    ],
)
def test_objects_of_classes_that_the_loss_does_not_have(tmp_path: Path, picture: Path, line: str, said: str) -> None:
    (tmp_path / "net.prototxt").write_text(SSD)
    (tmp_path / "objects.txt").write_text(line)
    with pytest.raises(FormatError) as caught:
        trace_caffe(tmp_path / "net.prototxt", data=picture, truth=tmp_path / "objects.txt")
    assert f"objects.txt: {said}" in str(caught.value)


def test_an_error_of_a_layer_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(LENET)
    np.savez(tmp_path / "data.npz", data=np.zeros((2, 1, 28, 28)), label=np.full(2, 99))
    with pytest.raises(ShapeError) as caught:
        trace_caffe(tmp_path / "net.prototxt", data=tmp_path / "data.npz")
    assert "net.prototxt:" in str(caught.value)
    assert "loss" in str(caught.value)


def test_objects_need_a_picture_or_rows(tmp_path: Path) -> None:
    (tmp_path / "objects.txt").write_text("1 16 8 32 16\n")
    with pytest.raises(FormatError, match="corners in pixels belong to a picture"):
        read_objects(tmp_path / "objects.txt", None)
    np.save(tmp_path / "rows.npy", np.zeros((2, 5), np.float32))
    with pytest.raises(ShapeError, match=r"rows of 8 values are needed .* got an array \(2, 5\)"):
        read_objects(tmp_path / "rows.npy", None)


def test_objects_for_a_net_without_boxes_are_refused(tmp_path: Path, picture: Path) -> None:
    (tmp_path / "net.prototxt").write_text(LENET)
    (tmp_path / "objects.txt").write_text("1 16 8 32 16\n")
    with pytest.raises(FormatError, match="no MultiBoxLoss reads one"):
        trace_caffe(tmp_path / "net.prototxt", data=picture, truth=tmp_path / "objects.txt")


def test_random_objects_are_none_of_the_background(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(DATA_LAYER + ANNOTATED)
    opened, has_loss = open_net(net, shape=(3, 32, 32), batch=2)
    fill_inputs(opened, None)
    rows = opened.blobs["label"].data.reshape(-1, 8)
    assert has_loss
    assert sorted(rows[:, 0].tolist()) == [0, 0, 0, 1, 1, 1]
    assert set(rows[:, 1].tolist()) <= {1, 2}
    assert (rows[:, 5:7] > rows[:, 3:5]).all()
    assert (rows[:, 3:7] <= 1).all()


def test_the_values_of_a_data_layer_are_those_of_its_transform(tmp_path: Path) -> None:
    from undertow.caffe.proto.api import read_prototxt

    (tmp_path / "net.prototxt").write_text(DATA_LAYER)
    message = read_prototxt(tmp_path / "net.prototxt")
    assert values_of(message, DATA_LAYERS) == PictureValues((10, 20, 30), 0.5, bgr=True)
    assert values_of(message, ("ImageData",)) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["net.cfg", "-mean", "1,2,3"], "-mean is for a prototxt, and this is a cfg"),
        (["net.cfg", "-shape", "3x8x8"], "-shape is for a prototxt and a function, and this is a cfg"),
        (["net.prototxt", "-size", "8"], "To mend it: -shape CxHxW"),
        (["net.prototxt", "-mean", "1,x,3"], "-mean takes one number or three"),
        (["net.prototxt", "-mean", "1,2"], "-mean takes one number or three"),
        (["model:loss", "-weights", "w"], "-weights is for a cfg and a prototxt, and this is a function"),
    ],
)
@pytest.mark.parametrize("command", ["scope", "trace"])
def test_flags_without_effect_are_refused(
    command: str, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(LENET)
    assert main([command, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scope", "absent.cfg"]) != 0
    said = capsys.readouterr().err
    assert "absent.cfg: there is no such file" in said
    assert "one batch forward" not in said


def test_names_of_a_label_map(tmp_path: Path) -> None:
    from undertow.cli.looking import names_of

    (tmp_path / "map.prototxt").write_text(
        'item { name: "none" label: 0 } item { name: "cat" label: 1 } item { name: "dog" label: 3 }'
    )
    assert names_of({"names": str(tmp_path / "map.prototxt")}) == ["none", "cat", "class 2", "dog"]  # type: ignore[arg-type]

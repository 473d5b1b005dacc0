"""VideoData: frames of a file, held against what was put into it and against OpenCV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.net.texts import net
from undertow.caffe.layers_data import FeedLayer
from undertow.caffe.net import Net
from undertow.errors import FormatError, MissingPackage

av = pytest.importorskip("av")


def video(path: Path, frames: int = 5, codec: str = "ffv1", pixels: str = "bgr0") -> np.ndarray:
    """A file without loss and the frames in it, (n, 3, 12, 16), blue first."""
    pictures = np.random.default_rng(1).integers(0, 256, (frames, 12, 16, 3)).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=5)
        stream.width, stream.height, stream.pix_fmt = 16, 12, pixels
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        container.mux(stream.encode())
    return pictures.transpose(0, 3, 1, 2)


def layer_text(path: object, more: str = "", batch: int = 2, tops: str = 'top: "data" top: "label"') -> str:
    return (
        f'layer {{ name: "v" type: "VideoData" {tops} data_param {{ batch_size: {batch} }} '
        f'video_data_param {{ video_type: VIDEO video_file: "{path}" {more} }} transform_param {{ mean_value: 5 }} }}'
    )


def built(path: object, more: str = "", **options: object) -> Net:
    return net(layer_text(path, more, **options), force=False, dtype=np.float32)  # type: ignore[arg-type]


def test_the_frames_of_a_file_once_and_in_order(tmp_path: Path) -> None:
    frames = video(tmp_path / "v.mkv") - np.float32(5)
    made = built(tmp_path / "v.mkv")
    assert made.shapes == {"data": (2, 3, 12, 16), "label": (2,)}
    for first in (0, 2):
        made.forward()
        np.testing.assert_array_equal(made.blobs["data"].data, frames[first : first + 2])
        np.testing.assert_array_equal(made.blobs["label"].data, 0)
    for _ in range(2):
        with pytest.raises(FormatError, match="the video is over: 5 frames have been handed out") as told:
            made.forward()
        assert told.value.layer == "'v' (VideoData)"
    assert set(built(tmp_path / "v.mkv", tops='top: "data"').blobs) == {"data"}


def test_frames_are_left_out_before_each_one(tmp_path: Path) -> None:
    frames = video(tmp_path / "v.mkv") - np.float32(5)
    made = built(tmp_path / "v.mkv", "skip_frames: 1", batch=1)
    for number in (1, 3):
        made.forward()
        np.testing.assert_array_equal(made.blobs["data"].data, frames[number : number + 1])


def test_the_position_is_taken_up_again(tmp_path: Path) -> None:
    video(tmp_path / "v.mkv")
    made = built(tmp_path / "v.mkv", batch=1)
    (reader,) = made.layers
    assert isinstance(reader, FeedLayer)
    made.forward()
    made.forward()
    state = reader.data_state()
    made.forward()
    expected = made.blobs["data"].data.copy()
    reader.load_data_state(state)
    made.forward()
    np.testing.assert_array_equal(made.blobs["data"].data, expected)
    reader.close()


def test_usual_videos_look_as_in_opencv(tmp_path: Path) -> None:
    """Colours of compressed videos are half as fine as the picture, and each library spreads them in its own way."""
    cv2 = pytest.importorskip("cv2")
    video(tmp_path / "v.avi", codec="mpeg4", pixels="yuv420p")
    capture = cv2.VideoCapture(str(tmp_path / "v.avi"))
    made = built(tmp_path / "v.avi", batch=1)
    for _ in range(5):
        read, picture = capture.read()
        assert read
        made.forward()
        difference = made.blobs["data"].data[0] + 5 - picture.transpose(2, 0, 1)
        assert np.abs(difference).mean() < 4


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("no video\n" * 50)
    (tmp_path / "bad.avi").write_bytes(b"RIFF" + bytes(200))
    video(tmp_path / "v.mkv")
    for text, reason in (
        (layer_text(tmp_path / "none.mkv"), "there is no such file"),
        (layer_text("http://127.0.0.1:1/v.mkv"), "there is no such file"),
        (layer_text(tmp_path / "text.txt"), "the file holds no video"),
        (layer_text(tmp_path / "bad.avi"), "cannot be read as a video"),
        (layer_text(tmp_path / "v.mkv").replace("video_type: VIDEO", ""), "cameras are not read here"),
        (layer_text("").replace('video_file: ""', ""), "the video is not given"),
        (layer_text(tmp_path / "v.mkv", batch=0), "batch_size must be at least 1"),
    ):
        with pytest.raises(FormatError, match=reason) as told:
            net(text, force=False)
        assert told.value.layer == "'v' (VideoData)"
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(MissingPackage, match=r"undertow\[video\]"):
        built(tmp_path / "v.mkv")


def test_it_is_among_the_layer_types() -> None:
    assert "VideoData" in caffe.layer_type_list()

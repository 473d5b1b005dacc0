"""detector demo: folders of pictures, and videos where PyAV is installed."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Answer
from tests.darknet.training.scenes import Scene
from undertow.cli.video import Averaged
from undertow.darknet import load
from undertow.darknet.detection.frames import open_frames
from undertow.data.images import image_size, load_pixels

Command = Callable[..., Answer]
needs_av = pytest.mark.skipif(importlib.util.find_spec("av") is None, reason="PyAV is not installed")


@pytest.fixture
def demo(undertow: Command, scene: Scene, tmp_path: Path) -> Command:
    """detector demo of a net whose boxes are all sure."""
    net = load(scene.cfg, seed=1)
    net.layers[2].biases[...] = 1.0
    net.save_weights(tmp_path / "sure.weights")

    def run(*words: object) -> Answer:
        return undertow("darknet", "detector", "demo", scene.data, scene.cfg, tmp_path / "sure.weights", *words)

    return run


def test_the_pictures_of_a_folder_get_boxes(demo: Command, scene: Scene, tmp_path: Path) -> None:
    (scene.folder / "images" / "4.png").write_bytes(b"no picture")
    answer = demo(scene.folder / "images", "-thresh", "0.3", "-c", "1", "-i", "0")
    assert answer.status == 0
    assert answer.out.startswith(f"Demo\nvideo file: {scene.folder / 'images'}\n\nFPS:")
    assert len(re.findall(r"^FPS:\d+\.\d\nObjects:\n\n(?:(?:red|blue): \d+%\n)+", answer.out, re.MULTILINE)) == 5
    assert "-c: there are no cameras here" in answer.err
    assert "4.png" in answer.warnings[0]
    written = sorted(path.name for path in tmp_path.glob("demo_*"))
    assert written == [f"demo_{number:08d}.jpg" for number in range(5)]
    assert image_size(tmp_path / written[0]) == (56, 40)


def test_prefix_names_the_pictures(demo: Command, scene: Scene, tmp_path: Path) -> None:
    assert demo(scene.image(2), "-prefix", tmp_path / "found").status == 0
    assert [path.name for path in tmp_path.glob("found_*")] == ["found_00000000.jpg"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "VIDEO is missing, and there are no cameras here. To mend it: give a video file or a folder of pictures"),
        (["absent.mp4"], "absent.mp4: there is no such file or folder"),
        (["empty"], "empty: no frame can be read"),
        (["scene/images", "-out", "x.gif"], "x.gif: cannot write a video named '*.gif'"),
    ],
)
def test_what_cannot_be_done_is_told(demo: Command, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    assert message in demo(*words).error


def test_a_video_asks_for_the_package(demo: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    (tmp_path / "film.mp4").write_bytes(b"film")
    assert "pip install 'undertow[video]'" in demo("film.mp4").error
    assert "pip install 'undertow[video]'" in demo("scene/images", "-out", "x.mp4").error


def test_outputs_are_averaged_over_frames(scene: Scene) -> None:
    net = load(scene.cfg, seed=1)
    one, other = (load_pixels(scene.image(number)) for number in range(2))
    outputs = []
    for pixels in (one, other):
        Averaged(net, 1).find(pixels, 0.1, 0)
        outputs.append(net.layers[3].output.copy())
    both = Averaged(net, 3)
    both.find(one, 0.1, 0)
    assert np.allclose(net.layers[3].output, outputs[0])
    both.find(other, 0.1, 0)
    assert np.allclose(net.layers[3].output, (outputs[0] + outputs[1]) / 2, atol=1e-6)


@needs_av
@pytest.mark.parametrize("name", ["film.mp4", "film.avi"])
def test_a_video_comes_in_and_goes_out(demo: Command, scene: Scene, tmp_path: Path, name: str) -> None:
    first = demo(scene.folder / "images", "-out_filename", tmp_path / name, "-thresh", "1")
    assert first.status == 0
    frames = open_frames(tmp_path / name)
    assert frames.video
    pixels = list(frames)
    assert len(pixels) == 6
    assert np.abs(pixels[0].astype(int) - load_pixels(scene.image(0))).mean() < 30
    second = demo(tmp_path / name, "-out", tmp_path / "again.mp4", "-prefix", tmp_path / "frame")
    assert second.out.count("FPS:") == 6
    assert len(list(open_frames(tmp_path / "again.mp4"))) == len(list(tmp_path.glob("frame_*.jpg"))) == 6
    assert not list(tmp_path.glob(".*part*"))


@needs_av
def test_what_is_no_video_is_refused(demo: Command, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"film")
    assert "cannot be read as a video" in demo("film.mp4").error
    (tmp_path / "pictures.txt").write_text("images/1.jpg\n" * 600)
    assert "this is a text, not a video" in demo("pictures.txt").error

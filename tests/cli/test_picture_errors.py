"""Every function that reads pictures names the file of each that it cannot read, and why."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Answer
from tests.cli.test_classifier import Pictures
from tests.darknet.training.scenes import Scene

Command = Callable[..., Answer]


def _encoded(kind: str) -> bytes:
    noise = np.random.default_rng(1).integers(0, 255, (40, 56, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, kind)
    return stream.getvalue()


def _claiming(width: int) -> bytes:
    """A bitmap whose header claims this width, and as much of height."""
    data = bytearray(_encoded("BMP"))
    data[18:26] = np.array([width, width], "<i4").tobytes()
    return bytes(data)


def _floating() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.float32)).save(stream, "TIFF")
    return stream.getvalue()


# What stands in the place of a picture, and words of the reason.
DAMAGE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "this is no picture in a known format"),
    "text": (b"no picture", "this is no picture in a known format"),
    "cut png": (_encoded("PNG")[:-900], "the picture is cut short or damaged"),
    "cut jpeg": (_encoded("JPEG")[:-900], "the picture is cut short or damaged"),
    "huge": (_claiming(30000), "the header claims more pixels than are read from one picture"),
    "floating": (_floating(), "floating-point pixels have no fixed range"),
}


def _detector(name: str) -> list[str]:
    return ["darknet", "detector", name, "scene/obj.data", "scene/tiny.cfg"]


def _classifier(name: str) -> list[str]:
    return ["darknet", "classifier", name, "pictures/colour.data", "pictures/colour.cfg"]


BAD, BAD_CLASS = Path("scene/images/2.png"), Path("pictures/pictures/4_green.png")
# Functions that go on without the picture; those of trainings draw each of the few pictures many times.
GOING_ON: dict[str, tuple[list[str], Path]] = {
    "detector train": (_detector("train"), BAD),
    "detector train -map": ([*_detector("train"), "-map_every", "6"], BAD),
    "detector map": ([*_detector("map"), ""], BAD),
    "detector valid": ([*_detector("valid"), ""], BAD),
    "detector recall": ([*_detector("recall"), ""], BAD),
    "detector demo": ([*_detector("demo"), "", "scene/images"], BAD),
    "classifier train": (_classifier("train"), BAD_CLASS),
    "classifier train -topk": ([*_classifier("train"), "-topk_every", "6"], BAD_CLASS),
    **{f"classifier {name}": ([*_classifier(name), ""], BAD_CLASS)
       for name in ("valid", "valid10", "validcrop", "validfull", "validmulti", "label", "csv", "test")},
    "classifier fout": ([*_classifier("fout"), "", "pictures/all.list"], BAD_CLASS),
}  # fmt: skip
STOPPING: dict[str, list[str]] = {
    "detector test": [*_detector("test"), "", str(BAD)],
    "classifier predict": [*_classifier("predict"), "", str(BAD)],
}


@pytest.fixture(autouse=True)
def pictures(scene: Scene, tmp_path: Path) -> Pictures:
    made = Pictures(tmp_path / "pictures")
    made.write_cfg(max_batches=6)
    return made


@pytest.mark.parametrize("function", GOING_ON)
def test_a_picture_that_is_left_out_is_named_with_the_reason(undertow: Command, function: str) -> None:
    words, bad = GOING_ON[function]
    # One kind of damage for each function; all kinds come up in the table.
    content, reason = list(DAMAGE.values())[list(GOING_ON).index(function) % len(DAMAGE)]
    bad.write_bytes(content)
    answer = undertow(*words)
    assert answer.status == 0, answer.err
    told = [line for line in answer.err.splitlines() if bad.name in line and reason in line]
    assert told, answer.err
    assert re.search(rf"\S*{re.escape(str(bad))}: {re.escape(reason)}", told[0])


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("function", STOPPING)
def test_a_picture_that_was_asked_for_is_an_error(undertow: Command, function: str, kind: str) -> None:
    content, reason = DAMAGE[kind]
    BAD.write_bytes(content)
    assert undertow(*STOPPING[function]).error.startswith(f"error: {BAD}: {reason}")


@pytest.mark.parametrize("function", [name for name in GOING_ON if "demo" not in name])
def test_none_that_can_be_read_is_an_error_with_the_last_reason(undertow: Command, function: str) -> None:
    words, bad = GOING_ON[function]
    for path in bad.parent.glob("*.png"):
        path.write_bytes(b"")
    error = undertow(*words).error
    assert re.search(r"none of the \d+ pictures can be read; the last one: ", error)
    assert "this is no picture in a known format" in error
    assert re.search(r"\d+(_\w+)?\.png", error)


@pytest.mark.parametrize("function", ["detector map", "detector valid", "detector recall", "classifier valid"])
def test_a_picture_that_is_not_there_is_named(undertow: Command, function: str) -> None:
    words, bad = GOING_ON[function]
    bad.unlink()
    answer = undertow(*words)
    assert answer.status == 0
    assert any(bad.name in line and "image not found" in line for line in answer.warnings), answer.err


@pytest.mark.parametrize("function", ["detector map", "detector valid", "classifier valid"])
def test_several_are_counted(undertow: Command, function: str) -> None:
    words, bad = GOING_ON[function]
    for path in sorted(bad.parent.glob("*.png"))[:3]:
        path.write_bytes(b"")
    warnings = undertow(*words).warnings
    assert sum("the picture does not count" in line for line in warnings) == 3
    assert any(re.search(r"3 of \d+ pictures cannot be read and do not count", line) for line in warnings)


@pytest.mark.parametrize("function", ["map", "valid", "recall", "demo", "test"])
def test_a_net_that_takes_no_pictures_is_told_with_its_cfg(undertow: Command, scene: Scene, function: str) -> None:
    scene.cfg.write_text(scene.cfg.read_text().replace("channels=3", "channels=4"))
    words = (GOING_ON | {"detector test": (STOPPING["detector test"], BAD)})[f"detector {function}"][0]
    assert "scene/tiny.cfg: pictures have 1 or 3 channels, the net takes 4 channels" in undertow(*words).error

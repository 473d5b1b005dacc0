"""`undertow convert`: there and back byte for byte, cut, averaged, other headers, listed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.darknet.training.scenes import Scene
from undertow import darknet
from undertow.darknet.dialect import ALEXEYAB, EXACT


def written(scene: Scene, name: str, seed: int = 0, cutoff: int | None = None, seen: int = 1234) -> Path:
    net = darknet.load(scene.cfg, seed=seed)
    net.seen = seen
    net.save_weights(name, cutoff=cutoff)
    return Path(name)


@pytest.mark.parametrize("cutoff", [None, 2])
def test_there_and_back_byte_for_byte(undertow: Any, scene: Scene, cutoff: int | None) -> None:
    pytest.importorskip("safetensors")
    before = written(scene, "a.weights", cutoff=cutoff).read_bytes()
    assert undertow("convert", scene.cfg, "a.weights", "a.safetensors").status == 0
    assert undertow("convert", scene.cfg, "a.safetensors", "b.weights").status == 0
    assert Path("b.weights").read_bytes() == before


def test_safetensors_hold_names_and_values(undertow: Any, scene: Scene) -> None:
    numpy_format = pytest.importorskip("safetensors.numpy")
    written(scene, "a.weights")
    undertow("convert", scene.cfg, "a.weights", "a.safetensors")
    stored = numpy_format.load_file("a.safetensors")
    net = darknet.load(scene.cfg, "a.weights")
    np.testing.assert_array_equal(stored["000.convolutional.weights"], net.layers[0].weights)
    assert len(stored) == 5 + 5 + 2


def test_a_cut_is_the_beginning_of_the_file(undertow: Any, scene: Scene) -> None:
    whole, part = written(scene, "a.weights").read_bytes(), written(scene, "p.weights", cutoff=2).read_bytes()
    assert undertow("convert", scene.cfg, "a.weights", "c.weights", "-layers", 2).status == 0
    cut = Path("c.weights").read_bytes()
    assert cut[20:] == part[20:] == whole[20 : len(part)]
    assert struct.unpack("<3iQ", cut[:20]) == (0, 2, 0, 0)
    assert undertow("darknet", "partial", scene.cfg, "a.weights", "d.weights", 2).status == 0
    assert Path("d.weights").read_bytes() == cut
    assert "from 1 to 4" in undertow("convert", scene.cfg, "a.weights", "c.weights", "-layers", 9).error


def test_a_net_that_is_trained_to_its_end_gives_a_backbone(undertow: Any, scene: Scene) -> None:
    written(scene, "a.weights", seen=10**6)
    assert "left to train" in undertow("darknet", "detector", "train", scene.data, scene.cfg, "a.weights").error
    undertow("convert", scene.cfg, "a.weights", "c.weights", "-layers", 2, "-header", "old")
    assert undertow("darknet", "detector", "train", scene.data, scene.cfg, "c.weights").status == 0


def test_headers(undertow: Any, scene: Scene) -> None:
    whole = written(scene, "a.weights").read_bytes()
    undertow("convert", scene.cfg, "a.weights", "old.weights", "-header", "old")
    old = Path("old.weights").read_bytes()
    assert old[:16] == struct.pack("<3iI", 0, 1, 0, 1234)
    assert old[16:] == whole[20:]
    undertow("convert", scene.cfg, "old.weights", "new.weights", "-header", "new")
    assert Path("new.weights").read_bytes() == whole
    undertow("convert", scene.cfg, "old.weights", "same.weights")
    assert Path("same.weights").read_bytes() == old


@pytest.mark.parametrize("version", [(0, 1, 9), (0, 2, 5), (0, 3, 0), (1, 0, 0), (1000, 2, 5)])
def test_a_header_is_kept_by_convert_and_not_by_save_weights(
    undertow: Any, scene: Scene, version: tuple[int, int, int]
) -> None:
    """As the C program, which writes its own version whatever it loaded."""
    body = written(scene, "a.weights").read_bytes()[20:]
    counter = "<I" if version in {(0, 1, 9), (1000, 2, 5)} else "<Q"
    before = struct.pack("<3i", *version) + struct.pack(counter, 1234) + body
    Path("b.weights").write_bytes(before)
    assert undertow("convert", scene.cfg, "b.weights", "c.weights").status == 0
    assert Path("c.weights").read_bytes() == before
    for dialect, revision in ((EXACT, 0), (ALEXEYAB, 5)):
        darknet.load(scene.cfg, "b.weights", dialect=dialect).save_weights("d.weights")
        assert Path("d.weights").read_bytes() == struct.pack("<3iQ", 0, 2, revision, 1234) + body


def test_the_average_of_two(undertow: Any, scene: Scene) -> None:
    a, b = (np.frombuffer(written(scene, f"{n}.weights", n).read_bytes()[20:], "<f4") for n in (1, 2))
    assert undertow("convert", scene.cfg, "1.weights,2.weights", "m.weights").status == 0
    mean = np.frombuffer(Path("m.weights").read_bytes()[20:], "<f4")
    np.testing.assert_allclose(mean, (a.astype(np.float64) + b) / 2, rtol=1e-6)


def test_the_list(undertow: Any, scene: Scene) -> None:
    written(scene, "a.weights")
    lines = undertow("convert", scene.cfg, "a.weights", "-list").out.splitlines()
    assert lines[0] == "version 0.2.0, 1234 images seen, header of 20 bytes, 4 layers"
    assert lines[5].split()[:2] == ["000.convolutional.weights", "6x3x3x3"]


def test_a_file_that_is_no_safetensors(undertow: Any, scene: Scene) -> None:
    pytest.importorskip("safetensors")
    Path("x.safetensors").write_bytes(b"nothing of the kind")
    assert "x.safetensors" in undertow("convert", scene.cfg, "x.safetensors", "y.weights").error
    assert "OUT is missing" in undertow("convert", scene.cfg, "x.safetensors").error

"""The small tools on weights files: against the original program where it is installed, and against the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow.darknet import load
from undertow.darknet import weight_tools as tools
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.shapes import infer_shapes
from undertow.darknet.weight_tools import Stored, read_stored
from undertow.errors import FormatError, UndertowError, UndertowWarning

CFG = """[net]
width=16
height=16
channels=3
[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
activation=leaky
[convolutional]
filters=24
size=1
activation=linear
[avgpool]
[connected]
output=5
batch_normalize=1
activation=linear
[softmax]
"""


@pytest.fixture
def cfg(tmp_path: Path) -> Path:
    path = tmp_path / "net.cfg"
    path.write_text(CFG)
    return path


def made(cfg: Path, seed: int) -> Path:
    """A weights file with random numbers everywhere, 320 images seen."""
    net = load(cfg, seed=seed)
    rng = np.random.default_rng(seed)
    for layer in net.layers:
        for name, array in layer.arrays().items():
            array[...] = rng.standard_normal(array.shape) * 0.3
            if name.endswith(("scales", "variance")):
                array[...] = rng.random(array.shape) + 0.1
    net.seen = 320
    path = cfg.parent / f"{seed}.weights"
    net.save_weights(path)
    return path


@pytest.fixture
def stored(cfg: Path) -> Stored:
    return read_stored(read_cfg(cfg), made(cfg, 1))


def outputs(stored: Stored, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a network with these weights gives."""
    folder = Path(stored.config.file).parent
    stored.write(folder / "changed.weights")
    stored.config.write(folder / "changed.cfg")
    net = load(folder / "changed.cfg", folder / "changed.weights")
    net.predict(picture)
    result: np.ndarray[Any, Any] = net.layers[3].output.copy()
    return result


@pytest.fixture
def picture(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.random((1, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize("change", [tools.denormalize, tools.reset, tools.normalize])
def test_batch_normalisation_can_be_taken_out_and_put_in(
    stored: Stored, picture: np.ndarray[Any, Any], change: Callable[[Stored], Stored]
) -> None:
    changed = change(stored)
    assert changed.seen == 320
    assert np.allclose(outputs(changed, picture), outputs(stored, picture), atol=2e-3)
    normalized = [getattr(layer.options, "batch_normalize", None) for layer in changed.shapes]
    expected = {"denormalize": [False, False, False], "reset": [True, False, True], "normalize": [True, True, True]}
    assert [normalized[i] for i in (0, 1, 3)] == expected[change.__name__]


def test_rescaled_weights_take_the_picture_at_twice_its_size_less_one(
    stored: Stored, picture: np.ndarray[Any, Any]
) -> None:
    """Where nothing is padded: the border of zeros is not rescaled, by us or by the original."""
    with pytest.warns(UndertowWarning, match="denormalize first"):
        tools.rescale(stored)
    plain = tools.denormalize(stored)
    config = plain.config.with_values(1, {"pad": 0})
    unpadded = Stored(config, infer_shapes(config), plain.arrays, plain.seen)
    assert np.allclose(outputs(tools.rescale(unpadded), picture), outputs(unpadded, 2 * picture - 1), atol=1e-4)


def test_red_and_blue_are_exchanged(stored: Stored, picture: np.ndarray[Any, Any]) -> None:
    swapped = tools.swap_red_and_blue(stored)
    assert np.allclose(outputs(swapped, picture), outputs(stored, picture[:, ::-1]), atol=1e-5)
    assert not np.allclose(outputs(swapped, picture), outputs(stored, picture), atol=1e-3)


def test_the_average_is_that_of_every_array(cfg: Path) -> None:
    files = [read_stored(read_cfg(cfg), made(cfg, seed)) for seed in range(3)]
    mean = tools.average(files)
    assert mean.seen == 320
    for key, array in mean.arrays.items():
        assert np.allclose(array, np.mean([one.arrays[key].astype(np.float64) for one in files], axis=0), atol=1e-6)


def test_statistics_are_those_of_numpy(stored: Stored) -> None:
    found = {(layer.index, one.name): one for layer, _, ones in tools.statistics(stored) for one in ones}
    assert set(found) == {(0, "Scales"), (0, "Biases"), (0, "Weights"), (1, "Biases"), (1, "Weights"),
                          (3, "Scales"), (3, "Biases"), (3, "Weights")}  # fmt: skip
    weights = stored.arrays[1, "weights"]
    assert found[1, "Weights"].rms == pytest.approx(np.sqrt((weights**2).mean()), rel=1e-5)
    assert found[1, "Weights"].variance == pytest.approx(weights.var(), rel=1e-5)
    assert found[1, "Weights"].mean == pytest.approx(weights.mean(), rel=1e-4, abs=1e-7)


DETECTOR = """[net]
width=16
height=16
channels=3
[convolutional]
filters=4
size=3
pad=1
activation=leaky
[convolutional]
filters={filters}
size=1
activation=linear
[region]
classes=2
num=3
anchors=1,1,2,2,3,3
"""


def test_a_detector_begins_with_what_a_classifier_knows(tmp_path: Path) -> None:
    cfg, classifier = tmp_path / "detector.cfg", tmp_path / "classifier.cfg"
    cfg.write_text(DETECTOR.format(filters=21))
    classifier.write_text(DETECTOR.format(filters=2).partition("[region]")[0] + "[softmax]\n")
    source = load(classifier, seed=4)
    source.layers[1].biases[...] = (0.25, -0.5)
    source.seen = 77
    source.save_weights(tmp_path / "c.weights")
    made = tools.detector_from_classifier(read_cfg(cfg), tmp_path / "c.weights")
    weights, biases = made.arrays[1, "weights"].reshape(3, 7, 4), made.arrays[1, "biases"].reshape(3, 7)
    assert made.seen == 0
    assert np.array_equal(weights[0], weights[1])
    assert np.array_equal(weights[0], weights[2])
    assert np.array_equal(weights[2, 5:], source.layers[1].weights.reshape(2, 4))
    assert np.array_equal(biases, [[0, 0, 0, 0, 0, 0.25, -0.5]] * 3)
    assert np.array_equal(made.arrays[0, "weights"], source.layers[0].weights)
    assert 0 < np.abs(weights[0, :5]).max() < np.abs(weights[0, 5:]).max()


def test_nets_of_another_form_are_refused(cfg: Path, stored: Stored, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="oneoff wants"):
        tools.detector_from_classifier(read_cfg(cfg), tmp_path / "1.weights")
    with pytest.raises(UndertowError, match="there is no layer 9"):
        tools.repeated(read_cfg(cfg), tmp_path / "1.weights", 9)
    grey = tmp_path / "grey.cfg"
    grey.write_text(CFG.replace("channels=3", "channels=1"))
    with pytest.raises(FormatError, match="three channels"):
        tools.rescale(read_stored(read_cfg(grey), made(grey, 5)))
    short = tmp_path / "short.weights"
    short.write_bytes((tmp_path / "1.weights").read_bytes()[: 20 + 4 * (8 * 4 + 216)])
    with (
        pytest.warns(UserWarning, match="partial file"),
        pytest.raises(FormatError, match="holds nothing for 'biases'"),
    ):
        read_stored(read_cfg(cfg), short)


@pytest.mark.darknet_program
@pytest.mark.skipif(shutil.which("darknet") is None, reason="the original darknet program is not installed")
@pytest.mark.parametrize("name", ["denormalize", "reset", "rgbgr", "rescale", "oneoff2"])
def test_the_original_program_writes_the_same_file(cfg: Path, stored: Stored, name: str) -> None:
    theirs = cfg.parent / "theirs.weights"
    more = ["0"] if name == "oneoff2" else []
    subprocess.run(
        ["darknet", name, cfg, cfg.parent / "1.weights", theirs, *more],
        cwd=cfg.parent, capture_output=True, check=True, timeout=60, env=os.environ,
    )  # fmt: skip
    change: dict[str, Callable[[Stored], Stored]] = {
        "denormalize": tools.denormalize,
        "reset": tools.reset,
        "rgbgr": tools.swap_red_and_blue,
        "rescale": tools.rescale,
        "oneoff2": lambda _: tools.repeated(read_cfg(cfg), cfg.parent / "1.weights", 0),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndertowWarning)
        ours = change[name](stored)
    found = read_stored(ours.config, theirs)
    assert (found.seen, set(found.arrays)) == (ours.seen, set(ours.arrays))
    for key, array in ours.arrays.items():
        # Sums of its rescale are added in the order its compiler chose.
        assert np.allclose(array, found.arrays[key], rtol=0, atol=1e-6 if name == "rescale" else 0)

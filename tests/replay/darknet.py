"""Replaying traces of Darknet: training passes, boxes, weights files, learning rates, resized networks."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.replay.compare import Comparison
from tests.replay.darknet_pictures import replay_augmentation, replay_images, replay_operations
from undertow.core.modes import precision
from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.nms import do_nms_obj, do_nms_sort
from undertow.darknet.dialect import DARKNET_CPU
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.options import read_net_options
from undertow.darknet.files.weights_header import LONG_HEADER
from undertow.darknet.layers.layer import Layer
from undertow.darknet.network import Network, learning_rate_policy
from undertow.data.crand import GlibcRandom

TOLERANCE = 1e-5
DEEP_TOLERANCE = 1e-3  # whole networks (e2e_*): float32 sums in another order, amplified by batch norm

RAND_SEED = 1234  # srand() before the first pass

Arrays = dict[str, np.ndarray]
Case = dict[str, Any]

_LAYER_KEY = re.compile(r"layer(\d+)/(.+)")


def case_folders(folder: Path) -> list[Path]:
    """Folders with a recorded case, in order."""
    if (folder / "case.json").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/case.json"))


def replay(folder: Path) -> Comparison:
    """Replay one case folder. Raises KeyError for a kind of case that is not known."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    arrays = load_trace(folder)
    # Where the original's own rounding moved a number further, a model in float64 has measured by how much.
    tolerance = max(TOLERANCE, 2 * case.get("float64_model_error", 0.0))
    result = Comparison(DEEP_TOLERANCE if folder.name.startswith("e2e_") else tolerance)
    with precision("reference"):
        KINDS[case.get("kind", "trace")](folder, case, arrays, result)
    return result


def load_trace(folder: Path) -> Arrays:
    """All arrays of a case."""
    with np.load(folder / "trace.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def load_network(folder: Path) -> Network:
    """The case's network as the 2018 program reads it, with its initial parameters."""
    network = Network(read_cfg(folder / "net.cfg", original=True), DARKNET_CPU)
    network.load_weights(folder / "init.weights")
    return network


def replay_trace(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """An inference pass, then training passes with their updates."""
    network = load_network(folder)
    if any(name.startswith("infer/") for name in arrays):
        images = arrays.get("infer/input", arrays.get("it0/input"))
        network.predict(images)
        compare_layers(network, arrays, "infer/", result)
    if not case.get("trained", True):
        return
    network.reset_state()
    network.seen = int(arrays["meta/seen"])
    network.draws.source = GlibcRandom(RAND_SEED)
    for name, expected in (("meta/batch", network.batch), ("meta/subdivisions", network.subdivisions)):
        result.text(name, expected, int(arrays[name]))
    for number in range(case["passes"]):
        replay_pass(network, arrays, f"it{number}/", result)


def replay_pass(network: Network, arrays: Arrays, prefix: str, result: Comparison) -> None:
    """train_datum taken apart, so that the accumulators can be seen just before the update."""
    network.seen += network.batch
    network.forward(arrays[f"{prefix}input"], arrays[f"{prefix}truth"])
    network.backward()
    result.arrays(f"{prefix}seen", network.seen, arrays[f"{prefix}seen"])
    result.arrays(f"{prefix}cost", network.cost, arrays[f"{prefix}cost"])
    compare_layers(network, arrays, prefix, result)
    updated = (network.seen // network.batch) % network.subdivisions == 0
    result.text(f"{prefix}updated", updated, bool(arrays[f"{prefix}updated"]))
    if updated:
        result.arrays(f"{prefix}lr", network.learning_rate, arrays[f"{prefix}lr"])
        network.update()
    compare_layers(network, arrays, f"{prefix}post/", result)


def compare_layers(network: Network, arrays: Arrays, prefix: str, result: Comparison) -> None:
    """Every recorded array of every layer under this prefix."""
    scales = layer_scales(arrays, prefix)
    for name, recorded in arrays.items():
        match = _LAYER_KEY.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match is None:
            continue
        index = int(match[1])
        ours = layer_array(network.layers[index], match[2])
        is_gradient = match[2].endswith("updates") or match[2] == "delta"
        result.arrays(name, ours, recorded, scales.get((index, is_gradient)))


def layer_scales(arrays: Arrays, prefix: str) -> dict[tuple[int, bool], float]:
    """The largest value among each layer's gradients, and among its other arrays."""
    scales: dict[tuple[int, bool], float] = {}
    for name, array in arrays.items():
        match = _LAYER_KEY.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match and array.dtype.kind == "f" and array.size:
            key = int(match[1]), match[2].endswith("updates") or match[2] == "delta"
            scales[key] = max(scales.get(key, 0.0), float(np.nanmax(np.abs(array))))
    return scales


def layer_array(layer: Layer, name: str) -> Any:
    """One of a layer's arrays by its recorded name, in the original's layout; `inner/name` for inner layers."""
    if name == "loss":
        return layer.element_loss
    return functools.reduce(getattr, name.split("/"), layer)


def replay_boxes(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """Boxes of a network's heads before and after both kinds of suppression."""
    network = load_network(folder)
    network.predict(arrays["input"])
    compare_layers(network, arrays, "", result)
    candidates = network.candidates((case["image_w"], case["image_h"]), case["thresh"], relative=bool(case["relative"]))
    result.text("count", len(candidates.boxes), int(arrays["count"]))
    for stage, suppress in SUPPRESSIONS.items():
        kept = suppress(candidates, case["nms"])
        result.arrays(f"{stage}/bbox", kept.boxes, arrays[f"{stage}/bbox"])
        result.arrays(f"{stage}/objectness", kept.objectness, arrays[f"{stage}/objectness"])
        result.arrays(f"{stage}/prob", kept.probabilities, arrays[f"{stage}/prob"])


def replay_rates(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """The learning rate of every policy at many values of `seen`."""
    for name in sorted({key.partition("/")[0] for key in arrays}):
        options = read_net_options(read_cfg(folder / f"{name}.cfg", original=True))
        numbers = arrays[f"{name}/seen"] // (options.pass_batch * options.subdivisions)
        drawn = iter(arrays.get(f"{name}/uniform", ()))
        policy = learning_rate_policy(options, draw=lambda number, drawn=drawn: float(next(drawn)))
        result.arrays(f"{name}/batch_num", numbers, arrays[f"{name}/batch_num"])
        result.arrays(f"{name}/rate", [policy(int(number)) for number in numbers], arrays[f"{name}/rate"])


def replay_weights(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """Loading in every way, and saving; a tag names its files, net.cfg and v02.weights stand in where it has none."""
    if not any("/after/" in name for name in arrays):
        return _replay_file_order(folder, arrays, result)
    for tag in sorted({name.partition("/")[0] for name in arrays} - {"before"}):
        network = _network_before(folder, _first_file(folder, f"{tag}.cfg", FLAGGED.get(tag, "net.cfg")), arrays)
        network.load_weights(_first_file(folder, f"{tag}.weights", "v02.weights"), **LAYER_RANGES.get(tag, {}))
        result.arrays(f"{tag}/seen", network.seen, arrays[f"{tag}/seen"])
        compare_layers(network, arrays, f"{tag}/after/", result)
    for path in sorted(folder.glob("*_saved_*.weights")):
        tag, _, how = path.stem.partition("_saved_")
        network = _network_before(folder, folder / "net.cfg", arrays)
        network.load_weights(folder / f"{tag}.weights")
        network.seen *= how != "clear"
        _compare_saved(network, path, result, cutoff=2 if how == "upto" else None)
    if (folder / "dontsave_full.weights").is_file():
        flagged = _network_before(folder, folder / "flags.cfg", arrays)
        flagged.load_weights(folder / "v02.weights")
        _compare_saved(flagged, folder / "dontsave_full.weights", result)
    return None


# Where a tag's name does not say which cfg or which layers it is about.
FLAGGED = {"dontload": "flags.cfg"}
LAYER_RANGES: dict[str, dict[str, int]] = {"cutoff2": {"cutoff": 2}, "start1_cutoff3": {"start": 1, "cutoff": 3}}


def _replay_file_order(folder: Path, arrays: Arrays, result: Comparison) -> None:
    """Each layer's arrays where the original found them, and the same file when saved again."""
    network = load_network(folder)
    compare_layers(network, arrays, "", result)
    _compare_saved(network, folder / "init.weights", result)


def _network_before(folder: Path, cfg: Path, arrays: Arrays) -> Network:
    """The network with the parameters it had before loading."""
    network = Network(read_cfg(cfg, original=True), DARKNET_CPU)
    for name, array in arrays.items():
        match = _LAYER_KEY.fullmatch(name.removeprefix("before/"))
        if match and name.startswith("before/"):
            network.layers[int(match[1])].arrays()[match[2]][...] = array
    return network


def _compare_saved(network: Network, recorded: Path, result: Comparison, cutoff: int | None = None) -> None:
    """Byte for byte, except layers that no file has filled: there the original saved its random start."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "saved.weights"
        network.save_weights(path, cutoff=cutoff)
        ours, theirs = bytearray(path.read_bytes()), bytearray(recorded.read_bytes())
    result.text(f"length of {recorded.name}", len(ours), len(theirs))
    offset = LONG_HEADER
    for shape in network.shapes:
        end = offset + 4 * (0 if shape.options.dontsave else shape.stored)
        if shape.options.dontload:
            ours[offset:end] = theirs[offset:end]
        offset = end
    result.text(f"{recorded.name} byte for byte", ours == theirs, True)


def _first_file(folder: Path, *names: str) -> Path:
    return next(folder / name for name in names if (folder / name).is_file())


def replay_resize(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """Inference after resize_network."""
    network = load_network(folder)
    network.resize(case["resize_w"], case["resize_h"])
    network.predict(arrays["infer/input"])
    compare_layers(network, arrays, "infer/", result)


SUPPRESSIONS: dict[str, Callable[[Candidates, float], Candidates]] = {
    "raw": lambda candidates, threshold: candidates,
    "nms_sort": do_nms_sort,
    "nms_obj": do_nms_obj,
}
KINDS: dict[str, Callable[[Path, Case, Arrays, Comparison], None]] = {
    "trace": replay_trace,
    "augment": replay_augmentation,
    "boxes": replay_boxes,
    "images": replay_images,
    "ops": replay_operations,
    "rates": replay_rates,
    "resize": replay_resize,
    "weights": replay_weights,
}

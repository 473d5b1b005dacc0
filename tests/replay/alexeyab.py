"""Replaying traces of AlexeyAB's fork: inference, boxes, pictures, overlap measures, folded batch norm, rates, files.

Training in the fork's losses is not compared: of a case's passes only the rates are.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.replay import darknet
from tests.replay.compare import Comparison
from undertow.core.modes import no_grad, precision, test_mode
from undertow.core.variable import Variable
from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.boxes_measures import MEASURES, box_diounms
from undertow.darknet.detection.nms import do_nms, do_nms_obj, do_nms_sort
from undertow.darknet.dialect import ALEXEYAB
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.fold import fold_batch_norm
from undertow.darknet.layers.layer import Pass
from undertow.darknet.network import Network
from undertow.data.resize import letterbox_image, resize_image

case_folders = darknet.case_folders

Arrays = dict[str, np.ndarray]
Case = dict[str, Any]

# Nothing of these can be compared before the fork's training is here.
_TRAINING_ONLY = ("ema",)


def replay(folder: Path) -> Comparison | None:
    """Replay one case folder; None for one that is about training only."""
    if folder.name in _TRAINING_ONLY:
        return None
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    arrays = darknet.load_trace(folder)
    result = Comparison(max(darknet.TOLERANCE, 2 * case.get("float64_model_error", 0.0)))
    kind = next((kind for name, kind in KINDS.items() if folder.name.startswith(name)), replay_trace)
    with precision("reference"):
        kind(folder, case, arrays, result)
    return result


def load_network(folder: Path) -> Network:
    """The case's network with its initial parameters."""
    network = Network(read_cfg(folder / "net.cfg"), ALEXEYAB)
    network.load_weights(folder / "init.weights")
    return network


def replay_trace(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """Every layer's output at inference, the rate of every pass, the weights file saved again.

    A case without an inference pass has the outputs of its first training pass, which are the same without batch norm.
    """
    network = load_network(folder)
    _compare_saved(network, folder / "init.weights", result)
    prefix = "infer/" if any(name.startswith("infer/") for name in arrays) else "it0/"
    images = arrays["infer/input" if "infer/input" in arrays else "it0/input"]
    expected = WRONG.get(folder.name)
    if expected is None:
        network.predict(images)
        _compare_outputs(network, arrays, prefix, result)
    else:
        _layer_by_layer(network, images, arrays, expected(network, arrays), result)
    network.seen = int(arrays.get("meta/seen", 0))
    for number in range(case.get("passes", 0)):
        network.seen += network.batch
        if f"it{number}/lr" in arrays and bool(arrays.get(f"it{number}/updated", True)):
            result.arrays(f"it{number}/lr", network.learning_rate, arrays[f"it{number}/lr"])


def _compare_outputs(network: Network, arrays: Arrays, prefix: str, result: Comparison) -> None:
    for layer in network.layers:
        for name in ("output", "cell"):
            recorded = arrays.get(f"{prefix}layer{layer.index:02d}/{name}")
            if recorded is not None and (name == "output" or prefix == "infer/"):
                ours = getattr(layer, name)[: len(recorded)]  # of lean cases only the first image
                result.arrays(f"{prefix}layer{layer.index:02d}/{name}", ours, recorded.reshape(ours.shape))


def _layer_by_layer(
    network: Network, images: np.ndarray, arrays: Arrays, expected: dict[int, np.ndarray], result: Comparison
) -> None:
    """Each layer on the recorded output of those before; where the record is wrong, against the right value."""
    run = Pass(None, False, False, {}, (network.w, network.h))
    x = Variable(images)
    with no_grad(), test_mode():
        for layer in network.layers:
            y = layer.run(x, run, detached=False)
            name = f"infer/layer{layer.index:02d}/output"
            right = expected.get(layer.index, arrays[name])
            result.arrays(name, y.data.reshape(right.shape), right)
            x = Variable(arrays[name].reshape(y.shape))
            run.outputs.append(x)


def _pooled_in_training(network: Network, arrays: Arrays) -> dict[int, np.ndarray]:
    """The AVX code of inference misses parts of windows; the training pass on the same input does not."""
    return {
        layer.index: arrays[f"it0/layer{layer.index:02d}/output"] for layer in network.layers if layer.type == "maxpool"
    }


def _activated(network: Network, arrays: Arrays) -> dict[int, np.ndarray]:
    """Recorded as zeros; the formulas, in float64, of what the layer before gave."""
    formulas: dict[str, Callable[[float], float]] = {
        "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
        "swish": lambda x: x / (1 + math.exp(-x)),
        "relu6": lambda x: min(max(x, 0.0), 6.0),
    }
    right = {}
    for layer in network.layers:
        if layer.type == "activation":
            given = arrays[f"infer/layer{layer.index - 1:02d}/output"].astype(np.float64)
            right[layer.index] = np.vectorize(formulas[layer.activation])(given)
    return right


# Cases whose record is itself wrong: from network and record to the right outputs of the layers concerned.
WRONG: dict[str, Callable[[Network, Arrays], dict[int, np.ndarray]]] = {
    "maxpool_spp_wide": _pooled_in_training,
    "act_layer_mish": _activated,
}


def _compare_saved(network: Network, recorded: Path, result: Comparison) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "saved.weights"
        network.save_weights(path)
        result.text(f"{recorded.name} byte for byte", path.read_bytes() == recorded.read_bytes(), True)


def replay_boxes(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """The boxes of a network's heads, raw and after every kind of suppression."""
    network = load_network(folder)
    network.predict(arrays["input"])
    _compare_outputs(network, arrays, "", result)
    width, height = case["image"]
    found = network.candidates(
        (width, height), case["thresh"], relative=bool(case["relative"]), letterbox=bool(case["letter"])
    )
    result.text("count", len(found), int(arrays["count"]))
    for stage, kept in _suppressed(found, case["nms"], float(arrays["beta_nms"])):
        result.arrays(f"{stage}/bbox", kept.boxes, arrays[f"{stage}/bbox"])
        result.arrays(f"{stage}/objectness", kept.objectness, arrays[f"{stage}/objectness"])
        result.arrays(f"{stage}/prob", kept.probabilities, arrays[f"{stage}/prob"])
        if f"{stage}/uc" in arrays:
            result.arrays(f"{stage}/uc", kept.uncertainties, arrays[f"{stage}/uc"])


def _suppressed(found: Candidates, threshold: float, beta: float) -> Iterator[tuple[str, Candidates]]:
    yield "raw", found
    yield "nms_sort", do_nms_sort(found, threshold)
    yield "nms_obj", do_nms_obj(found, threshold)
    for kind in ("greedynms", "diounms", "cornersnms"):
        yield kind, do_nms(found, threshold, kind, beta)


def replay_measures(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """The measures themselves; their derivatives belong to training."""
    one, other = arrays["box/pred"], arrays["box/truth"]
    for name, measure in MEASURES.items():
        result.arrays(f"{name}/value", measure(one, other), arrays[f"{name}/value"])
    for name, beta in (("diounms_beta.6", 0.6), ("diounms_beta1", 1.0)):
        result.arrays(f"{name}/value", box_diounms(one, other, beta), arrays[f"{name}/value"])


def replay_pictures(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """OP_WxH of `image`."""
    for name in arrays.keys() - {"image"}:
        operation, _, size = name.partition("_")
        width, height = map(int, size.split("x"))
        fit = {"resize": resize_image, "letterbox": letterbox_image}[operation]
        result.arrays(name, fit(arrays["image"], width, height), arrays[name])


def replay_fold(folder: Path, case: Case, arrays: Arrays, result: Comparison) -> None:
    """Outputs before and after batch norm went into the convolutions, and the parameters then."""
    network = load_network(folder)
    network.predict(arrays["infer/input"])
    _compare_outputs(network, arrays, "infer/", result)
    fold_batch_norm(network)
    network.predict(arrays["infer/input"])
    _compare_outputs(network, arrays, "fused/", result)
    for layer in network.layers:
        for name, array in layer.arrays().items():
            recorded = arrays[f"fused/layer{layer.index:02d}/{name}"]
            result.arrays(f"fused/layer{layer.index:02d}/{name}", array.reshape(recorded.shape), recorded)


# By the beginning of the folder's name.
KINDS: dict[str, Callable[[Path, Case, Arrays, Comparison], None]] = {
    "boxes_": replay_boxes,
    "fuse": replay_fold,
    "image_ops": replay_pictures,
    "iou": replay_measures,
}

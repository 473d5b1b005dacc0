"""Replaying what was recorded through Caffe's Python classes: NetSpec and Classifier."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import undertow.caffe as caffe
from tests.replay.caffe import Closeness
from undertow.caffe.proto import parse_text

# The case does not say how its pictures were prepared; this gives the recorded probabilities to all digits.
_PREPROCESSING = {"image_dims": (8, 8), "channel_swap": (2, 1, 0), "mean": np.array([0.2, 0.25, 0.3])}


def kind_of(folder: Path) -> Callable[[Path, Closeness], None] | None:
    """How a case is replayed; None for those that were recorded otherwise."""
    if (folder / "spec.py").is_file():
        return replay_spec
    return replay_classifier if (folder / "classifier.npz").is_file() else None


def replay_spec(folder: Path, result: Closeness) -> None:
    """The text of the nets that spec.py describes."""
    caffe.install()
    spec = importlib.util.spec_from_file_location("recorded_net_spec", folder / "spec.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for text, name in zip(module.build(), ("net_spec", "to_proto"), strict=True):
        # How many digits floats have in the text is up to the version of protobuf, so both are printed anew.
        recorded = parse_text((folder / f"{name}.prototxt").read_text(encoding="utf-8"), "NetParameter")
        result.text(name, parse_text(text, "NetParameter").to_text(), recorded.to_text())


def replay_classifier(folder: Path, result: Closeness) -> None:
    """Predictions with and without oversampling."""
    from tests.replay.caffe import replay_pass

    replay_pass(folder, result)
    with np.load(folder / "classifier.npz", allow_pickle=False) as archive:
        recorded = {name: archive[name] for name in archive.files}
    classifier = caffe.Classifier("net.prototxt", "init.caffemodel", **_PREPROCESSING)
    images = list(recorded["images"])
    result.arrays("center", classifier.predict(images, oversample=False), recorded["center"])
    result.arrays("oversample", classifier.predict(images), recorded["oversample"])

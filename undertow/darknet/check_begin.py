"""Whether a training begins at all: for `check`, it is made ready as its command would make it, and not run."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from undertow.darknet.check_labels import is_segmenter
from undertow.darknet.classifier_runs import classifier_training
from undertow.darknet.files.options_heads import DetectionOptions, IsegOptions, RegionOptions, YoloOptions
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.learning.trainer import Trainer
from undertow.darknet.rnn_runs import rnn_training
from undertow.darknet.runs import training
from undertow.darknet.segmenter_runs import segmenter_training
from undertow.errors import UndertowError, UndertowWarning
from undertow.findings import Report

# Sizes change every 10 or 40 iterations: among so many is another than the first.
_LOOKED_AT = 1000
PathLike = str | os.PathLike[str]


def check_beginning(
    report: Report, cfg: PathLike, data: PathLike, weights: PathLike | None, shapes: NetworkShapes, tokenized: bool
) -> None:
    """What a training refuses before its first iteration, as a finding; nothing is written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndertowWarning)  # what is odd is told by the other checks
        try:
            trainer = _made_ready(cfg, data, weights, shapes, tokenized)
            _check_folder(report, trainer.output.folder)
            _take_another_size(trainer)
        except UndertowError as problem:
            report.add("error", "training", str(problem))


def _made_ready(
    cfg: PathLike, data: PathLike, weights: PathLike | None, shapes: NetworkShapes, tokenized: bool
) -> Trainer:
    if any(isinstance(shape.options, YoloOptions | RegionOptions | DetectionOptions) for shape in shapes):
        return training(data, cfg, weights)
    if is_segmenter(shapes):
        return segmenter_training(data, cfg, weights, instances=isinstance(shapes[-1].options, IsegOptions))
    if shapes.net.channels:
        return classifier_training(data, cfg, weights)
    return rnn_training(cfg, data, weights, tokenized=tokenized)


def _take_another_size(trainer: Trainer) -> None:
    """Resize the net once if the training would (random=1). Raises UndertowError for one that only fits one size."""
    net = trainer.net
    sizes = (trainer.size_at(iteration) for iteration in range(0, _LOOKED_AT, 10))
    other = next((size for size in sizes if size != (net.w, net.h)), None)
    if other is not None:
        net.resize(*other)


def _check_folder(report: Report, folder: Path) -> None:
    """The folder for weights, which the training makes where it is missing."""
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        report.add(
            "error", "data", f"backup={folder}: {there} is no folder. To mend it: correct backup= in the .data file"
        )
    elif there is not None and not os.access(there, os.W_OK | os.X_OK):
        report.add(
            "error", "data", f"backup={folder}: nothing can be written to {there}. To mend it: correct its permissions"
        )

"""From files to networks and runs: what the commands and the Python functions of the same names share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from undertow.darknet.detection.evaluate import Evaluation
from undertow.darknet.detection.pictures import Tick
from undertow.darknet.detection.validation import ValidationSet
from undertow.darknet.dialect import Dialect, dialect_named
from undertow.darknet.files.batch_norms import check_batch_norms
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.choice import check_trainable, choose_dialect
from undertow.darknet.files.datafile import DataFile, read_data
from undertow.darknet.files.imagelist import ImageList, read_image_list
from undertow.darknet.files.labels import LabelReader
from undertow.darknet.files.names import read_names
from undertow.darknet.files.shapes import check_memory
from undertow.darknet.layers.layers_heads import BoxHead, Detection
from undertow.darknet.layers.layers_loss import HeadLayer
from undertow.darknet.learning.dataset import TrainingSet
from undertow.darknet.learning.recovery import Beginning, load_beginning
from undertow.darknet.learning.trainer import (
    Output,
    Trainer,
    TrainingWatcher,
    TrainOptions,
    TrainResult,
    Validator,
    check_length,
    detection_head,
)
from undertow.darknet.network import Network
from undertow.data.augment import Colours, DetectionOptions
from undertow.data.augment_grid import Grid
from undertow.errors import FormatError, UndertowWarning

PathLike = str | os.PathLike[str]


def load(
    cfg: PathLike,
    weights: PathLike | None = None,
    *,
    names: PathLike | Sequence[str] | None = None,
    dialect: Dialect | str | None = None,
    seed: int = 0,
    strict: bool = False,
) -> Network:
    """The network of a cfg, with the parameters of a .weights file.

    names: of the classes, as a list or a .names file; detections carry them. dialect: one of `DIALECTS`, or its
    name; chosen from the file unless given. seed: of the parameters that no file gives. strict: oddities are errors.
    Raises FormatError, with file and line or byte, for files that cannot be used.
    """
    config = read_cfg(cfg, strict)
    if isinstance(dialect, str):
        dialect = dialect_named(dialect)
    chosen, why = (dialect, "") if dialect else choose_dialect(config, weights)
    net = Network(config, chosen, seed=seed)
    net.dialect_reason = why
    if weights is not None:
        net.load_weights(weights, strict=strict)
    if isinstance(names, (str, os.PathLike)):
        heads = [layer for layer in net.layers if isinstance(layer, HeadLayer)]
        names = read_names(names, heads[-1].classes if heads else None, strict)
    net.names = tuple(names or ())
    return net


def training(
    data: PathLike,
    cfg: PathLike,
    weights: PathLike | None = None,
    options: TrainOptions | None = None,
    *,
    dialect: Dialect | None = None,
    watcher: TrainingWatcher | None = None,
    strict: bool = False,
) -> Trainer:
    """A Trainer for the pictures of a .data file, ready to `run`.

    weights: parameters to begin with; the momentum that stands beside a NAME.backup is taken too. watcher: is told
    what happens. Weights go to the folder of backup= (made when missing), named after the cfg.
    Raises FormatError for files that cannot be used, UndertowError when these weights have nothing left to learn.
    """
    options, watcher = options or TrainOptions(), watcher or TrainingWatcher()
    source = read_data(data, strict)
    net, begun = network_to_train(cfg, weights, options, dialect, watcher, strict, detection_head)
    head = detection_head(net)
    net.names = class_names(source, head, required=False)
    pictures = _training_set(source, net, head, options, strict)
    validator = _validator(source, net, options) if options.validate else None
    for note in (*source.notes, *_findings(pictures)):
        watcher.note(note)
    return Trainer(net, pictures, _output(source, cfg), options, validator=validator, watcher=watcher).begin_with(begun)


def network_to_train(
    cfg: PathLike,
    weights: PathLike | None,
    options: TrainOptions,
    dialect: Dialect | None,
    watcher: TrainingWatcher,
    strict: bool,
    check: Callable[[Network], object],
) -> tuple[Network, Beginning | None]:
    """The network of a cfg that has something left to learn, and what its weights were; errors as for `training`.

    check: raises an error for a network of another kind, before its weights are read.
    """
    if dialect is None:
        # By the cfg alone: the weights may be another network's first layers, to begin with.
        dialect, why = choose_dialect(read_cfg(cfg, strict))
        watcher.note(f"dialect {dialect.name}: {why}")
    net = load(cfg, dialect=dialect, seed=options.seed, strict=strict)
    check_trainable(net.config, dialect)
    check_batch_norms(net.config, net.shapes, dialect)
    check(net)
    begun = None
    if weights is not None:
        begun = load_beginning(weights, net, strict, alone=options.clear)
        for remark in begun.remarks:
            watcher.note(remark)
        layers = f"{len(begun.found.loaded_layers)} of {len(begun.found.wanted_layers)} layers"
        watcher.note(f"loaded {begun.path}: {layers}, {begun.found.seen} images seen")
    if options.clear:
        net.seen = 0
    check_length(net)
    check_memory(net.shapes, training=True)
    return net, begun


def train(
    data: PathLike,
    cfg: PathLike,
    weights: PathLike | None = None,
    options: TrainOptions | None = None,
    *,
    dialect: Dialect | None = None,
    watcher: TrainingWatcher | None = None,
    strict: bool = False,
) -> TrainResult:
    """Train a detector up to max_batches; arguments and errors as for `training`."""
    return training(data, cfg, weights, options, dialect=dialect, watcher=watcher, strict=strict).run()


def validate(
    data: PathLike,
    cfg: PathLike,
    weights: PathLike | None = None,
    *,
    dialect: Dialect | None = None,
    iou_threshold: float = 0.5,
    points: int = 0,
    confidence: float = 0.25,
    tick: Tick | None = None,
    strict: bool = False,
) -> Evaluation:
    """Average precisions of a detector on the pictures of valid=; see `ValidationSet.measure`."""
    source = read_data(data, strict)
    net = load(cfg, weights, dialect=dialect, strict=strict)
    pictures = validation_set(source, net)
    return pictures.measure(net, iou_threshold=iou_threshold, points=points, confidence=confidence, tick=tick)


def validation_set(source: DataFile, net: Network) -> ValidationSet:
    """The pictures of valid= with their boxes, for this network."""
    head = detection_head(net)
    names = class_names(source, head)
    images = listed(source, "valid")
    return ValidationSet(images.paths, names, LabelReader(_label_classes(head), strict=source.strict))


def listed(source: DataFile, name: str) -> ImageList:
    """The pictures of train=, valid= or test=, with a warning for each that is not there."""
    images = source.read_images(name)
    for issue in images.issues:
        warnings.warn(UndertowWarning(str(issue)), stacklevel=2)
    return images


def class_names(source: DataFile, head: BoxHead, required: bool = True) -> list[str]:
    """The names of a .data file, one for each class of the head. Without names=: an error, or numbers."""
    options = source.options
    if options.classes is not None and options.classes != head.classes and head.class_map is None:
        message = f"{source.file} says classes={options.classes}, the cfg {head.classes}; the cfg counts"
        warnings.warn(UndertowWarning(message), stacklevel=2)
    if not required and options.names is None and options.labels is None:
        return [str(number) for number in range(head.classes)]
    return source.read_names(head.classes)


def base_name(cfg: PathLike) -> str:
    """The file name up to its first point, as the original names its weights (basecfg)."""
    return os.path.basename(os.fspath(cfg)).split(".")[0]


def _training_set(source: DataFile, net: Network, head: BoxHead, options: TrainOptions, strict: bool) -> TrainingSet:
    given = net.options
    colours = Colours(given.hue, given.saturation, given.exposure)
    try:
        augmentation = DetectionOptions(head.given.jitter, colours, given.flip and options.mirror)
    except ValueError as problem:
        remedy = "correct jitter, hue, saturation or exposure"
        raise FormatError(str(problem), file=net.config.file, line=head.shape.line, remedy=remedy) from problem
    return TrainingSet(
        read_image_list(source.path("train"), strict),
        LabelReader(_label_classes(head), (net.w, net.h), strict=strict),
        augmentation,
        seed=options.seed,
        boxes=head.max_boxes,
        channels=net.c,
        strict=strict,
        grid=grid_of(head),
    )


def grid_of(head: BoxHead) -> Grid | None:
    """The cells of a head whose truth is a grid, None for a list of boxes."""
    return Grid(head.side, head.classes) if isinstance(head, Detection) else None


def _label_classes(head: BoxHead) -> int:
    """How many classes the labels may use; a map turns them into the head's."""
    return head.classes if head.class_map is None else len(head.class_map)


def _validator(source: DataFile, net: Network, options: TrainOptions) -> Validator:
    pictures = validation_set(source, net)
    return lambda net: pictures.measure(net, iou_threshold=options.iou_threshold, confidence=options.confidence)


def _output(source: DataFile, cfg: PathLike) -> Output:
    return Output(Path(source.folder("backup", "backup")), base_name(cfg))


def _findings(pictures: TrainingSet) -> list[str]:
    """What the lists and labels held, for the log."""
    lines = [f"{len(pictures)} pictures to learn from; {pictures.labels.summary.lines()[0]}"]
    lines += [line.strip() for line in pictures.labels.summary.lines()[1:]]
    if pictures.missing:
        lines.append(f"{len(pictures.missing)} pictures of the list are not there, the first: {pictures.missing[0]}")
    if pictures.crowded:
        lines.append(
            f"{pictures.crowded} pictures hold more than the {pictures.boxes_in_truth} boxes that count (max=)"
        )
    return lines

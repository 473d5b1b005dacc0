"""What is wrong with a cfg, its weights and its data set, told before a training begins."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import replace

import numpy as np

from undertow.darknet.check_begin import check_beginning
from undertow.darknet.check_labels import (
    check_classes,
    check_lists,
    check_masks,
    is_segmenter,
    listed,
    of_classes,
    some,
)
from undertow.darknet.check_text import check_text, is_meant_as_text
from undertow.darknet.detection.anchors import calc_anchors, iou_of_sizes
from undertow.darknet.files.batch_norms import check_batch_norms
from undertow.darknet.files.cfg import Config, read_cfg
from undertow.darknet.files.choice import check_trainable, choose_dialect
from undertow.darknet.files.datafile import DataFile, read_data
from undertow.darknet.files.imagelist import ImageList
from undertow.darknet.files.labels import LabelReader
from undertow.darknet.files.memory import PROCESS
from undertow.darknet.files.options_heads import DetectionOptions, RegionOptions, YoloOptions
from undertow.darknet.files.paths import named_file
from undertow.darknet.files.shapes import NetworkShapes, bytes_text, check_memory, infer_shapes
from undertow.darknet.files.weights import WeightsFile, read_weights
from undertow.darknet.learning import classifier, trainer
from undertow.darknet.network import Network
from undertow.data.images import check_image
from undertow.errors import FormatError, UndertowError, UndertowWarning
from undertow.findings import Report

PathLike = str | os.PathLike[str]
HeadOptions = YoloOptions | RegionOptions | DetectionOptions

# Below this average, boxes are far from every anchor; below this overlap, one box is.
POOR_FIT, REACHED = 0.6, 0.5
# Multiply-adds of a step: forward, and about twice as many back. A rate that a common core reaches.
_PASSES, _ASSUMED_GFLOPS = 3, 50.0


def check(
    cfg: PathLike,
    data: PathLike | None = None,
    weights: PathLike | None = None,
    *,
    measure: bool = True,
    tokenized: bool = False,
) -> Report:
    """Look at everything a training with these files would need; nothing is written.

    data: a .data file, of a net for texts the text. tokenized: it holds numbers with blanks between them.
    measure: take real training steps on noise for the time of an iteration; otherwise it is estimated from
    the operations. Problems are findings, not exceptions.
    """
    report = Report()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UndertowWarning)
        try:
            config = read_cfg(cfg)
            dialect, why = choose_dialect(config)
            shapes = infer_shapes(config, fork=dialect.fork or None)
            report.add(
                "note", "cfg", f"{len(shapes)} layers, {shapes.parameters:,} parameters, dialect {dialect.name}: {why}"
            )
            check_trainable(config, dialect)
            check_batch_norms(config, shapes, dialect)
        except UndertowError as problem:
            report.add("error", "cfg", str(problem))
        else:
            _check_schedule(report, config, shapes)
            _check_masks(report, shapes)
            _check_named_files(report, shapes)
            if weights:
                _check_weights(report, weights, shapes)
            if data and shapes.net.channels and not is_meant_as_text(data, shapes):
                _check_data(report, data, shapes)
            elif data and not check_text(report, data, shapes, tokenized):
                data = None
            _check_cost(report, config, shapes, measure)
            if data and not report.errors:
                check_beginning(report, cfg, data, weights, shapes, tokenized)
    for message in dict.fromkeys(str(entry.message) for entry in told if issubclass(entry.category, UndertowWarning)):
        report.add("warning", "files", message)
    return report


def _heads(shapes: NetworkShapes) -> list[tuple[int, HeadOptions]]:
    return [(shape.line or 0, shape.options) for shape in shapes if isinstance(shape.options, HeadOptions)]


def _check_schedule(report: Report, config: Config, shapes: NetworkShapes) -> None:
    options = shapes.net
    report.numbers |= {"batch": options.batch, "subdivisions": options.subdivisions, "max_batches": options.max_batches}
    if options.channels:
        text = f"{options.batch} pictures in an iteration, {options.pass_batch} at once (subdivisions)"
    else:
        text = (
            f"{options.batch} streams of {options.time_steps} samples in an iteration, {options.pass_batch} samples "
            "at once (time_steps, subdivisions)"
        )
    report.add("note", "schedule", text)
    if options.max_batches <= 0:
        report.add(
            "error", "schedule", f"{config.file}:{config.net.line}: max_batches is missing or 0: nothing is trained"
        )
        return
    if options.learning_rate <= 0:
        report.add(
            "error",
            "schedule",
            f"learning_rate={options.learning_rate:g} in {config.file}: "
            + ("nothing is learned" if not options.learning_rate else "losses rise instead of falling")
            + ". To mend it: a rate above 0, such as 0.001",
        )
    late = [step for step in options.steps if step >= options.max_batches]
    if options.policy == "steps" and late:
        report.add(
            "warning",
            "schedule",
            f"steps={late[0]} is not before max_batches={options.max_batches}: the rate never changes there. "
            f"To mend it: steps at {int(0.8 * options.max_batches)},{int(0.9 * options.max_batches)}",
        )
    if list(options.steps) != sorted(options.steps):
        report.add("warning", "schedule", f"steps={','.join(map(str, options.steps))} do not rise")
    if options.burn_in >= options.max_batches:
        report.add(
            "warning", "schedule", f"burn_in={options.burn_in} lasts as long as max_batches: the rate only rises"
        )


def _check_masks(report: Report, shapes: NetworkShapes) -> None:
    heads = [(line, head) for line, head in _heads(shapes) if isinstance(head, YoloOptions)]
    if not heads:
        return
    used = [anchor for _, head in heads for anchor in set(head.mask)]
    twice = sorted({anchor for anchor in used if used.count(anchor) > 1})
    unused = sorted(set(range(max(head.num for _, head in heads))) - set(used))
    for line, head in heads:
        within = sorted({anchor for anchor in head.mask if head.mask.count(anchor) > 1})
        if within:
            text = f"{shapes.file}:{line}: mask= names {_anchors(within)} more than once"
            report.add("warning", "anchors", f"{text}: only one of its boxes learns")
    if twice:
        report.add("warning", "anchors", f"{_anchors(twice)} {_be(twice)} in the masks of several [yolo] layers")
    if unused:
        report.add(
            "warning", "anchors", f"{_anchors(unused)} {_be(unused)} in no mask=: no layer answers for such boxes"
        )
    if len({head.classes for _, head in heads}) > 1:
        line = heads[-1][0]
        report.add("error", "cfg", f"{shapes.file}:{line}: the [yolo] layers have different numbers of classes")


def _anchors(numbers: list[int]) -> str:
    return f"anchor{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _be(numbers: list[int]) -> str:
    return "are" if len(numbers) > 1 else "is"


def _check_named_files(report: Report, shapes: NetworkShapes) -> None:
    for shape in shapes:
        for key in ("tree", "map"):
            name = getattr(shape.options, key, None)
            if name is not None:
                try:
                    named_file(name, key, shapes.file, shape.line, shape.index)
                except UndertowError as problem:
                    report.add("error", "cfg", str(problem))


def _check_weights(report: Report, weights: PathLike, shapes: NetworkShapes) -> None:
    try:
        found = read_weights(weights, shapes)
    except UndertowError as problem:
        report.add("error", "weights", str(problem))
        return
    if found.ruined:
        report.add(
            "error",
            "weights",
            f"{os.fspath(weights)}: {found.ruined[0]}: a training stops in its first iteration. To mend it: take "
            "weights saved before that",
        )
    name, reached, wanted = os.fspath(weights), len(found.loaded_layers), len(found.wanted_layers)
    report.numbers |= {"layers_loaded": reached, "layers_wanted": wanted, "seen": found.seen}
    end = _end_of(found)
    text = f"{name} fills {reached} of {wanted} layers" + (f", all before layer {end}" if found.is_partial else "")
    report.add("note", "weights", f"{text}; {found.seen:,} images seen")
    iteration, last = found.seen // max(shapes.net.batch * shapes.net.time_steps, 1), shapes.net.max_batches
    if 0 < last <= iteration:
        report.add(
            "error",
            "weights",
            f"{name} is at iteration {iteration}, past max_batches={last}: nothing would be trained. "
            "To mend it: give -clear, or raise max_batches",
        )


def _end_of(found: WeightsFile) -> int:
    return max(found.loaded_layers, default=-1) + 1


def _check_data(report: Report, data: PathLike, shapes: NetworkShapes) -> None:
    try:
        source = read_data(data)
        if _heads(shapes):
            images = _check_boxes(report, source, shapes)
        elif is_segmenter(shapes):
            images = check_masks(report, source, shapes)
        else:
            images = check_classes(report, source, shapes)
    except UndertowError as problem:
        report.add("error", "data", str(problem))
        return
    for note in source.notes:
        report.add("note", "data", note)
    _check_pace(report, len(images), shapes)


def _check_boxes(report: Report, source: DataFile, shapes: NetworkShapes) -> ImageList:
    """Findings about labels and pictures of a detector; the pictures of train=."""
    _check_classes(report, source, shapes)
    names = ("train", "valid") if source.options.valid else ("train",)
    images, *others = map(source.read_images, names)
    classes = _heads(shapes)[-1][1].classes
    boxes = _check_pictures(report, images, classes, shapes)
    for other in others:
        _check_pictures(report, other, classes, shapes)
    check_lists(report, images, *others)
    _check_anchors(report, boxes, shapes)
    return images


def _check_classes(report: Report, source: DataFile, shapes: NetworkShapes) -> None:
    given = source.options.classes
    for line, head in _heads(shapes):
        if given is None or head.classes == given or getattr(head, "map", None) is not None:
            continue
        report.add(
            "error",
            "cfg",
            f"{shapes.file}:{line}: classes={head.classes}, {source.file} says {given}. To mend it: classes={given} "
            f"here and {_before(head, given)} before it",
        )
    if source.options.names is None and source.options.labels is None:
        text = f"{source.file}: names= is missing: training takes numbers instead, -map and valid need it"
        report.add("warning", "data", text)
        return
    try:
        source.read_names(_heads(shapes)[-1][1].classes)
    except UndertowError as problem:
        report.add("error", "data", str(problem))


def _before(head: HeadOptions, classes: int) -> str:
    """What the layer before a head must say for so many classes."""
    if isinstance(head, DetectionOptions):
        return f"output={replace(head, classes=classes).outputs} in the [connected]"
    return f"filters={replace(head, classes=classes).channels} in the [convolutional]"


def _check_pictures(report: Report, images: ImageList, classes: int, shapes: NetworkShapes) -> np.ndarray:
    """Findings about one list; all boxes that can be used, (n, 5)."""
    reader = LabelReader(classes, (shapes.net.width, shapes.net.height))
    boxes, broken, unreadable, doubles = [], [], [], []
    for path in images.paths:
        try:
            check_image(path)
        except FormatError as problem:
            unreadable.append(str(problem))
        try:
            rows = reader(path).boxes
        except FormatError as problem:
            broken.append(str(problem))
            continue
        boxes.append(rows)
        if len(np.unique(rows, axis=0)) < len(rows):
            doubles.append(path)
    kept = np.concatenate([np.zeros((0, 5), np.float32), *boxes])
    report.numbers[images.file] = {
        "pictures": len(images),
        "boxes": len(kept),
        "missing": len(images.issues),
        "unreadable": len(unreadable),
        "broken_labels": len(broken),
        "duplicates": len(doubles),
        "findings": dict(reader.summary.counts),
    }
    report.add("note", "data", f"{images.file}: {len(images)} pictures, {len(kept)} boxes")
    some(report, "error", "broken label files", broken)
    some(report, "error" if len(unreadable) == len(images) else "warning", "pictures that cannot be read", unreadable)
    some(report, "warning", "pictures of the list that are not there", [str(issue) for issue in images.issues])
    some(report, "warning", "pictures with the same box twice", doubles)
    for kind, count in reader.summary.counts.items():
        if kind != "unreadable label file":
            first = next((str(issue) for issue in reader.summary.first if issue.kind == kind), "")
            report.add(
                "warning", "data", f"{images.file}: {count} x {kind}" + (f", the first: {first}" if first else "")
            )
    if len(kept):
        absent = sorted(set(range(classes)) - set(kept[:, 4].astype(int).tolist()))
        if absent:
            report.add("warning", "data", f"{images.file}: no box of {of_classes(absent)}")
    else:
        report.add("error", "data", f"{images.file}: not one box can be used")
    return kept


def _check_pace(report: Report, pictures: int, shapes: NetworkShapes) -> None:
    options = shapes.net
    rounds = options.max_batches * options.batch / pictures
    report.numbers["rounds"] = rounds
    report.add(
        "note",
        "schedule",
        f"{pictures / options.batch:.1f} iterations go once through the pictures, {rounds:.1f} rounds",
    )
    if 0 < rounds < 1:
        report.add("warning", "schedule", f"max_batches={options.max_batches} ends before every picture was seen once")
    if options.steps and options.steps[0] * options.batch < pictures:
        report.add(
            "warning", "schedule", f"steps={options.steps[0]} lowers the rate within the first round of pictures"
        )


def _check_anchors(report: Report, boxes: np.ndarray, shapes: NetworkShapes) -> None:
    heads = [head for _, head in _heads(shapes) if not isinstance(head, DetectionOptions)]
    if not heads or not len(boxes):
        return
    head = heads[-1]
    net = np.array([shapes.net.width, shapes.net.height], np.float64)
    cells = isinstance(head, RegionOptions)
    last = shapes.output.in_shape if cells else None
    grid = np.array([last[2], last[1]], np.float64) if last is not None else net
    anchors = np.array(head.biases, np.float64).reshape(-1, 2) / grid * net
    sizes = boxes[:, 2:4].astype(np.float64) * net
    best = iou_of_sizes(sizes, anchors).max(axis=1)
    average, reached = float(best.mean()), float((best > REACHED).mean())
    report.numbers |= {"anchor_iou": average, "anchors_reach": reached}
    text = (
        f"best anchor and box overlap by {100 * average:.1f} % on average; {100 * reached:.1f} % of boxes by over 50 %"
    )
    if average >= POOR_FIT:
        report.add("note", "anchors", text)
        return
    try:
        better = f"; the best {head.num} would reach {100 * calc_anchors(sizes, head.num).average_iou:.1f} %"
    except UndertowError:
        better = ""
    size = f"-width {net[0]:.0f} -height {net[1]:.0f}"
    remedy = f"undertow darknet detector calc_anchors DATA -num_of_clusters {head.num} {size}"
    report.add("warning", "anchors", f"{text}{better}. To mend it: {remedy}")


def _check_cost(report: Report, config: Config, shapes: NetworkShapes, measure: bool) -> None:
    largest = _at_its_largest(config, shapes)
    needed, loaded = largest.memory(training=True), _loaded_ahead(largest)
    total = needed + loaded + PROCESS
    report.numbers |= {"memory_bytes": total, "pass_memory_bytes": needed, "loaded_ahead_bytes": loaded}
    of = "" if largest is shapes else f" of {largest.net.width} x {largest.net.height} (random=1)"
    report.add(
        "note",
        "memory",
        f"about {bytes_text(total)} (estimated): {bytes_text(needed)} for one pass of {shapes.net.pass_batch} "
        f"samples{of}, {bytes_text(loaded)} for pictures loaded ahead, {bytes_text(PROCESS)} for Python and kernels",
    )
    try:
        check_memory(largest, training=True)
    except UndertowError as problem:
        report.add("error", "memory", str(problem))
        return
    how, seconds = "estimated", _PASSES * shapes.bflops * shapes.net.batch / _ASSUMED_GFLOPS
    if measure and not report.errors:
        try:
            how, seconds = "measured", _measured(config, shapes)
        except UndertowError as problem:
            report.add("error", "time", str(problem))
            return
        peak = peak_memory()
        if peak is not None:
            report.numbers["peak_memory_bytes"] = peak
            report.add("note", "memory", f"{bytes_text(peak)} was the most that this whole process took (measured)")
    report.numbers |= {"seconds_per_iteration": seconds, "time_is": how}
    hours = seconds * max(shapes.net.max_batches, 0) / 3600
    report.add(
        "note",
        "time",
        f"{seconds:.2f} s an iteration ({how}), {hours:.1f} hours for max_batches"
        f"{'; loading pictures aside' if shapes.net.channels else ''}",
    )


def _at_its_largest(config: Config, shapes: NetworkShapes) -> NetworkShapes:
    """The shapes at the largest size that a training takes: with random=1 sizes vary."""
    heads = [head for _, head in _heads(shapes) if not isinstance(head, DetectionOptions)]
    varied = heads[-1].random if heads else shapes.net.random
    side = trainer.LAST_SIZE if heads else classifier.LARGEST_SIZE
    if not varied or shapes.net.width * shapes.net.height >= side * side:
        return shapes
    return infer_shapes(
        config.with_values(0, {"width": side, "height": side}), fork=choose_dialect(config)[0].fork or None
    )


def _loaded_ahead(shapes: NetworkShapes) -> int:
    """Bytes of the pictures that wait for the trainer; texts are not loaded ahead."""
    net = shapes.net
    waiting = max(net.pass_batch * net.subdivisions, 4 * trainer.usual_workers()) if net.channels else 0
    return 4 * waiting * (shapes.inputs + shapes.truths)


def peak_memory() -> int | None:
    """Bytes: the largest resident size of this process so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _measured(config: Config, shapes: NetworkShapes) -> float:
    """Seconds of one iteration: the quicker of the last two passes, after those that compile and record."""
    net = Network(config, choose_dialect(config)[0])
    net.keep_deltas = False
    # Noise: pictures of one colour have no deviation, and the gradients of batch norms that divide by it overflow.
    shape = net.options.input_shape if net.c else (net.inputs,)
    images = np.random.default_rng(0).random((net.batch, *shape), np.float32)
    truth, times = np.zeros((net.batch, net.truths), np.float32), []
    for _ in range(4):
        start = time.perf_counter()
        net.train_datum(images, truth)
        times.append(time.perf_counter() - start)
    return min(times[2:]) * shapes.net.subdivisions

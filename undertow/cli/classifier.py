"""`undertow darknet classifier`: train, valid and predict, with the words and flags of the C program."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from undertow.cli.messages import say
from undertow.cli.shared import (
    BACKUP_EVERY,
    COMMON,
    GPUS,
    GPUS_IDLE,
    SHOWING,
    computing,
    each_path,
    introduce,
    loaded,
)
from undertow.cli.trainings import options_of, run_training
from undertow.cli.words import Command, Flag, Words


def train(words: Words) -> int:
    """classifier train DATA CFG [WEIGHTS]"""
    from undertow.cli.progress import ClassifierLines
    from undertow.darknet.classifier_runs import classifier_training
    from undertow.darknet.learning.trainlog import AccuracyLog

    options = options_of(
        words,
        seed=words["seed"],
        validate_every=words["topk_every"],
        validate_rounds=2,
        validate=words["topk"] or words["topk_every"] is not None,
        mirror=not words["no_flip"],
    )
    make = partial(classifier_training, words["DATA"], words["CFG"], words["WEIGHTS"] or None, options)
    return run_training(words, "darknet classifier train", make, lines=ClassifierLines, log=AccuracyLog)


def predict(words: Words) -> int:
    """classifier predict DATA CFG WEIGHTS [IMAGE]; without IMAGE, paths are read from stdin."""
    from undertow.darknet.detection.classify import letterboxed, predictions, shrunk_crop, top_k
    from undertow.darknet.files.names import read_names
    from undertow.data.images import load_image

    with computing(words):
        source, net, tree = _loaded(words)
        key = "names" if source.options.names is not None else "labels"
        names = read_names(source.path(key), net.outputs, words["strict"])
        count = min(words["t"] or source.options.top, net.outputs)
        introduce(net)

        def one(path: str) -> None:
            view = (shrunk_crop if net.dialect.fork else letterboxed)(load_image(path, net.c), net)[0]
            start = time.perf_counter()
            values = predictions(net, view, tree)
            say(f"{path}: Predicted in {time.perf_counter() - start:f} seconds.")
            for number in top_k(values, count):
                print(f"{100 * values[number]:5.2f}%: {names[number]}", flush=True)

        return each_path(words["IMAGE"], one)


def classify(words: Words) -> int:
    """classify CFG WEIGHTS [IMAGE]: predict with cfg/imagenet1k.data, five guesses."""
    return predict(replace(words, words={**words.words, "DATA": "cfg/imagenet1k.data"}))


def _validation(form: str) -> Callable[[Words], int]:
    """The function of classifier valid, valid10, validcrop, validfull or validmulti."""

    def run(words: Words) -> int:
        from undertow.cli.progress import Counting
        from undertow.darknet.classifier_runs import path_labels
        from undertow.darknet.detection.classify import FORMS, guesses, with_leaves
        from undertow.darknet.runs import listed

        with computing(words):
            source, net, tree = _loaded(words)
            if source.options.leaves is not None and tree is not None:
                tree, found = with_leaves(tree, source.path("leaves"))
                say(f"Found {found} leaves.")
            images = listed(source, "valid")
            labels = path_labels(source, source.options.classes or net.outputs, images)
            count = min(words["t"] or source.options.top, net.outputs)
            introduce(net)
            with Counting("pictures") as tick:
                each = guesses(net, images.paths, labels, count, FORMS[form], tree, tick=tick)
                (_in_parts if form == "validcrop" else _one_by_one)(each, len(images), count, form == "valid")
        return 0

    return run


def _one_by_one(each: Any, pictures: int, count: int, with_values: bool) -> None:
    """The lines of the C program: after each picture, how often the guesses were right so far."""
    right = top = 0
    for done, guess in enumerate(each):
        right += guess.best[0] == guess.label
        top += guess.label in guess.best
        if with_values:
            values = "".join(f"{value:f}, " for value in guess.values[:2])
            print(f"{guess.path}, {guess.label}, {values}")
        print(f"{done}: top 1: {right / (done + 1):f}, top {count}: {top / (done + 1):f}", flush=done % 100 == 0)


def _in_parts(each: Any, pictures: int, count: int, with_values: bool) -> None:
    """The same after each thousand of pictures, as the mean over the thousands."""
    parts = max(1, pictures // 1000)
    ends = [number * pictures // parts for number in range(1, parts + 1)]
    first: list[float] = []
    several: list[float] = []
    right = top = size = 0
    start = time.perf_counter()
    for guess in each:
        while guess.number >= ends[len(first)]:
            first.append(right / max(1, size))
            several.append(top / max(1, size))
            right = top = size = 0
        size += 1
        right += guess.best[0] == guess.label
        top += guess.label in guess.best
        if guess.number + 1 == ends[len(first)]:
            first.append(right / size)
            several.append(top / size)
            seconds, start = time.perf_counter() - start, time.perf_counter()
            print(
                f"{len(first)}: top 1: {sum(first) / len(first):f}, top {count}: {sum(several) / len(several):f}, "
                f"{seconds:f} seconds, {size} images",
                flush=True,
            )
            right = top = size = 0


def _over_test(show: Callable[[Any, list[str]], str], views: str, only_leaves: bool = True) -> Callable[[Words], int]:
    """The function of classifier test, label, csv or fout: a line for each picture of test=, or of the list given."""

    def run(words: Words) -> int:
        from undertow.darknet.detection import classify
        from undertow.darknet.files.imagelist import read_image_list
        from undertow.darknet.files.names import read_names
        from undertow.darknet.runs import listed

        with computing(words):
            source, net, tree = _loaded(words)
            given = words.words.get("LIST")
            images = read_image_list(given, words["strict"]) if given else listed(source, "test")
            key = "names" if source.options.names is not None else "labels"
            names = [] if words.words.get("named") is None else read_names(source.path(key), net.outputs)
            count = min(words.flags.get("t") or source.options.top, net.outputs)
            introduce(net)
            form = getattr(classify, views)
            for guess in classify.guesses(net, images.paths, None, count, form, tree, only_leaves):
                print(show(guess, names), flush=guess.number % 100 == 0)
        return 0

    return run


def _labelled(words: Words) -> int:
    show = _over_test(lambda guess, names: names[guess.best[0]], "shrunk_crop")
    return show(replace(words, words={**words.words, "named": "yes"}))


def _values(guess: Any, names: list[str]) -> str:
    return "\t".join([guess.path, *(f"{value:g}" for value in guess.values)])


def _best(guess: Any, names: list[str]) -> str:
    return "\t".join([guess.path, *map(str, guess.best)])


def _loaded(words: Words) -> tuple[Any, Any, Any]:
    """The .data file, the net and its class hierarchy."""
    from undertow.darknet.detection.classify import class_tree
    from undertow.darknet.files.datafile import read_data
    from undertow.darknet.layers.layers_heads import BoxHead
    from undertow.errors import FormatError

    source = read_data(words["DATA"], words["strict"])
    net = loaded(words)
    head = next((layer for layer in net.layers if isinstance(layer, BoxHead)), None)
    if head is not None:
        raise FormatError(
            f"[{head.type}] finds boxes: its numbers are no probabilities of classes",
            file=net.config.file,
            layer=head.index,
            remedy="give the cfg of a classifier, or use detector test, map or valid",
        )
    return source, net, class_tree(net)


_TOP = Flag("t", "whole", "how many guesses (top= of the .data file, or 1)", "N", least=1)
_USUAL = (GPUS_IDLE, *COMMON)
_FILES = ("DATA", "CFG", "WEIGHTS")
_FORM_HELP = {
    "valid": "how often the guesses are right on the pictures of valid=, each cut to the square in its middle",
    "valid10": "the same with ten crops of each: corners and middle, and their mirror images",
    "validcrop": "the same with whole pictures, stretched; a line for each thousand",
    "validfull": "the same with whole pictures in their shape: the net is resized to each",
    "validmulti": "the same with each picture at four sizes, and mirrored",
}
COMMANDS = (
    Command(
        "darknet classifier train",
        ("DATA", "CFG", "[WEIGHTS]"),
        (
            Flag("clear", "switch", "count from iteration 0 again, whatever the weights have seen"),
            Flag("topk", "switch", "measure the accuracy on valid= every two rounds; keep NAME_best.weights"),
            Flag("topk_every", "whole", "the same, every N iterations", "N", least=1),
            Flag("save_every", "whole", "keep NAME_N.weights every N iterations (every round)", "N", least=1),
            Flag("chart", "text", "where the chart goes (chart_NAME.png in the folder of backup=)", "FILE"),
            Flag("seed", "whole", "of the first weights and of all draws (0)", "N", 0, least=0),
            Flag("no_flip", "switch", "never mirror pictures, as with flip=0: for letters, digits, left and right"),
            Flag("plain", "switch", "Darknet's lines on a terminal too"),
            BACKUP_EVERY,
            GPUS,
            *SHOWING,
            *COMMON,
        ),
        "learn classes from the pictures of train=; a NAME.backup given as WEIGHTS goes on exactly",
        train,
    ),
    *(
        Command(f"darknet classifier {form}", _FILES, (_TOP, *_USUAL), text, _validation(form))
        for form, text in _FORM_HELP.items()
    ),
    Command(
        "darknet classifier predict", (*_FILES, "[IMAGE]"), (_TOP, *_USUAL),
        "the likeliest classes of a picture; without IMAGE, paths are read from stdin", predict,
    ),
    Command(
        "darknet classifier label", _FILES, _USUAL,
        "the name of the likeliest class of each picture of test=", _labelled,
    ),
    Command(
        "darknet classifier csv", _FILES, (_TOP, *_USUAL),
        "the numbers of the likeliest classes of each picture of test=", _over_test(_best, "letterboxed"),
    ),
    Command(
        "darknet classifier test", _FILES, _USUAL,
        "the numbers the net gives for each picture of test=, stretched", _over_test(_values, "stretched"),
    ),
    Command(
        "darknet classifier fout", (*_FILES, "LIST"), _USUAL,
        "the numbers the net gives for each picture of LIST, of its middle",
        _over_test(_values, "shrunk_crop", only_leaves=False),
    ),
)  # fmt: skip
CLASSIFY = Command(
    "darknet classify",
    ("CFG", "WEIGHTS", "[IMAGE]"),
    (Flag("t", "whole", "how many guesses (5)", "N", 5, least=1), *_USUAL),
    "classifier predict with the names of cfg/imagenet1k.data",
    classify,
)

"""`undertow darknet partial|average|statistics|ops|...`: the C program's small tools on cfgs and weights files."""

from __future__ import annotations

import time
from collections.abc import Callable

from undertow.cli.messages import say
from undertow.cli.shared import COMMON, DEVICES, STRICT, computing, dialect_of, introduce
from undertow.cli.words import Command, Flag, UsageError, Words
from undertow.darknet import weight_tools as tools
from undertow.darknet.files.cfg import read_cfg
from undertow.darknet.files.shapes import infer_shapes
from undertow.darknet.files.weights import read_weights, write_weights
from undertow.darknet.weight_tools import Stored

_PLAIN = (STRICT, *DEVICES)
_NEW_CFG = Flag("cfg", "text", "where to write the cfg that fits the new weights", "FILE")


def partial(words: Words) -> int:
    """partial CFG WEIGHTS OUT LAYERS"""
    shapes = infer_shapes(read_cfg(words["CFG"], words["strict"]))
    count = _whole(words, "LAYERS", 1, len(shapes))
    found = read_weights(words["WEIGHTS"], shapes, cutoff=count, strict=words["strict"])
    if found.is_partial:
        reached = max(found.loaded_layers, default=-1) + 1
        raise UsageError(f"{words['WEIGHTS']} ends after layer {reached - 1}", remedy=f"cut at {reached} or before")
    write_weights(words["OUT"], shapes, lambda layer, name: found.arrays[layer, name], cutoff=count)
    say(f"the first {count} layers of {words['WEIGHTS']}, {len(found.loaded_layers)} with parameters: {words['OUT']}")
    return 0


def average(words: Words) -> int:
    """average CFG OUT WEIGHTS [WEIGHTS...]"""
    config = read_cfg(words["CFG"], words["strict"])
    files = [words["WEIGHTS"], *words.more]
    tools.average([tools.read_stored(config, file, words["strict"]) for file in files]).write(words["OUT"])
    say(f"the mean of {len(files)} files: {words['OUT']}")
    return 0


def statistics(words: Words) -> int:
    """statistics CFG WEIGHTS"""
    stored = tools.read_stored(read_cfg(words["CFG"], words["strict"]), words["WEIGHTS"], words["strict"])
    for layer, inner, found in tools.statistics(stored):
        print(f"{layer.type.capitalize()} Layer {layer.index}{f' {inner}' if inner else ''}")
        print("\n".join(one.line() for one in found), end="\n\n")
    return 0


def operations(words: Words) -> int:
    """ops CFG"""
    count = tools.operations(infer_shapes(read_cfg(words["CFG"], words["strict"])))
    print(f"Floating Point Operations: {count}")
    print(f"Floating Point Operations: {count / 1e9:.2f} Bn")
    return 0


def speed(words: Words) -> int:
    """speed CFG [EVALS]"""
    import numpy as np

    from undertow.darknet.runs import load

    evaluations = _whole(words, "EVALS", 1, None) if words["EVALS"] else 1000
    with computing(words):
        net = load(words["CFG"], dialect=dialect_of(words), strict=words["strict"])
        introduce(net)
        shape = (1, net.c, net.h, net.w) if net.c else (1, net.inputs)
        picture = np.zeros((net.options.time_steps * shape[0], *shape[1:]), np.float32)
        net.predict(picture)  # kernels and plans are made ready outside the measurement
        net.predict(picture)
        start = time.perf_counter()
        for _ in range(evaluations):
            net.predict(picture)
        seconds = time.perf_counter() - start
    count = tools.operations(net.shapes)
    print(f"\n{evaluations} evals, {seconds:f} Seconds")
    print(f"Floating Point Operations: {count / 1e9:.2f} Bn")
    print(f"FLOPS: {count / 1e9 * evaluations / seconds:.2f} Bn")
    print(f"Speed: {seconds / evaluations:f} sec/eval")
    print(f"Speed: {evaluations / seconds:f} Hz")
    return 0


def oneoff(words: Words) -> int:
    """oneoff CFG WEIGHTS OUT"""
    config = read_cfg(words["CFG"], words["strict"])
    stored = tools.detector_from_classifier(config, words["WEIGHTS"], words["seed"])
    print(stored.shapes[-2].out_shape[0])
    return _written(stored, words)


def oneoff2(words: Words) -> int:
    """oneoff2 CFG WEIGHTS OUT LAYER"""
    config = read_cfg(words["CFG"], words["strict"])
    layer = _whole(words, "LAYER", 0, len(infer_shapes(config)) - 1)
    return _written(tools.repeated(config, words["WEIGHTS"], layer), words)


def print_weights(words: Words) -> int:
    """print CFG WEIGHTS LAYER"""
    stored = tools.read_stored(read_cfg(words["CFG"], words["strict"]), words["WEIGHTS"], words["strict"])
    layer = stored.shapes[_whole(words, "LAYER", 0, len(stored.shapes) - 1)]
    weights = stored.arrays.get((layer.index, "weights"))
    if weights is None:
        having = ", ".join(str(one.index) for one in stored.shapes if (one.index, "weights") in stored.arrays)
        raise UsageError(f"print: layer {layer.index} [{layer.type}] has no weights", remedy=f"{having} have")
    for row in weights.reshape(len(weights), -1):
        print("".join(f"{value:g} " for value in row))
    return 0


def _changed(change: Callable[[Stored], Stored]) -> Callable[[Words], int]:
    """The function of a command `NAME CFG WEIGHTS OUT`."""

    def run(words: Words) -> int:
        stored = tools.read_stored(read_cfg(words["CFG"], words["strict"]), words["WEIGHTS"], words["strict"])
        return _written(change(stored), words)

    return run


def _written(stored: Stored, words: Words) -> int:
    stored.write(words["OUT"])
    say(f"written: {words['OUT']}")
    if words.flags.get("cfg"):
        stored.config.write(words["cfg"])
        say(f"written: {words['cfg']}, the cfg of these weights")
    elif "cfg" in words.flags and stored.config != read_cfg(words["CFG"], words["strict"]):
        say("batch_normalize= differs from the cfg that was given: -cfg FILE writes the one that fits these weights")
    return 0


def _whole(words: Words, name: str, least: int, most: int | None) -> int:
    """A word that is a whole number."""
    text = words[name]
    if not (text.isascii() and text.isdigit()) or int(text) < least or (most is not None and int(text) > most):
        limits = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise UsageError(f"{name} is '{text}'", remedy=f"give a whole number {limits}")
    return int(text)


_IN_OUT = ("CFG", "WEIGHTS", "OUT")
PARTIAL = Command(
    "darknet partial", (*_IN_OUT, "LAYERS"), _PLAIN,
    "write the first LAYERS layers of WEIGHTS: a backbone to begin another training with", partial,
)  # fmt: skip
TOOLS = (
    PARTIAL,
    Command(
        "darknet average", ("CFG", "OUT", "WEIGHTS", "[WEIGHTS]..."), _PLAIN,
        "write the mean of several weights files of one network", average,
    ),
    Command(
        "darknet statistics", ("CFG", "WEIGHTS"), _PLAIN,
        "root mean square (called MSE), mean and variance of the scales, biases and weights of each layer", statistics,
    ),
    Command(
        "darknet ops", ("CFG",), _PLAIN,
        "floating-point operations of one picture, counted as the C program does", operations,
    ),
    Command(
        "darknet speed", ("CFG", "[EVALS]"), COMMON,
        "time of EVALS (1000) forward passes of one empty picture, made ready before", speed,
    ),
    Command(
        "darknet denormalize", _IN_OUT, (_NEW_CFG, *_PLAIN),
        "put batch normalisation into weights and biases, for a cfg without batch_normalize",
        _changed(tools.denormalize),
    ),
    Command(
        "darknet reset", _IN_OUT, _PLAIN,
        "the same, but what is left of batch normalisation stays in the file and does nothing", _changed(tools.reset),
    ),
    Command(
        "darknet normalize", _IN_OUT, (_NEW_CFG, *_PLAIN),
        "add batch normalisation that does nothing yet, for a cfg with batch_normalize=1", _changed(tools.normalize),
    ),
    Command(
        "darknet rescale", _IN_OUT, _PLAIN,
        "let the first convolution take 2 x - 1 of each value x of a picture", _changed(tools.rescale),
    ),
    Command(
        "darknet rgbgr", _IN_OUT, _PLAIN,
        "exchange red and blue in the first convolution", _changed(tools.swap_red_and_blue),
    ),
    Command(
        "darknet oneoff", _IN_OUT,
        (Flag("seed", "whole", "of the small weights of the boxes (0)", "N", 0, least=0), *_PLAIN),
        "make a detector of three boxes (CFG) from the weights of a classifier", oneoff,
    ),
    Command(
        "darknet oneoff2", (*_IN_OUT, "LAYER"), _PLAIN,
        "read WEIGHTS, and once more from its beginning into the layers from LAYER on", oneoff2,
    ),
    Command(
        "darknet print", ("CFG", "WEIGHTS", "LAYER"), _PLAIN,
        "print the weights of a layer, one filter on each line", print_weights,
    ),
)  # fmt: skip

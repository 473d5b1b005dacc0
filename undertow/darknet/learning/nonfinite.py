"""Finding where numbers stopped being finite, so that a ruined training says which layer and which array it was."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.darknet.layers.layers_loss import LossLayer
from undertow.darknet.learning.hidden import ruined_statistics, values_on_the_way
from undertow.errors import NonFiniteError
from undertow.files import atomic_write
from undertow.kernels import select

if TYPE_CHECKING:
    from undertow.darknet.layers.layer import Layer
    from undertow.darknet.network import Network

Array = np.ndarray[Any, Any]
_REMEDY = "lower learning_rate, lengthen burn_in, or look at the pictures and labels named here"


def check_losses(net: Network) -> None:
    """Raise NonFiniteError when losses or statistics show that the last forward pass is not finite; cheap.

    The cost alone does not show it: a logistic turns infinite inputs into ones, and values that no object asks for do
    not count. So what the loss layers are given is looked at too, into which all other layers have gone.
    """
    for layer in net.layers:
        given = layer.loss_input if isinstance(layer, LossLayer) else None
        if given is not None and not select.all_finite(given):
            raise _ruined(layer, "input", given)
    values = {"cost": net.cost} if net.loss is None else {"cost": net.cost, "loss": float(net.loss.data)}
    for name, value in values.items():
        if not np.isfinite(value):
            problem = NonFiniteError(f"the {name} is {value}, although all outputs are finite", remedy=_REMEDY)
            problem.tensor = name
            raise problem
    statistics = ruined_statistics(net)
    if statistics is not None:
        raise _ruined(*statistics)


def check_pass(net: Network, thoroughly: bool = False) -> None:
    """Raise NonFiniteError when the forward pass is not finite, naming the first array that is not.

    Called before anything is changed by a backward pass. thoroughly: look at all values, not only at what shows them.
    """
    try:
        check_losses(net)
    except NonFiniteError as problem:
        raise first_ruined(net) or problem from None
    found = first_ruined(net) if thoroughly else None
    if found is not None:
        raise found


def first_ruined(net: Network) -> NonFiniteError | None:
    """The first array of the last forward pass that is not finite, in the order of computing; None without any."""
    if net.input is not None and not select.all_finite(net.input):
        return NonFiniteError(f"the pictures hold {_describe(net.input)}", remedy=_REMEDY)
    before: set[int] = set()
    for layer in net.layers:
        for name, array in _forward_arrays(layer, before):
            if not select.all_finite(array):
                return _ruined(layer, name, array)
        before.add(id(layer.output_variable))
    return None


def check_updates(net: Network, finite: Container[int] = ()) -> None:
    """Raise NonFiniteError when an accumulated update is not finite; called before the parameters take it.

    finite: ids of arrays that are known to be.
    """
    arrays = [array for layer in net.layers for array in layer.updates.values()]
    if net.all_finite([array for array in arrays if id(array) not in finite]):
        return
    for layer in reversed(net.layers):
        for name, array in layer.updates.items():
            if not select.all_finite(array):
                raise _ruined(layer, name, array)


def check_parameters(net: Network) -> None:
    """Raise NonFiniteError when something that would be saved is not finite: weights, biases, rolling statistics."""
    for layer in net.layers:
        for name, array in layer.arrays().items():
            if not select.all_finite(array):
                raise _ruined(layer, name, array)


def report(
    problem: NonFiniteError,
    file: Path,
    iteration: int,
    passes: Sequence[Sequence[str]],
    kept: Path | None,
    cause: str | None = None,
    remedy: str | None = None,
) -> NonFiniteError:
    """The error for the user, with iteration and pictures; the same goes to `file`, as JSON.

    passes: the pictures of each pass since the last update; a forward pass was ruined by the last of them, an update
    by any. kept: the last good checkpoint of this run, or the weights it began with; None when there is neither.
    cause: why these numbers have nothing to do with the pictures, where that is known. remedy: for that cause.
    """
    of_update = problem.tensor is not None and problem.tensor.endswith("_updates")
    pictures = list(dict.fromkeys(path for paths in (passes if of_update else passes[-1:]) for path in paths))
    facts = {
        "iteration": iteration,
        "layer": problem.layer,
        "tensor": problem.tensor,
        "reason": problem.reason,
        "pictures": pictures,
        "cause": cause,
        "last_good_checkpoint": None if kept is None else str(kept),
    }
    told = f"; the same is in {file}"
    try:
        with atomic_write(file, "w", encoding="utf-8", errors="surrogateescape") as stream:
            json.dump(facts, stream, indent=1, ensure_ascii=False)
            stream.write("\n")
    except OSError as failure:
        told = f"; {file} cannot be written ({failure.strerror or failure})"
    last = "there is no checkpoint yet" if kept is None else f"{kept} holds the last good state"
    why = cause or f"the pictures were {', '.join(pictures)}"
    ruined = NonFiniteError(
        f"in iteration {iteration}: {problem.reason}; {why}; {last}{told}",
        layer=problem.layer,
        remedy=remedy or problem.remedy,
    )
    ruined.tensor = problem.tensor
    return ruined


def _forward_arrays(layer: Layer, before: set[int]) -> Iterator[tuple[str, Array]]:
    """What the layer computed with, then what it computed, then the statistics that moved by it.

    before: the ids of the outputs of layers before it.
    """
    yield from ((name, parameter.data) for name, parameter in layer.parameters.items())
    yield from values_on_the_way(layer, before)
    yield "output", layer.output
    yield from layer.buffers.items()


def _ruined(layer: Layer, name: str, array: Array) -> NonFiniteError:
    problem = NonFiniteError(f"{name} ({layer.type}) holds {_describe(array)}", layer=layer.index, remedy=_REMEDY)
    problem.tensor = name
    return problem


def _describe(array: Array) -> str:
    bad = ~np.isfinite(array)
    return f"{int(bad.sum())} of {array.size} values that are not finite, the first at index {int(bad.argmax())}"

"""How the backward formulas follow from the forward ones, in a few lines; L is the loss, gy = dL/dy."""

from __future__ import annotations

from undertow.functions.darknet_activations import DarknetActivation
from undertow.functions.norm_batch import BatchNorm
from undertow.inspect.derivations import activations, arithmetic, losses, normalisation, places, products, recurrent
from undertow.inspect.derivations.lines import Lines, of_one_element
from undertow.inspect.record import Call
from undertow.inspect.specific import straight_through

__all__ = ["DERIVATIONS", "derivation_of", "variants"]

DERIVATIONS: dict[str, Lines] = {
    **products.DERIVATIONS,
    **activations.DERIVATIONS,
    **normalisation.DERIVATIONS,
    **losses.DERIVATIONS,
    **recurrent.DERIVATIONS,
    **arithmetic.DERIVATIONS,
    **places.DERIVATIONS,
}


def variants(name: str) -> dict[str, Lines]:
    """Derivations of an operation's other forms, by what makes the difference."""
    if name == "batch_norm":
        return {"with given statistics": normalisation.GIVEN}
    return {"in the dialects of the C program": losses.STRAIGHT[name]} if name in losses.STRAIGHT else {}


def derivation_of(call: Call) -> Lines:
    """The lines for a call, of an operation with variants those of the one that runs; none without a gradient."""
    function = call.function
    if isinstance(function, BatchNorm):
        return _batch_norm(function)
    if isinstance(function, DarknetActivation) and function.name in activations.DARKNET:
        return of_one_element(*activations.DARKNET[function.name])
    lines = DERIVATIONS.get(call.name, ())
    return (*lines[:-2], *losses.STRAIGHT[call.name]) if straight_through(call) else lines


def _batch_norm(function: BatchNorm) -> Lines:
    lines = DERIVATIONS["batch_norm"]
    if function.rule.backward is None:
        return normalisation.GIVEN if function.given else lines
    note = normalisation.ORIGINAL_GIVEN if function.given else normalisation.ORIGINAL
    return (*lines, note)

"""One layer's whole story as lines of text: what it computes, how its gradients follow, with numbers and places."""

from __future__ import annotations

import re

import numpy as np

from undertow.functions.norm_batch import BatchNorm
from undertow.inspect.cutting import settings_of
from undertow.inspect.derivations import derivation_of
from undertow.inspect.example import Example, example
from undertow.inspect.explain import Explanation
from undertow.inspect.formulas import is_free, products, shared_formula
from undertow.inspect.head_story import head_lines
from undertow.inspect.place import backward_place, place_of
from undertow.inspect.record import Array, Call, LayerRecord
from undertow.inspect.repeats import backward_lines, counted, fullest, head, kinds, sequence
from undertow.inspect.specific import backward_of, forward_of, is_derivative, name_of
from undertow.inspect.text import array_lines, shapes_text

# Names of operands, of several at once; the first whose names a formula holds is taken.
_CALLED = (
    ("x", "gamma", "beta"), ("x", "truth"), ("x", "target"), ("x", "t"), ("x", "source"), ("c", "x"), ("a", "b", "s"),
    ("x", "a"), ("a", "b"), ("x", "s"),
)  # fmt: skip
# Those that no formula lists in this order.
_BY_OPERATION = {
    "conv2d_weights": ("gy", "x"),
    "embedding": ("w",),
    "gaussian_output": ("v",),
    "kl_divergence": ("log_q", "p"),
    "iseg_loss": ("x", "truth"),
    "xnor_conv2d": ("x", "w"),
    "rnn": ("x", "h0", "w_x", "w_h", "b"),
    "lstm": ("x", "h0", "c0", "w_x", "w_h", "b"),
    "gru": ("x", "h0", "w_x", "w_h", "b_x", "b_h"),
}


def story(explanation: Explanation, layer: str | int, seed: int = 0) -> list[str]:
    """The lines for one layer. Raises FormatError when there is no such layer."""
    record = explanation.find(layer)
    lines = [f"layer {record.name}: {record.type}", f"  {shapes_text(record.inputs)} -> {shapes_text(record.outputs)}"]
    lines += [f"  {name} {shapes_text([shape])}" for name, shape in record.parameters.items()]
    lines += [f"  {name}: {value}" for name, value in record.details.items()]
    lines += [f"  skipped: {note}" for note in record.notes]
    calls = [call for call in record.calls if not is_free(call)] or record.calls
    if record.story:
        return [*lines, "", *record.story]
    if record.shared and record.reached:
        return [*lines, "", *_of_shared(record)]
    if not calls:
        return [*lines, "", "There is no way back through it."]
    if len(calls) > 1:
        lines += ["", *sequence([name_of(call) for call in calls])]
    groups = kinds(reversed(calls))
    if len(groups) < len(calls):
        lines.append(f"Each kind of operation is told once: {_kinds_text(len(groups))}, {len(calls)} operations.")
    for alike in groups:
        lines += ["", *_of_calls(alike, seed)]
    return lines


def _kinds_text(count: int) -> str:
    return "one kind" if count == 1 else f"{count} kinds"


def _of_shared(record: LayerRecord) -> list[str]:
    """A layer whose outputs are its input, in another shape or for several readers."""
    if len(record.outputs) == 1:
        return ["  forward   y = x in another shape", f"  backward  {shared_formula(record)}"]
    ys = ", ".join(f"y{i}" for i in range(1, len(record.outputs) + 1))
    changes = " + ".join(f"sum(gy{i} * dx)" for i in range(1, len(record.outputs) + 1))
    return [
        f"  forward   {ys} = x: the same values for each of its readers",
        "  how the way back follows (L the loss, gy = dL/dy)",
        f"    a small change dx reaches every reader, so the loss changes by {changes}",
        "    what stands beside dx is the sum of what the readers send back",
        f"  backward  {shared_formula(record)}",
    ]


def _of_calls(calls: list[Call], seed: int) -> list[str]:
    """calls: of one operation and variant, which is told once."""
    call = fullest(calls)
    entry = call.entry
    lines = head(calls)
    if entry is None:
        return [*lines, f"  an operation of your own, written in {place_of(type(call.function))}"]
    lines.append(f"  forward   {forward_of(call)}")
    lines += [f"            here: {text}" for text in counted(p.text for c in calls for p in products(c)[:1])]
    settings = "" if isinstance(call.function, BatchNorm) else settings_of(call.function)
    if settings:
        lines.append(f"  settings  {settings}")
    steps = derivation_of(call)
    if steps:
        lines += ["  how the way back follows (L the loss, gy = dL/dy)", *(f"    {line}" for line in steps)]
    lines.append(f"  backward  {backward_of(call) or 'no gradient'}")
    if products(call):
        lines += [f"            here: {line}" for line in backward_lines(calls)]
    lines.append(f"  computed in {backward_place(call.function)}")
    told = head_lines(call)
    if told:
        return [*lines, *told]
    found = example(call, seed)
    if found is None:
        return lines
    names = _names_of(call.name, entry.forward, len(found.arrays))
    lines += _example_lines(found, names, _result_of(call, found))
    if not is_derivative(call):
        lines.append("    this way back is the original program's own, not always the derivative: the two may part")
    return lines


def _example_lines(found: Example, names: tuple[str, ...], result: str) -> list[str]:
    lines = [f"  in numbers, {found.origin}{f' ({found.settings})' if found.settings else ''}:"]
    for name, array in zip(names, found.arrays, strict=True):
        lines += [f"    {line}" for line in array_lines(name, array)]
    for name, array in ((result, found.y), (f"g{result}", found.gy)):
        lines += [f"    {line}" for line in array_lines(name, array)]
    for name, gradient, difference in zip(names, found.gradients, found.differences, strict=True):
        if gradient is None:
            continue
        lines += [f"    {line}" for line in array_lines(f"g{name}", gradient)]
        if difference is not None:
            lines += [f"    {line}" for line in _compared(f"g{name}", gradient, difference)]
    return [*lines, f"    largest relative difference between the two: {found.largest_error:.1e}"]


def _compared(name: str, gradient: Array, difference: Array) -> list[str]:
    """What central differences say; of a large array at some places only, with the gradient there."""
    known = ~np.isnan(difference)
    if known.all():
        return array_lines(f"{name} by central differences", difference)
    if not known.any():
        return [f"{name}: all values lie on a kink, where the slopes of both sides differ"]
    title = f"{name} at {known.sum()} of its {known.size} places"
    return [*array_lines(title, gradient[known]), *array_lines("there by central differences", difference[known])]


def _result_of(call: Call, found: Example) -> str:
    """What the formulas call the result that the example goes back from."""
    if call.name == "lstm_unit":
        return "c'"
    return "loss" if found.y.size == 1 and "gloss" in backward_of(call) else "y"


def _names_of(operation: str, formula: str, count: int) -> tuple[str, ...]:
    known = _BY_OPERATION.get(operation, ())
    return known if len(known) == count else _names(formula, count)


def _names(formula: str, count: int) -> tuple[str, ...]:
    """What the formula calls the operands."""
    if count == 1:
        return ("x",)
    if "x_0" in formula or "of the x" in formula:
        return tuple(f"x_{i}" for i in range(count))
    for names in _CALLED:
        if len(names) == count and all(re.search(rf"\b{name}\b", formula) for name in names):
            return names
    return ("x", "w", "b")[:count] if count <= 3 else tuple(f"x{i}" for i in range(count))

"""Writes docs/backward.md from the registry of operations (`make pages`)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path

import undertow.caffe.table
import undertow.darknet.network  # noqa: F401  (their operations enter the registry)
from undertow.core.registry import Operation, operations
from undertow.inspect.derivations import DERIVATIONS
from undertow.inspect.derivations import variants as other_forms
from undertow.inspect.specific import variants
from undertow.inspect.text import columns

ROOT = Path(__file__).parents[2]

HEAD = """# How each backward pass works

Every operation, its formula forward and back, from the registry that `undertow explain` prints (of several variants
the one that runs) and that the gradient checks of the tests run over: what stands here is what is computed. `L` is the
loss, `gy` = dL/dy the gradient that arrives at a result y, `gx` = dL/dx what is handed on to an input x.

The walk itself is always the same. Operations are taken deepest first; each turns the gradients of its outputs into
those of its inputs by the formula below; where a value was read several times, what comes back from all readers is
added. With the real sizes of a net, and the numbers of one layer: [`undertow explain`](explain.md).

*Twice*: can be differentiated again, as often as wanted. *Once*: asking for a second derivative is an error that
names it. *Estimate*: hands back something that is not the derivative, on purpose. *No gradient*: asking for one is an
error.

"""
FAMILIES = (
    ("Products: dense layers and convolutions", ("linalg", "conv", "columns", "subscripts", "local_function")),
    ("Activations", ("rectifiers", "activations", "darknet_activations", "softmaxes", "functions_fork")),
    ("Normalisation and dropout", ("norm_batch", "norm_layer", "norm_response", "normal_functions", "regularization",
                                   "random_functions")),
    ("Pooling and resizing", ("pooling", "resample")),
    ("Losses", ("loss_softmax", "loss_binary", "loss_regression", "loss_margin", "loss_distributions",
                "loss_functions", "functions_loss")),
    ("Losses of detectors", ("yolo_loss", "region_loss", "detection_loss", "iseg_loss")),
    ("Recurrent networks", ("recurrent", "recurrent_original")),
    ("Arithmetic", ("arithmetic", "compare")),
    ("Elementary functions", ("elementary", "errorfunction")),
    ("Sums over axes", ("reduce",)),
    ("Shapes and places", ("shape", "join", "indexing", "lookup", "tap")),
    ("Of one format only", ("functions",)),
)  # fmt: skip
GRADIENTS = {"twice": "twice", "once": "once", "estimate": "estimate", "none": "no gradient"}


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for title, members in grouped():
        lines += [f"## {title}", ""]
        for entry in members:
            lines += _entry(entry)
    return "\n".join(lines).rstrip() + "\n"


def grouped() -> list[tuple[str, list[Operation]]]:
    """All operations by family; KeyError for one whose file is in none."""
    family = {module: title for title, modules in FAMILIES for module in modules}
    found: dict[str, list[Operation]] = {title: [] for title, _ in FAMILIES}
    for entry in operations():
        if entry.function.__module__.startswith("undertow."):  # tests register some of their own
            found[family[entry.function.__module__.rpartition(".")[2]]].append(entry)
    return [(title, _in_order(title, members)) for title, members in found.items()]


def _in_order(title: str, members: Iterable[Operation]) -> list[Operation]:
    modules = dict(FAMILIES)[title]
    return sorted(members, key=lambda entry: (modules.index(entry.function.__module__.rpartition(".")[2]), entry.name))


def _entry(entry: Operation) -> list[str]:
    each = variants(entry.name)
    forward = entry.forward.partition(";")[0] if each else entry.forward
    lines = [f"### {entry.name}", "", "```text", f"forward   {forward}"]
    lines += [f"backward  {entry.backward}"] if entry.backward else []
    lines += ["", *(f"  {line}" for line in columns(("", "forward", "backward"), each, left=3))] if each else []
    if entry.name in DERIVATIONS:
        lines += ["", *(f"  {line}" for line in DERIVATIONS[entry.name])]
    for form, steps in other_forms(entry.name).items():
        lines += ["", f"  {form}:", *(f"  {line}" for line in steps)]
    lines.append("```")
    return [*lines, f"{GRADIENTS[entry.gradient].capitalize()}. Written in {place(entry)}.", ""]


def place(entry: Operation) -> str:
    """A link to the file of an operation."""
    file = Path(inspect.getsourcefile(importlib.import_module(entry.function.__module__)) or "").relative_to(ROOT)
    return f"[{file}](../{file})"


if __name__ == "__main__":
    print(page(), end="")

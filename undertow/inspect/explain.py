"""What the way back of a network is made of: layers in order of the backward pass, with formulas, sizes and costs.

explanation = explain("lenet.prototxt")
for row in explanation.rows: row.name, row.formula, row.multiply_adds_backward
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow.core.variable import Parameter, Variable
from undertow.darknet.dialect import dialect_named
from undertow.errors import FormatError, UndertowError
from undertow.inspect.batches import darknet_batch
from undertow.inspect.formulas import (
    backward_operations,
    forward_operations,
    is_free,
    shared_additions,
    shared_formula,
)
from undertow.inspect.function_run import Seeing, check_roots, recorded_call, roots_of, taken_notes
from undertow.inspect.record import (
    Call,
    Keeping,
    LayerRecord,
    Naming,
    Shape,
    functions_behind,
    parameters_read,
)
from undertow.inspect.repeats import RepeatsSpared, backward_lines
from undertow.inspect.sources import is_prototxt
from undertow.inspect.users_function import (
    load_function,
    names_around,
    random_arguments,
    read_arguments,
    surroundings,
)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Row:
    """One layer. multiply_adds: of products exact, other operations one per element. kept: bytes for the way back.

    formula: lines of the backward pass with the real sizes. skipped: which gradients are left out, and why.
    """

    index: int
    name: str
    type: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    parameters: dict[str, Shape]
    formula: tuple[str, ...]
    multiply_adds_forward: int
    multiply_adds_backward: int
    kept: int
    skipped: tuple[str, ...]


@dataclass
class Explanation:
    """rows: in order of the backward pass. records: the recorded layers, in order of the forward pass."""

    source: str
    about: str
    rows: list[Row]
    records: list[LayerRecord] = field(repr=False)
    notes: list[str] = field(default_factory=list)

    def find(self, layer: str | int) -> LayerRecord:
        """A layer by its name or number. Raises FormatError that lists the names."""
        names = {record.name: record for record in self.records}
        if str(layer) in names:
            return names[str(layer)]
        if str(layer).lstrip("-").isdigit() and -len(self.records) <= int(layer) < len(self.records):
            return self.records[int(layer)]
        shown = ", ".join(list(names)[:40])
        raise FormatError(f"there is no layer '{layer}' in {self.source}", remedy=f"use one of {shown}")


def explain(
    source: PathLike,
    *,
    shapes: Sequence[Sequence[int]] = (),
    batch: int | None = None,
    size: int | None = None,
    dialect: str | None = None,
    data: PathLike | None = None,
    seed: int = 0,
) -> Explanation:
    """Run one random batch forward, recorded, and say what the way back does.

    source: a cfg, a prototxt, or module:function. shapes: for a function those of its arguments; for a prototxt that
    of a sample, instead of its data layers. batch: samples, as few as the net takes unless given. size: width and
    height of a cfg's input. data: a file with the arguments of a function.
    Raises FormatError or ShapeError for what cannot be read or run.
    """
    text = os.fspath(source)
    function = ":" in text and not Path(text).is_file()
    if not function and is_prototxt(text):
        return _explain_prototxt(text, shapes, batch, dialect, seed)
    if text.endswith(".cfg") or Path(text).is_file():
        return _explain_cfg(text, batch, size, dialect, seed)
    if function:
        return explain_function(load_function(text), shapes, data=data, seed=seed, source=text)
    remedy = "name a .cfg, a .prototxt or module:function"
    raise FormatError("not a file, and no module:function", file=text, remedy=remedy)


def _explain_cfg(path: str, batch: int | None, size: int | None, dialect: str | None, seed: int) -> Explanation:
    from undertow.inspect.darknet_run import open_network, run_darknet

    net = open_network(path, dialect=dialect_named(dialect) if dialect else None, size=size, seed=seed)
    count = batch or net.options.time_steps
    try:
        with RepeatsSpared():
            run = run_darknet(net, darknet_batch(net, None, None, count=count, seed=seed), seed)
    except UndertowError:
        if batch is not None:
            raise
        # The statistics of a batch norm after the last pooling need two samples.
        count *= 2
        with RepeatsSpared():
            run = run_darknet(net, darknet_batch(net, None, None, count=count, seed=seed), seed)
    known = [p.data for p in net.parameters()]
    size_text = f"{net.w}x{net.h}x{net.c}" if net.c else f"{net.inputs} values"
    about = f"{net.n} layers, input {size_text}, batch {count}, dialect {net.dialect.name}"
    return Explanation(path, about, rows_of(run.layers, known), run.layers, run.notes)


def _explain_prototxt(
    path: str, shapes: Sequence[Sequence[int]], batch: int | None, dialect: str | None, seed: int
) -> Explanation:
    from undertow.inspect.caffe_inputs import fill_inputs
    from undertow.inspect.caffe_run import open_net, run_caffe

    shape = shapes[0] if shapes else None
    net, has_loss = open_net(path, dialect=dialect or "exact", shape=shape, batch=batch, usual=1, seed=seed)
    run = run_caffe(net, fill_inputs(net, None, seed), has_loss, seed=seed)
    known = [blob.data for blob in net.learnable_params]
    first = next((blob.shape for blob in net.blobs.values() if blob.shape), (1,))
    about = f"{len(net.layers)} layers, phase {net.phase}, batch {first[0]}, dialect {net.dialect.name}"
    return Explanation(path, about, rows_of(run.layers, known), run.layers, run.notes)


def explain_function(
    function: Any,
    shapes: Sequence[Sequence[int]],
    *,
    data: PathLike | None = None,
    seed: int = 0,
    source: str = "",
) -> Explanation:
    """Run a function on random arrays of these shapes and explain the recorded graph, one operation a row.

    data: a file with its arguments instead.
    """
    given = random_arguments(shapes, seed) if data is None else read_arguments(function, data)
    with Seeing() as seeing:
        calls, returned = recorded_call(function, given, source)
    roots = seeing.roots or roots_of(returned, source)
    check_roots(roots, source)
    notes = [] if seeing.roots else taken_notes(returned)
    naming = Naming({id(x): name for name, x in names_around(surroundings(function)).items()})
    records = records_of(calls, roots, naming)
    on = ", ".join("x".join(map(str, x.shape)) or "1" for x in given.all)
    about = f"{len(records)} operations{f' on {on}' if on else ''}"
    return Explanation(source or getattr(function, "__name__", "function"), about, rows_of(records, []), records, notes)


def records_of(calls: Sequence[Call], roots: Sequence[Variable], naming: Naming) -> list[LayerRecord]:
    """Each operation of a function as a layer. roots: what is differentiated."""
    behind = functions_behind(roots)
    records = []
    for index, call in enumerate(calls):
        name = naming.name(call.operands, index)
        record = LayerRecord(index, name, call.name, list(call.in_shapes), list(call.out_shapes), calls=[call])
        record.parameters = {name: x.shape for name, x in naming.parameters(call.operands).items()}
        record.reached = id(call.function) in behind
        if record.reached:
            record.notes = _left_out(call)
        elif any(call.wanted):
            record.notes = ["all gradients: no result depends on it"]
        else:
            record.notes = ["all gradients: made from constants"]
        records.append(record)
    return records


def _left_out(call: Call) -> list[str]:
    """The operands of an operation that get no gradient, and why."""
    frozen = [name for name, x in parameters_read(call.operands, {}).items() if not x.requires_grad]
    left = [(i, x) for i, (x, want) in enumerate(zip(call.operands, call.wanted, strict=True)) if not want]
    constant = [str(i) for i, x in left if not isinstance(x, Parameter)]
    notes = [f"frozen: {', '.join(frozen)}"] if frozen else []
    return [*notes, *([f"gradient of operand {', '.join(constant)}: a constant"] if constant else [])]


def rows_of(records: Sequence[LayerRecord], known: Sequence[Any]) -> list[Row]:
    """The rows of recorded layers, in order of the backward pass. known: see `Keeping`."""
    keeping = Keeping(known)
    rows = [_row(record, keeping.add(record.calls) if record.reached else 0) for record in records]
    return rows[::-1]


def _row(record: LayerRecord, kept: int) -> Row:
    calls = record.calls
    shown = [call for call in calls if not is_free(call)] or calls
    lines = (list(record.formula) or backward_lines(shown[::-1])) if record.reached else []
    back = sum(backward_operations(call) for call in calls) if record.reached else 0
    if record.shared and record.reached:
        lines.append(shared_formula(record))
        back += shared_additions(record)
    return Row(
        record.index,
        record.name,
        record.type,
        tuple(record.inputs),
        tuple(record.outputs),
        record.parameters,
        tuple(lines),
        sum(forward_operations(call) for call in calls),
        back,
        kept,
        tuple(record.notes),
    )

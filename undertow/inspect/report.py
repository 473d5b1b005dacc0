"""Traces and comparisons as lines of text."""

from __future__ import annotations

import math

from undertow.inspect.compare import Comparison, Difference, Path, max_of, same_input
from undertow.inspect.match import Step
from undertow.inspect.record import RANDOM_START
from undertow.inspect.text import columns, number_text, shapes_text, share_text
from undertow.inspect.trace import LayerTrace, Trace

HEAD = (
    "layer", "type", "mean", "deviation", "min", "max", "zeros", "saturated", "|output|", "|gradient|", "|parameters|",
    "|their gradient|", "update/weight", "mark",
)  # fmt: skip
# Names of runs up to this long stand above their columns.
_SHORT = 14


def trace_rows(found: Trace) -> list[tuple[str, ...]]:
    """The cells of the table, one row a layer in forward order.

    Numbers are those of the finite values, "nan" where there are none; beside the marks stands how many these are.
    Marks stand where each kind begins; layers behind the first that is non-finite have "not finite".
    """
    marks: dict[int, list[str]] = {}
    for mark in found.marks:
        if mark.kind not in marks.setdefault(mark.layer, []):
            marks[mark.layer].append(mark.kind)
    return [_row(layer, marks.get(layer.index, [])) for layer in found.layers]


def _row(layer: LayerTrace, marks: list[str]) -> tuple[str, ...]:
    out, slope = layer.output, layer.gradient
    parameters = list(layer.parameters.values())
    bad, bad_gradient = sum(p.bad for p in parameters), sum(p.bad_gradient for p in parameters)
    weights = _together([p.norm for p in parameters])
    slopes = _together([p.gradient for p in parameters if p.bad_gradient > 0 or not math.isnan(p.gradient)])
    if "non-finite" not in marks and (max_of(out.bad, slope.bad) > 0 or bad > 0):
        marks = [*marks, "not finite"]
    return (
        layer.name,
        layer.type,
        *(number_text(value, out.bad) for value in (out.mean, out.deviation, out.minimum, out.maximum)),
        share_text(out.zeros, out.bad),
        share_text(out.saturated),
        number_text(out.norm, out.bad),
        number_text(slope.norm, slope.bad),
        number_text(weights, bad - bad_gradient),
        number_text(slopes, bad_gradient),
        number_text(layer.update, bad),
        ", ".join(marks) + _finite_text(layer),
    )


def _finite_text(layer: LayerTrace) -> str:
    """Of how many values the numbers in its row are; nothing where they are of all, or of none and therefore nan."""
    parts = []
    size, parameters = math.prod(layer.shape), list(layer.parameters.values())
    weights = sum(p.size for p in parameters)
    bad_gradient = sum(p.bad_gradient for p in parameters)
    for what, count, bad in (
        ("output", size, layer.output.bad),
        ("gradient", size, layer.gradient.bad),
        ("parameters", weights, sum(p.bad for p in parameters) - bad_gradient),
        ("their gradient", weights, bad_gradient),
    ):
        if 0 < bad < count:
            parts.append(f"{what} of the finite {count - bad:,.0f}")
    return f"; {', '.join(parts)}" if parts else ""


def _together(norms: list[float]) -> float:
    """The norm of all of them side by side."""
    return math.hypot(*norms) if norms else math.nan


def head_lines(found: Trace) -> list[str]:
    """Two lines about a trace as a whole."""
    how = f", {found.how}" if found.how else ""
    about = f": {found.about}" if found.about else ""
    rule = found.rule or f"rate {found.rate:g}"
    return [f"{found.source}{how}{about}", f"{loss_text(found)}, {rule} behind update/weight"]


def loss_text(found: Trace) -> str:
    """The loss, or that there is none: the way back then begins with random numbers, or was not gone."""
    random = any(RANDOM_START in note for note in found.notes)
    loss = found.loss + 0.0  # not -0
    return "no loss" if random or (math.isnan(loss) and not _went_back(found)) else f"loss {loss:.6g}"


def _went_back(found: Trace) -> bool:
    """Whether a gradient arrived at any layer."""
    return any(layer.gradient.norm >= 0 or layer.gradient.bad > 0 for layer in found.layers)


def trace_lines(found: Trace) -> list[str]:
    """The whole trace as text."""
    return [*head_lines(found), "", *columns(HEAD, trace_rows(found)), "", *mark_lines(found)]


def mark_lines(found: Trace) -> list[str]:
    """What is wrong, and where it begins."""
    lines = []
    for mark in found.marks:
        kind = found.layers[mark.layer].type
        more = f"; {mark.reach} layers in all" if mark.reach > 1 else ""
        lines.append(f"{mark.kind}, beginning at layer {mark.name} ({kind}): {mark.text}{more}")
    if lines:
        return lines
    if not found.layers:
        return ["no operation took part: there is nothing to look at"]
    if not math.isnan(found.loss) and not _went_back(found):
        return ["no gradient arrived at any layer: nothing leads from them to the loss"]
    if not math.isfinite(found.loss) and not loss_text(found).startswith("no loss"):
        return [f"the loss is {found.loss}, though the values of all layers are finite"]
    return ["nothing vanishes, explodes or is dead; all values are finite"]


def comparison_rows(found: Comparison) -> list[tuple[str, ...]]:
    """The cells of the table of a comparison."""
    rows: list[tuple[str, ...]] = []
    for layer in found.layers:
        a, b = layer.one, layer.other
        rows.append(
            (
                a.name if a.name == b.name else f"{a.name} = {b.name}",
                a.type if a.type == b.type else f"{a.type} = {b.type}",
                number_text(a.output.norm, a.output.bad),
                number_text(b.output.norm, b.output.bad),
                apart_text(layer.output),
                number_text(a.gradient.norm, a.gradient.bad),
                number_text(b.gradient.norm, b.gradient.bad),
                apart_text(layer.gradient),
                apart_text(layer.parameters),
            )
        )
    return rows


def apart_text(value: float) -> str:
    """A relative distance."""
    if math.isnan(value):
        return "-"
    return "0" if value == 0 else "other" if math.isinf(value) else f"{value:.1e}"


def comparison_lines(found: Comparison) -> list[str]:
    """The whole comparison as text."""
    table = columns(compared_columns(found), comparison_rows(found))
    return [*compared_heads(found), "", *table, "", *verdict_lines(found), *path_lines(found)]


def compared_columns(found: Comparison) -> tuple[str, ...]:
    """The heads of the table; columns are named after the runs."""
    one, other = _runs(found)
    norms = [f"|{what}| {one}" if number == 0 else other for what in ("output", "gradient") for number in (0, 1)]
    return ("layer", "type", *norms[:2], "apart", *norms[2:], "apart", "weights apart")


def _runs(found: Comparison) -> tuple[str, str]:
    """What tells the runs apart, if it is short: dialects, or else first and second."""
    one, other = found.one.how, found.other.how
    short = one and other and one != other and max(len(one), len(other)) <= _SHORT
    return (one, other) if short else ("first", "second")


def compared_heads(found: Comparison) -> list[str]:
    """What is compared; first and second columns follow this order."""
    lines = []
    for name, trace in (("first ", found.one), ("second", found.other)):
        how = f", {trace.how}" if trace.how else ""
        lines.append(f"{name}  {trace.source}{how}: {trace.about}; {loss_text(trace)}")
    if len(found.layers) < max(len(found.one.layers), len(found.other.layers)):
        counts = f"{len(found.one.layers)} and {len(found.other.layers)} layers"
        lines.append(f"{counts}; compared are the {len(found.layers)} steps with the same kind and shape, in order")
    hows = (found.one.how, found.other.how)  # "" for functions, which have no phases
    if _unlike(found) and found.forward is not None and all(hows) and not all("TEST" in how for how in hows):
        lines.append("--phase TEST for both compares them as they detect and classify, not as they learn")
    if not found.same_batch:
        lines.append("the two runs saw different batches: differences below begin there")
    return lines


def verdict_lines(found: Comparison) -> list[str]:
    """The first layers that part, and by how much."""
    limit = f"{found.tolerance:g}"
    lines = gap_lines(found)
    if found.forward is None:
        lines.append(f"forward: no layer's output parts by more than {limit}")
    else:
        layer = found.forward
        lines.append(f"forward: layer {_name(layer)} is the first to part by more than {limit}: {_by(layer.output)}")
    if found.backward is None:
        lines.append(f"backward: no gradient parts by more than {limit}")
        return lines
    layer = found.backward
    text = f"backward: layer {_name(layer)} is the first on the way back to part by more than {limit}: "
    if layer.gradient > found.tolerance:
        lines.append(f"{text}the gradient of its output, {_by(layer.gradient)}")
    else:
        lines.append(f"{text}the gradient of its {layer.parameter}, {_by(layer.parameters)}")
    if _unlike(found) and any(RANDOM_START in note for trace in (found.one, found.other) for note in trace.notes):
        lines.append("that tells nothing of the nets: without a loss each gradient begins as random numbers of its own")
    return lines


def gap_lines(found: Comparison) -> list[str]:
    """Where the nets themselves are not the same: the first layers without a counterpart."""
    one, other = found.gap
    if one is None and other is None:
        return []
    if not same_input(found.one, found.other):
        return ["the batches had different sizes: trace both with the same -batch and -size to compare the nets"]
    told = [f"{which} has layer {_step_text(step)}" for which, step in zip(("first", "second"), found.gap, strict=True)
            if step is not None]  # fmt: skip
    if len(told) == 1:
        return [f"the nets are not the same: only the {told[0]}; what follows goes with that"]
    return [f"the nets are not the same: where the {told[0]}, the {told[1]}; what follows goes with that"]


def _step_text(step: Step) -> str:
    layer = step.first
    weights = f", largest parameter of {step.weights:,} values" if step.weights else ""
    return f"{layer.name} ({layer.type}, output {shapes_text([step.last.shape])}{weights})"


def _unlike(found: Comparison) -> bool:
    return len(found.one.layers) != len(found.other.layers)


def _name(layer: Difference) -> str:
    own = f"{layer.one.name} ({layer.one.type})"
    other = f"{layer.other.name} ({layer.other.type})"
    return own if own == other else f"{own} = {other}"


def _by(value: float) -> str:
    return "one side is not finite or not there" if math.isinf(value) else f"by {100 * value:.3g}% of its norm"


def path_lines(found: Comparison) -> list[str]:
    """Gradients of shortcuts and routes to earlier layers that one of the runs loses."""
    lost = [path for path in found.paths if path.lost]
    if not lost:
        return []
    one, other = _runs(found)
    losing = {one if path.one == 0 else other for path in lost}
    by = f"lost in {losing.pop()}" if len(losing) == 1 else "lost in one of the runs"
    rows = [(str(p.layer), p.type, str(p.source), number_text(p.one), number_text(p.other)) for p in lost]
    return [
        "",
        f"gradients sent past layers, and {by}: {_counted(found.paths)}",
        *columns(("from layer", "type", "to layer", one, other), rows),
    ]


def _counted(paths: list[Path]) -> str:
    parts = []
    for kind in dict.fromkeys(path.type for path in paths):
        of_kind = [path for path in paths if path.type == kind]
        parts.append(f"{sum(path.lost for path in of_kind)} of {len(of_kind)} in {kind} layers")
    return ", ".join(parts)

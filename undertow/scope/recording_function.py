"""A function of the user's, recorded for a page: each operation is a layer."""

from __future__ import annotations

import numpy as np

from undertow.inspect.explain import Explanation, records_of, rows_of
from undertow.inspect.function_run import FunctionRun, run_function
from undertow.inspect.record import Array, Naming
from undertow.inspect.story import story
from undertow.scope.recording import Recording, Request, Run, picture_of


def record_function(request: Request) -> Recording:
    """Runs the function once, see `trace_function`; a result of several values gets random weights."""
    found = run_function(
        request.net, shapes=request.shapes, data=request.data, rate=request.rate, seed=request.seed, keep=True
    )
    calls, run = found.calls, Run("exact")
    run.trace, run.sent = found.trace, found.sent
    for index, call in enumerate(calls):
        run.keep(index, "output", call.outputs[0].data)
        run.keep(index, "gradient", call.outputs[0].grad)
    records = records_of(calls, found.roots, Naming(found.naming.names))
    explanation = Explanation(request.net, "", rows_of(records, []), records)
    made = {id(y): i for i, call in enumerate(calls) for y in call.outputs}
    rule = f"; update/weight: {found.trace.rule}" if found.trace.rule else ""
    return Recording(
        request.net,
        f"{len(calls)} operations; {found.trace.about}{rule}",
        "function",
        explanation.rows[::-1],
        [record.details for record in records],
        [_reads([made.get(id(x), -1) for x in call.operands]) for call in calls],
        [story(explanation, record.index, request.seed) for record in records],
        [run],
        _picture(found),
        notes=list(found.trace.notes),
    )


def _reads(sources: list[int]) -> list[int]:
    """Sources without those of parameters and constants, which no operation made; the input for the first ones."""
    made = [source for source in sources if source >= 0]
    return made or [-1]


def _picture(found: FunctionRun) -> Array | None:
    """The largest of the inputs that looks like a batch of pictures."""
    pictures = [array for array in found.inputs.values() if array.ndim == 4 and array.shape[1] in (1, 3)]
    return picture_of(max(pictures, key=np.size)) if pictures else None

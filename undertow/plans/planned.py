"""`plan`: a step of define-by-run code that is recorded twice, compared, and from then on replayed."""

from __future__ import annotations

import copy
import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from undertow.core.modes import modes
from undertow.core.variable import Variable
from undertow.errors import UndertowError
from undertow.plans import check
from undertow.plans.arena import arena
from undertow.plans.buffers import Buffers
from undertow.plans.changing import Changing
from undertow.plans.compare import Comparison, compare, kept_objects, read_in_both
from undertow.plans.dry import DryRecorder, NotDry
from undertow.plans.handed import hand_out
from undertow.plans.keep import Keeper, Kept, Watch
from undertow.plans.ledger import described
from undertow.plans.places import Places
from undertow.plans.program import Program, Stale
from undertow.plans.reach import Reach
from undertow.plans.record import Made, Outside, Recorder
from undertow.plans.results import Result, build, describe, leaves, without
from undertow.plans.watched import Sources, Watched, sums

_log = logging.getLogger("undertow.plan")
_MOST_PLANS = 64  # per step; the one unused for longest goes first
# Recording costs what some replays save: a plan that is given up for another object before these is a hasty one.
_WORTH_WHILE = 8
_MOST_HASTY = 8
_TOO_MANY = "the names in it lead to too many objects to find out whether one that it uses is replaced by another"
_WITHIN = "called in the step of another plan: it runs as a part of that step"


@dataclass
class _Seen:
    """A recorded run.

    arguments: checksums of the arrays among its arguments. varied: those that have been others in a later run, with
    the same constants. sources: what else has never been another. places: where all that the step can reach stood.
    waits: why a later run has not decided about planning.
    """

    recorder: Recorder
    result: Result
    arguments: dict[int, int]
    sources: Sources
    places: Places
    varied: set[int] = field(default_factory=set)
    waits: str | None = None

    def handed(self, stays: Callable[[int], bool] = lambda number: True) -> Any:
        """What the run hands out. stays: whether a leaf, by its number, may be the step's own Variable."""
        return build(self.result.layout, lambda leaf: hand_out(leaf, self.recorder, stays(leaf.value)))

    def fits(self) -> bool:
        """Whether its parameters are still of the shapes and types they had, and of those that learn."""
        held = [v for v in self.recorder.values if isinstance(v.source, Outside) and v.variable.data is not None]
        return all(
            (v.variable.shape, v.variable.dtype, v.variable.requires_grad) == (v.shape, v.dtype, v.requires_grad)
            for v in held
        )


@dataclass
class _Unplanned:
    """Why a step runs as ordinary code."""

    reason: str


@dataclass
class _Replayed:
    """A plan. places: where its parameters stood. watch: what must be as it was; else it is compared with `first`."""

    program: Program
    kept_objects: list[Any]
    places: Places | None = None
    watch: Watched | None = None
    first: _Seen | None = None
    calls: int = 0


_Plan = _Seen | _Unplanned | _Replayed


class Planned:
    """A step with its plans: one for each set of shapes, types and modes it is called with.

    Calling it does what the step does. kept: what `persistent` names, after each call.
    """

    def __init__(self, step: Callable[..., Any], persistent: Iterable[str] = (), dry: bool = False) -> None:
        """dry: the step's operations and numbers do not depend on computed values; it may be recorded uncomputed."""
        self.step = step
        self._keeper = Keeper(persistent)
        self._dry = dry
        self._plans: OrderedDict[Hashable, _Plan] = OrderedDict()
        self._buffers = Buffers()
        self._recording = threading.Lock()
        self._changing = Changing()
        self._said: set[str] = set()
        self._hasty: dict[Hashable, int] = {}
        self._refused: str | None = None
        self.last: Program | None = None
        # For trainers that accumulate gradients themselves: see Program.run.
        self.sinks: Mapping[int, np.ndarray] = {}
        self.before_walk: Callable[[], None] | None = None

    @property
    def kept(self) -> dict[str, Kept]:
        """By the names given as `persistent`: arrays that stay in place from call to call; see `Kept`."""
        return self._keeper.kept

    @property
    def is_replaying(self) -> bool:
        """Whether the last call was a replay."""
        return self.last is not None

    def reason(self) -> str | None:
        """Why some call of this step runs unplanned; None while none does."""
        plans = self._plans.values()
        given_up = [plan.reason for plan in plans if isinstance(plan, _Unplanned)]
        waiting = [plan.waits for plan in plans if isinstance(plan, _Seen) and plan.waits]
        return next(iter((*given_up, *waiting)), self._refused or self._changing.reason)

    def forget(self) -> None:
        """Drop all plans; the next calls record anew."""
        self._plans.clear()
        self._buffers.clear()
        self._hasty.clear()
        self._changing, self._refused = Changing(), None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The step, replayed where a plan fits, else run as it is."""
        if named:
            arguments, named = _by_position(self.step, arguments, named)
        if arena.is_mine:
            return self.step(*arguments, **named)  # called by an operation of another plan, which has the memory
        self.last = None
        if modes.hooks:
            within = all(isinstance(hook, (Recorder, Watch)) for hook in modes.hooks)
            self._say(_WITHIN if within else "hooks are active: the step runs unplanned meanwhile")
            return self._run_plainly(arguments, named)
        try:
            key = _key(arguments, named)
            plan = self._plans.get(key)
        except _NoKey as problem:
            self._refused = str(problem)
            self._say(self._refused)
            return self._run_plainly(arguments, named)
        if isinstance(plan, _Replayed) and plan.places is not None and not plan.places.are_the_same():
            plan = self._drop(key, plan.calls, plan.places)
        if isinstance(plan, _Unplanned):
            return self._run_plainly(arguments, {})
        if not isinstance(plan, _Replayed):
            return self._recorded(key, plan, plan, arguments)
        try:  # noqa: SIM105 - suppress takes time in every replay
            self._plans.move_to_end(key)
        except KeyError:  # another thread has dropped it just now
            pass
        try:
            if plan.watch is None or plan.watch.holds(arguments):
                return self._replay(plan, arguments)
            first = plan.first
        except Stale:
            first = None
        return self._recorded(key, plan, first, arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Planned:
        """The same step, of the copied object where it is a method, planned anew."""
        twin: Planned = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__init__(copy.deepcopy(self.step, memo), self._keeper.names, self._dry)  # type: ignore[misc]
        return twin

    def __copy__(self) -> Planned:
        return type(self)(self.step, self._keeper.names, self._dry)

    def __reduce__(self) -> NoReturn:
        raise UndertowError(
            f"the plan of {self._name} cannot be pickled: it is memory and native calls of this process",
            remedy="pickle the model without it and make the plan again with ut.plan",
        )

    def _drop(self, key: Hashable, calls: int, places: Places) -> _Unplanned | None:
        """Forget a plan, as other objects stand in its places; for good where that happens too often."""
        self._plans.pop(key, None)
        if not self._too_often(key, calls < _WORTH_WHILE):
            return None
        reason = f"{places.first_other()} is replaced again and again; write into it, or pass it as an argument"
        return self._give_up(key, reason)

    def _too_often(self, key: Hashable, hasty: bool) -> bool:
        """Whether objects that the step uses are replaced by others so often that recording it is not worth while."""
        self._hasty[key] = self._hasty.get(key, 0) + 1 if hasty else 0
        return self._hasty[key] > _MOST_HASTY

    # --- replays ----------------------------------------------------------------------------------------

    def _replay(self, plan: _Replayed, arguments: tuple[Any, ...]) -> Any:
        plan.calls += 1
        self._changing.replayed()
        every = check.every()
        if every and plan.calls % every == 0:
            store = self._keeper.store
            result = check.compare_with_unplanned(self.step, plan.program, plan.kept_objects, arguments, store)
        else:
            self.last = plan.program
            result = plan.program.run(arguments, self.sinks, self.before_walk, store=self._keeper.store)
        self.last = plan.program
        return result

    def _run_plainly(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if not self._keeper.names:
            return self.step(*arguments, **named)
        watch = self._keeper.watch()
        with watch:
            result = self.step(*arguments, **named)
        self._keeper.store_watched(watch)
        return result

    # --- recording --------------------------------------------------------------------------------------

    def _recorded(self, key: Hashable, plan: _Plan | None, first: _Seen | None, arguments: tuple[Any, ...]) -> Any:
        """A recorded call, in one thread at a time: the others' calls are ordinary ones meanwhile.

        plan: what was found under this key.
        """
        if not self._recording.acquire(blocking=False):
            return self._run_plainly(arguments, {})
        try:
            if self._plans.get(key) is not plan:  # another thread was faster
                return self._run_plainly(arguments, {})
            if first is not None and not first.fits():
                first = None
            if plan is None and not self._changing.is_worth_recording(key, arguments):
                self._say(self._changing.reason or "")
                return self._run_plainly(arguments, {})
            if first is not None or not self._dry or not self._record_dry(key, arguments):
                return self._record(key, first, arguments)
        finally:
            self._recording.release()
        return self(*arguments)

    def _record(self, key: Hashable, first: _Seen | None, arguments: tuple[Any, ...]) -> Any:
        watched, lent = _lend_gradients(first.recorder if first else None)
        reach = Reach(self.step)
        sources = Sources(reach)
        recorder = Recorder(arguments, watched, self._keeper.names, reach.variables, sources.arrays())
        with recorder:
            returned = self.step(*arguments)
        recorder.finish(reach.replaced(recorder.is_of_this_call))
        sources.add_used(recorder)
        returned, unreached = without(returned, _take_back(lent))
        self._keeper.store_recorded(recorder)
        result = describe(returned, recorder)
        gradients = [leaf.value for leaf in leaves(result.layout) if leaf.kind == "grad"]
        recorder.look_for_gradients([*(recorder.values[number].variable for number in gradients), *unreached])
        problem = recorder.problem or result.problem or _open_result(recorder, result)
        if problem is not None:
            self._give_up(key, problem)
            return returned
        seen = _Seen(recorder, result, sums(arguments), sources, reach.all_places())
        found = compare(first.recorder, recorder, (first.result, result)) if first else Comparison()
        if first is not None and found.problem is not None:
            if first.places.are_the_same() or self._too_often(key, hasty=True):
                self._give_up(key, found.problem)
                return returned
            first = None  # with what stands there now it may be the same from here on
        if first is not None:
            return self._settle(key, first, seen, found.doubt, returned)
        handed = seen.handed()
        recorder.let_go()
        self._remember(key, seen)
        return handed

    def _settle(self, key: Hashable, first: _Seen, second: _Seen, doubt: str | None, returned: Any) -> Any:
        """Make a plan of two runs that were the same, unless it is to wait; gives what the second run hands out."""
        watch = None if doubt is None else _watched(first, second)
        if watch is not None and watch.all_arguments(first.arguments):
            first.waits = f"{doubt} may depend on the arguments: planning waits for a call with others"
            self._remember(key, first)
            self._say(first.waits)
            return second.handed()
        used = _used(first.recorder, second.recorder)
        places = Reach(self.step).places(used, watch.sources if watch else ())
        problem = _too_large(watch, doubt)
        if problem is not None or places is None:
            self._give_up(key, problem or _TOO_MANY)
            return returned
        plan = self._plan(key, first.recorder, second.recorder, second.result)
        plan.places = places
        if watch:
            first.waits = None
            first.recorder.forget_values(second.recorder)
            first.places = places
            plan.watch, plan.first = watch, first
        return second.handed(plan.program.stays)

    def _record_dry(self, key: Hashable, arguments: tuple[Any, ...]) -> bool:
        """Plan without a real run, where that can be done."""
        recorders = DryRecorder(arguments), DryRecorder(arguments)
        results = []
        try:
            for recorder in recorders:
                # Operations run on zeros here; what NumPy would say of 0/0 concerns nobody.
                with recorder, np.errstate(all="ignore"):
                    results.append(describe(self.step(*arguments), recorder))
        except NotDry as reason:
            _log.info("%s: not recorded dry because of %s", self._name, reason)
            return False
        found = compare(*recorders, (results[0], results[1]))
        if found.problem or found.doubt or _open_result(recorders[1], results[1]):
            return False
        self._plan(key, *recorders, results[1])
        return True

    def _plan(self, key: Hashable, first: Recorder, second: Recorder, result: Result) -> _Replayed:
        lasting = frozenset(
            n
            for n, (a, b) in enumerate(zip(first.values, second.values, strict=True))
            if b.is_leaf and a.variable is b.variable
        )
        for a, b in zip(first.calls, second.calls, strict=True):
            if a.origin() is b.function:
                b.before = None  # one object for all calls keeps what it likes from one to the next
        program = Program(second, result, lasting, self._keeper.find(second), self._buffers)
        plan = _Replayed(program, kept_objects(second))
        self._remember(key, plan)
        return plan

    @property
    def _name(self) -> str:
        return str(getattr(self.step, "__qualname__", "step"))

    def _remember(self, key: Hashable, plan: _Plan) -> None:
        self._plans[key] = plan
        self._plans.move_to_end(key)
        while len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)
            self._refused = (
                f"called with more than {_MOST_PLANS} different sets of shapes, types, modes and Python numbers: "
                "those unused for longest are recorded anew when they come again"
            )
            self._say(self._refused)

    def _give_up(self, key: Hashable, reason: str) -> _Unplanned:
        given_up = _Unplanned(reason)
        self._remember(key, given_up)
        self._say(f"the step runs unplanned: {reason}")
        return given_up

    def _say(self, line: str) -> None:
        """One line, once."""
        if line not in self._said:
            self._said.add(line)
            _log.warning("%s: %s", self._name, line)


def plan(step: Callable[..., Any], persistent: Iterable[str] = ()) -> Planned:
    """A function that does what `step` does, faster from the third call on.

    step(*arguments) computes with Variables, may call `loss.backward()`, and returns Variables, arrays, tuples,
    lists or dicts of them, or None. Two real calls are recorded and compared. If they ran the same operations with
    the same options and constants, the operations and the walk backward are from then on replayed on fixed memory,
    fused where possible; otherwise the step goes on running as it is, and one line in the log "undertow.plan" names
    the source line that differed.

    Read anew in every replay: array arguments, parameters and other Variables from outside, arrays among the options
    of operations (running statistics). Numbers that change are passed as arrays of shape (). Gradients add up in
    the parameters' `.grad`. Not replayed: Python code between the operations, so that updates of parameters and
    clipping stand outside the step; a step that changes parameters, statistics, gradients or arguments itself, or
    reads gradients other than to return them, is not planned. A parameter, array or layer that is replaced by another
    makes another plan.

    What is returned cannot be differentiated further: a walk backward that comes to it is an error. Gradients,
    parameters and arguments are returned as they are, all else as copies. Reading another Variable of a planned
    step is an error, except those whose `name` is in `persistent`: see `Planned.kept`.

    Other shapes, types or modes make another plan. Hooks make the step run unplanned while they are active. With
    the environment variable UNDERTOW_CHECK_PLAN=n every n-th replay is compared with a real run.
    """
    return Planned(step, persistent)


def _watched(first: _Seen, second: _Seen) -> Watched:
    """What has been the same in all recorded runs, so that nobody knows whether constants depend on it."""
    now = second.arguments
    first.varied |= {index for index, held in first.arguments.items() if now[index] != held}
    first.sources.keep_unvaried(second.sources)
    same = {index: held for index, held in first.arguments.items() if index not in first.varied}
    return Watched(same, first.sources.items(), {id(item) for item in read_in_both(first.recorder, second.recorder)})


def _used(first: Recorder, second: Recorder) -> list[Any]:
    """What operations use in both recorded runs: Variables, and arrays and other objects without one."""
    variables = [b.variable for a, b in zip(first.values, second.values, strict=True) if a.variable is b.variable]
    return [*(x for x in variables if x.creator is None), *read_in_both(first, second)]


def _too_large(watch: Watched | None, doubt: str | None) -> str | None:
    """Why a replay would have to look at more than it can."""
    if watch is None or watch.too_large is None:
        return None
    return f"{doubt} may depend on {described(watch.too_large)}, too large to be compared: pass it as an argument"


class _NoKey(Exception):
    pass


def _by_position(
    step: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments given by name put where they stand in the step's signature, and those that have no place there."""
    bound = inspect.signature(step).bind(*arguments, **named)
    given = dict(bound.kwargs)
    bound.apply_defaults()
    return bound.args, {name: value for name, value in bound.kwargs.items() if name in given}


def _key(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable:
    """What a plan depends on besides the step itself."""
    for name in named:
        raise _NoKey(f"argument '{name}' can be given by its name only: the step runs unplanned")
    parts: list[Hashable] = [modes.recording, modes.training, modes.precision]
    for index, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            parts.append((argument.shape, argument.dtype.str, argument.strides))
        elif isinstance(argument, Variable):
            raise _NoKey(f"argument {index} is a Variable: the step runs unplanned; pass its array")
        elif argument is None or isinstance(argument, (bool, int, float, str)):
            parts.append((type(argument), argument))
        else:
            raise _NoKey(f"argument {index} is a {type(argument).__name__}: the step runs unplanned; pass arrays")
    return (*parts, *_overlaps(arguments))


def _overlaps(arguments: tuple[Any, ...]) -> list[Hashable]:
    """How arguments that share memory lie to each other: views of one are then views of the other."""
    arrays = [(index, a) for index, a in enumerate(arguments) if isinstance(a, np.ndarray)]
    return [
        (i, k, a is b, b.__array_interface__["data"][0] - a.__array_interface__["data"][0])
        for n, (i, a) in enumerate(arrays)
        for k, b in arrays[n + 1 :]
        if np.may_share_memory(a, b)
    ]


def _lend_gradients(recorder: Recorder | None) -> tuple[list[Variable], list[tuple[Variable, np.ndarray]]]:
    """Zeros as gradients for the leaves of the first run, so that the second shows whether the step clears them."""
    if recorder is None or not recorder.walks:
        return [], []
    leaves = {id(v.variable): v.variable for v in recorder.values if v.is_leaf and v.requires_grad}
    lent = []
    for variable in leaves.values():
        if variable.grad is None:
            variable.grad = np.zeros(variable.shape, variable.dtype)
            lent.append((variable, variable.grad))
    return list(leaves.values()), lent


def _take_back(lent: Sequence[tuple[Variable, np.ndarray]]) -> list[tuple[Variable, np.ndarray]]:
    """Clear the zeros that are still there; which ones."""
    there = [(variable, zeros) for variable, zeros in lent if variable.grad is zeros]
    for variable, _ in there:
        variable.clear_grad()
    return there


def _open_result(recorder: Recorder, result: Result) -> str | None:
    """A step that returns something still to be differentiated would lose its way back."""
    if recorder.walks:
        return None
    for value in recorder.values:
        if isinstance(value.source, Made) and value.requires_grad:
            return (
                f"{value.where}: the step records a graph but does not call backward(); use no_grad() if none is wanted"
            )
    return None

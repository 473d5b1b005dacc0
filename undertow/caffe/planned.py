"""The passes of a net as a plan: recorded once per set of shapes without being computed, then replayed.

Sources run as they are, before all else. What a plan has made stays in its own memory until the net's next pass, and
is written into a blob when somebody looks at it. A net runs layer by layer where something wants to see its layers at
work: steps before and after layers, debug_info, hooks of the engine, precision "reference".

In passes without a way back, layers run by themselves after the plan from the first one on that no plan can have
(`first_apart`); with a way back, such a net runs layer by layer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

import undertow.functions as F
from undertow.caffe.blob import Blob, Later, weighted_sum
from undertow.caffe.layer import Layer
from undertow.caffe.layers_norm import BatchNorm
from undertow.caffe.layers_shape import Split
from undertow.caffe.plan_layers import LayerCall, as_operations, first_apart, norm_pairs, reason_against, rises
from undertow.core.function import Function
from undertow.core.hooks import Arrays, Walk
from undertow.core.modes import enable_grad, modes, no_grad
from undertow.core.variable import Parameter, Variable
from undertow.errors import UndertowError
from undertow.functions.tap import tap
from undertow.plans import check
from undertow.plans.arena import Arena
from undertow.plans.buffers import Buffers
from undertow.plans.dry import DryRecorder
from undertow.plans.gradient import Gradient
from undertow.plans.program import NoRoom, Program, Stale
from undertow.plans.record import Outside, Source
from undertow.plans.results import Result
from undertow.plans.snapshot import ArrayTaken

if TYPE_CHECKING:
    from undertow.caffe.net import Net

Array = np.ndarray[Any, Any]

# A plan does them in one go with the convolution before, rounding in another way, where nobody sees what lies between.
_FUSED = frozenset({"Eltwise", "BatchNorm", "Scale", "ReLU"})
_FUSED_IN_PLACE = frozenset({"BatchNorm", "BatchNormReLU", "BatchNormScale", "BatchNormScaleReLU", "ReLU"})
_MOST_PLANS = 8  # per net; the one unused for longest goes first


class NetPlans:
    """The plans of one net. reason: why a pass with a way back is never planned, or None.

    keep_all: whether every blob can be read after a pass; otherwise the net's outputs alone, which takes less memory.
    Set before the first pass.
    """

    keep_all = True

    def __init__(self, net: Net) -> None:
        self.net = net
        self._never = reason_against(net)
        self._end, apart = first_apart(net)
        self.reason = self._never or apart
        self._sources = [i for i in range(self._end) if not net.bottom_ids[i] and net.layers[i].type != "Parameter"]
        self._plans: OrderedDict[Any, PassPlan] = OrderedDict()
        self._memory = Arena()
        self._draws: Any = None
        self._carried: list[Any] = []
        # Tops of sources that a layer in place writes over: what the source gave is wanted for a second time.
        self._written_over = [net.tops(i)[index] for i in self._sources for index in sorted(net.layers[i].overwritten)]
        self._given: list[Array] = []
        self._passes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_plans": OrderedDict(), "_memory": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy of a net has plans and memory of its own."""
        self.__dict__.update(state)
        self._memory = Arena()

    def can_run(self, backward: bool) -> bool:
        """Whether the next pass may be a replay, as far as its layers go."""
        net, reason = self.net, self.reason if backward else self._never
        seen = net.before_forward or net.after_forward or net.before_backward or net.after_backward or net.debug_info
        return reason is None and not seen and not modes.hooks and modes.precision != "reference"

    def run(self, backward: bool) -> float:
        """A whole forward pass, and a backward pass after it; returns the weighted loss."""
        for i in self._sources:
            self.net.run_layer(i)
        self._given = [blob.data.copy() for blob in self._written_over]
        self._draws = self.net.rng.bit_generator.state
        self._carried = [layer.state for layer in self.net.layers]
        every = check.every() if backward else 0
        self._passes += 1
        if every and self._passes % every == 0:
            return self._checked()
        loss = self._replayed(backward)
        return loss + sum(self.net.run_layer(i) for i in range(self._end, len(self.net.layers)))

    def _replayed(self, backward: bool) -> float:
        try:
            return self._plan(backward).run()
        except Stale:
            self._plans.clear()
            return self._plan(backward).run()

    def _checked(self) -> float:
        """A replay held against the layers; the replay's results stay. Raises GraphError where they differ."""
        net = self.net
        before = [blob.diff.copy() for blob in net.learnable_params]
        loss = self._replayed(backward=True)
        found = [blob.diff.copy() for blob in net.learnable_params]
        for blob, diff in zip(net.learnable_params, before, strict=True):
            blob.diff[...] = diff
        self.run_again()
        net.backward()
        # That of a bias before a BatchNorm is a sum that cancels.
        norms = [float(np.linalg.norm(blob.diff)) for blob in net.learnable_params]
        size = max(filter(math.isfinite, norms), default=0.0)
        for layer, blobs in net.params.items():
            for index, blob in enumerate(blobs):
                for own, planned in zip(net.learnable_params, found, strict=True):
                    if own is blob:
                        check.hold(f"the gradient of parameter {index} of layer '{layer}'", blob.diff, planned, size)
        for blob, diff in zip(net.learnable_params, found, strict=True):
            blob.diff[...] = diff
        return loss

    def run_again(self, after_forward: Callable[[int], object] = lambda layer: None) -> None:
        """Let the layers do the last pass once more, for a backward pass by them.

        The same numbers are drawn; statistics, states and what the pass has left in the blobs stay, and so do layers
        that have run by themselves since. after_forward: called with a layer's number when its tops hold what it has
        made.
        """
        net, rng = self.net, self.net.rng
        left = net.blob_list if self.keep_all else [net.blob_list[j] for j in net.output_ids]
        lasting = {id(blob.memory("data")): blob for blob in (*left, *net.param_blobs)}
        now, kept = rng.bit_generator.state, [(blob, blob.data.copy()) for blob in lasting.values()]
        states = [layer.state for layer in net.layers]
        rng.bit_generator.state = self._draws
        self._carry(self._carried)
        for blob, values in zip(self._written_over, self._given, strict=True):
            blob.data[...] = values
        try:
            for i, layer in enumerate(net.layers):
                if layer.forgotten and net.top_ids[i]:
                    net.run_layer(i)
                layer.forgotten = False
                after_forward(i)
        finally:
            rng.bit_generator.state = now
            self._carry(states)
            for blob, values in kept:
                blob.data[...] = values

    def _carry(self, states: list[Any]) -> None:
        for layer, state in zip(self.net.layers, states, strict=True):
            layer.state = state

    def _plan(self, backward: bool) -> PassPlan:
        net = self.net
        shapes = tuple(blob.shape for i in self._sources for blob in net.tops(i))
        key = (backward, modes.precision, shapes)
        found = self._plans.get(key)
        if found is None:
            _reshape(net, self._end)
            part = Part(self._end, frozenset(self._sources), backward, self.keep_all)
            found = self._plans[key] = PassPlan(net, part, self._memory)
            if len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return found


class _Recorder(DryRecorder):
    """Records a net, whose layers are known not to depend on values; leaves are looked at in every replay."""

    def instead_of_forward(self, function: Function, inputs: Arrays) -> Any:
        if isinstance(function, LayerCall):
            return tuple(np.broadcast_to(np.zeros((), blob.dtype), blob.shape) for blob in function.top)
        return super().instead_of_forward(function, inputs)

    def _source(self, array: Array) -> Source:
        return Outside(ArrayTaken(array, 0)) if id(array) not in self._arrays else super()._source(array)


class Part(NamedTuple):
    """What of a net a plan does: its layers before number `end`, which read what `sources` have made; see NetPlans."""

    end: int
    sources: frozenset[int]
    backward: bool
    keep_all: bool


class PassPlan:
    """One pass over a part of a net for one set of shapes."""

    def __init__(self, net: Net, part: Part, memory: Arena) -> None:
        self.net, self._part = net, part
        self._layers = net.layers[: part.end]
        self._backward = part.backward
        self._leaves: list[tuple[Variable, Blob, str]] = []
        self._sources = part.sources
        self._operations = as_operations(net)
        self._pairs = {i: b for i, b in norm_pairs(net).items() if self._operations[i] and i < part.end}
        self._statistics: list[tuple[BatchNorm, F.BatchNorm]] = []
        self._parameters = dict(self._make_parameters())
        self._values: dict[int, Variable] = {}
        self._first: dict[int, Variable] = {}
        self._read: set[int] = set()
        self._asked: list[Variable] = []
        self._wanted: set[int] = set()
        self._call_ends: list[int] = []
        recorder = _Recorder(())
        # Operations run on zeros here; what NumPy would say of 0/0 concerns nobody.
        with recorder, np.errstate(all="ignore"):
            for i, layer in enumerate(self._layers):
                try:
                    self._record(i)
                except MemoryError as error:
                    raise layer.no_room() from error
                self._call_ends.append(len(recorder.calls))
            roots = self._roots() if part.backward else []
            if roots:
                recorder.before_walk(Walk(tuple(roots), True))
        self._program = self._make_program(recorder, memory)
        kept, losses = self._program.kept, self._loss_tops()
        self._losses = [(net.blob_list[j], kept[str(j)][0]) for j in losses if str(j) in kept]
        self._given_losses = [net.blob_list[j] for j in losses if str(j) not in kept]
        tops = [blob for i in range(part.end) for blob in net.tops(i)]
        self._shapes = [(blob, blob.shape) for blob in tops]
        self._fresh = self._overwritten_parameters()
        self._values, self._first = {}, {}

    # --- recording --------------------------------------------------------------------------------------

    def _make_parameters(self) -> Iterator[tuple[tuple[int, int], tuple[Variable, Blob]]]:
        """One Variable for all parameters that share memory; whole layers add to the diffs by themselves."""
        net = self.net
        made: dict[int, Variable] = {}
        for i, (layer, ids) in enumerate(zip(self._layers, net.param_ids, strict=False)):
            for index, (blob, number) in enumerate(zip(layer.blobs, ids, strict=True)):
                owner = net.param_owners[number]
                same = owner >= 0 and net.param_blobs[owner].shape == blob.shape
                key = owner if same else number
                if key not in made:
                    made[key] = Parameter(blob.data, name=f"{layer.name}[{index}]")
                    self._leaves.append((made[key], blob, "data"))
                yield (i, index), (made[key], blob)

    def _record(self, i: int) -> None:
        net, layer = self.net, self.net.layers[i]
        if i in self._sources:
            for j in net.top_ids[i]:
                self._enter(j, self._leaf(net.blob_list[j], self._is_wanted(j)))
            return
        recorded = self._backward and layer.need_backward
        needs = layer._needs(len(net.bottom_ids[i])) if recorded else [False] * len(net.bottom_ids[i])
        self._read.update(id(self._values[j]) for j in net.bottom_ids[i])
        bottom = [self._bottom(j, need) for j, need in zip(net.bottom_ids[i], needs, strict=True)]
        params = [
            self._seen(self._parameters[i, index][0], recorded and need)
            for index, need in enumerate(layer.param_propagate_down[: len(layer.blobs)])
        ]
        with enable_grad() if recorded else no_grad():
            found = self._tops(i, layer, bottom, params)
        for j, y in zip(net.top_ids[i], found, strict=True):
            self._enter(j, y)

    def _tops(self, i: int, layer: Layer, bottom: list[Variable], params: list[Variable]) -> list[Any]:
        if not self._operations[i]:
            return list(LayerCall(layer, self.net.bottoms(i), self.net.tops(i))(*bottom, *params))
        if isinstance(layer, Split):
            return [tap(bottom[0]) for _ in self.net.top_ids[i]]
        if i in self._pairs:
            return [self._normalised(self.net.layers[self._pairs[i]], bottom[0], *params)]
        if isinstance(layer, BatchNorm):
            return [bottom[0] if i in self._pairs.values() else self._normalised(layer, bottom[0])]
        return list(layer.computed(bottom, params))

    def _normalised(self, layer: Layer, x: Variable, scale: Any = None, shift: Any = None) -> Variable:
        norm = cast(BatchNorm, layer)
        function, channels = norm.function(), x.shape[1]
        if norm.global_stats:
            self._statistics.append((norm, function))
        scale = np.ones(channels, np.float32) if scale is None else scale
        return cast(Variable, function(x, scale, np.zeros(channels, np.float32) if shift is None else shift))

    def _enter(self, blob: int, value: Variable) -> None:
        self._values[blob] = value
        self._first.setdefault(blob, value)

    def _leaf(self, blob: Blob, wanted: bool) -> Variable:
        x = Variable(blob.data, None, wanted)
        self._leaves.append((x, blob, "data"))
        return x

    def _is_wanted(self, blob: int) -> bool:
        """Whether a layer computes the gradient of a source's top."""
        net = self.net
        return self._backward and any(
            layer.need_backward and need
            for layer, ids in zip(net.layers, net.bottom_ids, strict=True)
            for j, need in zip(ids, layer._needs(len(ids)), strict=True)
            if j == blob
        )

    def _bottom(self, blob: int, need: bool) -> Variable:
        """What a layer gets; propagate_down may ask for a gradient that goes no further."""
        x = self._values[blob]
        if need and not x.requires_grad:
            x = Variable(x.data, None, True)
            self._asked.append(x)
        if need and blob not in self._wanted:
            self._wanted.add(blob)
            self._first[blob] = x
        return self._seen(x, need)

    def _seen(self, x: Variable, need: bool) -> Variable:
        """What a layer gets: one that computes no gradient for it sees a constant."""
        if need or not x.requires_grad:
            return x
        constant = Variable(x.data, None, False)
        if x.creator is None:
            self._leaves += [(constant, blob, name) for leaf, blob, name in self._leaves if leaf is x]
        return constant

    def _roots(self) -> list[tuple[Variable, Variable]]:
        """Every value that nobody reads, with what stands in its blob's diff as the seed."""
        found = []
        for j, y in self._values.items():
            if id(y) not in self._read and y.requires_grad and y.creator is not None:
                blob = self.net.blob_list[j]
                seed = Variable(blob.diff, None, False)
                self._leaves.append((seed, blob, "diff"))
                found.append((y, seed))
        return found

    def _loss_tops(self) -> list[int]:
        pairs = zip(self._layers, self.net.top_ids, strict=False)
        return [j for layer, ids in pairs for j, weight in zip(ids, layer.loss_weights, strict=False) if weight]

    def _overwritten_parameters(self) -> list[tuple[Variable, Blob]]:
        """Parameters whose gradient comes from operations only, in one array: it may be put over what is there."""
        uses: dict[int, list[bool]] = {}
        blobs: dict[int, tuple[Variable, Blob]] = {}
        for (i, _), (x, blob) in self._parameters.items():
            memory = id(blob.memory("diff"))
            uses.setdefault(memory, []).append(self._operations[i] and blobs.setdefault(memory, (x, blob))[0] is x)
        return [blobs[memory] for memory, found in uses.items() if all(found)] if self._backward else []

    def _blobs_to_keep(self) -> set[int]:
        """All, or the outputs and what keeps a plan's operations apart: a run gives the same bits either way."""
        net = self.net
        if self._part.keep_all:
            return set(self._values)
        asked = {*net.output_ids, *self._loss_tops()}
        asked.update(j for ids in net.bottom_ids[self._part.end :] for j in ids)
        over: dict[int, str] = {}  # what works in place on each blob
        for layer, ids, tops in zip(net.layers, net.bottom_ids, net.top_ids, strict=True):
            if layer.type in _FUSED:
                asked.update(set(ids) ^ set(tops) if layer.type == "ReLU" else set(ids) - set(tops))
            for j in set(ids) & set(tops):
                over[j] = over.get(j, "") + (layer.type if rises(layer) else "other")
        return asked | {j for j, types in over.items() if types not in _FUSED_IN_PLACE}

    def _make_program(self, recorder: _Recorder, memory: Arena) -> Program:
        """Of a kept blob: what the last layer in place made of it, and the gradient of what the first one got."""
        kept, asked = {}, self._blobs_to_keep()
        for j, last in self._values.items():
            if j not in asked:
                continue
            number, first = recorder.number_of(last), recorder.number_of(self._first[j])
            if number is not None and first is not None:  # nobody reads some tops of sources
                kept[str(j)] = number, first
        lasting = frozenset(n for n, value in enumerate(recorder.values) if value.is_leaf)
        return Program(recorder, Result(None), lasting, kept, Buffers(), memory)

    # --- running ----------------------------------------------------------------------------------------

    def run(self) -> float:
        """Replay. Raises Stale where a parameter has taken another shape."""
        try:
            return self._run()
        except NoRoom as error:
            raise self.net.layers[bisect_right(self._call_ends, error.call)].no_room() from error
        except MemoryError as error:
            reason = f"there is not enough memory for the net '{self.net.name}'"
            raise UndertowError(reason, file=self.net.file, remedy="use a smaller batch or image") from error

    def _run(self) -> float:
        self._bring_into_shape()
        # What this pass begins with is written now if it is still to come: a layer in place has made a source's top.
        for x, blob, name in self._leaves:
            x.data = blob.data if name == "data" else blob.diff
            x.clear_grad()
        for x in self._asked:
            x.clear_grad()
        for blob in self.net.blob_list:
            blob.forget_later()
        for norm, function in self._statistics:
            function.mean[...], function.variance[...] = norm.statistics()
        homes = {id(x): blob.diff for x, blob in self._fresh if blob.take_over_diff()}
        try:
            self._program.run((), homes=homes)
        except BaseException:
            for home in homes.values():
                home[...] = 0
            raise
        for i, layer in enumerate(self._layers):
            if i not in self._sources:
                layer.forgotten = True
                if self._operations[i]:
                    layer.forget_pass()
        self._take_gradients(homes)
        losses = [weighted_sum(self._program.array(n), blob.diff) for blob, n in self._losses]
        losses += [weighted_sum(blob.data, blob.diff) for blob in self._given_losses]
        self._program.keep_into(partial(self._store, set()), finished=False)
        return sum(losses)

    def _bring_into_shape(self) -> None:
        """Between two passes with this plan there may have been others, with other shapes."""
        if any(blob.shape != shape for blob, shape in self._shapes):
            for blob, shape in self._shapes:
                blob.reshape(*shape)
            _reshape(self.net, self._part.end)

    def _take_gradients(self, homes: dict[int, Array]) -> None:
        """The parameters' gradients into their blobs, where they are not yet."""
        for x, blob in dict(self._parameters.values()).items():
            home, gradient = homes.get(id(x)), x.grad
            x.clear_grad()
            if home is not None and gradient is not home:
                home[...] = 0 if gradient is None else gradient
            elif home is None and gradient is not None:
                diff = blob.diff
                diff += gradient

    def _store(self, filled: set[int], name: str, data: Array, grad: Array | None) -> None:
        """What a replay has made, for those who look at the blob.

        filled: memory that has what belongs there. Of two blobs that share a diff, the gradient of the first stays.
        """
        blob, gradient = self.net.blob_list[int(name)], self._program.gradients.get(self._program.kept[name][1])
        for side, values in (("data", data), ("diff", grad)):
            memory = blob.memory(side)
            if values is not None and id(memory) not in filled:
                filled.add(id(memory))
                if not _lies_in(values, memory.array):
                    late = gradient if side == "diff" else None
                    blob.fill_later(side, Later(values.size, partial(_copy, values, late)))
        if grad is None and int(name) in self._wanted and id(blob.memory("diff")) not in filled:
            filled.add(id(blob.memory("diff")))
            blob.clear_diff()


def _reshape(net: Net, end: int) -> None:
    for i in range(end):
        net.layers[i].reshape(net.bottoms(i), net.tops(i))


def _lies_in(values: Array, memory: Array | None) -> bool:
    return memory is not None and np.may_share_memory(values, memory)


def _copy(values: Array, late: Gradient | None, to: Array) -> None:
    if late is not None:
        late.finish()
    to.reshape(values.shape)[...] = values

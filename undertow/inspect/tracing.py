"""Traces of user code: `with ut.trace() as found:` around a forward and a backward pass."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from undertow.core import registry
from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, MaybeArrays, Variables, Walk
from undertow.core.variable import Parameter
from undertow.inspect.record import Naming
from undertow.inspect.trace import LayerTrace, Trace

RATE = 0.01


class trace(FunctionHook):
    """Takes the statistics of every operation in its block, forward and backward; `as` gives the `Trace`.

    model: a Module; its parameters' names are shown. rate: the learning rate behind the update ratios (0.01).
    Each operation is one layer, named after the layer whose parameters it reads, or by its number. A second forward
    pass in the same block adds further layers ("fc (2)"). Costs about as much again as the pass itself: see `ut.watch`
    for training.
    """

    def __init__(self, model: Any = None, *, rate: float = RATE) -> None:
        self.trace = Trace("user code", "", "", rate)
        named = model.named_parameters() if model is not None else ()
        self._naming = Naming({id(parameter): name for name, parameter in named})
        # Functions and parameters are held, so that their identities stay theirs while the block lasts.
        self._layers: dict[int, tuple[Function, LayerTrace]] = {}
        self._parameters: list[tuple[LayerTrace, str, Parameter]] = []

    def __enter__(self) -> Trace:  # type: ignore[override]
        super().__enter__()
        return self.trace

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._layers.clear()
        self._parameters.clear()

    def after_call(self, function: Function, operands: Variables, outputs: Variables) -> None:
        entry = registry.find(type(function))
        kind = function.label if entry is None else entry.name
        index = len(self.trace.layers)
        layer = LayerTrace(index, self._naming.name(operands, index), kind, activation=kind)
        layer.computes = kind not in ("reshape", "transpose", "broadcast_to", "get_item")
        given = [x.data for x in operands if not isinstance(x, Parameter)]
        layer.fed = not given or any(array.any() for array in given)
        if not self.trace.layers:
            self.trace.see_input({str(i): x.data for i, x in enumerate(operands) if not isinstance(x, Parameter)})
        for key, x in self._naming.parameters(operands).items():
            self._parameters.append((layer, key, x))
            layer.see_parameter(key, x.data, None, self.trace.rate)
        layer.see_output(outputs[0].data)
        self.trace.layers.append(layer)
        self._layers[id(function)] = function, layer

    def before_walk(self, walk: Walk) -> bool:
        root = walk.roots[0][0]
        if len(walk.roots) == 1 and root.size == 1 and root.dtype.kind in "fiub":
            self.trace.loss = float(root.data.reshape(()))
        return False

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        known = self._layers.get(id(function))
        if known is not None:
            known[1].see_gradient(output_grads[0])

    def after_walk(self) -> None:
        for layer, name, parameter in self._parameters:
            if parameter.grad is not None:
                layer.see_parameter(name, parameter.data, parameter.grad, self.trace.rate)

"""Which gradient each layer sends to each of those it reads: the addends of every sum on the way back."""

from __future__ import annotations

from collections import Counter

from undertow.core.function import Function
from undertow.core.hooks import Arrays, FunctionHook, MaybeArrays
from undertow.inspect.darknet_run import DarknetRun, read_by
from undertow.inspect.record import Array
from undertow.inspect.statistics import statistics_of


class Sending(FunctionHook):
    """Sees, during the walk backward of a Darknet network, what arrives at each layer's output, and from where.

    sent: layer -> {layer that it reads: norm of the gradient sent there}, -1 standing for the network's input; 0 where
    nothing is sent, be it that nobody wants it or that the dialect loses it.
    """

    def __init__(self, run: DarknetRun) -> None:
        self.sent: dict[int, dict[int, float]] = {}
        self._places: dict[int, list[tuple[int, int, int]]] = {}
        self._reads: Counter[tuple[int, int]] = Counter()
        self._sums: dict[tuple[int, int], Array] = {}
        for record in run.layers:
            self._expect(run, record.index)

    def _expect(self, run: DarknetRun, index: int) -> None:
        layers = run.net.layers
        sources = [source for source in read_by(run.net, index) if source >= 0]
        self.sent[index] = dict.fromkeys(sources, 0.0)
        for source in sources:
            output = layers[source].output_variable
            reads = [
                (id(call.function), place)
                for call in run.layers[index].calls
                for place, x in enumerate(call.operands)
                if x is output and call.wanted[place]
            ]
            self._reads[index, source] = len(reads)
            for function, place in reads:
                self._places.setdefault(function, []).append((index, source, place))

    def after_backward(self, function: Function, output_grads: Arrays, input_grads: MaybeArrays) -> None:
        for index, source, place in self._places.get(id(function), ()):
            gradient = input_grads[place]
            if gradient is None:
                continue
            if self._reads[index, source] > 1:
                # Such a layer sends the sum of what its operations say.
                before = self._sums.get((index, source))
                self._sums[index, source] = gradient = gradient if before is None else before + gradient
            self.sent[index][source] = statistics_of(gradient).norm

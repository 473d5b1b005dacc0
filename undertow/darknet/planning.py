"""Training and predicting with plans: what `Network` does by default when nobody looks at intermediate values."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.core.modes import no_grad, test_mode
from undertow.core.variable import Variable
from undertow.darknet.files.memory import RECURRENT
from undertow.darknet.layers.layers_loss import HeadLayer, LossLayer
from undertow.darknet.learning.nonfinite import check_losses, first_ruined
from undertow.errors import GraphError, NonFiniteError

if TYPE_CHECKING:
    from undertow.darknet.network import Network
    from undertow.plans.planned import Planned
    from undertow.plans.program import Program

Array = np.ndarray[Any, Any]


class NetworkPlans:
    """The planned steps of a network: one of training and one of inference, each with plans for all sizes.

    finite: ids of accumulators that the last pass of training left with finite numbers only, as far as it looked.
    """

    def __init__(self, net: Network) -> None:
        self.net = net
        # Made when first asked for: they need the compiled kernels, which may not be there.
        self._steps: tuple[Planned, Planned] | None = None
        self._functions: dict[Program, list[Any]] = {}
        self._shown = self._checked = False
        self.finite: set[int] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> NetworkPlans:
        """Those of the copied network, which plans anew."""
        twin: NetworkPlans = object.__new__(NetworkPlans)
        memo[id(self)] = twin
        twin.__init__(copy.deepcopy(self.net, memo))  # type: ignore[misc]
        return twin

    @property
    def possible(self) -> bool:
        """Whether the network can be planned at all, here."""
        if any(layer.type in RECURRENT for layer in self.net.layers):
            return False
        try:
            return self._both() is not None
        except ImportError:
            return False

    def _both(self) -> tuple[Planned, Planned]:
        if self._steps is None:
            from undertow.plans.planned import Planned

            self._steps = Planned(self._train_step, dry=True), Planned(self._predict_step, dry=True)
        return self._steps

    @property
    def _train(self) -> Planned:
        return self._both()[0]

    @property
    def _predict(self) -> Planned:
        return self._both()[1]

    def train(self, images: Array, truth: Array) -> None:
        """Forward and backward: leaves cost, loss, gradients, and what the loss layers tell, in the network.

        Raises NonFiniteError, before the accumulators are touched, that names the first array that is not finite.
        """
        net = self.net
        images, truth = self._own_type(images), np.ascontiguousarray(truth)
        if net.hidden.is_doubtful(images):
            self._search(images, truth)
        for parameter in net.parameters():
            parameter.clear_grad()
        # Gradients of weights go straight to the accumulators; a bad cost is noticed before they do.
        self._train.sinks = {id(e.parameter): net.optimizer.updates[n] for n, e in net.optimizer.entries.items()}
        self._train.before_walk = self._check_losses
        self._shown = self._checked = False
        self.finite = set()
        try:
            loss = self._train(images, truth)
            if self._train.last is not None:
                if not self._shown:
                    self._show_losses(self._train.last)
                net.loss, net.input, net.truth = loss, images, truth
                self.finite = self._train.last.finite_sinks()
            if not self._checked:
                check_losses(net)
        except NonFiniteError as problem:
            net.forward(images, truth)  # with all values at hand, the first bad one can be named
            raise first_ruined(net) or problem from None

    def _search(self, images: Array, truth: Array) -> None:
        """Raise NonFiniteError for the first bad value of a pass, which leaves the network as it was."""
        net = self.net
        kept = [(array, array.copy()) for layer in net.layers for array in layer.buffers.values()]
        with np.errstate(all="ignore"):
            net.forward(images, truth)
            problem = first_ruined(net)
        for array, values in kept:
            array[...] = values
        net.release()
        if problem is not None:
            raise problem

    def _check_losses(self) -> None:
        """Called between forward and backward of a replay."""
        if self._train.last is not None:
            self._show_losses(self._train.last)
            check_losses(self.net)
            self._checked = True

    def predict(self, images: Array) -> None:
        """Forward at inference: leaves the outputs of the network and of its heads in their layers.

        Outputs of other layers are computed again when somebody asks for them.
        """
        net = self.net
        images = self._own_type(images)
        with no_grad(), test_mode():
            outputs = self._predict(images)
        if self._predict.last is None:
            return
        net.release()
        net.input, net.truth = images, None
        for layer in net.layers:
            layer.recompute = self._recompute
        for index, output in outputs.items():
            net.layers[index].take_output(output)

    def _recompute(self) -> None:
        with no_grad(), test_mode():
            self.net.forward(self.net.input)  # type: ignore[arg-type]

    def _own_type(self, images: Array) -> Array:
        checked = self.net.checked_input(images)
        return np.ascontiguousarray(checked.data)

    def _train_step(self, images: Array, truth: Array) -> Variable:
        net = self.net
        net.forward(images, truth)
        if net.loss is None:
            raise GraphError("there is no loss: the net has no cost")
        if net.loss.requires_grad:
            net.loss.backward()
        return net.loss

    def _predict_step(self, images: Array) -> dict[int, Variable]:
        net = self.net
        net.forward(images)
        shown = {net.shapes.output.index, *(layer.index for layer in net.layers if isinstance(layer, HeadLayer))}
        return {index: net.layers[index].output_variable for index in sorted(shown)}

    def _show_losses(self, program: Program) -> None:
        """Give the loss layers the operations of this program, which hold what they last computed."""
        net, self._shown = self.net, True
        functions = self._functions.get(program)
        if functions is None:
            functions = [layer._function if isinstance(layer, LossLayer) else None for layer in net.layers]
            self._functions[program] = functions
        net.release()
        for layer, function in zip(net.layers, functions, strict=True):
            if isinstance(layer, LossLayer):
                layer._function = function
        net.collect_losses()

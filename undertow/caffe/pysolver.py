"""pycaffe's solvers: get_solver and one class for each type."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from undertow.caffe import solver as core
from undertow.caffe.arguments import WrongKind, function_of, shown
from undertow.caffe.layers_python import import_layer
from undertow.caffe.proto.chosen import chosen_forks
from undertow.caffe.proto.message import Message
from undertow.caffe.proto.schema import ForkLike
from undertow.caffe.pycaffe import Net, check_file
from undertow.caffe.runtime import NCCL, next_seed

PathLike = str | os.PathLike[str]


class Solver:
    """A training from a solver prototxt; see `undertow.caffe.solver.Solver`, which does the work.

    net, test_nets: pycaffe nets. After `step` their blobs and parameters can be read and changed; a parameter's diff
    holds what the last update subtracted. param: the SolverParameter; base_lr may be changed between steps.
    """

    kind: ClassVar[str | None] = None

    def __init__(
        self,
        solver_file: PathLike | Message,
        *,
        dialect: str = "caffe",
        seed: int | None = None,
        fork: ForkLike | None = None,
    ) -> None:
        if not isinstance(solver_file, Message):
            check_file(solver_file)
        self.solver = core.Solver(
            solver_file,
            type=self.kind,
            seed=next_seed() if seed is None else seed,
            fork=chosen_forks() if fork is None else fork,
            options={"dialect": dialect, "python": import_layer},
        )
        self.net = Net.of(self.solver.net)
        self.test_nets = [Net.of(net) for net in self.solver.test_nets]

    @property
    def iter(self) -> int:
        """Updates done."""
        return self.solver.iter

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return self.solver.lr

    @property
    def param(self) -> Message:
        """The SolverParameter."""
        return self.solver.param

    def step(self, iterations: int) -> None:
        """So many iterations, with the tests, snapshots and log lines that fall due."""
        self.solver.step(iterations)

    def solve(self, resume_file: PathLike | None = None) -> None:
        """Train to max_iter."""
        self.solver.solve(resume_file)

    def restore(self, state_file: PathLike) -> None:
        """Go on from a snapshot."""
        self.solver.restore(state_file)

    def snapshot(self) -> None:
        """Write a snapshot."""
        self.solver.snapshot()

    def apply_update(self) -> None:
        """One update from the gradients that stand in the parameters' diffs."""
        self.solver.apply_update()

    def add_callback(
        self, on_start: Callable[[], object] | Any, on_gradients_ready: Callable[[], object] | None = None
    ) -> None:
        """Call these in each iteration, before its passes and before its update; a link between GPUs does nothing."""
        if on_gradients_ready is None and isinstance(on_start, NCCL):
            return
        start = function_of(on_start, "on_start")
        self.solver.callbacks.append(core.Callback(start, function_of(on_gradients_ready, "on_gradients_ready")))

    def share_weights(self, net: Net) -> None:
        """Let another net look at the parameters of the train net."""
        if not isinstance(net, Net):
            raise WrongKind(f"share_weights takes a Net, not {shown(net)}", remedy="give a caffe.Net")
        net.share_with(self.net)


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum: pycaffe's name for solvers of type SGD."""

    kind = "SGD"


class NesterovSolver(SGDSolver):
    """Nesterov's accelerated gradient: pycaffe's name for solvers of type Nesterov."""

    kind = "Nesterov"


class AdaGradSolver(SGDSolver):
    """AdaGrad: pycaffe's name for solvers of type AdaGrad."""

    kind = "AdaGrad"


class RMSPropSolver(SGDSolver):
    """RMSProp: pycaffe's name for solvers of type RMSProp."""

    kind = "RMSProp"


class AdaDeltaSolver(SGDSolver):
    """AdaDelta: pycaffe's name for solvers of type AdaDelta."""

    kind = "AdaDelta"


class AdamSolver(SGDSolver):
    """Adam: pycaffe's name for solvers of type Adam."""

    kind = "Adam"


_CLASSES: dict[str, type[Solver]] = {
    str(cls.kind): cls for cls in (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver)
}


def get_solver(
    solver_file: PathLike, *, dialect: str = "caffe", seed: int | None = None, fork: ForkLike | None = None
) -> Solver:
    """A solver of the type that the prototxt names."""
    from undertow.caffe.proto.api import read_solver

    check_file(solver_file)
    fork = chosen_forks() if fork is None else fork
    cls = _CLASSES.get(str(read_solver(solver_file, fork=fork).type), Solver)
    return cls(solver_file, dialect=dialect, seed=seed, fork=fork)

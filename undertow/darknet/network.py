"""A Darknet network: layers built from a cfg, run forward, backward and updated as the C program does it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from undertow.core.modes import is_training, no_grad, test_mode, train_mode
from undertow.core.variable import Parameter, Variable
from undertow.darknet.detection.boxes import Candidates, Detection
from undertow.darknet.detection.decode import get_network_boxes
from undertow.darknet.detection.nms import do_nms
from undertow.darknet.dialect import EXACT, Dialect
from undertow.darknet.files.batch_norms import check_batch_norms
from undertow.darknet.files.cfg import Config
from undertow.darknet.files.choice import check_trainable
from undertow.darknet.files.options_net import NetOptions
from undertow.darknet.files.shapes import NetworkShapes, check_memory, infer_shapes
from undertow.darknet.files.weights import WeightsFile, read_weights, write_weights
from undertow.darknet.layers.draws import Draws
from undertow.darknet.layers.layer import Array, BuildContext, Layer, Pass, as_rows, updates_name
from undertow.darknet.layers.layers_loss import HeadLayer
from undertow.darknet.layers.sections import build_layer
from undertow.darknet.learning.hidden import HiddenValues
from undertow.darknet.learning.nonfinite import check_pass, check_updates
from undertow.darknet.planning import NetworkPlans
from undertow.errors import GraphError, NonFiniteError, ShapeError, UndertowWarning
from undertow.kernels import select
from undertow.optimizers import DarknetAdam, DarknetParameter, DarknetSGD, Policy
from undertow.optimizers.policies import from_darknet


class Network:
    """A network in Darknet's terms.

    layers: see `Layer`; options: of [net]. batch: samples in one pass (batch / subdivisions * time_steps).
    seen: samples seen in training. cost: of the last pass, the mean over the layers that have one.
    keep_deltas: keep intermediate gradients, so that `layers[i].delta` can be read after `backward` (takes memory).
    loss: of the last training pass, a Variable: the scalar whose gradient `backward` computes.
    names: of the classes, for `detect`. dialect_reason: why this dialect, where it was chosen from the files.
    planned: compute with plans (see `undertow.plan`) in `predict`, and in `train_datum` unless keep_deltas.
    draws: the random numbers of dropout, crop and detection; `draws.source` may be replaced.
    hidden: notices values that are not finite and that the loss does not show.

    Raises FormatError or ShapeError, with file and line, for a cfg that does not make a network.
    """

    def __init__(
        self,
        config: Config,
        dialect: Dialect = EXACT,
        *,
        seed: int = 0,
        dtype: Any = np.float32,
    ) -> None:
        self.dialect = dialect
        self.dialect_reason = ""
        self.dtype = np.dtype(dtype)
        self.draws = Draws(seed, lambda: self.seen)
        self._build(config, np.random.default_rng(seed))
        self.seen = 0
        self.updates_done = 0
        self.cost = 0.0
        self.keep_deltas = True
        self.loss: Variable | None = None
        self.input: Array | None = None
        self.truth: Array | None = None
        self.names: Sequence[str] = ()
        self._input_variable: Variable | None = None
        self.policy = learning_rate_policy(self.options, fork=dialect.fork)
        self.optimizer = self._make_optimizer()
        self.all_finite = select.AllFinite()
        self.planned = True
        self._plans = NetworkPlans(self)

    def _build(self, config: Config, rng: np.random.Generator) -> None:
        """Layers for the config, with fresh parameters."""
        self.config, self._trainable = config, False
        self.shapes: NetworkShapes = infer_shapes(config, fork=self.dialect.fork or None)
        check_memory(self.shapes, batch=1)
        self.options: NetOptions = self.shapes.net
        context = BuildContext(self.options, self.dialect, rng, self.dtype, self.shapes, lambda: self.seen, self.draws)
        for section, shape in zip(config.layers, self.shapes, strict=True):
            context.built.append(build_layer(section, shape, context))
        self.layers: list[Layer] = context.built
        self.hidden = HiddenValues(self)
        self._cuts = self._find_cuts()
        self._stop = max((i for i, layer in enumerate(self.layers) if layer.options.stopbackward), default=-1)

    # --- the flow of the C program ----------------------------------------------------------------------

    def train_datum(self, images: Array, truth: Array) -> float:
        """One pass of training: forward, backward, and an update when `subdivisions` passes are complete.

        images: (batch, c, h, w) or (batch, inputs). truth: (batch, truths). Returns the cost.
        Raises NonFiniteError, before parameters are touched, that names the first array that is not finite. When the
        forward pass holds it, rolling statistics and the count of samples seen are as before, too.
        """
        if len(images) != self.batch:
            raise ShapeError(f"a training pass takes {self.batch} samples (batch / subdivisions), got {len(images)}")
        self.seen += self.batch
        kept = [(array, array.copy()) for layer in self.layers for array in layer.buffers.values()]
        try:
            self._learn(images, truth)
        except (ShapeError, NonFiniteError):
            # What was refused was not seen; the original counts first, and burn-in reads the count meanwhile.
            self.seen -= self.batch
            for array, values in kept:
                array[...] = values
            raise
        if (self.seen // self.batch) % self.subdivisions == 0:
            check_updates(self, self._plans.finite)
            self.update()
        return self.cost

    def _learn(self, images: Array, truth: Array) -> None:
        with train_mode():
            if self._use_plans and not self.keep_deltas:
                self._plans.train(images, truth)
                self.optimizer.accumulate(clear=False)
            else:
                self._plans.finite = set()
                doubtful = self.hidden.is_doubtful(self.checked_input(images).data)
                self.forward(images, truth)
                check_pass(self, doubtful)
                self.backward()

    def forward(self, images: Array | Variable, truth: Array | None = None) -> Variable:
        """Through all layers. In training (the default mode) statistics are the batch's, and losses are computed.

        images: an array, or a Variable whose gradient is wanted too. Returns the last layer's output; `output`
        gives the network's, which is that of the last layer that is not a cost.
        """
        if truth is not None and is_training() and not self._trainable:
            check_trainable(self.config, self.dialect)
            self._trainable = True
        x = self.checked_input(images)
        if is_training():
            check_batch_norms(self.config, self.shapes, self.dialect, len(x.data))
        self.input, self.truth = x.data, truth
        self._input_variable = x
        rows = None if truth is None else Variable(np.asarray(truth).reshape(len(x.data), -1), requires_grad=False)
        run = Pass(rows, is_training(), self.keep_deltas and is_training(), self._cuts, (self.w, self.h))
        for layer in self.layers:
            x = layer.run(x, run, detached=layer.index <= self._stop)
            run.outputs.append(x)
            if layer.options.truth:
                run.truth = as_rows(Variable(x.data, requires_grad=False))
        self.collect_losses()
        return x

    def backward(self) -> None:
        """Gradients of the loss, added (with Darknet's sign) to every layer's `*_updates`."""
        if self.loss is None:
            raise GraphError("there is no loss: call forward with truth, in training mode, on a net that has a cost")
        for parameter in self.parameters():
            parameter.clear_grad()
        if self.loss.requires_grad:  # nothing learns when every layer lies behind a stopbackward
            self.loss.backward()
        self.optimizer.accumulate(clear=False)
        if not self.keep_deltas:
            self.release()

    def update(self) -> None:
        """Move the parameters along their accumulated updates (see `DarknetSGD`)."""
        self.updates_done += 1
        self.optimizer.update(self.learning_rate, self.batch * self.subdivisions)

    def predict(self, images: Array) -> Array:
        """The network's output at inference; (batch, c, h, w) or (batch, outputs).

        An UndertowWarning tells when it holds NaN or infinite values.
        """
        with np.errstate(all="ignore"):
            if self._use_plans:
                self._plans.predict(images)
            else:
                with no_grad(), test_mode():
                    self.forward(images)
        heads = [layer.output for layer in self.layers if isinstance(layer, HeadLayer)]
        if not all(map(select.all_finite, (self.output, *heads))):
            guesses = "" if heads else ", and guesses are the first classes, as in the C program"
            warnings.warn(
                UndertowWarning(
                    f"{self.config.file}: the output of the net holds NaN or infinite values: what is made of it means "
                    f"nothing{guesses}. To mend it: give weights, or look for broken values in them with undertow check"
                ),
                stacklevel=2,
            )
        return self.output

    def reset_state(self) -> None:
        """Let recurrent layers start from nothing (reset_network_state)."""
        for layer in self.layers:
            layer.reset_state()

    def release(self) -> None:
        """Let go of the arrays of the last pass."""
        self.loss = self._input_variable = None
        for layer in self.layers:
            layer.release()

    # --- Darknet's fields -------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """How many layers."""
        return len(self.layers)

    @property
    def overwritten(self) -> Mapping[int, Array | None]:
        """Layers whose delta the layer after overwrites: the mask of what later readers keep of theirs (None: nothing).

        Empty where the dialect does not follow the C program in this.
        """
        return self._cuts

    @property
    def stop(self) -> int:
        """The last layer with stopbackward, which no gradient passes; -1 without any."""
        return self._stop

    @property
    def batch(self) -> int:
        """Samples in one pass."""
        return self.options.pass_batch

    @property
    def subdivisions(self) -> int:
        """Passes to one update."""
        return self.options.subdivisions

    @property
    def inputs(self) -> int:
        """Values of one sample."""
        return self.shapes.inputs

    @property
    def outputs(self) -> int:
        """Values of the network's output for one sample."""
        return self.shapes.output.outputs

    @property
    def truths(self) -> int:
        """Values of the truth of one sample."""
        return self.shapes.truths

    @property
    def c(self) -> int:
        """Channels of the input; 0 where it is no image."""
        return self.options.channels

    @property
    def h(self) -> int:
        """Height of the input in pixels; 0 where it is no image."""
        return self.options.height

    @property
    def w(self) -> int:
        """Width of the input in pixels; 0 where it is no image."""
        return self.options.width

    @property
    def output(self) -> Array:
        """Output of the last layer that is not a cost, of the last pass."""
        return self.layers[self.shapes.output.index].output

    @property
    def delta(self) -> Array | None:
        """Minus the gradient of the input, when forward was given a Variable; Darknet computes none."""
        x = self._input_variable
        return None if x is None or x.grad is None else -x.grad

    @property
    def workspace(self) -> Array:
        """Scratch of the size the C program allocates; nothing here needs it."""
        return np.zeros(max((shape.workspace for shape in self.shapes), default=0) // 4, np.float32)

    @property
    def letterbox(self) -> bool:
        """Whether pictures are fitted in with grey bars (letter_box=1 in [net] asks too); YOLOv1 stretches them."""
        wanted = self.dialect.letterbox or self.options.letter_box
        return wanted and not any(layer.type == "detection" for layer in self.layers)

    @property
    def batch_number(self) -> int:
        """How many updates the samples seen so far make (get_current_batch)."""
        return self.seen // (self.batch * self.subdivisions)

    @property
    def learning_rate(self) -> float:
        """The rate of the next update (get_current_rate)."""
        return self.policy(self.batch_number)

    # --- files and boxes --------------------------------------------------------------------------------

    def load_weights(
        self, path: str | os.PathLike[str], *, start: int = 0, cutoff: int | None = None, strict: bool = False
    ) -> WeightsFile:
        """Take parameters and `seen` from a .weights file; see `read_weights`. Returns what was found there.

        start, cutoff: only these layers. A file that ends before the last layer fills those it reaches.
        """
        found = read_weights(
            path, self.shapes, start=start, cutoff=cutoff, strict=strict, original=self.config.original
        )
        found.copy_into(self._array)
        self.seen = found.seen
        return found

    def save_weights(self, path: str | os.PathLike[str], *, cutoff: int | None = None) -> None:
        """Write a .weights file that Darknet loads; beside `path`, then renamed."""
        version = self.dialect.weights_version
        write_weights(path, self.shapes, self._array, seen=self.seen, cutoff=cutoff, version=version)

    def detect(
        self, image: str | os.PathLike[str] | Array, threshold: float = 0.5, nms: float = 0.45
    ) -> list[Detection]:
        """What is found in one picture, a path or an array; see `undertow.darknet.detection.detector.detect`."""
        from undertow.darknet.detection.detector import detect

        return detect(self, image, threshold, nms)

    def candidates(
        self,
        image_size: tuple[int, int],
        threshold: float,
        *,
        relative: bool = True,
        index: int = 0,
        letterbox: bool | None = None,
    ) -> Candidates:
        """Boxes of the last pass with objectness above the threshold, before suppression (get_network_boxes).

        image_size: (width, height) of the picture. index: which picture of the batch. letterbox: how the picture was
        fitted in, as this network does it unless given.
        """
        heads = [layer.head() for layer in self.layers if isinstance(layer, HeadLayer)]
        return get_network_boxes(
            heads,
            (self.w, self.h),
            image_size,
            threshold,
            relative=relative,
            letterbox=self.letterbox if letterbox is None else letterbox,
            index=index,
        )

    def suppress(self, candidates: Candidates, threshold: float) -> Candidates:
        """Non-maximum suppression of the kind that the last head asks for; see `undertow.darknet.detection.nms`."""
        heads = [layer for layer in self.layers if isinstance(layer, HeadLayer)]
        kind, beta = (heads[-1].nms_kind, heads[-1].beta_nms) if heads else ("default", 0.0)
        return do_nms(candidates, threshold, kind, beta)

    def replan(self) -> None:
        """Forget plans: after a change to what layers compute, not only to their arrays."""
        self._plans = NetworkPlans(self)

    def resize(self, width: int, height: int) -> None:
        """Take pictures of another size from now on; parameters and everything learned stay (resize_network)."""
        before = self.layers
        self._build(self.config.with_values(0, {"width": width, "height": height}), np.random.default_rng(0))
        for old, new in zip(before, self.layers, strict=True):
            shapes = {name: array.shape for name, array in new.arrays().items()}
            if shapes != {name: array.shape for name, array in old.arrays().items()}:
                raise ShapeError(
                    f"the network cannot be resized to {width}x{height}: layer {new.index} [{new.type}] has parameters "
                    "that depend on the size of its input",
                    file=self.config.file,
                    remedy=f"leave out random=1 or [{new.type}], or give pictures of the net's own size",
                )
            new.parameters, new.buffers, new.updates = old.parameters, old.buffers, old.updates

    def _array(self, layer: int, name: str) -> Array:
        return self.layers[layer].arrays()[name]

    # --- parameters -------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[Parameter]:
        """All learned arrays."""
        for layer in self.layers:
            if layer.owner is None:
                yield from layer.parameters.values()

    def _make_optimizer(self) -> DarknetSGD:
        """Darknet's update rule over all layers; the layers show its accumulators as their `*_updates`."""
        entries = {
            f"layer{layer.index:02d}/{name}": (layer, name)
            for layer in self.layers
            if layer.owner is None
            for name in layer.parameters
        }
        parameters = [
            DarknetParameter(
                key, layer.parameters[name], name.endswith("weights"), layer.rate_of(name), layer.learns(name)
            )
            for key, (layer, name) in entries.items()
        ]
        optimizer = self._rule(parameters)
        for key, (layer, name) in entries.items():
            layer.updates[updates_name(name)] = optimizer.updates[key]
        return optimizer

    def _rule(self, parameters: list[DarknetParameter]) -> DarknetSGD:
        o = self.options
        if o.adam and self.dialect.adam:
            return DarknetAdam(parameters, decay=o.decay, beta1=o.beta1, beta2=o.beta2, epsilon=o.epsilon)
        return DarknetSGD(parameters, momentum=o.momentum, decay=o.decay)

    @property
    def _use_plans(self) -> bool:
        return self.planned and self._plans.possible

    def checked_input(self, images: Array | Variable) -> Variable:
        """A pass's input as a Variable of the network's type; ShapeError where it does not fit."""
        x = images if isinstance(images, Variable) else Variable(np.asarray(images, self.dtype), requires_grad=False)
        values = int(np.prod(x.shape[1:]))
        if x.ndim < 2 or values != self.inputs:
            shape = f"{self.c} x {self.h} x {self.w}" if self.c else str(self.inputs)
            raise ShapeError(f"the network takes samples of {shape} = {self.inputs} values, got an array {x.shape}")
        return x

    def collect_losses(self) -> None:
        """Cost and loss of the last pass, from those of the layers."""
        costs = [layer.cost for layer in self.layers if layer.cost is not None]
        self.cost = sum(costs) / len(costs) if costs else 0.0
        losses = [layer.loss for layer in self.layers if layer.loss is not None]
        self.loss = None
        for loss in losses:
            self.loss = loss if self.loss is None else self.loss + loss

    def _find_cuts(self) -> dict[int, Array | None]:
        """Where the layer after overwrites the delta: later readers send their gradients for nothing."""
        cuts: dict[int, Array | None] = {}
        if self.dialect.overwrite_deltas:
            for layer in self.layers[1:]:
                if layer.overwrites:
                    before = layer.index - 1
                    cuts[before] = layer.overwritten()
                    while self.layers[before].in_place and before:  # its delta is that of the layer before it
                        before -= 1
                        cuts[before] = layer.overwritten()
        return cuts

    def __repr__(self) -> str:
        return f"<Network of {self.n} layers from {self.config.file}, dialect {self.dialect.name}>"


def learning_rate_policy(options: NetOptions, draw: Callable[[int], float] | None = None, fork: bool = False) -> Policy:
    """The policy of a [net] section: from the number of updates to the rate.

    draw: for policy=random, from that number to a uniform random one in 0..1. fork: as AlexeyAB's fork counts, in
    signed numbers (policy=sigmoid before its step).
    """
    return from_darknet(
        options.policy,
        learning_rate=options.learning_rate,
        burn_in=options.burn_in,
        power=options.power,
        step=options.step,
        scale=options.scale,
        steps=options.steps,
        scales=options.scales[: len(options.steps)],  # the original reads no more of them
        gamma=options.gamma,
        max_batches=options.max_batches,
        learning_rate_min=options.learning_rate_min,
        sgdr_cycle=options.sgdr_cycle,
        sgdr_mult=options.sgdr_mult,
        draw=draw,
        unsigned=not fork,
    )

"""The options of [net]: input size, batches, update rule, learning-rate policy, augmentation.

Source: parse_net_options in src/parser.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from undertow.darknet.files.option_fields import UNSET, Options, Problem, option

POLICIES = ("constant", "step", "exp", "poly", "steps", "sigmoid", "random")
FORK_POLICIES = ("sgdr",)


@dataclass(frozen=True, kw_only=True)
class NetOptions(Options):
    """[net] or [network]."""

    # Input. `inputs` counts values of one sample; it is given instead of a size where the input is no image.
    width: int = option(0, least=0)
    height: int = option(0, least=0)
    channels: int = option(0, least=0)
    inputs: int = option(UNSET, least=0)
    notruth: bool = option(False)

    # Images in one update, passes they are split into, steps of a recurrent net.
    batch: int = option(1, least=1)
    subdivisions: int = option(1, least=1)
    time_steps: int = option(1, least=1)
    max_batches: int = option(0)

    # Update rule.
    learning_rate: float = option(0.001)
    momentum: float = option(0.9)
    decay: float = option(0.0001)
    adam: bool = option(False)
    beta1: float = option(0.9, key="B1")
    beta2: float = option(0.999, key="B2")
    epsilon: float = option(1e-7, key="eps")
    clip: float = option(0.0)

    # Learning-rate policy.
    policy: str = option("constant", choices=POLICIES, fallback="constant", fork_choices=FORK_POLICIES)
    burn_in: int = option(0, least=0)
    power: float = option(4.0)
    step: int = option(1)
    scale: float = option(1.0)
    steps: tuple[int, ...] = option(())
    scales: tuple[float, ...] = option(())
    gamma: float = option(1.0)
    learning_rate_min: float = option(0.00001, fork=True)
    sgdr_cycle: int = option(UNSET, fork=True)
    sgdr_mult: int = option(2, fork=True)

    # Whether pictures are fitted in with grey bars; AlexeyAB's fork stretches them unless told.
    letter_box: bool = option(False, fork=True)

    # Augmentation.
    max_crop: int = option(UNSET)
    min_crop: int = option(UNSET)
    max_ratio: float = option(UNSET)
    min_ratio: float = option(UNSET)
    center: bool = option(False)
    angle: float = option(0.0)
    aspect: float = option(1.0)
    saturation: float = option(1.0)
    exposure: float = option(1.0)
    hue: float = option(0.0)
    flip: bool = option(True, fork=True)  # the original always flips
    random: bool = option(False)

    def __post_init__(self) -> None:
        self._resolve(inputs=self.height * self.width * self.channels, max_crop=self.width * 2, min_crop=self.width)
        self._resolve(sgdr_cycle=self.max_batches)
        width = max(self.width, 1)  # the ratios mean nothing without an image
        self._resolve(max_ratio=self.max_crop / width, min_ratio=self.min_crop / width)

    @property
    def pass_batch(self) -> int:
        """Samples in one forward pass: `net.batch` of the original, batch / subdivisions * time_steps."""
        return self.batch // self.subdivisions * self.time_steps

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(channels, height, width); zeros where the input is no image."""
        return self.channels, self.height, self.width

    def problems(self) -> Iterator[Problem]:
        if self.batch % self.subdivisions:
            reason = f"batch ({self.batch}) must be a multiple of subdivisions ({self.subdivisions})"
            remedy = "choose batch and subdivisions so that batch / subdivisions is a whole number of images"
            yield Problem(("batch", "subdivisions"), reason, remedy, for_original=self.batch < self.subdivisions)
        if not self.inputs:
            remedy = "give width, height and channels, or inputs for a net without images"
            yield Problem(("width", "inputs"), "no input size in [net]", remedy)
        image = self.width * self.height * self.channels
        if image and self.inputs != image:
            reason = f"inputs={self.inputs} is not width*height*channels = {image}"
            yield Problem(("inputs",), reason, "remove inputs= from [net]")
        if self.policy == "steps":
            yield from self._step_problems()
        if self.policy == "sgdr" and min(self.sgdr_cycle, self.sgdr_mult) < 1:
            reason = f"policy=sgdr with a cycle of {self.sgdr_cycle} that grows {self.sgdr_mult} times"
            yield Problem(("sgdr_cycle", "sgdr_mult"), reason, "give sgdr_cycle or max_batches, and sgdr_mult, from 1")
        if self.policy == "step" and self.step < 1:
            remedy = "give the number of iterations after which scale= is applied, such as step=10000"
            yield Problem(("step",), f"policy=step with step={self.step}: the rate has no step to count", remedy)
        if self.policy == "poly" and self.max_batches < 1:
            reason = f"policy=poly with max_batches={self.max_batches}: the rate has no end to fall to"
            yield Problem(("max_batches", "policy"), reason, "give max_batches, from 1")

    def _step_problems(self) -> Iterator[Problem]:
        if not self.steps or not self.scales:
            yield Problem(("policy",), "policy=steps needs steps and scales", "give both lists, equally long")
        elif len(self.steps) != len(self.scales):
            reason = f"steps has {len(self.steps)} values, scales has {len(self.scales)}"
            too_few = len(self.scales) < len(self.steps)
            yield Problem(("scales",), reason, "give one scale for each step", for_original=too_few)

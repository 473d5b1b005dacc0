"""The shape of one layer, and the builder that shape rules work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from undertow.darknet.files.cfg import Config, Section
from undertow.darknet.files.options import section_type
from undertow.darknet.files.options_layers import LayerOptions
from undertow.darknet.files.options_net import NetOptions
from undertow.darknet.files.parameters import ParameterSpec
from undertow.errors import ShapeError

Shape = tuple[int, int, int]  # (channels, height, width); (0, 0, 0) where the values form no image


@dataclass(frozen=True)
class LayerShape:
    """One layer of a network.

    index: from 0. type: the section's full name. line: of its section. options: its typed options.
    inputs, outputs: values of one sample it reads from the layer before it and writes.
    in_shape, out_shape: the same as (channels, height, width), zeros where the values form no image.
    sources: layers it reads besides the one before it, or instead of it (route).
    truths: values of the truth it wants for one sample, 0 when it wants as many as it has outputs or none.
    parameters: what it keeps in a weights file, in file order. nweights, nbiases: as the original counts them.
    workspace: bytes of scratch the original asks for. bflops: as the original prints, convolutions only.
    """

    index: int
    type: str
    line: int
    options: LayerOptions
    inputs: int
    outputs: int
    in_shape: Shape
    out_shape: Shape
    sources: tuple[int, ...] = ()
    truths: int = 0
    parameters: tuple[ParameterSpec, ...] = ()
    workspace: int = 0
    bflops: float = 0.0
    reduction: int = field(default=1, repr=False)

    @property
    def nweights(self) -> int:
        """Number of its weights, biases left out."""
        return sum(spec.count for spec in self.parameters if spec.kind == "weights")

    @property
    def nbiases(self) -> int:
        """Number of its biases."""
        return sum(spec.count for spec in self.parameters if spec.kind == "biases")

    @property
    def stored(self) -> int:
        """Floats of this layer in a weights file."""
        return sum(spec.count for spec in self.parameters)


@dataclass
class ShapeBuilder:
    """The layers found so far, and what the next one reads; the rules of `shape_rules` work on it.

    fork: the net belongs to AlexeyAB's fork.
    """

    config: Config
    net: NetOptions
    fork: bool = False
    layers: list[LayerShape] = field(default_factory=list)
    section: Section = field(init=False)

    def __post_init__(self) -> None:
        self.section = self.config.net

    @property
    def index(self) -> int:
        """Index of the layer that is being looked at."""
        return len(self.layers)

    @property
    def inputs(self) -> int:
        return self.layers[-1].outputs if self.layers else self.net.inputs

    @property
    def in_shape(self) -> Shape:
        return self.layers[-1].out_shape if self.layers else self.net.input_shape

    @property
    def reduction(self) -> int:
        """By how much strides have divided the size of the network's input so far."""
        return self.layers[-1].reduction if self.layers else 1

    def image(self) -> Shape:
        """The input as an image. Raises ShapeError where the layer before gives none."""
        if not all(self.in_shape):
            name = self.section.name
            what = f"layer {self.index - 1} [{self.layers[-1].type}] gives" if self.layers else "[net] gives"
            raise self.error(
                f"[{name}] needs an image (channels, height, width), but {what} {self.inputs} values without that form"
            )
        return self.in_shape

    def layer(
        self,
        options: LayerOptions,
        out_shape: Shape,
        *,
        outputs: int | None = None,
        sources: tuple[int, ...] = (),
        truths: int = 0,
        parameters: Sequence[ParameterSpec] = (),
        workspace: int = 0,
        bflops: float = 0.0,
        reduction: int | None = None,
    ) -> LayerShape:
        """The shape of the current layer, with what is usual filled in."""
        channels, height, width = out_shape
        return LayerShape(
            index=self.index,
            type=section_type(self.section).name,
            line=self.section.line,
            options=options,
            inputs=self.inputs,
            outputs=channels * height * width if outputs is None else outputs,
            in_shape=self.in_shape,
            out_shape=out_shape,
            sources=sources,
            truths=truths,
            parameters=tuple(parameters),
            workspace=workspace,
            bflops=bflops,
            reduction=self.reduction if reduction is None else reduction,
        )

    def error(self, reason: str, *keys: str, remedy: str | None = None) -> ShapeError:
        """A ShapeError at the line of one of `keys`, or of the section."""
        return ShapeError(
            reason, file=self.config.file, line=self.section.line_of(*keys), layer=self.index, remedy=remedy
        )

    def source(self, index: int, key: str) -> LayerShape:
        """The layer that `index` means here: relative to this layer when negative, else absolute.

        Raises ShapeError for a layer that does not come before this one.
        """
        found = self.index + index if index < 0 else index
        if 0 <= found < self.index:
            return self.layers[found]
        here = f"[{self.section.name}] refers to layer {found} ({key}={index})"
        if self.index == 0:
            raise self.error(f"{here}, but no layer comes before it", key)
        last = self.index - 1
        reach = "-1 or 0" if last == 0 else f"-{self.index} to -1 (relative) or 0 to {last} (absolute)"
        raise self.error(f"{here}, which is not a layer before it", key, remedy=f"use {reach}")


def image_text(shape: Shape) -> str:
    """`width x height x channels` as the original prints sizes."""
    channels, height, width = shape
    return f"{width}x{height}x{channels}"

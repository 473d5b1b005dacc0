"""The table of section types, and reading a section into its typed options.

`SECTIONS` is the one place that ties a section's name to its options; shapes and network builders are looked up
by the same name. `read_options` gives a section's dataclass and reports every key that has no place in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast

from undertow.darknet import fork_keys
from undertow.darknet import options_heads as heads
from undertow.darknet import options_layers as layers
from undertow.darknet.cfg import Config, Entry, Section
from undertow.darknet.fork_keys import Effect, ForkKey
from undertow.darknet.option_fields import OptionField, Options, Problem, option_fields
from undertow.darknet.options_layers import LayerOptions
from undertow.darknet.options_net import NetOptions
from undertow.darknet.textfiles import report_oddity, show
from undertow.darknet.values import suggestion
from undertow.errors import FormatError

_TOLD_UNKNOWN = 20


@dataclass(frozen=True)
class SectionType:
    """One kind of section: its full name, the short names the original also takes, its options."""

    name: str
    options: type[Options]
    aliases: tuple[str, ...] = ()

    @property
    def fork_keys(self) -> dict[str, ForkKey]:
        """Keys of AlexeyAB's fork that are known but not supported."""
        own = fork_keys.BY_SECTION.get(self.name, {})
        return fork_keys.COMMON | own if issubclass(self.options, LayerOptions) else own


_ALL = (
    SectionType("net", NetOptions, ("network",)),
    SectionType("convolutional", layers.ConvolutionalOptions, ("conv",)),
    SectionType("deconvolutional", layers.DeconvolutionalOptions, ("deconv",)),
    SectionType("connected", layers.ConnectedOptions, ("conn",)),
    SectionType("local", layers.LocalOptions),
    SectionType("maxpool", layers.MaxpoolOptions, ("max",)),
    SectionType("avgpool", layers.AvgpoolOptions, ("avg",)),
    SectionType("shortcut", layers.ShortcutOptions),
    SectionType("route", layers.RouteOptions),
    SectionType("upsample", layers.UpsampleOptions),
    SectionType("reorg", layers.ReorgOptions),
    SectionType("activation", layers.ActivationOptions),
    SectionType("batchnorm", layers.BatchnormOptions),
    SectionType("normalization", layers.NormalizationOptions, ("lrn",)),
    SectionType("l2norm", layers.L2normOptions),
    SectionType("dropout", layers.DropoutOptions),
    SectionType("crop", layers.CropOptions),
    SectionType("softmax", layers.SoftmaxOptions, ("soft",)),
    SectionType("logistic", layers.LogisticOptions),
    SectionType("cost", layers.CostOptions),
    SectionType("detection", heads.DetectionOptions),
    SectionType("region", heads.RegionOptions),
    SectionType("yolo", heads.YoloOptions),
    SectionType("iseg", heads.IsegOptions),
    SectionType("rnn", layers.RnnOptions),
    SectionType("gru", layers.GruOptions),
    SectionType("lstm", layers.LstmOptions),
    SectionType("crnn", layers.CrnnOptions),
)

# By every name a cfg may use.
SECTIONS: dict[str, SectionType] = {name: kind for kind in _ALL for name in (kind.name, *kind.aliases)}


def section_type(section: Section) -> SectionType:
    """What kind of section this is. Raises FormatError, with the nearest known name, for an unknown one."""
    kind = SECTIONS.get(section.name)
    if kind is None:
        raise _unknown_section(section)
    return kind


def unsupported_section(section: Section, supported: Iterable[str]) -> FormatError:
    """The error for a section that is known but that nothing builds yet; `supported` are the names that work."""
    return FormatError(
        f"[{show(section.name)}] is a section type of Darknet that is not supported yet",
        file=section.file,
        line=section.line,
        remedy=f"use a network made of {', '.join(sorted(supported))}",
    )


def read_options(section: Section) -> Options:
    """The typed options of a section.

    Raises FormatError with file and line for values that cannot be used; unknown keys are warnings (errors when the
    cfg is read strictly).
    """
    return read_section(section, section_type(section))


def read_section(section: Section, kind: SectionType) -> Options:
    """Like `read_options`, for a section whose kind is known (a .data file has no section header)."""
    fields = option_fields(kind.options)
    fork = kind.fork_keys
    values = {}
    unknown = []
    for entry in section.entries:
        if entry.key in fork:
            _check_fork_key(section, fork[entry.key], entry)
        elif entry.key not in fields:
            unknown.append(entry)
        if entry.key in fields and entry.value is not None:
            field = fields[entry.key]
            values[field.name] = _read_value(section, field, entry)
    _tell_unknown_keys(section, kind, unknown)
    options = kind.options(**values)
    for problem in options.problems():
        if problem.for_original or not section.original:
            raise _problem_error(section, problem)
    return options


def read_net_options(config: Config) -> NetOptions:
    """The options of the [net] section."""
    return cast(NetOptions, read_options(config.net))


def read_layer_options(section: Section) -> LayerOptions:
    """The options of a section after [net]. Raises FormatError for a second [net]."""
    options = read_options(section)
    if not isinstance(options, LayerOptions):
        raise FormatError(
            f"a second [{section.name}] section", file=section.file, line=section.line, remedy="keep only the first"
        )
    return options


def training_gaps(config: Config) -> list[Entry]:
    """Entries of AlexeyAB's fork that would make its training differ from ours; empty for a 2018 cfg."""
    gaps = []
    for section in config.sections:
        known = section_type(section).fork_keys
        for entry in section.entries:
            key = known.get(entry.key)
            if key is not None and key.effect is Effect.TRAINING and not key.is_neutral(entry.value or "", section):
                gaps.append(entry)
    return gaps


def _read_value(section: Section, field: OptionField, entry: Entry) -> object:
    from_fork = {"activation": fork_keys.ACTIVATIONS, "policy": fork_keys.POLICIES}.get(entry.key, ())
    if entry.value in from_fork and not section.original:
        raise FormatError(
            f"{entry.key} '{entry.value}' of AlexeyAB's fork is not supported yet",
            file=section.file,
            line=entry.line,
            remedy=f"use one of: {', '.join(field.choices)}",
        )
    return field.read(section, entry)


def _check_fork_key(section: Section, key: ForkKey, entry: Entry) -> None:
    if key.is_neutral(entry.value or "", section):
        return
    shown = f"{entry.key}={show(entry.value or '')}"
    if section.original:
        reason = f"unknown key: {shown} in [{section.name}] is ignored, as the original does"
        report_oddity(reason, strict=section.strict, file=section.file, line=entry.line)
        return
    reason = f"key {shown} of AlexeyAB's fork is not supported yet; it changes {key.effect.value}"
    strict = section.strict or key.effect is Effect.OUTPUT
    report_oddity(
        reason, strict=strict, file=section.file, line=entry.line, remedy="remove the key if you do not need it"
    )


def _tell_unknown_keys(section: Section, kind: SectionType, entries: list[Entry]) -> None:
    known = tuple(option_fields(kind.options))
    for entry in entries[:_TOLD_UNKNOWN]:
        reason = f"unknown key '{show(entry.key)}' in [{section.name}] is ignored"
        remedy = suggestion(entry.key, known) or _home_of(entry.key) or "remove it"
        report_oddity(reason, strict=section.strict, file=section.file, line=entry.line, remedy=remedy)
    if len(entries) > _TOLD_UNKNOWN:
        reason = f"{len(entries) - _TOLD_UNKNOWN} more unknown keys in [{section.name}] are ignored"
        report_oddity(reason, strict=section.strict, file=section.file, line=section.line)


def _home_of(key: str) -> str | None:
    """Which sections know a key that is unknown here."""
    homes = [f"[{kind.name}]" for kind in _ALL if key in option_fields(kind.options) or key in kind.fork_keys]
    return f"'{key}' belongs in {', '.join(homes[:3])}" if homes else None


def _problem_error(section: Section, problem: Problem) -> FormatError:
    line = section.line_of(*problem.keys)
    return FormatError(problem.reason, file=section.file, line=line, remedy=problem.remedy)


def _unknown_section(section: Section) -> FormatError:
    if section.name in fork_keys.SECTIONS:
        reason = f"section [{section.name}] of AlexeyAB's fork is not supported yet"
        return FormatError(reason, file=section.file, line=section.line)
    near = get_close_matches(section.name[:64].lower(), tuple(SECTIONS), n=1, cutoff=0.6)
    remedy = f"did you mean [{near[0]}]?" if near else f"known are {', '.join(kind.name for kind in _ALL)}"
    return FormatError(f"unknown section [{show(section.name)}]", file=section.file, line=section.line, remedy=remedy)

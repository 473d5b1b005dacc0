"""The table of section types, and reading a section into its typed options.

`SECTIONS` is the one place that ties a section's name to its options; shapes and network builders are looked up
by the same name. `read_options` gives a section's dataclass and reports every key that has no place in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast

from undertow.darknet.files import fork_keys
from undertow.darknet.files import options_fork as fork_layers
from undertow.darknet.files import options_heads as heads
from undertow.darknet.files import options_layers as layers
from undertow.darknet.files.cfg import Config, Entry, Section
from undertow.darknet.files.fork_keys import Effect, ForkKey
from undertow.darknet.files.option_fields import Options, Problem, option_fields
from undertow.darknet.files.options_layers import LayerOptions
from undertow.darknet.files.options_net import NetOptions
from undertow.darknet.files.textfiles import report_oddity, show
from undertow.darknet.files.values import suggestion
from undertow.errors import FormatError

_TOLD_UNKNOWN = 20


@dataclass(frozen=True)
class SectionType:
    """One kind of section: its full name, the short names the original also takes, its options.

    fork: only AlexeyAB's fork knows it.
    """

    name: str
    options: type[Options]
    aliases: tuple[str, ...] = ()
    fork: bool = False

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
    SectionType("Gaussian_yolo", fork_layers.GaussianYoloOptions, fork=True),
    SectionType("local_avgpool", fork_layers.LocalAvgpoolOptions, ("local_avg",), fork=True),
    SectionType("reorg3d", fork_layers.Reorg3dOptions, fork=True),
    SectionType("scale_channels", fork_layers.ScaleChannelsOptions, fork=True),
    SectionType("sam", fork_layers.SamOptions, fork=True),
    SectionType("implicit", fork_layers.ImplicitOptions, fork=True),
    SectionType("empty", fork_layers.EmptyOptions, ("silence",), fork=True),
    SectionType("conv_lstm", fork_layers.ConvLstmOptions, fork=True),
    SectionType("history", fork_layers.HistoryOptions, fork=True),
)

# By every name a cfg may use.
SECTIONS: dict[str, SectionType] = {name: kind for kind in _ALL for name in (kind.name, *kind.aliases)}


def section_type(section: Section) -> SectionType:
    """What kind of section this is. Raises FormatError, with the nearest known name, for an unknown one."""
    kind = SECTIONS.get(section.name)
    if kind is None:
        raise _unknown_section(section)
    if kind.fork and section.original:
        reason = f"section [{section.name}] is one of AlexeyAB's fork, the 2018 program does not know it"
        raise FormatError(
            reason,
            file=section.file,
            line=section.line,
            remedy="ask for no dialect, or for alexeyab",
        )
    return kind


def unsupported_section(section: Section, supported: Iterable[str]) -> FormatError:
    """The error for a section that is known but that nothing builds yet; `supported` are the names that work."""
    return FormatError(
        f"[{show(section.name)}] is a section type of Darknet that is not supported yet",
        file=section.file,
        line=section.line,
        remedy=f"use a network made of {', '.join(sorted(supported))}",
    )


def read_options(section: Section, fork: bool = False) -> Options:
    """The typed options of a section.

    fork: the cfg is one of AlexeyAB's fork, which reads some lists of a wrong length without harm.
    Raises FormatError with file and line for values that cannot be used; unknown keys are warnings (errors when the
    cfg is read strictly).
    """
    return read_section(section, section_type(section), fork)


def read_section(section: Section, kind: SectionType, fork: bool = False) -> Options:
    """Like `read_options`, for a section whose kind is known (a .data file has no section header)."""
    fields = option_fields(kind.options)
    not_followed = kind.fork_keys
    values = {}
    unknown = []
    for entry in section.entries:
        field = fields.get(entry.key)
        if entry.key in not_followed:
            _check_fork_key(section, not_followed[entry.key], entry)
        elif field is None:
            unknown.append(entry)
        elif field.fork and section.original:
            _tell_ignored(section, entry)
        if field is not None and entry.value is not None and not (field.fork and section.original):
            values[field.name] = field.read(section, entry)
    _tell_unknown_keys(section, kind, unknown)
    options = kind.options(**values)
    for problem in options.problems():
        if fork and problem.in_fork is not None:
            reason, line = f"{problem.reason}; {problem.in_fork}", section.line_of(*problem.keys)
            report_oddity(reason, strict=section.strict, file=section.file, line=line, remedy=problem.remedy)
        elif problem.for_original or not section.original:
            raise _problem_error(section, problem)
    return options


def read_net_options(config: Config) -> NetOptions:
    """The options of the [net] section."""
    return cast(NetOptions, read_options(config.net))


def read_layer_options(section: Section, fork: bool = False) -> LayerOptions:
    """The options of a section after [net]; fork: see `read_options`. Raises FormatError for a second [net]."""
    options = read_options(section, fork)
    if not isinstance(options, LayerOptions):
        raise FormatError(
            f"a second [{section.name}] section", file=section.file, line=section.line, remedy="keep only the first"
        )
    return options


def training_gaps(config: Config, *effects: Effect) -> list[Entry]:
    """Entries of AlexeyAB's fork that would make its training differ from ours; empty for a 2018 cfg.

    effects: only those that change this, the training or the loss.
    """
    wanted = effects or (Effect.TRAINING, Effect.LOSS)
    gaps = []
    for section in config.sections:
        known = section_type(section).fork_keys
        for entry in section.entries:
            key = known.get(entry.key)
            if key is not None and key.effect in wanted and not key.is_neutral(entry.value or "", section):
                gaps.append(entry)
    return gaps


def fork_sign(config: Config) -> str | None:
    """What shows that a cfg was written for AlexeyAB's fork, with its line; None for one of the 2018 program.

    `flip=` says nothing: it only keeps pictures from being mirrored.
    """
    for section in config.sections:
        kind = SECTIONS.get(section.name)
        if kind is None:
            continue
        if kind.fork:
            return f"section [{section.name}] in line {section.line}"
        fields, fork = option_fields(kind.options), kind.fork_keys
        for entry in section.entries:
            field, value = fields.get(entry.key), entry.value or ""
            is_fork = field is not None and (field.fork or value in field.fork_choices) and entry.key != "flip"
            # Old recurrent cfgs carry keys that mean nothing to the 2018 program.
            if is_fork or (entry.key in fork and not fork[entry.key].is_everywhere(value, section)):
                return f"{entry.key}={show(value)} in line {entry.line}"
    return None


def _check_fork_key(section: Section, key: ForkKey, entry: Entry) -> None:
    """Tell a key that is not followed. Those of the loss are left to `check_trainable`, which refuses to train."""
    if key.is_neutral(entry.value or "", section):
        return
    shown = f"{entry.key}={show(entry.value or '')}"
    if section.original:
        _tell_ignored(section, entry)
        return
    if key.effect is Effect.LOSS:
        return
    reason = f"key {shown} of AlexeyAB's fork is not supported yet; it changes {key.effect.value}"
    strict = section.strict or key.effect is Effect.OUTPUT
    report_oddity(
        reason, strict=strict, file=section.file, line=entry.line, remedy="remove the key if you do not need it"
    )


def _tell_ignored(section: Section, entry: Entry) -> None:
    shown = f"{entry.key}={show(entry.value or '')}"
    reason = f"unknown key: {shown} in [{section.name}] is ignored, as the original does"
    report_oddity(reason, strict=section.strict, file=section.file, line=entry.line)


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
        remedy = "use another net: the README tells what is not there yet"
        return FormatError(reason, file=section.file, line=section.line, remedy=remedy)
    near = get_close_matches(section.name[:64].lower(), tuple(SECTIONS), n=1, cutoff=0.6)
    remedy = f"did you mean [{near[0]}]?" if near else f"known are {', '.join(kind.name for kind in _ALL)}"
    return FormatError(f"unknown section [{show(section.name)}]", file=section.file, line=section.line, remedy=remedy)

"""Checking the fields of a solver prototxt before anything is built."""

from __future__ import annotations

import difflib
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from undertow.caffe.proto.message import Message
from undertow.caffe.scores import VERSIONS as AP_VERSIONS
from undertow.errors import FormatError, UndertowWarning, describe
from undertow.optimizers.caffe import RULES, RuleOptions
from undertow.optimizers.policies import CAFFE_POLICIES, Policy, Step, from_caffe

_NEEDS_GAMMA = ("step", "exp", "inv", "multistep", "sigmoid")
_NEEDS_STEPSIZE = ("step", "sigmoid")
_GAMMA_TO_A_POWER = ("step", "exp", "multistep")
_NETS = ("net", "net_param", "train_net", "train_net_param")
# Field -> a usual value of it.
_FINITE = {
    "base_lr": "0.01", "gamma": "0.1", "power": "0.75", "momentum": "0.9", "weight_decay": "0.0005",
    "momentum2": "0.999", "delta": "1e-8", "rms_decay": "0.99",
}  # fmt: skip


class _Range(NamedTuple):
    """A field that a rule reads, the values it can work with, and a usual one."""

    field: str
    low: float
    high: float
    usual: str
    below: bool = False  # whether high is left out

    def holds(self, value: float) -> bool:
        return self.low <= value < self.high or (value == self.high and not self.below)

    @property
    def words(self) -> str:
        upper = "" if math.isinf(self.high) else f" and {'below' if self.below else 'at most'} {self.high:g}"
        return f"{self.field} of at least {self.low:g}{upper}"


_DELTA = _Range("delta", 0, math.inf, "1e-8")
# By solver type.
_RANGES = {
    "SGD": (_Range("momentum", -1, 1, "0.9"),),
    "Nesterov": (_Range("momentum", -1, 1, "0.9"),),
    "AdaGrad": (_DELTA,),
    "RMSProp": (_Range("rms_decay", 0, 1, "0.99", below=True), _DELTA),
    "AdaDelta": (_Range("momentum", 0, 1, "0.95"), _DELTA),
    "Adam": (_Range("momentum", 0, 1, "0.9", below=True), _Range("momentum2", 0, 1, "0.999", below=True), _DELTA),
}
_NOT_NEGATIVE = {
    "display": "write display: 100, or 0 for no lines",
    "snapshot": "write snapshot: 5000, or 0 for none on the way",
    "test_interval": "write test_interval: 500, or remove test_iter to test nothing",
    "max_iter": "write max_iter: 10000",
}
EVAL_TYPES = ("classification", "detection")


@dataclass(frozen=True)
class Checker:
    """The fields of one SolverParameter. Every method raises FormatError with file, line and remedy.

    What Caffe computes is taken, with a warning where it is hardly meant (a negative base_lr climbs the loss); refused
    is what cannot mean anything, such as a rate that is not a number or a momentum above 1.
    """

    param: Message
    file: str | os.PathLike[str] | None

    def all(self) -> None:
        """Whether a solver can be made from them."""
        self._finite()
        self._type()
        self._policy()
        self._decay_rates()
        self._intervals()
        self._nets()
        self._scores()
        if self.param.snapshot:
            self.snapshots_can_be_written()
        self._hardly_meant()

    def wrong(self, reason: str, fields: str, remedy: str) -> FormatError:
        """The error at the line of the first of some fields that is given, else where the message begins."""
        return FormatError(reason, file=self.file, line=self._line(fields), remedy=remedy)

    def _line(self, fields: str) -> int | None:
        lines = [self.param.line_of(field) for field in fields.split()]
        return next((line for line in lines if line is not None), self.param.line_of())

    def _finite(self) -> None:
        p = self.param
        for name, example in _FINITE.items():
            value = getattr(p, name)
            if not math.isfinite(value):
                raise self.wrong(
                    f"{name} must be a finite number, here it is {value}", name, f"write {name}: {example}"
                )
        if math.isnan(p.clip_gradients):
            raise self.wrong(
                "clip_gradients must be a number, here it is nan", "clip_gradients",
                "write the largest norm that gradients may have, or remove it",
            )  # fmt: skip

    def _type(self) -> None:
        p, kind = self.param, str(self.param.type)
        if kind not in RULES:
            raise self.wrong(f"unknown solver type '{kind}'", "type", _nearest(kind, list(RULES)))
        if p.regularization_type not in ("L1", "L2"):
            raise self.wrong(
                f"unknown regularization_type '{p.regularization_type}'", "regularization_type", "use L1 or L2"
            )

    def _policy(self) -> None:
        p, policy = self.param, str(self.param.lr_policy)
        if policy not in CAFFE_POLICIES:
            what = f"unknown lr_policy '{policy}'" if policy else "lr_policy is not given"
            raise self.wrong(what, "lr_policy", _nearest(policy, CAFFE_POLICIES))
        if policy in _NEEDS_GAMMA and p.gamma < 0:
            raise self.wrong(f"gamma must not be negative, here it is {p.gamma:g}", "gamma", "write gamma: 0.1")
        if policy in _NEEDS_STEPSIZE and p.stepsize < 1:
            raise self.wrong(
                f"lr_policy {policy} needs a stepsize of at least 1, here it is {p.stepsize}", "stepsize lr_policy",
                "write stepsize: 10000",
            )  # fmt: skip
        if policy == "poly" and p.max_iter < 1:
            raise self.wrong("lr_policy poly needs max_iter", "max_iter lr_policy", "write max_iter: 10000")

    def _decay_rates(self) -> None:
        """What the update rule of this type cannot work with."""
        p, kind = self.param, str(self.param.type)
        if kind in ("AdaGrad", "RMSProp") and p.momentum:
            raise self.wrong(f"{kind} has no momentum, here it is {p.momentum:g}", "momentum", "remove momentum")
        for allowed in _RANGES.get(kind, ()):
            value, name = getattr(p, allowed.field), allowed.field
            if not allowed.holds(value):
                raise self.wrong(
                    f"{kind} needs a {allowed.words}, here it is {value:g}", name, f"write {name}: {allowed.usual}"
                )

    def _intervals(self) -> None:
        p = self.param
        for name in ("average_loss", "iter_size"):
            if getattr(p, name) < 1:
                raise self.wrong(f"{name} must be at least 1, here it is {getattr(p, name)}", name, f"write {name}: 1")
        for name, remedy in _NOT_NEGATIVE.items():
            if getattr(p, name) < 0:
                raise self.wrong(f"{name} must not be negative, here it is {getattr(p, name)}", name, remedy)

    def _nets(self) -> None:
        p = self.param
        given = [name for name in _NETS if p.has_field(name)]
        if len(given) != 1:
            what = "no train net is given" if not given else f"{' and '.join(given)} are given"
            raise self.wrong(what, given[-1] if given else "", f"give exactly one of {', '.join(_NETS)}")
        named = len(p.test_net_param) + len(p.test_net)
        generic = p.has_field("net") or p.has_field("net_param")
        if len(p.test_iter) < named or (not generic and len(p.test_iter) > named):
            raise self.wrong(
                f"test_iter is given {len(p.test_iter)} times for {named} test nets", "test_iter",
                "give test_iter once for each test net",
            )  # fmt: skip
        if p.test_state and len(p.test_state) != len(p.test_iter):
            raise self.wrong(
                f"test_state is given {len(p.test_state)} times for {len(p.test_iter)} test nets", "test_state",
                "give it once for each test net, or not at all",
            )  # fmt: skip
        for count in p.test_iter:
            if count < 1:
                raise self.wrong(
                    f"test_iter must be at least 1, here it is {count}", "test_iter",
                    "write how many batches a test has, such as test_iter: 100, or remove it",
                )  # fmt: skip
        if p.test_iter and p.test_interval < 1:
            raise self.wrong(
                "there are test nets, but no test_interval", "test_interval test_iter", "write test_interval: 500"
            )

    def _scores(self) -> None:
        """The fields of the fork of SSD that say how a test is counted."""
        p = self.param
        for name, known in (("eval_type", EVAL_TYPES), ("ap_version", AP_VERSIONS)):
            value = str(getattr(p, name, known[0]))
            if value not in known:
                raise self.wrong(f"there is no {name} '{value}'", name, f"use {', '.join(known)}")

    def _hardly_meant(self) -> None:
        """Warn of what Caffe computes without a word although it seldom is what was wanted."""
        p = self.param
        if not p.has_field("base_lr"):
            self._warn("base_lr is not given, so the rate is 0 and nothing is learned; write base_lr: 0.01", "")
        if p.base_lr < 0:
            self._warn("base_lr is negative: the loss is climbed, not descended", "base_lr")
        if p.weight_decay < 0:
            self._warn("weight_decay is negative: weights are driven away from 0", "weight_decay")
        if p.clip_gradients == 0:
            self._warn("clip_gradients 0 makes every gradient 0; to clip nothing, remove it", "clip_gradients")
        if p.lr_policy in _GAMMA_TO_A_POWER and p.gamma == 0:
            self._warn(f"lr_policy {p.lr_policy} with gamma 0: the rate falls to 0, and nothing is learned", "gamma")

    def _warn(self, what: str, field: str) -> None:
        file = None if self.file is None else os.fspath(self.file)
        warnings.warn(UndertowWarning(describe(what, file, self._line(field))), stacklevel=5)

    def snapshots_can_be_written(self) -> None:
        """Whether there is a prefix, and a folder to write to: better known before hours of training than after."""
        p = self.param
        folder = Path(p.snapshot_prefix).parent
        if not p.snapshot_prefix:
            raise self.wrong(
                "snapshots are asked for without a snapshot_prefix",
                "snapshot_prefix snapshot",
                "write snapshot_prefix: ...",
            )
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise self.wrong(
                f"snapshots cannot be written to '{p.snapshot_prefix}'",
                "snapshot_prefix",
                f"make the folder '{folder}', with leave to write there; or write snapshot_after_train: false",
            )


def learning_rate(param: Message, iteration: int, step: int) -> float:
    """The rate of an iteration. step: how many steps of `multistep` are behind, which a solverstate holds."""
    if param.lr_policy == "multistep":
        return Step(param.base_lr, 1, param.gamma)(step)
    return policy_of(param)(iteration)


def policy_of(param: Message) -> Policy:
    """The policy that a solver's fields ask for, with its multistep counted from iteration 0."""
    return from_caffe(
        str(param.lr_policy),
        base_lr=param.base_lr,
        gamma=param.gamma,
        power=param.power,
        stepsize=param.stepsize,
        stepvalue=tuple(param.stepvalue),
        max_iter=param.max_iter,
    )


def rule_options(param: Message) -> RuleOptions:
    """What the update rules read."""
    return RuleOptions(param.momentum, param.momentum2, param.delta, param.rms_decay)


def _nearest(word: str, known: Sequence[str]) -> str:
    close: list[Any] = difflib.get_close_matches(word, known, n=1)
    same = [name for name in known if name.lower() == word.lower()]
    return f"did you mean '{(same or close)[0]}'?" if same or close else f"use one of {', '.join(known)}"

"""Checking the fields of a solver prototxt before anything is built."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertow.caffe.proto.message import Message
from undertow.errors import FormatError
from undertow.optimizers.caffe import RULES, RuleOptions
from undertow.optimizers.policies import CAFFE_POLICIES, Policy, Step, from_caffe

_NEEDS_GAMMA = ("step", "exp", "inv", "multistep", "sigmoid")
_NEEDS_STEPSIZE = ("step", "sigmoid")
_NETS = ("net", "net_param", "train_net", "train_net_param")


@dataclass(frozen=True)
class Checker:
    """The fields of one SolverParameter. Every method raises FormatError with file, line and remedy."""

    param: Message
    file: str | os.PathLike[str] | None

    def all(self) -> None:
        """Whether a solver can be made from them."""
        self._type()
        self._policy()
        self._nets()
        self._numbers()

    def wrong(self, reason: str, field: str | None = None, remedy: str | None = None) -> FormatError:
        line = (self.param.line_of(field) if field else None) or self.param.line_of()
        return FormatError(reason, file=self.file, line=line, remedy=remedy)

    def _type(self) -> None:
        p, kind = self.param, str(self.param.type)
        if kind not in RULES:
            raise self.wrong(f"unknown solver type '{kind}'", "type", _nearest(kind, list(RULES)))
        if kind in ("AdaGrad", "RMSProp") and p.momentum:
            raise self.wrong(f"{kind} has no momentum, here it is {p.momentum:g}", "momentum", "remove momentum")
        if kind == "RMSProp" and not 0 <= p.rms_decay < 1:
            raise self.wrong(f"rms_decay lies between 0 and 1, here it is {p.rms_decay:g}", "rms_decay")
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
            raise self.wrong(f"gamma must not be negative, here it is {p.gamma:g}", "gamma")
        if policy in _NEEDS_STEPSIZE and p.stepsize < 1:
            raise self.wrong(
                f"lr_policy {policy} needs a stepsize of at least 1, here it is {p.stepsize}", "stepsize",
                "write stepsize: 10000",
            )  # fmt: skip
        if policy == "poly" and p.max_iter < 1:
            raise self.wrong("lr_policy poly needs max_iter", "max_iter", "write max_iter: 10000")

    def _nets(self) -> None:
        p = self.param
        given = [name for name in _NETS if p.has_field(name)]
        if len(given) != 1:
            what = "no train net is given" if not given else f"{' and '.join(given)} are given"
            raise self.wrong(what, given[-1] if given else None, f"give exactly one of {', '.join(_NETS)}")
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
        if p.test_iter and p.test_interval < 1:
            raise self.wrong("there are test nets, but no test_interval", "test_interval", "write test_interval: 500")
        for count in p.test_iter:
            if count < 1:
                raise self.wrong(f"test_iter must be at least 1, here it is {count}", "test_iter")

    def _numbers(self) -> None:
        p = self.param
        for name in ("average_loss", "iter_size"):
            if getattr(p, name) < 1:
                raise self.wrong(f"{name} must be at least 1, here it is {getattr(p, name)}", name)
        for name in ("display", "snapshot", "test_interval", "max_iter"):
            if getattr(p, name) < 0:
                raise self.wrong(f"{name} must not be negative, here it is {getattr(p, name)}", name)
        if p.snapshot:
            self.snapshots_can_be_written()

    def snapshots_can_be_written(self) -> None:
        """Whether there is a prefix, and a folder to write to: better known before hours of training than after."""
        p = self.param
        folder = Path(p.snapshot_prefix).parent
        if not p.snapshot_prefix:
            raise self.wrong(
                "snapshots are asked for without a snapshot_prefix", "snapshot", "write snapshot_prefix: ..."
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

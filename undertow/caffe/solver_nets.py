"""The train net and the test nets that a solver prototxt asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from undertow.caffe.glog import log
from undertow.caffe.net import Net
from undertow.caffe.proto.api import find_beside, read_prototxt
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.proto.schema import DEFAULT_FORK, ForkLike
from undertow.caffe.proto.upgrade import upgrade_net


@dataclass(frozen=True)
class NetMaker:
    """Makes the nets of one solver. options: of `Net`. seed: of all random numbers; None for others in every run."""

    param: Message
    file: str | os.PathLike[str] | None
    seed: int | None = None
    fork: ForkLike = DEFAULT_FORK
    options: dict[str, Any] = field(default_factory=dict)

    def train_net(self) -> Net:
        """The net to train."""
        p = self.param
        name = next(n for n in ("net", "train_net", "net_param", "train_net_param") if p.has_field(n))
        return self._net(getattr(p, name), "TRAIN", p.train_state, 0)

    def test_nets(self) -> Iterator[Net]:
        """First those of their own message, then those of their own file, then as many of `net` as test_iter asks."""
        p = self.param
        sources: list[Any] = [*p.test_net_param, *p.test_net]
        generic = p.net_param if p.has_field("net_param") else p.net
        sources += [generic] * (len(p.test_iter) - len(sources))
        for index, source in enumerate(sources):
            state = p.test_state[index] if p.test_state else new_message("NetState", self.fork)
            net = self._net(source, "TEST", state, index + 1)
            net.debug_info = bool(p.debug_info)
            yield net

    def _source(self, source: Any) -> str | Message:
        if isinstance(source, Message):
            message = source.copy()
            upgrade_net(message, file=self.file)
            return message
        return str(source) if self.file is None else find_beside(str(source), self.file)

    def _net(self, source: Any, phase: str, state: Message, number: int) -> Net:
        """The phase is the weakest word on the state, then comes the net's own state, then the solver's."""
        found = self._source(source)
        own = (found if isinstance(found, Message) else read_prototxt(found, fork=self.fork)).state
        for given in (own, state):
            phase = str(given.phase) if given.has_field("phase") else phase
        net = Net(
            found,
            phase,
            level=state.level if state.has_field("level") else None,
            stages=tuple(state.stage),
            seed=None if self.seed is None else self.seed + number,
            fork=self.fork,
            **self.options,
        )
        for name in ",".join(self.param.weights).split(","):
            if name.strip():
                log(f"Finetuning from {name.strip()}", "solver.cpp:77")
                net.copy_from(name.strip())
        return net

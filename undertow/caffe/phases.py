"""Which layers of a net are alive: phase, level and stages against include and exclude rules."""

from __future__ import annotations

import os

from undertow.caffe.proto.message import Message
from undertow.errors import FormatError

PathLike = str | os.PathLike[str]


def meets_rule(state: Message, rule: Message) -> bool:
    """Whether a NetState satisfies every condition that a NetStateRule sets."""
    if rule.has_field("phase") and rule.phase != state.phase:
        return False
    if rule.has_field("min_level") and state.level < rule.min_level:
        return False
    if rule.has_field("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and stages.isdisjoint(rule.not_stage)


def is_included(layer: Message, state: Message, file: PathLike | None = None) -> bool:
    """Whether a layer is part of the net in this state.

    Without rules it is; with include rules when one of them is met; with exclude rules when none is.
    Raises FormatError for a layer that has both.
    """
    if layer.include and layer.exclude:
        raise FormatError(
            "a layer has include rules or exclude rules, not both",
            file=file,
            line=layer.line_of("exclude") or layer.line_of(),
            layer=layer.name,
            remedy="put the exclude conditions into the include rules, as not_stage, min_level or max_level",
        )
    if layer.include:
        return any(meets_rule(state, rule) for rule in layer.include)
    return not any(meets_rule(state, rule) for rule in layer.exclude)


def filter_net(net: Message, file: PathLike | None = None) -> Message:
    """A copy of a NetParameter with the layers that are alive in its `state`."""
    alive = [layer.copy() for layer in net.layer if is_included(layer, net.state, file)]
    result = net.copy()
    result.layer = alive
    return result

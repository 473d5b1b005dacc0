"""Building a net: layers in order, blobs between them, parameters, and what a backward pass must compute."""

from __future__ import annotations

import difflib
import math
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.caffe.arguments import texts_of, whole
from undertow.caffe.blob import Blob, shape_text
from undertow.caffe.layer import Context, Layer
from undertow.caffe.memory import check_memory
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.proto.schema import forks_with
from undertow.caffe.table import LAYER_TYPES, MANY, LayerType
from undertow.errors import FormatError, UndertowError, UndertowWarning, describe

if TYPE_CHECKING:
    from undertow.caffe.net import Net

AUTOMATIC = "(automatic)"


class Builder:
    """Fills a net from its NetParameter, which has been filtered and has its Splits."""

    def __init__(self, net: Net, message: Message, context: Context) -> None:
        self.net, self.message, self.context = net, message, context
        self.available: set[str] = set()
        self.index: dict[str, int] = {}
        self.makers: dict[str, str] = {}
        self.blob_needs_backward: list[bool] = []
        self.param_names: dict[str, int] = {}

    def build(self) -> None:
        """All layers, then the decisions that need the whole net."""
        if not self.message.layer:
            what = f"the net has no layers in phase {self.context.phase}"
            file = None if self.context.file is None else os.fspath(self.context.file)
            remedy = "check that the file is whole, and the include and exclude rules"
            warnings.warn(UndertowWarning(describe(what, file, remedy=remedy)), stacklevel=4)
        for message in self.message.layer:
            self._layer(message)
        skip_what_reaches_no_loss(self.net)
        if self.message.force_backward:
            force_backward(self.net)
        self.net.output_ids = [self.index[name] for name in sorted(self.available)]
        self._mark_overwritten()
        if self.net.filled:
            check_memory(self.net)
            for layer, ids in zip(self.net.layers, self.net.top_ids, strict=True):
                layer.start([self.net.blob_list[i] for i in ids])
        # After the fillers: a shared parameter has the values of its owner.
        share_parameters(self.net)

    # --- one layer --------------------------------------------------------------------------------------

    def _layer(self, message: Message) -> None:
        net = self.net
        if message.propagate_down and len(message.propagate_down) != len(message.bottom):
            raise self._wrong(message, f"propagate_down is given once per bottom or not at all; there are "
                              f"{len(message.bottom)} bottoms, it is given {len(message.propagate_down)} times",
                              field="propagate_down", remedy="remove it, or give it for every bottom")  # fmt: skip
        kind = self._kind(message)
        layer = kind.build(message, self.context)
        net.layers.append(layer)
        bottom_ids = [self._bottom(message, i, layer) for i in range(len(message.bottom))]
        top_ids = [self._top(message, i) for i in range(len(message.top))]
        while layer.auto_tops and len(top_ids) < kind.tops[0]:
            top_ids.append(self._new_blob(AUTOMATIC))
        net.bottom_ids.append(bottom_ids)
        net.top_ids.append(top_ids)
        self._check_counts(message, kind, len(bottom_ids), len(top_ids))
        self._set_up(layer, [net.blob_list[i] for i in bottom_ids], [net.blob_list[i] for i in top_ids])
        net.blob_loss_weights.extend([0.0] * (len(net.blob_list) - len(net.blob_loss_weights)))
        for blob_id, weight in zip(top_ids, layer.loss_weights, strict=False):
            net.blob_loss_weights[blob_id] = weight
        needs = any(self.blob_needs_backward[i] for i in bottom_ids)
        needs |= self._parameters(layer, len(net.layers) - 1)
        layer.need_backward = needs
        for blob_id in top_ids if needs else ():
            self.blob_needs_backward[blob_id] = True

    def _kind(self, message: Message) -> LayerType:
        name = message.type
        if name in LAYER_TYPES:
            kind = LAYER_TYPES[name]
            if kind.options and kind.options not in message.descriptor.by_name:
                forks = " or ".join(f'fork="{fork}"' for fork in forks_with("LayerParameter", kind.options))
                raise self._wrong(message, f"{name} needs the field {kind.options}, which the net was read without",
                                  f"read it with {forks or 'the fork that has it'}", "type")  # fmt: skip
            return kind
        near = difflib.get_close_matches(name, LAYER_TYPES, 1, 0.6)
        same = [known for known in LAYER_TYPES if known.lower() == name.lower()]
        guess = (same or near or [None])[0]
        known = ", ".join(sorted(LAYER_TYPES))
        remedy = f"did you mean '{guess}'?" if guess else f"register it with register_layer, or use one of {known}"
        raise self._wrong(message, f"unknown layer type '{name}'", remedy, "type")

    def _bottom(self, message: Message, index: int, layer: Layer) -> int:
        name = message.bottom[index]
        if name not in self.available:
            raise self._wrong(message, f"unknown bottom blob '{name}' (bottom {index})",
                              "name a blob that a layer before makes", "bottom")  # fmt: skip
        self.available.discard(name)
        blob_id = self.index[name]
        need = self.blob_needs_backward[blob_id]
        layer.bottom_need_backward.append(bool(message.propagate_down[index]) if message.propagate_down else need)
        return blob_id

    def _top(self, message: Message, index: int) -> int:
        name = message.top[index]
        if index < len(message.bottom) and message.bottom[index] == name:
            if not self.net.layers[-1].in_place:
                raise self._wrong(message, f"{message.type} cannot work in place", "give its top another name", "top")
            blob_id = self.index[name]
        elif name in self.index:
            raise self._wrong(
                message,
                f"the top blob '{name}' is made twice: by layer '{self.makers[name]}' and by this one, which does not "
                "work in place on it",
                remedy=f"give the top another name, or name '{name}' as the bottom in the same place"
                + self._split_note(name),
                field="top",
            )
        else:
            blob_id = self._new_blob(name)
        self.index[name] = blob_id
        self.makers[name] = message.name
        self.available.add(name)
        return blob_id

    def _split_note(self, name: str) -> str:
        read = any(name in layer.message.bottom and layer.type == "Split" for layer in self.net.layers)
        return "; a blob that another layer reads too cannot be changed in place" if read else ""

    def _new_blob(self, name: str) -> int:
        net = self.net
        net.blob_list.append(Blob((0,), net.dtype))
        net.blob_names.append(name)
        self.blob_needs_backward.append(False)
        return len(net.blob_list) - 1

    def _check_counts(self, message: Message, kind: LayerType, bottoms: int, tops: int) -> None:
        for what, count, (low, high) in (("bottom", bottoms, kind.bottoms), ("top", tops, kind.tops)):
            if not low <= count <= high:
                wanted = f"{low}" if low == high else f"at least {low}" if high == MANY else f"{low} to {high}"
                ending = "" if wanted == "1" else "s"
                raise self._wrong(message, f"{message.type} takes {wanted} {what} blob{ending}, got {count}",
                                  f"name {wanted} {what}{ending}", what)  # fmt: skip

    def _set_up(self, layer: Layer, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        weights = list(layer.message.loss_weight)
        if not weights and layer.loss:
            weights = [1.0]
        try:
            layer.setup([blob.shape for blob in bottom], len(top))
            if weights and len(weights) != len(top):
                raise layer.refusal(
                    f"loss_weight is given once per top or not at all; there are {len(top)} tops and {len(weights)} "
                    "weights",
                    remedy=f"write loss_weight {len(top)} times",
                    field="loss_weight",
                )
            if not all(map(math.isfinite, weights)):
                raise layer.refusal("a loss_weight is not a finite number", "write loss_weight: 1", "loss_weight")
            layer.reshape(bottom, top)
        except UndertowError as error:
            raise layer.placed(error) from error
        layer.loss_weights = weights

    # --- parameters -------------------------------------------------------------------------------------

    def _parameters(self, layer: Layer, layer_id: int) -> bool:
        message = layer.message
        if len(message.param) > len(layer.blobs):
            raise self._wrong(
                message,
                f"{len(message.param)} param are given, the layer has {len(layer.blobs)} parameters",
                remedy="remove the surplus param",
                field="param",
            )
        specs = [message.param[i] if i < len(message.param) else _DEFAULT_SPEC for i in range(len(layer.blobs))]
        for spec in specs:
            if not math.isfinite(spec.lr_mult) or not math.isfinite(spec.decay_mult):
                raise self._wrong(message, f"lr_mult {spec.lr_mult:g} and decay_mult {spec.decay_mult:g}: both are "
                                  "finite numbers", "write lr_mult: 1 decay_mult: 1", "param")  # fmt: skip
        layer.param_propagate_down = [spec.lr_mult != 0 for spec in specs]
        ids = [self._parameter(layer, layer_id, index, spec) for index, spec in enumerate(specs)]
        self.net.param_ids.append(ids)
        return any(layer.param_propagate_down)

    def _parameter(self, layer: Layer, layer_id: int, index: int, spec: Message) -> int:
        net, name = self.net, spec.name
        net.param_blobs.append(layer.blobs[index])
        net.param_layers.append((layer_id, index))
        net.param_names.append(name or str(index))
        param_id = len(net.param_blobs) - 1
        if name in self.param_names:
            owner = self.param_names[name]
            net.param_owners.append(owner)
            self._check_shared(layer, index, spec, owner)
            learnable = net.learnable_ids[owner]
            net.learnable_ids.append(learnable)
            self._same_rate(layer, spec, learnable, "lr_mult", net.params_lr, net.has_params_lr)
            self._same_rate(layer, spec, learnable, "decay_mult", net.params_weight_decay, net.has_params_decay)
            return param_id
        net.param_owners.append(-1)
        if name:
            self.param_names[name] = param_id
        net.learnable_ids.append(len(net.learnable_params))
        net.learnable_params.append(layer.blobs[index])
        net.params_lr.append(spec.lr_mult)
        net.params_weight_decay.append(spec.decay_mult)
        net.has_params_lr.append(spec.has_field("lr_mult"))
        net.has_params_decay.append(spec.has_field("decay_mult"))
        return param_id

    def _check_shared(self, layer: Layer, index: int, spec: Message, owner: int) -> None:
        mine, theirs = layer.blobs[index], self.net.param_blobs[owner]
        owner_name = self.net.layers[self.net.param_layers[owner][0]].name
        permissive = spec.share_mode == "PERMISSIVE"
        if mine.count == theirs.count if permissive else mine.shape == theirs.shape:
            return
        raise layer.refusal(
            f"cannot share the parameter '{spec.name}' owned by layer '{owner_name}': its shape is "
            f"{shape_text(theirs.shape)}, this layer needs {shape_text(mine.shape)}",
            remedy="make the layers equal, or give the parameters different names"
            + ("" if permissive else "; share_mode: PERMISSIVE asks only for as many values"),
            field="param",
        )

    def _same_rate(
        self, layer: Layer, spec: Message, learnable: int, field: str, values: list[float], given: list[bool]
    ) -> None:
        if not spec.has_field(field):
            return
        value: float = getattr(spec, field)
        if given[learnable] and value != values[learnable]:
            raise layer.refusal(
                f"the shared parameter '{spec.name}' has {field}: {value:g} here and {values[learnable]:g} in a layer "
                "before",
                remedy=f"give {field} once, or the same everywhere",
                field="param",
            )
        given[learnable], values[learnable] = True, value

    def _mark_overwritten(self) -> None:
        """Tell every layer which of its tops a later layer writes over, working in place."""
        net = self.net
        makers: dict[int, tuple[int, int]] = {}
        for i, ids in enumerate(net.top_ids):
            for index, blob_id in enumerate(ids):
                if blob_id in net.bottom_ids[i]:
                    maker, place = makers[blob_id]
                    net.layers[maker].overwritten.add(place)
                makers[blob_id] = (i, index)

    def _wrong(self, message: Message, reason: str, remedy: str | None = None, field: str | None = None) -> FormatError:
        line = (message.line_of(field) if field else None) or message.line_of()
        label = f"'{message.name}' ({message.type})"
        return FormatError(reason, file=self.context.file, line=line, layer=label, remedy=remedy)


_DEFAULT_SPEC = new_message("ParamSpec")


def skip_what_reaches_no_loss(net: Net) -> None:
    """From the end to the start: no backward for layers that no loss depends on, or whose gradients nobody reads."""
    under_loss: set[str] = set()
    skipped: set[str] = set()
    for layer, bottom_ids, top_ids in reversed(list(zip(net.layers, net.bottom_ids, net.top_ids, strict=True))):
        tops = [net.blob_names[i] for i in top_ids]
        contributes = any(layer.loss_weights) or any(name in under_loss for name in tops)
        if layer.need_backward and all(name in skipped for name in tops):
            layer.need_backward = False
            layer.bottom_need_backward = [False] * len(bottom_ids)
        if not contributes:
            layer.need_backward = False
            layer.bottom_need_backward = [False] * len(bottom_ids)
        for index, blob_id in enumerate(bottom_ids):
            name = net.blob_names[blob_id]
            if contributes:
                under_loss.add(name)
            if not layer.bottom_need_backward[index]:
                skipped.add(name)


def force_backward(net: Net) -> None:
    """Compute every gradient that layers have, as `force_backward: true` asks for."""
    for layer in net.layers:
        layer.need_backward = True
        layer.bottom_need_backward = [
            need or layer.allow_force_backward(i) for i, need in enumerate(layer.bottom_need_backward)
        ]
        layer.param_propagate_down = [True] * len(layer.blobs)


def share_parameters(net: Net) -> None:
    """Let parameters of one name look at one memory."""
    for blob, owner in zip(net.param_blobs, net.param_owners, strict=True):
        if owner >= 0:
            blob.share_data(net.param_blobs[owner])
            blob.share_diff(net.param_blobs[owner])


def state_of(message: Message, phase: Any, level: int | None, stages: Sequence[str]) -> Message:
    """A copy of a NetParameter whose state says which phase, level and stages the net is built for."""
    result = message.copy()
    state = result.mutable("state")
    if phase is not None:
        if not isinstance(phase, str | int) or phase not in ("TRAIN", "TEST", 0, 1):
            raise FormatError(
                f"a phase is TRAIN (0) or TEST (1), got {phase!r}", remedy="give caffe.TRAIN or caffe.TEST"
            )
        state.phase = phase
    if level is not None:
        state.level = whole(level, "level", -(2**31), 2**31 - 1)
    state.stage.extend(texts_of(stages, "stages"))
    return result

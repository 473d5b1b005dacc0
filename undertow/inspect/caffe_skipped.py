"""Why gradients of a Caffe layer are not computed."""

from __future__ import annotations

from undertow.caffe.layer import IndexBottom, Layer
from undertow.caffe.net import Net

DATA_LAYERS = ("Data", "ImageData", "HDF5Data", "WindowData", "MemoryData", "AnnotatedData", "VideoData")
# What bottoms without a gradient hold, where it is no labels; by place where there are several.
_REGIONS = "gradient of the regions: 0, as in the original"
_MARKS = "gradient of the continuation marks: they only say where sequences begin"
_WITHOUT_GRADIENT: dict[str, str | dict[int, str]] = {
    "Embed": "input gradient: it holds indexes",
    "Filter": "gradient of the selector: it only says which items pass",
    "BatchReindex": "gradient of the order: it holds indexes",
    "LSTMUnit": _MARKS,
    "LSTM": _MARKS,
    "RNN": _MARKS,
    "SigmoidCrossEntropyLoss": "gradient of the targets: the layer computes none",
    "ContrastiveLoss": "gradient of the flags: they only say which pairs are alike",
    "InfogainLoss": {1: "gradient of the labels: they are indexes", 2: "gradient of the matrix H: it is given"},
    "MultiBoxLoss": {
        2: "gradient of the default boxes: they are fixed",
        3: "gradient of the true boxes: they are data",
    },
    "SmoothL1Loss": "gradient of the weights: 0, as in the original",
    "ROIPooling": _REGIONS,
    "PSROIPooling": _REGIONS,
}
SOURCES = (*DATA_LAYERS, "Input", "DummyData")


class Skipped:
    """The reasons for every layer of a net: call it with a layer's number."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._parameters, self._learning = self._below()
        self._under_loss = self._above()

    def __call__(self, index: int) -> list[str]:
        """One line for each kind of gradient that is left out, and why."""
        layer = self._net.layers[index]
        if layer.type in SOURCES:
            return ["all gradients: data"]
        if not layer.need_backward:
            return [f"all gradients: {self._of_whole(index)}"]
        notes = []
        for bottom, need in enumerate(layer.bottom_need_backward):
            note = None if need else self._of_bottom(index, bottom)
            if note is not None and note not in notes:
                notes.append(note)
        frozen = [i for i, need in enumerate(layer.param_propagate_down) if not need]
        if frozen and layer.type == "BatchNorm":
            notes.append("gradients of the blobs: they are statistics")
        elif frozen and len(frozen) == len(layer.blobs):
            notes.append("frozen (lr_mult: 0)")
        elif frozen:
            notes.append(f"frozen: parameter {', '.join(map(str, frozen))} (lr_mult: 0)")
        return notes

    def _of_whole(self, index: int) -> str:
        net, layer = self._net, self._net.layers[index]
        if net.message.force_backward:
            return "the layer has none"
        if not self._under_loss[index]:
            if _weightless(layer):
                return "loss_weight: 0"
            without = self._weightless_above(index)
            return f"loss_weight: 0 in {', '.join(without)}" if without else "no loss above"
        if any(layer.param_propagate_down) or any(self._learning[i] for i in net.bottom_ids[index]):
            return " and ".join(dict.fromkeys(self._stopped_above(index))) or "no gradient comes from above"
        return "frozen (lr_mult: 0)" if layer.blobs and layer.type != "BatchNorm" else "nothing below learns"

    def _of_bottom(self, index: int, bottom: int) -> str:
        net, layer = self._net, self._net.layers[index]
        if isinstance(layer, IndexBottom) and layer.is_index(bottom):
            told = _WITHOUT_GRADIENT.get(layer.type, "gradient of the labels: they are indexes")
            return told if isinstance(told, str) else told[bottom]
        if _stops(layer, bottom):
            return "input gradient: propagate_down: false"
        blob = net.bottom_ids[index][bottom]
        if self._parameters[index][bottom]:
            return "input gradient: nothing below learns"
        if layer.loss and len(layer.bottom_need_backward) > 1:
            return f"gradient of the {'target' if bottom else 'prediction'}: data"
        if len(layer.bottom_need_backward) > 1 and (any(layer.bottom_need_backward) or not layer.blobs):
            return f"gradient of {net.blob_names[blob]}: data"
        return "input gradient: first layer"

    def _below(self) -> tuple[list[list[bool]], list[bool]]:
        """For each bottom whether parameters stand below it; for each blob whether one that learns does, at the end."""
        net = self._net
        with_parameters, learning = [False] * len(net.blob_list), [False] * len(net.blob_list)
        bottoms = []
        for layer, reads, makes in zip(net.layers, net.bottom_ids, net.top_ids, strict=True):
            bottoms.append([with_parameters[i] for i in reads])
            below, learns = any(bottoms[-1]), any(learning[i] for i in reads)
            for i in makes:
                with_parameters[i] = below or bool(layer.blobs)
                learning[i] = learns or any(layer.param_propagate_down)
        return bottoms, learning

    def _above(self) -> list[bool]:
        """For each layer whether a loss depends on it."""
        net, names = self._net, self._net.blob_names
        found: set[str] = set()
        result = [False] * len(net.layers)
        for index in range(len(net.layers) - 1, -1, -1):
            tops = [names[i] for i in net.top_ids[index]]
            result[index] = any(net.layers[index].loss_weights) or any(name in found for name in tops)
            if result[index]:
                found.update(names[i] for i in net.bottom_ids[index])
        return result

    def _readers(self, index: int) -> list[tuple[int, int]]:
        """The layers above that read a top of this one before another writes over it, and as which bottom."""
        net, tops = self._net, set(self._net.top_ids[index])
        found = []
        for later in range(index + 1, len(net.layers)):
            found += [(later, j) for j, blob in enumerate(net.bottom_ids[later]) if blob in tops]
            tops -= set(net.top_ids[later])
        return found

    def _weightless_above(self, index: int) -> list[str]:
        """The losses of no weight that depend on a layer."""
        waiting, seen, found = [index], {index}, []
        while waiting:
            for reader, _ in self._readers(waiting.pop()):
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
                    found += [self._net.layers[reader].name] if _weightless(self._net.layers[reader]) else []
        return found

    def _stopped_above(self, index: int) -> list[str]:
        """What keeps the gradients of the losses above from a layer that could learn by them."""
        found = []
        for reader, bottom in self._readers(index):
            layer = self._net.layers[reader]
            if not self._under_loss[reader]:
                found += [f"loss_weight: 0 in {name}" for name in self._weightless_above(index)]
            elif _stops(layer, bottom):
                found.append(f"propagate_down: false in {layer.name}")
            elif not layer.need_backward:
                found += self._stopped_above(reader)
        return found


def _stops(layer: Layer, bottom: int) -> bool:
    """Whether the layer's own line says that this bottom gets no gradient."""
    said = layer.message.propagate_down
    return bottom < len(said) and not said[bottom]


def _weightless(layer: Layer) -> bool:
    return bool(layer.loss_weights) and not any(layer.loss_weights)

"""A whole net as one differentiable function, for gradients of any kind and for other engines' tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.caffe.layer import as_list
from undertow.caffe.layers_input import Source
from undertow.core.variable import Operand, Parameter, Variable, as_variable
from undertow.errors import GraphError

if TYPE_CHECKING:
    from undertow.caffe.net import Net


class Values(dict[str, Variable]):
    """What a net makes: its blobs by name. loss: the weighted sum of its losses, None for a net without one."""

    loss: Variable | None = None


class NetFunction:
    """Calls a net over Variables: `outputs = f(data=images, label=labels)`.

    parameters: layer name -> list of Parameters that look at the memory of the net's parameter blobs (shared ones are
    one Parameter). Blobs are not touched. Values of tops of data layers that are not given are taken from their blobs
    and count as constants. Statistics (BatchNorm in TRAIN) and carried states move as in a forward pass.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        made: dict[int, Parameter] = {}
        self._of_layers: list[list[Parameter]] = []
        for layer, ids in zip(net.layers, net.param_ids, strict=True):
            own: list[Parameter] = []
            for index, (blob, param_id) in enumerate(zip(layer.blobs, ids, strict=True)):
                owner = net.param_owners[param_id]
                shared = owner >= 0 and net.param_blobs[owner].shape == blob.shape
                key = owner if shared else param_id
                if key not in made:
                    made[key] = Parameter(blob.data, name=f"{layer.name}[{index}]")
                own.append(made[key])
            self._of_layers.append(own)
        # As in `net.params`: of several layers of one name the last.
        pairs = zip(net.layers, self._of_layers, strict=True)
        self.parameters: dict[str, list[Parameter]] = {layer.name: own for layer, own in pairs if own}

    def __call__(self, **inputs: Operand) -> Values:
        """All blobs by name; `.loss` is the weighted sum of the losses.

        inputs: values of the tops of data layers by blob name. A blob that a layer works on in place has the value
        after it. Raises GraphError for a name that is none of them.
        """
        net, values = self.net, Values()
        sources = [net.blob_names[i] for i in self._source_tops()]
        unknown = sorted(set(inputs) - set(sources))
        if unknown:
            raise GraphError(f"{', '.join(unknown)}: not the top of a data layer", remedy=f"give {', '.join(sources)}")
        for i, layer in enumerate(net.layers):
            tops = [net.blob_names[j] for j in net.top_ids[i]]
            if isinstance(layer, Source):
                values.update((name, as_variable(inputs.get(name, net.blobs[name].data))) for name in tops)
                continue
            bottom = [values[net.blob_names[j]] for j in net.bottom_ids[i]]
            found = as_list(layer.compute(bottom, self._of_layers[i]))
            values.update((name, as_variable(y)) for name, y in zip(tops, found, strict=True))
            for name, weight in zip(tops, layer.loss_weights, strict=False):
                if weight:
                    part = values[name].sum() * weight
                    values.loss = part if values.loss is None else values.loss + part
        return values

    def _source_tops(self) -> list[int]:
        pairs = zip(self.net.layers, self.net.top_ids, strict=True)
        return [i for layer, ids in pairs if isinstance(layer, Source) for i in ids]

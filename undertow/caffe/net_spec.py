"""NetSpec: nets written in Python, turned into a NetParameter.

from undertow.caffe import NetSpec, layers as L, params as P

n = NetSpec()
n.data = L.Input(shape=dict(dim=[10, 1, 28, 28]))
n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
n.relu1 = L.ReLU(n.pool1, in_place=True)
print(n.to_proto())

A call of L.X makes a layer of type X over its arguments. Keywords are fields of the layer's own options or of
LayerParameter; `ntop` tops are made (1), none for `ntop=0`; `in_place` writes over the bottoms. Attributes of a NetSpec
name tops, and through their first top layers; others are numbered by type. The result is a protobuf object where that
is installed (extra `caffe`), otherwise a message of this project; both print the same text.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from undertow.caffe.proto import caffe_pb2 as caffe_pb2  # scripts find it here
from undertow.caffe.proto.message import Message, new_message
from undertow.caffe.proto.protobuf import to_protobuf
from undertow.caffe.proto.schema import get_schema
from undertow.caffe.table import LAYER_TYPES
from undertow.errors import FormatError, MissingPackage

Names = dict[Any, str]


def param_name_dict() -> dict[str, str]:
    """From layer types to the names of their options without `_param`: {"Convolution": "convolution", ...}."""
    fields = get_schema()["LayerParameter"].fields
    return {
        field.message.name.removesuffix("Parameter"): field.name.removesuffix("_param")
        for field in fields
        if field.name.endswith("_param") and field.message is not None
    }


def to_proto(*tops: Top) -> Any:
    """A NetParameter with all layers that these tops need."""
    layers: Layers_ = OrderedDict()
    names: Counter[str] = Counter()
    for top in tops:
        # As in the original, a name is remembered within one top only.
        top.fn._to_proto(layers, {}, names)
    return _net(layers)


def assign_proto(proto: Any, name: str, val: Any) -> None:
    """Set a field of a message (of protobuf or this project) from plain values.

    A mapping fills a message, a list a repeated field; a single value for a repeated field is a list of one.
    """
    if isinstance(proto, Message):
        _assign(proto, name, val)
        return
    values = val if isinstance(val, list | tuple) else [val]
    if hasattr(getattr(proto, name), "extend"):
        for value in values:
            if isinstance(value, Mapping):
                item = getattr(proto, name).add()
                for key, inner in value.items():
                    assign_proto(item, key, inner)
            else:
                getattr(proto, name).append(value)
    elif isinstance(val, Mapping):
        for key, inner in val.items():
            assign_proto(getattr(proto, name), key, inner)
    else:
        setattr(proto, name, val)


def _assign(message: Message, name: str, val: Any) -> None:
    field = message.descriptor.by_name.get(name)
    if field is None:
        raise AttributeError(message._no_field(name))
    if field.repeated:
        values = val if isinstance(val, list | tuple) else [val]
        if field.message is None:
            getattr(message, name).extend(values)
        for value in values if field.message is not None else ():
            item = message.add(name)
            for key, inner in value.items():
                _assign(item, key, inner)
    elif field.message is not None:
        inside = message.mutable(name)
        for key, inner in val.items():
            _assign(inside, key, inner)
    else:
        setattr(message, name, val)


class Top:
    """One output of a layer: number `n` of the Function `fn`."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn, self.n = fn, n

    def to_proto(self) -> Any:
        """A NetParameter with all layers that this top needs."""
        return to_proto(self)

    def _to_proto(self, layers: Layers_, names: Names, autonames: Counter[str]) -> None:
        self.fn._to_proto(layers, names, autonames)


class Function:
    """A layer: its type, the Tops it reads, and its fields."""

    def __init__(self, type_name: str, inputs: Sequence[Top], params: Mapping[str, Any]) -> None:
        for index, given in enumerate(inputs):
            if not isinstance(given, Top):
                raise TypeError(f"{type_name} input {index} is not a Top (type is {type(given)})")
        self.type_name, self.inputs, self.params = type_name, tuple(inputs), dict(params)
        self.ntop = int(self.params.pop("ntop", 1))
        self.in_place = bool(self.params.pop("in_place", False))
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def _get_name(self, names: Names, autonames: Counter[str]) -> str:
        if self not in names:
            names[self] = self._get_top_name(self.tops[0], names, autonames) if self.ntop else self._next(autonames)
        return names[self]

    def _get_top_name(self, top: Top, names: Names, autonames: Counter[str]) -> str:
        if top not in names:
            names[top] = top.fn._next(autonames)
        return names[top]

    def _next(self, autonames: Counter[str]) -> str:
        autonames[self.type_name] += 1
        return f"{self.type_name}{autonames[self.type_name]}"

    def _to_proto(self, layers: Layers_, names: Names, autonames: Counter[str]) -> None:
        """Add the layers below and then this one, unless it is there."""
        if self in layers:
            return
        bottoms = []
        for given in self.inputs:
            given._to_proto(layers, names, autonames)
            bottoms.append(layers[given.fn].top[given.n])
        layer = new_message("LayerParameter", type=self.type_name, bottom=bottoms)
        layer.top = bottoms if self.in_place else [self._get_top_name(top, names, autonames) for top in self.tops]
        layer.name = self._get_name(names, autonames)
        for key, value in self.params.items():
            try:
                _assign(self._owner(layer, key), key, value)
            except FormatError as error:
                raise FormatError(error.reason, layer=layer.name, remedy=error.remedy) from error
        layers[self] = layer

    def _owner(self, layer: Message, key: str) -> Message:
        """The message that has the field: the layer's own options before the layer, unless they are given whole."""
        if key.endswith("param"):
            return layer
        options = f"{_param_names[self.type_name]}_param" if self.type_name in _param_names else ""
        if not options and self.type_name in LAYER_TYPES:
            options = LAYER_TYPES[self.type_name].options
        field = layer.descriptor.by_name.get(options)
        if field is not None and field.message is not None and key in field.message.by_name:
            return layer.mutable(options)
        return layer


Layers_ = OrderedDict[Function, Message]


class NetSpec:
    """Tops by name: attributes, or items for names that are no identifiers."""

    tops: OrderedDict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", OrderedDict())

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.tops[name]

    def __setitem__(self, key: str, value: Any) -> None:
        self.tops[key] = value

    def __getitem__(self, key: str) -> Any:
        return self.tops[key]

    def __contains__(self, name: str) -> bool:
        return name in self.tops

    def __delitem__(self, key: str) -> None:
        del self.tops[key]

    def keys(self) -> list[str]:
        """The names, in the order in which they were given (from the SSD fork): `net[net.keys()[-1]]` is the last."""
        return list(self.tops)

    def vals(self) -> list[Any]:
        """What the names stand for, in the same order (from the SSD fork)."""
        return list(self.tops.values())

    def update(self, name: str, params: Mapping[str, Any]) -> None:
        """Set more fields of the layer behind a name (from the SSD fork)."""
        top = self.tops[name]
        (top if isinstance(top, Function) else top.fn).params.update(params)

    def to_proto(self) -> Any:
        """A NetParameter with all layers that the named tops need."""
        names: Names = {top: name for name, top in self.tops.items()}
        autonames: Counter[str] = Counter()
        layers: Layers_ = OrderedDict()
        for top in self.tops.values():
            top._to_proto(layers, names, autonames)
        return _net(layers)


class Layers:
    """`layers.X(...)` makes a layer of type X: a Top, a tuple of Tops for several, a Function for none."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def make(*inputs: Top, **params: Any) -> Any:
            function = Function(name, inputs, params)
            if function.ntop == 0:
                return function
            return function.tops[0] if function.ntop == 1 else function.tops

        return make


class Parameters:
    """`params.Pooling.MAX` is the number of an enum value of PoolingParameter."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _EnumValues(name)


class _EnumValues:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, value: str) -> int:
        message = get_schema()[f"{self._name}Parameter"]
        for enum in message.enums.values():
            if value in enum.numbers:
                return enum.numbers[value]
        known = ", ".join(name for enum in message.enums.values() for name in enum.numbers)
        raise AttributeError(f"{message.name} has no value {value}; it has {known or 'none'}")


def _net(layers: Layers_) -> Any:
    net = new_message("NetParameter", layer=list(layers.values()))
    try:
        return to_protobuf(net)
    except MissingPackage:
        return net


_param_names = param_name_dict()
layers = Layers()
params = Parameters()

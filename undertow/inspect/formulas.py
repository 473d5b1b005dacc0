"""The formulas of operations with the real sizes in them, and how many operations they take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from undertow.functions.conv import Conv, ConvWeights, Deconv
from undertow.functions.linalg import Linear, MatMul
from undertow.inspect.record import Call, LayerRecord, Shape
from undertow.inspect.specific import backward_of, name_of


@dataclass(frozen=True)
class Product:
    """One matrix product: (m, k) times (k, n), `times` times (images, groups).

    gradient_of: index of the operand whose gradient it gives; None for the way forward.
    """

    text: str
    m: int
    k: int
    n: int
    times: int = 1
    gradient_of: int | None = None

    @property
    def multiply_adds(self) -> int:
        return self.m * self.k * self.n * self.times


def shape_text(shape: Shape) -> str:
    """`50x500`; `1 value` for a single number."""
    return "x".join(map(str, shape)) if shape else "1 value"


def products(call: Call) -> list[Product]:
    """The matrix products of an operation, forward and backward; none for element-wise operations."""
    function = call.function
    if isinstance(function, (Conv, Deconv)):
        return _convolution(call)
    if isinstance(function, Linear):
        return _linear(call)
    if isinstance(function, MatMul) and all(len(shape) == 2 for shape in call.in_shapes):
        return _matmul(call)
    if isinstance(function, ConvWeights):
        return _weights(call)
    return []


def _convolution(call: Call) -> list[Product]:
    """Of one image and one group; a transposed convolution is the same with input and output exchanged."""
    function = call.function
    assert isinstance(function, (Conv, Deconv))
    transposed = isinstance(function, Deconv)
    x, w = call.in_shapes[:2]
    y = call.out_shapes[0]
    images, groups = x[0], function.geometry.groups
    filters, rows = w[0] // groups, math.prod(w[1:])
    small = x if transposed else y
    places, times = math.prod(small[2:]), images * groups
    per = _per(images, groups)
    wide, tall = f"{filters}x{rows}", f"{rows}x{places}"
    inner = f"{filters}x{places}"
    column_map = "x".join(map(str, (y if transposed else x)[1:]))
    summed = (f", summed over {images} images" if images > 1 else "") + _per(1, groups)
    if transposed:
        forward = f"columns {tall} = weights transposed {rows}x{filters} times input {inner}"
        forward += f", col2im to {column_map}{per}"
        to_weights = f"weight gradient {wide} = input {inner} times gradient columns {places}x{rows}{summed}"
        to_data = f"input gradient {inner} = weights {wide} times gradient columns {tall}{per}"
        return [
            Product(forward, rows, filters, places, times),
            Product(to_weights, filters, places, rows, times, gradient_of=1),
            Product(to_data, filters, rows, places, times, gradient_of=0),
        ]
    forward = f"output {inner} = weights {wide} times columns {tall}{per}"
    to_weights = f"weight gradient {wide} = output gradient {inner} times columns {places}x{rows}{summed}"
    to_data = (
        f"column gradient {tall} = weights transposed {rows}x{filters} times output gradient {inner}, "
        f"col2im to {column_map}{per}"
    )
    return [
        Product(forward, filters, rows, places, times),
        Product(to_weights, filters, places, rows, times, gradient_of=1),
        Product(to_data, rows, filters, places, times, gradient_of=0),
    ]


def _per(images: int, groups: int) -> str:
    parts = [f"{images} images" if images > 1 else "", f"{groups} groups" if groups > 1 else ""]
    given = " and ".join(part for part in parts if part)
    return f", for each of {given}" if given else ""


def _linear(call: Call) -> list[Product]:
    x, w = call.in_shapes[:2]
    m, k = w
    n = math.prod(x[:-1])
    return [
        Product(f"output {n}x{m} = input {n}x{k} times weights transposed {k}x{m}", n, k, m),
        Product(
            f"weight gradient {m}x{k} = output gradient transposed {m}x{n} times input {n}x{k}", m, n, k, gradient_of=1
        ),
        Product(f"input gradient {n}x{k} = output gradient {n}x{m} times weights {m}x{k}", n, m, k, gradient_of=0),
    ]


def _matmul(call: Call) -> list[Product]:
    (m, k), (_, n) = call.in_shapes
    return [
        Product(f"output {m}x{n} = a {m}x{k} times b {k}x{n}", m, k, n),
        Product(f"gradient of a {m}x{k} = output gradient {m}x{n} times b transposed {n}x{k}", m, n, k, gradient_of=0),
        Product(f"gradient of b {k}x{n} = a transposed {k}x{m} times output gradient {m}x{n}", k, m, n, gradient_of=1),
    ]


def _weights(call: Call) -> list[Product]:
    gy = call.in_shapes[0]
    w = call.out_shapes[0]
    function = call.function
    assert isinstance(function, ConvWeights)
    groups = function.geometry.groups
    filters, rows, places = w[0] // groups, math.prod(w[1:]), math.prod(gy[2:])
    text = f"weights {filters}x{rows} = gy {filters}x{places} times columns of x {places}x{rows}{_per(1, groups)}"
    return [Product(text, filters, places, rows, gy[0] * groups)]


def formula_lines(call: Call, everything: bool = False) -> list[str]:
    """The backward formula with sizes: matrix products where there are any, else the registry's symbols.

    everything: also gradients that are not computed in this run.
    """
    found = products(call)
    wanted = [everything or want for want in call.wanted]
    lines = [p.text for p in found if p.gradient_of is not None and wanted[p.gradient_of]]
    if found and len(call.wanted) > 2 and wanted[2]:
        lines.append(_bias_line(call))
    if found:
        return lines
    if not any(wanted):
        return []
    given = [shape for shape, want in zip(call.in_shapes, wanted, strict=True) if want]
    sizes = f"gy {_shapes(call.out_shapes)}, gx {_shapes(given)}"
    backward = backward_of(call) or ("no formula: an operation of your own" if call.entry is None else "no gradient")
    return [f"{name_of(call)}: {backward} ({sizes})"]


def _bias_line(call: Call) -> str:
    size = call.in_shapes[2][0]
    y = call.out_shapes[0]
    count = math.prod(y) // size if size else 0
    places = "place" if count == 1 else "places"
    return f"bias gradient {size} = sums of the output gradient, over {count} {places} each"


def _shapes(shapes: Iterable[Shape]) -> str:
    return " and ".join(shape_text(shape) for shape in shapes)


def forward_operations(call: Call) -> int:
    """Multiply-adds of the way forward; operations that are no matrix products count one per element."""
    found = products(call)
    if found:
        bias = math.prod(call.out_shapes[0]) if len(call.in_shapes) > 2 else 0
        return found[0].multiply_adds + bias
    return _elements(call)


def backward_operations(call: Call, everything: bool = False) -> int:
    """The same for the gradients that are computed (or all that could be)."""
    wanted = [everything or want for want in call.wanted]
    found = products(call)
    if found:
        bias = math.prod(call.out_shapes[0]) if len(wanted) > 2 and wanted[2] else 0
        return bias + sum(p.multiply_adds for p in found if p.gradient_of is not None and wanted[p.gradient_of])
    return _elements(call) if any(wanted) else 0


def shared_formula(record: LayerRecord) -> str:
    """The way back of a layer whose outputs are its input: what their readers send adds up."""
    x, ys = shape_text(record.inputs[0]), record.outputs
    if len(ys) == 1:
        return f"gx = gy in the shape of x (gy {shape_text(ys[0])}, gx {x})"
    terms = [f"gy{i}" for i in range(1, len(ys) + 1)]
    return f"gx = {' + '.join(terms)} ({len(ys) - 1} {'addition' if len(ys) == 2 else 'additions'} of {x})"


def shared_additions(record: LayerRecord) -> int:
    """The additions of that way back."""
    return (len(record.outputs) - 1) * math.prod(record.inputs[0])


_FREE = {"reshape", "tap", "broadcast_to", "transpose", "mask_gradient"}


def is_free(call: Call) -> bool:
    """Whether the operation computes nothing: it shows the same numbers in another form or place."""
    return call.name in _FREE


def _elements(call: Call) -> int:
    if is_free(call):
        return 0
    return max((math.prod(shape) for shape in (*call.in_shapes, *call.out_shapes)), default=0)

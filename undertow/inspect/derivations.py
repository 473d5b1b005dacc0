"""How the backward formulas follow from the forward ones, in a few lines; L is the loss, gy = dL/dy."""

from __future__ import annotations

from undertow.functions.norm_batch import BatchNorm
from undertow.inspect.record import Call

_PRODUCT = (
    "y = W X + b, where the columns X hold the windows of the input: one product does all positions",
    "a small change dy = dW X + W dX + db changes the loss by sum(gy * dy)",
    "read off what stands beside dW, dX and db:  gW = gy X^T,  gX = W^T gy,  gb = sum of gy over positions",
    "X repeats input values where windows overlap, so gx adds up (col2im) what all their copies receive",
)
_ELEMENTWISE = (
    "each y_i depends on x_i alone, so dy_i/dx_j is 0 for j != i",
    "the chain rule leaves one factor for each element:  gx_i = gy_i * dy_i/dx_i",
)
_SUM = ("dy = da + db", "the loss changes by sum(gy * da) + sum(gy * db): both get gy as it is:  ga = gy,  gb = gy")
_COPY = (
    "every y is one of the x in another place",
    "so every gx is the gy of its place; where one x has several, they add up",
)

DERIVATIONS: dict[str, tuple[str, ...]] = {
    "conv2d": _PRODUCT,
    "convnd": _PRODUCT,
    "deconv2d": (
        "the way forward is the way back of a convolution: y = col2im(W^T X)",
        "so its way back is that convolution forward:  gX = W columns(gy),  gW = X columns(gy)^T",
    ),
    "linear": (
        "y = x W^T + b for each row x",
        "a small change dy = dx W^T + x dW^T + db changes the loss by sum(gy * dy)",
        "read off what stands beside dx, dW and db:  gx = gy W,  gW = gy^T x,  gb = sum of gy over rows",
    ),
    "matmul": ("y = a b, so dy = da b + a db", "sum(gy * dy) gives  ga = gy b^T,  gb = a^T gy"),
    "add": _SUM,
    "sub": ("dy = da - db", "sum(gy * dy) gives  ga = gy,  gb = -gy"),
    "mul": ("dy = b da + a db, element by element", "sum(gy * dy) gives  ga = gy b,  gb = gy a"),
    "concat": _COPY,
    "reshape": _COPY,
    "transpose": _COPY,
    "split": _COPY,
    "get_item": _COPY,
    "upsample": ("each x is copied to n x n places", "gx adds up the gy of those places"),
    "max_pool2d": (
        "y of a window is its largest x; the others may change a little without any effect",
        "so dy/dx is 1 at the place of the maximum and 0 elsewhere: gy goes to that place alone",
    ),
    "avg_pool2d": ("y is the sum of a window over its n cells", "each of the cells receives gy / n; windows add up"),
    "batch_norm": (
        "y = gamma h + beta with h = (x - mean) / s:  ggamma = sum(gy h),  gbeta = sum(gy),  gh = gamma gy",
        "mean and s depend on every x of the channel too: a shift of all x changes nothing, nor does a stretch",
        "so gx is gh / s without its part along 1 and along h:  gx = gamma/s (gy - mean(gy) - h mean(gy h))",
    ),
    "batch_norm, given statistics": (
        "mean and s are constants here: each y depends on one x of its place alone, by dy/dx = gamma / s",
        "so gx = gamma/s gy;  beside dgamma and dbeta stand  ggamma = sum(gy (x - mean)) / s,  gbeta = sum(gy)",
    ),
    "softmax": (
        "dy_i/dx_j = y_i (1 if i = j else 0) - y_i y_j",
        "gx_j = sum over i of gy_i dy_i/dx_j = y_j (gy_j - sum of gy y)",
    ),
    "softmax_cross_entropy": (
        "L = -log p_t with p = softmax(x), so dL/dp_t = -1/p_t and 0 elsewhere",
        "through the softmax the p cancel:  gx = p - onehot(t), what was said minus what is true",
    ),
    "mean": ("y is the sum of n elements over n", "each of them receives gy / n"),
    "sum": ("dy = sum of dx", "each element receives gy"),
    "dropout": ("the mask is a constant of this pass", "gy passes where x passed, with the same scale"),
}

_OF_ONE_ELEMENT = {
    "relu", "relu6", "leaky_relu", "elu", "prelu", "sigmoid", "tanh", "softplus", "swish", "mish", "gelu", "gelu_tanh",
    "hard_sigmoid", "hard_swish", "darknet_activation", "exp", "log", "sqrt", "square", "power", "abs", "clip", "sin",
    "cos", "tan", "neg", "sinh", "cosh", "erf", "expm1", "log1p", "arctan", "arcsin", "arccos",
}  # fmt: skip


def derivation(name: str) -> tuple[str, ...]:
    """The lines for an operation of this name; the general rule where it has none of its own."""
    if name in DERIVATIONS:
        return DERIVATIONS[name]
    if name in _OF_ONE_ELEMENT:
        return _ELEMENTWISE
    return ("L depends on x through y alone:  gx_j = sum over i of gy_i dy_i/dx_j", "written out for this operation:")


def derivation_of(call: Call) -> tuple[str, ...]:
    """The lines for a call: of an operation with variants, those of the one that runs."""
    function = call.function
    if isinstance(function, BatchNorm) and function.rule.backward is not None:
        return (
            *derivation("batch_norm"),
            "Darknet puts an s of its own into this, and takes the statistics as they are",
        )
    if isinstance(function, BatchNorm) and function.given:
        return derivation("batch_norm, given statistics")
    return derivation(call.name)

"""Shapes and places: values that are moved, repeated or added as they are."""

from undertow.inspect.derivations.lines import COPY, Lines

_SAME = "y = x, so dy/dx = 1"

DERIVATIONS: dict[str, Lines] = {
    "reshape": COPY,
    "transpose": COPY,
    "get_item": COPY,
    "concat": (
        "every y is one element of one x_i, in order",
        "so gx_i is the piece of gy at the places of x_i",
    ),
    "split": (
        "every element of x is in one of y_0, y_1, ... as it is",
        "so gx is what arrives at the pieces, one after the other",
    ),
    "broadcast_to": (
        "each x is copied to several y: dy/dx is 1 for those",
        "so gx = the sum of the gy of its copies",
    ),
    "sum_to": (
        "each x is in one sum y, with slope 1",
        "so each x receives the gy of its sum:  gx = gy, repeated over what was summed",
    ),
    "pad": (
        "the inner part of y is x as it is, the border is constant",
        "so gx = the inner part of gy; what arrives at the border goes nowhere",
    ),
    "scatter": (
        "every x is added to one y, that of its index, with slope 1",
        "so gx = gy[index]; two x in one place both receive the whole gy of that place",
    ),
    "embedding": (
        "every y[place] is one row of w, that of its index: dy/dw is 1 for this row, 0 for all others",
        "so gw adds up gy[place] in row index[place]; rows that no place reads receive 0",
        "an ignored place is the constant 0 and hands nothing on; the index is a whole number without a slope",
    ),
    "embedding_rows": (
        "every x[place] is added to one row of y, that of its index, with slope 1",
        "so gx[place] = gy[index[place]]; an ignored place is added nowhere: 0",
    ),
    "tap": (_SAME, "gx = gy: nothing is changed; the values are only looked at as they pass, both ways"),
    "mask_gradient": (
        f"{_SAME}, and the derivative would be gy",
        "the way back is cut on purpose where mask is 0:  gx = gy mask",
    ),
    "shortcut_sum": (
        "where the two overlap, dy = alpha dx + beta dsource; elsewhere y = x and dy = dx",
        "sum(gy * dy) gives  gx = alpha gy where they overlap, else gy",
        "gsource = beta gy at the places it was read from; what was not read (other channels, pixels between) gets 0",
    ),
}

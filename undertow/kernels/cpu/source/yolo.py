"""A yolo head: its outputs, what is asked of them, and the gradient. `undertow/darknet/layers/yolo_loss.py` says it
in NumPy, and what it all means; here are the same operations in the same order.

A pixel has for each of n anchors `values` floats: x, y, w, h, objectness, classes. A box is known by the number
(image * n + anchor) * area + row * width + column, in the order of `weight` and `target`, those of the objectness.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from undertow.kernels.cpu.source.activation import logistic
from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import (
    LANES,
    fma,
    load_double,
    load_float,
    load_int,
    load_part,
    store_double,
    store_float,
    store_int,
    store_part,
    zero,
)

_NOTHING, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)

# Cells are left out only where rounding cannot turn their boxes' overlap into one above the threshold.
_SURE_SHARE, _SMALLEST_THRESHOLD, _SMALLEST_SIDE, _LARGEST, _SLACK = 0.97, 0.05, 1e-3, 2.0, 0.01
_SANE = 1e6  # no truth has larger numbers

# Where `activate` puts its sums, in bytes.
_ENTROPY, _OBJECTNESS, _SQUARES, _ODD = 0, 8, 16, 24
# And `assign` what it finds.
_LOSS, _COST, _IOU, _CLASS, _OBJECT, _NO_OBJECT, _RECALL50, _RECALL75, _COUNT, _CELLS, _REFUSED = range(0, 88, 8)
FOUND = 11

_FULL = 1e200  # from here on a product may overflow


@inline
def _softplus(x):
    """(a, b) with log(1 + e^x) = a + log(b): logarithms of many b cost one of their product."""
    return np.float64(max(x, _NOTHING)), 1.0 + np.float64(math.exp(-abs(x)))


@kernel
def activate(x, xs, y, n, values, area, weight, target, sums, tmp, p0, p1):
    """y = logistic(x), but x for w and h: pixels p0..p1, those of x xs bytes apart; weight 1, target 0 of their boxes.

    sums: doubles, over the objectness: of log(1 + e^x), y and y^2; then what is not 0 where an x is not finite. tmp: a
    vector.
    """
    C = n * values
    odd, nothing = zero(), zero()
    entropy, product, total, squares = 0.0, 1.0, 0.0, 0.0
    for p in range(p0, p1):
        a, b = x + p * xs, y + p * 4 * C
        for c in range(0, C, LANES):
            v = load_part(a + 4 * c, C - c)
            odd = fma(v, nothing, odd)
            store_part(b + 4 * c, logistic(v), C - c)
        image = p // area
        box = 4 * (image * n * area + p - image * area)
        for k in range(n):
            i = 4 * k * values
            store_float(b + i + 8, load_float(a + i + 8))
            store_float(b + i + 12, load_float(a + i + 12))
            plain, factor = _softplus(load_float(a + i + 16))
            entropy += plain
            product *= factor
            q = load_float(b + i + 16)
            total += q
            squares += np.float64(q * q)
            store_float(weight + box + 4 * k * area, _ONE)
            store_float(target + box + 4 * k * area, _NOTHING)
            if product > _FULL:
                entropy += math.log(product)
                product = 1.0
    store_double(sums + _ENTROPY, entropy + math.log(product))
    store_double(sums + _OBJECTNESS, total)
    store_double(sums + _SQUARES, squares)
    store_part(tmp, odd, LANES)
    bad = _NOTHING
    for lane in range(LANES):
        bad += load_float(tmp + 4 * lane)
    store_double(sums + _ODD, np.float64(bad))


@inline
def _overlap(a, a_side, b, b_side):
    """How far two boxes overlap along an axis; negative where they are apart."""
    a_half, b_half = a_side / _TWO, b_side / _TWO
    return min(a + a_half, b + b_half) - max(a - a_half, b - b_half)


@inline
def _iou(a, b):
    """Intersection over union of boxes (x, y, w, h); NaN for two without area."""
    across, down = _overlap(a[0], a[2], b[0], b[2]), _overlap(a[1], a[3], b[1], b[3])
    shared = _NOTHING if across < _NOTHING or down < _NOTHING else across * down
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


@inline
def _box(y, row, column, head, anchor):
    """The box at outputs y, relative to the picture."""
    height, width, net_height, net_width = head[0], head[1], head[4], head[5]
    return (
        (load_float(y) + np.float32(column)) / np.float32(width),
        (load_float(y + 4) + np.float32(row)) / np.float32(height),
        math.exp(load_float(y + 8)) * load_float(anchor) / np.float32(net_width),
        math.exp(load_float(y + 12)) * load_float(anchor + 4) / np.float32(net_height),
    )


@inline
def _truth(at):
    return load_float(at), load_float(at + 4), load_float(at + 8), load_float(at + 12)


@inline
def _near(middle, side, threshold, usual, cells):
    """First and last cell along an axis where boxes may have their middle that overlap a truth by the threshold."""
    if not usual:
        return 0, cells - 1
    share = _SURE_SHARE * threshold
    far = np.float64(side) * max(1 - share, 0.0) * max(1.0, 0.5 / share)
    low = (middle - far) * cells - (1 + _SLACK)
    high = (middle + far) * cells + _SLACK
    return max(0, math.ceil(low)), min(cells - 1, math.floor(high))


@inline
def _usual(t, threshold):
    small = min(t[2], t[3])
    large = max(max(abs(t[0]), abs(t[1])), max(t[2], t[3]))
    return threshold >= _SMALLEST_THRESHOLD and small >= _SMALLEST_SIDE and large <= _LARGEST


@inline
def _label(at, class_map):
    label = int(load_float(at + 16))
    return load_int(class_map + 8 * label) if class_map != 0 else label


@inline
def _sane(at, class_map, mapped, classes):
    """Whether a truth has usable numbers."""
    for i in range(5):
        if not abs(load_float(at + 4 * i)) <= _SANE:
            return False
    label = np.float64(load_float(at + 16))
    if class_map != 0:
        if not (label > -1 and label < mapped):
            return False
        label = np.float64(_label(at, class_map))
    return label >= 0 and label < classes


@inline
def _count_truths(truth, most, class_map, mapped, classes):
    """How many truths an image has; -1 where one of them is no usable truth."""
    for t in range(most):
        at = truth + 20 * t
        if load_float(at) == 0:
            return t
        if not _sane(at, class_map, mapped, classes):
            return -1
    return most


@inline
def _best_anchor(t, sizes, total):
    """The first of all anchors whose shape overlaps most with the truth's."""
    best, found = _NOTHING, 0
    for a in range(total):
        w, h = load_float(sizes + 8 * a), load_float(sizes + 8 * a + 4)
        common = min(w, t[2]) * min(h, t[3])
        overlap = common / (w * h + t[2] * t[3] - common)
        if a == 0 or overlap > best:
            best, found = overlap, a
    return found


@inline
def _at(x, y, xs, head, image, row, column, k):
    """Where a box's inputs and outputs lie, and which number it has."""
    height, width, n, values = head[0], head[1], head[2], head[3]
    pixel = row * width + column
    whole = image * height * width + pixel
    box = (image * n + k) * height * width + pixel
    return x + whole * xs + 4 * values * k, y + 4 * values * (whole * n + k), box


@inline
def _leave(x, y, found):
    """A box is no longer one of those that are asked for no object."""
    plain, factor = _softplus(load_float(x + 16))
    q = load_float(y + 16)
    store_double(found + _LOSS, load_double(found + _LOSS) - (plain + math.log(factor)))
    store_double(found + _COST, load_double(found + _COST) - np.float64(q * q))


@inline
def _excuse(x, y, xs, head, image, anchors, t, thresholds, weight, found):
    """Ask no objectness of the image's boxes that overlap truth t by more than the first threshold; False where one
    does by more than the second.
    """
    least = min(thresholds[0], thresholds[1])
    usual = _usual(t, least)
    top, bottom = _near(t[1], t[3], least, usual, head[0])
    left, right = _near(t[0], t[2], least, usual, head[1])
    for row in range(top, bottom + 1):
        for column in range(left, right + 1):
            for k in range(head[2]):
                own_x, own_y, box = _at(x, y, xs, head, image, row, column, k)
                overlap = _iou(_box(own_y, row, column, head, anchors + 8 * k), t)
                if overlap != overlap:
                    overlap = _NOTHING
                if overlap > thresholds[1]:
                    return False
                if overlap > thresholds[0] and load_float(weight + 4 * box) != 0:
                    store_float(weight + 4 * box, _NOTHING)
                    _leave(own_x, own_y, found)
    return True


@inline
def _count(y, box, t, label, found):
    """Statistics of a box that answers for a truth, at outputs y."""
    overlap = _iou(box, t)
    for place, value in (
        (_IOU, np.float64(overlap)),
        (_CLASS, np.float64(load_float(y + 4 * (5 + label)))),
        (_OBJECT, np.float64(load_float(y + 16))),
        (_RECALL50, 1.0 if overlap > 0.5 else 0.0),
        (_RECALL75, 1.0 if overlap > 0.75 else 0.0),
        (_COUNT, 1.0),
    ):
        store_double(found + place, load_double(found + place) + value)


@inline
def _cell(cells, room, s):
    """Image, anchor, row, column."""
    return (
        load_int(cells + 8 * s), load_int(cells + 8 * (room + s)),
        load_int(cells + 8 * (2 * room + s)), load_int(cells + 8 * (3 * room + s)),
    )  # fmt: skip


@inline
def _slot(cells, room, count, image, k, row, column):
    """Which of the cells asked so far this is; count where it is none of them."""
    for s in range(count - 1, -1, -1):
        other = _cell(cells, room, s)
        if other[0] != image:
            break
        if other[1] == k and other[2] == row and other[3] == column:
            return s
    return count


@inline
def _take_slot(cells, room, s, image, k, row, column):
    store_int(cells + 8 * s, image)
    store_int(cells + 8 * (room + s), k)
    store_int(cells + 8 * (2 * room + s), row)
    store_int(cells + 8 * (3 * room + s), column)


@inline
def _begin_cell(target, weight, values):
    """Nothing but an object is asked of a cell."""
    for i in range(values):
        store_float(target + 4 * i, _ONE if i == 4 else _NOTHING)
        store_float(weight + 4 * i, _ONE)


@inline
def _ask(y, t, label, row, column, head, anchor, reset, target, weight):
    """Ask for a box and, besides those asked for before, for a class: of the outputs of a cell, at y."""
    height, width, _, values, net_height, net_width = head
    store_float(target, t[0] * np.float32(width) - np.float32(column))
    store_float(target + 4, t[1] * np.float32(height) - np.float32(row))
    store_float(target + 8, math.log(t[2] * np.float32(net_width) / load_float(anchor)))
    store_float(target + 12, math.log(t[3] * np.float32(net_height) / load_float(anchor + 4)))
    for i in range(4):
        store_float(weight + 4 * i, _TWO - t[2] * t[3])
    if reset and load_float(target + 20) == load_float(y + 20):
        for i in range(5, values):
            store_float(target + 4 * i, _NOTHING)
    store_float(target + 20 + 4 * label, _ONE)


@inline
def _cell_sums(x, y, values, target, weight, found):
    """Add a cell's loss and the squares of its deltas."""
    loss, product, squares = 0.0, 1.0, 0.0
    for i in range(values):
        v, t, w = load_float(x + 4 * i), load_float(target + 4 * i), load_float(weight + 4 * i)
        delta = w * (t - load_float(y + 4 * i))
        squares += np.float64(delta * delta)
        if i == 2 or i == 3:
            loss += 0.5 * np.float64(w * (t - v) * (t - v))
            continue
        plain, factor = _softplus(v)
        if i < 2:
            loss += np.float64(w) * (plain + math.log(factor) - np.float64(t * v))
            continue
        loss += plain - np.float64(t * v)
        product *= factor
        if product > _FULL:
            loss += math.log(product)
            product = 1.0
    store_double(found + _LOSS, load_double(found + _LOSS) + loss + math.log(product))
    store_double(found + _COST, load_double(found + _COST) + squares)


@inline
def _begin(sums, parts, found):
    """Take what `activate` has summed up; False where its input was not finite."""
    for i in range(0, 8 * FOUND, 8):
        store_double(found + i, 0.0)
    entropy, objectness, squares, odd = 0.0, 0.0, 0.0, 0.0
    for s in range(parts):
        at = sums + 32 * s
        entropy += load_double(at + _ENTROPY)
        objectness += load_double(at + _OBJECTNESS)
        squares += load_double(at + _SQUARES)
        odd += load_double(at + _ODD)
    store_double(found + _LOSS, entropy)
    store_double(found + _COST, squares)
    store_double(found + _NO_OBJECT, objectness)
    return odd == 0


@inline
def _answer(
    x, y, xs, head, image, t, label, anchors, sizes, total, ours, reset, weight, target, cells, room, count,
    cell_target, cell_weight, found,
):  # fmt: skip
    """Let the anchor, of all heads, whose shape fits truth t best answer for it, if it is ours; how many cells there
    are then.
    """
    row, column = int(t[1] * np.float32(head[0])), int(t[0] * np.float32(head[1]))
    k = load_int(ours + 8 * _best_anchor(t, sizes, total))
    if k < 0 or row < 0 or row >= head[0] or column < 0 or column >= head[1]:
        return count
    own_x, own_y, box = _at(x, y, xs, head, image, row, column, k)
    _count(own_y, _box(own_y, row, column, head, anchors + 8 * k), t, label, found)
    slot = _slot(cells, room, count, image, k, row, column)
    cell_target += 4 * head[3] * slot
    cell_weight += 4 * head[3] * slot
    if slot == count:
        _take_slot(cells, room, slot, image, k, row, column)
        _begin_cell(cell_target, cell_weight, head[3])
        if load_float(weight + 4 * box) != 0:
            _leave(own_x, own_y, found)
        store_float(weight + 4 * box, _ONE)
        store_float(target + 4 * box, _ONE)
    _ask(own_y, t, label, row, column, head, anchors + 8 * k, reset, cell_target, cell_weight)
    return max(count, slot + 1)


@kernel
def assign(
    x, xs, y, batch, height, width, n, values, net_height, net_width, anchors, sizes, total, ours, class_map, mapped,
    thresholds, reset, truth, truth_step, most, sums, parts, weight, target, cells, cell_target, cell_weight, found,
):  # fmt: skip
    """What is asked of the outputs y of `activate`, and the loss; `found` says what.

    anchors: (n, 2) in pixels of the network's input. sizes: (total, 2), all anchors relative to it. ours: int64
    (total): which of the n it is, or -1. class_map: int64 (mapped), or 0. thresholds: float64 [ignore, truth]. truth:
    float32 (batch, most, 5), truth_step bytes from one image to the next. cells: int64 (4, batch * most): image,
    anchor, row, column, in the order of asking; cell_target, cell_weight: (batch * most, values).
    """
    head = (height, width, n, values, net_height, net_width)
    limits = (load_double(thresholds), load_double(thresholds + 8))
    room, count = batch * most, 0
    fine = _begin(sums, parts, found)
    for image in range(batch):
        own = truth + image * truth_step
        truths = _count_truths(own, most, class_map, mapped, values - 5)
        fine = fine and truths >= 0
        for i in range(truths):
            fine = fine and _excuse(x, y, xs, head, image, anchors, _truth(own + 20 * i), limits, weight, found)
        for i in range(truths if fine else 0):
            at = own + 20 * i
            count = _answer(
                x, y, xs, head, image, _truth(at), _label(at, class_map), anchors, sizes, total, ours, reset, weight,
                target, cells, room, count, cell_target, cell_weight, found,
            )  # fmt: skip
    for s in range(count if fine else 0):
        image, k, row, column = _cell(cells, room, s)
        own_x, own_y, _ = _at(x, y, xs, head, image, row, column, k)
        _cell_sums(own_x, own_y, values, cell_target + 4 * values * s, cell_weight + 4 * values * s, found)
    store_double(found + _CELLS, np.float64(count))
    store_double(found + _REFUSED, 0.0 if fine else 1.0)


@kernel(floats=("factor",))
def spread(
    y, n, values, height, width, weight, target, cells, room, count, cell_target, cell_weight, gx, gs, factor, p0, p1
):  # fmt: skip
    """gx = factor * weight * (target - output), 0 where nothing is asked for: pixels p0..p1, gs bytes apart in gx.

    Everything else as `assign` left it; room: of `cells`, count: how many there are.
    """
    C, area = n * values, height * width
    for p in range(p0, p1):
        a, b = y + p * 4 * C, gx + p * gs
        for c in range(0, C, LANES):
            store_part(b + 4 * c, zero(), C - c)
        image = p // area
        box = 4 * (image * n * area + p - image * area)
        for k in range(n):
            i = 4 * k * values + 16
            place = box + 4 * k * area
            delta = load_float(weight + place) * (load_float(target + place) - load_float(a + i))
            store_float(b + i, factor * delta)
    for s in range(count):
        image, k, row, column = _cell(cells, room, s)
        pixel = (image * height + row) * width + column
        if pixel >= p0 and pixel < p1:
            a, b, own = y + 4 * values * (pixel * n + k), gx + pixel * gs + 4 * values * k, 4 * values * s
            for i in range(0, 4 * values, 4):
                delta = load_float(cell_weight + own + i) * (load_float(cell_target + own + i) - load_float(a + i))
                store_float(b + i, factor * delta)

"""The per-channel arithmetic of batch norm between the passes over the pixels, in float64; channels c0..c1.

numbers: the address of float64 [count; divisor, epsilon, whether it stands inside the root, of the forward scaling; the
same three of the backward scaling; momentum and correction of the running statistics].
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from undertow.kernels.cpu.source.batchnorm import idle
from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.simd import load_double, load_float, store_double, store_float, store_int

FAR = 1e3  # from here on E[y^2] - E[y]^2 has lost its digits
SAME = 2.0**-50  # one value of many that differs by the last digit makes a larger sum of squares, by the mean's square
_FORWARD, _BACKWARD, _MOMENTUM, _CORRECTION = 8, 32, 56, 64


@inline
def _deviation(variance, scaling):
    epsilon = load_double(scaling + 8)
    if load_double(scaling + 16) != 0:
        return math.sqrt(variance + epsilon)
    return math.sqrt(variance) + epsilon


@inline
def _varies(variance, deviation):
    """Whether not all values are the same, as a single one is: x_hat then is 0, and what rounding leaves of x - mean
    must not be divided by an epsilon."""
    return variance != 0 or deviation == 0


@inline
def _slope(variance, scaling):
    """The derivative of the deviation."""
    if load_double(scaling + 16) != 0:
        return 0.5 / math.sqrt(variance + load_double(scaling + 8))
    root = math.sqrt(variance)
    return 0.5 / root if root > 0 else 0.0


@inline
def _total(sums, slots, C):
    """The sum of the doubles at `sums`, 2 C of them apart."""
    total = load_double(sums)
    for s in range(1, slots):
        total += load_double(sums + 16 * s * C)
    return total


@kernel
def clear(p, i0, i1):
    """Doubles i0..i1 become 0."""
    for i in range(i0, i1):
        store_double(p + 8 * i, 0.0)


@kernel
def statistics(sums, slots, C, centre, numbers, mean, variance, far, c0, c1):
    """Mean and variance from [groups][slots][2][C] sums of y - centre and of its square; centre 0: none.

    C: channels of a group. Without a centre, far becomes 1 where the sums are too coarse; with one, nothing is done
    while far, if there is one, is 0.
    """
    if centre != 0 and idle(far):
        return
    count = load_double(numbers)
    divisor = load_double(numbers + _FORWARD)
    for c in range(c0, c1):
        group = c // C
        at = sums + group * slots * 16 * C + 8 * (c - group * C)
        first = _total(at, slots, C)
        m = first / count
        spread = _total(at + 8 * C, slots, C) - first * m
        if spread < 0:
            spread = 0.0
        if centre == 0:
            if m * m * count > FAR * spread + 1e-30:
                store_int(far, 1)
        else:
            m += load_float(centre + 4 * c)
            if spread < SAME * m * m:
                spread = 0.0
        store_double(mean + 8 * c, m)
        store_double(variance + 8 * c, spread / divisor)


@kernel
def affine(mean, variance, numbers, gamma, beta, scale, shift, mean32, variance32, c0, c1):
    """The batch norm as y * scale + shift, and its statistics in float32."""
    for c in range(c0, c1):
        m, v = load_double(mean + 8 * c), load_double(variance + 8 * c)
        deviation = _deviation(v, numbers + _FORWARD)
        s = load_float(gamma + 4 * c) / deviation if _varies(v, deviation) else 0.0
        store_float(scale + 4 * c, np.float32(s))
        store_float(shift + 4 * c, np.float32(load_float(beta + 4 * c) - m * s))
        store_float(mean32 + 4 * c, np.float32(m))
        store_float(variance32 + 4 * c, np.float32(v))


@kernel
def move(running_mean, running_variance, mean32, variance32, numbers, c0, c1):
    """running = (1 - momentum) running + momentum batch, the batch's variance times the correction; in float32."""
    momentum = load_double(numbers + _MOMENTUM)
    keep, share = np.float32(1 - momentum), np.float32(momentum)
    correction = np.float32(load_double(numbers + _CORRECTION))
    for c in range(c0, c1):
        p, q = running_mean + 4 * c, running_variance + 4 * c
        store_float(p, load_float(p) * keep + share * load_float(mean32 + 4 * c))
        store_float(q, load_float(q) * keep + share * (load_float(variance32 + 4 * c) * correction))


@kernel
def hat_of_input(mean, variance, numbers, k1, k0, c0, c1):
    """x_hat = v * k1 + k0 for the input v of the batch norm."""
    for c in range(c0, c1):
        v = load_double(variance + 8 * c)
        deviation = _deviation(v, numbers + _FORWARD)
        s = 1 / deviation if _varies(v, deviation) else 0.0
        store_float(k1 + 4 * c, np.float32(s))
        store_float(k0 + 4 * c, np.float32(-load_double(mean + 8 * c) * s))


@kernel
def hat_of_output(gamma, beta, variance, k1, k0, c0, c1):
    """x_hat = v * k1 + k0 for its output v."""
    for c in range(c0, c1):
        g = 1 / np.float64(load_float(gamma + 4 * c)) if load_double(variance + 8 * c) != 0 else 0.0
        store_float(k1 + 4 * c, np.float32(g))
        store_float(k0 + 4 * c, np.float32(-load_float(beta + 4 * c) * g))


@kernel
def gradient(sums, slots, C, gamma, variance, numbers, k1, k0, c1, c2, c3, ggamma, gbeta, first, last):
    """gx = c1 g + c2 v + c3, and the gradients of gamma and beta, from the sums of g and of g * x_hat."""
    count, scaling = load_double(numbers), numbers + _BACKWARD
    divisor = load_double(scaling)
    for c in range(first, last):
        b = _total(sums + 8 * c, slots, C)
        g = _total(sums + 8 * (C + c), slots, C)
        weight, v = np.float64(load_float(gamma + 4 * c)), load_double(variance + 8 * c)
        s, forward = _deviation(v, scaling), _deviation(v, numbers + _FORWARD)
        gvariance = -g * weight * forward / (s * s) * _slope(v, scaling)
        of_hat = gvariance * 2 * forward / divisor
        constant = -b * weight / s / count
        store_float(c1 + 4 * c, np.float32(weight / s))
        store_float(c2 + 4 * c, np.float32(of_hat * load_float(k1 + 4 * c)))
        store_float(c3 + 4 * c, np.float32(of_hat * load_float(k0 + 4 * c) + constant))
        store_float(ggamma + 4 * c, np.float32(g))
        store_float(gbeta + 4 * c, np.float32(b))


@kernel
def total(parts, step, slots, out, c0, c1):
    """out[c] = the sum over the slots, step bytes apart, of float64 parts, in float32."""
    for c in range(c0, c1):
        t = load_double(parts + 8 * c)
        for s in range(1, slots):
            t += load_double(parts + s * step + 8 * c)
        store_float(out + 4 * c, np.float32(t))

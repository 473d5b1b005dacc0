"""Update rules on arrays: one parameter w, its gradient g and what is remembered of earlier ones.

All write into w and into the memories in place (w may be an array that a user holds), and none writes into g.
Arrays of one call have one shape and one float type; the other arguments are Python numbers. t is the number of this
update, counted from 1.
"""

from __future__ import annotations

import math

import numpy as np

from undertow.kernels import select

Array = np.ndarray


def sgd(w: Array, g: Array, rate: float) -> None:
    """w -= rate g."""
    w -= rate * g


def momentum_sgd(w: Array, g: Array, velocity: Array, rate: float, momentum: float) -> None:
    """v = momentum v + g;  w -= rate v."""
    select.momentum_update(w, g, velocity, 1.0, 0.0, rate, momentum)


def nesterov(w: Array, g: Array, velocity: Array, rate: float, momentum: float) -> None:
    """v = momentum v + g;  w -= rate (g + momentum v)."""
    velocity *= momentum
    velocity += g
    step = momentum * velocity
    step += g
    step *= rate
    w -= step


def adagrad(w: Array, g: Array, squares: Array, rate: float, eps: float) -> None:
    """s += g^2;  w -= rate g / (sqrt(s) + eps)   (Duchi, Hazan, Singer 2011)."""
    squares += g * g
    w -= rate * g / (np.sqrt(squares) + eps)


def adadelta(w: Array, g: Array, squares: Array, steps: Array, rate: float, rho: float, eps: float) -> None:
    """s = rho s + (1-rho) g^2;  d = sqrt(u + eps) / sqrt(s + eps) g;  u = rho u + (1-rho) d^2;  w -= rate d.

    squares: s, of the gradients. steps: u, of the steps before the rate (Zeiler 2012).
    """
    _decay_towards(squares, g * g, rho)
    step = np.sqrt(steps + eps)
    step /= np.sqrt(squares + eps)
    step *= g
    _decay_towards(steps, step * step, rho)
    step *= rate
    w -= step


def rmsprop(w: Array, g: Array, squares: Array, rate: float, decay: float, eps: float) -> None:
    """s = decay s + (1-decay) g^2;  w -= rate g / (sqrt(s) + eps)   (Tieleman and Hinton 2012)."""
    _decay_towards(squares, g * g, decay)
    w -= rate * g / (np.sqrt(squares) + eps)


def adam(
    w: Array, g: Array, mean: Array, squares: Array, t: int, rate: float, beta1: float, beta2: float, eps: float
) -> None:
    """m = b1 m + (1-b1) g;  s = b2 s + (1-b2) g^2;  w -= rate m^ / (sqrt(s^) + eps)   (Kingma and Ba 2014).

    m^ = m / (1 - b1^t) and s^ = s / (1 - b2^t) undo the pull towards the zeros they start from.
    """
    _decay_towards(mean, g, beta1)
    _decay_towards(squares, g * g, beta2)
    step = np.sqrt(squares)
    step /= math.sqrt(1 - beta2**t)
    step += eps
    np.divide(mean, step, out=step)
    step *= rate / (1 - beta1**t)
    w -= step


def darknet_update(
    values: Array, updates: Array, *, rate: float, batch: int, momentum: float, decay: float = 0.0
) -> None:
    """Darknet's rule (convolutional_layer.c, update_convolutional_layer), on the values of one parameter.

    updates -= decay * batch * values;  values += rate / batch * updates;  updates *= momentum

    updates: minus the gradient, summed (not averaged) over the images of all subdivisions, on top of what the last
    update left. rate: from the policy, times the layer's `learning_rate=`. batch: images per update,
    `net.batch * subdivisions`. decay: for weights only; Darknet passes biases and scales without it.
    """
    select.darknet_update(values, updates, decay * batch, rate / batch, momentum)


def _decay_towards(memory: Array, value: Array, keep: float) -> None:
    """memory = keep memory + (1 - keep) value."""
    memory *= keep
    memory += (1 - keep) * value

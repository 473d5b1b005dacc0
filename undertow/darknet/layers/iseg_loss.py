"""The loss of an iseg layer (instance segmentation) as one operation (iseg_layer.c).

For each pixel there are class probabilities and an embedding; the embeddings of one instance shall be alike, and unlike
the mean embeddings of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.core.function import Function
from undertow.core.registry import Sample, register
from undertow.core.variable import Operand
from undertow.errors import UndertowError
from undertow.kernels import select

Array = np.ndarray[Any, Any]

SMALL, PULL, EMBEDDING = 0.1, 0.1, 0.01


@dataclass
class Instance:
    """pixels: where, as flat indexes. label: its class. values: of the truth at these pixels."""

    label: int
    pixels: Array
    values: Array


def read_instances(row: Array, pixels: int, classes: int) -> list[Instance]:
    """From the truth of one image, for each instance a class and a mask; the list ends at a class below 0.

    Instances without pixels count for nothing. Raises UndertowError for an unknown class.
    """
    found = []
    for part in row[: len(row) // (pixels + 1) * (pixels + 1)].reshape(-1, pixels + 1):
        label = int(part[0])
        if label < 0:
            break
        if label >= classes:
            raise UndertowError(f"a truth has class {label}, the iseg layer knows {classes}")
        where = np.flatnonzero(part[1:])
        found.append(Instance(label, where, part[1:][where]))
    return [instance for instance in found if len(instance.pixels)]


def _samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.standard_normal((2, 5, 2, 3))
    truth = np.full((2, 3, 7), -1.0)
    truth[0, 0] = (1, 1, 1, 0, 0, 0, 0)
    truth[0, 1] = (0, 0, 0, 0, 1, 1, 1)
    truth[1, 0] = (1, 0, 1, 1, 0, 0, 0)
    return [Sample((x,), lambda x: iseg_loss(x, truth.reshape(2, -1), 2))]


@register(
    "iseg_loss",
    gradient="once",
    forward=(
        "y = logistic(x) for classes, x for embeddings e; loss = binary cross entropy of classes + .01 (.05 sum of e^2 "
        "+ .1 sum over instances of |e - own mean| - .1 sum over others of |e - their mean|)"
    ),
    backward="gx = gloss (y - target) for classes; gloss .01 (.1 e + .1 sign(e - own mean) - .1 sign(e - other mean)) "
    "for embeddings, and what they owe through the means; + slope gy",
    samples=_samples,
)
class IsegLoss(Function):
    """Outputs and loss of an iseg layer.

    The second input is the truth, without a gradient; left out, there is no loss. fixed_means, straight_through: see
    `Dialect`. delta: Darknet's, in the shape of the input. Kinks: embeddings that equal a mean.
    """

    def __init__(self, classes: int, fixed_means: bool = False, straight_through: bool = False) -> None:
        self.classes, self.fixed_means, self.straight_through = classes, fixed_means, straight_through
        self.delta: Array
        self._owed: Array
        self._y: Array

    def forward(self, x: Array, truth: Array | None = None) -> tuple[Array, Array]:
        self._y = x.copy()
        self._y[:, : self.classes] = select.activate(np.ascontiguousarray(x[:, : self.classes]), "logistic")
        self.delta, self._owed = np.zeros_like(x), np.zeros_like(x)
        loss = 0.0
        if truth is not None:
            for image, row in enumerate(truth.astype(x.dtype, copy=False)):
                instances = read_instances(row, x[0, 0].size, self.classes)
                loss += self._class_loss(image, x, instances) + self._embedding_loss(image, instances)
        return self._y, np.asarray(loss, x.dtype)

    def backward(self, gy: Array, gloss: Array) -> tuple[Array | None, ...]:
        gx = -gloss * self.delta
        if not self.fixed_means:
            gx += gloss * self._owed
        if gy.any():
            through = np.array(gy)
            if not self.straight_through:
                y = self._y[:, : self.classes]
                through[:, : self.classes] *= y * (1 - y)
            gx += through
        return (gx, None)[: len(self.inputs)]

    def _class_loss(self, image: int, x: Array, instances: list[Instance]) -> float:
        target: Array = np.zeros((self.classes, x[0, 0].size), x.dtype)
        for instance in instances:
            target[instance.label, instance.pixels] = instance.values
        target = target.reshape(x[image, : self.classes].shape)
        self.delta[image, : self.classes] = target - self._y[image, : self.classes]
        scores = x[image, : self.classes]
        return float(np.sum(np.logaddexp(0, scores) - target * scores, dtype=np.float64))

    def _embedding_loss(self, image: int, instances: list[Instance]) -> float:
        """Delta and loss of the embeddings; what reaches them through the means goes apart."""
        e = self._y[image, self.classes :].reshape(self._y.shape[1] - self.classes, self._y[0, 0].size)
        delta, owed = -SMALL * e, np.zeros_like(e)
        loss = 0.5 * SMALL * float(np.sum(e * e, dtype=np.float64))
        means = [e[:, instance.pixels].mean(axis=1, keepdims=True) for instance in instances]
        for own, instance in enumerate(instances):
            for other, mean in enumerate(means):
                pull = PULL if own == other else -PULL
                away = e[:, instance.pixels] - mean
                # At 0 the original takes the way up.
                signs = np.where(mean - e[:, instance.pixels] < 0, 1, -1).astype(e.dtype)
                delta[:, instance.pixels] -= pull * signs
                loss += pull * float(np.abs(away).sum(dtype=np.float64))
                sharing = instances[other].pixels
                owed[:, sharing] -= pull * signs.sum(axis=1, keepdims=True) / len(sharing)
        shape = self._y[image, self.classes :].shape
        self.delta[image, self.classes :] = EMBEDDING * delta.reshape(shape)
        self._owed[image, self.classes :] = EMBEDDING * owed.reshape(shape)
        return EMBEDDING * loss


def iseg_loss(x: Operand, truth: Operand, classes: int) -> Any:
    """Outputs and summed loss of an iseg layer, see `IsegLoss`.

    x: (batch, classes + ids, h, w). truth: (batch, values), see `read_instances`.
    Returns (outputs of the shape of x, loss of shape ()).
    """
    return IsegLoss(classes)(x, truth)

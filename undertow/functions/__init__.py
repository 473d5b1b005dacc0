"""Differentiable operations: forward and backward side by side, one file per family."""

from undertow.functions import (
    arithmetic,
    columns,
    conv,
    conv_nd,
    elementary,
    indexing,
    linalg,
    loss_binary,
    loss_distributions,
    loss_margin,
    loss_regression,
    loss_softmax,
    norm_batch,
    operators,  # noqa: F401  (plugs + - * [] into Variable)
    pooling,
    reduce,
    resample,
    shape,
)
from undertow.functions.arithmetic import *  # noqa: F403
from undertow.functions.columns import *  # noqa: F403
from undertow.functions.conv import *  # noqa: F403
from undertow.functions.conv_nd import *  # noqa: F403
from undertow.functions.elementary import *  # noqa: F403
from undertow.functions.indexing import *  # noqa: F403
from undertow.functions.linalg import *  # noqa: F403
from undertow.functions.loss_binary import *  # noqa: F403
from undertow.functions.loss_distributions import *  # noqa: F403
from undertow.functions.loss_margin import *  # noqa: F403
from undertow.functions.loss_regression import *  # noqa: F403
from undertow.functions.loss_softmax import *  # noqa: F403
from undertow.functions.norm_batch import *  # noqa: F403
from undertow.functions.pooling import *  # noqa: F403
from undertow.functions.reduce import *  # noqa: F403
from undertow.functions.resample import *  # noqa: F403
from undertow.functions.shape import *  # noqa: F403

__all__ = [
    *loss_distributions.__all__,
    *loss_margin.__all__,
    *loss_binary.__all__,
    *loss_softmax.__all__,
    *loss_regression.__all__,
    *norm_batch.__all__,
    *resample.__all__,
    *pooling.__all__,
    *columns.__all__,
    *conv_nd.__all__,
    *conv.__all__,
    *arithmetic.__all__,
    *elementary.__all__,
    *indexing.__all__,
    *linalg.__all__,
    *reduce.__all__,
    *shape.__all__,
]

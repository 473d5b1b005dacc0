"""Differentiable operations: forward and backward side by side, one file per family."""

from undertow.functions import (
    arithmetic,
    elementary,
    indexing,
    linalg,
    operators,  # noqa: F401  (plugs + - * [] into Variable)
    reduce,
    shape,
)
from undertow.functions.arithmetic import *  # noqa: F403
from undertow.functions.elementary import *  # noqa: F403
from undertow.functions.indexing import *  # noqa: F403
from undertow.functions.linalg import *  # noqa: F403
from undertow.functions.reduce import *  # noqa: F403
from undertow.functions.shape import *  # noqa: F403

__all__ = [
    *arithmetic.__all__,
    *elementary.__all__,
    *indexing.__all__,
    *linalg.__all__,
    *reduce.__all__,
    *shape.__all__,
]

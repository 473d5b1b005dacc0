"""Differentiable operations: forward and backward side by side, one file per family."""

from undertow.functions import (
    activations,
    arithmetic,
    columns,
    compare,
    conv,
    conv_nd,
    darknet_activations,
    elementary,
    errorfunction,
    indexing,
    join,
    linalg,
    lookup,
    loss_binary,
    loss_distributions,
    loss_margin,
    loss_regression,
    loss_softmax,
    norm_batch,
    norm_layer,
    norm_response,
    operators,  # noqa: F401  (plugs + - * [] into Variable)
    pooling,
    rectifiers,
    recurrent,
    recurrent_cells,
    reduce,
    regularization,
    resample,
    shape,
    softmaxes,
    subscripts,
)
from undertow.functions.activations import *  # noqa: F403
from undertow.functions.arithmetic import *  # noqa: F403
from undertow.functions.columns import *  # noqa: F403
from undertow.functions.compare import *  # noqa: F403
from undertow.functions.conv import *  # noqa: F403
from undertow.functions.conv_nd import *  # noqa: F403
from undertow.functions.darknet_activations import *  # noqa: F403
from undertow.functions.elementary import *  # noqa: F403
from undertow.functions.errorfunction import *  # noqa: F403
from undertow.functions.indexing import *  # noqa: F403
from undertow.functions.join import *  # noqa: F403
from undertow.functions.linalg import *  # noqa: F403
from undertow.functions.lookup import *  # noqa: F403
from undertow.functions.loss_binary import *  # noqa: F403
from undertow.functions.loss_distributions import *  # noqa: F403
from undertow.functions.loss_margin import *  # noqa: F403
from undertow.functions.loss_regression import *  # noqa: F403
from undertow.functions.loss_softmax import *  # noqa: F403
from undertow.functions.norm_batch import *  # noqa: F403
from undertow.functions.norm_layer import *  # noqa: F403
from undertow.functions.norm_response import *  # noqa: F403
from undertow.functions.pooling import *  # noqa: F403
from undertow.functions.rectifiers import *  # noqa: F403
from undertow.functions.recurrent import *  # noqa: F403
from undertow.functions.recurrent_cells import *  # noqa: F403
from undertow.functions.reduce import *  # noqa: F403
from undertow.functions.regularization import *  # noqa: F403
from undertow.functions.resample import *  # noqa: F403
from undertow.functions.shape import *  # noqa: F403
from undertow.functions.softmaxes import *  # noqa: F403
from undertow.functions.subscripts import *  # noqa: F403

__all__ = [
    *activations.__all__,
    *arithmetic.__all__,
    *columns.__all__,
    *compare.__all__,
    *conv.__all__,
    *conv_nd.__all__,
    *darknet_activations.__all__,
    *elementary.__all__,
    *errorfunction.__all__,
    *indexing.__all__,
    *join.__all__,
    *linalg.__all__,
    *lookup.__all__,
    *loss_binary.__all__,
    *loss_distributions.__all__,
    *loss_margin.__all__,
    *loss_regression.__all__,
    *loss_softmax.__all__,
    *norm_batch.__all__,
    *norm_layer.__all__,
    *norm_response.__all__,
    *pooling.__all__,
    *rectifiers.__all__,
    *recurrent.__all__,
    *recurrent_cells.__all__,
    *reduce.__all__,
    *regularization.__all__,
    *resample.__all__,
    *shape.__all__,
    *softmaxes.__all__,
    *subscripts.__all__,
]

"""Optimisers, their rules on arrays, and learning-rate policies."""

from undertow.optimizers import policies, rules
from undertow.optimizers.darknet import DarknetAdam, DarknetParameter, DarknetSGD
from undertow.optimizers.optimizer import Multipliers, Optimizer
from undertow.optimizers.policies import Policy
from undertow.optimizers.usual import SGD, AdaDelta, AdaGrad, Adam, AdamW, RMSProp

__all__ = [
    "SGD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "DarknetAdam",
    "DarknetParameter",
    "DarknetSGD",
    "Multipliers",
    "Optimizer",
    "Policy",
    "RMSProp",
    "policies",
    "rules",
]

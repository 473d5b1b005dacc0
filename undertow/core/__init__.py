"""The core: Variable, Function, the walk backward, modes, hooks and gradient checks."""

from undertow.core.backward import grad
from undertow.core.function import Function
from undertow.core.gradcheck import GradientCheckError, GradientReport, check_gradients
from undertow.core.hooks import FunctionHook, NaNHook, TimerHook
from undertow.core.modes import (
    current_precision,
    enable_grad,
    is_recording,
    is_training,
    no_grad,
    precision,
    test_mode,
    train_mode,
)
from undertow.core.variable import Parameter, Variable, as_array, as_variable

__all__ = [
    "Function",
    "FunctionHook",
    "GradientCheckError",
    "GradientReport",
    "NaNHook",
    "Parameter",
    "TimerHook",
    "Variable",
    "as_array",
    "as_variable",
    "check_gradients",
    "current_precision",
    "enable_grad",
    "grad",
    "is_recording",
    "is_training",
    "no_grad",
    "precision",
    "test_mode",
    "train_mode",
]

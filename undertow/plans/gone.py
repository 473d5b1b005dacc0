"""What becomes of the Variables of a recorded step once it is replayed: reading them is an error."""

from __future__ import annotations

from typing import Any, NoReturn

from undertow.core.variable import Parameter, Variable
from undertow.errors import GraphError


def _refuse(variable: Variable) -> NoReturn:
    name = f"'{variable.name}'" if variable.name else "this Variable"
    raise GraphError(
        f"{name} is an intermediate value of a planned step: its memory is used again by every replay",
        remedy="return it from the step, or give it a name and plan the step with persistent=[that name]",
    )


class Intermediate(Variable):
    """A Variable whose step is being replayed without it."""

    __slots__ = ()

    @property
    def data(self) -> NoReturn:
        """Always an error."""
        _refuse(self)

    @property  # type: ignore[misc]
    def grad(self) -> Any:
        """Always an error."""
        _refuse(self)

    @property
    def grad_var(self) -> Any:
        """Always an error."""
        _refuse(self)

    def __bool__(self) -> bool:
        _refuse(self)

    def __repr__(self) -> str:
        return "variable(an intermediate of a planned step)"


def withdraw(variable: Variable) -> None:
    """Make reading this Variable an error, and let go of its arrays. Parameters are left alone."""
    if isinstance(variable, (Parameter, Intermediate)) or type(variable) is not Variable:
        return
    variable.data = None
    variable.clear_grad()
    variable.creator = None
    variable.__class__ = Intermediate

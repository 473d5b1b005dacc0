"""Module: parameters and buffers under names, found by looking at attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from undertow.core import Parameter
from undertow.errors import ShapeError, UndertowError, UndertowWarning


class Module:
    """Base of layers and models.

    Assign Parameters and Modules to attributes and write `forward`; `module(x)` calls it. Names are attribute names
    joined with dots, in the order of assignment: "conv1.weight". Lists of modules go into a ModuleList.
    A buffer is an ndarray that is saved but not learned (running statistics); see `register_buffer`.

    dtype: float type of parameters still to be made; `to_dtype` changes it with all that exist.
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.forward(*args, **options)

    def forward(self, *args: Any, **options: Any) -> Any:
        """From inputs to outputs, with operations on Variables."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: write forward(self, x)")

    # --- what it consists of ----------------------------------------------------------------------------

    def children(self) -> Iterator[tuple[str, Module]]:
        """Direct submodules with their names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple, dict)):
                _refuse_hidden(self, name, value.values() if isinstance(value, dict) else value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module (under its prefix, "" by default) and all below it, each once, depth first."""
        yield from self._named_modules(prefix, set())

    def _named_modules(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, child in self.children():
            yield from child._named_modules(_joined(prefix, name), seen)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters, here and below, with their names; a shared one once, under its first name."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield _joined(prefix, name), value

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, here and below."""
        return (parameter for _, parameter in self.named_parameters())

    def register_buffer(self, name: str, value: np.ndarray | None) -> None:
        """Set the attribute `name` to an array that is saved and loaded, but not learned (None: to be made later)."""
        vars(self).setdefault("_buffer_names", []).append(name)
        setattr(self, name, value)

    def named_buffers(self) -> Iterator[tuple[str, np.ndarray]]:
        """All buffers, here and below, with their names; without those that wait for their first input."""
        for full_name, module, name in self._buffer_places():
            if getattr(module, name) is not None:
                yield full_name, getattr(module, name)

    def _buffer_places(self) -> Iterator[tuple[str, Module, str]]:
        """For every buffer its full name, the module that has it, and the attribute."""
        for prefix, module in self.named_modules():
            for name in vars(module).get("_buffer_names", ()):
                yield _joined(prefix, name), module, name

    def parameter_count(self) -> int:
        """Number of learned values; parameters that wait for their first input count 0."""
        return sum(p.size for p in self.parameters() if p.data is not None)

    # --- what one does with it --------------------------------------------------------------------------

    def clear_grads(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.clear_grad()

    def to_dtype(self, dtype: DTypeLike) -> Module:
        """Change parameters and float buffers to this float type (gradients are forgotten); returns the module."""
        kind = np.dtype(dtype)
        for _, module in self.named_modules():
            module.dtype = kind
        for _, module, name in self._buffer_places():
            value = getattr(module, name)
            if value is not None and value.dtype.kind == "f":
                setattr(module, name, value.astype(kind))
        for parameter in self.parameters():
            parameter.clear_grad()
            if parameter.data is not None:
                parameter.data = parameter.data.astype(kind)
        return self

    def state(self, copy: bool = True) -> dict[str, np.ndarray]:
        """All parameters and buffers by name. copy=False gives the live arrays, which change as training goes on.

        Raises UndertowError when a parameter still waits for its first input.
        """
        found = self._arrays()
        for name, array in found.items():
            if array is None:
                raise UndertowError(
                    f"'{name}' has no values yet", remedy="give its layer the input size, or run it once"
                )
        return {name: array.copy() if copy else array for name, array in found.items()}

    def _arrays(self) -> dict[str, Any]:
        """All parameters and buffers by name, None for those that wait for their first input."""
        arrays = {name: parameter.data for name, parameter in self.named_parameters()}
        arrays.update({full_name: getattr(module, name) for full_name, module, name in self._buffer_places()})
        return arrays

    def load_state(self, state: Mapping[str, np.ndarray], strict: bool = True) -> None:
        """Write values into parameters and buffers, in place; nothing is written when something does not fit.

        strict=False takes what both sides have and warns about the rest.
        Raises UndertowError naming what is missing and what the module does not have, ShapeError for shapes.
        """
        targets = self._arrays()
        missing = [name for name in targets if name not in state]
        surplus = [name for name in state if name not in targets]
        if missing or surplus:
            message = _misfit(type(self).__name__, missing, surplus)
            if strict:
                raise UndertowError(message, remedy="load a state of the same model, or pass strict=False")
            warnings.warn(message, UndertowWarning, stacklevel=2)
        usable = {name: np.asarray(state[name]) for name in targets if name in state}
        _check_arrays(usable, targets)
        for name, array in usable.items():
            if targets[name] is not None:
                targets[name][...] = array
        self._take_first({name: array for name, array in usable.items() if targets[name] is None})

    def _take_first(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give values to parameters and buffers that were still waiting for their first input."""
        for name, parameter in self.named_parameters():
            if name in arrays:
                parameter.data = arrays[name].astype(self.dtype)
        for full_name, module, name in self._buffer_places():
            if full_name in arrays:
                setattr(module, name, arrays[full_name].astype(self.dtype))

    # --- how it looks -----------------------------------------------------------------------------------

    def options(self) -> str:
        """What `repr` shows in brackets behind the name of the class."""
        return ""

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = [f"{type(self).__name__}({self.options()})" + self._own_shapes()]
        for name, child in self._shown():
            first, *rest = child._lines() if isinstance(child, Module) else [_function_name(child)]
            lines.append(f"  {name}: {first}")
            lines.extend(f"  {line}" for line in rest)
        return lines

    def _shown(self) -> Iterable[tuple[str, Any]]:
        return self.children()

    def _own_shapes(self) -> str:
        shapes = [
            f"{name} {'waits for its input' if value.data is None else value.shape}"
            for name, value in vars(self).items()
            if isinstance(value, Parameter)
        ]
        shapes += [
            f"{name} {getattr(self, name).shape}"
            for name in vars(self).get("_buffer_names", ())
            if np.ndim(getattr(self, name))
        ]
        return "  " + ", ".join(shapes) if shapes else ""


Step = Module | Callable[..., Any]


class ModuleList(Module):
    """Modules (or plain functions) in a row, named "0", "1", ...; behaves like a list."""

    def __init__(self, *items: Step) -> None:
        self._items: list[Step] = []
        self.extend(items)

    def append(self, item: Step) -> None:
        """Add one at the end."""
        if not callable(item):
            raise TypeError(f"a {type(self).__name__} takes modules and functions, got {type(item).__name__}")
        self._items.append(item)

    def extend(self, items: Iterable[Step]) -> None:
        """Add several at the end."""
        for item in items:
            self.append(item)

    def children(self) -> Iterator[tuple[str, Module]]:
        return ((name, item) for name, item in self._shown() if isinstance(item, Module))

    def _shown(self) -> Iterable[tuple[str, Any]]:
        return ((str(index), item) for index, item in enumerate(self._items))

    def __getitem__(self, index: int) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


class Sequential(ModuleList):
    """One after the other: the output of each is the input of the next."""

    def forward(self, x: Any) -> Any:
        for item in self._items:
            x = item(x)
        return x


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _refuse_hidden(module: Module, name: str, values: Iterable[Any]) -> None:
    """A module or parameter inside a plain container would never be found, trained or saved: say so."""
    for value in values:
        if isinstance(value, (Module, Parameter)):
            raise UndertowError(
                f"attribute '{name}' of {type(module).__name__} is a plain container with a "
                f"{type(value).__name__} in it, whose values would not be found",
                remedy="use ModuleList(*modules), or assign each parameter to an attribute of its own",
            )


def _function_name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _misfit(model: str, missing: list[str], surplus: list[str]) -> str:
    parts = [f"missing {_listed(missing)}"] if missing else []
    parts += [f"not in the model: {_listed(surplus)}"] if surplus else []
    return f"the state does not fit this {model}: {'; '.join(parts)}"


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _check_arrays(arrays: Mapping[str, np.ndarray], targets: Mapping[str, np.ndarray | None]) -> None:
    for name, array in arrays.items():
        target = targets[name]
        if target is not None and array.shape != target.shape:
            raise ShapeError(f"'{name}' has shape {array.shape}, the model needs {target.shape}")
        kind = "f" if target is None else target.dtype.kind
        if array.dtype.kind != kind:
            needed = "float" if target is None else target.dtype
            raise UndertowError(f"'{name}' holds values of type {array.dtype}, the model needs {needed}")

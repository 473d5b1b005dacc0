"""The errors and warnings of Undertow.

Every message says what is wrong, where (file, line, byte offset, layer), why, and what to do. The command
line prints one such message and exits with status 2; a traceback from inside is a bug.
"""

from __future__ import annotations

import os


class UndertowError(Exception):
    """Base of all errors that Undertow raises on purpose.

    reason: what is wrong and why, one sentence.
    file, line, offset, layer: where, as far as known (line from 1, offset in bytes, layer from 0 or a name).
    remedy: what to do about it.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | os.PathLike[str] | None = None,
        line: int | None = None,
        offset: int | None = None,
        layer: int | str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.reason = reason
        self.file = None if file is None else os.fspath(file)
        self.line = line
        self.offset = offset
        self.layer = layer
        self.remedy = remedy
        super().__init__(describe(reason, self.file, line, offset, layer, remedy))


class FormatError(UndertowError):
    """A file that cannot be read the way its original program would read it."""


class ShapeError(UndertowError, ValueError):
    """Arrays or layers whose shapes do not fit together."""


class GraphError(UndertowError, RuntimeError):
    """A request the recorded graph cannot answer (an unreachable variable, a missing second derivative...)."""


class MissingPackage(UndertowError, ImportError):
    """An optional package that is not installed; names the extra that brings it, or another remedy."""

    def __init__(self, package: str, extra: str, purpose: str, *, remedy: str | None = None) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed",
            remedy=remedy or f"pip install 'undertow[{extra}]'",
        )


class NonFiniteError(UndertowError, ArithmeticError):
    """A NaN or an infinity where training cannot go on. tensor: the name of the array that holds it, where known."""

    tensor: str | None = None


class WriteError(UndertowError, OSError):
    """A file that cannot be written, whole or at all. An OSError too: errno, strerror, and filename, of what failed."""

    def __init__(self, file: str | os.PathLike[str], problem: OSError, remedy: str) -> None:
        reason = problem.strerror or str(problem)
        super().__init__(f"cannot be written: {reason}", file=file, remedy=remedy)
        self.errno, self.strerror, self.filename = problem.errno, reason, problem.filename

    def __str__(self) -> str:
        return describe(self.reason, self.file, remedy=self.remedy)


class UndertowWarning(UserWarning):
    """Something was accepted that the user should know about; `strict` readers raise instead."""


def describe(
    reason: str,
    file: str | None = None,
    line: int | None = None,
    offset: int | None = None,
    layer: int | str | None = None,
    remedy: str | None = None,
) -> str:
    """One message in the house form: `file:line: layer N: reason. To mend it: remedy`."""
    where = ""
    if file is not None:
        where = file + (f":{line}" if line is not None else "")
    elif line is not None:
        where = f"line {line}"
    parts = [where] if where else []
    if offset is not None:
        parts.append(f"byte {offset}")
    if layer is not None:
        parts.append(f"layer {layer}")
    message = ": ".join([*parts, reason.rstrip(".")])
    return f"{message}. To mend it: {remedy}" if remedy else message

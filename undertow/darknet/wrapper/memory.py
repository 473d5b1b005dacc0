"""Arrays behind the pointers that a script holds: who keeps them, and between structures and arrays."""

from __future__ import annotations

import ctypes as ct
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.darknet.detection.boxes import Candidates
from undertow.errors import ShapeError

# Any structure a script defines: its fields are found by their names.
Structure = Any
Floats = NDArray[np.float32]


class Memory:
    """What scripts hold pointers to, by address, until they free it."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, Any]] = {}

    def keep(self, pointer: Any, count: int, owner: Any) -> None:
        """Keep `owner` alive, in which the pointer shows `count` elements."""
        self._kept[address(pointer)] = count, owner

    def free(self, pointer: Any) -> None:
        """Let go of it; what is not ours (a script's own array) stays."""
        self._kept.pop(address(pointer), None)

    def check(self, pointer: Any, count: int, what: str) -> None:
        """Raises ShapeError for a null pointer, or for more elements than there are behind one of ours."""
        if not pointer:
            raise ShapeError(f"{what} has a null pointer", remedy="it has been freed, or was never made")
        held = self._kept.get(address(pointer), (count, None))[0]
        if count < 0 or count > held:
            raise ShapeError(f"{what} says {count} elements, but {held} were made")

    def __len__(self) -> int:
        return len(self._kept)


def address(pointer: Any) -> int:
    """Where a pointer points, 0 for null."""
    return ct.cast(pointer, ct.c_void_p).value or 0


def text_of(value: Any) -> str:
    """A file's name, from str, bytes, a path or c_char_p."""
    return os.fsdecode((value.value or b"") if isinstance(value, ct.c_char_p) else value)


def pixels_of(image: Structure, memory: Memory) -> Floats:
    """The picture's own memory as an array (c, h, w)."""
    shape = image.c, image.h, image.w
    if min(shape) < 1:
        raise ShapeError(f"an image of {image.w} x {image.h} with {image.c} channels has no pixels")
    memory.check(image.data, image.c * image.h * image.w, "the image")
    return np.ctypeslib.as_array(image.data, shape)


def fill_detections(found: Candidates, kind: Any, memory: Memory) -> Any:
    """A pointer to an array of the script's detection structure, kept until free_detections."""
    array = (kind * max(len(found), 1))()
    rows = np.ascontiguousarray(found.probabilities, np.float32).copy()
    uncertain = None if found.uncertainties is None else np.ascontiguousarray(found.uncertainties, np.float32).copy()
    fields = {field[0]: field[1] for field in kind._fields_}
    for i in range(len(found)):
        array[i].prob = ct.cast(rows[i].ctypes.data, fields["prob"])
        if uncertain is not None and "uc" in fields:
            array[i].uc = ct.cast(uncertain[i].ctypes.data, fields["uc"])
    pointer = ct.cast(array, ct.POINTER(kind))
    memory.keep(pointer, len(found), (array, rows, uncertain))
    write_detections(pointer, found, fields)
    return pointer


def write_detections(pointer: Any, found: Candidates, fields: dict[str, Any]) -> None:
    """The candidates' values into structures that have their memory already."""
    for i in range(len(found)):
        one, row = pointer[i], found.probabilities[i]
        one.bbox.x, one.bbox.y, one.bbox.w, one.bbox.h = map(float, found.boxes[i])
        one.objectness, one.classes = float(found.objectness[i]), len(row)
        if len(row):
            np.ctypeslib.as_array(one.prob, (len(row),))[:] = row
        if "best_class_idx" in fields:
            one.best_class_idx = int(row.argmax()) if len(row) and row.max() > 0 else -1
        if found.uncertainties is not None and "uc" in fields:
            np.ctypeslib.as_array(one.uc, (4,))[:] = found.uncertainties[i]


def read_detections(pointer: Any, count: int, fields: dict[str, Any]) -> Candidates:
    """Copies of the values in the structures."""
    boxes, objectness = np.zeros((count, 4), np.float32), np.zeros(count, np.float32)
    probabilities = np.zeros((count, pointer[0].classes if count else 0), np.float32)
    uncertain = np.zeros((count, 4), np.float32) if count and "uc" in fields and pointer[0].uc else None
    for i in range(count):
        one = pointer[i]
        boxes[i] = one.bbox.x, one.bbox.y, one.bbox.w, one.bbox.h
        objectness[i] = one.objectness
        if probabilities.shape[1]:
            probabilities[i] = np.ctypeslib.as_array(one.prob, (probabilities.shape[1],))
        if uncertain is not None:
            uncertain[i] = np.ctypeslib.as_array(one.uc, (4,))
    return Candidates(boxes, objectness, probabilities, uncertain)

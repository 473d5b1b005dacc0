"""Lists of kernel calls that run without Python in between, and the native code that runs them.

A thread team describes the calls of each of its members first (`recording`), then all members run their lists at
once. Between two operations the members wait in native code for the next list, a few microseconds away; handing over
Python functions instead costs up to 0.1 ms each, because both sides need the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

_FORMATS = {"i": "q", "f": "f4x"}
_TYPES = {"i": "i64", "f": "float"}
_LOADS = {"i": "i64*", "f": "float*"}

# States of a mailbox: its owner sleeps in Python, waits in native code, or has a list to run.
ASLEEP, READY, WORK = 0, 1, 2

# A row of a list: thunk, size of the row in bytes, then what the thunk reads: the kernel and its arguments.
# A mailbox: state, address of the list, its number of rows.
_NATIVE = """
define void @undertow_rows(i64* %list, i64 %count) {
start:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %end, label %row
row:
  %at = phi i64* [ %list, %start ], [ %next, %row ]
  %left = phi i64 [ %count, %start ], [ %fewer, %row ]
  %thunk_at = getelementptr i64, i64* %at, i64 0
  %size_at = getelementptr i64, i64* %at, i64 1
  %body = getelementptr i64, i64* %at, i64 2
  %thunk = load i64, i64* %thunk_at
  %size = load i64, i64* %size_at
  %call = inttoptr i64 %thunk to void (i64*)*
  call void %call(i64* %body)
  %here = ptrtoint i64* %at to i64
  %behind = add i64 %here, %size
  %next = inttoptr i64 %behind to i64*
  %fewer = sub i64 %left, 1
  %done = icmp eq i64 %fewer, 0
  br i1 %done, label %end, label %row
end:
  ret void
}

; Run the lists that arrive; return, asleep, when none has come for `patience` rounds of waiting.
define void @undertow_serve(i64* %box, i64 %patience) {
start:
  br label %look
look:
  %round = phi i64 [ 0, %start ], [ %more, %wait ], [ 0, %work ], [ 0, %sleep ]
  %state = load atomic i64, i64* %box acquire, align 8
  %called = icmp eq i64 %state, WORK
  br i1 %called, label %work, label %wait
work:
  %list_at = getelementptr i64, i64* %box, i64 1
  %count_at = getelementptr i64, i64* %box, i64 2
  %list = load i64, i64* %list_at
  %count = load i64, i64* %count_at
  %rows = inttoptr i64 %list to i64*
  call void @undertow_rows(i64* %rows, i64 %count)
  store atomic i64 READY, i64* %box release, align 8
  br label %look
wait:
  PAUSE
  %more = add i64 %round, 1
  %over = icmp sgt i64 %more, %patience
  br i1 %over, label %sleep, label %look
sleep:
  %pair = cmpxchg i64* %box, i64 READY, i64 ASLEEP acq_rel acquire
  %asleep = extractvalue { i64, i1 } %pair, 1
  br i1 %asleep, label %end, label %look
end:
  ret void
}

; Hand a list over; returns whether the owner of the mailbox must be woken.
define i64 @undertow_post(i64* %box, i64 %list, i64 %count) {
  %list_at = getelementptr i64, i64* %box, i64 1
  %count_at = getelementptr i64, i64* %box, i64 2
  store i64 %list, i64* %list_at
  store i64 %count, i64* %count_at
  %before = atomicrmw xchg i64* %box, i64 WORK acq_rel
  %asleep = icmp eq i64 %before, ASLEEP
  %result = zext i1 %asleep to i64
  ret i64 %result
}

; Wait until the list is done; returns 0 when it is not after `patience` rounds.
define i64 @undertow_finish(i64* %box, i64 %patience) {
start:
  br label %look
look:
  %round = phi i64 [ 0, %start ], [ %more, %wait ]
  %state = load atomic i64, i64* %box acquire, align 8
  %busy = icmp eq i64 %state, WORK
  br i1 %busy, label %wait, label %done
wait:
  PAUSE
  %more = add i64 %round, 1
  %over = icmp sgt i64 %more, %patience
  br i1 %over, label %late, label %look
late:
  ret i64 0
done:
  ret i64 1
}
"""


def _pause() -> tuple[str, str]:
    """The instruction that tells the processor that a loop only waits, and its declaration."""
    import llvmlite.binding as llvm

    if llvm.get_process_triple().startswith("x86_64"):
        return "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()\n"
    return "fence acquire", ""


@cache
def native() -> dict[str, Any]:
    """The functions above, by the part of their names behind `undertow_`."""
    from undertow.kernels.cpu.library import assemble

    pause, declared = _pause()
    text = declared + _NATIVE.replace("PAUSE", pause)
    for name, value in (("READY", READY), ("WORK", WORK), ("ASLEEP", ASLEEP)):
        text = text.replace(name, str(value))
    address = ctypes.c_int64
    kinds: dict[str, tuple[Any, ...]] = {
        "rows": (None, address, address),
        "serve": (None, address, address),
        "post": (address, address, address, address),
        "finish": (address, address, address),
    }
    found = assemble("jobs", text, [f"undertow_{name}" for name in kinds])
    return {name: ctypes.CFUNCTYPE(*kind)(found[f"undertow_{name}"]) for name, kind in kinds.items()}


@cache
def thunk(signature: str) -> int:
    """Address of a function that takes the address of [kernel, arguments...] and calls the kernel."""
    from undertow.kernels.cpu.library import assemble

    lines = []
    for number, letter in enumerate(signature, 1):
        lines.append(f"  %p{number} = getelementptr i64, i64* %a, i64 {number}")
        if letter == "f":
            lines.append(f"  %q{number} = bitcast i64* %p{number} to float*")
        source = "q" if letter == "f" else "p"
        lines.append(f"  %v{number} = load {_TYPES[letter]}, {_LOADS[letter]} %{source}{number}")
    types = ", ".join(_TYPES[letter] for letter in signature)
    values = ", ".join(f"{_TYPES[letter]} %v{number}" for number, letter in enumerate(signature, 1))
    name = f"undertow_thunk_{signature}"
    body = "\n".join(lines)
    text = f"""
define void @{name}(i64* %a) {{
  %f = load i64, i64* %a
{body}
  %call = inttoptr i64 %f to void ({types})*
  call void %call({values})
  ret void
}}
"""
    return assemble(f"thunk.{signature}", text, [name])[name]


class Jobs:
    """A list of kernel calls in memory of its own."""

    def __init__(self) -> None:
        self._reserve(1 << 14)
        self.clear()

    def _reserve(self, size: int) -> None:
        self._buffer = bytearray(size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))

    def clear(self) -> None:
        self.count = self._end = 0

    def add(self, row: Row, arguments: tuple[Any, ...]) -> None:
        if self._end + row.size > len(self._buffer):
            before = self._buffer
            self._reserve(2 * len(before) + row.size)
            self._buffer[: len(before)] = before
        row.layout.pack_into(self._buffer, self._end, row.thunk, row.size, row.kernel, *arguments)
        self._end += row.size
        self.count += 1


class Row:
    """How calls of one kernel stand in a list."""

    __slots__ = ("kernel", "layout", "size", "thunk")

    def __init__(self, kernel: int, signature: str) -> None:
        self.kernel, self.thunk = kernel, thunk(signature)
        self.layout = struct.Struct("<qqq" + "".join(_FORMATS[letter] for letter in signature))
        self.size = self.layout.size


class _Here(threading.local):
    jobs: Jobs | None = None


here = _Here()


@contextmanager
def recording(jobs: Jobs) -> Iterator[None]:
    """Kernel calls of this thread are added to the list instead of being made."""
    jobs.clear()
    here.jobs = jobs
    try:
        yield
    finally:
        here.jobs = None


class Mailbox:
    """Where one helper of a team finds its lists; a cache line of its own."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self._memory = np.zeros(32, np.int64)
        self.address = int(self._memory.ctypes.data + -self._memory.ctypes.data % 128)

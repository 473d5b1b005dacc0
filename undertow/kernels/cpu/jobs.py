"""Lists of kernel calls that run without Python in between, and the native code that runs them.

A thread team notes the calls of each of its members first, then all members run their lists at once. Between two
operations the members wait in native code for the next list, a few microseconds away; handing over Python functions
instead costs up to 0.1 ms each, because both sides need the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

_FORMATS = {"i": "q", "f": "f4x"}
_TYPES = {"i": "i64", "f": "float"}
_LOADS = {"i": "i64*", "f": "float*"}

# States of a mailbox: its owner sleeps, waits for work, has a list to run, or is to end.
ASLEEP, READY, WORK, QUIT = 0, 1, 2, 3
_MUTEX, _CONDITION = 16, 32  # where a mailbox has what its owner sleeps on, in words

# A row of a list: thunk, size of the row in bytes, then what the thunk reads: the kernel and its arguments.
# A mailbox: state, address of the list, its number of rows; a mutex and a condition.
# A script: address of its counter, number of helpers, own list and its rows; then mailbox, list, rows of each helper.
_NATIVE = """
declare i32 @sched_yield()
declare i32 @pthread_mutex_lock(i64*)
declare i32 @pthread_mutex_unlock(i64*)
declare i32 @pthread_cond_wait(i64*, i64*)
declare i32 @pthread_cond_signal(i64*)

define internal void @undertow_rows(i64* %list, i64 %count) {
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

; A helper's life: run the lists that arrive; sleep when none has come for `patience` rounds of waiting.
define void @undertow_serve(i64* %box, i64 %patience) {
start:
  %mutex = getelementptr i64, i64* %box, i64 MUTEX
  %condition = getelementptr i64, i64* %box, i64 CONDITION
  br label %look
look:
  %round = phi i64 [ 0, %start ], [ %more, %wait ], [ 0, %work ], [ 0, %sleep ], [ 0, %awake ]
  %state = load atomic i64, i64* %box acquire, align 8
  switch i64 %state, label %wait [ i64 WORK, label %work
                                   i64 QUIT, label %end ]
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
  %more = call i64 @undertow_wait(i64 %round)
  %over = icmp sgt i64 %more, %patience
  br i1 %over, label %sleep, label %look
sleep:
  %pair = cmpxchg i64* %box, i64 READY, i64 ASLEEP acq_rel acquire
  %asleep = extractvalue { i64, i1 } %pair, 1
  br i1 %asleep, label %doze, label %look
doze:
  %locked = call i32 @pthread_mutex_lock(i64* %mutex)
  br label %dozing
dozing:
  %now = load atomic i64, i64* %box acquire, align 8
  %still = icmp eq i64 %now, ASLEEP
  br i1 %still, label %dream, label %awake
dream:
  %called = call i32 @pthread_cond_wait(i64* %condition, i64* %mutex)
  br label %dozing
awake:
  %unlocked = call i32 @pthread_mutex_unlock(i64* %mutex)
  br label %look
end:
  ret void
}

; Change a mailbox's state, and wake its owner where that one sleeps.
define void @undertow_tell(i64* %box, i64 %state) {
  %before = atomicrmw xchg i64* %box, i64 %state acq_rel
  %asleep = icmp eq i64 %before, ASLEEP
  br i1 %asleep, label %wake, label %end
wake:
  %mutex = getelementptr i64, i64* %box, i64 MUTEX
  %condition = getelementptr i64, i64* %box, i64 CONDITION
  %locked = call i32 @pthread_mutex_lock(i64* %mutex)
  %called = call i32 @pthread_cond_signal(i64* %condition)
  %unlocked = call i32 @pthread_mutex_unlock(i64* %mutex)
  br label %end
end:
  ret void
}

; Hand a list over.
define internal void @undertow_post(i64* %box, i64 %list, i64 %count) {
  %list_at = getelementptr i64, i64* %box, i64 1
  %count_at = getelementptr i64, i64* %box, i64 2
  store i64 %list, i64* %list_at
  store i64 %count, i64* %count_at
  call void @undertow_tell(i64* %box, i64 WORK)
  ret void
}

; One more round of waiting; every few microseconds the processor is left to others: where more threads than processors
; are at work, the one that is waited for may have none.
define internal i64 @undertow_wait(i64 %round) {
  PAUSE
  %more = add i64 %round, 1
  %part = and i64 %more, 63
  %long = icmp eq i64 %part, 0
  br i1 %long, label %leave, label %end
leave:
  %left = call i32 @sched_yield()
  br label %end
end:
  ret i64 %more
}

; Wait until the list is done.
define internal void @undertow_finish(i64* %box) {
start:
  br label %look
look:
  %round = phi i64 [ 0, %start ], [ %more, %wait ]
  %state = load atomic i64, i64* %box acquire, align 8
  %busy = icmp eq i64 %state, WORK
  br i1 %busy, label %wait, label %done
wait:
  %more = call i64 @undertow_wait(i64 %round)
  br label %look
done:
  ret void
}

; Go on when `target` calls of this have been made with this counter.
define void @undertow_meet(i64 %at, i64 %target) {
start:
  %counter = inttoptr i64 %at to i64*
  %before = atomicrmw add i64* %counter, i64 1 acq_rel
  br label %look
look:
  %round = phi i64 [ 0, %start ], [ %more, %wait ]
  %arrived = load atomic i64, i64* %counter acquire, align 8
  %early = icmp slt i64 %arrived, %target
  br i1 %early, label %wait, label %done
wait:
  %more = call i64 @undertow_wait(i64 %round)
  br label %look
done:
  ret void
}

; All lists of a script. In one go: a helper that waits for the caller must not be left alone by an interrupt.
define void @undertow_play(i64* %script) {
start:
  %counter_at = load i64, i64* %script
  %counter = inttoptr i64 %counter_at to i64*
  store atomic i64 0, i64* %counter release, align 8
  %helpers_at = getelementptr i64, i64* %script, i64 1
  %list_at = getelementptr i64, i64* %script, i64 2
  %count_at = getelementptr i64, i64* %script, i64 3
  %helpers = load i64, i64* %helpers_at
  %list = load i64, i64* %list_at
  %count = load i64, i64* %count_at
  %rows = inttoptr i64 %list to i64*
  br label %posting
posting:
  %i = phi i64 [ 0, %start ], [ %i1, %post ]
  %more = icmp slt i64 %i, %helpers
  br i1 %more, label %post, label %own
post:
  %i3 = mul i64 %i, 3
  %first = add i64 %i3, 4
  %second = add i64 %i3, 5
  %third = add i64 %i3, 6
  %box_at = getelementptr i64, i64* %script, i64 %first
  %hers_at = getelementptr i64, i64* %script, i64 %second
  %number_at = getelementptr i64, i64* %script, i64 %third
  %box_int = load i64, i64* %box_at
  %hers = load i64, i64* %hers_at
  %number = load i64, i64* %number_at
  %box = inttoptr i64 %box_int to i64*
  call void @undertow_post(i64* %box, i64 %hers, i64 %number)
  %i1 = add i64 %i, 1
  br label %posting
own:
  call void @undertow_rows(i64* %rows, i64 %count)
  br label %finishing
finishing:
  %k = phi i64 [ 0, %own ], [ %k1, %finish ]
  %left = icmp slt i64 %k, %helpers
  br i1 %left, label %finish, label %end
finish:
  %k3 = mul i64 %k, 3
  %place = add i64 %k3, 4
  %last_at = getelementptr i64, i64* %script, i64 %place
  %last_int = load i64, i64* %last_at
  %last = inttoptr i64 %last_int to i64*
  call void @undertow_finish(i64* %last)
  %k1 = add i64 %k, 1
  br label %finishing
end:
  ret void
}

; One script after the other.
define void @undertow_play_all(i64* %scripts, i64 %count) {
start:
  br label %look
look:
  %i = phi i64 [ 0, %start ], [ %i1, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %at = getelementptr i64, i64* %scripts, i64 %i
  %address = load i64, i64* %at
  %script = inttoptr i64 %address to i64*
  call void @undertow_play(i64* %script)
  %i1 = add i64 %i, 1
  br label %look
end:
  ret void
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
    """The functions above that Python calls, by the part of their names behind `undertow_`."""
    from undertow.kernels.cpu.library import assemble

    pause, declared = _pause()
    text = declared + _NATIVE.replace("PAUSE", pause)
    words = {"READY": READY, "WORK": WORK, "ASLEEP": ASLEEP, "QUIT": QUIT, "MUTEX": _MUTEX, "CONDITION": _CONDITION}
    for name, value in words.items():
        text = text.replace(name, str(value))
    address = ctypes.c_int64
    kinds: dict[str, tuple[Any, ...]] = {
        "serve": (None, address, address),
        "tell": (None, address, address),
        "meet": (None, address, address),
        "play": (None, address),
        "play_all": (None, address, address),
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

    def __init__(self, size: int) -> None:
        """size: bytes to begin with."""
        self._reserve(size)
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
    """What becomes of the calling thread's kernel calls: added to a list, if there is one, else made.

    script: takes the whole team's calls where one is being noted, see scripts.py. team: see threads.py.
    """

    jobs: Jobs | None = None
    script: Any = None
    team: Any = None


here = _Here()


class Mailbox:
    """Where one helper of a team finds its lists; cache lines of its own."""

    def __init__(self) -> None:
        self._memory = np.zeros(80, np.int64)
        self.address = int(self._memory.ctypes.data + -self._memory.ctypes.data % 128)
        process = ctypes.CDLL(None)
        for make, word in ((process.pthread_mutex_init, _MUTEX), (process.pthread_cond_init, _CONDITION)):
            make(ctypes.c_void_p(self.address + 8 * word), None)


class Table:
    """A list for each of a team's threads, the caller's first, as native code reads them."""

    def __init__(self, boxes: Sequence[Mailbox]) -> None:
        """boxes: of all helpers."""
        self.counter = np.zeros(1, np.int64)
        self._boxes = boxes
        self._numbers = np.zeros(4 + 3 * len(boxes), np.int64)
        self.address = int(self._numbers.ctypes.data)
        self._play = native()["play"]

    def fill(self, lists: Sequence[Jobs]) -> None:
        """What `play` makes; the lists must stay as they are until then. Helpers without calls are not woken."""
        own, *others = lists
        given = [(box, jobs) for box, jobs in zip(self._boxes, others, strict=False) if jobs.count]
        rows = [number for box, jobs in given for number in (box.address, jobs.address, jobs.count)]
        head = [self.counter.ctypes.data, len(given), own.address, own.count]
        self._numbers[: 4 + len(rows)] = head + rows

    def play(self) -> None:
        """Make the calls; returns when all are done.

        One native call, so that no interrupt of Python comes in between: helpers never wait for a caller that has
        gone, nor write to memory that it has given away.
        """
        self._play(self.address)

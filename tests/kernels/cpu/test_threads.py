"""The team of threads."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from undertow.errors import UndertowError
from undertow.kernels import cpu
from undertow.kernels.cpu import threads
from undertow.kernels.cpu.jobs import Jobs, Table, here
from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.threads import Team
from undertow.kernels.geometry import ConvGeometry


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("total", [0, 1, 2, 4, 17])
def test_ranges_cover_everything_once(size, total):
    team = Team(size)
    seen: list[tuple[int, int, int]] = []
    team.run(total, lambda thread, low, high: seen.append((thread, low, high)))
    team.close()
    assert sorted(i for _, low, high in seen for i in range(low, high)) == list(range(total))
    assert len({thread for thread, _, _ in seen}) == len(seen) <= size


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_reach_the_caller_and_the_team_lives_on(failing):
    team = Team(2)

    def task(thread: int, low: int, high: int) -> None:
        if thread == failing:
            raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            team.run(2, task)
    done = []
    team.run(2, lambda thread, low, high: done.append(thread))
    assert sorted(done) == [0, 1]
    team.close()


def test_more_threads_than_the_system_allows_are_an_error(monkeypatch):
    """The helpers that did start end again."""
    started = []

    class Limited(threading.Thread):
        def start(self):
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
            started.append(self)
            super().start()

    monkeypatch.setattr("undertow.kernels.cpu.threads.threading.Thread", Limited)
    with pytest.raises(UndertowError, match=r"5 threads cannot be started, the system stops at 3.*ask for fewer"):
        Team(5)
    for thread in started:
        thread.join(timeout=60)
        assert not thread.is_alive()


_copy = Kernels("packing").copy_rows


def _copied(team: Team, x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    team.run(len(x), lambda t, low, high: _copy(x.ctypes.data, 64, y.ctypes.data, 64, 16, low, high, 0))
    return y


def test_a_closed_team_does_what_was_begun_with_it(rng):
    """Another Python thread may change the number of threads in the middle of an operation."""
    team = Team(3)
    x = rng.standard_normal((600, 16)).astype(np.float32)
    assert np.array_equal(_copied(team, x), x)
    team.close()
    assert np.array_equal(_copied(team, x), x)


def test_an_operation_keeps_its_team():
    """It has taken memory for so many threads."""
    cpu.set_threads(2)
    cpu.begin()
    own = threads.team()
    other = threading.Thread(target=cpu.set_threads, args=(3,))
    other.start()
    other.join()
    assert threads.team() is own
    assert own.closed
    cpu.begin()
    assert threads.team().size == 3
    cpu.set_threads(None)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("pause", [0, 0.02], ids=["waiting", "asleep"])
def test_every_noted_call_is_made_by_the_end(rng, size, pause):
    """Many rounds, lists longer than their first memory, helpers that wait and helpers that fell asleep."""
    team = Team(size)
    x = rng.standard_normal((600, 16)).astype(np.float32)
    for _ in range(5 if pause else 200):
        y = np.zeros_like(x)

        def task(thread: int, low: int, high: int, y: np.ndarray = y) -> None:
            for row in range(low, high):
                _copy(x.ctypes.data, 64, y.ctypes.data, 64, 16, row, row + 1, 0)

        team.run(len(x), task)
        assert np.array_equal(x, y)
        time.sleep(pause)
    team.close()


def test_floats_and_negative_numbers_reach_a_noted_kernel():
    x = np.array([[-2.0, 4.0]], np.float32)
    y = np.zeros_like(x)
    here.jobs = jobs = Jobs(8)
    Kernels("activation").broken_line(x.ctypes.data, y.ctypes.data, 0.25, -0.5, 0, 2)
    here.jobs = None
    assert not y.any()
    table = Table([])
    table.fill([jobs])
    table.play()
    direct = np.zeros_like(x)
    Kernels("activation").broken_line(x.ctypes.data, direct.ctypes.data, 0.25, -0.5, 0, 2)
    assert y.any()
    assert np.array_equal(y, direct)


def test_number_of_threads(monkeypatch):
    monkeypatch.delenv("UNDERTOW_THREADS", raising=False)
    cpu.set_threads(None)
    assert cpu.get_threads() == threads.available()
    monkeypatch.setenv("UNDERTOW_THREADS", "3")
    assert cpu.get_threads() == 3
    cpu.set_threads(2)
    assert cpu.get_threads() == 2
    assert threads.team().size == 2
    cpu.set_threads(None)
    monkeypatch.setenv("UNDERTOW_THREADS", "many")
    with pytest.raises(UndertowError, match="UNDERTOW_THREADS"):
        cpu.get_threads()
    monkeypatch.setenv("UNDERTOW_THREADS", "1025")
    with pytest.raises(UndertowError, match="from 1 to 1024"):
        cpu.get_threads()


@pytest.mark.parametrize("count", [0, -1, 1.5, 2.0, True, np.bool_(True), 10**6, "2", np.array([2, 3])])
def test_what_is_no_number_of_threads_is_refused(count):
    before = cpu.get_threads()
    with pytest.raises(UndertowError, match=r"set_threads\(.*To mend it: give a whole number from 1 to 1024"):
        cpu.set_threads(count)
    assert cpu.get_threads() == before


def test_numbers_of_numpy_are_numbers_of_threads():
    cpu.set_threads(np.int64(2))
    try:
        assert cpu.get_threads() == 2
        assert type(cpu.get_threads()) is int
    finally:
        cpu.set_threads(None)


def test_no_more_threads_than_asked_for():
    def members() -> set[str]:
        return {t.name for t in threading.enumerate() if t.name.startswith("undertow-")}

    cpu.set_threads(1)
    cpu.set_threads(3)
    try:
        x = np.ones((4, 16, 64, 64), np.float32)
        cpu.activate(x, "relu")
        assert members() == {"undertow-1", "undertow-2"}
    finally:
        cpu.set_threads(None)


def test_several_callers_at_once(rng):
    """Python threads that call kernels take turns and get their own results."""
    cpu.set_threads(2)
    geometry = ConvGeometry(pad=(1, 1, 1, 1))
    xs = [rng.standard_normal((1, 16, 40, 40)).astype(np.float32) for _ in range(4)]
    w = rng.standard_normal((32, 16, 3, 3)).astype(np.float32)
    expected = [cpu.conv2d(x, w, None, geometry) for x in xs]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(10):
            if not np.array_equal(cpu.conv2d(xs[i], w, None, geometry), expected[i]):
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    cpu.set_threads(None)
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_team():
    cpu.set_threads(2)
    x = np.ones((1, 16, 64, 64), np.float32)
    cpu.activate(x, "relu")
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(cpu.activate(x, "relu"), x) else 1)
    _, status = os.waitpid(child, 0)
    cpu.set_threads(None)
    assert os.waitstatus_to_exitcode(status) == 0

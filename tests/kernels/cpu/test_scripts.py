"""Scripts: the kernel calls of a whole team, noted once and made again."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from undertow.kernels import cpu
from undertow.kernels.cpu.jobs import here
from undertow.kernels.cpu.library import Kernels
from undertow.kernels.cpu.raw import winograd
from undertow.kernels.cpu.raw.tensor import Tensor, scratch
from undertow.kernels.cpu.scripts import Script, play_all
from undertow.kernels.cpu.threads import team

_copy = Kernels("packing").copy_rows


@pytest.fixture(params=[1, 2, 3, 5])
def threads(request):
    cpu.set_threads(request.param)
    yield request.param
    cpu.set_threads(None)


def _add(source: np.ndarray, target: np.ndarray, first: int, last: int) -> None:
    """Rows of 16 floats: target += source."""
    _copy(source.ctypes.data, 64, target.ctypes.data, 64, 16, first, last, 1)


def _add_backwards(source: np.ndarray, target: np.ndarray, first: int, last: int) -> None:
    """The rows that a thread at the other end wrote."""
    for row in range(60 - last, 60 - first):
        _add(source, target, row, row + 1)


def test_stages_follow_each_other(threads, rng):
    """Every stage reads rows that other threads wrote in the one before; in between the caller works alone."""
    a, b, c = (np.zeros((60, 16), np.float32) for _ in range(3))
    ones = np.ones((60, 16), np.float32)

    def note() -> None:
        for _ in range(20):
            team().run(60, lambda t, low, high: _add(ones, a, low, high))
            team().run(60, lambda t, low, high: _add_backwards(a, b, low, high))
            _add(b, c, 0, 60)
            team().run(1, lambda t, low, high: _add(c, a, 0, 1))

    script = Script(note)
    assert not a.any(), "nothing runs while it is noted"
    expected = [np.zeros((60, 16), np.float32) for _ in range(3)]
    for _ in range(30):
        for array in (a, b, c):
            array[:] = 0
        script.play()
        x, y, z = expected
        x[:], y[:], z[:] = 0, 0, 0
        for _ in range(20):
            x += 1
            y += x
            z += y
            x[0] += z[0]
        for made, right in zip((a, b, c), expected, strict=True):
            np.testing.assert_allclose(made, right, rtol=1e-6)


def test_scratch_memory_that_grows_while_noting_is_not_lost(threads):
    cpu.set_threads(threads)
    x = np.ones((1 << 12, 16), np.float32)
    y = np.zeros_like(x)

    def note() -> None:
        memory = scratch()
        with memory.frame():
            held = [memory.take(x.nbytes) for _ in range(40)]
            for source, target in zip([x.ctypes.data, *held], [*held, y.ctypes.data], strict=True):
                team().run(
                    len(x), lambda t, low, high, s=source, d=target: _copy(s, 64, d, 64, 16, low, high, 0)
                )  # fmt: skip

    assert Script(note).play()
    assert np.array_equal(x, y)


def test_it_holds_for_its_team_and_its_scratch_memory_only():
    cpu.set_threads(2)
    x = np.ones((4, 16), np.float32)
    script = Script(lambda: team().run(4, lambda t, low, high: _add(x, x, low, high)))
    assert script.play()
    cpu.set_threads(3)
    assert not script.play()
    cpu.set_threads(2)
    assert not script.play()
    assert (x == 2).all(), "a script that does not hold does nothing"
    script = Script(lambda: None)
    assert script.play()
    with scratch().frame():
        scratch().take(1 << 28)
    assert not script.play()
    cpu.set_threads(None)


def test_many_in_one_go(threads):
    a, b, ones = (np.full((60, 16), value, np.float32) for value in (0, 0, 1))
    first = Script(lambda: team().run(60, lambda t, low, high: _add(ones, a, low, high)))
    second = Script(lambda: team().run(60, lambda t, low, high: _add_backwards(a, b, low, high)))
    for _ in range(20):
        assert play_all([first, second, first])
    assert (a == 40).all()
    assert (b == sum(range(1, 40, 2))).all()
    cpu.set_threads(7)
    assert not play_all([first, second])
    cpu.set_threads(threads)
    assert not play_all([Script(lambda: None), second]), "one of them does not hold"
    assert (a == 40).all(), "then none is played"
    assert play_all([])


def test_a_team_closed_by_another_thread_is_not_waited_for():
    """Between the look at the team and the calls."""
    cpu.set_threads(2)
    x = np.ones((4, 16), np.float32)
    script = Script(lambda: team().run(4, lambda t, low, high: _add(x, x, low, high)))
    team().close()
    assert not script.play()
    assert (x == 1).all()
    cpu.set_threads(3)
    cpu.set_threads(None)


def test_what_kernels_read_lives_as_long_as_the_script():
    """Tables of Winograd's tiles are dropped when there are many."""
    x = np.ones((1, 6, 6, 16), np.float32)
    y = np.zeros_like(x)
    w = np.ones((16, 16, 3, 3), np.float32)
    a, b = (Tensor(array.ctypes.data, 64, 1, 6, 6, 16) for array in (x, y))
    winograd._grid.cache_clear()
    script = Script(lambda: winograd.forward(a, w.ctypes.data, b, 1, 1, 43, scratch(), form=winograd.OIHW))
    table = weakref.ref(winograd._grid(1, (6, 6), (6, 6), (1, 1), 43)[1])
    winograd._grid.cache_clear()
    gc.collect()
    assert table() is not None
    assert script.play()
    np.testing.assert_allclose(y[0, 2:4, 2:4], 144, rtol=1e-4)


def test_an_error_while_noting_leaves_nothing_behind():
    x = np.ones((4, 16), np.float32)

    def note() -> None:
        _add(x, x, 0, 4)
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        Script(note)
    assert here.script is None
    assert here.jobs is None
    _add(x, x, 0, 4)
    assert (x == 2).all()


def test_several_players_at_once():
    """Python threads take turns."""
    cpu.set_threads(2)
    arrays = [np.zeros((8, 16), np.float32) for _ in range(4)]
    ones = np.ones((8, 16), np.float32)

    def work(array: np.ndarray) -> None:
        script = Script(lambda: team().run(8, lambda t, low, high: _add(ones, array, low, high)))
        for _ in range(300):
            script.play()

    workers = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    cpu.set_threads(None)
    assert all((array == 300).all() for array in arrays)

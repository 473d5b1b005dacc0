"""Arrays from the pool, layouts, scratch memory, and that kernels read nothing behind a user's array."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.kernels.cpu.guards import GuardedTensor
from undertow.kernels.cpu import memory
from undertow.kernels.cpu.memory import as_nchw, as_nhwc, empty, empty_nhwc, is_nhwc, view
from undertow.kernels.cpu.raw import packing, tensor
from undertow.kernels.cpu.raw.tensor import Scratch, aligned_bytes


@pytest.fixture(autouse=True)
def _clean_pool():
    gc.collect()
    memory.release()
    yield
    memory.release()


def test_memory_comes_back_when_the_last_reference_dies():
    a = empty((300, 300))
    where = a.ctypes.data
    part = a[5:].T
    del a
    b = empty((300, 300))
    assert b.ctypes.data != where, "still in use through a view"
    del part
    c = empty((300, 300))
    assert c.ctypes.data == where
    assert (b.flags.writeable, b.dtype, b.flags.c_contiguous) == (True, np.float32, True)


def test_idle_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(memory, "_IDLE_LIMIT", 1 << 20)
    arrays = [empty((512, 256)) for _ in range(4)]  # half a megabyte each
    del arrays
    empty((1, 300 * 300))
    assert memory._idle_bytes <= 1 << 20


@pytest.mark.parametrize("surplus", [0, 2])
@pytest.mark.parametrize("shape", [(1, 3, 3, 5), (1, 3, 8, 9), (3, 3, 5, 8), (2, 4, 4, 4), (3, 11, 1, 17)])
def test_images_become_nhwc_and_nothing_else_is_written(shape, surplus, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    image = GuardedTensor(*shape, surplus=surplus)
    packing.to_nhwc(x.ctypes.data, image.tensor)
    np.testing.assert_array_equal(image.array, x)
    image.check()


@pytest.mark.parametrize("shape", [(3,), (7, 5), (2, 3, 200, 200)])
def test_addresses_are_aligned(shape):
    a = empty(shape)
    assert a.shape == shape
    assert a.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (2, 3, 5, 7), (3, 8, 4, 4), (1, 17, 9, 33), (5, 20, 1, 6), (2, 16, 8, 8)]
)
def test_layouts_there_and_back(shape, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    image = as_nhwc(x)
    np.testing.assert_array_equal(image, x)
    assert is_nhwc(image)
    assert as_nhwc(image) is image
    back = as_nchw(image)
    np.testing.assert_array_equal(back, x)
    assert back.flags.c_contiguous
    assert as_nchw(x) is x


def test_what_counts_as_nhwc():
    wide = np.zeros((2, 5, 6, 12), np.float32)
    assert is_nhwc(wide.transpose(0, 3, 1, 2))
    assert is_nhwc(wide[..., 3:8].transpose(0, 3, 1, 2))
    assert view(wide[..., 3:8].transpose(0, 3, 1, 2)).stride == 48
    assert not is_nhwc(wide[..., ::2].transpose(0, 3, 1, 2))
    assert not is_nhwc(wide[:, ::2].transpose(0, 3, 1, 2))
    assert not is_nhwc(wide[:, :, :4].transpose(0, 3, 1, 2))
    assert not is_nhwc(wide[:, :, ::-1].transpose(0, 3, 1, 2))
    assert not is_nhwc(np.zeros((2, 5, 6, 12), np.float32))
    assert not is_nhwc(np.broadcast_to(np.float32(0), (2, 5, 6, 12)))
    assert is_nhwc(empty_nhwc(2, 3, 4, 5))


def test_scratch_frames_nest_and_grow():
    scratch = Scratch()
    with scratch.frame():
        first = scratch.take(1000)
        with scratch.frame():
            inner = scratch.take(5 << 20)
            assert inner % 64 == 0
        again = scratch.take(10)
        assert not first <= again < first + 1000
    with scratch.frame():
        addresses = [scratch.take(1000), scratch.take(5 << 20)]
        assert 1000 <= addresses[1] - addresses[0] <= 1200, "one block now holds what the first frame needed"


def test_every_thread_finds_its_own_scratch_in_the_same_range():
    scratch = Scratch()
    with scratch.frame():
        scratch.take_each(3 << 20, 3)
    with scratch.frame():
        shared = scratch.take(5000)
        version = scratch.version
        first, step = scratch.take_each(1000, 3)
        with scratch.frame():
            second, again = scratch.take_each(2 << 20, 2)
        third, _ = scratch.take_each(2 << 20, 3)
    assert first % 64 == second % 64 == step % 64 == 0
    assert again == step >= 3 << 20, "nothing has to move for less"
    assert second == third >= first + 1000
    assert not first <= shared < first + 3 * step
    assert scratch.version == version


def test_scratch_of_each_thread_stays_valid_when_more_is_taken():
    scratch = Scratch()
    with scratch.frame():
        address, step = scratch.take_each(1000, 2)
        version = scratch.version
        mine = (ctypes.c_char * 1000).from_address(address + step)
        mine.value = b"mine"
        other, wider = scratch.take_each(8 << 20, 2)
        ctypes.memset(other, 255, 8 << 20)
        ctypes.memset(other + wider, 255, 8 << 20)
        assert mine.value == b"mine"
        assert scratch.version != version, "what was noted with the old addresses has to be noted anew"


def test_what_one_thread_needed_is_not_asked_for_each_of_many():
    scratch = Scratch()
    with scratch.frame():
        scratch.take_each(8 << 20, 1)
    with scratch.frame():
        first, _ = scratch.take_each(1000, 2)
        mine = (ctypes.c_char * 1000).from_address(first)
        mine.value = b"mine"
        _, step = scratch.take_each(1000, 64)
        assert step < 1 << 20
        other, step = scratch.take_each(8 << 20, 3)
        assert step >= 8 << 20
        ctypes.memset(other, 255, 2 * step + (8 << 20))
        assert mine.value == b"mine"


def test_after_a_lack_of_memory_less_can_be_taken(monkeypatch):
    def little(size: int) -> np.ndarray:
        if size > 1 << 24:
            raise MemoryError
        return aligned_bytes(size)

    monkeypatch.setattr(tensor, "aligned_bytes", little)
    scratch = Scratch()
    for take in (lambda size: scratch.take_each(size, 2), scratch.take):
        with pytest.raises(MemoryError), scratch.frame():
            take(1 << 30)
        with scratch.frame():
            take(1000)


OVER_READ = textwrap.dedent(
    """
    import ctypes, mmap
    import numpy as np
    from undertow.kernels import cpu
    from undertow.kernels.geometry import ConvGeometry, PoolGeometry

    libc = ctypes.CDLL(None, use_errno=True)
    page, kept = mmap.PAGESIZE, []

    def at_the_end(shape, order):
        "A float32 array whose last byte is the last one that may be read."
        size = 4 * int(np.prod(shape))
        pages = -(-size // page) + 1
        block = mmap.mmap(-1, pages * page)
        raw = np.frombuffer(block, np.uint8)
        end = (pages - 1) * page
        kept.append((block, raw))
        address = raw.ctypes.data + end
        assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(page), 0) == 0
        flat = raw[end - size : end].view(np.float32)
        flat[:] = np.random.default_rng(0).standard_normal(flat.size)
        if order == "nhwc":
            n, c, h, w = shape
            return flat.reshape(n, h, w, c).transpose(0, 3, 1, 2)
        return flat.reshape(shape)

    for order in ("nchw", "nhwc"):
        for ci, co, k, size in ((3, 5, 3, 9), (17, 33, 3, 12), (16, 16, 3, 30), (9, 20, 1, 7), (20, 18, 5, 8)):
            p = k // 2
            for stride in (1, 2):
                geometry = ConvGeometry((stride, stride), (p, p, p, p))
                x, w = at_the_end((2, ci, size, size), order), at_the_end((co, ci, k, k), "nchw")
                out = geometry.output_size(size, size, (k, k))
                b, gy = at_the_end((co,), "nchw"), at_the_end((2, co, *out), order)
                cpu.conv2d(x, w, b, geometry)
                cpu.conv2d_backward_data(gy, w, x.shape, geometry)
                cpu.conv2d_backward_weights(gy, x, w.shape, geometry)
            depth = ConvGeometry((1, 1), (p, p, p, p), groups=ci)
            w = at_the_end((ci, 1, k, k), "nchw")
            y = cpu.conv2d(x, w, None, depth)
            cpu.conv2d_backward_data(x, w, x.shape, depth)
            cpu.conv2d_backward_weights(x, x, w.shape, depth)
            pool = PoolGeometry((2, 2), (2, 2), (0, 0), (size // 2, size // 2))
            _, indexes = cpu.pool2d("max", x, pool)
            gy = at_the_end((2, ci, *pool.out), order)
            cpu.pool2d_backward("max", gy, indexes, x.shape, pool)
            cpu.pool2d_backward("average", gy, None, x.shape, pool)
            cpu.pool2d("average", x, pool)
            cpu.downsample2d(cpu.upsample2d(x, (2, 2)), (2, 2))
            one = at_the_end((ci,), "nchw")
            made = cpu.batch_norm(x, one, one)
            cpu.batch_norm_backward(x, at_the_end(x.shape, order), one, made.variance)
            for name in ("leaky", "mish"):
                cpu.activate_backward(x, x, name)
                cpu.activate(x, name)
    print("done", flush=True)
    """
)


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_nothing_behind_an_array_is_read():
    """The page behind every input may not be touched; a read there ends the process."""
    done = subprocess.run([sys.executable, "-c", OVER_READ], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"

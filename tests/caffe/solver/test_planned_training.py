"""Trainings whose passes are plans: continued from snapshots, looked into, several at once, for long."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import pytest

from undertow.caffe import brew
from undertow.caffe.solver import Callback, Solver

FILL = 'weight_filler { type: "gaussian" std: 0.2 }'
NET = f"""
layer {{ name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {{
  shape {{ dim: 4 dim: 3 dim: 8 dim: 8 }} shape {{ dim: 4 dim: 5 }}
  data_filler {{ type: "gaussian" std: 1 }} data_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "c1" type: "Convolution" bottom: "data" top: "c1"
  convolution_param {{ num_output: 8 kernel_size: 3 bias_term: false {FILL} }} }}
layer {{ name: "n1" type: "BatchNorm" bottom: "c1" top: "c1" }}
layer {{ name: "s1" type: "Scale" bottom: "c1" top: "c1" scale_param {{ bias_term: true }} }}
layer {{ name: "r1" type: "ReLU" bottom: "c1" top: "c1" }}
layer {{ name: "d1" type: "Dropout" bottom: "c1" top: "c1" }}
layer {{ name: "out" type: "InnerProduct" bottom: "c1" top: "out" inner_product_param {{ num_output: 5 {FILL} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "out" bottom: "target" top: "loss" }}
"""
KINDS = {
    "SGD": "momentum: 0.9", "Nesterov": "momentum: 0.9", "AdaGrad": "", "RMSProp": "rms_decay: 0.9",
    "AdaDelta": "momentum: 0.9", "Adam": "momentum: 0.9 momentum2: 0.999",
}  # fmt: skip


@pytest.fixture
def make(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)

    def made(kind="SGD", more=""):
        path = tmp_path / "solver.prototxt"
        path.write_text(
            f'net: "{tmp_path / "net.prototxt"}" type: "{kind}" {KINDS[kind]} base_lr: 0.01 lr_policy: "fixed" '
            f'weight_decay: 0.001 random_seed: 7 snapshot_prefix: "{tmp_path / kind}" test_iter: 2 test_interval: 3 '
            f"{more}"
        )
        return Solver(path, options={"dialect": "caffe"})

    return made


def numbers(solver):
    return [blob.data.copy() for blob in (*solver.net.param_blobs, *solver.net.blob_list)] + list(solver.history)


def equal(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_goes_on_from_a_snapshot_with_the_same_digits(make, kind):
    whole = make(kind, "iter_size: 2")
    whole.step(4)
    path = whole.snapshot()
    whole.step(4)
    assert len(whole.net.plans._plans) == 1
    expected = numbers(whole)
    for solver in (make(kind, "iter_size: 2"), whole):
        solver.restore(path)
        solver.step(4)
        assert equal(numbers(solver), expected)
        assert solver.last_loss == whole.last_loss


def test_looking_into_blobs_changes_nothing(make):
    held = []

    def look(keep):
        for blob in (*solver.net.blob_list, *solver.net.param_blobs):
            assert np.isfinite(blob.data).all()
            assert np.isfinite(blob.diff).all()
            if keep:
                held.append((blob.data, blob.diff))

    found = []
    for keep in (None, False, True):
        solver = make(more="clip_gradients: 1")
        if keep is not None:
            solver.callbacks.append(Callback(lambda keep=keep: look(keep), lambda keep=keep: look(keep)))
            solver.after_iteration.append(lambda keep=keep: look(keep))
        solver.step(7)
        found.append(numbers(solver))
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])


def test_planned_and_layer_by_layer_go_the_same_way(make):
    planned, plain = make("Adam"), make("Adam")
    for net in (plain.net, *plain.test_nets):
        net.after_forward.append(lambda layer: None)
    planned.step(6)
    plain.step(6)
    assert planned.net.plans._plans
    assert not plain.net.plans._plans
    for a, b in zip(planned.net.param_blobs, plain.net.param_blobs, strict=True):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-4, atol=1e-5)


def test_trainings_in_several_threads(make):
    alone = make()
    alone.step(10)
    solvers = [make() for _ in range(3)]
    problems = []

    def train(solver):
        try:
            solver.step(10)
        except BaseException as problem:  # told in the thread of the test
            problems.append(problem)

    threads = [threading.Thread(target=train, args=(solver,)) for solver in solvers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    for solver in solvers:
        assert equal(numbers(solver), numbers(alone))


def test_memory_does_not_grow(make):
    solver = make()
    solver.step(20)
    gc.collect()
    tracemalloc.start()
    try:
        solver.step(10)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        solver.step(100)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # One forgotten blob per iteration would be 100 times 4 x 8 x 6 x 6 numbers, 460 KB.
    assert grown < 60_000


def test_a_training_that_nobody_looks_into_needs_less_memory_and_is_the_same(tmp_path) -> None:
    deeper = "".join(
        f'layer {{ name: "p{i}" type: "Pooling" bottom: "{a}" top: "p{i}" '
        f"pooling_param {{ pool: AVE kernel_size: 3 pad: 1 }} }}\n"
        f'layer {{ name: "e{i}" type: "Convolution" bottom: "p{i}" top: "e{i}" '
        f"convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 {FILL} }} }}\n"
        for i, a in enumerate(("c1", "e0", "e1", "e2"))
    )
    head, tail = NET.split('layer { name: "out"')
    tail = tail.replace('bottom: "c1"', 'bottom: "e3"')
    (tmp_path / "net.prototxt").write_text(f'{head}{deeper}layer {{ name: "out"{tail}')
    (tmp_path / "solver.prototxt").write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.001 lr_policy: "fixed" random_seed: 2 max_iter: 3 '
        f'test_iter: 1 test_interval: 2 snapshot_prefix: "{tmp_path}/s"'
    )
    files, sizes = [], []
    for keep in (True, False):
        solvers: list[Solver] = []
        brew.train(tmp_path / "solver.prototxt", watch=solvers.append, keep_blobs=keep)
        files.append((tmp_path / "s_iter_3.caffemodel").read_bytes())
        sizes.append([net.plans._memory.memory.nbytes for net in (solvers[0].net, *solvers[0].test_nets)])
    assert files[0] == files[1]
    assert all(few < all_kept for all_kept, few in zip(*sizes, strict=True))

"""Whole programs as people wrote them for pycaffe: loops around a solver, layers of their own, surgery, databases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow.caffe as caffe
from undertow.caffe import layers as L
from undertow.caffe import params as P
from undertow.caffe.coord_map import crop

ME = __name__


class Batches(caffe.Layer):
    """A data layer whose batch size is another one in every step."""

    def setup(self, bottom: Any, top: Any) -> None:
        self.rows, self.step = json.loads(self.param_str)["rows"], 0
        self.reshape(bottom, top)

    def reshape(self, bottom: Any, top: Any) -> None:
        self.count = self.rows + self.step % 3
        top[0].reshape(self.count, 3, 4, 4)
        top[1].reshape(self.count)

    def forward(self, bottom: Any, top: Any) -> None:
        self.step += 1
        rng = np.random.RandomState(self.step)
        labels = rng.randint(0, 2, self.count)
        top[0].data[...] = rng.randn(*top[0].data.shape) + 2 * labels[:, None, None, None] - 1
        top[1].data[...] = labels

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass


class Cost(caffe.Layer):
    """Softmax and logarithm, as people wrote it to see how a loss layer works."""

    def setup(self, bottom: Any, top: Any) -> None:
        if len(bottom) != 2:
            raise Exception("scores and labels are needed")

    def reshape(self, bottom: Any, top: Any) -> None:
        self.share = np.zeros_like(bottom[0].data)
        top[0].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        powers = np.exp(bottom[0].data - bottom[0].data.max(axis=1, keepdims=True))
        self.share[...] = powers / powers.sum(axis=1, keepdims=True)
        self.labels = bottom[1].data.astype(int)
        top[0].data[...] = -np.log(self.share[np.arange(bottom[0].num), self.labels]).mean()

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        if propagate_down[1]:
            raise Exception("labels have no gradient")
        if propagate_down[0]:
            bottom[0].diff[...] = self.share
            bottom[0].diff[np.arange(bottom[0].num), self.labels] -= 1
            bottom[0].diff[...] *= top[0].diff[0] / bottom[0].num


def write(folder: Path, name: str, net: Any) -> str:
    path = folder / name
    path.write_text(str(net.to_proto() if isinstance(net, caffe.NetSpec) else net))
    return str(path)


def solver_for(folder: Path, net: str, **fields: Any) -> Any:
    pb2 = pytest.importorskip("google.protobuf") and caffe.proto.caffe_pb2
    param = pb2.SolverParameter(train_net=net, base_lr=0.02, lr_policy="fixed", momentum=0.9, max_iter=100, **fields)
    param.snapshot_prefix = str(folder / "snap")
    param.random_seed = 3
    return caffe.get_solver(write(folder, "solver.prototxt", param))


def test_a_loop_over_layers_of_ones_own(tmp_path: Path) -> None:
    n = caffe.NetSpec()
    n.data, n.label = L.Python(module=ME, layer="Batches", ntop=2, param_str='{"rows": 6}')
    n.score = L.InnerProduct(n.data, num_output=2, weight_filler={"type": "xavier"})
    n.loss = L.Python(n.score, n.label, module=ME, layer="Cost", loss_weight=1)
    solver = solver_for(tmp_path, write(tmp_path, "net.prototxt", n))
    sizes, losses = set(), []
    for iteration in range(60):
        solver.step(1)
        losses.append(solver.net.blobs["loss"].data.item())
        sizes.add(solver.net.blobs["data"].data.shape[0])
        assert solver.net.params["score"][0].diff.any()
        solver.net.params["score"][1].data[...] = 0  # the bias is held at 0 by hand
        assert solver.iter == iteration + 1
    assert sizes == {6, 7, 8}
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:5])
    solver.step(1)
    assert np.abs(solver.net.params["score"][1].data + solver.net.params["score"][1].diff).max() < 1e-6


def test_steps_of_ones_own(tmp_path: Path) -> None:
    """Gradient descent without the solver's rule, from `forward`, `backward` and the diffs."""
    n = caffe.NetSpec()
    n.data, n.label = L.Python(module=ME, layer="Batches", ntop=2, param_str='{"rows": 8}')
    n.score = L.InnerProduct(n.data, num_output=2, weight_filler={"type": "xavier"})
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    net = caffe.Net(write(tmp_path, "net.prototxt", n), caffe.TRAIN)
    losses = []
    for _ in range(40):
        losses.append(net.forward()["loss"].item())
        net.backward()
        for blobs in net.params.values():
            for blob in blobs:
                blob.data[...] -= 0.1 * blob.diff
                blob.diff[...] = 0
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:3])


def test_two_halves_with_one_set_of_weights(tmp_path: Path) -> None:
    def half(n: Any, bottom: Any, tail: str) -> Any:
        shared = [{"name": "w"}, {"name": "b"}]
        feature = L.InnerProduct(bottom, num_output=4, weight_filler={"type": "xavier"}, param=shared)
        n[f"feature{tail}"] = feature
        return feature

    n = caffe.NetSpec()
    n.pair, n.same = L.DummyData(
        shape=[{"dim": [6, 2, 3, 3]}, {"dim": [6]}], ntop=2,
        data_filler=[{"type": "gaussian"}, {"type": "constant", "value": 1}],
    )  # fmt: skip
    n.left, n.right = L.Slice(n.pair, ntop=2, slice_dim=1)
    n.loss = L.ContrastiveLoss(half(n, n.left, ""), half(n, n.right, "_p"), n.same, margin=1)
    solver = solver_for(tmp_path, write(tmp_path, "net.prototxt", n))
    solver.step(1)
    first = solver.net.blobs["loss"].data.item()
    solver.step(30)
    params = solver.net.params
    assert solver.net.blobs["loss"].data.item() < first / 2
    assert np.array_equal(params["feature"][0].data, params["feature_p"][0].data)
    params["feature"][0].data[0, 0] = 5
    assert params["feature_p"][0].data[0, 0] == 5


def test_a_classifier_becomes_fully_convolutional(tmp_path: Path, rng: np.random.Generator) -> None:
    dense, full = caffe.NetSpec(), caffe.NetSpec()
    for n, size in ((dense, 6), (full, 9)):
        n.data = L.Input(shape={"dim": [1, 2, size, size]})
        n.conv = L.Convolution(n.data, num_output=3, kernel_size=3, weight_filler={"type": "xavier"})
    dense.fc = L.InnerProduct(dense.conv, num_output=5, weight_filler={"type": "xavier"})
    full["fc-conv"] = L.Convolution(full.conv, num_output=5, kernel_size=4)
    net = caffe.Net(write(tmp_path, "dense.prototxt", dense), caffe.TEST)
    net.save(str(tmp_path / "dense.caffemodel"))
    other = caffe.Net(write(tmp_path, "full.prototxt", full), str(tmp_path / "dense.caffemodel"), caffe.TEST)
    other.params["fc-conv"][0].data.flat = net.params["fc"][0].data.flat
    other.params["fc-conv"][1].data[...] = net.params["fc"][1].data
    picture = rng.standard_normal((1, 2, 9, 9)).astype(np.float32)
    found = other.forward_all(data=picture)["fc-conv"]
    assert found.shape == (1, 5, 4, 4)
    for row, column in ((0, 0), (1, 3), (3, 2)):
        part = picture[:, :, row : row + 6, column : column + 6]
        np.testing.assert_allclose(net.forward(data=part)["fc"], found[:, :, row, column], rtol=1e-4, atol=1e-5)


def test_a_picture_is_climbed_towards_a_layer(tmp_path: Path) -> None:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, 16, 16]})
    n.conv = L.Convolution(n.data, num_output=4, kernel_size=3, weight_filler={"type": "xavier"})
    n.relu = L.ReLU(n.conv, in_place=True)
    n.pool = L.Pooling(n.relu, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.prob = L.Softmax(L.InnerProduct(n.pool, num_output=3))
    text = "force_backward: true\n" + str(n.to_proto())
    net = caffe.Net(write(tmp_path, "net.prototxt", text), caffe.TEST)
    source, target = net.blobs["data"], net.blobs["pool"]
    heights = []
    for size in (16, 20):
        source.reshape(1, 3, size, size - 4)
        source.data[0] = np.random.RandomState(0).randn(3, size, size - 4)
        for _ in range(8):
            net.forward(end="pool")
            heights.append((target.data**2).mean())
            target.diff[:] = target.data
            net.backward(start="pool")
            gradient = source.diff[0]
            source.data[:] += 0.05 / np.abs(gradient).mean() * gradient
        assert heights[-1] > 1.5 * heights[-8]


def test_a_map_is_cropped_to_its_picture(tmp_path: Path) -> None:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 21, 26]})
    n.conv = L.Convolution(n.data, num_output=2, kernel_size=3, pad=10)
    n.pool = L.Pooling(n.conv, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.up = L.Deconvolution(
        n.pool, param=[{"lr_mult": 0}],
        convolution_param={"num_output": 2, "kernel_size": 4, "stride": 2, "bias_term": False,
                           "weight_filler": {"type": "bilinear"}},
    )  # fmt: skip
    n.score = crop(n.up, n.data)
    net = caffe.Net(write(tmp_path, "net.prototxt", n), caffe.TEST)
    assert net.forward()["score"].shape == (1, 2, 21, 26)


def test_a_caffemodel_is_changed_with_protobuf(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf import text_format

    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 4]})
    n.fc = L.InnerProduct(n.data, num_output=2, weight_filler={"type": "xavier"})
    path = write(tmp_path, "net.prototxt", n)
    caffe.Net(path, caffe.TEST).save(str(tmp_path / "a"))
    net = caffe.proto.caffe_pb2.NetParameter()
    net.ParseFromString((tmp_path / "a").read_bytes())
    (layer,) = (layer for layer in net.layer if layer.name == "fc")
    layer.name = "renamed"
    layer.blobs[0].CopyFrom(caffe.io.array_to_blobproto(np.arange(8.0).reshape(2, 4)))
    (tmp_path / "b").write_bytes(net.SerializeToString())
    text = caffe.proto.caffe_pb2.NetParameter()
    text_format.Merge(Path(path).read_text(), text)
    text.layer[1].name = "renamed"
    changed = caffe.Net(
        write(tmp_path, "b.prototxt", text_format.MessageToString(text)), str(tmp_path / "b"), caffe.TEST
    )
    np.testing.assert_array_equal(changed.params["renamed"][0].data, np.arange(8).reshape(2, 4))


def test_a_database_of_ones_own(tmp_path: Path, rng: np.random.Generator) -> None:
    lmdb = pytest.importorskip("lmdb")
    pytest.importorskip("google.protobuf")
    pictures = rng.integers(0, 256, (5, 3, 4, 6)).astype(np.uint8)
    env = lmdb.open(str(tmp_path / "db"), map_size=1 << 22)
    with env.begin(write=True) as txn:
        for number, picture in enumerate(pictures):
            datum = caffe.proto.caffe_pb2.Datum()
            datum.channels, datum.height, datum.width = picture.shape
            datum.data = picture.tobytes()
            datum.label = number
            txn.put(f"{number:08}".encode("ascii"), datum.SerializeToString())
    env.close()
    n = caffe.NetSpec()
    n.data, n.label = L.Data(
        source=str(tmp_path / "db"), backend=P.Data.LMDB, batch_size=3, ntop=2, transform_param={"scale": 0.5}
    )
    net = caffe.Net(write(tmp_path, "net.prototxt", n), caffe.TEST)
    for rows in ([0, 1, 2], [3, 4, 0]):
        net.forward()
        np.testing.assert_array_equal(net.blobs["data"].data, pictures[rows] * np.float32(0.5))
        assert net.blobs["label"].data.tolist() == rows
    env = lmdb.open(str(tmp_path / "db"), readonly=True)
    with env.begin() as txn:
        for (_, value), picture in zip(txn.cursor(), pictures, strict=True):
            datum = caffe.proto.caffe_pb2.Datum()
            datum.ParseFromString(value)
            np.testing.assert_array_equal(caffe.io.datum_to_array(datum), picture)
    env.close()

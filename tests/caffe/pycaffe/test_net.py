"""pycaffe's Net as scripts use it."""

from __future__ import annotations

import gc
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import undertow.caffe as caffe
from tests.caffe.pycaffe.nets import DEPLOY, RANDOM, write
from tests.replay.caffe_solver import lines_said
from undertow.caffe.runtime import CaffeError
from undertow.errors import UndertowError


def deploy(tmp_path: Path) -> caffe.Net:
    return caffe.Net(write(tmp_path, DEPLOY), caffe.TEST)


def by_hand(net: caffe.Net, x: np.ndarray) -> np.ndarray:
    (w1, b1), (w2, b2) = ([blob.data for blob in net.params[name]] for name in ("ip", "ip2"))
    result: np.ndarray = np.tanh(x @ w1.T + b1) @ w2.T + b2
    return result


def test_names_and_order(tmp_path: Path) -> None:
    net = caffe.Net(write(tmp_path), caffe.TRAIN)
    assert list(net.blobs) == net._blob_names == ["data", "label", "c", "y", "loss"]
    assert list(net.params) == ["conv", "ip"]
    assert list(net.layer_dict) == list(net._layer_names) == ["in", "conv", "relu", "ip", "loss"]
    assert [layer.type for layer in net.layers][1:3] == ["Convolution", "ReLU"]
    assert net.layer_dict["conv"].blobs[0] is net.params["conv"][0]
    assert net.inputs == []
    assert net.outputs == ["loss"]
    assert net.top_names == OrderedDict(
        [("in", ["data", "label"]), ("conv", ["c"]), ("relu", ["c"]), ("ip", ["y"]), ("loss", ["loss"])]
    )
    assert net.bottom_names["loss"] == ["y", "label"]
    assert net.blob_loss_weights["loss"] == list(net._blob_loss_weights)[-1] == 2
    assert [net._blob_names[i] for i in net._outputs] == net.outputs
    assert list(net._bottom_ids(4)) == [3, 1]
    assert list(net._top_ids(0)) == [0, 1]
    blob = net.blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (4, 2, 5, 5, 200)
    assert list(net.params["conv"][0].shape) == [3, 2, 3, 3]


def test_every_constructor(tmp_path: Path) -> None:
    path = write(tmp_path, DEPLOY)
    first = caffe.Net(path, caffe.TEST)
    weights = str(tmp_path / "w.caffemodel")
    first.save(weights)
    made = [
        caffe.Net(path, caffe.TEST, weights=weights),
        caffe.Net(path, phase=caffe.TEST, level=0, stages=None, weights=weights),
        caffe.Net(network_file=path, phase=caffe.TEST, weights=weights),
        caffe.Net(path, caffe.TEST, 0, None, weights),
    ]
    with lines_said() as lines:
        made.append(caffe.Net(path, weights, caffe.TEST))
    assert any("DEPRECATION WARNING" in line for line in lines)
    for net in made:
        np.testing.assert_array_equal(net.params["ip"][0].data, first.params["ip"][0].data)
    with pytest.raises(TypeError, match="needs a phase"):
        caffe.Net(path)
    with pytest.raises(TypeError, match=r"the level is a number\. To mend it: write weights='w'"):
        caffe.Net(path, caffe.TEST, "w")
    with pytest.raises(TypeError, match=r"stages=\['deploy'\]"):
        caffe.Net(path, caffe.TEST, stages="deploy")
    with pytest.raises(CaffeError, match="forward_all got no rows"):
        made[0].forward_all(data=np.zeros((0, 3)))
    for wrong in ((str(tmp_path / "no.prototxt"), caffe.TEST), (path, str(tmp_path / "no.caffemodel"), caffe.TEST)):
        with pytest.raises(RuntimeError, match="Could not open file"):
            caffe.Net(*wrong)


def test_levels_and_stages(tmp_path: Path) -> None:
    text = DEPLOY
    for name, rule in (("one", "min_level: 1"), ("a", 'stage: "A"'), ("ab", 'stage: "A" stage: "B"')):
        text += f"""layer {{ type: "InnerProduct" name: "{name}" bottom: "data" top: "{name}" include {{ {rule} }}
            inner_product_param {{ num_output: 1 }} }}"""
    path = write(tmp_path, text)

    def added(**state: object) -> list[str]:
        return [name for name in caffe.Net(path, caffe.TEST, **state).layer_names if name in ("one", "a", "ab")]

    assert added() == []
    assert added(level=1) == ["one"]
    assert added(stages=["A"]) == ["a"]
    assert added(stages=["A", "B"]) == ["a", "ab"]


def test_forward_with_inputs_start_and_end(tmp_path: Path, rng: np.random.Generator) -> None:
    net = deploy(tmp_path)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    found = net.forward(data=x, blobs=["t"])
    assert set(found) == {"y", "t"}
    np.testing.assert_allclose(found["y"], by_hand(net, x), rtol=1e-5, atol=1e-6)
    assert np.shares_memory(found["y"], net.blobs["y"].data)
    assert set(net.forward(end="tanh")) == {"t"}
    net.blobs["t"].data[...] = 0
    np.testing.assert_allclose(net.forward(start="ip2", end="ip2")["y"], np.tile(net.params["ip2"][1].data, (4, 1)))
    with pytest.raises(RuntimeError, match="do not match net inputs"):
        net.forward(wrong=x)
    with pytest.raises(RuntimeError, match="not batch sized"):
        net.forward(data=x[:3])
    with pytest.raises(ValueError, match="'nothing' is not a layer"):
        net.forward(end="nothing")


def test_backward_with_diffs_start_and_end(tmp_path: Path, rng: np.random.Generator) -> None:
    net = deploy(tmp_path)
    x, gy = rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal((4, 2)).astype(np.float32)
    net.forward(data=x)
    found = net.backward(y=gy, diffs=["h"])
    assert set(found) == {"data", "h"}
    gh = (gy @ net.params["ip2"][0].data) * (1 - net.blobs["t"].data ** 2)
    np.testing.assert_allclose(found["h"], gh, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["data"], gh @ net.params["ip"][0].data, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net.params["ip"][0].diff, gh.T @ x, rtol=1e-4, atol=1e-5)
    net.backward(y=gy)
    np.testing.assert_allclose(net.params["ip"][0].diff, 2 * gh.T @ x, rtol=1e-4, atol=1e-5)
    net.clear_param_diffs()
    assert not net.params["ip"][0].diff.any()
    net.blobs["y"].diff[...] = gy
    assert set(net.backward(start="ip2", end="tanh")) == {"h"}
    assert not net.params["ip"][0].diff.any()
    with pytest.raises(RuntimeError, match="do not match net outputs"):
        net.backward(t=gy)


def test_a_net_without_inputs_takes_none(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 2 } } }')
    net = caffe.Net(str(path), caffe.TEST)
    with pytest.raises(RuntimeError, match="give no arrays: the net takes none; here are foo"):
        net.forward(foo=np.zeros(2))


def test_forward_all_and_backward_all(tmp_path: Path, rng: np.random.Generator) -> None:
    net = deploy(tmp_path)
    x, gy = rng.standard_normal((10, 3)).astype(np.float32), rng.standard_normal((10, 2)).astype(np.float32)
    found = net.forward_all(data=x, blobs=["t"])
    assert found["t"].shape == (10, 5)
    np.testing.assert_allclose(found["y"], by_hand(net, x), rtol=1e-5, atol=1e-6)
    values, gradients = net.forward_backward_all(data=x, y=gy, blobs=["t"], diffs=["t"])
    np.testing.assert_allclose(values["y"], found["y"], rtol=1e-6)
    np.testing.assert_allclose(gradients["t"], gy @ net.params["ip2"][0].data, rtol=1e-4, atol=1e-6)
    assert gradients["data"].shape == (10, 3)


def test_forward_all_of_a_net_with_a_loss(tmp_path: Path, rng: np.random.Generator) -> None:
    """Losses are single numbers: one per batch, whatever the rows."""
    one, two = "shape { dim: 4 dim: 3 }", "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }"
    text = DEPLOY.replace('top: "data"', 'top: "data" top: "label"').replace(one, two)
    text += 'layer { type: "EuclideanLoss" name: "l" bottom: "y" bottom: "label" top: "l" }'
    net = caffe.Net(write(tmp_path, text), caffe.TEST)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    found = net.forward_all(data=x, label=np.zeros((8, 2)), blobs=["y"])
    squares = (by_hand(net, x) ** 2).sum(1).reshape(2, 4)
    np.testing.assert_allclose(found["l"], squares.sum(1) / 8, rtol=1e-4)
    assert found["y"].shape == (8, 2)


def test_reshaping(tmp_path: Path) -> None:
    net = deploy(tmp_path)
    net.blobs["data"].reshape(7, 3)
    net.reshape()
    assert net.blobs["y"].data.shape == (7, 2)
    net.blobs["data"].reshape(2, 3)
    assert net.forward()["y"].shape == (2, 2)


def test_memory_outlives_the_net(tmp_path: Path) -> None:
    net = caffe.Net(write(tmp_path), caffe.TRAIN)
    net.forward()
    net.backward()
    blobs = [*net.blobs.values(), *(blob for blobs in net.params.values() for blob in blobs)]
    arrays = [blob.data for blob in blobs] + [blob.diff for blob in blobs]
    sums = [float(array.sum()) for array in arrays]
    del net
    gc.collect()
    assert [float(array.sum()) for array in arrays] == sums


def test_saving_and_sharing(tmp_path: Path) -> None:
    path = write(tmp_path)
    net = caffe.Net(path, caffe.TRAIN)
    net.save(str(tmp_path / "m"))
    net.save_hdf5(str(tmp_path / "h"))
    binary, hdf5, shared = (caffe.Net(path, caffe.TRAIN) for _ in range(3))
    binary.copy_from(str(tmp_path / "m"))
    hdf5.load_hdf5(str(tmp_path / "h"))
    shared.share_with(net)
    for other in (binary, hdf5, shared):
        for name, blobs in net.params.items():
            for ours, theirs in zip(other.params[name], blobs, strict=True):
                np.testing.assert_array_equal(ours.data, theirs.data)
    net.params["conv"][0].data[...] = 3
    assert (shared.params["conv"][0].data == 3).all()
    assert not (binary.params["conv"][0].data == 3).any()


def test_callbacks_get_the_numbers_of_layers(tmp_path: Path) -> None:
    net = deploy(tmp_path)
    calls: list[tuple[str, int]] = []
    for name in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, name)(lambda layer, name=name: calls.append((name, layer)))
    net.forward()
    net.backward()
    assert calls[:4] == [("before_forward", 0), ("after_forward", 0), ("before_forward", 1), ("after_forward", 1)]
    assert calls[-2:] == [("before_backward", 0), ("after_backward", 0)]
    assert len(calls) == 16


def test_memory_data(tmp_path: Path, rng: np.random.Generator) -> None:
    text = """layer { name: "in" type: "MemoryData" top: "data" top: "label"
      memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 } }
      layer { name: "s" type: "Silence" bottom: "data" bottom: "label" }"""
    net = caffe.Net(write(tmp_path, text), caffe.TEST)
    data, labels = rng.random((4, 1, 2, 2)).astype(np.float32), np.arange(4, dtype=np.float32)
    net.set_input_arrays(data, labels)
    for start in (0, 2, 0):
        net.forward()
        np.testing.assert_array_equal(net.blobs["data"].data, data[start : start + 2])
        assert list(net.blobs["label"].data.ravel()) == [start, start + 1]
    for wrong, message in (
        (data.astype(np.float64), "float32"), (data[:, :, ::2], "contiguous"), (data[:3], "3 items|needed"),
        (data.reshape(4, 2, 2), "4-d"), (np.zeros((4, 2, 2, 2), np.float32), "needed"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            net.set_input_arrays(wrong, labels[: len(wrong)])
    with pytest.raises(RuntimeError, match="MemoryDataLayer"):
        deploy(tmp_path).set_input_arrays(data, labels)


def test_seeds_repeat(tmp_path: Path) -> None:
    path = write(tmp_path)

    def weights() -> list[np.ndarray]:
        return [caffe.Net(path, caffe.TRAIN).params["conv"][0].data for _ in range(2)]

    caffe.set_random_seed(5)
    first = weights()
    caffe.set_random_seed(5)
    second = weights()
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()


def test_the_nets_own_names_show_through(tmp_path: Path) -> None:
    net = caffe.Net(write(tmp_path), caffe.TRAIN)
    assert net.name == "small"
    assert net.layer_need_backward == [True] * 5
    net.forward()
    net.backward_from_to(4, 3)
    assert net.params["ip"][0].diff.any()
    assert not net.params["conv"][0].diff.any()
    with pytest.raises(AttributeError):
        net.nothing  # noqa: B018
    assert "small" in repr(net)


def test_forks_text_is_named_in_errors(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"net\.prototxt:\d+"):
        caffe.Net(write(tmp_path, RANDOM.replace("num_output: 6", "num_outputs: 6")), caffe.TRAIN)

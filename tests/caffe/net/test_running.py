"""Running nets on blobs that users write into: memory, accumulation, ranges, hooks, debug_info."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut
from tests.caffe.net.texts import inputs, layer, net
from undertow.caffe.blob import Blob, shape_text
from undertow.caffe.layers_input import MemoryData
from undertow.caffe.layers_python import PythonLayer, import_layer
from undertow.errors import GraphError, ShapeError, UndertowError

IP = "inner_product_param {{ num_output: {} weight_filler {{ type: \"gaussian\" }} bias_filler {{ type: \"gaussian\" }} }}"  # fmt: skip  # noqa: E501


def two_layers(**options):  # type: ignore[no-untyped-def]
    built = net(
        inputs(x=(4, 3)),
        layer("a", "InnerProduct", "x", rest=IP.format(5)),
        layer("t", "TanH", "a"),
        layer("b", "InnerProduct", "t", rest=IP.format(2)),
        **options,
    )
    built.blobs["x"].data[...] = np.random.default_rng(0).standard_normal((4, 3))
    return built


# --- blobs ----------------------------------------------------------------------------------------------


def test_lengths_are_whole_numbers() -> None:
    blob = Blob((2, 3))
    blob.reshape(4 / 2, np.int64(1))  # type: ignore[arg-type]
    assert blob.data.shape == (2, 1)
    with pytest.raises(ShapeError, match=r"whole numbers, got \(3.5, 1\)"):
        blob.reshape(7 / 2, 1)  # type: ignore[arg-type]


def test_a_blob_keeps_its_memory() -> None:
    blob = Blob((2, 3))
    data = blob.data
    data[0, 1] = 5
    blob.reshape(3, 2)
    assert blob.data[0, 1] == 5
    assert blob.data.base is data.base
    blob.reshape(1, 2)
    blob.reshape(2, 3)
    assert np.array_equal(blob.data, data)
    blob.reshape(7)
    assert not blob.data.any()
    assert blob.data.flags.c_contiguous
    assert blob.data.flags.writeable


def test_old_names_of_axes() -> None:
    blob = Blob((4, 3))
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (4, 3, 1, 1, 12)
    assert shape_text(blob.shape) == "4 3 (12)"
    with pytest.raises(ShapeError, match="at most 4 axes"):
        _ = Blob((1,) * 5).num
    with pytest.raises(ShapeError, match="none of them negative"):
        blob.reshape(2, -1)
    with pytest.raises(ShapeError, match="cannot share"):
        blob.share_data(Blob((5,)))


# --- what users write takes effect ----------------------------------------------------------------------


def test_arrays_stay_the_same_objects_memory() -> None:
    built = two_layers()
    held = {name: blob.data for name, blob in built.blobs.items()}
    weights = built.params["a"][0].data
    built.forward()
    built.forward()
    for name, array in held.items():
        assert built.blobs[name].data is array
        assert array.any()
    before = held["b"].copy()
    weights.reshape(-1)[0] += 1
    built.forward()
    assert not np.array_equal(held["b"], before)


def test_a_range_starts_from_what_stands_in_the_blobs() -> None:
    built = two_layers()
    built.forward()
    built.blobs["t"].data[...] = 0
    built.forward(start="b")
    np.testing.assert_allclose(built.blobs["b"].data, np.broadcast_to(built.params["b"][1].data, (4, 2)))
    before = built.blobs["b"].data.copy()
    built.blobs["x"].data[...] = 9
    built.forward(end="t")
    assert np.array_equal(built.blobs["b"].data, before)


def test_backward_computes_with_edited_values() -> None:
    """As in Caffe, the weights' gradient reads the bottom as it stands at the time of the backward pass."""
    built = two_layers()
    built.forward()
    built.blobs["t"].data[...] = np.arange(20.0).reshape(4, 5)
    seed = np.random.default_rng(1).standard_normal((4, 2))
    built.blobs["b"].diff[...] = seed
    built.backward()
    np.testing.assert_allclose(built.params["b"][0].diff, seed.T @ np.arange(20.0).reshape(4, 5))
    np.testing.assert_allclose(
        built.blobs["a"].diff, seed @ built.params["b"][0].data * (1 - np.arange(20.0).reshape(4, 5) ** 2)
    )


def test_backward_of_a_range_reads_the_diff_that_stands_there() -> None:
    built = two_layers()
    built.forward()
    built.blobs["t"].diff[...] = 1
    built.backward(start="t", end="a")
    slope = 1 - built.blobs["t"].data ** 2
    np.testing.assert_allclose(built.params["a"][1].diff, slope.sum(0))
    assert not built.params["b"][0].diff.any()


def test_backward_without_a_forward_pass_computes_from_the_blobs() -> None:
    built, again = two_layers(), two_layers()
    built.forward()
    for name in built.blobs:
        again.blobs[name].data[...] = built.blobs[name].data
    for one in (built, again):
        one.blobs["b"].diff[...] = 1
        one.backward()
    np.testing.assert_allclose(again.params["a"][0].diff, built.params["a"][0].diff)


def test_parameter_diffs_add_up_and_bottom_diffs_are_overwritten() -> None:
    built = two_layers()
    built.forward()
    once = {}
    for times in (1, 2, 3):
        built.blobs["b"].diff[...] = 1
        built.backward()
        for name in ("a", "b"):
            once.setdefault(name, built.params[name][0].diff.copy())
            np.testing.assert_allclose(built.params[name][0].diff, times * once[name])
        once.setdefault("x", built.blobs["x"].diff.copy())
        np.testing.assert_allclose(built.blobs["x"].diff, once["x"])
    built.clear_param_diffs()
    assert not any(blob.diff.any() for blob in built.learnable_params)


def test_a_split_adds_what_its_readers_send() -> None:
    built = net(inputs(x=(2, 3)), layer("a", "Power", "x", rest="power_param { scale: 2 }"), layer("b", "ReLU", "a"),
                layer("c", "TanH", "a"), layer("d", "Exp", "a"))  # fmt: skip
    built.forward()
    for number in range(3):
        built.blobs[f"a_a_0_split_{number}"].diff[...] = number + 1
    built.backward(start="a_a_0_split", end="a_a_0_split")
    assert (built.blobs["a"].diff == 6).all()


def test_unknown_layers_are_named() -> None:
    built = two_layers()
    with pytest.raises(GraphError, match=r"no layer 'c'.*use one of in_x, a, t, b"):
        built.forward(end="c")
    with pytest.raises(GraphError, match="no layer 4"):
        built.backward(start=4)
    assert built.forward(end=-1) == 0.0


def test_functions_before_and_after_layers() -> None:
    built, seen = two_layers(), []
    built.before_forward.append(lambda i: seen.append(("before", i)))
    built.after_forward.append(lambda i: seen.append(("after", i)))
    built.before_backward.append(lambda i: seen.append(("back", i)))
    built.after_backward.append(lambda i: seen.append(("done", i)))
    built.forward(start=2)
    built.backward(end=3)
    assert seen == [("before", 2), ("after", 2), ("before", 3), ("after", 3), ("back", 3), ("done", 3)]


def test_debug_info_in_caffes_words() -> None:
    built, lines = two_layers(force=False), []
    built.debug_info, built.log = True, lines.append
    built.params["a"][0].data[...] = 0.5
    built.params["a"][1].data[...] = -2
    built.blobs["x"].data[...] = 1
    built.forward(end="a")
    assert lines == [
        "    [Forward] Layer in_x, top blob x data: 1",
        "    [Forward] Layer a, top blob a data: 0.5",
        "    [Forward] Layer a, param blob 0 data: 0.5",
        "    [Forward] Layer a, param blob 1 data: 2",
    ]


def test_debug_info_of_a_backward_pass() -> None:
    lines: list[str] = []
    built = net(inputs(x=(2, 2), t=(2, 1)), layer("a", "InnerProduct", "x", rest=IP.format(1)),
                layer("l", "EuclideanLoss", "a t"), force=False)  # fmt: skip
    built.params["a"][0].data[...] = 1
    built.params["a"][1].data[...] = 0
    built.blobs["x"].data[...] = [[1, 2], [3, 5]]
    assert built.forward() == pytest.approx((9 + 64) / 4)
    built.debug_info, built.log = True, lines.append
    built.backward()
    assert lines == [
        "    [Backward] Layer l, bottom blob a diff: 2.75",
        "    [Backward] Layer a, param blob 0 diff: 18.25",
        "    [Backward] Layer a, param blob 1 diff: 5.5",
        "    [Backward] All net params (data, diff): L1 norm = (2, 42); L2 norm = (1.41421, 27.2305)",
    ]


def test_no_grad_of_the_caller_does_not_reach_into_a_net() -> None:
    built = two_layers()
    with ut.no_grad():
        built.forward()
        built.blobs["b"].diff[...] = 1
        built.backward()
    assert built.params["a"][0].diff.any()


# --- sources --------------------------------------------------------------------------------------------


def test_dummy_data_fills_constants_once() -> None:
    built = net(
        layer("d", "DummyData", "", "c r", "dummy_data_param { shape { dim: 3 } "
              "data_filler { value: 2 } data_filler { type: \"uniform\" min: 1 max: 2 } }")
    )  # fmt: skip
    assert (built.blobs["c"].data == 2).all()
    assert not built.blobs["r"].data.any()
    built.forward()
    first = built.blobs["r"].data.copy()
    built.blobs["c"].data[...] = 5
    built.forward()
    assert (built.blobs["c"].data == 5).all()
    assert not np.array_equal(built.blobs["r"].data, first)
    assert first.min() >= 1


def test_memory_data_goes_round() -> None:
    text = layer("m", "MemoryData", "", "data label",
                 "memory_data_param { batch_size: 2 channels: 1 height: 1 width: 3 }")  # fmt: skip
    built = net(text)
    with pytest.raises(UndertowError, match="no data yet"):
        built.forward()
    source = built.layer_dict["m"]
    assert isinstance(source, MemoryData)
    data = np.arange(12.0).reshape(4, 1, 1, 3)
    source.set_input_arrays(data, np.arange(4.0))
    seen = []
    for _ in range(3):
        built.forward()
        seen.append(built.blobs["label"].data.reshape(-1).tolist())
    assert seen == [[0, 1], [2, 3], [0, 1]]
    assert np.array_equal(built.blobs["data"].data, data[:2])
    with pytest.raises(ShapeError, match="not a multiple"):
        source.set_input_arrays(data[:3], np.arange(3.0))


def test_the_same_seed_gives_the_same_net() -> None:
    one, two, other = (two_layers(seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.params["a"][0].data, two.params["a"][0].data)
    assert not np.array_equal(one.params["a"][0].data, other.params["a"][0].data)


class Doubling(PythonLayer):
    """A layer with a parameter, for the test below."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        self.blobs.add_blob(1).data[...] = 2

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = bottom[0].data * self.blobs[0].data

    def backward(self, top, propagate_down, bottom):  # type: ignore[no-untyped-def]
        bottom[0].diff[...] = top[0].diff * self.blobs[0].data
        self.blobs[0].diff[...] += (top[0].diff * bottom[0].data).sum()


def test_python_layers_with_parameters() -> None:
    rest = f'python_param {{ module: "{__name__}" layer: "Doubling" }} param {{ lr_mult: 3 }}'
    built = net(inputs(x=(2, 2)), layer("p", "Python", "x", rest=rest), python=import_layer)
    assert built.params_lr == [3]
    built.blobs["x"].data[...] = [[1, 2], [3, 4]]
    built.forward()
    built.blobs["p"].diff[...] = 1
    built.backward()
    assert built.blobs["p"].data.tolist() == [[2, 4], [6, 8]]
    assert built.params["p"][0].diff.tolist() == [10]
    assert (built.blobs["x"].diff == 2).all()
    values = built.as_function()(x=np.ones((2, 2)))
    assert (values["p"].data == 2).all()
    with pytest.raises(UndertowError, match=r"cannot be loaded: .*nowhere"):
        net(inputs(x=(1,)), layer("p", "Python", "x", rest='python_param { module: "nowhere" layer: "A" }'),
            python=import_layer)  # fmt: skip

"""Parameters by layer name: from caffemodels of all forms, to caffemodels, between nets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.net.texts import inputs, layer, net
from tests.replay.caffe import load_net
from undertow.caffe.net import Net
from undertow.caffe.proto import blob_from_array, new_message, parse_text, read_binary
from undertow.caffe.weights import fits
from undertow.errors import FormatError, ShapeError, UndertowWarning

HERE = Path(__file__).parents[2] / "goldens" / "caffe"
IP = "inner_product_param {{ num_output: {} weight_filler {{ type: \"gaussian\" }} }}"  # fmt: skip


def build(outputs: int = 4, name: str = "fc", **options: object) -> Net:
    parts = (inputs(x=(2, 3)), layer(name, "InnerProduct", "x", rest=IP.format(outputs)))
    return net(*parts, **{"dtype": np.float32, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.caffemodel", "a.caffemodel.h5"])
def test_there_and_back(tmp_path: Path, name: str) -> None:
    if name.endswith("h5"):
        pytest.importorskip("h5py")
    one, two = build(seed=1), build(seed=2)
    one.params["fc"][1].data[...] = np.arange(4)
    one.save(tmp_path / name)
    report = two.copy_from(tmp_path / name)
    assert report.copied == ["fc"]
    for a, b in zip(one.params["fc"], two.params["fc"], strict=True):
        assert np.array_equal(a.data, b.data)


def test_another_shape_is_refused_with_both_shapes() -> None:
    """Case 94."""
    with pytest.raises(ShapeError, match="parameter 0 has shape 5 x 3 in the file and 4 x 3 in the net") as caught:
        build().copy_from(build(5).to_message())
    assert caught.value.layer == "fc"
    assert "rename it" in str(caught.value.remedy)


def test_another_number_of_parameters_is_refused() -> None:
    source = build().to_message()
    del source.layer[1].blobs[1]
    with pytest.raises(FormatError, match="1 parameters for this layer, the net 2") as caught:
        build().copy_from(source)
    assert caught.value.layer == "fc"


def test_layers_on_one_side_only_are_listed_once() -> None:
    target, lines = build(name="other"), []
    target.log = lines.append
    before = target.params["other"][0].data.copy()
    with pytest.warns(UndertowWarning, match="none of its layers is in the net.*the file is 'fc', in the net 'other'"):
        report = target.copy_from(build().to_message())
    assert (report.copied, report.only_in_file, report.only_in_net) == ([], ["fc"], ["other"])
    assert lines == ["Ignoring source layer fc", "layers with parameters only in the net: other"]
    assert np.array_equal(target.params["other"][0].data, before)


def test_old_shapes_have_ones_in_front() -> None:
    assert fits((4, 3), (1, 1, 4, 3), legacy=True)
    assert not fits((4, 3), (1, 1, 4, 3))
    assert not fits((4, 3), (4, 3, 1, 1), legacy=True)
    assert fits((2, 3, 5, 5), (2, 3, 5, 5), legacy=True)
    source = build().to_message()
    for blob in source.layer[1].blobs:
        shape = tuple(blob.shape.dim)
        blob.clear_field("shape")
        blob.num, blob.channels, blob.height, blob.width = (1,) * (4 - len(shape)) + shape
    target = build()
    target.copy_from(source)
    assert np.array_equal(target.params["fc"][0].data.reshape(-1), source.layer[1].blobs[0].data)


def test_doubles_are_taken() -> None:
    source = new_message("NetParameter")
    weights = np.arange(12.0).reshape(4, 3)
    source.add("layer", name="fc", blobs=[blob_from_array(weights), blob_from_array(np.ones(4))])
    target = build()
    target.copy_from(source)
    assert np.array_equal(target.params["fc"][0].data, weights)


def test_shared_parameters_are_under_both_layers() -> None:
    share = IP.format(3) + 'param { name: "w" } param { name: "b" }'
    parts = (inputs(x=(2, 3)), layer("a", "InnerProduct", "x", rest=share), layer("c", "InnerProduct", "a", rest=share))
    built = net(*parts)
    message = built.to_message()
    assert len(message.layer[1].blobs) == len(message.layer[2].blobs) == 2
    again = net(*parts, seed=9)
    again.copy_from(message)
    assert np.array_equal(again.params["c"][0].data, built.params["a"][0].data)


def test_nets_may_look_at_one_set_of_parameters() -> None:
    one, two = build(seed=1), build(seed=2)
    two.share_with(one)
    one.params["fc"][0].data[0, 0] = 42
    assert two.params["fc"][0].data[0, 0] == 42
    with pytest.raises(ShapeError, match="cannot share"):
        build(5).share_with(one)


def test_gradients_are_written_when_asked_for() -> None:
    built = build()
    built.params["fc"][0].diff[...] = 3
    message = built.to_message(diff=True)
    assert (message.layer[1].blobs[0].diff == 3).all()
    assert not len(built.to_message().layer[1].blobs[0].diff)
    other = build()
    other.copy_from(message)
    assert (other.params["fc"][0].diff == 3).all()


def written_by_caffe(folder: Path) -> list[Path]:
    """Cases with a caffemodel that Caffe wrote from the net of the case."""
    cases = [path.parent for path in sorted(folder.glob("*/meta.json")) if "phase" in path.read_text()]
    return [case for case in cases if (case / "init.caffemodel").is_file() and not (case / "solver.prototxt").is_file()]


def check_fields(folder: Path) -> None:
    case = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    net = load_net(folder, phase=case["phase"], level=case.get("level", 0), stages=case.get("stages", ()))
    theirs = read_binary(folder / "init.caffemodel", "NetParameter")
    assert net.to_message().to_text() == theirs.to_text()


@pytest.mark.parametrize(
    "folder", [f for f in written_by_caffe(HERE) if not f.name.startswith("lenet")], ids=lambda f: f.name
)
def test_a_saved_net_has_exactly_the_fields_that_caffe_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two parts of LeNet were cut by hand, and so were their files."""
    monkeypatch.chdir(folder)
    check_fields(folder)


@pytest.mark.reference
def test_forms_of_blobs(reference_data: Path) -> None:
    """Case 95."""
    text = inputs(x=(1, 2)) + layer(
        "fc", "InnerProduct", "x", rest="inner_product_param { num_output: 1 bias_term: false }"
    )
    for name in ("new", "old", "double", "unpacked"):
        built = Net(parse_text(text, "NetParameter"))
        built.copy_from(reference_data / "cases" / "95-caffemodel-blob-forms" / f"{name}.caffemodel")
        assert built.params["fc"][0].data.tolist() == [[3, 4]]

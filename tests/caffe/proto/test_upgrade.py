"""Old nets, models and solvers become what Caffe's own upgrade tools make of them, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from undertow.caffe.proto import parse_text, read_caffemodel, read_prototxt, upgrade_net, upgrade_solver
from undertow.errors import FormatError, UndertowWarning

TEXTS = ["batch_norm_params", "input_dims", "input_fields", "new_data_transform", "v1_data_transform", "v1_many_types"]
SOLVERS = ["adadelta", "adagrad", "adam", "nesterov", "rmsprop", "sgd"]


@pytest.mark.reference
@pytest.mark.parametrize("name", TEXTS)
def test_texts_as_caffe_upgrades_them(reference_data: Path, name: str) -> None:
    folder = reference_data / "goldens/caffe/old_texts_upgraded"
    upgraded = read_prototxt(folder / f"{name}.prototxt").to_text()
    assert upgraded == (folder / f"{name}.upgraded.prototxt").read_text()


@pytest.mark.reference
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_as_caffe_upgrades_them(reference_data: Path, name: str) -> None:
    folder = reference_data / "goldens/caffe/old_texts_upgraded"
    solver = parse_text((folder / f"solver_{name}.prototxt").read_text(), "SolverParameter")
    assert upgrade_solver(solver)
    assert solver.to_text() == (folder / f"solver_{name}.upgraded.prototxt").read_text()
    assert upgrade_solver(solver) == []


@pytest.mark.reference
@pytest.mark.parametrize("case", ["old_v0_net", "old_v1_net"])
def test_old_nets_and_models(reference_data: Path, case: str) -> None:
    folder = reference_data / "goldens/caffe" / case
    assert read_prototxt(folder / "net.prototxt").to_text() == (folder / "upgraded.prototxt").read_text()
    model = read_caffemodel(folder / "old.caffemodel")
    assert model.to_bytes() == (folder / "upgraded.caffemodel").read_bytes()


def upgraded(text: str, strict: bool = False) -> str:
    net = parse_text(text)
    upgrade_net(net, strict=strict)
    return net.to_text()


def test_current_net_is_left_alone() -> None:
    net = parse_text('layer { name: "r" type: "ReLU" bottom: "x" top: "x" }')
    before = net.copy()
    assert upgrade_net(net) == []
    assert net == before


def test_the_steps_are_named() -> None:
    net = parse_text(
        'input: "x" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 '
        'layers { layer { name: "d" type: "data" scale: 2 } top: "y" }'
    )
    assert [line.split()[0] for line in upgrade_net(net)] == ["V0", "V1", "input"]


def test_input_without_shapes_goes_away_as_in_old_models() -> None:
    assert upgraded('input: "data" layer { name: "a" }') == 'layer {\n  name: "a"\n}\n'


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('layers { name: "a" type: RELU }\nlayer { name: "b" }', "both `layer` and `layers`", 1),
        ('input: "a"\ninput: "b"\ninput_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1', "need 8 of input_dim", 3),
        ('input: "a"\ninput: "b"\ninput_shape { dim: 1 }', "need 2 of input_shape", 3),
        ('layers {\n layer { name: "a" type: "nonsense" } }', "unknown V0 layer type 'nonsense'", 1),
        ('layers { layer { type: "relu" } bottom: "x" }', "unknown blob x", 1),
        (
            'input: "x"\nlayers { layer { type: "padding" pad: 1 } bottom: "x" top: "p" }\n'
            'layers { layer { name: "r" type: "relu" } bottom: "p" top: "p" }',
            "layer r: a padding layer before a layer of type relu",
            3,
        ),
    ],
)
def test_what_caffe_gives_up_on(text: str, message: str, line: int) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        upgrade_net(parse_text(text))
    assert caught.value.line == line


def test_solver_with_both_kinds_of_type() -> None:
    solver = parse_text('type: "Adam"\nsolver_type: SGD', "SolverParameter")
    with pytest.raises(FormatError, match="both given") as caught:
        upgrade_solver(solver)
    assert caught.value.line == 2


V0_FIELD_TOO_MANY = 'layers {\n layer { name: "r" type: "relu"\n num_output: 3 } top: "x" }'


def test_v0_field_of_another_layer_type_is_left_out_with_a_warning() -> None:
    with pytest.warns(UndertowWarning, match="line 3: layer r: a layer of type relu has no num_output"):
        assert "num_output" not in upgraded(V0_FIELD_TOO_MANY)
    with pytest.raises(FormatError, match="num_output"):
        upgraded(V0_FIELD_TOO_MANY, strict=True)


def test_v1_layer_among_v0_layers_keeps_only_its_blobs_names_and_warns() -> None:
    text = 'layers { layer { type: "relu" } top: "x" } layers { name: "s" type: SIGMOID bottom: "x" top: "y" }'
    with pytest.warns(UndertowWarning, match="layer s|only its bottoms and tops"):
        result = upgraded(text)
    assert result.endswith('layer {\n  bottom: "x"\n  top: "y"\n}\n')


def test_every_v0_field_finds_its_place() -> None:
    text = """
      layers { layer { name: "w" type: "window_data" source: "s" batchsize: 2 cropsize: 5 mirror: true meanfile: "m"
        det_fg_threshold: 0.7 det_bg_threshold: 0.3 det_fg_fraction: 0.4 det_context_pad: 1 det_crop_mode: "square" }
        top: "d" }
      layers { layer { name: "i" type: "images" source: "l" batchsize: 3 rand_skip: 4 shuffle_images: true
        new_height: 6 new_width: 7 } top: "e" }
      layers { layer { name: "h" type: "hdf5_output" hdf5_output_param { file_name: "o" } } bottom: "d" }
      layers { layer { name: "c" type: "concat" concat_dim: 0 } bottom: "d" bottom: "e" top: "f" }
      layers { layer { name: "n" type: "lrn" local_size: 3 alpha: 2 beta: 0.5 k: 1.5 } bottom: "f" top: "g" }
      layers { layer { name: "p" type: "pool" pool: AVE kernelsize: 2 stride: 2 pad: 1 } bottom: "g" top: "h" }
      layers { layer { name: "v" type: "conv" group: 2 biasterm: false } bottom: "h" top: "j" }
      layers { layer { name: "l" type: "infogain_loss" source: "q" } bottom: "j" bottom: "e" }
    """
    net = parse_text(text)
    upgrade_net(net)
    layers = {layer.name: layer for layer in net.layer}
    window = layers["w"].window_data_param
    assert (window.source, window.batch_size, window.context_pad, window.crop_mode) == ("s", 2, 1, "square")
    assert [round(value, 6) for value in (window.fg_threshold, window.bg_threshold, window.fg_fraction)] == [
        0.7,
        0.3,
        0.4,
    ]
    transform = layers["w"].transform_param
    assert (transform.crop_size, transform.mirror, transform.mean_file) == (5, True, "m")
    image = layers["i"].image_data_param
    assert (image.source, image.batch_size, image.rand_skip, image.shuffle) == ("l", 3, 4, True)
    assert (image.new_height, image.new_width) == (6, 7)
    assert layers["h"].hdf5_output_param.file_name == "o"
    assert layers["c"].concat_param.concat_dim == 0
    lrn = layers["n"].lrn_param
    assert (lrn.local_size, lrn.alpha, lrn.beta, lrn.k) == (3, 2, 0.5, 1.5)
    pool = layers["p"].pooling_param
    assert (pool.pool, pool.kernel_size, pool.stride, pool.pad) == ("AVE", 2, 2, 1)
    assert layers["v"].convolution_param.group == 2
    assert layers["v"].convolution_param.bias_term is False
    assert layers["l"].infogain_loss_param.source == "q"

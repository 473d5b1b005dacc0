"""Cases 01 to 35: odd and broken cfg files, through the reader and shape inference."""

from __future__ import annotations

from typing import cast

import pytest

from tests.cases.support import case, warned
from undertow.darknet.files.cfg import Config, parse_cfg, read_cfg
from undertow.darknet.files.options import read_net_options, read_options
from undertow.darknet.files.options_heads import YoloOptions
from undertow.darknet.files.options_layers import ConvolutionalOptions
from undertow.darknet.files.shapes import infer_shapes
from undertow.errors import FormatError, ShapeError, UndertowError


def config(name: str, **options: bool) -> Config:
    return read_cfg(case(name) / "a.cfg", **options)


def failure(name: str, **options: bool) -> UndertowError:
    """The error of a case; its file is always named."""
    with pytest.raises(UndertowError) as caught:
        infer_shapes(config(name, **options))
    assert caught.value.file == str(case(name) / "a.cfg")
    return caught.value


def first_convolution(read: Config) -> ConvolutionalOptions:
    return cast(ConvolutionalOptions, read_options(read.layers[0]))


def yolo(name: str) -> YoloOptions:
    return cast(YoloOptions, infer_shapes(config(name))[1].options)


def test_01_comment_after_a_value_is_dropped() -> None:
    options = first_convolution(config("01"))
    assert (options.filters, options.activation) == (8, "leaky")


def test_01_original_reading_takes_relu_as_the_program_does() -> None:
    options, told = warned(lambda: first_convolution(config("01", original=True)))
    assert (options.filters, options.activation) == (8, "relu")
    assert any("leaky#slope0.1" in message and "relu" in message for message in told)


def test_02_windows_line_ends_make_no_difference() -> None:
    path = case("02") / "a.cfg"
    with_unix_ends = parse_cfg(path.read_bytes().replace(b"\r\n", b"\n").decode(), str(path))
    assert config("02") == with_unix_ends
    assert infer_shapes(config("02"))[0].out_shape == (8, 32, 32)


def test_04_keys_before_the_first_section() -> None:
    error = failure("04")
    assert error.line == 1
    assert "outside a section" in str(error)


def test_05_empty_file() -> None:
    assert "empty" in str(failure("05"))


def test_07_short_section_names() -> None:
    shapes = infer_shapes(config("07"))
    assert [layer.type for layer in shapes] == ["convolutional", "maxpool", "connected", "softmax"]
    assert [layer.out_shape for layer in shapes[:2]] == [(8, 32, 32), (8, 16, 16)]
    assert [layer.outputs for layer in shapes[2:]] == [5, 5]


def test_08_first_of_two_equal_keys_wins_with_a_warning() -> None:
    read, told = warned(lambda: config("08"))
    assert read_net_options(read).batch == 1
    assert len(told) == 1
    assert "batch" in told[0]
    assert "lines 2 and 3" in told[0]
    error = failure("08", strict=True)
    assert error.line == 3


def test_10_blanks_and_tabs_count_nowhere() -> None:
    net = read_net_options(config("10"))
    assert (net.width, net.height, net.channels, net.learning_rate) == (32, 32, 3, 0.001)


def test_11_list_over_two_lines() -> None:
    error = failure("11")
    assert error.line == 18
    assert "value list ended with a comma" in str(error)
    assert "continued lines are not part of the format" in str(error)
    assert "line 17" in str(error)


def test_13_filters_that_do_not_fit_the_classes() -> None:
    error = failure("13")
    assert error.line == 18  # classes=
    message = str(error)
    assert "line 15" in message  # [yolo]
    assert "line 9" in message  # filters=
    assert "(classes+5)*len(mask)" in message
    assert "= 21" in message
    assert "filters=255" in message


def test_14_mask_missing_means_all_anchors() -> None:
    options = yolo("14")
    assert options.mask == (0, 1, 2)
    assert options.anchors == (10, 13, 16, 30, 33, 23)


def test_16_absolute_and_relative_routes() -> None:
    shapes = infer_shapes(config("16"))
    assert [layer.out_shape[0] for layer in shapes] == [4, 6, 4, 5, 11]
    assert shapes[2].sources == (0,)
    assert shapes[4].sources == (3, 1)


def test_17_route_before_the_first_layer() -> None:
    error = failure("17")
    assert (error.line, error.layer) == (16, 1)
    assert "layer -8" in str(error)


def test_19_route_of_unequal_sizes() -> None:
    error = failure("19")
    assert (error.line, error.layer) == (23, 2)
    assert "layers 1 (16x16) and 0 (32x32) cannot be joined" in str(error)


def test_20_input_size_that_does_not_survive_the_strides() -> None:
    error = failure("20")
    message = str(error)
    assert "6x6" in message
    assert "5x5" in message
    assert "multiples of 8" in message


def test_20_the_advice_mends_it() -> None:
    wider = config("20").with_values(0, {"width": 24, "height": 24})
    assert infer_shapes(wider)[4].out_shape == (8, 6, 6)


def test_22_unknown_section() -> None:
    error = failure("22")
    assert error.line == 15
    assert "[convolutional]?" in str(error)


def test_23_unknown_key() -> None:
    shapes, told = warned(lambda: infer_shapes(config("23")))
    assert shapes[0].out_shape[0] == 1
    assert len(told) == 1
    assert ":9:" in told[0]
    assert "'filtres'" in told[0]
    assert "did you mean 'filters'?" in told[0]
    assert failure("23", strict=True).line == 9


def test_25_key_without_value_and_line_without_equals() -> None:
    error = failure("25")
    assert error.line == 9
    assert "'filters' has no value" in str(error)
    assert "line 13: 'activation' has no '='" in str(error)


def test_25_original_reading_takes_the_defaults() -> None:
    options, told = warned(lambda: first_convolution(config("25", original=True)))
    assert (options.filters, options.activation) == (1, "logistic")
    assert len(told) == 2


def test_26_no_blank_lines_and_no_last_newline() -> None:
    path = case("26") / "a.cfg"
    spaced = parse_cfg(path.read_text().replace("[", "\n[") + "\n")
    shapes = infer_shapes(config("26"))
    assert [layer.out_shape for layer in shapes] == [layer.out_shape for layer in infer_shapes(spaced)]
    assert [layer.out_shape for layer in shapes] == [(8, 32, 32), (8, 16, 16)]


def test_28_batch_smaller_than_subdivisions() -> None:
    error = failure("28")
    assert error.line == 2
    assert "batch (4) must be a multiple of subdivisions (8)" in str(error)
    assert failure("28", original=True).line == 2


def test_29_absurd_size_is_told_with_the_memory_it_needs() -> None:
    error = failure("29")
    assert isinstance(error, ShapeError)
    assert error.line == 4
    assert "2000000x2000000x3" in str(error)
    assert "15.0 PiB" in str(error)  # 4 bytes * (2e6 * 2e6 * (3 + 1024) + weights) + workspace


def test_31_a_yolov3_head_gets_the_defaults_of_later_keys() -> None:
    options = yolo("31")
    assert options.scale_x_y == 1
    assert options.new_coords is False
    assert options.iou_loss == "mse"
    assert options.ignore_thresh == 0.5


def test_32_keys_of_scaled_yolov4_heads() -> None:
    options = yolo("32")
    assert options.scale_x_y == 2
    assert options.new_coords is True


@pytest.mark.parametrize(("name", "shape"), [("34", (1, 3, 3)), ("35", (1, 13, 13))])
def test_34_35_maxpool_with_stride_1_keeps_the_size(name: str, shape: tuple[int, int, int]) -> None:
    assert infer_shapes(config(name))[0].out_shape == shape


def test_errors_of_syntax_are_format_errors() -> None:
    assert isinstance(failure("11"), FormatError)

"""Windows that cannot be are refused with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

import undertow.caffe as caffe
from undertow.errors import UndertowError

NETS = [
    (
        'type: "Convolution" convolution_param { num_output: 1 kernel_size: 9 }',
        "does not fit into 4x4",
        "smaller window",
    ),
    ('type: "Pooling" pooling_param { kernel_size: 2 stride: 0 }', "window and stride", "write stride: 1"),
    ('type: "Pooling" pooling_param { kernel_size: 0 }', "window and stride", "write kernel_size: 2"),
]


@pytest.mark.parametrize(("layer", "reason", "remedy"), NETS)
def test_windows_that_cannot_be(tmp_path: Path, layer: str, reason: str, remedy: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }\n'
        f'layer {{ name: "y" bottom: "x" top: "y" {layer} }}\n'
    )
    with pytest.raises(UndertowError, match=reason) as caught:
        caffe.Net(str(path), caffe.TEST)
    assert remedy in (caught.value.remedy or "")

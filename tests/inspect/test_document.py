"""The net that docs/explain.md shows the lost gradients of is the published one."""

from __future__ import annotations

from pathlib import Path

from tests.inspect.yolov3 import yolov3_cfg


def test_yolov3_from_its_plan_has_107_layers_and_23_residuals(tmp_path: Path) -> None:
    from undertow.darknet.files.cfg import read_cfg
    from undertow.darknet.files.shapes import infer_shapes

    path = tmp_path / "yolov3.cfg"
    path.write_text(yolov3_cfg())
    shapes = infer_shapes(read_cfg(path))
    assert len(shapes) == 107
    assert sum(layer.type == "shortcut" for layer in shapes) == 23
    assert shapes.parameters == 62_001_757  # of the published yolov3.weights: (248007048 bytes - 20) / 4

"""Texts and records of small trainings, for tests of bad input."""

from __future__ import annotations

import shutil
from pathlib import Path

from undertow.caffe.data.database import new_database
from undertow.caffe.proto import Message, new_message

NET = """name: "t"
layer { name: "d" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "list.txt" batch_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "y"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt"\nbase_lr: 0.1\nlr_policy: "fixed"\nmax_iter: 2\nsnapshot_prefix: "snap"\n'
DATA = """layer { name: "d" type: "Data" top: "data" top: "label"
  data_param { source: "db" batch_size: 2 backend: LMDB }
  transform_param { } }
layer { name: "s" type: "Silence" bottom: "data" bottom: "label" }
"""
IMAGES = """layer { name: "d" type: "ImageData" top: "data" top: "label"
  image_data_param { source: "images.txt" batch_size: 2 new_height: 8 new_width: 8 } }
layer { name: "s" type: "Silence" bottom: "data" bottom: "label" }
"""
WINDOWS = """layer { name: "d" type: "WindowData" top: "data" top: "label"
  window_data_param { source: "windows.txt" batch_size: 4 } transform_param { crop_size: 8 } }
layer { name: "s" type: "Silence" bottom: "data" bottom: "label" }
"""
WINDOW_LIST = "# 0\n0.png\n3\n20\n24\n2\n1 0.9 2 2 12 12\n0 0.1 5 5 15 15\n"


def datum(channels: int = 3, height: int = 6, width: int = 7, size: int | None = None, **more: object) -> Message:
    values = bytes(channels * height * width if size is None else size)
    return new_message("Datum", channels=channels, height=height, width=width, data=values, **more)


def database(folder: Path, *records: Message | bytes) -> None:
    shutil.rmtree(folder / "db", ignore_errors=True)
    with new_database(folder / "db") as put:
        for number, record in enumerate(records):
            put(b"%08d" % number, record if isinstance(record, bytes) else record.to_bytes())

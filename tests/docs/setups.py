"""What the reader of a page has before it begins, made small; and how its long runs are shortened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.docs import darknet_commands
from undertow.cli import main

ANCHORS = "10,14, 23,27, 37,58, 81,82, 135,169, 344,319"


def demo_run() -> None:
    """The folder that `undertow demo` leaves, after six iterations."""
    assert main(["demo", "-pictures", "12", "-tests", "5", "-iterations", "6"]) == 0


def published_tiny() -> None:
    """yolov3-tiny.cfg, a net of its layers with fewer filters and a smaller input, and weights that know nothing."""
    Path("yolov3-tiny.cfg").write_text(tiny_cfg())
    from undertow import darknet

    darknet.load("yolov3-tiny.cfg").save_weights("yolov3-tiny.weights")


def tiny_cfg(size: int = 96, share: int = 4) -> str:
    """The cfg. share: of the published number of filters one in so many."""

    def conv(filters: int, kernel: int = 3) -> str:
        given = f"filters={filters // share}\nsize={kernel}\nstride=1\npad=1\nactivation=leaky\n"
        return f"[convolutional]\nbatch_normalize=1\n{given}"

    def pool(stride: int = 2) -> str:
        return f"[maxpool]\nsize=2\nstride={stride}\n"

    def head(mask: str) -> str:
        rest = "num=6\njitter=.3\nignore_thresh=.7\ntruth_thresh=1\nrandom=1\n"
        linear = "[convolutional]\nsize=1\nstride=1\npad=1\nfilters=255\nactivation=linear\n"
        return f"{linear}\n[yolo]\nmask={mask}\nanchors={ANCHORS}\nclasses=80\n{rest}"

    net = (
        f"[net]\nbatch=1\nsubdivisions=1\nwidth={size}\nheight={size}\nchannels=3\nmomentum=0.9\ndecay=0.0005\n"
        "learning_rate=0.001\nburn_in=1000\nmax_batches=500200\npolicy=steps\nsteps=400000,450000\nscales=.1,.1\n"
    )
    backbone = [text for filters in (16, 32, 64, 128, 256) for text in (conv(filters), pool())]
    coarse = [conv(512), pool(1), conv(1024), conv(256, 1), conv(512), head("3,4,5")]
    fine = ["[route]\nlayers=-4\n", conv(128, 1), "[upsample]\nstride=2\n", "[route]\nlayers=-1, 8\n", conv(256)]
    return "\n".join([net, *backbone, *coarse, *fine, head("0,1,2")])


def cells() -> dict[str, Any]:
    """For the README: two photos of cells, a short training on them, and one batch."""
    published_tiny()
    rng = np.random.default_rng(0)
    cfg = tiny_cfg().replace("classes=80", "classes=3").replace("filters=255", "filters=24")
    shorter = {"batch=1": "batch=2", "burn_in=1000": "burn_in=1", "max_batches=500200": "max_batches=3"}
    for long, short in shorter.items():
        cfg = cfg.replace(long, short)
    Path("cells.cfg").write_text(cfg.replace("steps=400000,450000", "steps=2,3").replace("random=1", "random=0"))
    Path("cells.data").write_text("classes=3\ntrain=list.txt\nvalid=list.txt\nnames=cells.names\nbackup=backup\n")
    Path("cells.names").write_text("red cell\nwhite cell\nplatelet\n")
    Path("coco.names").write_text("".join(f"thing {number}\n" for number in range(80)))
    Path("list.txt").write_text("photo.jpg\ndog.jpg\n")
    for name in ("photo", "dog"):
        Image.fromarray(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)).save(f"{name}.jpg")
        Path(f"{name}.txt").write_text("0 0.5 0.5 0.2 0.3\n1 0.3 0.4 0.1 0.1\n")
    shutil.copy("yolov3-tiny.cfg", "yolov3.cfg")  # the whole one runs in explain.md
    lenet()
    truth = np.zeros((1, 90 * 5), np.float32)
    truth[0, :5] = (0.5, 0.5, 0.2, 0.3, 7)
    return {"images": rng.random((1, 3, 96, 96), dtype=np.float32), "truth": truth}


LENET = """name: "LeNet"
layer { name: "mnist" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 1 dim: 28 dim: 28 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { value: 3 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 6 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "conv2" top: "ip1"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
"""


def lenet() -> dict[str, Any]:
    """lenet.prototxt, smaller, with one batch for it, and weights that know nothing."""
    from undertow.caffe.net import Net

    Path("lenet.prototxt").write_text(LENET)
    Net("lenet.prototxt", "TRAIN").save("lenet.caffemodel")
    rng = np.random.default_rng(0)
    return {"images": rng.random((8, 1, 28, 28), dtype=np.float32), "labels": rng.integers(0, 10, 8)}


def lenet_training() -> None:
    """LeNet with its solvers and the snapshots of a training of four iterations, under the names of a longer one."""
    lenet()
    common = 'net: "lenet.prototxt"\nbase_lr: 0.01\nlr_policy: "fixed"\nmax_iter: 4\nsnapshot_prefix: "lenet"\n'
    for name in ("lenet_solver", "finetune"):
        Path(f"{name}.prototxt").write_text(f"{common}test_iter: 1\ntest_interval: 2\nsnapshot: 2\n")
    assert main(["caffe", "train", "--solver=lenet_solver.prototxt"]) == 0
    shutil.copy("lenet_iter_2.solverstate", "lenet_iter_5000.solverstate")
    for iteration in (5000, 10000):
        shutil.copy("lenet_iter_4.caffemodel", f"lenet_iter_{iteration}.caffemodel")


def pictures_and_mnist() -> None:
    """A folder of pictures with a list of their labels, and MNIST's files with five digits."""
    import gzip

    rng = np.random.default_rng(0)
    Path("pictures").mkdir()
    lines = []
    for number in range(4):
        Image.fromarray(rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(f"pictures/{number}.png")
        lines.append(f"{number}.png {number % 2}\n")
    Path("list.txt").write_text("".join(lines))
    digits = rng.integers(0, 255, (5, 28, 28), dtype=np.uint8)
    head = np.array([2051, 5, 28, 28], ">i4").tobytes()
    Path("train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + digits.tobytes()))
    labels = np.array([2049, 5], ">i4").tobytes() + bytes(range(5))
    Path("train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def stopped_training() -> None:
    """A training that has ended, and a cfg by which it has further to go."""
    from tests.docs.error_cases import CFG, small_training

    small_training(cfg=CFG.replace("max_batches=10", "max_batches=2"))()
    Path("my.cfg").write_text(CFG.replace("max_batches=10", "max_batches=3"))


def yolov3() -> None:
    """The published yolov3.cfg."""
    from tests.inspect.yolov3 import yolov3_cfg

    Path("yolov3.cfg").write_text(yolov3_cfg())


# By page; what a setup returns are names that its Python blocks begin with.
SETUPS: dict[str, Callable[[], dict[str, Any] | None]] = {
    "README.md": cells,
    "caffe-data.md": pictures_and_mnist,
    "caffe-nets.md": lenet,
    "caffe-training.md": lenet_training,
    "darknet-commands.md": darknet_commands.prepare,
    "darknet-python.md": cells,
    "explain.md": yolov3,
    "fine-tune.md": published_tiny,
    "start.md": demo_run,
    "training.md": stopped_training,
}

# Text of a page -> what the tests run in its place: shorter, otherwise the same.
SHORTER: dict[str, dict[str, str]] = {
    "fine-tune.md": {
        '"batch": 16': '"batch": 4',
        '"max_batches": 600': '"max_batches": 4',
        "max_batches=600": "max_batches=4",
        "max_batches=800": "max_batches=6",
        '"burn_in": 100': '"burn_in": 2',
        '"steps": "450,550"': '"steps": "2,3"',
    },
}

"""A small SSD finds squares and discs: the whole way of a Caffe detector, from pictures with boxes to detections.

    python examples/tiny_ssd.py --out FOLDER      keeps all files there: databases, prototxts, weights, results

The steps are those of SSD's own scripts, with the same words: `caffe convert_annoset`, `get_image_size`, nets written
with NetSpec, `caffe train` with `eval_type: "detection"`, and the results in VOC's form. Needs: pip install
'undertow[caffe]'.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import undertow.caffe as caffe
from undertow.caffe import layers as L
from undertow.caffe.solver import Solver
from undertow.cli import main as undertow

SIZE = 64
CLASSES = ("background", "square", "disc")
# For each feature map: sizes of its default boxes in pixels, and pixels from one to the next.
HEADS = {"c3": (14, 22, 8), "c4": (22, 32, 16)}
SHAPES = {"aspect_ratio": [2], "flip": True, "variance": [0.1, 0.1, 0.2, 0.2]}


def draw(rng: np.random.Generator) -> tuple[Image.Image, list[tuple[str, int, int, int]]]:
    """Noise with one or two things in it: the picture, and for each its class, left, top and side."""
    pixels = rng.integers(0, 90, (SIZE, SIZE, 3)).astype(np.uint8)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    things = []
    for _ in range(int(rng.integers(1, 3))):
        name, side = CLASSES[int(rng.integers(1, 3))], int(rng.integers(14, 28))
        left, top = (int(corner) for corner in rng.integers(0, SIZE - side, 2))
        x, y = columns - left - side / 2, rows - top - side / 2
        inside = np.maximum(abs(x), abs(y)) < side / 2 if name == "square" else x**2 + y**2 < side**2 / 4
        pixels[inside] = (240, 60, 60) if name == "square" else (60, 240, 60)
        things.append((name, left, top, side))
    return Image.fromarray(pixels), things


def write_pictures(part: str, count: int, rng: np.random.Generator) -> None:
    """Pictures and annotations as Pascal VOC has them, and the list of both."""
    lines = []
    for number in range(count):
        picture, things = draw(rng)
        picture.save(f"VOC/{part}{number:03d}.png")
        objects = "".join(
            f"<object><name>{name}</name><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
            f"<xmax>{left + side}</xmax><ymax>{top + side}</ymax></bndbox></object>"
            for name, left, top, side in things
        )
        size = f"<size><width>{SIZE}</width><height>{SIZE}</height><depth>3</depth></size>"
        Path(f"VOC/{part}{number:03d}.xml").write_text(f"<annotation>{size}{objects}</annotation>")
        lines.append(f"{part}{number:03d}.png {part}{number:03d}.xml\n")
    Path(f"{part}.txt").write_text("".join(lines))


def make_databases(pictures: int, held_out: int) -> None:
    """The data, as the commands make them."""
    Path("VOC").mkdir()
    rng = np.random.default_rng(1)
    labels = "".join(f'item {{ name: "{name}" label: {label} }}\n' for label, name in enumerate(CLASSES))
    Path("labelmap.prototxt").write_text(labels)
    for part, count in (("train", pictures), ("test", held_out)):
        write_pictures(part, count, rng)
        assert undertow(["caffe", "convert_annoset", "-anno_type=detection", "-label_map_file=labelmap.prototxt",
                         "VOC/", f"{part}.txt", f"{part}_lmdb"]) == 0  # fmt: skip
    assert undertow(["caffe", "get_image_size", "VOC/", "test.txt", "test_name_size.txt"]) == 0


def conv(bottom: Any, outputs: int, stride: int = 1) -> Any:
    return L.Convolution(
        bottom, num_output=outputs, kernel_size=3, pad=1, stride=stride, weight_filler={"type": "msra"}
    )


def add_detector(n: Any) -> None:
    """Four convolutions, and at the last two for every default box its offsets and the scores of the classes."""
    below = n.data
    for number, (outputs, stride) in enumerate(((16, 2), (24, 2), (32, 2), (32, 2)), 1):
        n[f"c{number}"] = conv(below, outputs, stride)
        n[f"r{number}"] = below = L.ReLU(n[f"c{number}"], in_place=True)
    parts: dict[str, list[Any]] = {"loc": [], "conf": [], "prior": []}
    for number, (name, (small, large, step)) in zip((3, 4), HEADS.items(), strict=True):
        for kind, values in (("loc", 4), ("conf", len(CLASSES))):
            n[f"{name}_{kind}"] = conv(n[f"r{number}"], 4 * values)
            n[f"{name}_{kind}_perm"] = L.Permute(n[f"{name}_{kind}"], order=[0, 2, 3, 1])
            n[f"{name}_{kind}_flat"] = L.Flatten(n[f"{name}_{kind}_perm"])
            parts[kind].append(n[f"{name}_{kind}_flat"])
        n[f"{name}_prior"] = L.PriorBox(
            n[f"r{number}"], n.data, min_size=[small], max_size=[large], step=step, **SHAPES
        )
        parts["prior"].append(n[f"{name}_prior"])
    for kind, blobs in parts.items():
        n[kind] = L.Concat(*blobs, axis=2 if kind == "prior" else 1)


def annotated(source: str, batch: int, **more: Any) -> Any:
    transform = {"mean_value": [104, 117, 123], "scale": 0.017, **more}
    data = {"source": source, "batch_size": batch, "backend": 1}
    return L.AnnotatedData(ntop=2, data_param=data, transform_param=transform, annotated_data_param={})


def write_nets(batch: int, held_out: int) -> None:
    """train.prototxt, test.prototxt, which saves and scores what it finds, and deploy.prototxt."""
    train, test, deploy = caffe.NetSpec(), caffe.NetSpec(), caffe.NetSpec()
    train.data, train.label = annotated("train_lmdb", batch, mirror=True)
    test.data, test.label = annotated("test_lmdb", 8)
    deploy.data = L.Input(shape={"dim": [1, 3, SIZE, SIZE]})
    for n in (train, test, deploy):
        add_detector(n)
    train.loss = L.MultiBoxLoss(
        train.loc, train.conf, train.prior, train.label, propagate_down=[True, True, False, False],
        num_classes=len(CLASSES), code_type=2, loss_param={"normalization": 1},
    )  # fmt: skip
    for n, saved in ((test, {"output_directory": "results", "output_name_prefix": "found_", "output_format": "VOC",
                             "label_map_file": "labelmap.prototxt", "name_size_file": "test_name_size.txt",
                             "num_test_image": held_out}), (deploy, None)):  # fmt: skip
        n.scores = L.Softmax(L.Reshape(n.conf, shape={"dim": [0, -1, len(CLASSES)]}), axis=2)
        n.scores_flat = L.Flatten(n.scores)
        options = {"num_classes": len(CLASSES), "code_type": 2, "keep_top_k": 50, "confidence_threshold": 0.01,
                   "nms_param": {"nms_threshold": 0.45}}  # fmt: skip
        options |= {"save_output_param": saved} if saved else {}
        n.found = L.DetectionOutput(n.loc, n.scores_flat, n.prior, detection_output_param=options)
    test.judged = L.DetectionEvaluate(
        test.found, test.label, num_classes=len(CLASSES), name_size_file="test_name_size.txt"
    )
    for name, n in (("train", train), ("test", test), ("deploy", deploy)):
        Path(f"{name}.prototxt").write_text(f'name: "tiny_ssd"\n{n.to_proto()}')


def train_detector(iterations: int, held_out: int) -> float:
    """What `caffe train --solver=solver.prototxt` does; the mean average precision on pictures held out."""
    Path("solver.prototxt").write_text(f"""train_net: "train.prototxt"
test_net: "test.prototxt" test_iter: {held_out // 8} test_interval: {iterations} test_initialization: false
eval_type: "detection" ap_version: "11point" show_per_class_result: true
base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005 lr_policy: "multistep" gamma: 0.1 stepvalue: {iterations * 3 // 4}
max_iter: {iterations} display: 20 average_loss: 10 random_seed: 1 snapshot_prefix: "tiny"
""")
    scores: list[float] = []
    solver = Solver("solver.prototxt")
    solver.after_test.append(lambda index, means: scores.append(means[0][2]))
    solver.after_iteration.append(
        lambda: print(f"{solver.iter}: loss {solver.last_loss:.3f}") if solver.iter % 20 == 0 else None
    )
    solver.solve()
    solver.close()
    return scores[-1]


def detect(weights: str) -> list[tuple[str, float, np.ndarray]]:
    """What the net finds in one picture: class, score, and corners in pixels."""
    net = caffe.Net("deploy.prototxt", caffe.TEST, weights=weights)
    transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 1, 0))
    transformer.set_raw_scale("data", 255)
    transformer.set_mean("data", np.array([104, 117, 123]))
    transformer.set_input_scale("data", 0.017)
    net.blobs["data"].data[...] = transformer.preprocess("data", caffe.io.load_image("VOC/test000.png"))
    rows = net.forward()["found"].reshape(-1, 7)
    return [(CLASSES[int(row[1])], float(row[2]), row[3:] * SIZE) for row in rows if row[2] > 0.5]


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short training")
    parser.add_argument("--out", type=Path, help="a new folder for all files")
    given = parser.parse_args(arguments)
    pictures, held_out, iterations, batch = (64, 16, 60, 8) if given.quick else (200, 40, 300, 16)
    with tempfile.TemporaryDirectory() as beside:
        folder = given.out or Path(beside)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(folder):
            make_databases(pictures, held_out)
            write_nets(batch, held_out)
            precision = train_detector(iterations, held_out)
            print(f"mean average precision on {held_out} pictures that it has not seen: {precision:.3f}")
            for name, score, corners in detect(f"tiny_iter_{iterations}.caffemodel"):
                print(f"{name} {score:.2f} at {np.round(corners).astype(int).tolist()}")
            print(f"found in all of them: {', '.join(sorted(os.listdir('results')))}")
    return precision


if __name__ == "__main__":
    main()

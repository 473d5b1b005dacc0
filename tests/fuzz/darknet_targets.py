"""Darknet's files: cfg, weights, labels, pictures, .data, names, lists."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from tests.fuzz.cfg_grammar import ABSURD, cfg_text
from tests.fuzz.damage import damaged
from tests.fuzz.engine import Target
from undertow.core.modes import precision
from undertow.darknet.files.cfg import make_config, read_cfg
from undertow.darknet.files.datafile import read_data
from undertow.darknet.files.imagelist import read_image_list
from undertow.darknet.files.labels import read_labels
from undertow.darknet.files.names import read_names
from undertow.darknet.files.shapes import NetworkShapes, check_memory, infer_shapes
from undertow.darknet.files.tree import read_tree
from undertow.darknet.files.weights import read_weights, write_weights
from undertow.darknet.learning.checkpoint import Progress, _read_state, save_checkpoint
from undertow.darknet.network import Network
from undertow.data.images import load_pixels

Use = Callable[[], object]
SMALL = 200_000  # values of a net that is run


def _net(draw: random.Random, folder: Path) -> Use:
    """A cfg by the grammar: read, its shapes, and where it is small and valid the net: forward, and in training."""
    path = folder / "net.cfg"
    path.write_text(cfg_text(draw), "utf-8", "surrogateescape", newline="")
    strict, original, runs = draw.random() < 0.1, draw.random() < 0.3, draw.random() < 0.6

    def use() -> None:
        config = read_cfg(path, strict=strict, original=original)
        shapes = infer_shapes(config)
        if runs and max((layer.outputs for layer in shapes), default=0) * len(shapes) < SMALL:
            _run(Network(config))

    return use


def _run(net: Network) -> None:
    """Forward, and a step of training, on zeros: numbers that are not finite are errors of their own kind."""
    if net.shapes.parameters > SMALL or net.batch > 16 or net.inputs > SMALL:
        return
    check_memory(net.shapes, training=True)
    net.planned = False
    images = np.full((net.batch, net.inputs), 0.5, np.float32)
    with precision("reference"), np.errstate(all="ignore"):
        net.predict(images)
        if any(layer.cost is not None for layer in net.layers):
            net.train_datum(images, np.zeros((net.batch, net.truths), np.float32))


CFG = (
    b"[net]\nbatch=4\nsubdivisions=2\nwidth=32\nheight=32\nchannels=3\npolicy=steps\nsteps=10,20\nscales=.1,.1\n"
    b"[convolutional]\nbatch_normalize=1\nfilters=16\nsize=3\nstride=2\npad=1\nactivation=leaky\n[maxpool]\nsize=2\n"
    b"stride=1\n[route]\nlayers=-1,0\n[shortcut]\nfrom=-3\nactivation=linear\n[upsample]\nstride=2\n[convolutional]\n"
    b"filters=14\nsize=1\nactivation=linear\n[yolo]\nmask=0,1\nanchors=10,14, 23,27\nclasses=2\nnum=2\n"
)


def _cfg_bytes(draw: random.Random, folder: Path) -> Use:
    path = folder / "bytes.cfg"
    path.write_bytes(damaged(CFG, draw))
    original = draw.random() < 0.5
    return lambda: infer_shapes(read_cfg(path, original=original))


@cache
def _shapes() -> NetworkShapes:
    return infer_shapes(make_config([
        ("net", {"width": 3, "height": 3, "channels": 2}),
        ("convolutional", {"filters": 3, "size": 3, "batch_normalize": 1}),
        ("batchnorm", {}),
        ("connected", {"output": 4, "batch_normalize": 1}),
    ]))  # fmt: skip


@cache
def _weights(version: tuple[int, int, int]) -> bytes:
    counts = {(spec.layer, spec.name): spec.count for layer in _shapes() for spec in layer.parameters}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.weights"
        ones = {key: np.ones(count, np.float32) for key, count in counts.items()}
        write_weights(path, _shapes(), lambda layer, name: ones[layer, name], seen=77, version=version)
        return path.read_bytes()


def _weights_bytes(draw: random.Random, folder: Path) -> Use:
    path = folder / "a.weights"
    data = _weights(draw.choice(((0, 2, 0), (0, 1, 0), (0, 2, 5))))
    path.write_bytes(damaged(data, draw) if draw.random() < 0.9 else draw.randbytes(draw.randint(0, 400)))
    strict, original, cutoff = draw.random() < 0.2, draw.random() < 0.5, draw.choice((None, None, 1, 2, 9))

    def use() -> None:
        found = read_weights(path, _shapes(), strict=strict, original=original, cutoff=cutoff)
        assert sum(array.nbytes for array in found.arrays.values()) <= path.stat().st_size

    return use


def _label_text(draw: random.Random) -> bytes:
    lines = []
    for _ in range(draw.randint(0, 4)):
        words = [str(draw.randint(0, 2)), *(f"{draw.random():.4g}" for _ in range(draw.choice((4, 4, 4, 3, 5))))]
        if draw.random() < 0.3:
            words[draw.randrange(len(words))] = draw.choice(ABSURD)
        lines.append(draw.choice((" ", " ", "\t", ",", "  ")).join(words))
    return draw.choice(("\n", "\r\n", "\r")).join(lines).encode("utf-8", "surrogateescape")


def _labels(draw: random.Random, folder: Path) -> Use:
    path = folder / "a.txt"
    data = _label_text(draw)
    path.write_bytes(data if draw.random() < 0.5 else damaged(data, draw))
    strict, original = draw.random() < 0.2, draw.choice((None, (64, 64), (1, 1)))

    def use() -> None:
        boxes = read_labels(str(path), 3, size=original, strict=strict).boxes
        assert np.isfinite(boxes).all()
        assert set(boxes[:, 4]) <= {0, 1, 2}

    return use


@cache
def small_pictures() -> list[bytes]:
    """Small pictures of several formats and kinds."""
    pixels = np.random.default_rng(1).integers(0, 256, (11, 13, 3), dtype=np.uint8)
    kinds = {
        "JPEG": ("RGB", "L", "CMYK"), "PNG": ("RGB", "L", "RGBA", "LA", "P", "1"), "BMP": ("RGB", "P", "L", "1"),
        "TIFF": ("RGB", "CMYK"), "GIF": ("P",), "PPM": ("RGB", "L"), "TGA": ("RGB", "RGBA"), "WEBP": ("RGB",),
    }  # fmt: skip
    pictures = [(Image.fromarray(pixels).convert(mode), form, {}) for form, modes in kinds.items() for mode in modes]
    pictures.append((Image.fromarray(pixels), "JPEG", {"progressive": True}))
    pictures.append((Image.fromarray(pixels[..., 0].astype(np.uint16) * 257), "PNG", {}))
    made = []
    for picture, form, options in pictures:
        stream = io.BytesIO()
        picture.save(stream, form, **options)
        made.append(stream.getvalue())
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", exif=exif)
    return [*made, stream.getvalue()]


def _picture(draw: random.Random, folder: Path) -> Use:
    path = folder / "a.png"
    path.write_bytes(damaged(draw.choice(small_pictures()), draw, small_pictures()))
    channels, orientation = draw.choice((0, 1, 3, 3)), draw.choice(("raw", "exif"))

    def use() -> None:
        pixels = load_pixels(path, channels, orientation, max_pixels=2**22)  # type: ignore[arg-type]
        assert pixels.dtype == np.uint8
        assert pixels.ndim == 3

    return use


def _lists(draw: random.Random, folder: Path) -> Use:
    """.data, names, lists and class trees; read as the right kind and as the wrong ones."""
    path = folder / "file"
    data = draw.choice((
        b"classes= 2\ntrain = t.txt\nvalid=v.txt\nnames=n\ntop=5\nbackup=b\neval=coco\n",
        b"cat\ndog\r\n\nteddy bear\n",
        b"images/1.png\n images/2.png \r\n/abs/3.jpg\n",
        b"thing -1\nanimal 0\nplant 0\ndog 1\ncat 1\nrose 2\n",
    ))  # fmt: skip
    path.write_bytes(damaged(data, draw))
    strict = draw.random() < 0.3
    uses: tuple[Use, ...] = (
        lambda: read_data(path, strict).read_names(),
        lambda: read_names(path, draw.choice((None, 3)), strict),
        lambda: read_image_list(path, strict),
        lambda: read_tree(path),
    )
    return draw.choice(uses)


@cache
def _state() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        net = Network(make_config([("net", {"inputs": 4, "max_batches": 9}), ("connected", {"output": 3})]))
        save_checkpoint(path.with_suffix(""), net, Progress(), net.config, ("a.png",))
        return path.read_bytes()


def _checkpoint(draw: random.Random, folder: Path) -> Use:
    path = folder / "a.npz"
    path.write_bytes(damaged(_state(), draw))
    return lambda: _read_state(path)


TARGETS = (
    Target("cfg by the grammar", _net, 8),
    Target("cfg bytes", _cfg_bytes, 3),
    Target("weights", _weights_bytes, 3),
    Target("labels", _labels, 2),
    Target("pictures", _picture, 4),
    Target("data, names, lists, trees", _lists, 2),
    Target("state of a checkpoint", _checkpoint, 1),
)

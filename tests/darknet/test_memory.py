"""The memory that `check` foretells for a training, against the peak of a process that trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="sizes of processes are read from /proc")

# Nets large enough that the process itself and its compiled kernels count for little. The documentation says 15 %.
LOW, HIGH = 0.85, 1.15

NET = """[net]
batch={batch}
subdivisions=1
width={size}
height={size}
channels=3
learning_rate=0.001
max_batches=100
"""


def conv(filters: int, size: int = 3, stride: int = 1) -> str:
    return (
        f"[convolutional]\nbatch_normalize=1\nfilters={filters}\nsize={size}\nstride={stride}\npad=1\n"
        "activation=leaky\n"
    )


def recurrent(layer: str, steps: int = 16, **values: object) -> str:
    """Two layers of a kind over sequences, or over sequences of pictures."""
    pictures = "width=32\nheight=32\nchannels=16\n" if "crnn" in layer or "conv" in layer else "inputs=256\n"
    tail = "[avgpool]\n" if "width" in pictures else "[connected]\noutput=256\nactivation=leaky\n"
    head = f"[net]\nbatch={values.pop('batch')}\ntime_steps={steps}\nmax_batches=100\nlearning_rate=.001\n{pictures}"
    given = "".join(f"{key}={value}\n" for key, value in values.items())
    return head + f"[{layer}]\n{given}" * 2 + tail + "[softmax]\n"


POOL, SHORTCUT = "[maxpool]\nsize=2\nstride=2\n", "[shortcut]\nfrom=-3\nactivation=linear\n"
YOLO = (
    "[convolutional]\nfilters=21\nsize=1\nactivation=linear\n"
    "[yolo]\nmask=0,1,2\nanchors=10,14, 23,27, 37,58\nclasses=2\nnum=3\n"
)
SMALL = NET.format(batch=2, size=32) + conv(16) + POOL + conv(32) + conv(16, 1) + conv(32) + SHORTCUT + YOLO
NETS = {
    "a chain with pooling": NET.format(batch=16, size=256)
    + conv(16) + POOL + conv(32) + POOL + conv(64) + POOL + conv(128) + conv(512) + YOLO,
    "residual blocks": NET.format(batch=4, size=256)
    + conv(32) + conv(64, stride=2) + (conv(32, 1) + conv(64) + SHORTCUT) * 4 + YOLO,
    "many weights": NET.format(batch=2, size=64)
    + conv(32, stride=2) + POOL + conv(256, stride=2) + "[connected]\noutput=2048\nactivation=leaky\n" * 2
    + "[connected]\noutput=10\nactivation=linear\n[softmax]\n",
    "a relu": NET.format(batch=8, size=128)
    + conv(64) + (conv(64).replace("leaky", "relu") + conv(64).replace("leaky", "linear") + SHORTCUT) * 4 + YOLO,
    "swish": NET.format(batch=4, size=128)
    + conv(64).replace("leaky", "swish") * 4 + "[avgpool]\n[softmax]\n",
    "rnn": recurrent("rnn", batch=64, output=512, activation="leaky"),
    "rnn, normalized": recurrent("rnn", batch=48, output=512, activation="leaky", batch_normalize=1),
    "rnn, many steps": recurrent("rnn", 64, batch=16, output=512, activation="leaky"),
    "gru": recurrent("gru", batch=32, output=512),
    "gru, normalized": recurrent("gru", batch=24, output=512, batch_normalize=1),
    "lstm": recurrent("lstm", batch=32, output=512),
    "lstm, normalized": recurrent("lstm", batch=24, output=512, batch_normalize=1),
    "crnn": recurrent("crnn", 4, batch=8, output_filters=32, hidden_filters=24, activation="leaky"),
    "dropout": NET.format(batch=16, size=96)
    + (conv(64) + "[dropout]\nprobability=.5\n") * 2 + "[avgpool]\n[softmax]\n",
}  # fmt: skip

PROGRAM = """
import ctypes, gc, os, sys
import numpy as np
import undertow as ut
from undertow.darknet import load

def train(cfg):
    net = load(cfg)
    net.keep_deltas = False
    shape = net.options.input_shape if net.c else (net.inputs,)
    images = np.random.default_rng(0).random((net.batch, *shape), np.float32)
    for _ in range(3):
        net.train_datum(images, np.zeros((net.batch, net.truths), np.float32))
    return net.shapes.memory(training=True)

ut.set_threads(1)
train(sys.argv[1])  # imports and kernels are there from now on
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
estimate = train(sys.argv[2])
# Not ru_maxrss, which begins with the size of the process that started this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(estimate, peak * 1024 - before)
"""


def measured(first: Path, second: Path) -> tuple[int, int]:
    """The estimate for the second cfg and the peak of its training, after one of the first."""
    command = [sys.executable, "-c", PROGRAM, str(first), str(second)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    estimate, peak = map(int, done.stdout.split())
    return estimate, peak


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cfg that has been trained once: compiling kernels takes more memory than the nets."""
    path = tmp_path_factory.mktemp("small") / "small.cfg"
    path.write_text(SMALL)
    measured(path, path)
    return path


@pytest.mark.parametrize("name", NETS)
def test_the_estimate_is_near_the_measured_peak(tmp_path: Path, small: Path, name: str) -> None:
    cfg = tmp_path / "net.cfg"
    cfg.write_text(NETS[name])
    estimate, peak = measured(small, cfg)
    if peak * LOW >= estimate:  # pages of libraries that a busy system had taken away came back in between
        peak = min(peak, measured(small, cfg)[1])
    assert peak > 60 * 2**20, "too small to tell"
    assert LOW * peak < estimate < HIGH * peak, f"estimated {estimate / 2**20:.0f} MiB, measured {peak / 2**20:.0f} MiB"

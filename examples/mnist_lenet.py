"""LeNet reads handwritten digits.

    python examples/mnist_lenet.py --data FOLDER      MNIST: the folder with its four idx files
    python examples/mnist_lenet.py                    scikit-learn's 1,797 digits, no download

The network of LeCun, Bottou, Bengio and Haffner (1998) as Caffe's tutorial has it: two convolutions, each followed by
max pooling, then two linear layers. Batches are prepared by a worker thread; every epoch the weights are saved, and
--resume goes on exactly where an interrupted run stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import undertow as ut
from undertow.data import ArrayDataset, Loader, digits, mnist
from undertow.layers import Conv2d, Flatten, Linear, MaxPool2d, Module, initializers
from undertow.optimizers import SGD, policies


class LeNet(Module):
    """images: (batch, 1, 28, 28), 0 to 1. Returns scores (batch, 10)."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        xavier = initializers.Xavier()
        self.conv1 = Conv2d(20, 5, 1, init=xavier, rng=rng)
        self.conv2 = Conv2d(50, 5, 20, init=xavier, rng=rng)
        self.pool = MaxPool2d(2)
        self.flatten = Flatten()
        self.fc1 = Linear(500, 50 * 4 * 4, init=xavier, rng=rng)
        self.fc2 = Linear(10, 500, init=xavier, rng=rng)

    def forward(self, images: np.ndarray) -> ut.Variable:
        x = self.pool(self.conv1(images))  # (batch, 20, 12, 12)
        x = self.pool(self.conv2(x))  # (batch, 50, 4, 4)
        x = ut.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


def load_digits(folder: Path | None) -> tuple[ArrayDataset, ArrayDataset]:
    if folder is not None:
        return mnist(folder, train=True), mnist(folder, train=False)
    return digits(train=True, scale=3, pad=2), digits(train=False, scale=3, pad=2)


def accuracy(network: Module, dataset: ArrayDataset) -> float:
    """The share of pictures read correctly."""
    right = 0.0
    with ut.no_grad(), ut.test_mode():
        for images, labels in Loader(dataset, batch_size=500):
            right += ut.accuracy(network(images), labels).item() * len(labels)
    return right / len(dataset)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    parser.add_argument("--epochs", type=int, help="1 for MNIST, 15 for the small set by default")
    parser.add_argument("--out", type=Path, help="folder for the checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--quick", action="store_true", help="3 epochs of at most 2,000 pictures")
    options = parser.parse_args(arguments)

    train_set, test_set = load_digits(options.data)
    epochs, batch_size = (1, 64) if options.data else (15, 16)
    if options.quick:
        train_set, test_set = (ArrayDataset(*(a[:2000] for a in s.arrays)) for s in (train_set, test_set))
        epochs, batch_size = 3, 16
    epochs = options.epochs or epochs

    network = LeNet(seed=0)
    loader = Loader(train_set, batch_size, shuffle=True, seed=0, workers=1)
    # Caffe's settings for this net: inverse decay of the rate, momentum, a little weight decay.
    rate = policies.from_caffe("inv", base_lr=0.01, gamma=1e-4, power=0.75)
    optimizer = SGD(network, rate, momentum=0.9, weight_decay=5e-4)
    everything = {"network": network, "optimizer": optimizer, "loader": loader}
    checkpoint = options.out / "lenet.npz" if options.out else None
    if options.resume and checkpoint:
        ut.load(checkpoint, everything)

    print(network)
    loss, began = ut.Variable(np.array(np.nan)), time.perf_counter()
    while loader.epochs_done < epochs:
        for images, labels in loader:
            loss = ut.softmax_cross_entropy(network(images), labels)
            optimizer.clear_grads()
            loss.backward()
            optimizer.update()
            if loader.position % 100 == 0:
                seconds = time.perf_counter() - began
                print(f"batch {loader.position:4} of {len(loader)}   loss {loss.item():.3f}   {seconds:.0f} s")
        print(f"epoch {loader.epochs_done}: {accuracy(network, test_set):.2%} of the test digits read correctly")
        if checkpoint:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            ut.save(checkpoint, everything)
    return {"accuracy": accuracy(network, test_set), "loss": loss.item(), "updates": optimizer.iteration}


if __name__ == "__main__":
    main()

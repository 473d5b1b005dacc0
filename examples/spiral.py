"""A small network learns three spiral arms that no straight line separates.

    python examples/spiral.py [--out FOLDER]

The usual training loop, from data to accuracy: a Loader gives shuffled batches, a Sequential maps points to scores,
Adam moves its parameters. With --out, what the network thinks of the whole plane is drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import undertow as ut
from undertow.data import ArrayDataset, Loader, spirals
from undertow.layers import Linear, Module, Sequential, initializers
from undertow.optimizers import Adam, policies

COLOURS = np.array([[230, 97, 76], [70, 130, 200], [240, 190, 60]], np.uint8)


def make_network(seed: int) -> Module:
    rng = np.random.default_rng(seed)
    he = initializers.He()  # right for layers that feed a ReLU
    return Sequential(
        Linear(64, 2, init=he, rng=rng),
        ut.relu,
        Linear(64, 64, init=he, rng=rng),
        ut.relu,
        Linear(3, 64, rng=rng),
    )


def train(network: Module, dataset: ArrayDataset, epochs: int) -> None:
    loader = Loader(dataset, batch_size=30, shuffle=True, seed=1)
    # The rate falls to zero along a cosine, so the last steps are small ones.
    rate = policies.Cosine(0.01, length=epochs * len(loader))
    optimizer = Adam(network, rate, weight_decay=1e-4)
    for epoch in range(epochs):
        total = 0.0
        for points, arms in loader:
            loss = ut.softmax_cross_entropy(network(points), arms)
            optimizer.clear_grads()
            loss.backward()
            optimizer.update()
            total += loss.item() * len(points)
        if (epoch + 1) % max(1, epochs // 5) == 0:
            print(f"epoch {epoch + 1:4}   loss {total / len(dataset):.4f}")


def accuracy(network: Module, dataset: ArrayDataset) -> float:
    points, arms = dataset.arrays
    with ut.no_grad(), ut.test_mode():
        return ut.accuracy(network(points), arms).item()


def draw(path: Path, network: Module, dataset: ArrayDataset, size: int = 480) -> None:
    """Every pixel in the colour of its class, paler where the network is less sure; the points on top."""
    line = np.linspace(-1.2, 1.2, size, dtype=np.float32)
    plane = np.stack(np.meshgrid(line, -line), axis=-1).reshape(-1, 2)
    with ut.no_grad():
        share = ut.softmax(network(plane)).data
    picture = Image.fromarray((share @ COLOURS * 0.55 + 255 * 0.45).astype(np.uint8).reshape(size, size, 3))
    pen = ImageDraw.Draw(picture)
    for (x, y), arm in zip(*dataset.arrays, strict=True):
        column, row = (x + 1.2) / 2.4 * size, (1.2 - y) / 2.4 * size
        pen.ellipse((column - 4, row - 4, column + 4, row + 4), tuple(COLOURS[arm].tolist()), (40, 40, 40))
    picture.save(path)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="60 epochs")
    options = parser.parse_args(arguments)

    train_set = spirals(points=100, noise=0.15, seed=options.seed)
    test_set = spirals(points=100, noise=0.15, seed=options.seed + 1)
    network = make_network(options.seed)
    print(network)
    train(network, train_set, 60 if options.quick else options.epochs)
    result = {"train": accuracy(network, train_set), "test": accuracy(network, test_set)}
    print(f"right: {result['train']:.1%} of the points it learned from, {result['test']:.1%} of new ones")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        draw(options.out / "spiral.png", network, train_set)
        print(f"drawn: {options.out / 'spiral.png'}")
    return result


if __name__ == "__main__":
    main()

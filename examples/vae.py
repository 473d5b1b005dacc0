"""A variational autoencoder lays all handwritten digits out on a plane.

    python examples/vae.py [--out FOLDER]        (needs scikit-learn for its digits)

The encoder squeezes a picture into a small cloud of points in the plane (a mean and a variance); the decoder draws a
picture for a point of the cloud. The loss asks for two things: the picture shall come back, and the clouds together
shall look like one round normal distribution, so that every point of the plane means something (Kingma and Welling
2013). With --out, the decoder draws a whole map of that plane.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import undertow as ut
from undertow.data import ArrayDataset, Loader, digits
from undertow.layers import Linear, Module, Sequential, initializers
from undertow.optimizers import Adam

PIXELS, PLANE = 64, 2


class VAE(Module):
    """pictures: (batch, 64), 0 to 1."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        he = initializers.He()
        self.encoder = Sequential(Linear(256, PIXELS, init=he, rng=self.rng), ut.relu)
        self.mean = Linear(PLANE, 256, rng=self.rng)
        self.log_variance = Linear(PLANE, 256, rng=self.rng)
        self.decoder = Sequential(Linear(256, PLANE, init=he, rng=self.rng), ut.relu, Linear(PIXELS, 256, rng=self.rng))

    def loss(self, pictures: np.ndarray) -> ut.Variable:
        """Nats per picture: what is lost on the way, and the distance of the clouds from N(0, 1)."""
        hidden = self.encoder(pictures)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        # A draw from the cloud, written so that the gradient passes through mean and variance: the chance is outside.
        chance = self.rng.standard_normal(mean.shape, dtype=np.float32)
        point = mean + ut.exp(log_variance * 0.5) * chance
        lost = ut.sigmoid_cross_entropy(self.decoder(point), pictures, normalization="batch_size")
        return lost + ut.gaussian_kl_divergence(mean, log_variance) / len(pictures)

    def draw(self, points: np.ndarray) -> np.ndarray:
        """Pictures (count, 8, 8), 0 to 1, for points (count, 2) of the plane."""
        with ut.no_grad(), ut.test_mode():
            return ut.sigmoid(self.decoder(points.astype(np.float32))).data.reshape(-1, 8, 8)


def train(network: VAE, pictures: np.ndarray, epochs: int) -> float:
    """Returns the mean loss of the last epoch."""
    loader = Loader(ArrayDataset(pictures), batch_size=32, shuffle=True)
    optimizer = Adam(network, 0.002)
    losses: list[float] = []
    for epoch in range(epochs):
        losses = []
        for batch in loader:
            loss = network.loss(batch)
            optimizer.clear_grads()
            loss.backward()
            optimizer.update()
            losses.append(loss.item())
        if (epoch + 1) % max(1, epochs // 5) == 0:
            print(f"epoch {epoch + 1:3}   {np.mean(losses):.2f} nats per picture")
    return float(np.mean(losses))


def without_learning(pictures: np.ndarray) -> float:
    """Nats per picture for someone who always draws the average digit."""
    average = pictures.mean(axis=0).clip(1e-6, 1 - 1e-6)
    return float(-(pictures * np.log(average) + (1 - pictures) * np.log(1 - average)).sum(axis=1).mean())


def draw_map(path: Path, network: VAE, side: int = 15, magnify: int = 5) -> None:
    """What the decoder draws all over the plane, from -2.2 to 2.2 both ways."""
    line = np.linspace(-2.2, 2.2, side)
    points = np.stack(np.meshgrid(line, -line), axis=-1).reshape(-1, 2)
    tiles = np.pad(network.draw(points), ((0, 0), (1, 1), (1, 1)))  # a white border between the digits
    sheet = tiles.reshape(side, side, 10, 10).transpose(0, 2, 1, 3).reshape(side * 10, side * 10)
    ink = Image.fromarray((255 * (1 - sheet)).astype(np.uint8))
    ink.resize((side * 10 * magnify,) * 2, Image.Resampling.BICUBIC).save(path)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="20 epochs")
    options = parser.parse_args(arguments)

    pictures = digits().arrays[0].reshape(-1, PIXELS)
    network = VAE(seed=0)
    loss = train(network, pictures, 20 if options.quick else options.epochs)
    average = without_learning(pictures)
    print(f"{loss:.2f} nats per picture; {average:.2f} for the average digit every time")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        draw_map(options.out / "digits_map.png", network)
        print(f"drawn: {options.out / 'digits_map.png'}")
    return {"loss": loss, "average": average}


if __name__ == "__main__":
    main()

"""An LSTM listens to a noisy sine wave and then hums on by itself.

    python examples/sine_lstm.py [--out FOLDER]

It learns to foretell the next value from all earlier ones. Training walks along the wave in pieces: the state goes on
from piece to piece, the gradient's way back ends at each piece (`unchain`), or it would grow as long as the whole
history. Then the network is fed with its own answers. With --out (and matplotlib) the two waves are drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import undertow as ut
from undertow.data import sine
from undertow.layers import LSTM, Linear, Module
from undertow.optimizers import Adam


class Listener(Module):
    """waves: (steps, batch, 1). Returns what it expects next after each step, of the same shape."""

    def __init__(self, hidden: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.memory = LSTM(hidden, 1, rng=rng)
        self.mouth = Linear(1, hidden, rng=rng)

    def forward(self, waves: np.ndarray) -> ut.Variable:
        return self.mouth(self.memory(waves))


def train(network: Listener, now: np.ndarray, later: np.ndarray, epochs: int, piece: int = 40) -> float:
    optimizer = Adam(network, 0.01, clip_norm=1.0)
    for epoch in range(epochs):
        network.memory.reset_state()
        total = 0.0
        for start in range(0, len(now), piece):
            answer = network(now[start : start + piece, None])  # a batch of one wave
            loss = ut.mean_squared_error(answer, later[start : start + piece, None])
            optimizer.clear_grads()
            loss.backward()
            optimizer.update()
            network.memory.unchain()
            total += loss.item() * len(answer)
        if (epoch + 1) % max(1, epochs // 5) == 0:
            print(f"epoch {epoch + 1:3}   mean squared error {total / len(now):.5f}")
    return total / len(now)


def hum(network: Listener, heard: np.ndarray, steps: int) -> np.ndarray:
    """Listen to what was heard, then go on for some steps, each answer being the next input."""
    with ut.no_grad(), ut.test_mode():
        network.memory.reset_state()
        value = network(heard[:, None])[-1]
        answers = [value.data.item()]
        for _ in range(steps - 1):
            value = network(value.data[None])[-1]
            answers.append(value.data.item())
    return np.array(answers)


def draw(path: Path, heard: np.ndarray, hummed: np.ndarray, truth: np.ndarray) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(10, 3.2), layout="constrained")
    shown = heard[-150:, 0]
    time = np.arange(len(hummed))
    axis.plot(np.arange(-len(shown), 0), shown, color="0.6", label="heard (noisy)")
    axis.plot(time, truth, "--", color="tab:green", label="the wave without noise")
    axis.plot(time, hummed, color="tab:red", label="hummed by the network alone")
    axis.set_xlabel("step")
    axis.set_ylim(-1.3, 1.7)
    axis.legend(loc="upper center", ncols=3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="30 epochs")
    options = parser.parse_args(arguments)

    length, period = 1000, 50
    now, later = sine(length, periods=length / period, noise=0.05).arrays
    network = Listener(hidden=24, seed=0)
    error = train(network, now, later, 30 if options.quick else options.epochs)

    steps = 3 * period
    hummed = hum(network, now, steps)
    truth = np.sin(2 * np.pi * (length + np.arange(steps)) / period)
    drift = float(np.abs(hummed - truth).mean())
    print(f"three periods by itself: on average {drift:.3f} away from the true wave")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / "sine.png"
        print(f"drawn: {path}" if draw(path, now, hummed, truth) else "no picture: pip install 'undertow[charts]'")
    return {"error": error, "drift": drift}


if __name__ == "__main__":
    main()

"""A GRU reads a text letter by letter and learns to write in its manner.

    python examples/char_gru.py [--text FILE]        (by default docs/from-scratch.md of this repository)

It sees one character after the other and must say which comes next. Several places of the text are read side by side
(a batch), each by its own copy of the state. What it writes afterwards is drawn from its own probabilities.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import undertow as ut
from undertow.layers import GRU, Embedding, Linear, Module
from undertow.optimizers import Adam

DEFAULT_TEXT = Path(__file__).resolve().parents[1] / "docs" / "from-scratch.md"


class Writer(Module):
    """characters: integers (steps, batch). Returns scores for the next one, (steps, batch, alphabet)."""

    def __init__(self, alphabet: int, hidden: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.letters = Embedding(alphabet, 32, rng=rng)
        self.memory = GRU(hidden, 32, rng=rng)
        self.head = Linear(alphabet, hidden, rng=rng)

    def forward(self, characters: np.ndarray) -> ut.Variable:
        return self.head(self.memory(self.letters(characters)))


def side_by_side(numbers: np.ndarray, batch: int) -> np.ndarray:
    """The text as `batch` columns that are read in parallel, each a stretch of it: (steps, batch)."""
    steps = len(numbers) // batch
    return numbers[: steps * batch].reshape(batch, steps).T


def train(network: Writer, columns: np.ndarray, epochs: int, piece: int = 64) -> float:
    """Returns the mean loss of the last epoch, in nats (log e) per character."""
    optimizer = Adam(network, 0.005, clip_norm=5.0)
    for epoch in range(epochs):
        network.memory.reset_state()
        losses = []
        for start in range(0, len(columns) - 1, piece):
            seen = columns[start : start + piece + 1]
            scores = network(seen[:-1])
            loss = ut.softmax_cross_entropy(scores.reshape(-1, scores.shape[2]), seen[1:].reshape(-1))
            optimizer.clear_grads()
            loss.backward()
            optimizer.update()
            network.memory.unchain()
            losses.append(loss.item())
        if epoch == 0 or (epoch + 1) % 5 == 0:
            print(f"epoch {epoch + 1:3}   {np.mean(losses):.3f} nats per character")
    return float(np.mean(losses))


def write(network: Writer, alphabet: str, start: str, count: int, temperature: float = 0.6, seed: int = 0) -> str:
    """Go on from `start`. temperature: below 1 it prefers what it is sure of, above 1 it dares more."""
    rng = np.random.default_rng(seed)
    text = start
    with ut.no_grad(), ut.test_mode():
        network.memory.reset_state()
        scores = network(np.array([[alphabet.index(letter)] for letter in start]))
        for _ in range(count):
            chances = ut.softmax(scores[-1] / temperature).data[0].astype(np.float64)
            text += rng.choice(list(alphabet), p=chances / chances.sum())
            scores = network(np.array([[alphabet.index(text[-1])]]))
    return text


def entropy(numbers: np.ndarray) -> float:
    """Nats per character for someone who knows only how frequent each one is."""
    shares = np.bincount(numbers) / len(numbers)
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


def main(arguments: Sequence[str] | None = None) -> dict[str, float | str]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT, help="a text file in UTF-8")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--quick", action="store_true", help="6 epochs with a smaller network")
    options = parser.parse_args(arguments)
    if options.quick:
        options.epochs, options.hidden = 4, 96

    text = options.text.read_text(encoding="utf-8")
    alphabet = "".join(sorted(set(text)))
    numbers = np.array([alphabet.index(letter) for letter in text])
    guess, known = math.log(len(alphabet)), entropy(numbers)
    print(f"{len(text)} characters, {len(alphabet)} different ones")
    print(f"guessing costs {guess:.3f} nats per character, knowing their frequencies {known:.3f}")

    network = Writer(len(alphabet), options.hidden, seed=0)
    loss = train(network, side_by_side(numbers, 16), options.epochs)
    start = text.partition("\n\n")[2][:20] or text[:1]  # the first words after the title
    sample = write(network, alphabet, start, 400)
    print("-" * 80)
    print(sample)
    return {"loss": loss, "frequencies": known, "sample": sample}


if __name__ == "__main__":
    main()

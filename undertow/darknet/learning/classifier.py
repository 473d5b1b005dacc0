"""Training a classifier: the flow of the C program (examples/classifier.c train_classifier), with exact resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from undertow.darknet.files.class_labels import Labels, TagFiles, fill_hierarchy
from undertow.darknet.files.imagelist import ImageList
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.files.tree import ClassTree
from undertow.darknet.learning.dataset import PictureSet, Sample
from undertow.darknet.learning.saver import Output
from undertow.darknet.learning.trainer import SIZE_STEP, Trainer
from undertow.darknet.network import Network
from undertow.data.augment import ClassifierOptions, Colours, augment_classifier
from undertow.data.crand import CounterRandom
from undertow.errors import FormatError, UndertowError

# random=1: sides of 4..14 times 32, a new one every 40 iterations.
SMALLEST_STEPS, SIZES, SIZE_ITERATIONS = 4, 11, 40
LARGEST_SIZE = (SMALLEST_STEPS + SIZES - 1) * SIZE_STEP
# The draws of sizes, numbered beyond those of the samples.
_SIZE_COUNTER = 1 << 48
_LOOKED_AT = 20_000

Augmentation = Callable[[int], ClassifierOptions]


class ClassifierSet(PictureSet):
    """The pictures of a list with their classes; `sample` gives any sample of a training run by its number.

    labels: tell the classes of a picture. classes: values of the truth. augmentation: from the side of the net's input
    to what is done to pictures. tree: a class hierarchy. About unreadable pictures see `PictureSet`.
    """

    def __init__(
        self,
        images: ImageList,
        labels: Labels,
        classes: int,
        augmentation: Augmentation,
        *,
        tree: ClassTree | None = None,
        seed: int = 0,
        channels: int = 3,
        strict: bool = False,
    ) -> None:
        super().__init__(images, seed=seed, channels=channels, strict=strict)
        self.labels, self.classes, self.tree = labels, classes, tree
        self._augmentation = augmentation
        augmentation(1)

    def sample(self, counter: int, size: tuple[int, int]) -> Sample:
        """Sample number `counter` of the run, for a net of `size` (width, height), which is square.

        Which picture, and what is done to it, follows from (seed, counter) and the files alone. Raises FormatError
        when no picture of the list can be read.
        """
        random = CounterRandom(self.seed, counter)
        index, pixels = self.drawn(random)
        try:
            # Grey pictures go through the colours as three equal channels.
            picture = np.repeat(pixels, 3, axis=2) if self.channels == 1 else pixels
            floats = np.divide(picture.transpose(2, 0, 1), np.float32(255), dtype=np.float32, order="C")
            image = augment_classifier(floats, self._augmentation(size[0]), random)[: self.channels]
            truth = self.truth(self.paths[index])
        except UndertowError:
            raise
        except Exception as error:
            raise UndertowError(f"the picture cannot be made ready: {error}", file=self.paths[index]) from error
        return Sample(np.ascontiguousarray(image), truth, self.paths[index])

    def truth(self, path: str) -> np.ndarray:
        """(classes,): 1 for the classes of a picture and, in a tree, their parents."""
        truth = self.labels.truth(path, self.classes)
        return truth if self.tree is None else fill_hierarchy(truth, self.tree)

    def findings(self) -> list[str]:
        """What is odd about the classes of the pictures, looking at 20,000 of them at most.

        Raises FormatError when none of them has a class.
        """
        looked = self.paths[:: max(1, len(self.paths) // _LOOKED_AT)]
        counts = [len(self.labels.all_in(path)) for path in looked]
        lines = [f"{len(self.paths)} pictures to learn from, {self.classes} classes"]
        without = [path for path, count in zip(looked, counts, strict=True) if not count]
        several = [path for path, count in zip(looked, counts, strict=True) if count > 1]
        if len(without) == len(looked):
            tags = isinstance(self.labels, TagFiles)
            raise FormatError(
                f"no picture {'has a file of tags' if tags else 'has a label in its path'}, the first is {looked[0]}",
                file=self.file,
                remedy="write class numbers to labels/NAME.txt" if tags else "correct labels=, or name folders by them",
            )
        of = f"of {len(looked)} pictures" if len(looked) < len(self.paths) else "pictures"
        if without:
            lines.append(f"{len(without)} {of} have no class, the first is {without[0]}: they teach that it is none")
        if several and not isinstance(self.labels, TagFiles):
            lines.append(f"{len(several)} {of} have more than one label in their path, the first is {several[0]}")
        if self.missing:
            lines.append(f"{len(self.missing)} pictures of the list are not there, the first: {self.missing[0]}")
        return lines


def augmentation_of(net: Network, mirror: bool = True) -> Augmentation:
    """What [net] asks to be done to pictures, for a side of the net's input. mirror: they may be mirrored."""
    given = net.options
    colours = Colours(given.hue, given.saturation, given.exposure)

    def options(side: int) -> ClassifierOptions:
        low, high = (int(np.float32(ratio) * np.float32(side)) for ratio in (given.min_ratio, given.max_ratio))
        return ClassifierOptions(
            max(low, 1),
            max(high, 1),
            side,
            given.angle,
            given.aspect,
            colours,
            given.center,
            given.flip and mirror,
        )

    return options


def check_classifier(shapes: NetworkShapes, classes: int) -> None:
    """Raise FormatError when a net cannot learn so many classes from pictures."""
    net = shapes.net
    if not net.channels or net.width != net.height:
        shape = f"{net.width} x {net.height}" if net.channels else f"{net.inputs} values"
        raise FormatError(
            f"a classifier learns from square pictures, the net takes {shape}",
            file=shapes.file,
            line=shapes.line,
            remedy="set width= and height= to the same number",
        )
    if shapes.truths != classes:
        raise FormatError(
            f"the net gives {shapes.truths} values, the .data file says classes={classes}",
            file=shapes.file,
            line=shapes.output.line,
            layer=shapes.output.index,
            remedy=f"let the last layers give {classes} values, or correct classes=",
        )


class ClassifierOutput(Output):
    """Where a classifier's training writes: NAME_EPOCH.weights after each round through the pictures, NAME.weights."""

    @property
    def final(self) -> Path:
        return self.folder / f"{self.name}.weights"


class ClassifierTrainer(Trainer):
    """Trains a network on a ClassifierSet; arguments and errors as for `Trainer`.

    The weights are kept after each round through the pictures, under the number of rounds, unless save_every is given.
    """

    measure = "accuracy"

    def _sizes_vary(self) -> bool:
        return self.net.options.random

    def size_at(self, iteration: int) -> tuple[int, int]:
        """(width, height) in the iteration after so many; with random=1 a new one every 40 iterations."""
        if not self._multi_scale:
            return self._size
        draw = CounterRandom(self.options.seed, _SIZE_COUNTER + iteration // SIZE_ITERATIONS).index(SIZES)
        side = (draw + SMALLEST_STEPS) * SIZE_STEP
        return side, side

    def _after_iteration(self) -> None:
        super()._after_iteration()
        seen, count = self.net.seen, len(self.pictures)
        epoch = seen // count
        if not self.options.save_every and epoch > (seen - self.images_per_iteration) // count:
            self._save(self.output.numbered(epoch))

    def _keeps_weights(self, number: int) -> bool:
        return bool(self.options.save_every) and super()._keeps_weights(number)

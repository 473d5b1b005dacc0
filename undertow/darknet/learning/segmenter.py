"""Training segmenters from pictures with masks (examples/segmenter.c, instance-segmenter.c; src/data.c).

`segmenter` learns for each pixel of its output which classes are there, `isegmenter` which object too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.darknet.files.imagelist import ImageList
from undertow.darknet.files.masks import Mask, read_all_masks
from undertow.darknet.files.options_heads import IsegOptions
from undertow.darknet.files.shapes import NetworkShapes
from undertow.darknet.layers.layers_loss import HeadLayer, LossLayer
from undertow.darknet.layers.sections import LAYERS
from undertow.darknet.learning.classifier import ClassifierTrainer
from undertow.darknet.learning.dataset import PictureSet, Sample
from undertow.darknet.network import Network
from undertow.data.augment import ClassifierDraw, ClassifierOptions, Colours, draw_classifier
from undertow.data.colour import distort_image
from undertow.data.crand import CounterRandom
from undertow.data.resize import Picture, flip_image, resize_image
from undertow.data.rotate import rotate_crop_image
from undertow.errors import FormatError, UndertowError

# Objects in the truth of an iseg layer (iseg_layer.c: l.truths).
INSTANCES = 90


class SegmentationSet(PictureSet):
    """The pictures of a list with the masks of their objects; `sample` gives any sample of a run by its number.

    classes: of the masks. augmentation: what is done to pictures. cells: (width, height) of the net's output.
    instances: the truth lists up to 90 objects, a class and a mask of the output's size each, -1 after the last;
    otherwise it is a map of 0..1 for each class.
    Raises FormatError for files of masks that are missing or broken. About unreadable pictures see `PictureSet`.
    """

    def __init__(
        self,
        images: ImageList,
        classes: int,
        augmentation: ClassifierOptions,
        cells: tuple[int, int],
        instances: bool,
        *,
        seed: int = 0,
        channels: int = 3,
        strict: bool = False,
    ) -> None:
        super().__init__(images, seed=seed, channels=channels, strict=strict)
        self.classes, self.augmentation, self.cells, self.instances = classes, augmentation, cells, instances
        self.masks = read_all_masks(self.paths, classes)

    def sample(self, counter: int, size: tuple[int, int]) -> Sample:
        """Sample number `counter` of the run, for a net of `size` (width, height), in the original's order of draws.

        Which picture, and what is done to it, follows from (seed, counter) and the files alone. Raises FormatError
        when no picture of the list can be read.
        """
        random = CounterRandom(self.seed, counter)
        index, pixels = self.drawn(random)
        height, width = pixels.shape[:2]
        draw = draw_classifier(random, (width, height), self.augmentation)
        try:
            # Grey pictures go through the colours as three equal channels.
            picture = np.repeat(pixels, 3, axis=2) if self.channels == 1 else pixels
            floats = np.divide(picture.transpose(2, 0, 1), np.float32(255), dtype=np.float32, order="C")
            image = distort_image(
                _viewed(floats, draw, size), float(draw.hue), float(draw.saturation), float(draw.exposure)
            )
            masks, whole = self.masks[index], (width, height)
            if self.instances:
                truth = instance_truth(masks, whole, draw, size, self.cells)
            else:
                truth = class_maps(masks, whole, draw, size, self.cells, self.classes)
        except UndertowError:
            raise
        except Exception as error:
            raise UndertowError(f"the picture cannot be made ready: {error}", file=self.paths[index]) from error
        return Sample(np.ascontiguousarray(image[: self.channels]), truth.reshape(-1), self.paths[index])

    @property
    def crowded(self) -> int:
        """Pictures with more objects than the truth has room for."""
        return sum(len(masks) > INSTANCES for masks in self.masks) if self.instances else 0

    def findings(self) -> list[str]:
        """What the lists and masks hold, for the log."""
        objects = sum(map(len, self.masks))
        lines = [f"{len(self.paths)} pictures to learn from, {objects} objects of {self.classes} classes"]
        absent = sum(not masks for masks in self.masks)
        if absent:
            lines.append(f"{absent} pictures have no object")
        if self.crowded:
            lines.append(f"{self.crowded} pictures hold more than the {INSTANCES} objects that count")
        if self.missing:
            lines.append(f"{len(self.missing)} pictures of the list are not there, the first: {self.missing[0]}")
        return lines


def instance_truth(
    masks: Sequence[Mask],
    picture: tuple[int, int],
    draw: ClassifierDraw,
    size: tuple[int, int],
    cells: tuple[int, int],
) -> Picture:
    """(90, 1 + cells): class and mask of each object, -1 after the last (src/data.c fill_truth_iseg).

    Each mask of a picture (width, height) is seen as the picture is, in the net's size, and shrunk to the cells.
    """
    columns, rows = cells
    truth = np.zeros((INSTANCES, 1 + rows * columns), np.float32)
    for place, mask in enumerate(masks[:INSTANCES]):
        seen = resize_image(_viewed(mask.pixels(picture)[None], draw, size), columns, rows)
        truth[place, 0], truth[place, 1:] = mask.label, seen.reshape(-1)
    if len(masks) < INSTANCES:
        truth[len(masks), 0] = -1
    return truth


def class_maps(
    masks: Sequence[Mask],
    picture: tuple[int, int],
    draw: ClassifierDraw,
    size: tuple[int, int],
    cells: tuple[int, int],
    classes: int,
) -> Picture:
    """(classes, rows, columns): all masks of a class together, seen as the picture is, from as many times further away
    as a cell has pixels (src/data.c load_data_seg).
    """
    columns, rows = cells
    truth = np.zeros((classes, rows, columns), np.float32)
    for label in {mask.label for mask in masks}:
        together = np.max([mask.pixels(picture) for mask in masks if mask.label == label], axis=0)
        truth[label] = _viewed(together[None], draw, cells, size[0] // columns)[0]
    return truth


def _viewed(picture: Picture, draw: ClassifierDraw, size: tuple[int, int], shrunk: int = 1) -> Picture:
    """The view that was drawn, (c, h, w) -> (c, *size), from so many times as far away."""
    assert draw.view is not None
    radians, scale, dx, dy, aspect = draw.view
    seen = rotate_crop_image(picture, radians, scale / shrunk, *size, dx / shrunk, dy / shrunk, aspect)
    return flip_image(seen) if draw.flip else seen


class SegmenterTrainer(ClassifierTrainer):
    """Trains a network on a SegmentationSet; arguments and errors as for `Trainer`."""

    measure = "accuracy"

    def _sizes_vary(self) -> bool:
        return False


def augmentation_of(net: Network, mirror: bool = True) -> ClassifierOptions:
    """What [net] asks to be done to pictures: the shorter side gets min_crop..max_crop long, then a part is cut.

    mirror: they may be mirrored.
    """
    given = net.options
    colours = Colours(given.hue, given.saturation, given.exposure)
    return ClassifierOptions(
        max(given.min_crop, 1), max(given.max_crop, 1), net.w, given.angle, given.aspect, colours, False,
        given.flip and mirror,
    )  # fmt: skip


def check_segmenter(shapes: NetworkShapes, instances: bool) -> None:
    """Raise FormatError when a net cannot learn masks from pictures."""
    last, net = shapes[-1].type, shapes.net
    if instances and last != "iseg":
        raise _wrong(shapes, f"the last layer is [{last}], not [iseg]", "end the cfg in [iseg], or use segmenter")
    if issubclass(LAYERS[last], HeadLayer):
        use = "end the cfg in [logistic], [softmax] or [cost], or use detector"
        raise _wrong(shapes, f"the last layer is [{last}], which finds boxes", use)
    if not instances and (last == "iseg" or not issubclass(LAYERS[last], LossLayer)):
        what = f"the last layer is [{last}], which learns no map for each class"
        raise _wrong(shapes, what, "end the cfg in [logistic], [softmax] or [cost]; with [iseg] use isegmenter")
    if net.channels and shapes.output.out_shape[1:] in ((0, 0), (1, 1)):
        what = "the net gives one answer for the whole picture, as classifiers do, and none for its parts"
        raise _wrong(shapes, what, "use classifier, or leave out the [avgpool] or [connected] before the last layers")
    w, h, (_, height, width) = net.width, net.height, shapes.output.out_shape
    if not net.channels or not width or w % width or h % height or w // width != h // height:
        what = f"an output of {width} x {height} cells does not divide an input of {w} x {h} pixels evenly"
        raise _wrong(shapes, what, "let strides divide width= and height= alike")


def classes_of(shapes: NetworkShapes) -> int:
    """Classes of the masks that a net learns."""
    last = shapes[-1].options
    return last.classes if isinstance(last, IsegOptions) else shapes.output.out_shape[0]


def _wrong(shapes: NetworkShapes, reason: str, remedy: str) -> FormatError:
    output = shapes.output
    return FormatError(reason, file=shapes.file, line=output.line, layer=output.index, remedy=remedy)

"""What the trained net finds in pictures it has never seen: single pictures and a contact sheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from undertow.darknet.detection.detector import as_picture, detect
from undertow.darknet.detection.draw import draw_detections, save_image
from undertow.darknet.network import Network
from undertow.data.resize import Picture

COLUMNS, ROWS, MARGIN = 4, 3, 6


def draw_predictions(net: Network, pictures: Sequence[Path], folder: Path, sheet: Path) -> None:
    """Write each picture with its boxes into the folder, and the first twelve side by side as `sheet`."""
    folder.mkdir(exist_ok=True)
    drawn = []
    for path in pictures:
        picture = as_picture(path)
        boxed = draw_detections(picture, detect(net, picture), len(net.names))
        save_image(boxed, folder / path.name)
        drawn.append(boxed)
    save_image(contact_sheet(drawn[: COLUMNS * ROWS]), sheet)


def contact_sheet(pictures: Sequence[Picture]) -> Picture:
    """Pictures of one size side by side, (3, h, w) each, with white gaps; as many rows as they need."""
    _, height, width = pictures[0].shape
    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = np.ones((3, rows * (height + MARGIN) + MARGIN, columns * (width + MARGIN) + MARGIN), np.float32)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        top, left = row * (height + MARGIN) + MARGIN, column * (width + MARGIN) + MARGIN
        sheet[:, top : top + height, left : left + width] = picture
    return sheet

"""Window files, as WindowData layers read them: pictures with rectangles, their classes and overlaps.

# 0                        the number of the picture, from 0
path/to/picture.jpg
3 480 640                  channels, height, width
2                          how many windows follow
1 0.9 10 20 99 119         class, overlap with an object, x1, y1, x2, y2
0 0.1 0 0 50 50
"""

from __future__ import annotations

from typing import NamedTuple

from undertow.caffe.data.feed import PathLike, read_lines
from undertow.errors import FormatError


class Window(NamedTuple):
    """A rectangle in a picture, corners inside it. image: the number of the picture."""

    image: int
    label: int
    x1: int
    y1: int
    x2: int
    y2: int


class WindowFile(NamedTuple):
    """images: paths. channels: of the last picture. foreground, background: windows."""

    images: list[str]
    channels: int
    foreground: list[Window]
    background: list[Window]


class _Words:
    """The words of a file, each with its line."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._words = [(word, number) for number, line in enumerate(read_lines(path), 1) for word in line.split()]
        self._at = 0

    @property
    def left(self) -> bool:
        return self._at < len(self._words)

    @property
    def line(self) -> int:
        return self._words[min(self._at, len(self._words)) - 1][1]

    def text(self, what: str) -> str:
        if not self.left:
            raise FormatError(
                f"the file ends where {what} should be",
                file=self.path,
                line=self.line,
                remedy="the file is cut off, or a number of windows in it is wrong",
            )
        self._at += 1
        return self._words[self._at - 1][0]

    def number(self, what: str) -> float:
        word = self.text(what)
        try:
            return float(word)
        except ValueError:
            raise FormatError(
                f"{what} should be a number, not '{word}'",
                file=self.path,
                line=self.line,
                remedy="correct the line; paths with spaces are not possible",
            ) from None

    def whole(self, what: str) -> int:
        value = self.number(what)
        if not -(2**31) <= value < 2**31 or value != int(value):
            raise FormatError(
                f"{what} should be a whole number, not {value:g}",
                file=self.path,
                line=self.line,
                remedy="write it without a point, or correct the line before",
            )
        return int(value)


def read_window_file(path: PathLike, foreground_from: float, background_below: float) -> WindowFile:
    """The windows of a file: foreground where the overlap is at least `foreground_from`, background where it is less
    than `background_below` (its class is 0 then), others are left out.

    Raises FormatError with the line.
    """
    words = _Words(path)
    images: list[str] = []
    channels = 0
    foreground: list[Window] = []
    background: list[Window] = []
    while words.left:
        mark = words.text("'#'")
        number = words.whole("the number of the picture") if mark == "#" else -1
        if number != len(images):
            raise FormatError(
                f"'# {len(images)}' should begin the next picture",
                file=path,
                line=words.line,
                remedy="correct the number of windows of the picture before",
            )
        images.append(words.text("the path of the picture"))
        channels, _, _ = (words.whole(what) for what in ("channels", "height", "width"))
        for _ in range(words.whole("the number of windows")):
            label, overlap = words.whole("a class"), words.number("an overlap")
            window = Window(number, label, *(words.whole(what) for what in ("x1", "y1", "x2", "y2")))
            if overlap >= foreground_from:
                if label < 1:
                    raise FormatError(f"a window with an object has class {label}", file=path, line=words.line,
                                      remedy="classes of objects are counted from 1")  # fmt: skip
                foreground.append(window)
            elif overlap < background_below:
                background.append(window._replace(label=0))
    for found, kind in ((foreground, "foreground"), (background, "background")):
        if not found:
            raise FormatError(f"there is no {kind} window", file=path, remedy="change the thresholds or add windows")
    return WindowFile(images, channels, foreground, background)

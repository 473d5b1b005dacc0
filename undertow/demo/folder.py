"""The folder that the demo fills: its own, never someone else's."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from PIL import Image

from undertow.darknet.files.cfg import parse_cfg
from undertow.darknet.learning.prefetch import Prefetcher
from undertow.demo.scenes import NAMES, SceneMaker
from undertow.errors import UndertowError
from undertow.files import atomic_write

MARK = ".undertow-demo"
_OTHER = "give another name: undertow demo NAME"
README = """A run of `undertow demo`: a small detector of the YOLOv3 kind has learned to find handwritten digits
in photographs.

predictions.jpg          what it finds in pictures it has never seen (digits and photographs both held out)
predictions/             the same, one picture each
chart.png                loss and mAP over the training; the numbers are in digits_log.csv and digits_map.csv
digits.cfg               the network; digits.data, digits.names, train.txt, test.txt name its pictures
train/, test/            the pictures with their labels
digits_final.weights     what it has learned, in Darknet's format
digits.backup            the last state of the training, which can be gone on with

The original Darknet program loads these files too, from within this folder:
    darknet detector test digits.data digits.cfg digits_final.weights test/0003.jpg -out found
"""


class DemoFolder:
    """Where everything of a run stands.

    Raises UndertowError for a folder that holds other things than a run of the demo.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_dir():
            raise UndertowError(
                "this is a file, not a folder", file=path, remedy="give another name: undertow demo NAME"
            )
        if path.is_dir() and any(path.iterdir()) and not (path / MARK).exists():
            raise UndertowError(
                "this folder holds other files, and the demo does not write among them",
                file=path,
                remedy=_OTHER,
            )
        path.mkdir(parents=True, exist_ok=True)
        (path / MARK).touch()

    @property
    def cfg(self) -> Path:
        return self.path / "digits.cfg"

    @property
    def data(self) -> Path:
        return self.path / "digits.data"

    @property
    def weights(self) -> Path:
        return self.path / "digits_final.weights"

    @property
    def chart(self) -> Path:
        return self.path / "chart.png"

    @property
    def sheet(self) -> Path:
        return self.path / "predictions.jpg"

    def pictures(self, part: str) -> list[Path]:
        """The pictures of "train" or "test", in order."""
        return sorted((self.path / part).glob("*.jpg"))

    def write_texts(self, iterations: int | None) -> None:
        """The cfg, names, data and read-me files. iterations: another length of the training than the cfg's own."""
        self._write("README.txt", README)
        self._write("digits.cfg", cfg_text(iterations))
        self._write("digits.names", "".join(f"{name}\n" for name in NAMES))
        files = f"train = train.txt\nvalid = test.txt\nnames = digits.names\nbackup = {self.path}\n"
        self._write("digits.data", f"classes = {len(NAMES)}\n{files}")

    def make_pictures(self, part: str, count: int, seed: int) -> Iterator[int]:
        """Make the pictures of "train" or "test" with their labels and list; yields how many are there."""
        folder = self.path / part
        folder.mkdir(exist_ok=True)
        maker = SceneMaker(part == "train", seed)
        for old in self.pictures(part)[count:]:
            old.unlink()

        def make(number: int) -> str:
            scene = maker.scene(number)
            picture = folder / f"{number:04}.jpg"
            with atomic_write(picture) as stream:
                Image.fromarray(scene.pixels).save(stream, format="JPEG", quality=92, subsampling=0)
            labels = (f"{label} {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n" for label, x, y, w, h in scene.labels)
            picture.with_suffix(".txt").write_text("".join(labels), encoding="ascii")
            return f"{part}/{picture.name}\n"

        with Prefetcher(make, workers=2, ahead=8, count=count) as made:
            lines = []
            for line in made:
                lines.append(line)
                yield len(lines)
        self._write(f"{part}.txt", "".join(lines))

    def _write(self, name: str, text: str) -> None:
        with atomic_write(self.path / name, "w", encoding="utf-8") as stream:
            stream.write(text)


def cfg_text(iterations: int | None = None) -> str:
    """The demo's cfg; with another number of iterations its steps move in proportion.

    Burn-in takes half of them at most; a shorter one reaches a lower rate, since nets that get the full rate so soon
    diverge.
    """
    text = resources.files("undertow.demo").joinpath("digits.cfg").read_text(encoding="utf-8")
    if iterations is None:
        return text
    from undertow.darknet.files.options import read_net_options

    config = parse_cfg(text, "digits.cfg")
    net = read_net_options(config)
    share = iterations / net.max_batches
    burn_in = min(net.burn_in, iterations // 2)
    values = {
        "max_batches": iterations,
        "burn_in": burn_in,
        "learning_rate": net.learning_rate * max(burn_in, 1) / net.burn_in,
        "steps": [int(step * share) for step in net.steps],
    }
    return config.with_values(0, values).to_text()

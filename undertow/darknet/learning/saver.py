"""Writing the files of a training, so that a full disk costs a save and not the training."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from undertow.darknet.files.cfg import Config
from undertow.darknet.learning.checkpoint import Progress, previous_path, save_checkpoint
from undertow.darknet.learning.nonfinite import check_parameters
from undertow.darknet.network import Network
from undertow.errors import FormatError, UndertowError, UndertowWarning
from undertow.files import remove_leftovers

_REMEDY = "make room on the disk, or correct the permissions of the folder"


@dataclass(frozen=True)
class Output:
    """Where a training writes. folder: for weights. name: of the net, from its cfg."""

    folder: Path
    name: str

    @property
    def backup(self) -> Path:
        return self.folder / f"{self.name}.backup"

    def numbered(self, iteration: int) -> Path:
        return self.folder / f"{self.name}_{iteration}.weights"

    @property
    def best(self) -> Path:
        return self.folder / f"{self.name}_best.weights"

    @property
    def final(self) -> Path:
        return self.folder / f"{self.name}_final.weights"

    @property
    def nonfinite(self) -> Path:
        """What is known about the first number that was not finite."""
        return self.folder / f"{self.name}_nonfinite.json"


class Saver:
    """Writes checkpoints and weights of a net. saved: is told each file that was written. settings: see
    `save_checkpoint`.

    A file that cannot be written while the training goes on is told by one UndertowWarning, and tried again when the
    next is due; only `last` raises. broken: NAME.backup is known to be broken, so it must not become the previous one.
    """

    def __init__(
        self,
        net: Network,
        output: Output,
        config: Config,
        images: tuple[str, ...],
        saved: Callable[[Path], None],
        settings: Callable[[], dict[str, str]],
    ) -> None:
        self.net, self.output = net, output
        self._config, self._images, self._saved, self._settings = config, images, saved, settings
        self.broken = False
        self.checkpoint_at: int | None = None
        self._told = False

    def make_folder(self) -> list[Path]:
        """Make the folder, and remove what killed runs left half written in it; the files removed."""
        folder = self.output.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UndertowError(
                f"the folder for the weights cannot be made: {problem.strerror or problem}",
                file=folder,
                remedy="correct backup= in the .data file",
            ) from problem
        return remove_leftovers(folder)

    def checkpoint(self, progress: Progress) -> None:
        """Write NAME.backup and, beside it, what exact resuming needs; nothing when that was just done.

        Raises NonFiniteError for ruined parameters, OSError or FormatError where nothing can be written; the files
        stay as they were.
        """
        if self.checkpoint_at == self.net.seen:
            return
        check_parameters(self.net)
        self._write(self.output.backup, progress, self.broken)
        self.broken = False
        self.checkpoint_at = self.net.seen
        self._saved(self.output.backup)

    def _write(self, path: Path, progress: Progress, broken: bool = False) -> None:
        settings = self._settings()
        save_checkpoint(path, self.net, progress, self._config, self._images, settings=settings, broken=broken)

    def weights(self, path: Path) -> None:
        """Write the weights alone; errors as for `checkpoint`."""
        check_parameters(self.net)
        self.net.save_weights(path)
        self._saved(path)

    def attempt(self, path: Path, write: Callable[[], None]) -> bool:
        """Write a file in the midst of the training; whether it is there now."""
        try:
            write()
        except (OSError, FormatError) as problem:
            if not self._told:
                self._told = True
                reason = f"cannot be written: {_why(problem)}; training goes on, and tries again at the next save"
                warnings.warn(UndertowWarning(f"{path}: {reason}. To mend it: {_REMEDY}"), stacklevel=2)
            return False
        self._told = False
        return True

    def last(self, progress: Progress, iteration: int, done: bool) -> Path:
        """Write what the training leaves behind: NAME_final.weights when it is done, and the checkpoint.

        Returns the path to use or to go on with. Raises UndertowError when that file cannot be written: it says where
        the result is, which is kept in the folder for temporary files if need be.
        """
        wanted = self.output.final if done else self.output.backup
        try:
            if done:
                # Before the checkpoint: a kill between the two leaves one from which the end is reached again.
                self.weights(wanted)
            else:
                self.checkpoint(progress)
        except (OSError, FormatError) as problem:
            kept = self._kept(progress)
            raise UndertowError(
                f"the result of iteration {iteration} cannot be written: {_why(problem)}; {kept}",
                file=wanted,
                remedy=_REMEDY,
            ) from problem
        if done:
            self.attempt(self.output.backup, lambda: self.checkpoint(progress))
        return wanted

    def _kept(self, progress: Progress) -> str:
        """Where the result of the last iteration is kept after all, or what is left."""
        backup = self.output.backup
        try:
            self.checkpoint(progress)
            return f"{backup} holds the same weights"
        except (OSError, FormatError):
            pass
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{self.output.name}-"))
            self._write(folder / backup.name, progress)
        except (OSError, FormatError) as problem:
            if backup.exists():
                before = f"; {previous_path(backup)} the one before" if previous_path(backup).exists() else ""
                return f"nor elsewhere ({_why(problem)}). {backup} holds the last save that succeeded{before}"
            return f"nor elsewhere ({_why(problem)}), and no earlier save succeeded"
        return f"it was kept as {folder / backup.name}, which can be used, and gone on with, like {backup.name}"


def _why(problem: OSError | FormatError) -> str:
    if isinstance(problem, FormatError):
        return problem.reason.removeprefix("cannot be written: ")
    return problem.strerror or str(problem)

"""Every input file of a training changed by chance: the commands give a result, or one error of this project."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from undertow.cli import main

WORDS = (
    b"-1",
    b"0",
    b"99999999999",
    b"nan",
    b"inf",
    b"1e9",
    b'""',
    b"{",
    b"}",
    b":",
    b'"',
    b"\0",
    b"true",
    b"4294967295",
)
TIME, TRAIN = "time --iterations=1 --model=", "train --solver=solver.prototxt"
RESUME = f"{TRAIN} --snapshot=snap_iter_2.solverstate"
# The file that is changed -> the command that reads it.
COMMANDS = {
    "net.prototxt": f"{TIME}net.prototxt",
    "solver.prototxt": TRAIN,
    "list.txt": f"{TIME}net.prototxt",
    "rows.h5": f"{TIME}net.prototxt",
    "data.prototxt": f"{TIME}data.prototxt",
    "db/data.mdb": "compute_image_mean db mean.binaryproto",
    "images.prototxt": f"{TIME}images.prototxt",
    "images.txt": "convert_imageset ./ images.txt new_db",
    "0.png": f"{TIME}images.prototxt",
    "windows.prototxt": f"{TIME}windows.prototxt",
    "windows.txt": f"{TIME}windows.prototxt",
    "snap_iter_2.caffemodel": "test --model=net.prototxt --iterations=1 --weights=snap_iter_2.caffemodel",
    "snap_iter_2.solverstate": RESUME,
    "snap_iter_2.resume.npz": RESUME,
}
PER_FILE = 12


def changed(data: bytes, text: bool, rng: random.Random) -> bytes:
    """A few words of a text, or a few bytes, replaced, taken out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if not found:
            break
        place, how = rng.randrange(len(found)), rng.randrange(5)
        if text and how < 3:
            first, last = rng.choice([match.span() for match in re.finditer(rb"[\w.]+|.", bytes(found), re.DOTALL)])
            found[first:last] = rng.choice(WORDS)
        elif how == 0:
            found[place] = rng.randrange(256)
        elif how == 1:
            del found[place : place + rng.randrange(1, 20)]
        elif how == 2:
            found[place:place] = rng.randbytes(rng.randrange(1, 6))
        elif how == 3:
            del found[place:]
        else:
            found[place:place] = found[: rng.randrange(1, 40)]
    return bytes(found)


@pytest.mark.filterwarnings("default::undertow.errors.UndertowWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_result_or_one_error(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    whole, rng = (folder / name).read_bytes(), random.Random(name)
    for _ in range(PER_FILE):
        (folder / name).write_bytes(changed(whole, name.endswith(("prototxt", "txt")), rng))
        capsys.readouterr()
        status = main(["caffe", *COMMANDS[name].split()])
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert (status, len(errors)) in ((0, 0), (2, 1))
        assert all(". To mend it: " in line for line in errors), errors

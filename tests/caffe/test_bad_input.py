"""Bad files and words of every kind, given to the commands: one line that tells where, why and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.caffe.inputs import NET, SOLVER, database, datum
from undertow.caffe.proto import Message, new_message, read_caffemodel, read_solverstate
from undertow.caffe.proto.api import write_binary
from undertow.cli import main

pytest.importorskip("lmdb")


def swap(name: str, old: str, new: str) -> Callable[[Path], object]:
    """In a text file, one thing for another."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def content(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def records(*given: Message | bytes) -> Callable[[Path], object]:
    return lambda folder: database(folder, *given)


def model(edit: Callable[[Message], None]) -> Callable[[Path], object]:
    """Change the caffemodel; `edit` gets the InnerProduct."""

    def change(folder: Path) -> None:
        net = read_caffemodel("snap_iter_2.caffemodel").copy()
        edit(next(layer for layer in net.layer if layer.name == "ip"))
        write_binary(net, "edited.caffemodel")

    return change


def state(edit: Callable[[Message], None]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        message = read_solverstate("snap_iter_2.solverstate").copy()
        edit(message)
        write_binary(message, "snap_iter_2.solverstate")

    return change


def rows(**datasets: np.ndarray) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        with h5py.File("rows.h5", "w") as file:
            for name, values in datasets.items():
                file[name] = values

    return change


def cut(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return change


def nothing(folder: Path) -> None:
    """The fault is in the words alone."""


def net(old: str, new: str) -> Callable[[Path], object]:
    return swap("net.prototxt", old, new)


def loaded(data: bytes) -> Callable[[Path], object]:
    return content("edited.caffemodel", data)


FEW = np.zeros((3, 5), np.float32)
TIME, TRAIN = "time --model=net.prototxt --iterations=1", "train --solver=solver.prototxt"
TEST = "test --model=net.prototxt --iterations=1 --weights=edited.caffemodel"
RESUME = TRAIN + " --snapshot=snap_iter_2.solverstate"
READ, LOOK, CROP = (f"time --model={name}.prototxt --iterations=1" for name in ("data", "images", "windows"))
CASES: list[tuple[Callable[[Path], object], str, str, str]] = [
    # nets
    (net("num_output: 3", "num_output: -3"), TIME, r"net\.prototxt:4: num_output .* not -3", "from 0"),
    (net("num_output: 3", "num_output: 2000000000"), TIME, r":3: layer 'ip' .*needs \d+.*GiB", "batch"),
    (net('name: "ip" ', 'name: "ip '), TIME, r"net\.prototxt:3: expected ':' or '{'", "NAME: VALUE"),
    (net('bottom: "data" ', ""), TIME, r":3: layer 'ip' .*takes 1 bottom blob, got 0", "name 1 bottom"),
    (net('bottom: "data"', 'bottom: "loss"'), TIME, r":3: layer ip: unknown bottom blob 'loss'", "below"),
    (net("num_output: 3", "num_output: 3 axis: 7"), TIME, r":4: layer 'ip' .*axis 7 is out", "from -2"),
    (net("batch_size: 4", "batch_size: 0"), TIME, r":2: layer 'd' \(HDF5Data\): batch_size", "batch_size"),
    (
        net('"InnerProduct"', '"InnerProduct" param { lr_mult: nan }'), TIME,
        r":3: layer 'ip' .*lr_mult nan and decay_mult 1: both are finite", "lr_mult: 1",
    ),
    (
        net('top: "loss" }', 'top: "loss" loss_weight: inf }'), TIME,
        r":5: layer 'loss' .*loss_weight is not a finite number", "loss_weight: 1",
    ),
    (content("net.prototxt", SOLVER.encode()), TIME, r"net\.prototxt:1: NetParameter has no field", "like a solver"),
    (content("net.prototxt", b"<!DOCTYPE html>\n"), TIME, r"net\.prototxt:1: expected the name of a field", "web page"),
    # solvers
    (content("solver.prototxt", NET.encode()), TRAIN, r"solver\.prototxt:1: SolverParameter has no field", "a net"),
    (swap("solver.prototxt", "0.1", "nan"), TRAIN, r"solver\.prototxt:2: base_lr must be a finite number", "0.01"),
    (swap("solver.prototxt", "net.pro", "none.pro"), TRAIN, r"none\.prototxt: cannot be read", "check the path"),
    # rows
    (swap("list.txt", "rows", "none"), TIME, r":2: layer 'd' .*none\.h5: there is no such file", "paths in the list"),
    (content("rows.h5", b"not HDF5"), TIME, r":2: layer 'd' .*rows\.h5: cannot be read as HDF5", "make the file again"),
    (cut("rows.h5"), TIME, r":2: layer 'd' .*rows\.h5: cannot be read as HDF5", "make the file again"),
    (rows(data=FEW), TIME, r"rows\.h5: there is no dataset 'label'", "here is 'data'"),
    (rows(data=FEW, label=np.zeros(4)), TIME, r"rows\.h5: 'label' has 4 rows, 'data' has 3", "as many rows"),
    (rows(data=np.array([b"a"]), label=np.zeros(1)), TIME, r"rows\.h5: 'data' holds no numbers", "float32"),
    (rows(data=FEW, label=np.full(3, 7.0)), TIME, r":5: layer 'loss' .*label 7 is not one of the 3", "from 0 to 2"),
    (rows(data=FEW, label=np.full(3, np.nan)), TIME, r":5: layer 'loss' .*a label is nan, not a number", "comes from"),
    (content("list.txt", b""), TIME, r":2: layer 'd' .*list\.txt: the list is empty", "at least one"),
    (content("list.txt", b"a\0b"), TIME, r"list\.txt:1: a zero byte: this is not a list", "text file"),
    # caffemodels
    (loaded(b"\x0a\x7f"), TEST, r"edited\.caffemodel: byte 1: field 1 claims 127 bytes", "cut off"),
    (loaded(NET.encode()), TEST, r"edited\.caffemodel: byte 0: field 13", "looks like a prototxt"),
    (loaded(b"PK\x03\x04abcd"), TEST, r"edited\.caffemodel: byte 2", "unpack it first"),
    (
        model(lambda ip: setattr(ip.blobs[0], "data", np.zeros(7, np.float32))), TEST,
        r"edited\.caffemodel: layer ip: a blob of shape 3 x 5 holds 7 values", "damaged",
    ),
    (
        model(lambda ip: setattr(ip.blobs[0].shape, "dim", [1 << 40, 1 << 40])), TEST,
        r"edited\.caffemodel: layer ip: parameter 0 has shape 1099511627776 x 1099511627776", "rename it",
    ),
    (nothing, TEST, r"edited\.caffemodel: cannot be read: No such file", "check the path"),
    # solverstates
    (state(lambda s: setattr(s, "iter", -5)), RESUME, r"snap_iter_2\.solverstate: iteration -5", "another copy"),
    (nothing, RESUME + "x", r"snap_iter_2\.solverstatex: cannot be read: No such file", "check the path"),
    (state(lambda s: s.clear_field("history")), RESUME, r"has 0 arrays of history, this solver 2", "wrote it"),
    (cut("snap_iter_2.solverstate"), RESUME, r"snap_iter_2\.solverstate: byte \d+: field", "cut off"),
    (content("snap_iter_2.resume.npz", b"junk"), RESUME, r"\.npz: this is not the file of data positions", "remove"),
    # databases
    (records(), READ, r":1: layer 'd' \(Data\): db/data\.mdb: the database holds no record", "make the database"),
    (records(datum(), b"\xff\xff\xff\xff\x0f"), READ, r"db/data\.mdb: .*record '00000001'", "another copy"),
    (records(datum(), datum(size=5)), READ, r"record '00000001': .*needs 126 values, the record holds 5", "again"),
    (records(datum(), datum(height=9)), READ, r"record '00000001' has shape \(3, 9, 7\)", "one size"),
    (records(datum(100000, 100000, 100000, 3)), READ, r"record '00000000': .*10{15} values, .* holds 3", "again"),
    (records(new_message("Datum", data=b"no", encoded=True)), READ, r"'00000000': this is no picture", "JPEG"),
    (cut("db/data.mdb"), READ, r"db/data\.mdb: byte \d+: page \d+ lies beyond the end", "make the database again"),
    (lambda folder: (folder / "db/data.mdb").unlink(), READ, r"db: this folder is no LMDB database", "name the folder"),
    (swap("data.prototxt", "{ }", "{ crop_size: 99 }"), READ, r":1: layer 'd' .*crop_size 99 does not fit", "smaller"),
    (swap("data.prototxt", "{ }", "{ scale: nan }"), READ, r":1: layer 'd' .*scale and mean_value must be", "scale: 0"),
    (swap("data.prototxt", "{ }", '{ mean_file: "0.png" }'), READ, r":1: layer 'd' .*0\.png: byte", "another"),
    # pictures
    (swap("images.txt", "1.png", "none.png"), LOOK, r"none\.png: cannot be opened .*line 2 of the list", "path"),
    (content("1.png", b"no picture"), LOOK, r"1\.png: this is no picture .*line 2 of the list", "JPEG"),
    (swap("images.txt", " 1", " 99999999999"), LOOK, r"images\.txt:2: the label 99999999999", "between"),
    (swap("images.prototxt", "new_width: 8", "new_width: 99999999"), LOOK, r":1: layer 'd' .*too many", "at most"),
    (swap("images.prototxt", "new_width: 8", ""), LOOK, r":2: layer 'd' .*given together", "write both"),
    # windows
    (cut("windows.txt"), CROP, r":1: layer 'd' \(WindowData\): windows\.txt:\d: the file ends where", "cut off"),
    (swap("windows.txt", "12 12", "99 99"), CROP, r"0\.png: the window 2 2 99 99 .* 20 x 24", "correct the window"),
    (swap("windows.txt", "0.9", "high"), CROP, r"windows\.txt:7: an overlap should be a number", "correct the line"),
    (swap("windows.txt", "# 0", "# 5"), CROP, r"windows\.txt:1: '# 0' should begin", "number of windows"),
    (
        swap("windows.prototxt", "batch_size: 4", "batch_size: 4 fg_fraction: 7"), CROP,
        r":1: layer 'd' .*fg_fraction lies from 0 to 1, here it is 7", "0.25",
    ),
    # words and the small programs
    (nothing, "train", r"--solver is missing", "--solver=FILE"),
    (nothing, "train --sover=solver.prototxt", r"no flag '--sover=solver\.prototxt'", "did you mean -solver"),
    (nothing, TRAIN + " --snapshot=a --weights=b", r"snapshot and weights are both given", "the snapshot to go on"),
    (nothing, TIME.replace("=1", "=1e3"), r"-iterations takes a whole number, not '1e3'", "-iterations N"),
    (nothing, "tran", r"caffe has no command 'tran'", "did you mean train"),
    (nothing, "convert_imageset ./ none.txt new", r"none\.txt: cannot be opened", "check the path"),
    (nothing, "convert_imageset ./ images.txt db", r"db: exists already", "choose a name"),
    (nothing, "convert_imageset --encode_type=xyz ./ images.txt new", r"there is no encoding 'xyz'", "use one of jpg"),
    (nothing, "convert_imageset --resize_height=99999 --resize_width=99999 ./ images.txt new", r"too many", "at most"),
    (nothing, "convert_imageset /none/ images.txt new", r"none of the pictures could be read", "root folder"),
    (records(datum(), datum(height=9)), "compute_image_mean db new", r"db: record '00000001'", "resize_height"),
    (records(), "compute_image_mean db new", r"db: the database holds no record", "convert_imageset"),
    (nothing, "compute_image_mean . new", r"\.: this folder is no LMDB database", "name the folder"),
    (nothing, "extract_features snap_iter_2.caffemodel net.prototxt z new 1 lmdb", r"no blob 'z'", "data, label, y"),
    (nothing, "extract_features snap_iter_2.caffemodel net.prototxt y new 0 lmdb", r"not '0'", "such as 10"),
    (nothing, "upgrade_net_proto_text solver.prototxt new", r"prototxt:1: NetParameter has no", "like a solver"),
    (nothing, "upgrade_net_proto_binary net.prototxt new", r"net\.prototxt: byte 0", "looks like a prototxt"),
    (nothing, "upgrade_solver_proto_text net.prototxt new", r"net\.prototxt:1: SolverParameter has no", "like a net"),
    (nothing, "upgrade_net_proto_text net.prototxt no/such/new", r"no/such.*No such file", "make the folder"),
    (nothing, "convert_mnist rows.h5 rows.h5 new", r"rows\.h5: byte 0: not an idx file", "which file"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words", "reason", "remedy"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_one_line_tells_where_why_and_what_to_do(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], object],
    words: str,
    reason: str,
    remedy: str,
) -> None:
    change(folder)
    before = sorted(path.name for path in folder.iterdir())
    assert main(["caffe", *words.split()]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    told, _, advice = errors[0].partition(". To mend it: ")
    assert re.search(reason, told)
    assert remedy in advice
    assert sorted(path.name for path in folder.iterdir()) == before

"""convert_imageset, compute_image_mean and convert_mnist, as functions and as commands."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.data.samples import make_database, make_images, pictures
from undertow.caffe.data import datum_pixels, open_database, parse_datum, read_mean
from undertow.caffe.data.imagelist import read_image_list
from undertow.caffe.net import Net
from undertow.caffe.proto import parse_text
from undertow.caffe.tools import ConvertOptions, compute_image_mean, convert_imageset, convert_mnist
from undertow.cli import main
from undertow.cli.caffe import ALIASES, COMMANDS, plain_switches, run_caffe
from undertow.cli.words import UsageError
from undertow.errors import FormatError, ShapeError, UndertowWarning

pytest.importorskip("lmdb")


def stored(path: Path, backend: str = "LMDB") -> dict[bytes, tuple[np.ndarray, int, bool]]:
    found = {}
    for key, value in open_database(path, backend).records():
        datum = parse_datum(value)
        found[key] = datum_pixels(datum).copy(), datum.label, datum.encoded
    return found


def converted(folder: Path, **options: object) -> dict[bytes, tuple[np.ndarray, int, bool]]:
    convert_imageset(f"{folder}/", folder / "list.txt", folder / "db", ConvertOptions(**options))  # type: ignore[arg-type]
    return stored(folder / "db", str(options.get("backend", "lmdb")))


def test_pixels_with_keys_and_labels(tmp_path: Path) -> None:
    images = pictures(3)
    make_images(tmp_path, images)
    found = converted(tmp_path)
    assert list(found) == [b"00000000_0.png", b"00000001_1.png", b"00000002_2.png"]
    for number, (pixels, label, encoded) in enumerate(found.values()):
        np.testing.assert_array_equal(pixels, images[number])
        assert (label, encoded) == (number, False)


def test_leveldb_holds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("plyvel")
    make_images(tmp_path, pictures(3))
    found = converted(tmp_path, backend="leveldb")
    assert [label for _, label, _ in found.values()] == [0, 1, 2]


def test_shuffled_keys_count_the_new_order(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(20))
    found = converted(tmp_path, shuffle=True, seed=1)
    labels = [label for _, label, _ in found.values()]
    assert sorted(labels) == list(range(20))
    assert labels != list(range(20))
    assert [int(key[:8]) for key in found] == list(range(20))
    assert all(key[9:] == b"%d.png" % label for key, (_, label, _) in found.items())


@pytest.mark.parametrize(
    "options", [{"encoded": True}, {"encode_type": "png"}, {"encoded": True, "encode_type": "PNG"}]
)
def test_encoded_ones_are_the_files_themselves(tmp_path: Path, options: dict[str, object]) -> None:
    make_images(tmp_path, pictures(2))
    converted(tmp_path, **options)
    values = [parse_datum(value) for _, value in open_database(tmp_path / "db").records()]
    assert [datum.data for datum in values] == [(tmp_path / f"{i}.png").read_bytes() for i in range(2)]
    assert all(datum.encoded and not datum.has_field("channels") for datum in values)


def test_encoded_anew_where_size_or_kind_change(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(2))
    found = converted(tmp_path, encode_type="bmp", resize_height=3, resize_width=4)
    assert [(pixels.shape, encoded) for pixels, _, encoded in found.values()] == [((3, 3, 4), True)] * 2


def test_grey(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(1))
    (entry,) = converted(tmp_path, gray=True).values()
    assert entry[0].shape == (1, 6, 8)


def test_unreadable_pictures_are_left_out_and_named(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(3))
    (tmp_path / "1.png").unlink()
    with pytest.warns(UndertowWarning, match=r"left out: .*1\.png"):
        found = converted(tmp_path)
    assert list(found) == [b"00000000_0.png", b"00000002_2.png"]
    (tmp_path / "list.txt").write_text("x.png 1\n")
    with pytest.warns(UndertowWarning), pytest.raises(FormatError, match="none of the pictures"):
        convert_imageset(f"{tmp_path}/", tmp_path / "list.txt", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_root_folder_without_its_slash_is_told(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(2))
    with (
        pytest.warns(UndertowWarning),
        pytest.raises(FormatError, match=f"none of .*end ROOTFOLDER with /: '{tmp_path}/'"),
    ):
        convert_imageset(str(tmp_path), tmp_path / "list.txt", tmp_path / "other")
    parameters = f'source: "{tmp_path}/list.txt" batch_size: 2'
    read_batch(f'{parameters} root_folder: "{tmp_path}/"')
    with pytest.raises(FormatError, match=f'list.txt: there is no picture .* end root_folder with /: "{tmp_path}/"'):
        read_batch(f'{parameters} root_folder: "{tmp_path}"')


def read_batch(parameters: str) -> None:
    layer = f'layer {{ name: "d" type: "ImageData" top: "d" top: "l" image_data_param {{ {parameters} }} }}'
    Net(parse_text(layer, "NetParameter"), "TRAIN").forward()


def test_check_size(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(1))
    (tmp_path / "0.png").rename(tmp_path / "a.png")
    make_images(tmp_path, pictures(1, (3, 6, 9)))
    (tmp_path / "list.txt").write_text("a.png 1\n0.png 2\n")
    with pytest.raises(ShapeError, match=r"list\.txt:2: 0\.png: 162 values, the first picture has 144"):
        converted(tmp_path, check_size=True)
    assert not (tmp_path / "db").exists()
    assert len(converted(tmp_path)) == 2


def test_lists(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"a b.png 3\r\nc.png  -4\nd.png +5\n")
    found = [(line.path, line.label) for line in read_image_list(path)]
    assert found == [("a b.png", 3), ("c.png ", -4), ("d.png", 5)]
    path.write_text("a.png 1\nb.png 0.5\nc.png +5x\n")
    with pytest.warns(UndertowWarning, match=r"list\.txt:2: the label 0\.5 is read as 0: labels are whole") as caught:
        assert [line.label for line in read_image_list(path)] == [1, 0, 5]
    assert len(caught) == 1
    path.write_text("\na.png cat\n")
    with pytest.warns(UndertowWarning) as caught:
        assert [(line.path, line.label, line.number) for line in read_image_list(path)] == [("a.png", 0, 2)]
    assert [str(item.message).partition("list.txt")[2][:2] for item in caught] == [":1", ":2"]
    path.write_text("a.png 99999999999\n")
    with pytest.raises(FormatError, match=r"list\.txt:1: the label 99999999999"):
        read_image_list(path)


def test_mean(tmp_path: Path) -> None:
    images = pictures(7)
    mean, count = compute_image_mean(make_database(tmp_path / "db", images), tmp_path / "m.binaryproto")
    assert count == 7
    np.testing.assert_allclose(mean, images.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(read_mean(tmp_path / "m.binaryproto"), mean)


def test_mean_of_pictures_that_differ(tmp_path: Path) -> None:
    make_images(tmp_path, pictures(1))
    (tmp_path / "0.png").rename(tmp_path / "a.png")
    make_images(tmp_path, pictures(1, (3, 8, 6)))
    (tmp_path / "list.txt").write_text("a.png 1\n0.png 2\n")
    converted(tmp_path)
    with pytest.raises(ShapeError, match=r"record '00000001_0\.png' has shape \(3, 8, 6\), the first \(3, 6, 8\)"):
        compute_image_mean(tmp_path / "db", tmp_path / "m.binaryproto")
    assert not (tmp_path / "m.binaryproto").exists()


def idx(path: Path, array: np.ndarray) -> Path:
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_mnist(tmp_path: Path) -> None:
    images = pictures(3, (1, 4, 5))[:, 0]
    labels = np.array([3, 1, 2], np.uint8)
    for suffix in ("", ".gz"):
        paths = idx(tmp_path / f"i{suffix}", images), idx(tmp_path / f"l{suffix}", labels)
        assert convert_mnist(*paths, tmp_path / f"db{suffix}") == 3
        found = stored(tmp_path / f"db{suffix}")
        assert list(found) == [b"00000000", b"00000001", b"00000002"]
        np.testing.assert_array_equal(np.concatenate([pixels for pixels, _, _ in found.values()]), images)
        assert [label for _, label, _ in found.values()] == [3, 1, 2]
    with pytest.raises(FormatError, match="3 pictures, but 2 labels"):
        convert_mnist(tmp_path / "i", idx(tmp_path / "few", labels[:2]), tmp_path / "x")
    with pytest.raises(FormatError, match="pictures should be bytes with three axes"):
        convert_mnist(tmp_path / "l", tmp_path / "l", tmp_path / "x")


# --- commands ---------------------------------------------------------------------------------------------------


def test_commands_from_pictures_to_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = pictures(4)
    make_images(tmp_path, images)
    words = [f"{tmp_path}/", str(tmp_path / "list.txt"), str(tmp_path / "db")]
    assert run_caffe(["convert_imageset", "--shuffle=false", "-resize_width", "3", "--resize_height=2", *words]) == 0
    assert "Processed 4 files." in capsys.readouterr().err
    assert run_caffe(["compute_image_mean", "--backend=lmdb", words[2], str(tmp_path / "m.binaryproto")]) == 0
    lines = capsys.readouterr().out.splitlines()
    means = read_mean(tmp_path / "m.binaryproto").mean((1, 2))
    assert lines == ["Number of channels: 3", *(f"mean_value channel [{i}]: {v:g}" for i, v in enumerate(means))]


def test_command_for_mnist_under_both_names(tmp_path: Path) -> None:
    words = [str(idx(tmp_path / "i", pictures(2)[:, 0])), str(idx(tmp_path / "l", np.array([1, 2], np.uint8)))]
    assert run_caffe(["convert_mnist", *words, str(tmp_path / "a")]) == 0
    assert run_caffe(["convert_mnist_data", *words, str(tmp_path / "b")]) == 0
    assert list(stored(tmp_path / "a")) == list(stored(tmp_path / "b"))


def test_switches_as_gflags_has_them() -> None:
    (flags,) = (command.flags for command in COMMANDS if command.name == "caffe convert_imageset")
    words = ["--gray", "-shuffle=true", "--check_size=false", "--noencoded", "--resize_width=3", "no.txt", "-encoded=1"]
    assert plain_switches(flags, words) == ["-gray", "-shuffle", "--resize_width=3", "no.txt", "-encoded"]
    with pytest.raises(UsageError, match="true or false, not 'maybe'"):
        plain_switches(flags, ["--gray=maybe"])


def test_help_and_unknown_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_caffe(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(command.usage in shown for command in COMMANDS)
    assert set(ALIASES.values()) <= {command.name.split()[-1] for command in COMMANDS}
    with pytest.raises(UsageError, match="did you mean convert_imageset"):
        run_caffe(["convert_images"])


def test_the_command_line_reaches_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caffe", "compute_image_mean", str(make_database(tmp_path / "db", pictures(2)))]) == 0
    assert main(["caffe", "compute_image_mean", str(tmp_path / "nothing")]) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith("Number of channels: 3")
    assert shown.err.splitlines()[-1].startswith(f"error: {tmp_path / 'nothing'}: there is no such database")

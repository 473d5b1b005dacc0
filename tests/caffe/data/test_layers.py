"""Data layers in nets: order, wrapping round, positions that are taken up again, errors that name the culprit."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.caffe.data.samples import data_net, labels_of, make_database, make_images, pictures
from undertow.caffe.data import encode_picture, new_database
from undertow.caffe.data.datum import encoded_datum
from undertow.caffe.layers_data import FeedLayer, data_states, load_data_states
from undertow.caffe.net import Net
from undertow.errors import FormatError, ShapeError, UndertowError, UndertowWarning

pytest.importorskip("lmdb")
h5py = pytest.importorskip("h5py")


def data_text(path: Path, batch: int, transform: str = "", more: str = "") -> str:
    return (
        f'type: "Data" transform_param {{ {transform} }} '
        f'data_param {{ source: "{path}" batch_size: {batch} backend: LMDB {more} }}'
    )


def image_text(path: Path, batch: int, more: str = "", transform: str = "") -> str:
    return (
        f'type: "ImageData" transform_param {{ {transform} }} '
        f'image_data_param {{ source: "{path}" batch_size: {batch} {more} }}'
    )


def write_rows(path: Path, first: int, count: int) -> Path:
    rows = np.arange(first, first + count, dtype=np.float32)
    with h5py.File(path, "w") as file:
        file["label"] = rows
        file["data"] = np.stack([rows, rows * 10], 1)
    return path


def hdf5_text(folder: Path, batch: int, more: str = "") -> str:
    files = [write_rows(folder / "a.h5", 0, 5), write_rows(folder / "b.h5", 5, 3), write_rows(folder / "c.h5", 8, 1)]
    (folder / "files.txt").write_text("\n".join(map(str, files)))
    return f'type: "HDF5Data" hdf5_data_param {{ source: "{folder / "files.txt"}" batch_size: {batch} {more} }}'


KINDS = ["data", "images", "images_shuffled", "hdf5", "hdf5_shuffled", "windows"]


@pytest.fixture(params=KINDS)
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A data layer of each kind, with random numbers wherever it can have them."""
    images, kind = pictures(7), str(request.param)
    if kind == "data":
        return data_text(make_database(tmp_path / "db", images), 3, "crop_size: 4 mirror: true")
    if kind.startswith("images"):
        shuffle = "shuffle: true rand_skip: 5" if kind.endswith("shuffled") else ""
        return image_text(make_images(tmp_path, images), 3, shuffle, "crop_size: 5 mirror: true")
    if kind.startswith("hdf5"):
        return hdf5_text(tmp_path, 4, "shuffle: true" if kind.endswith("shuffled") else "")
    make_images(tmp_path, images)
    blocks = [f"# {i}\n{i}.png\n3 6 8\n2\n{i + 1} 0.9 1 1 5 4\n0 0.1 2 0 7 5\n" for i in range(7)]
    (tmp_path / "windows.txt").write_text("".join(blocks))
    return (
        f'type: "WindowData" transform_param {{ crop_size: 6 mirror: true mean_value: 100 }} window_data_param {{ '
        f'source: "{tmp_path / "windows.txt"}" batch_size: 5 fg_fraction: 0.5 context_pad: 1 crop_mode: "square" }}'
    )


def batches(net: Net, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for _ in range(count):
        net.forward()
        found.append((net.blobs["data"].data.copy(), net.blobs["label"].data.copy()))
    return found


def assert_equal(ours: list[tuple[np.ndarray, np.ndarray]], theirs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_a_saved_position_is_taken_up_exactly(text: str, tmp_path: Path) -> None:
    """In a net with another seed, after an archive on disk; whatever was prepared ahead does not count."""
    net = data_net(text, seed=3)
    batches(net, 4)
    states = data_states(net.layers)
    np.savez(tmp_path / "state.npz", **states["d"])
    expected = batches(net, 6)
    again = data_net(text, seed=99)
    batches(again, 1)
    with np.load(tmp_path / "state.npz", allow_pickle=False) as saved:
        load_data_states(again.layers, {"d": dict(saved)})
    assert_equal(batches(again, 6), expected)


def test_closing_loses_nothing(text: str) -> None:
    whole = batches(data_net(text), 5)
    net = data_net(text)
    parts = batches(net, 2)
    layer = net.layers[0]
    assert isinstance(layer, FeedLayer)
    layer.close()
    assert_equal(parts + batches(net, 3), whole)


def test_the_seed_decides(text: str) -> None:
    assert_equal(batches(data_net(text, seed=5), 4), batches(data_net(text, seed=5), 4))


def test_the_thread_ends_with_the_net(text: str) -> None:
    # Which threads, not how many: those of earlier tests may end at any moment.
    before = set(threading.enumerate())
    net = data_net(text)
    net.forward()
    started = set(threading.enumerate()) - before
    assert len(started) == 1
    del net
    gc.collect()
    for thread in started:
        thread.join(timeout=5)
        assert not thread.is_alive()


def test_not_more_than_prefetch_batches_ahead(tmp_path: Path) -> None:
    net = data_net(data_text(make_database(tmp_path / "db", pictures(9)), 2, more="prefetch: 3"))
    net.forward()
    layer = net.layers[0]
    assert isinstance(layer, FeedLayer)
    deadline = time.monotonic() + 5
    while layer.feed.counter < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert layer.feed.counter == 2 * (1 + 3)


def test_database_wraps_round(tmp_path: Path) -> None:
    images = pictures(5)
    net = data_net(data_text(make_database(tmp_path / "db", images), 3, "scale: 0.5"))
    assert labels_of(net, 4) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    np.testing.assert_array_equal(net.blobs["data"].data, images[[4, 0, 1]] * np.float32(0.5))


def test_shuffled_lists_give_every_picture_once_a_round(tmp_path: Path) -> None:
    net = data_net(image_text(make_images(tmp_path, pictures(7)), 7, "shuffle: true"))
    rounds = [labels_of(net, 1) for _ in range(4)]
    assert all(sorted(one) == list(range(7)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


def test_shuffled_rows_give_every_row_once_a_round(tmp_path: Path) -> None:
    net = data_net(hdf5_text(tmp_path, 9, "shuffle: true"))
    rounds = [labels_of(net, 1) for _ in range(5)]
    assert all(sorted(one) == list(range(9)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    np.testing.assert_array_equal(net.blobs["data"].data[:, 1], net.blobs["label"].data * 10)


def test_rows_in_order_across_files(tmp_path: Path) -> None:
    assert labels_of(data_net(hdf5_text(tmp_path, 4)), 5) == [i % 9 for i in range(20)]


def test_rand_skip_stays_below(tmp_path: Path) -> None:
    path = make_images(tmp_path, pictures(6))
    first = {labels_of(data_net(image_text(path, 1, "rand_skip: 4"), seed=seed), 1)[0] for seed in range(40)}
    assert first == {0, 1, 2, 3}
    with pytest.raises(FormatError, match=r"rand_skip skips \d+ lines, the list has 6"):
        data_net(image_text(path, 1, "rand_skip: 100000"))


def test_batches_of_one_may_differ_in_size(tmp_path: Path) -> None:
    with new_database(tmp_path / "db") as put:
        for number, size in enumerate([(4, 4), (6, 5)]):
            put(b"%d" % number, encoded_datum(encode_picture(pictures(1, (3, *size))[0], "png")).to_bytes())
    net = data_net(data_text(tmp_path / "db", 1))
    shapes = []
    for _ in range(3):
        net.forward()
        shapes.append(net.blobs["data"].data.shape)
    assert shapes == [(1, 3, 4, 4), (1, 3, 6, 5), (1, 3, 4, 4)]
    with pytest.raises(ShapeError, match=r"'d' \(Data\).*record '1'.*\(3, 6, 5\).*first of its batch \(3, 4, 4\)"):
        data_net(data_text(tmp_path / "db", 2)).forward()


def test_an_error_comes_again_and_nothing_is_skipped(tmp_path: Path) -> None:
    path = make_images(tmp_path, pictures(6))
    (tmp_path / "3.png").write_bytes(b"nothing")
    net = data_net(image_text(path, 2))
    assert labels_of(net, 1) == [0, 1]
    for _ in range(2):
        with pytest.raises(FormatError, match=r"3\.png: this is no picture .*\(line 4 of the list\)"):
            net.forward()
    make_images(tmp_path, pictures(6))
    assert labels_of(net, 1) == [2, 3]


def test_an_interruption_loses_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batches(data_net(text), 4)
    net = data_net(text)
    parts = batches(net, 2)
    layer = net.layers[0]
    assert isinstance(layer, FeedLayer)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(layer._ahead._waiting[0], "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            net.forward()
    assert_equal(parts + batches(net, 2), whole)


def test_a_record_that_is_too_short_is_named(tmp_path: Path) -> None:
    with new_database(tmp_path / "db") as put:
        put(b"key", b"\x08\x03\x10\x05\x18\x05\x22\x02ab")
    with pytest.raises(FormatError, match=r"'d' \(Data\).*data\.mdb.*record 'key'.*needs 75 values, .* holds 2"):
        data_net(data_text(tmp_path / "db", 1))


def test_fields_that_have_no_effect_are_named(tmp_path: Path) -> None:
    path = make_database(tmp_path / "db", pictures(2))
    with pytest.warns(UndertowWarning, match="scale, mirror in data_param has no effect.*transform_param"):
        data_net(data_text(path, 1, more="scale: 0.5 mirror: true"))


def test_sources_beside_the_prototxt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nets are often started from another folder than their own."""
    make_images(tmp_path, pictures(2))
    layer = 'type: "ImageData" image_data_param { source: "list.txt" batch_size: 2 }'
    (tmp_path / "net.prototxt").write_text(f'layer {{ name: "d" top: "data" top: "label" {layer} }}')
    monkeypatch.chdir("/")
    net = Net(tmp_path / "net.prototxt", "TEST")
    assert labels_of(net, 1) == [0, 1]


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ('type: "Data" data_param { batch_size: 1 }', "source is not given"),
        ('type: "Data" data_param { source: "x" }', "batch_size must be at least 1"),
        ('type: "Data" data_param { source: "x" batch_size: 1 backend: LMDB }', "no such database"),
        ('type: "ImageData" image_data_param { source: "x" }', "x: cannot be opened"),
        ('type: "ImageData" image_data_param { source: "x" new_height: 3 }', "must be given together"),
        ('type: "HDF5Data" hdf5_data_param { source: "x" batch_size: 1 } transform_param { }', "does not transform"),
        ('type: "WindowData" window_data_param { source: "x" batch_size: 1 }', "x: cannot be opened"),
        (
            'type: "WindowData" window_data_param { source: "x" batch_size: 1 crop_mode: "round" }',
            "crop_mode 'round'",
        ),
    ],
)
def test_options_that_are_refused(layer: str, reason: str) -> None:
    with pytest.raises(UndertowError, match=rf"layer 'd' \(\w+\): .*{reason}"):
        data_net(layer)


def test_positions_of_other_data_are_refused(tmp_path: Path) -> None:
    few = data_net(image_text(make_images(tmp_path, pictures(3), "few.txt"), 1))
    many = data_net(image_text(make_images(tmp_path, pictures(5), "many.txt"), 1))
    with pytest.raises(UndertowError, match="list of 3 pictures, this one has 5"):
        load_data_states(many.layers, data_states(few.layers))
    with pytest.raises(UndertowError, match="lacks 'seed'"):
        load_data_states(many.layers, {"d": {}})

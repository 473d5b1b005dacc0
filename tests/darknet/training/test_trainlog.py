from __future__ import annotations

import csv
import gc
import resource
from pathlib import Path

import pytest
from PIL import Image

from tests.darknet.training.scenes import Scene
from undertow.darknet import TrainOptions, training
from undertow.darknet.learning import chart
from undertow.darknet.learning.chart import Chart, draw_chart
from undertow.darknet.learning.trainer import Iteration, TrainingWatcher
from undertow.darknet.learning.trainlog import LOSS_COLUMNS, MAP_COLUMNS, Rows, TrainLog
from undertow.darknet.learning.watchers import Together
from undertow.errors import UndertowWarning


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def run(scene: Scene, weights: Path | None = None, stop_after: int | None = None) -> TrainLog:
    from tests.darknet.training.test_checkpoint import Recorder

    log = TrainLog(["red", "blue"])
    options = TrainOptions(validate=True, validate_every=2)
    training(scene.data, scene.cfg, weights, options, watcher=Together(log, Recorder(stop_after))).run()
    return log


def test_a_row_for_each_iteration_and_each_validation(scene: Scene) -> None:
    log = run(scene)
    losses = rows(scene.folder / "backup" / "tiny_log.csv")
    assert tuple(losses[0]) == LOSS_COLUMNS
    assert [row["iteration"] for row in losses] == ["1", "2", "3", "4", "5", "6"]
    assert [float(row["loss"]) for row in losses] == [row["loss"] for row in log.losses]
    assert losses[-1]["images"] == "24"
    maps = rows(scene.folder / "backup" / "tiny_map.csv")
    assert [row["iteration"] for row in maps] == ["2", "4", "6"]
    mean = (float(maps[-1]["ap red"]) + float(maps[-1]["ap blue"])) / 2
    assert float(maps[-1]["map"]) == pytest.approx(mean)


def test_a_run_that_goes_on_continues_the_files(scene: Scene) -> None:
    whole = [(row["iteration"], row["loss"]) for row in run(scene).losses]
    run(scene, stop_after=7)
    path = scene.folder / "backup" / "tiny_log.csv"
    with open(path, "a") as stream:
        stream.write("4,1,1,1,1,1,16,32,32\n5,half a li")  # rows that the checkpoint does not know
    log = run(scene, scene.backup)
    assert [(row["iteration"], row["loss"]) for row in log.losses] == whole
    assert len(rows(path)) == 6
    assert [row["iteration"] for row in rows(scene.folder / "backup" / "tiny_map.csv")] == ["2", "4", "6"]


def test_a_new_run_starts_new_files(scene: Scene) -> None:
    run(scene)
    run(scene, stop_after=4)
    assert len(rows(scene.folder / "backup" / "tiny_log.csv")) == 2


def test_the_chart_is_drawn_at_backups_and_at_the_end(scene: Scene) -> None:
    pytest.importorskip("matplotlib")
    log = TrainLog(["red", "blue"])
    picture = scene.folder / "chart.png"
    options = TrainOptions(validate=True, validate_every=3)
    training(scene.data, scene.cfg, options=options, watcher=Together(log, Chart(log, picture, "tiny"))).run()
    with Image.open(picture) as image:
        assert image.size == (1200, 750)
        colors = {color for _, color in image.convert("RGB").getcolors(1 << 20) or []}
    for color in (chart.AVERAGE_COLOR, chart.MAP_COLOR):
        assert tuple(bytes.fromhex(color[1:])) in colors


def test_a_chart_of_one_iteration(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_chart(tmp_path / "c.png", losses(1), Rows(MAP_COLUMNS), 10)
    assert (tmp_path / "c.png").stat().st_size > 1000


def losses(count: int) -> Rows:
    return Rows(LOSS_COLUMNS, (dict.fromkeys(LOSS_COLUMNS, float(number + 1)) for number in range(count)))


def test_charts_leave_nothing_behind(tmp_path: Path) -> None:
    """Drawn at every backup, they would fill the memory: 4 MB of pixels each, in cycles."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    usual = gc.get_threshold()
    gc.set_threshold(1_000_000)  # Python's own collector does not help out meanwhile
    try:
        for _ in range(5):
            draw_chart(tmp_path / "c.png", losses(50), Rows(MAP_COLUMNS), 50)
            assert not [True for found in gc.get_objects() if isinstance(found, figure)]
    finally:
        gc.set_threshold(*usual)


def test_rows_are_read_as_they_were_added() -> None:
    rows = Rows(("iteration", "loss"))
    for number in range(3):
        rows.append({"iteration": number, "loss": number / 3})
    assert len(rows) == 3
    assert rows[-1] == {"iteration": 2.0, "loss": 2 / 3}
    assert [row["iteration"] for row in rows] == [0, 1, 2] == rows.column("iteration").tolist()
    assert rows[1:] == [rows[1], rows[2]]
    with pytest.raises(IndexError):
        rows[3]
    with pytest.raises(ValueError, match="loss in a log of iteration"):
        rows.append({"loss": 1.0})


def test_what_cannot_be_written_beside_does_not_stop_the_training(scene: Scene) -> None:
    pytest.importorskip("matplotlib")

    class Spoiler(TrainingWatcher):
        """Puts a folder where the log is, after the first iteration."""

        def iterated(self, iteration: Iteration) -> None:
            path = scene.folder / "backup" / "tiny_log.csv"
            if iteration.number == 1:
                path.unlink()
                path.mkdir()

    log = TrainLog(["red", "blue"])
    watcher = Together(log, Chart(log, scene.folder / "none" / "chart.png"), Spoiler())
    with pytest.warns(UndertowWarning) as caught:
        result = training(scene.data, scene.cfg, options=TrainOptions(), watcher=watcher).run()
    assert result.weights.exists()
    assert len(log.losses) == 6
    told = [str(item.message) for item in caught if "training goes on" in str(item.message)]
    assert ["chart" in line for line in told] == [False, True]


def test_half_a_line_of_a_full_disk_does_not_spoil_the_next(scene: Scene) -> None:
    """The disk takes a part of line 3; when there is room again, the other lines are whole."""

    class Spoiler(TrainingWatcher):
        def iterated(self, iteration: Iteration) -> None:
            usual = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            size = (scene.folder / "backup" / "tiny_log.csv").stat().st_size
            limit = size + 9 if iteration.number == 2 else resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual))

    with pytest.warns(UndertowWarning, match="File too large.*training goes on"):
        training(scene.data, scene.cfg, watcher=Together(TrainLog(["red", "blue"]), Spoiler())).run()
    written = (scene.folder / "backup" / "tiny_log.csv").read_text().splitlines()
    whole = [line.split(",")[0] for line in written if line.count(",") == len(LOSS_COLUMNS) - 1]
    assert whole == ["iteration", "1", "2", "4", "5", "6"]

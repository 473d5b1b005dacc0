"""The file of a run: what is written is read again, whatever happened to the writer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from undertow.errors import FormatError, UndertowError, UndertowWarning
from undertow.scope.runs.looks import LossAlarm, Schedule, update_ratio, usual_every
from undertow.scope.runs.reader import MOST_ITERATIONS, MOST_LAYERS, find_run, is_run, read_history
from undertow.scope.runs.records import FILE, Header, LayerNumbers, column, line_of, parsed, plain, there
from undertow.scope.runs.writer import RunWriter

LAYERS = (("0", "convolutional"), ("1", "shortcut"))


def header(first: int = 0, **more: object) -> Header:
    return Header("small", "darknet", "small.cfg", "2026-01-01T00:00:00", last=9, first=first, layers=LAYERS, **more)  # type: ignore[arg-type]


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in read_history(path / FILE).lines]


def iterations(path: Path) -> list[tuple[int, float]]:
    return [(r["i"], r["loss"]) for r in records(path) if r["k"] == "iteration"]  # type: ignore[misc]


def test_numbers() -> None:
    assert [plain(x) for x in (1.0, 0.123456789, math.nan, math.inf, -math.inf)] == [1, 0.123457, "nan", "inf", "-inf"]
    assert column([None, 2.5, math.inf, math.nan]) == [None, 2.5, "inf", "nan"]
    assert there([math.nan, 1.0]) == [None, 1.0]
    assert str(there([math.nan, math.nan], [True, False])) == "[nan, None]"
    assert parsed(line_of({"k": "iteration", "i": 3, "loss": "nan"})) == {"k": "iteration", "i": 3, "loss": "nan"}
    for wrong in ("", "{", "[1]", '{"k":"other","i":1}', '{"k":"iteration","i":"1"}', '{"k":"iteration","i":true}'):
        assert parsed(wrong) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", header())
    writer.iteration(1, {"loss": 2.5, "rate": 1e-3})
    numbers = LayerNumbers({"output": [1.5, None], "bad": [0, 3]}, [("non-finite", 1, "3 values")])
    writer.layers(1, numbers)
    writer.measure(1, {"mAP": 0.25})
    writer.end(1, True)
    head, *rest = records(tmp_path / "run")
    assert head["layers"] == [list(layer) for layer in LAYERS]
    assert rest == [
        {"k": "iteration", "i": 1, "loss": 2.5, "rate": 0.001},
        {"k": "layers", "i": 1, "values": {"output": [1.5, None], "bad": [0, 3]},
         "marks": [["non-finite", 1, "3 values"]]},
        {"k": "measure", "i": 1, "values": {"mAP": 0.25}},
        {"k": "end", "i": 1, "stopped": True},
    ]  # fmt: skip


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, header())
    for number in (1, 2, 3):
        writer.iteration(number, {"loss": number})
    whole = writer.path.read_bytes()
    for length in range(len(whole) - 30, len(whole)):
        writer.path.write_bytes(whole[:length])
        assert iterations(tmp_path) == [(1, 1), (2, 2)]
    writer.path.write_bytes(whole[:-10])
    # Whoever goes on writes behind it, on a line of its own.
    again = RunWriter(tmp_path, header(first=2))
    again.iteration(3, {"loss": 30})
    assert iterations(tmp_path) == [(1, 1), (2, 2), (3, 30)]
    assert read_history(again.path).damaged == 1


def test_going_on_replaces_what_came_after(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, header())
    for number in range(1, 6):
        writer.iteration(number, {"loss": number})
        writer.layers(number, LayerNumbers({"output": [number, number]}))
        writer.measure(number, {"mAP": number / 10})
    writer.end(5, True)
    again = RunWriter(tmp_path, header(first=3))
    assert again.kept is None
    again.iteration(4, {"loss": 40})
    assert iterations(tmp_path) == [(1, 1), (2, 2), (3, 3), (4, 40)]
    kinds = [(r["k"], r["i"]) for r in records(tmp_path)[1:] if r["k"] != "iteration"]
    assert kinds == [("layers", n) for n in (1, 2, 3)] + [("measure", n) for n in (1, 2, 3)]


def test_another_run_in_the_folder_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for number in (1, 2, 3):
        writer = RunWriter(folder, header(first=0 if number < 3 else 7, how="other"))
        writer.iteration(number, {"loss": number})
    assert writer.kept is None  # the same net, going on
    other = Header("small", "darknet", "small.cfg", "", first=7, layers=(("0", "connected"),))
    assert RunWriter(folder, other).kept == tmp_path / "run_2"
    assert iterations(tmp_path / "run_1") == [(1, 1)]
    assert iterations(tmp_path / "run_2") == [(2, 2), (3, 3)]
    assert iterations(folder) == []


def test_a_long_run_is_thinned_out(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, header(every=10))
    with open(writer.path, "a", encoding="ascii") as stream:
        for number in range(1, 3 * MOST_ITERATIONS + 2):
            stream.write(line_of({"k": "iteration", "i": number, "loss": number}) + "\n")
        for number in range(10, 10 * (2 * MOST_LAYERS + 5) + 1, 10):
            stream.write(line_of({"k": "layers", "i": number, "values": {}, "marks": []}) + "\n")
    found = read_history(writer.path)
    assert found.thinned == (4, 4)
    numbers = [i for i, _ in iterations(tmp_path)]
    assert numbers[:-1] == list(range(4, 3 * MOST_ITERATIONS + 1, 4))
    assert numbers[-1] == 3 * MOST_ITERATIONS + 1
    layers = [r["i"] for r in records(tmp_path) if r["k"] == "layers"]
    assert layers[:-1] == list(range(40, 10 * (2 * MOST_LAYERS + 5) + 1, 40))[: len(layers) - 1]
    assert len(layers) <= MOST_LAYERS + 1
    assert found.offset == writer.path.stat().st_size


def test_what_is_no_run(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    for path, message in ((tmp_path / "none", "is not there"), (tmp_path, "holds no run")):
        with pytest.raises(FormatError, match=message):
            find_run(path)
    for name in ("a", "b"):
        RunWriter(tmp_path / name, header())
    with pytest.raises(FormatError, match=r"several runs: a, b"):
        find_run(tmp_path)
    assert find_run(tmp_path / "a") == find_run(tmp_path / "a" / FILE) == tmp_path / "a" / FILE
    for text in ("", "hello\n", '{"k":"run","version":2}\n', '{"k":"iteration","i":1}\n'):
        (tmp_path / "a" / FILE).write_text(text)
        with pytest.raises(FormatError, match="no record of a training"):
            read_history(tmp_path / "a" / FILE)
    (tmp_path / "a" / FILE).write_text('{"k":"run","version":1}\n{"k":"iteration","i":1}\n')
    with pytest.raises(FormatError, match="the header of this record has no name, format, net, started"):
        read_history(tmp_path / "a" / FILE)
    # Begun anew over a file that cannot be read: it is kept, and the new one is whole.
    assert RunWriter(tmp_path / "a", header(first=3)).kept == tmp_path / "a_1"


def test_csv_of_a_training_that_was_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "cells_log.csv").write_text(
        "iteration,loss,average_loss,rate,seconds,waited,images,width,height\n"
        "1,5,5,0.001,2,0.5,16,416,416\n2,4,4.9,0.001,2,0,32,416,416\n3,4,4.9,0.0\n4,x,4.9,0.001,2,0,32,416,416\n"
    )
    (tmp_path / "cells_map.csv").write_text("iteration,map,precision\n2,0.5,nan\n")
    assert is_run(tmp_path)
    found = read_history(find_run(tmp_path))
    assert found.offset is None
    head, *rest = [json.loads(line) for line in found.lines]
    assert (head["name"], head["layers"]) == ("cells", [])
    assert [(r["i"], r["loss"], r["average"]) for r in rest[:2]] == [(1, 5, 5), (2, 4, 4.9)]
    assert rest[2:] == [{"k": "measure", "i": 2, "values": {"mAP": 0.5, "precision": "nan"}}]


def test_a_disk_that_is_full_stops_no_training(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", header())
    writer.iteration(1, {"loss": 1})
    whole = writer.path.read_bytes()
    writer.path.unlink()
    writer.path.mkdir()
    with pytest.warns(UndertowWarning, match="cannot be written"):
        writer.iteration(2, {"loss": 2})
    writer.iteration(3, {"loss": 3})  # told once
    writer.path.rmdir()
    writer.path.write_bytes(whole)
    writer.iteration(4, {"loss": 4})
    assert iterations(tmp_path / "run") == [(1, 1), (4, 4)]
    (tmp_path / "file").write_text("")
    with pytest.raises(UndertowError, match="cannot be recorded"):
        RunWriter(tmp_path / "file" / "run", header())


def test_how_often() -> None:
    assert [usual_every(n) for n in (0, 1, 12, 40, 100, 399, 600, 4000, 8000, 20000, 30000, 500200)] == [
        20, 1, 1, 2, 5, 20, 20, 20, 20, 50, 100, 2000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("every", "iterations", "expected"),
    [
        (None, 500200, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000]),
        (None, 600, [1, 2, 5, 10, 20, 40]),
        (None, 100, [1, 2, 5, 10, 15]),
        (4, 500200, [1, 4, 8]),
    ],
)
def test_early_looks(every: int | None, iterations: int, expected: list[int]) -> None:
    schedule = Schedule(every, iterations)
    assert [i for i in range(1, expected[-1] + 1) if schedule.is_due(i)] == expected


def test_losses_that_call_for_a_look() -> None:
    def rings(losses: list[float]) -> list[int]:
        alarm = LossAlarm()
        return [i for i, loss in enumerate(losses) if alarm(loss)]

    assert rings([3, 2.5, 2, 1.5, 8, 1]) == []
    assert rings([3, 2, math.nan, math.nan]) == [2]
    assert rings([3, 2, math.inf, math.nan, 2]) == [2]
    # The smallest average is 2.9 and 400 is more than a hundred times that; the next is not ten times 400.
    assert rings([3, 2, 400, 500, 3999, 4001, 1e9]) == [2, 5, 6]


def test_update_ratio() -> None:
    import numpy as np

    before = {"weights": np.array([3.0, 4.0]), "biases": np.zeros(2), "scales": np.array([1.0])}
    after = {"weights": np.array([3.0, 4.5]), "biases": np.ones(2), "scales": np.array([1.2])}
    assert update_ratio(before, after) == pytest.approx(0.2)
    assert math.isnan(update_ratio({}, {}))

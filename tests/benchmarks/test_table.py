"""Reading, writing and judging of the table, without measuring."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import table
from benchmarks.meeting import meeting
from benchmarks.rows import ROWS, Settings
from benchmarks.scaling import Curve, draw, fit
from benchmarks.timing import Timing, interleaved
from undertow.errors import UndertowError


def result(key: str, ours: float, *peers: float) -> table.Result:
    values = {"undertow": ours} | {f"peer {i}": value for i, value in enumerate(peers)}
    return table.Result(key, "2026-01-01 00:00 UTC", values, dict.fromkeys(values, 0.1), 5)


def test_the_ratio_is_that_of_the_best_peer() -> None:
    assert result("train-tiny", 2.0, 8.0, 6.0).ratio == pytest.approx(3.0)
    assert result("memory-tiny", 300.0, 900.0, 600.0).ratio == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("key", "ratio", "word"),
    [
        ("train-tiny", 3.6, "aim reached"),
        ("train-tiny", 2.6, "reached"),
        ("train-tiny", 2.0, "short"),
        ("train-tiny", 0.9, "lost"),
        ("memory-tiny", 0.4, "aim reached"),
        ("memory-tiny", 0.55, "reached"),
        ("memory-tiny", 0.8, "short"),
        ("memory-tiny", 1.2, "lost"),
    ],
)
def test_verdicts(key: str, ratio: float, word: str) -> None:
    assert table.verdict(ROWS[key], ratio) == word


def test_lost_and_skipped_rows_are_in_the_table() -> None:
    skipped = table.Result("lstm", "2026-01-01 00:00 UTC", {}, {}, 0, "skipped: not installed: torch")
    text = table.markdown({"train-lenet": result("train-lenet", 2.0, 1.0), "lstm": skipped}, threads=2)
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert "| 2 s | peer 0 1 s | 0.50 | 2.5 | lost |" in rows[0]
    assert "skipped: not installed: torch" in rows[1]
    assert {row.count("|") for row in text.splitlines() if row.startswith("|")} == {9}
    assert "2 threads" in text.splitlines()[0]


def test_how_long_threads_take_to_meet_stands_beside_a_row() -> None:
    measured = replace(result("train-lenet", 1.0, 2.0), meetings=[1.04e-7, 5.2e-7])
    assert table.line(measured).endswith("threads meet in 104 and 520 ns")
    assert "| 104 and 520 ns |" in table.markdown({"train-lenet": measured}, threads=2)
    took = meeting(times=1)
    assert took is None or took > 0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1.5, "s", "1.5 s"), (0.0123, "s", "12.3 ms"), (4.2e-5, "s", "42 us"), (812.3, "MB", "812 MB")],
)
def test_quantities(value: float, unit: str, text: str) -> None:
    assert table.quantity(value, unit) == text


def test_a_page_with_marks_keeps_its_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_markdown(page, "new\n")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "new" in text
    assert "old" not in text


def test_results_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results = {"lstm": result("lstm", 1.0, 2.0)}
    assert table.read_json(file) == {}
    table.write_json(file, results, threads=2)
    assert table.read_json(file) == results


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"rows": [1]}', '{"rows": [{"key": "lstm"}]}', "\xff"])
def test_another_file_is_not_taken_for_results(text: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UndertowError, match=r"results\.json: these are no results of this table"):
        table.read_json(file)


def test_failed_rows_end_in_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = replace(result("lstm", 1.0, 2.0), problem="failed: no memory")
    skipped = replace(result("scalar", 1.0, 2.0), problem="skipped: not installed: torch")
    found = {"lstm": failed, "scalar": skipped}
    monkeypatch.setattr(table, "measure", lambda keys, *_: {key: found[key] for key in keys})
    with pytest.raises(SystemExit, match="failed: lstm"):
        program.main(["table", "--only", "lstm,scalar"])
    program.main(["table", "--only", "scalar"])


def test_a_missing_package_skips_the_row_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said: list[str] = []
    found = table.measure(["lstm"], Settings(), said.append)["lstm"]
    assert found.problem == "skipped: not installed: torch (pip install torch)"
    assert len(said) == 1


def test_a_missing_program_skips_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "no program 'darknet'" in str(ROWS["program-tiny"].missing())


def test_unknown_rows_are_refused() -> None:
    assert program._keys("lstm, scalar") == ["lstm", "scalar"]
    with pytest.raises(argparse.ArgumentTypeError, match="no row nonsense"):
        program._keys("lstm,nonsense")


def test_contenders_take_turns() -> None:
    order: list[str] = []
    clock = iter(range(1000))
    timed = interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, Timing(2, lambda: float(next(clock)))
    )
    # After one run of each, turns of 50 runs: these are short. The first round still warms up.
    assert order == ["a", "b"] + (["a"] * 50 + ["b"] * 50) * 3
    assert timed["a"].seconds == (0.02, 0.02)


def test_straight_lines() -> None:
    slope, intercept, share = fit([1, 2, 4], [5, 7, 11])
    assert (slope, intercept, share) == pytest.approx((2.0, 3.0, 1.0))
    assert fit([1, 2, 3, 4], [1, 4, 9, 16])[2] < 0.97


def test_the_chart_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curves = [Curve(f"curve {i}", "x", [1, 2, 4], {"undertow": [1, 2, 4], "torch": [2, 4, 8]}) for i in range(3)]
    curves.append(Curve("threads", "threads", [1, 2], {"undertow": [4, 2], "torch": [8, 5]}))
    draw(curves, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")

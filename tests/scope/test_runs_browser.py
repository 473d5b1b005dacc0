"""The page about trainings in a real browser: what it shows is what the run's file says, live, and from one file."""

from __future__ import annotations

import json
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.darknet.training.scenes import make_scene
from undertow.darknet.learning.trainer import TrainingWatcher, TrainOptions
from undertow.darknet.learning.watchers import Together
from undertow.darknet.runs import training
from undertow.errors import NonFiniteError
from undertow.scope.runs.command import live_page
from undertow.scope.runs.darknet import RunRecorder
from undertow.scope.runs.page import write_page
from undertow.scope.runs.records import FIELDS, Header, LayerNumbers
from undertow.scope.runs.server import RunServer
from undertow.scope.runs.writer import RunWriter


def write_run(
    folder: Path, *, seed: int = 1, looks: int = 5, layers: int = 3, header: Header | None = None
) -> RunWriter:
    """A run whose numbers tell where they come from: look, layer, field and seed."""
    names = tuple((str(layer), "convolutional") for layer in range(layers))
    writer = RunWriter(
        folder,
        header or Header(f"net{seed}", "darknet", "net.cfg", "2026-01-01T00:00:00", last=60, every=10, layers=names),
    )
    for number in range(1, 10 * looks + 1):
        writer.iteration(
            number, {"loss": seed + 10 / number, "average": seed + 11 / number, "rate": 0.001, "speed": 50}
        )
        if number % 10 == 0:
            look(writer, number, seed, layers)
    writer.measure(10 * looks, {"mAP": 0.25 * seed, "recall": 0.5})
    return writer


def value(number: int, seed: int, field: int, layer: int) -> float:
    return seed + field / 100 + layer / 1000 + number / 10_000


def look(writer: RunWriter, number: int, seed: int, layers: int) -> None:
    values = {name: [value(number, seed, field, layer) for layer in range(layers)] for field, name in enumerate(FIELDS)}
    values["dead"] = [0.75 if layer == 1 else 0.0 for layer in range(layers)]
    values["bad"] = [0.0] * layers
    writer.layers(number, LayerNumbers(values, [("dead", 1, "75% of its channels are 0 for the whole batch")]))


def facts(page: Any, run: int = 0) -> dict[str, str]:
    found = page.locator(".run").nth(run).locator("dl div")
    return {one.get_attribute("data-fact"): one.locator("dd").inner_text() for one in found.all()}


def cells(page: Any, run: int = 0) -> dict[str, str]:
    """The numbers of the chosen layer."""
    rows = page.locator(".detail tbody tr").all()
    return {row.get_attribute("data-field"): row.locator("td").nth(run).inner_text() for row in rows}


def opened(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(".heat")
    page.wait_for_selector(".detail tbody tr")


def wait_for(page: Any, selector: str, text: str) -> None:
    """Until the element's text begins so."""
    from playwright.sync_api import expect

    expect(page.locator(selector).first).to_have_text(re.compile(f"^{re.escape(text)}"), timeout=20_000)


def recorded(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return [line for line in lines if line["k"] == kind]


def test_numbers_are_those_of_the_file(page: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with RunServer([tmp_path / "run"], 0) as server:
        opened(page, server.url)
        assert facts(page)["iteration"] == "50 of 60"
        assert facts(page)["best mAP"] == "25.0%"
        assert page.title() == "net1 - training - Undertow"
        page.locator(".heat").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
        (record,) = [r for r in recorded(tmp_path / "run", "layers") if r["i"] == 40]
        assert cells(page) == {name: str(row[1]) for name, row in record["values"].items()}
        reading = page.locator("#reading").inner_text()
        assert "1 convolutional, iteration 40; 75% of its channels dead" in reading
        assert page.locator(".marks li").inner_text().startswith("dead")
        # All numbers that the page holds, not only those that are shown.
        held = page.evaluate(
            """async () => { const { Run } = await import("runs/run");
                const lines = (await (await fetch("/run?number=0")).text()).trimEnd().split("\\n");
                const run = new Run("A", lines);
                return [run.iterations.rows.map((row) => row.loss),
                        run.looks.rows.map((look) => Object.values(look.values).map((row) => Array.from(row)))]; }"""
        )
        assert held[0] == [r["loss"] for r in recorded(tmp_path / "run", "iteration")]
        assert held[1] == [list(r["values"].values()) for r in recorded(tmp_path / "run", "layers")]


def test_keyboard_and_pointer(page: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with RunServer([tmp_path / "run"], 0) as server:
        opened(page, server.url)
        for _ in range(20):  # the tabulator reaches the map, whatever stands before it
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.className") == "heat":
                break
        for key, layer, iteration in (
            ("Home", 0, 10), ("PageDown", 2, 10), ("ArrowDown", 2, 10), ("ArrowRight", 2, 20), ("ArrowUp", 1, 20),
            ("Shift+ArrowRight", 1, 50), ("Shift+ArrowUp", 0, 50), ("ArrowLeft", 0, 40), ("End", 0, 50),
        ):  # fmt: skip
            page.keyboard.press(key)
            assert f"at {layer} convolutional, iteration {iteration}" in page.locator("#reading").inner_text(), key
        assert page.locator("#follow").get_attribute("aria-pressed") == "true"
        box = page.locator(".heat").bounding_box()
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 12)
        assert re.match(r"[\d.]+ at 0 convolutional, iteration 50$", page.locator(".tip").inner_text())
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] - 100)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 12)
        assert "iteration 30" in page.locator("#reading").inner_text()
        for field in FIELDS:
            page.locator("#field").select_option(field)
            assert page.locator("tr.shown").get_attribute("data-field") == field
        assert page.locator("#log").is_disabled()
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_two_runs_side_by_side(page: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "one", seed=1)
    write_run(tmp_path / "two", seed=2, looks=4)
    with RunServer([tmp_path / "one", tmp_path / "two"], 0) as server:
        opened(page, server.url)
        assert page.locator(".heat").count() == 2
        assert facts(page, 0)["iteration"] == "50 of 60"
        assert facts(page, 1)["iteration"] == "40 of 60"
        names = page.locator(".run .name .soft").all_inner_texts()
        assert [name.split(" ")[0] for name in names] == ["one", "two"]
        page.locator(".heat").nth(1).focus()
        page.keyboard.press("Home")
        for run, seed in enumerate((1, 2)):
            assert cells(page, run)["gradient"] == f"{value(10, seed, FIELDS.index('gradient'), 0):.6g}"
        keys = page.locator(".chart").first.locator(".key-line").inner_text()
        assert re.findall(r"\b[AB]\b", keys) == ["A", "B"]
        boxes = [page.locator(".heat").nth(i).bounding_box() for i in (0, 1)]
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]


def test_one_file_without_a_network(page: Any, browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "one", seed=1)
    write_run(tmp_path / "two", seed=2)
    write_page([tmp_path / "one", tmp_path / "two"], tmp_path / "page.html")
    page.context.set_offline(True)
    opened(page, (tmp_path / "page.html").as_uri())
    assert page.locator("#state").inner_text() == "saved page"
    assert cells(page, 1)["update"] == f"{value(50, 2, FIELDS.index('update'), 0):.6g}"


def test_it_follows_a_run_that_grows_and_goes_on_elsewhere(page: Any, tmp_path: Path) -> None:
    writer = write_run(tmp_path / "run")
    with RunServer([tmp_path / "run"], 0) as server:
        opened(page, server.url)
        writer.iteration(51, {"loss": 0.125, "average": 0.5, "rate": 0.002, "speed": 60})
        wait_for(page, "[data-fact=iteration] dd", "51")
        assert facts(page)["loss"] == "0.125"
        look(writer, 60, 1, 3)
        wait_for(page, ".detail thead th.number", "60")
        assert page.locator("#reading").inner_text().endswith("iteration 60")  # the words follow with the cell
        # Resumed from iteration 20: what came later is replaced.
        again = RunWriter(tmp_path / "run", Header(**{**vars(writer.header), "first": 20}))
        again.iteration(21, {"loss": 9, "average": 9, "rate": 0.001})
        wait_for(page, "[data-fact=iteration] dd", "21")
        assert "20" in page.locator(".detail thead").inner_text()
        # Begun anew: another file takes the place.
        fresh = RunWriter(tmp_path / "run", writer.header)
        fresh.iteration(1, {"loss": 7, "average": 7, "rate": 0.001})
        wait_for(page, "[data-fact=iteration] dd", "1 of")
        assert "kept as run_1" in page.locator(".notes").inner_text()
        again = RunWriter(tmp_path / "run", Header(**{**vars(writer.header), "first": 1}))
        again.end(1, True)
        wait_for(page, "#state", "ended")
        assert "stopped by request" in page.locator(".run").inner_text()


class Waiting(TrainingWatcher):
    """Lets a training go on only after the page has shown an iteration."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.go = threading.Semaphore(0)

    def iterated(self, iteration: Any) -> None:
        self.done.append(iteration.number)
        assert self.go.acquire(timeout=60)


def test_live_during_a_real_training(page: Any, tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", max_batches=6)
    url: list[str] = []
    ready = threading.Event()

    def say(text: str) -> None:
        url.append(text.split()[4])
        ready.set()

    gate = Waiting()

    def train() -> None:
        with live_page(0, say) as show:
            watcher = Together(RunRecorder(tmp_path / "run", 2, show), gate)
            training(
                scene.data, scene.cfg, None, TrainOptions(workers=1, validate=True, validate_every=3), watcher=watcher
            ).run()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        assert ready.wait(60)
        opened(page, url[0])
        for number in range(1, 6):
            wait_for(page, "[data-fact=iteration] dd", f"{number} of 6")
            losses = [r["loss"] for r in recorded(tmp_path / "run", "iteration")]
            assert float(facts(page)["loss"].replace(",", "")) == pytest.approx(losses[number - 1], rel=0.005)
            gate.go.release()
    finally:
        for _ in range(6):
            gate.go.release()
        thread.join(60)
    wait_for(page, "#state", "training ended, page stays")
    wait_for(page, "[data-fact=iteration] dd", "6 of 6")
    wait_for(page, "[data-fact=state] dd", "finished")
    page.locator(".heat").focus()
    page.keyboard.press("Home")
    first = recorded(tmp_path / "run", "layers")[0]
    got = cells(page)
    for name, row in first["values"].items():
        assert got[name] == ("-" if row[0] is None else str(row[0])), name
    assert page.locator(".chart").nth(1).locator(".key-line").inner_text().startswith("mAP")


def test_a_large_net_is_drawn_at_once(page: Any, tmp_path: Path) -> None:
    """107 layers and 1,000 looks: all there, and a key's answer within a frame or a few (no clock is asked)."""
    write_run(tmp_path / "run", looks=1000, layers=107)
    with RunServer([tmp_path / "run"], 0) as server:
        opened(page, server.url)
        page.locator(".heat").focus()
        page.keyboard.press("Home")
        for _ in range(30):
            page.keyboard.press("ArrowRight")
        assert "at 0 convolutional, iteration 310" in page.locator("#reading").inner_text()
        size = page.evaluate("(() => { const c = document.querySelector('.cells'); return [c.width, c.height]; })()")
        assert size[1] >= 3 * 107


def test_a_run_without_layers(page: Any, tmp_path: Path) -> None:
    (tmp_path / "cells_log.csv").write_text(
        "iteration,loss,average_loss,rate,seconds,waited,images,width,height\n1,5,5,0.001,2,0.5,16,416,416\n"
    )
    with RunServer([tmp_path], 0) as server:
        page.goto(server.url)
        page.wait_for_selector(".run dl")
        assert facts(page)["loss"] == "5"
        assert not page.locator(".layers").is_visible()
        assert "no validation recorded" in page.locator(".charts").inner_text()


def test_a_run_that_broke_off_says_so_first(page: Any, tmp_path: Path) -> None:
    writer = write_run(tmp_path / "run", looks=1)
    writer.layers(11, LayerNumbers({"bad": [0, 4.0, 0]}, [("non-finite", 1, "4 values of its output are not finite")]))
    writer.broke_off(NonFiniteError("output holds 4 of 8 values that are not finite", layer=1))
    with RunServer([tmp_path / "run"], 0) as server:
        opened(page, server.url)
        assert page.locator(".run .wrong").inner_text() == (
            "⚠ broke off in iteration 11: layer 1: output holds 4 of 8 values that are not finite"
        )
        assert "state" not in facts(page)
        wait_for(page, "#state", "broke off")
        assert "4 values of its output are not finite" in page.locator(".marks").inner_text()


def test_a_loss_that_is_lost_is_told(page: Any, tmp_path: Path) -> None:
    writer = write_run(tmp_path / "run", looks=1)
    for number in (11, 12):
        writer.iteration(number, {"loss": math.nan, "average": math.nan, "rate": 0.1})
    with RunServer([tmp_path / "run"], 0) as server:
        opened(page, server.url)
        assert page.locator(".run .wrong").inner_text() == "⚠ the loss is not finite since iteration 11"
        assert facts(page)["loss"] == "nan"


def test_nothing_is_said_of_layers_that_were_not_looked_at(page: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "run", looks=0)
    write_page([tmp_path / "run"], tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".marks p")
    assert page.locator(".marks").inner_text() == "the layers have not been looked at"


def test_a_run_that_explodes_shows_its_last_values_whole(page: Any, tmp_path: Path) -> None:
    header = Header("boom", "caffe", "net", "2026-01-01T00:00:00", last=9, every=1, layers=(("a", "A"), ("b", "B")))
    writer = RunWriter(tmp_path / "run", header)
    for number in range(1, 9):
        size = 6.47 * 10.0 ** (5 * number - 5)
        loss = math.nan if number == 8 else size
        writer.iteration(number, {"loss": loss, "average": size, "rate": 0.0, "speed": 50})
        values = {name: [size * 1.01, size * 1.02] for name in FIELDS} | {"dead": [0.0, 0.0], "bad": [0.0, 6.0]}
        writer.layers(number, LayerNumbers(values, []))
    write_page([tmp_path / "run"], tmp_path / "page.html")
    opened(page, (tmp_path / "page.html").as_uri())
    loss = page.locator(".chart").first
    said = [one.inner_text() for one in loss.locator(".key b").all()]
    assert said == ["nan", "6.47e+35"]
    card = loss.bounding_box()
    for one in loss.locator(".key, .at").all():
        box = one.bounding_box()
        assert box["x"] + box["width"] <= card["x"] + card["width"]
        assert box["y"] + box["height"] <= loss.locator(".plot").bounding_box()["y"] + 1
    assert page.locator(".chart", has_text="Learning rate").locator(".key b").inner_text() == "0"
    assert "no test recorded (test_interval" in page.locator(".chart", has_text="Measured").inner_text()
    # Marks of the scale of colours do not touch each other, on any statistic.
    touching = page.evaluate(
        """async () => { const { Scale, drawLegend } = await import("runs/scale");
           const { h } = await import("scope/dom");
           const drawn = []; const canvas = h("canvas"); const pen = canvas.getContext("2d");
           pen.fillText = (text, x) => drawn.push([x, pen.measureText(text).width]);
           drawLegend(canvas, new Scale(6.5e-31, 6.5e35, { log: true }), 220);
           const touch = ([x, w], i) => i && x - w / 2 < drawn[i - 1][0] + drawn[i - 1][1] / 2;
           return [drawn.length, drawn.some(touch)]; }"""
    )
    assert touching[0] >= 3
    assert not touching[1]


def test_a_run_of_a_header_alone_says_so(page: Any, tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", Header("net", "caffe", "net", "2026-01-01T00:00:00", layers=(("a", "A"),)))
    write_page([tmp_path / "run"], tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".run .wrong, .run .soft")
    assert "nothing is recorded of this run yet" in page.inner_text(".run")

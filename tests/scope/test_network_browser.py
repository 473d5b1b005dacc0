"""The page about one network in a real browser: graph, steps, numbers, keys, dialects, maps and boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.inspect.yolov3 import yolov3_cfg
from tests.scope.networks import DETECTOR, LENET, RESIDUAL, SSD, SSD_TEST
from tests.scope.networks import SSD_FOURTH as FOURTH
from undertow.inspect.formulas import shape_text
from undertow.inspect.text import number_text, share_text
from undertow.scope.app import page_of, routes_for, write_page
from undertow.scope.document import document
from undertow.scope.recording import Recording, Request, record
from undertow.scope.server import Server


def recorded(folder: Path, name: str, text: str, **options: Any) -> Recording:
    (folder / name).write_text(text)
    return record(Request(str(folder / name), **options))


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(tmp_path_factory.mktemp("lenet"), "lenet.prototxt", LENET)


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(tmp_path_factory.mktemp("residual"), "residual.cfg", RESIDUAL)


def opened(page: Any, recording: Recording, folder: Path) -> None:
    """The page as one file, ready."""
    write_page(recording, folder / "page.html")
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")


def cells(page: Any, table: str) -> list[list[str]]:
    """The cells of a table's body."""
    found: list[list[str]] = page.eval_on_selector_all(
        f"#{table} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return found


def test_the_graph_of_lenet_has_a_node_for_each_layer_and_no_overlaps(
    page: Any, lenet: Recording, tmp_path: Path
) -> None:
    opened(page, lenet, tmp_path)
    names = page.eval_on_selector_all(".node .node-name", "nodes => nodes.map(node => node.textContent)")
    assert len(names) == len(lenet.rows)
    assert names[1].startswith("conv1")
    boxes = [node.bounding_box() for node in page.query_selector_all(".node .box")]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert apart or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]


def test_stepping_changes_what_is_shown_and_says_so(page: Any, residual: Recording, tmp_path: Path) -> None:
    opened(page, residual, tmp_path)
    assert page.inner_text("#sentence") == f"Forward pass done, loss {residual.runs[0].trace.loss:.6g}. 7 steps back"
    assert page.query_selector(".node.arrived") is None
    page.click("#on")
    page.click("#on")
    assert page.inner_text("#sentence").startswith("Step 2 of 7: layer 5 connected, gradient norm ")
    assert page.inner_text("#said") == page.inner_text("#sentence")
    assert len(page.query_selector_all(".node.arrived")) == 2
    assert page.inner_text(".panel-heading h2") == "Layer 5 connected"
    page.click("#back")
    assert len(page.query_selector_all(".node.arrived")) == 1
    page.fill("#slider", "7")
    assert len(page.query_selector_all(".node.arrived")) == 7
    page.click("#first")
    page.click("#play")
    page.wait_for_selector(".node.arrived")
    page.click("#play")
    page.click("#last")
    assert page.get_attribute("#slider", "aria-valuetext") == page.inner_text("#sentence")


def test_numbers_are_those_of_trace(page: Any, lenet: Recording, tmp_path: Path) -> None:
    opened(page, lenet, tmp_path)
    page.click("#tab-numbers")
    trace = lenet.runs[0].trace
    for layer in trace.layers:
        page.fill("#search", layer.name)
        for kind, found in (("output", layer.output), ("gradient", layer.gradient)):
            shown = {row[0]: row[1] for row in cells(page, f"statistics-{kind}")}
            expected = {
                "norm": found.norm, "mean": found.mean, "deviation": found.deviation, "min": found.minimum,
                "max": found.maximum,
            }  # fmt: skip
            for name, value in expected.items():
                assert shown[name] == number_text(value), (layer.name, kind, name)
            assert shown["zeros"] == share_text(found.zeros)
        for row in cells(page, "parameters") if layer.parameters else ():
            parameter = layer.parameters[row[0]]
            assert row[1:] == [number_text(n) for n in (parameter.norm, parameter.gradient, parameter.update)]


def test_addends_meet_and_the_other_dialect_loses_one(page: Any, residual: Recording, tmp_path: Path) -> None:
    opened(page, residual, tmp_path)
    page.fill("#search", "0")
    exact, cpu = residual.runs
    shown = cells(page, "arrives")
    assert [row[0] for row in shown] == ["from 1 conv 1x1", "from 3 shortcut", "Sum of 2"]
    assert shown[0][1:] == [number_text(run.sent[1][0]) for run in (exact, cpu)]
    assert shown[1][1:] == [number_text(exact.sent[3][0]), "0, lost"]
    assert shown[2][1:] == [number_text(run.trace.layers[0].gradient.norm) for run in (exact, cpu)]
    page.click("#last")
    assert page.query_selector(".edge.lost") is None
    page.click("#run-darknet-cpu")
    assert len(page.query_selector_all(".edge.lost")) == 1
    assert "0, lost" in page.eval_on_selector_all(".edge-label", "labels => labels.map(label => label.textContent)")
    page.click("#tab-dialects")
    assert page.inner_text("#lost") == "1 of 1 in shortcut layers"
    assert [row[:4] for row in cells(page, "paths")] == [["3 shortcut", "0 conv 3x3", shown[1][1], "0"]]


def test_formula_shapes_and_story(page: Any, lenet: Recording, tmp_path: Path) -> None:
    opened(page, lenet, tmp_path)
    page.fill("#search", "conv2")
    row = next(row for row in lenet.rows if row.name == "conv2")
    assert page.inner_text("#formula").split("\n") == list(row.formula)
    assert "weight gradient 50x500 = output gradient 50x64 times columns 64x500" in page.inner_text("#formula")
    assert shape_text(row.outputs[0]) in page.inner_text(".facts")
    page.click("#tab-story")
    lines = page.eval_on_selector_all("#story span", "lines => lines.map(line => line.textContent)")
    assert lines == lenet.stories[row.index]


def test_everything_by_keyboard(page: Any, residual: Recording, tmp_path: Path) -> None:
    opened(page, residual, tmp_path)
    press = page.keyboard.press
    press("End")
    assert page.inner_text("#sentence").startswith("Step 7 of 7")
    press("ArrowLeft")
    assert page.inner_text("#sentence").startswith("Step 6 of 7")
    press("Home")
    press("ArrowRight")
    assert page.inner_text("#sentence").startswith("Step 1 of 7")
    press("ArrowUp")
    assert page.inner_text(".panel-heading h2") == "Layer 5 connected"
    assert page.evaluate("document.activeElement.classList.contains('node')")
    press(" ")  # plays, also while a layer has the focus
    page.wait_for_selector("#sentence:has-text('Step 2 of 7')")
    press(" ")
    press("ArrowUp")
    press("d")
    assert page.get_attribute("#run-darknet-cpu", "aria-pressed") == "true"
    press("2")
    assert page.get_attribute("#tab-numbers", "aria-selected") == "true"
    press("/")
    page.keyboard.type("short")
    assert page.inner_text(".panel-heading h2") == "Layer 3 shortcut"
    assert page.inner_text("#found") == "1 found"
    press("Escape")
    before = page.get_attribute(".graph > g", "transform")
    press("+")
    assert page.get_attribute(".graph > g", "transform") != before
    press("?")
    assert page.is_visible("dialog")
    press("Escape")
    # Every control is reached by Tab, and each has a name.
    nameless = page.eval_on_selector_all(
        "button, select, input, [role=button]",
        "all => all.filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).length",
    )
    assert nameless == 0


def test_yolov3_folds_unfolds_and_is_found(page: Any, tmp_path: Path) -> None:
    recording = recorded(tmp_path, "yolov3.cfg", yolov3_cfg(2), size=64, batch=1)
    size = write_page(recording, tmp_path / "page.html")
    assert size < 5_000_000
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    times = page.eval_on_selector_all(".node.folded .node-name", "names => names.map(name => name.textContent)")
    assert times == [f"×{count} blocks" for count in (2, 8, 8, 4, 3, 2, 2)]
    layers = [
        int(i) for text in page.eval_on_selector_all(".node", "n => n.map(e => e.dataset.layers)") for i in text.split()
    ]
    assert sorted(layers) == list(range(107))
    # The layer where the way back begins stands whole in the first view.
    begin = page.query_selector(".node.selected .box").bounding_box()
    stage = page.query_selector(".graph").bounding_box()
    assert begin["y"] >= stage["y"]
    assert begin["y"] + begin["height"] <= stage["y"] + stage["height"]
    page.click("#fold")
    assert len(page.query_selector_all(".node")) == 107
    page.keyboard.press("0")
    stage = page.query_selector(".graph").bounding_box()
    for node in page.query_selector_all(".node .box"):
        box = node.bounding_box()
        assert box["x"] >= stage["x"]
        assert box["x"] + box["width"] <= stage["x"] + stage["width"]
        assert box["y"] >= stage["y"] - 1
        assert box["y"] + box["height"] <= stage["y"] + stage["height"] + 1
    # Sizes and norms share a line, and never the same place on it; nothing of either leaves the node.
    page.keyboard.press("End")
    lines = page.eval_on_selector_all(
        ".node",
        """all => all.map(node => ["node-size", "node-norm"].map(name => {
           const box = node.querySelector(`.${name}`).getBBox(); return [box.x, box.x + box.width]; }))""",
    )
    assert all(size[1] < norm[0] or norm[0] == norm[1] for size, norm in lines)
    assert all(size[0] >= 0 for size, _ in lines)
    page.click("#fold")
    assert len(page.query_selector_all(".node")) < 60
    page.fill("#search", "36")
    assert page.inner_text(".panel-heading h2") == "Layer 36 shortcut"
    page.click(".node.selected .fold-button")
    assert len(page.query_selector_all(".group")) == 1
    page.click("#tab-dialects")
    assert page.inner_text("#lost") == "23 of 23 in shortcut layers, 0 of 6 in route layers"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_light_and_dark_are_readable(browser: Any, residual: Recording, tmp_path: Path, theme: str) -> None:
    page = browser.new_context(color_scheme=theme, viewport={"width": 1024, "height": 700}).new_page()
    opened(page, residual, tmp_path)
    page.click("#last")
    assert page.get_attribute("html", "data-theme") == theme
    for place in ("#sentence", ".node-size", ".soft", ".tabs button", "#arrives td"):
        assert contrast(page, place) >= 4.5, place
    # Nothing runs out of the window.
    assert page.evaluate("document.documentElement.scrollWidth") <= 1024
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") != theme
    page.context.close()


def contrast(page: Any, place: str) -> float:
    """Of an element's letters with what lies behind them (WCAG 2)."""
    front, back = page.eval_on_selector(
        place,
        """element => {
          const style = getComputedStyle(element);
          const svg = element instanceof SVGElement;
          let behind = svg ? element.parentElement.querySelector(".box") : element;
          const fill = (e) => svg ? getComputedStyle(e).fill : getComputedStyle(e).backgroundColor;
          while (!svg && fill(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
          return [svg ? style.fill : style.color, fill(behind)];
        }""",
    )
    one, other = sorted((luminance(front), luminance(back)))
    return (other + 0.05) / (one + 0.05)


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_boxes_and_their_pulls(page: Any, tmp_path: Path) -> None:
    truth = np.array([[0.3, 0.6, 0.3, 0.3, 1.0, 0.7, 0.3, 0.1, 0.12, 0]], np.float32)
    np.savez(tmp_path / "data.npz", images=np.full((1, 3, 64, 64), 0.5, np.float32), truth=truth)
    names = ("cat", "dog")
    recording = recorded(tmp_path, "detector.cfg", DETECTOR, data=tmp_path / "data.npz", names=names)
    opened(page, recording, tmp_path)
    page.click("#tab-boxes")
    assert len(page.query_selector_all(".boxes-picture .box-truth")) == 2
    choices = page.query_selector_all(".choices button")
    assert sorted(choice.inner_text() for choice in choices) == [
        "cat: layer 2, anchor 0, row 9, column 22", "dog: layer 2, anchor 1, row 19, column 9",
    ]  # fmt: skip
    heads = recording.runs[0].heads
    assert heads is not None
    for place in range(2):
        page.click(f".choices button:nth-child({place + 1})")
        one = heads.heads[0].responsible[place]
        shown = {row[0]: row[1:4] for row in cells(page, "terms")}
        for term in one.terms:
            assert shown[term.name] == [number_text(n) for n in (term.output, term.target, term.pull)]
        assert page.query_selector(".boxes-picture .pull-line") is not None
    page.check("#show-pull")
    page.wait_for_selector(".boxes-picture image[style]", state="attached")


def test_an_ssds_default_boxes_and_their_pulls(page: Any, tmp_path: Path) -> None:
    objects = [[0, 1, 0, 0.1, 0.2, 0.4, 0.5, 0], [0, 2, 0, 0.55, 0.6, 0.95, 0.9, 0]]
    images = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    np.savez(tmp_path / "data.npz", data=images, label=np.array(objects, np.float32).reshape(1, 1, 2, 8))
    names = ("none", "cat", "dog")
    recording = recorded(tmp_path, "ssd.prototxt", SSD, data=tmp_path / "data.npz", names=names)
    opened(page, recording, tmp_path)
    # The priors read a layer, and send it nothing: three paths come back to c2_relu. No step goes to the data.
    page.keyboard.press("0")
    page.click("[data-layers='5']")
    assert [row[0] for row in cells(page, "arrives")] == [
        "from c3 Convolution 3x3", "from loc2 Convolution 3x3", "from conf2 Convolution 3x3", "Sum of 3"
    ]  # fmt: skip
    page.keyboard.press("End")
    assert page.inner_text("#sentence").startswith("Step 21 of 21: layer c1 Convolution 3x3, gradient norm ")
    page.click("#tab-boxes")
    assert len(page.query_selector_all(".boxes-picture .box-truth")) == 2
    heads = recording.runs[0].heads
    assert heads is not None
    ones = [(head, one) for head in heads.heads for one in head.responsible]
    choices = [choice.inner_text() for choice in page.query_selector_all(".choices button")]
    head, one = ones[0]
    layer = recording.rows[head.layer].name
    name = names[int(heads.truths[one.truth, 4])]
    assert choices[0] == f"{name}: {layer}, default box {one.number}, row {one.row}, column {one.column}"
    assert len(choices) == len(ones)
    shown = {row[0]: row[1:4] for row in cells(page, "terms")}
    for term in one.terms:
        assert shown[term.name] == [number_text(n) for n in (term.output, term.target, term.pull)]
    assert page.query_selector(".boxes-picture .pull-line") is not None
    page.check("#show-pull")
    page.wait_for_selector(".boxes-picture image[style]", state="attached")


def test_boxes_found_are_shown_where_there_is_no_loss(page: Any, tmp_path: Path) -> None:
    recording = recorded(tmp_path, "ssd.prototxt", SSD_TEST)
    opened(page, recording, tmp_path)
    assert "no loss" in page.inner_text("#sentence")
    page.click("#tab-boxes")
    assert page.query_selector(".boxes-picture .box-found") is not None
    assert "these are the boxes it found" in page.inner_text("#content")
    heads = recording.runs[0].heads
    assert heads is not None
    rows = cells(page, "found-list")
    assert len(rows) == len(heads.found)
    assert rows[0][1:3] == [f"{round(100 * heads.found[0, 5])}%", number_text(heads.found[0, 0])]
    assert "false" not in page.inner_text("#content")


def test_alike_branches_fold_and_the_minimap_comes_when_it_is_needed(page: Any, tmp_path: Path) -> None:
    three = SSD
    for name in ("loc", "conf", "prior"):  # a third scale: two are no group
        three = three.replace(f'bottom: "{name}3_flat" top', f'bottom: "{name}3_flat" bottom: "{name}4_flat" top')
    three = three.replace('bottom: "prior3" top', 'bottom: "prior3" bottom: "prior4" top')
    three = three.replace('layer { name: "loc" type', FOURTH + 'layer { name: "loc" type')
    opened(page, recorded(tmp_path, "ssd.prototxt", three), tmp_path)
    kinds = page.eval_on_selector_all(".node.folded", "nodes => nodes.map(node => node.getAttribute('aria-label'))")
    # What leaves from the same layer is one head: places, classes and default boxes.
    assert kinds == ["3 branches that are alike, each Convolution 3x3, Permute, Flatten, PriorBox"]
    # The first view shows the net in its whole width, without lines that leave it.
    stage = page.query_selector(".graph").bounding_box()
    for shape in page.query_selector_all(".node .box, .edge"):
        box = shape.bounding_box()
        assert box["x"] >= stage["x"] - 1
        assert box["x"] + box["width"] <= stage["x"] + stage["width"] + 1
    before = len(page.query_selector_all(".node"))
    page.keyboard.press("f")
    assert len(page.query_selector_all(".node")) == before + 3 * 7 - 1
    assert page.is_visible(".minimap")
    page.keyboard.press("0")
    page.wait_for_selector(".minimap", state="hidden")
    page.keyboard.press("w")
    frame, stage = (page.locator(name).bounding_box() for name in (".graph > g", ".graph-stage"))
    assert frame["width"] <= stage["width"]


def test_what_is_not_finite_is_seen_as_such(page: Any, tmp_path: Path) -> None:
    images = np.random.default_rng(1).random((2, 3, 16, 16)).astype(np.float32)
    images[0, 0, 8, 8] = np.nan
    np.savez(tmp_path / "batch.npz", images=images)
    recording = recorded(tmp_path, "residual.cfg", RESIDUAL, data=tmp_path / "batch.npz")
    opened(page, recording, tmp_path)
    assert page.inner_text("#sentence") == "Forward pass done, loss nan. 7 steps back"
    assert len(page.query_selector_all(".node.wrong")) == 7
    assert page.text_content(".node[data-layers='0'] .node-wrong") == "⚠"
    assert ", not finite" in page.get_attribute(".node[data-layers='0']", "aria-label")
    page.keyboard.press("End")
    bad = int(recording.runs[0].trace.layers[0].gradient.bad)
    assert page.inner_text("#sentence") == (
        f"Step 7 of 7: layer 0 conv 3x3, gradient norm nan, {bad:,} of its values not finite"
    )
    assert cells(page, "arrives")[-1][1] == "nan"
    page.click("#tab-numbers")
    shown = {row[0]: row[1] for row in cells(page, "statistics-gradient")}
    assert (shown["norm"], shown["not finite"]) == ("nan", f"{bad:,}")


# The gradient of the Sigmoid is subnormal.
TINY = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 2 kernel_size: 1
  weight_filler { type: "constant" value: 1e-9 } bias_filler { type: "constant" value: 16777216 } } }
layer { name: "s" type: "Sigmoid" bottom: "c" top: "s" }
layer { name: "k" type: "Power" bottom: "s" top: "k" power_param { scale: 1e-41 } }
"""


def test_gradients_too_small_for_a_chart_stand_at_its_edge(page: Any, tmp_path: Path) -> None:
    recording = recorded(tmp_path, "tiny.prototxt", TINY)
    opened(page, recording, tmp_path)
    assert 0 < recording.runs[0].trace.layers[2].gradient.norm < 1e-38
    assert "lowest: below 1e-30" in page.inner_text(".player-chart .lowest")
    marks = page.evaluate(
        """async () => { const { Powers } = await import("scope/axes"); const axis = new Powers();
           const drawn = axis.take([[1e-41, 1, 0]])[0]; const range = axis.range(null, drawn[0], drawn[1]);
           return [drawn, axis.marks(...range).map((at) => axis.text(at, String))]; }"""
    )
    assert marks == [[-30, 0, None], ["≤1e-30", "1e-23", "1e-16", "1e-9", "0.01"]]
    page.click(".node[data-layers='2']")
    page.click("#tab-numbers")
    # Bars of the histogram have their height on the canvas, and its axis the numbers.
    canvas = ".gradient .histogram canvas"
    filled = page.eval_on_selector(
        canvas,
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 == 3 && v).length",
    )
    assert filled > 2000
    assert page.evaluate(
        """async () => { const { Even } = await import("scope/axes"); const axis = new Even();
           return axis.take([[1e-41, 3e-41]])[0].map((at) => Math.round(axis.value(at) / 1e-42)); }"""
    ) == [10, 30]


def test_a_long_net_has_a_small_page_with_fewer_maps(page: Any, tmp_path: Path) -> None:
    layer = "[convolutional]\nfilters=16\nsize=3\npad=1\nactivation=linear\n\n"
    cfg = "[net]\nbatch=1\nwidth=64\nheight=64\nchannels=3\n\n" + 130 * layer
    recording = recorded(tmp_path, "long.cfg", cfg, dialects=("exact",))
    assert len(page_of(recording).whole(document(recording, live=False))) > 5_000_000
    assert write_page(recording, tmp_path / "page.html") < 5_000_000
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    page.click("#tab-maps")
    assert "this page holds 8 of a layer's maps, at most 64 pixels wide" in page.inner_text("#fewer")
    page.wait_for_selector(".thumbnail")
    assert len(page.query_selector_all(".thumbnail")) == 16


def test_escape_ends_a_search(page: Any, residual: Recording, tmp_path: Path) -> None:
    opened(page, residual, tmp_path)
    page.fill("#search", "conv")
    assert page.inner_text("#found") == "3 found"
    assert len(page.query_selector_all(".node.found")) == 3
    page.focus("#search")
    page.keyboard.press("Escape")
    assert page.input_value("#search") == ""
    assert page.inner_text("#found") == ""
    assert page.query_selector(".node.found") is None


def test_random_truth_is_never_cut_off(page: Any, tmp_path: Path) -> None:
    images = np.random.default_rng(1).random((1, 3, 64, 64)).astype(np.float32)
    path = tmp_path / f"{'a-very-long-name-' * 8}.npz"
    np.savez(path, images=images)
    opened(page, recorded(tmp_path, "d.cfg", DETECTOR, data=path), tmp_path)
    for width in (1280, 1000):
        page.set_viewport_size({"width": width, "height": 800})
        box = page.locator("#random").bounding_box()
        assert page.inner_text("#random") == "random truth"
        assert box["width"] > 60
        assert box["x"] + box["width"] <= width


def test_full_maps_are_fetched_from_the_server(page: Any, lenet: Recording) -> None:
    with Server(routes_for(lenet)) as server:
        page.goto(server.url)
        page.wait_for_selector("html[data-ready]", state="attached")
        page.fill("#search", "conv2")
        page.click("#tab-maps")
        page.wait_for_selector(".thumbnail")
        assert len(page.query_selector_all(".thumbnail")) == 32
        page.select_option("#channels", "3")
        page.wait_for_selector(".thumbnail[aria-label='Channel 49']")
        assert len(page.query_selector_all(".thumbnail")) == 4
        assert "Channel 48, 8x8 pixels" in page.inner_text(".maps-card")

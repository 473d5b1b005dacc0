// The page about one or two trainings: charts above, the heat map of the layers below, the chosen cell beside it.

import { h, show } from "scope/dom";
import { colour, onTheme, themeButton } from "scope/theme";
import { countText, numberText } from "scope/numbers";
import { Charts } from "runs/charts";
import { Detail } from "runs/detail";
import { FIELDS, valueText } from "runs/fields";
import { HeatMap, patternOf } from "runs/heat";
import { Scale, drawLegend } from "runs/scale";
import { openRuns } from "runs/source";

const FIRST = "gradient";
const DRAW_EVERY = 400;

let runs = [];
let maps = [];
const shown = { field: FIRST, log: true, layer: 0, iteration: Infinity };
const connection = { text: "loading", live: false };
const parts = {};

function frame() {
  parts.state = h("span", { class: "tag", id: "state", role: "status" }, "loading");
  parts.runs = h("div", { class: "runs" });
  parts.charts = h("div", { class: "charts" });
  parts.field = h("select", { id: "field", "aria-label": "Statistic of the layers", onchange: chooseField });
  parts.log = h("button", { type: "button", id: "log", title: "Colours over powers of ten", onclick: () => setLog(!shown.log) }, "log scale");
  parts.follow = h("button", { type: "button", id: "follow", title: "Keep to the last iteration", onclick: () => choose(shown.layer, Infinity) }, "last iteration");
  parts.legend = h("canvas", { role: "img" });
  parts.keys = h("span", { class: "keys" });
  parts.maps = h("div", { class: "maps" });
  parts.detail = h("aside", { class: "detail" });
  parts.reading = h("p", { class: "reading mono", id: "reading", "aria-live": "polite" });
  parts.notes = h("div", { class: "notes" });
  document.body.append(
    h("header", { class: "bar" }, h("h1", {}, "Undertow: training"), parts.state, h("span", { class: "grow" }), themeButton()),
    h("main", {}, parts.runs, parts.charts,
      h("section", { class: "card layers", "aria-label": "Layers over iterations" },
        h("div", { class: "tools" },
          h("h2", {}, "Layers"), parts.field, parts.log, parts.follow,
          h("span", { class: "grow" }), parts.legend, parts.keys),
        h("div", { class: "body" }, h("div", { class: "left" }, parts.maps, parts.reading), parts.detail)),
      parts.notes),
  );
  parts.chartsView = new Charts(parts.charts, () => runs);
  parts.detailView = new Detail(parts.detail, choose);
}

function chooseField() {
  shown.field = parts.field.value;
  setLog(FIELDS[shown.field].kind === "size");
}

function setLog(log) {
  shown.log = log;
  drawLayers();
}

function choose(layer, iteration) {
  shown.layer = layer;
  shown.iteration = runs.every((run) => iteration >= (run.looks.rows.at(-1)?.i ?? 0)) ? Infinity : iteration;
  drawLayers();
}

/** The chosen cell in words, below the map. */
function read() {
  const { layer } = shown;
  const words = runs.map((one, i) => {
    const look = one.lookAt(shown.iteration);
    return look && layer < one.layers.length ? `${runs.length > 1 ? `${one.letter}: ` : ""}${maps[i].words(layer, look)}` : "";
  });
  const text = words.some(Boolean) ? `${FIELDS[shown.field].short} ${words.filter(Boolean).join("  |  ")}` : "";
  if (parts.reading.textContent !== text) parts.reading.textContent = text;
}

// --- drawing --------------------------------------------------------------------------------------------------

/** Draw all within a moment, once however often it is asked for. */
const drawSoon = (() => {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => requestAnimationFrame(() => {
      waiting = false;
      draw();
    }), DRAW_EVERY);
  };
})();

function draw() {
  drawRuns();
  parts.chartsView.draw();
  drawLayers();
  drawNotes();
}

function drawState() {
  const over = connection.live && runs.length > 0 && runs.every((run) => run.end);
  parts.state.textContent = over ? (runs.some((run) => run.broken) ? "broke off" : "ended") : connection.live ? `● ${connection.text}` : connection.text;
  parts.state.classList.toggle("good", connection.live && !over);
}

function drawRuns() {
  drawState();
  show(parts.runs, runs.map((run) => {
    const { header, last } = run;
    const best = Math.max(...run.measures.rows.map((row) => row.values.mAP ?? NaN).filter(Number.isFinite));
    const facts = [
      ["iteration", last ? `${countText(last.i)}${header.last ? ` of ${countText(header.last)}` : ""}` : "-"],
      ["loss", valueText(last?.loss)], ["average", valueText(last?.average)], ["rate", valueText(last?.rate)],
      ["images/s", valueText(last?.speed)],
      ...(Number.isFinite(best) ? [["best mAP", `${(100 * best).toFixed(1)}%`]] : []),
      ["", run.end && !run.broken ? (run.end.stopped ? "stopped by request" : "finished") : ""],
    ];
    const done = header.last && last ? Math.min(1, last.i / header.last) : 0;
    return h("section", { class: "card run", "aria-label": `Run ${run.letter}` },
      h("div", { class: "name" }, runs.length > 1 ? h("b", { class: `letter ${run.letter}` }, run.letter) : null, h("b", {}, header.name),
        h("span", { class: "soft" }, [run.folder === header.name ? "" : run.folder, header.net, header.how, `since ${header.started.replace("T", " ")}`].filter(Boolean).join(" · "))),
      h("dl", {}, facts.filter(([, value]) => value).map(([name, value]) =>
        h("div", { "data-fact": name || "state" }, name ? h("dt", {}, name) : null, h("dd", {}, value)))),
      wrong(run), h("progress", { max: 1, value: done, "aria-label": "done" }));
  }));
}

/** What went wrong with a run, in words; null where nothing did. */
function wrong(run) {
  const since = run.lossGone === null ? "" : `the loss is not finite since iteration ${countText(run.lossGone)}`;
  if (!run.last && !run.looks.rows.length && !run.broken) return h("p", { class: "soft" }, "nothing is recorded of this run yet but its header");
  const text = run.broken ? `broke off in iteration ${countText(run.broken.i)}: ${run.broken.reason}` : since;
  return text ? h("p", { class: "wrong", role: "alert" }, h("span", { class: "tag bad" }, "⚠"), ` ${text}`) : null;
}

function drawLayers() {
  const any = runs.some((run) => run.layers.length);
  document.querySelector(".layers").classList.toggle("hidden", !any);
  if (!any) return;
  const { kind } = FIELDS[shown.field];
  const may = kind === "size";
  const log = shown.log && may;
  parts.log.disabled = !may;
  parts.log.setAttribute("aria-pressed", String(log));
  parts.follow.setAttribute("aria-pressed", String(shown.iteration === Infinity));
  const rows = runs.flatMap((run) => run.looks.rows.map((look) => look.values[shown.field] ?? []));
  const scale = Scale.over(rows, kind, log);
  const free = window.innerHeight - (parts.maps.getBoundingClientRect().top + window.scrollY) - 44;
  const height = Math.max(300, free);
  maps.forEach((map, i) => map.draw({ ...shown, log, scale, height, run: runs[i], chosen: shown }));
  drawLegend(parts.legend, scale, 220);
  parts.legend.setAttribute("aria-label", `Colours from ${numberText(scale.low)} (dark) to ${numberText(scale.high)}`);
  drawKeys(log);
  parts.detailView.draw({ runs, ...shown, log });
  read();
}

/** What the hatchings mean. */
function drawKeys(log) {
  const key = (kind, ink, ground, text) => {
    const canvas = h("canvas", { width: 18, height: 12, "aria-hidden": "true" });
    const pen = canvas.getContext("2d");
    pen.fillStyle = colour("--raised");
    pen.fillRect(0, 0, 18, 12);
    if (kind) {
      pen.fillStyle = patternOf(kind, colour(ink), ground && colour(ground));
      pen.fillRect(0, 0, 18, 12);
    }
    return h("span", { class: "key" }, canvas, text);
  };
  show(parts.keys, key("crosses", "--bad", "--surface", "not finite"), key("lines", "--back", "--surface", "half dead"),
    log ? key("dots", "--ink-soft", null, "0") : null, key(null, null, null, "none"));
}

function drawNotes() {
  const lines = runs.flatMap((run) => {
    const name = runs.length > 1 ? `${run.letter}: ` : "";
    const told = run.notes.map((note) => `${name}iteration ${note.i}: ${note.text}`);
    if (run.iterations.every > 1) told.push(`${name}every ${run.iterations.every}th iteration is shown`);
    if (run.looks.every > 1) told.push(`${name}every ${run.looks.every}th look at the layers is shown`);
    if (run.damaged) told.push(`${name}${run.damaged} damaged lines of the file are left out`);
    if (run.header.samples) told.push(`${name}layers: looked at every ${run.header.every} iterations, with ${run.header.samples} pictures of the last pass`);
    return told;
  });
  show(parts.notes, h("ul", {}, lines.map((line) => h("li", {}, line))));
}

// --- beginning ------------------------------------------------------------------------------------------------

function build() {
  document.title = `${runs.map((run) => run.header.name).join(" and ")} - training - Undertow`;
  const known = Object.keys(FIELDS).filter((key) => runs.some((run) => run.header.fields.includes(key)));
  show(parts.field, known.map((key) => h("option", { value: key }, FIELDS[key].name)));
  parts.field.value = known.includes(FIRST) ? FIRST : known[0];
  shown.field = parts.field.value;
  const places = runs.map((run) => h("div", { class: "map" }));
  show(parts.maps, runs.map((run, i) => h("section", { "aria-label": `Run ${run.letter}` },
    runs.length > 1 ? h("h3", {}, h("b", { class: `letter ${run.letter}` }, run.letter), ` ${run.header.name}`) : null, places[i])));
  document.body.dataset.runs = runs.length;
  maps = runs.map((run, i) => new HeatMap(places[i], run, choose));
  choose(firstTold(), Infinity);
  draw();
}

/** The first layer that has a number of the shown statistic. */
function firstTold() {
  const row = runs[0]?.looks.rows.at(-1)?.values[shown.field] ?? [];
  return Math.max(row.findIndex((value) => Number.isFinite(value)), 0);
}

frame();
try {
  runs = await openRuns({
    told: drawSoon,
    replaced: (index, run) => {
      runs[index] = run;
      build();
    },
    state: (text, live) => {
      Object.assign(connection, { text, live });
      drawState();
    },
  });
  build();
  onTheme(() => drawLayers());
  new ResizeObserver(drawSoon).observe(parts.maps);
} catch (problem) {
  show(document.querySelector("main"), h("p", { class: "card", role: "alert" }, `The run cannot be shown: ${problem.message}`));
  throw problem;
}

// What is told about the chosen layer: what arrives and leaves, numbers, formula.

import { barChart } from "scope/chart";
import { breakable, h } from "scope/dom";
import { title } from "scope/graph";
import { scaleOf } from "scope/layout";
import { strip } from "scope/maps";
import { bytesText, countText, numberText, shapesText, shareText } from "scope/numbers";

/** What arrives at the layer's output, what it computes, what it sends on. */
export function wayBackTab(place, network, store) {
  const { run, step, selected } = store.values;
  const layer = network.layer(selected);
  const arrived = step >= network.stepOf.get(selected);
  place.append(
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        { class: "stack", id: "way" },
        arriving(network, run, layer, arrived),
        sending(network, run, layer),
      ),
      h("div", { class: "stack" }, formula(network, run, layer), facts(layer)),
    ),
  );
  return pictured(place.querySelector("#way"), network, run, layer);
}

/** The arriving gradient in pictures: its maps and the histogram of its values. */
function pictured(place, network, run, layer) {
  const found = network.numbers(run, layer.index).histograms.gradient;
  if (!found || found.counts.reduce((a, b) => a + b, 0) < 2) return null;
  const spot = h("div", {});
  const maps = network.maps(run, layer.index).gradient && h("div", { class: "map-strip" });
  const shown = layer.channels.length;
  const count = layer.outputs[0]?.[1];
  place.append(
    h(
      "div",
      { class: "card" },
      h("h3", {}, `What arrives, in ${network.runs[run].name}`),
      maps && [
        h("div", { class: "soft" }, `First sample, ${shown} of ${count} channels: blue below 0, orange above`),
        maps,
      ],
      spot,
    ),
  );
  if (maps) strip(maps, network, run, layer);
  const chart = histogram(spot, found, "--series-2");
  return () => chart.destroy();
}

function arriving(network, run, layer, arrived) {
  const readers = network.readers.get(layer.index);
  const norm = network.gradient(run, layer.index);
  const rows = readers.map((reader) => way(network, run, reader, layer.index, `from ${title(network.layer(reader))}`));
  const name = readers.length > 1 ? `Sum of ${readers.length}` : "Gradient of the output";
  const total = network.runs.map((_, other) => ({
    text: numberText(network.gradient(other, layer.index)),
    norm: network.gradient(other, layer.index),
    lost: false,
  }));
  const ends = readers.length === 0 && h("p", { class: "soft" }, beginning(layer, norm));
  return card("Arrives", [
    !arrived && network.stepOf.get(layer.index) < Infinity && h("p", { class: "soft" }, "The way back has not come here yet; these numbers are what it will bring."),
    ends,
    (rows.length > 0 || norm !== null) && table(network, [...rows, { name, cells: total, sum: true }], run, "arrives"),
    readers.length > 1 &&
      h(
        "p",
        { class: "soft note" },
        "Gradients of several paths add up, value by value; the sum of vectors that do not point the same way is shorter ",
        "than their norms together.",
      ),
  ]);
}

function beginning(layer, norm) {
  if (norm !== null) return "The way back begins here, at an output that no other layer reads.";
  return layer.formula.length ? "The loss is computed here: the way back begins with it." : "No gradient arrives here.";
}

function sending(network, run, layer) {
  const sources = layer.reads.filter((source) => source >= 0 && network.sends(layer, source));
  const rows = sources.map((source) => way(network, run, layer.index, source, `to ${title(network.layer(source))}`));
  const parameters = Object.keys(layer.parameters).map((name) => ({
    name: `into its ${name}`,
    cells: network.runs.map((_, other) => {
      const norm = network.numbers(other, layer.index).parameters[name]?.[1] ?? null;
      return { text: numberText(norm), norm, lost: false };
    }),
  }));
  return card("Sends on", [
    rows.length + parameters.length > 0
      ? table(network, [...rows, ...parameters], run, "sends")
      : h("p", { class: "soft" }, "Nothing: there is no layer before it that takes a gradient."),
    ...network.told(run, layer.index).skipped.map((text) => h("p", { class: "soft note" }, `Skipped: ${text}`)),
  ]);
}

function way(network, run, reader, source, name) {
  return {
    name,
    cells: network.runs.map((_, other) => {
      const norm = network.sent(other, reader, source);
      return { text: numberText(norm), norm, lost: network.lost(other, reader, source) };
    }),
  };
}

/** Norms, a column for each dialect, with bars by their logarithm; what is lost is said in words. */
function table(network, rows, run, id) {
  const scale = scaleOf(network);
  return h(
    "table",
    { class: "norms", id },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "|gradient|"),
        ...network.runs.map((one, place) =>
          h("th", { scope: "col", class: `number${place === run ? " chosen" : ""}` }, one.name),
        ),
      ),
    ),
    h(
      "tbody",
      {},
      ...rows.map((row) =>
        h(
          "tr",
          { class: row.sum ? "sum" : null },
          h("th", { scope: "row" }, breakable(row.name)),
          ...row.cells.map((cell, place) =>
            h(
              "td",
              { class: `number${place === run ? " chosen" : ""}` },
              cell.lost ? h("span", { class: "tag bad" }, "0, lost") : cell.text,
              h("div", { class: "norm-bar", style: `width:${(100 * scale(cell.norm ?? 0)).toFixed(1)}%` }),
            ),
          ),
        ),
      ),
    ),
  );
}

function formula(network, run, layer) {
  const lines = network.told(run, layer.index).formula;
  return card(
    network.runs.length > 1 ? `Computes on the way back, in ${network.runs[run].name}` : "Computes on the way back",
    lines.length
      ? h("ul", { class: "formula", id: "formula" }, ...lines.map((line) => h("li", {}, line)))
      : h("p", { class: "soft" }, "Nothing."),
  );
}

function facts(layer) {
  const parameters = Object.entries(layer.parameters);
  const count = parameters.reduce((total, [, shape]) => total + shape.reduce((a, b) => a * b, 1), 0);
  const rows = [
    ["Output", shapesText(layer.outputs)],
    ["Input", shapesText(layer.inputs)],
    [
      "Parameters",
      parameters.length
        ? `${countText(count)}  (${parameters.map(([name, shape]) => `${name} ${shape.join("x")}`).join(", ")})`
        : "none",
    ],
    ["Multiply-adds forward", countText(layer.forward)],
    ["Multiply-adds backward", countText(layer.backward)],
    ["Kept for the way back", bytesText(layer.kept)],
    ...Object.entries(layer.details).map(([name, value]) =>
      name === "cfg" || name === "prototxt" ? ["Stands in", h("span", { title: value }, breakable(value.split("/").pop()))] : [name, value],
    ),
  ];
  return card(
    "Layer",
    h(
      "table",
      { class: "facts" },
      h("tbody", {}, ...rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))),
    ),
  );
}

const STATISTICS = [
  ["norm", "norm", numberText],
  ["mean", "mean", numberText],
  ["deviation", "deviation", numberText],
  ["minimum", "min", numberText],
  ["maximum", "max", numberText],
  ["zeros", "zeros", shareText],
  ["saturated", "saturated", shareText],
  ["bad", "not finite", (count) => (count === null ? "-" : countText(count))],
];

/** Statistics of output, gradient and parameters, as `undertow trace` prints them, and histograms. */
export function numbersTab(place, network, store) {
  const { run, selected } = store.values;
  const numbers = network.numbers(run, selected);
  const charts = [];
  const half = (kind, name, color) => {
    const spot = h("div", { class: "histogram" });
    const found = numbers.histograms[kind];
    place.querySelector(`.${kind}`).append(found ? spot : h("p", { class: "soft" }, `There is no ${name}.`));
    if (!found) return;
    charts.push(histogram(spot, found, color));
  };
  const below = parameters(network, run, selected);
  place.append(
    h(
      "div",
      { class: "columns" },
      h("div", { class: "stack output" }, card("Output", statistics(network, run, selected, "output"))),
      h(
        "div",
        { class: "stack gradient" },
        card("Gradient of the output", statistics(network, run, selected, "gradient")),
      ),
    ),
  );
  if (below) place.append(below);
  half("output", "output of real numbers", "--series-1");
  half("gradient", "gradient", "--series-2");
  return () => charts.forEach((chart) => chart.destroy());
}

function statistics(network, run, index, kind) {
  return h(
    "table",
    { id: `statistics-${kind}` },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", {}, h("span", { class: "visually-hidden" }, "statistic")),
        ...network.runs.map((one, place) =>
          h("th", { scope: "col", class: `number${place === run ? " chosen" : ""}` }, one.name),
        ),
      ),
    ),
    h(
      "tbody",
      {},
      ...STATISTICS.filter(([key]) => kind === "output" || key !== "saturated").map(([key, name, text]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, name),
          ...network.runs.map((_, place) =>
            h(
              "td",
              { class: `number${place === run ? " chosen" : ""}` },
              text(network.numbers(place, index)[kind][key]),
            ),
          ),
        ),
      ),
    ),
  );
}

function histogram(place, found, color) {
  const width = (found.high - found.low) / found.counts.length;
  const middles = found.counts.map((_, bin) => found.low + (bin + 0.5) * width);
  // Roots, so that rare values are seen beside frequent ones; the axis tells the counts.
  place.append(h("div", { class: "soft" }, `64 bins from ${numberText(found.low)} to ${numberText(found.high)}`));
  return barChart(place, "count", [middles, found.counts], { height: 150, colour: color, y: "values", ySize: 56 });
}

function parameters(network, run, index) {
  const names = Object.keys(network.layer(index).parameters);
  if (names.length === 0) return null;
  const head = ["parameter", "norm", "norm of its gradient", "update/weight"];
  return h(
    "div",
    { class: "card wide" },
    h("h3", {}, `Parameters, ${network.runs[run].name}`),
    h(
      "table",
      { id: "parameters" },
      h(
        "thead",
        {},
        h("tr", {}, ...head.map((text, i) => h("th", { scope: "col", class: i ? "number" : null }, text))),
      ),
      h(
        "tbody",
        {},
        ...names.map((name) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, name),
            ...(network.numbers(run, index).parameters[name] ?? [null, null, null]).map((value) =>
              h("td", { class: "number" }, numberText(value)),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A line that keeps its indent where it wraps. */
function storyLine(text) {
  const line = h("span", {}, text);
  const indent = text.length - text.trimStart().length + 2;
  line.style.paddingLeft = `${indent}ch`;
  line.style.textIndent = `-${indent}ch`;
  return line;
}

/** The layer's whole story, as `undertow explain --layer` prints it. */
export function storyTab(place, network, store) {
  const { run, selected } = store.values;
  const { story } = network.told(run, selected);
  place.append(h("div", { class: "card" }, h("pre", { class: "story", id: "story" }, ...story.map(storyLine))));
}

export function card(name, content) {
  return h("div", { class: "card" }, h("h3", {}, name), content);
}

// A detector's picture: truth, what was found, which cell and anchor answers, and how hard each term of the loss pulls.

import { h, s, show } from "scope/dom";
import { coloured, levelsOf } from "scope/maps";
import { numberText, shareText } from "scope/numbers";
import { card } from "scope/panel";

// Units of the picture: about as many as pixels on the screen, so that letters keep their size.
const SIDE = 560;
const FEW = 12;
// Found boxes below this have no label: labels would hide each other.
const SURE = 0.25;
// Of those labels: units for a letter, the distance of two lines in parts of the picture, and how many are tried.
const [LETTER, LINE, PLACES] = [8.5, 17 / 560, 8];
// Where an arrow's name stands beside its end: four arrows of a small box must not hide each other's.
const NAMES = {
  x: [0.005, -0.02],
  y: [-0.045, 0.01],
  w: [0.005, 0.045],
  h: [0.02, 0.02],
  left: [0.005, -0.02],
  top: [0.02, 0.01],
  right: [0.005, 0.045],
  bottom: [0.02, 0.02],
};
const remembered = { chosen: 0, found: null, pull: false };

export function boxesTab(place, network, store) {
  const { heads } = network.runs[store.values.run];
  // Many of them hide what else the picture shows, until they are asked for.
  remembered.found ??= heads.found.length <= FEW || heads.heads.length === 0;
  const list = heads.heads.flatMap((head) => head.responsible.map((one) => ({ head, ...one })));
  const stage = h("div", { class: "boxes-stage" });
  const side = h("div", { class: "stack" });
  const { word, overlay: towards } = heads;
  const state = { chosen: Math.min(remembered.chosen, Math.max(list.length - 1, 0)), shown: true };
  const check = (key, text) =>
    h(
      "label",
      {},
      h("input", {
        type: "checkbox",
        id: `show-${key}`,
        checked: remembered[key],
        onchange: (event) => {
          remembered[key] = event.target.checked;
          draw();
        },
      }),
      ` ${text}`,
    );
  const draw = () => {
    show(stage, picture(network, heads, list[state.chosen], state));
    show(
      side,
      answering(network, list, state, (i) => {
        state.chosen = remembered.chosen = i;
        draw();
      }),
      list.length > 0 && terms(network, list[state.chosen]),
      heads.heads.length === 0 && foundList(network, heads),
    );
  };
  place.append(
    h(
      "div",
      { class: "boxes" },
      h(
        "div",
        { class: "card" },
        stage,
        h(
          "div",
          { class: "legend" },
          check("found", "found boxes"),
          list.length > 0 && list[0].head.objectness !== null && check("pull", `pull on ${towards}: orange up, blue down`),
          heads.truths.length > 0 && key("truth", "truth"),
          list.length > 0 && [
            key("predicted", `predicted by the responsible ${word}`),
            list[0].anchor && key("anchor", word === "anchor" ? "its anchor" : `that ${word}`),
            list[0].head.grid[0] > 0 && key("cell", "its cell"),
            key("pull", "pull"),
          ],
        ),
      ),
      side,
    ),
    ...(heads.heads.length > 0 ? [totals(network, heads)] : []),
  );
  draw();
  return () => {
    state.shown = false;
  };
}

function picture(network, heads, chosen, state) {
  const label = chosen
    ? `The picture with ${heads.truths.length} true boxes; ${answers(network, chosen)}`
    : "The picture";
  const svg = s(
    "svg",
    { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "boxes-picture", role: "img", "aria-label": label },
    s(
      "defs",
      {},
      s(
        "marker",
        {
          id: "pull-head",
          viewBox: "0 0 10 10",
          refX: 8,
          refY: 5,
          markerWidth: 15,
          markerHeight: 15,
          markerUnits: "userSpaceOnUse",
          orient: "auto",
        },
        s("path", { d: "M0,0L10,5L0,10z", class: "pull-head" }),
      ),
    ),
    network.picture
      ? s("image", { href: network.picture, width: SIDE, height: SIDE, preserveAspectRatio: "none" })
      : s("rect", { width: SIDE, height: SIDE, class: "no-picture" }),
  );
  if (remembered.pull && chosen?.head.objectness) overlay(svg, chosen.head, state);
  if (remembered.found) svg.append(...foundBoxes(network, heads.found));
  if (chosen) svg.append(...answer(chosen, heads.unit));
  heads.truths.forEach(([x, y, w, ht, name], i) =>
    svg.append(
      rect([x, y, w, ht], `truth${chosen?.truth === i ? " chosen" : ""}`),
      text(x - w / 2, y - ht / 2 - 0.012, network.className(name), "truth-text"),
    ),
  );
  return svg;
}

/** All found boxes, then their names, the surest first: each where no other stands already, below its box or further up. */
function foundBoxes(network, found) {
  const taken = [];
  const named = found.filter((box) => box[5] >= SURE).sort((a, b) => b[5] - a[5]);
  const names = named.flatMap(([x, y, w, ht, name, sure]) => {
    const words = `${network.className(name)} ${Math.round(100 * sure)}%`;
    const width = (LETTER * words.length) / SIDE;
    const left = Math.min(Math.max(x - w / 2, 0.005), 0.9);
    const free = (at) => taken.every((one) => Math.abs(one.y - at) >= LINE || left >= one.right || left + width <= one.left);
    const places = Array.from({ length: PLACES }, (_, i) => Math.min(Math.max(y + ht / 2, 0.03), 0.99) - i * LINE);
    const at = places.find((place) => place > 0.02 && free(place));
    if (at === undefined) return [];
    taken.push({ y: at, left, right: left + width });
    return [text(left, at, words, "found-text")];
  });
  return [...found.map(([x, y, w, ht]) => rect([x, y, w, ht], "found")), ...names];
}

/** The pulls on objectness in every cell, laid over the picture. */
async function overlay(svg, head, state) {
  const levels = await levelsOf(head.objectness);
  if (!state.shown) return;
  const canvas = coloured(levels, head.objectness, 0);
  svg.insertBefore(
    s("image", {
      href: canvas.toDataURL(),
      width: SIDE,
      height: SIDE,
      preserveAspectRatio: "none",
      style: "image-rendering:pixelated",
      opacity: 0.75,
    }),
    svg.children[2],
  );
}

function answer(one, unit) {
  const [rows, columns] = one.head.grid;
  const parts = [];
  if (rows > 0)
    parts.push(
      s("rect", {
        class: "cell",
        x: (one.column / columns) * SIDE,
        y: (one.row / rows) * SIDE,
        width: SIDE / columns,
        height: SIDE / rows,
      }),
    );
  if (one.anchor) parts.push(rect(one.anchor, "anchor"));
  parts.push(rect(one.predicted, "predicted"), ...arrows(one, unit));
  return parts;
}

/** Where the terms pull: the centre along x and y, the right and lower side along w and h; or each of four sides. */
function arrows(one, unit) {
  const [x, y, w, ht] = one.predicted;
  const pull = Object.fromEntries(one.terms.map((term) => [term.name, term.pull]));
  const length = (value) => Math.sign(value) * Math.min(Math.max((Math.abs(value) / unit) * 0.09, 0.025), 0.25);
  const clip = (value) => Math.min(Math.max(value, 0.01), 0.99);
  const list = [
    [x, y, pull.x, 0, "x"],
    [x, y, 0, pull.y, "y"],
    [x + w / 2, y, pull.w, 0, "w"],
    [x, y + ht / 2, 0, pull.h, "h"],
    [x - w / 2, y, pull.left, 0, "left"],
    [x, y - ht / 2, 0, pull.top, "top"],
    [x + w / 2, y, pull.right, 0, "right"],
    [x, y + ht / 2, 0, pull.bottom, "bottom"],
  ];
  return list
    .filter(([, , a, b]) => Math.abs(a + b) > 1e-4 * unit)
    .flatMap(([px, py, a, b, name]) => {
      const [x1, y1] = [clip(px), clip(py)];
      const [x2, y2] = [x1 + (a ? length(a) : 0), y1 + (b ? length(b) : 0)];
      return [
        s("line", { class: "pull-line under", x1: x1 * SIDE, y1: y1 * SIDE, x2: x2 * SIDE, y2: y2 * SIDE }),
        s("line", {
          class: "pull-line",
          x1: x1 * SIDE,
          y1: y1 * SIDE,
          x2: x2 * SIDE,
          y2: y2 * SIDE,
          "marker-end": "url(#pull-head)",
        }),
        text(x2 + NAMES[name][0], y2 + NAMES[name][1], name, "pull-text"),
      ];
    });
}

function rect([x, y, w, ht], name) {
  return s("rect", {
    class: `box-${name}`,
    x: (x - w / 2) * SIDE,
    y: (y - ht / 2) * SIDE,
    width: w * SIDE,
    height: ht * SIDE,
  });
}

function text(x, y, words, name) {
  return s(
    "text",
    { x: Math.min(Math.max(x, 0.005), 0.9) * SIDE, y: Math.min(Math.max(y, 0.03), 0.99) * SIDE, class: name },
    words,
  );
}

function key(name, words) {
  return h(
    "span",
    { class: "key" },
    s(
      "svg",
      { viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" },
      name === "pull"
        ? s("line", { class: "pull-line", x1: 1, y1: 6, x2: 23, y2: 6 })
        : s("rect", { class: name === "cell" ? "cell" : `box-${name}`, x: 2, y: 2, width: 20, height: 8 }),
    ),
    words,
  );
}

function answering(network, list, state, choose) {
  if (list.length === 0)
    return card(
      "Who answers",
      h(
        "p",
        { class: "soft" },
        network.runs[0].heads.heads.length > 0
          ? "No cell is responsible for a box: there is no truth, or no head has a fitting anchor."
          : "The net has no loss of boxes in this phase: these are the boxes it found.",
      ),
    );
  const name = (one) =>
    `${one.truth < 0 ? "a box" : network.className(network.runs[0].heads.truths[one.truth][4])}: ${answers(network, one)}`;
  return card(
    "Who answers for which object",
    h(
      "div",
      { class: "choices", role: "group", "aria-label": "Responsible cells" },
      ...list.map((one, i) =>
        h(
          "button",
          { type: "button", "aria-pressed": String(i === state.chosen), onclick: () => choose(i) },
          name(one),
        ),
      ),
    ),
  );
}

/** "layer 16, anchor 0, row 9, column 8": who answers. Layers of Caffe go by their names. */
function answers(network, one) {
  const layer = network.layer(one.head.layer).name;
  const where = network.kind === "caffe" ? layer : `layer ${layer}`;
  const cell = one.head.grid[0] > 0 ? `, row ${one.row}, column ${one.column}` : "";
  return `${where}, ${network.runs[0].heads.word} ${one.number}${cell}`;
}

/** The surest boxes, for nets that have no loss to tell of. */
function foundList(network, heads) {
  const head = ["class", "sure", "x", "y", "w", "h"];
  const row = ([x, y, w, ht, name, sure]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, network.className(name)),
      ...[shareText(sure), ...[x, y, w, ht].map(numberText)].map((text) => h("td", { class: "number" }, text)),
    );
  return card(
    heads.found.length > 0 ? "The surest of them, in parts of the picture" : "Nothing was found",
    heads.found.length > 0 &&
      h(
        "table",
        { id: "found-list" },
        h("thead", {}, h("tr", {}, ...head.map((text, i) => h("th", { scope: "col", class: i ? "number" : null }, text)))),
        h("tbody", {}, ...heads.found.map(row)),
      ),
  );
}

function terms(network, one) {
  const all = [...one.terms, ...one.classes.map((term) => ({ ...term, name: network.className(term.name) }))];
  const largest = Math.max(...all.map((term) => Math.abs(term.pull)), 1e-12);
  const row = (term) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, term.name),
      ...[term.output, term.target, term.pull].map((value) => h("td", { class: "number" }, numberText(value))),
      h(
        "td",
        { class: "pull-cell" },
        h("div", {
          class: `pull-bar ${term.pull < 0 ? "down" : "up"}`,
          style: `width:${((50 * Math.abs(term.pull)) / largest).toFixed(1)}%`,
        }),
      ),
    );
  return card(
    "Pull of each term (minus its gradient)",
    h(
      "table",
      { id: "terms" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "term"),
          ...["output", "wanted", "pull"].map((words) => h("th", { scope: "col", class: "number" }, words)),
          h("th", { scope: "col", "aria-label": "bar: less to the left, more to the right" }, "− | +"),
        ),
      ),
      h("tbody", {}, ...all.map(row)),
    ),
  );
}

function totals(network, heads) {
  const names = Object.keys(heads.heads[0].totals);
  return h(
    "div",
    { class: "card wide" },
    h("h3", {}, "All cells together: norm of the pulls, by head and term"),
    h(
      "table",
      { id: "totals" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "head"),
          ...names.map((name) => h("th", { scope: "col", class: "number" }, name)),
        ),
      ),
      h(
        "tbody",
        {},
        ...heads.heads.map((head) =>
          h(
            "tr",
            {},
            h(
              "th",
              { scope: "row" },
              `${network.layer(head.layer).name} ${head.type}${head.grid[0] > 0 ? `, ${head.grid.join("x")} cells` : ""}`,
            ),
            ...names.map((name) => h("td", { class: "number" }, numberText(head.totals[name]))),
          ),
        ),
      ),
    ),
  );
}

// The network as a graph: pan, zoom, fold, search, and the gradient on its way.

import { h, s } from "scope/dom";
import { normText, pathThrough, place, scaleOf, WIDTH } from "scope/layout";
import { Minimap } from "scope/minimap";
import { shapesText } from "scope/numbers";

const [SMALLEST, LARGEST, LEGIBLE] = [0.12, 2.5, 0.82];
const LEAST_LEGIBLE = 0.7; // where that brings all branches into view
const STAGGERED = [0, -14, 14]; // edges of one layer lie close: their labels stand at different heights
const ABOVE = 13; // in the gap before a node, in its midst
const WARNING = 18; // room for the sign
const [NAME_FONT, SIZE_FONT] = ["600 13px", "12px"]; // as in network.css

export class GraphView {
  constructor(network, store) {
    Object.assign(this, { network, store });
    this.open = new Set();
    this.scale = scaleOf(network);
    this.view = { x: 0, y: 0, zoom: 1 };
    this.canvas = s("g");
    this.svg = s(
      "svg",
      { class: "graph", role: "group", "aria-label": "The network; arrow up and down go through its layers" },
      s("defs", {}, arrowHead("head", "edge-head"), arrowHead("head-now", "edge-head now")),
      this.canvas,
    );
    this.minimap = new Minimap((x, y) => this.centre(x, y));
    this.stage = h("div", { class: "graph-stage" }, this.svg, this.minimap.element);
    this.search = h("input", {
      type: "search",
      placeholder: "Search  ( / )",
      "aria-label": "Search layers",
      id: "search",
      oninput: () => this.find(),
      onkeydown: (e) => e.key === "Enter" && this.next(),
    });
    this.found = h("span", { class: "soft", role: "status", id: "found" });
    this.element = h(
      "section",
      { class: "graph-pane", "aria-label": "Network" },
      h("div", { class: "graph-tools" }, this.search, this.found, h("span", { class: "grow" }), ...this.buttons()),
      this.stage,
    );
    this.listen();
    store.watch((values, changed) => this.follow(changed));
    this.draw();
  }

  buttons() {
    const fold =
      this.network.folds.length > 0 &&
      h(
        "button",
        {
          type: "button",
          id: "fold",
          "aria-pressed": "false",
          title: "Repeated blocks one by one, or as one node (f)",
          onclick: () => this.foldAll(),
        },
        "Unfold",
      );
    return [
      fold,
      h(
        "button",
        {
          type: "button",
          class: "icon",
          "aria-label": "Smaller",
          title: "Smaller (-)",
          onclick: () => this.zoomBy(0.8),
        },
        "−",
      ),
      h(
        "button",
        {
          type: "button",
          class: "icon",
          "aria-label": "Larger",
          title: "Larger (+)",
          onclick: () => this.zoomBy(1.25),
        },
        "+",
      ),
      h("button", { type: "button", title: "As wide as there is room (w)", onclick: () => this.fitWidth() }, "Width"),
      h("button", { type: "button", title: "The whole network (0)", onclick: () => this.fit() }, "Fit"),
    ].filter(Boolean);
  }

  // --- drawing --------------------------------------------------------------------------------------------

  draw() {
    this.plan = place(this.network, this.open);
    this.marks = { nodes: new Map(), edges: [] };
    const edges = this.plan.edges.map((edge) => this.edge(edge));
    const nodes = [...this.plan.nodes.values()].map((node) => this.node(node));
    this.canvas.replaceChildren(...this.plan.groups.map((group) => this.group(group)), ...edges, ...nodes);
    this.minimap.draw(this.plan);
    this.paint();
  }

  group(group) {
    const fold = this.network.folds[group.fold];
    return s(
      "g",
      { class: "group" },
      s("rect", { x: group.x, y: group.y, width: group.width, height: group.height, rx: 10 }),
      this.foldButton(group.fold, group.x + group.width + 14, group.y + 14, `−`, `Fold ${fold.times} ${fold.beside ? "branches" : "blocks"}`),
      s("text", { x: group.x + group.width + 30, y: group.y + 19, class: "group-name" }, `×${fold.times}`),
    );
  }

  foldButton(fold, x, y, sign, label) {
    const toggle = (event) => {
      event.stopPropagation();
      this.toggle(fold);
    };
    return s(
      "g",
      {
        class: "fold-button",
        role: "button",
        tabindex: "0",
        "aria-label": label,
        transform: `translate(${x},${y})`,
        onclick: toggle,
        onkeydown: (e) => ["Enter", " "].includes(e.key) && (e.preventDefault(), toggle(e)),
      },
      s("title", {}, label),
      s("circle", { r: 10 }),
      s("text", { y: 5 }, sign),
    );
  }

  node(node) {
    const first = this.network.layer(node.layers[0]);
    const fold = node.fold === null ? null : this.network.folds[node.fold];
    const [x, y] = [node.x - node.width / 2, node.y - node.height / 2];
    const room = node.width - (fold ? 26 : 20);
    const sign = this.network.runs.some((_, run) => this.warnings(node, run, Infinity).length) ? WARNING : 0;
    const name = fold ? `×${fold.times} ${fold.beside ? "branches" : "blocks"}` : fitted(brief(title(first)), room - sign, NAME_FONT);
    const last = this.network.layer(node.layers[node.layers.length - 1]);
    const size = fold
      ? fitted(fold.beside ? `${fold.size} layer${fold.size > 1 ? "s" : ""} each` : `${first.name} to ${last.name}`, room - sign, SIZE_FONT)
      : shapesText(first.outputs.map((o) => (o.length > 1 ? o.slice(1) : o)));
    const marks = {
      norm: s("text", { x: node.width - 10, y: fold ? 19 : 36, class: "node-norm" }),
      bar: s("rect", { x: 0, y: node.height - 4, width: 0, height: 4, class: "node-bar" }),
      size: s("text", { x: 10, y: 36, class: "node-size", "data-text": size }, size),
      wrong: s("text", { x: node.width - 10, y: fold ? 36 : 19, class: "node-wrong" }),
    };
    const group = s(
      "g",
      {
        class: `node${fold ? " folded" : ""}`,
        role: "button",
        tabindex: "-1",
        "data-layers": node.layers.join(" "),
        transform: `translate(${x},${y})`,
        onclick: () => this.choose(node),
        ondblclick: () => fold && this.toggle(node.fold),
      },
      s("title", {}, this.labelOf(node, null)),
      fold && s("rect", { class: "stack", x: 6, y: 6, width: node.width, height: node.height, rx: 6 }),
      fold && s("rect", { class: "stack", x: 3, y: 3, width: node.width, height: node.height, rx: 6 }),
      s("rect", { class: "box", width: node.width, height: node.height, rx: 6 }),
      s(
        "text",
        { x: 10, y: 19, class: "node-name" },
        name,
      ),
      marks.size,
      fold && s("text", { x: 10, y: 52, class: "node-size" }, fitted(brief(fold.kinds.join(", ")), room, SIZE_FONT)),
      marks.norm,
      marks.wrong,
      marks.bar,
      fold &&
        this.foldButton(
          node.fold,
          node.width + 2,
          node.height / 2,
          "+",
          `Unfold ${fold.times} ${fold.beside ? "branches" : "blocks"} of ${fold.size} layers`,
        ),
    );
    this.marks.nodes.set(node.id, { group, node, ...marks });
    return group;
  }

  edge(edge) {
    // Drawn the way the gradient goes: from reader to source.
    const points = edge.points.map((p) => ({ ...p })).reverse();
    const path = s("path", { class: "edge", d: pathThrough(points) });
    // Where lines meet at a node their labels would lie on each other: each has its own, halfway.
    // A line that passes other nodes has it beside its beginning, where there are none.
    const long = points.length > 3;
    const [p, q] = points;
    const middle = long ? { x: p.x + 0.3 * (q.x - p.x), y: p.y - ABOVE } : points[Math.floor(points.length / 2)];
    const beside = long ? 0 : this.plan.edges.filter((other) => other.from === edge.from).indexOf(edge);
    const y = middle.y + 4 + STAGGERED[beside % STAGGERED.length];
    const label = s("text", { class: "edge-label", x: middle.x + 7, y });
    this.marks.edges.push({ edge, path, label });
    return s("g", {}, path, label);
  }

  /** Colours, numbers and highlights of the present step. */
  paint() {
    const { run, step, selected } = this.store.values;
    const now = step > 0 ? this.network.order[step - 1] : null;
    for (const mark of this.marks.nodes.values()) this.paintNode(mark, run, step, selected, now);
    for (const mark of this.marks.edges) this.paintEdge(mark, run, step, now);
    this.minimap.mark(now === null ? null : this.plan.nodes.get(this.plan.idOf(now)));
  }

  /** Which layer of a folded node is chosen. */
  insideText(node, index) {
    return fitted(brief(`at ${title(this.network.layer(index))}`), node.width - 26 - WARNING, SIZE_FONT);
  }

  /** What is wrong in the layers of a node, as far as the way back has come; each kind once. */
  warnings(node, run, step) {
    const kinds = node.layers.flatMap((index) => {
      const arrived = this.network.stepOf.get(index) <= step;
      const begins = this.network.numbers(run, index).marks.map((mark) => mark.split(":")[0]);
      const wrong = this.network.notFinite(run, index, arrived) ? ["not finite"] : [];
      return [...wrong, ...begins.filter((kind) => kind !== "non-finite" && arrived)];
    });
    return [...new Set(kinds)];
  }

  paintNode({ group, node, norm, bar, wrong, size }, run, step, selected, now) {
    const arrived = node.layers.filter((index) => this.network.stepOf.get(index) <= step);
    const told = arrived.length ? (arrived.includes(now) ? now : Math.min(...arrived)) : null;
    const value = told === null ? null : this.network.gradient(run, told);
    const here = node.layers.includes(selected);
    if (node.fold !== null) size.textContent = here ? this.insideText(node, selected) : size.dataset.text;
    const warned = this.warnings(node, run, step);
    wrong.textContent = warned.length ? "⚠" : "";
    group.classList.toggle("wrong", warned.includes("not finite"));
    norm.textContent = value === null ? "" : `|g| ${normText(value)}`;
    if (node.fold === null) this.besideNorm(node, norm, size);
    bar.setAttribute("width", value === null ? 0 : node.width * this.scale(value));
    group.classList.toggle("arrived", arrived.length > 0);
    group.classList.toggle("now", node.layers.includes(now));
    group.classList.toggle("selected", here);
    group.setAttribute("tabindex", here ? "0" : "-1");
    const label = `${this.labelOf(node, value)}${warned.map((kind) => `, ${kind}`).join("")}`;
    group.setAttribute("aria-label", label);
    group.querySelector("title").textContent = label;
    group.setAttribute("aria-current", here ? "true" : "false");
  }

  /** Size and norm share a line: where they have no room side by side, first "|g|" goes, then the end of the size. */
  besideNorm(node, norm, size) {
    const text = norm.textContent;
    const room = (told) => node.width - 26 - (told ? widthOf(told, SIZE_FONT, "--mono") : 0);
    if (text && widthOf(size.dataset.text, SIZE_FONT) > room(text)) norm.textContent = text.replace("|g| ", "");
    size.textContent = fitted(size.dataset.text, room(norm.textContent), SIZE_FONT);
  }

  paintEdge({ edge, path, label }, run, step, now) {
    const told = edge.links.find(([, source]) => source === now) ?? edge.links[0];
    const [reader, source] = told;
    const sends = this.network.sends(this.network.layer(reader), source);
    const arrived = sends && this.network.stepOf.get(source) <= step;
    const pulled = sends && source === now;
    const norm = this.network.sent(run, reader, source);
    const lost = this.network.lost(run, reader, source);
    path.setAttribute(
      "class",
      `edge${arrived ? " arrived" : ""}${pulled ? " now" : ""}${arrived && lost ? " lost" : ""}`,
    );
    path.style.strokeWidth = arrived ? 1.5 + 4.5 * this.scale(norm ?? 0) : "";
    path.setAttribute("marker-end", arrived && !(norm === 0) ? `url(#${pulled ? "head-now" : "head"})` : "");
    label.textContent = pulled && norm !== null ? (lost ? "0, lost" : normText(norm)) : arrived && lost ? "lost" : "";
  }

  labelOf(node, norm) {
    const first = this.network.layer(node.layers[0]);
    const gradient = norm === null ? "" : `, gradient norm ${normText(norm)}`;
    if (node.fold === null) return `Layer ${title(first)}, output ${shapesText(first.outputs)}${gradient}`;
    const fold = this.network.folds[node.fold];
    const what = fold.beside ? "branches that are alike, each" : "repeated blocks of";
    return `${fold.times} ${what} ${fold.kinds.join(", ")}${gradient}`;
  }

  // --- folding, searching, choosing -------------------------------------------------------------------------

  toggle(fold) {
    if (this.open.has(fold)) this.open.delete(fold);
    else this.open.add(fold);
    this.redraw(this.network.folds[fold].layers[0]);
  }

  foldAll() {
    const all = this.open.size < this.network.folds.length;
    this.open = new Set(all ? this.network.folds.keys() : []);
    this.redraw(this.store.values.selected);
  }

  redraw(keep) {
    const button = this.element.querySelector("#fold");
    const all = this.open.size === this.network.folds.length;
    button.textContent = all ? "Fold" : "Unfold";
    button.setAttribute("aria-pressed", String(all));
    this.draw();
    this.reveal(keep);
  }

  choose(node) {
    const { selected } = this.store.values;
    this.store.set({ selected: node.layers.includes(selected) ? selected : node.layers[node.layers.length - 1] });
  }

  find() {
    const words = this.search.value.trim().toLowerCase();
    this.hits =
      words === ""
        ? []
        : this.network.shown
            .filter((layer) =>
              `${layer.name} ${layer.type} ${layer.label} ${shapesText(layer.outputs)}`.toLowerCase().includes(words),
            )
            .map((layer) => layer.index);
    this.found.textContent = words === "" ? "" : `${this.hits.length} found`;
    for (const { group, node } of this.marks.nodes.values()) {
      group.classList.toggle(
        "found",
        node.layers.some((index) => this.hits.includes(index)),
      );
    }
    const exact = this.network.shown.find((layer) => layer.name.toLowerCase() === words);
    if (this.hits.length) this.store.set({ selected: exact ? exact.index : this.hits[0] });
  }

  /** As before the search. */
  endSearch() {
    this.search.value = "";
    this.find();
  }

  next() {
    if (!this.hits?.length) return;
    const place = this.hits.indexOf(this.store.values.selected);
    this.store.set({ selected: this.hits[(place + 1) % this.hits.length] });
  }

  /** One layer up or down, as arrow keys ask. */
  move(direction) {
    const places = this.network.shown.map((layer) => layer.index);
    const place = places.indexOf(this.store.values.selected) + direction;
    if (place < 0 || place >= places.length) return;
    this.store.set({ selected: places[place] });
    this.marks.nodes.get(this.plan.idOf(places[place])).group.focus({ preventScroll: true });
  }

  follow(changed) {
    if (changed.has("selected")) this.reveal(this.store.values.selected);
    if (changed.has("step") || changed.has("run") || changed.has("selected")) this.paint();
  }

  // --- pan and zoom -----------------------------------------------------------------------------------------

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.target.closest(".node, .fold-button") === null)
        from = { x: event.clientX, y: event.clientY, view: { ...this.view } };
    });
    window.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.moved = true;
      this.look({ ...from.view, x: from.view.x + event.clientX - from.x, y: from.view.y + event.clientY - from.y });
    });
    window.addEventListener("pointerup", () => {
      from = null;
    });
    this.svg.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey) this.zoomBy(Math.exp(-event.deltaY * 0.01), event.offsetX, event.offsetY);
        else {
          this.moved = true;
          this.look({ ...this.view, x: this.view.x - event.deltaX, y: this.view.y - event.deltaY });
        }
      },
      { passive: false },
    );
    this.svg.addEventListener("keydown", (event) => {
      const way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (way) {
        event.preventDefault();
        this.move(way);
      }
    });
    new ResizeObserver(() => this.resized()).observe(this.svg);
  }

  /** Keeps what stood in the middle there; before anybody has moved, the first view again. */
  resized() {
    if (!this.room) return;
    const { room } = this;
    if (!this.moved) this.begin(this.first);
    else
      this.centre(
        (room.width / 2 - this.view.x) / this.view.zoom,
        (room.height / 2 - this.view.y) / this.view.zoom,
      );
  }

  zoomBy(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const zoom = Math.min(Math.max(this.view.zoom * factor, Math.min(SMALLEST, this.whole)), LARGEST);
    const ratio = zoom / this.view.zoom;
    this.moved = true;
    this.look({ zoom, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio });
  }

  look(view) {
    this.view = view;
    this.room = { width: this.svg.clientWidth, height: this.svg.clientHeight };
    this.canvas.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.zoom})`);
    this.minimap.frame({
      x: -view.x / view.zoom,
      y: -view.y / view.zoom,
      width: this.room.width / view.zoom,
      height: this.room.height / view.zoom,
    });
  }

  /** The zoom at which the whole network is seen. */
  get whole() {
    return Math.min(this.svg.clientWidth / this.plan.width, this.svg.clientHeight / this.plan.height, 1);
  }

  fit() {
    this.moved = true;
    this.view.zoom = this.whole;
    this.centre(0, 0);
  }

  /** All branches side by side in view, at the height of the chosen layer. */
  fitWidth() {
    this.moved = true;
    this.view.zoom = Math.max(Math.min(this.svg.clientWidth / this.plan.width, 1), SMALLEST);
    const node = this.plan.nodes.get(this.plan.idOf(this.store.values.selected));
    this.centre(node.x, node.y);
  }

  /** Moves to a point of the network, but not beyond its ends: empty space tells nothing. */
  centre(x, y) {
    const { zoom } = this.view;
    const within = (wanted, room, length) =>
      length <= room ? (room - length) / 2 : Math.min(Math.max(wanted, room - length), 0);
    const [room, tall] = [this.svg.clientWidth, this.svg.clientHeight];
    this.look({
      zoom,
      x: within(room / 2 - x * zoom, room, this.plan.width * zoom),
      y: within(tall / 2 - y * zoom, tall, this.plan.height * zoom),
    });
  }

  /** The first view: all of a small network, else the layer where the way back begins. */
  begin(index) {
    this.first = index;
    this.moved = false;
    const { whole } = this;
    const node = this.plan.nodes.get(this.plan.idOf(index));
    const wide = Math.min(this.svg.clientWidth / this.plan.width, 1);
    this.view.zoom = whole > LEGIBLE ? whole : wide >= LEAST_LEGIBLE ? wide : LEGIBLE;
    this.centre(node.x, node.y);
  }

  /** Moves the view so that a layer stands in the middle, unless it is well inside already. */
  reveal(index) {
    const node = this.plan.nodes.get(this.plan.idOf(index));
    const [x, y] = [node.x * this.view.zoom + this.view.x, node.y * this.view.zoom + this.view.y];
    const margin = Math.min(140, this.svg.clientHeight / 4);
    const side = (WIDTH / 2) * this.view.zoom;
    const inside = x > side && x < this.svg.clientWidth - side && y > margin && y < this.svg.clientHeight - margin;
    this.moved = true;
    if (!inside) this.centre(node.x, node.y);
  }
}

/** "4 shortcut"; layers that are called by their type keep one name. */
export function title(layer) {
  return layer.name === layer.label ? layer.name : `${layer.name} ${layer.label}`;
}

/** Names of layers as far as a node has room for them. */
function brief(text) {
  return text.replaceAll("Convolution", "conv").replaceAll("Deconvolution", "deconv");
}

const pencil = document.createElement("canvas").getContext("2d");

function widthOf(text, font, family = "--font") {
  pencil.font = `${font} ${getComputedStyle(document.documentElement).getPropertyValue(family)}`;
  return pencil.measureText(text).width;
}

/** A text as far as there is room for it in this font. */
function fitted(text, room, font) {
  if (widthOf(text, font) <= room) return text;
  let length = text.length - 1;
  while (length > 1 && pencil.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return `${text.slice(0, length)}…`;
}

function arrowHead(id, name) {
  return s(
    "marker",
    {
      id,
      viewBox: "0 0 10 10",
      refX: 9,
      refY: 5,
      markerWidth: 9,
      markerHeight: 9,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    },
    s("path", { d: "M0,0L10,5L0,10z", class: name }),
  );
}

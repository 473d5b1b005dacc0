// The heat map: a row for each layer, a column for each look at them. One pixel a cell, enlarged; marks drawn over it.

import { h } from "scope/dom";
import { numberText } from "scope/numbers";
import { colour } from "scope/theme";
import { DEAD, layerText } from "runs/fields";

const AXIS = 20;
const TOP = 6;
const RIGHT = 5;
const ROW_MOST = 52;
const ROW_LEAST = 3;
const ROW_TEXT = 12;
const CELL_TEXT = [40, 14];

export class HeatMap {
  /** place: where it stands. run: shown. choose(layer, iteration): called when the reader picks a cell. */
  constructor(place, run, choose) {
    this.run = run;
    this.choose = choose;
    this.base = h("canvas", { class: "cells" });
    this.over = h("canvas", { class: "over" });
    this.frame = h("div", {
      class: "heat", tabindex: 0, role: "application",
      "aria-label": `Layers of run ${run.letter} over iterations. Arrow keys move by one cell, with Shift by ten; Home and End to the first and last iteration.`,
      onpointermove: (event) => this.#hover(event), onpointerleave: () => this.#leave(),
      onpointerdown: (event) => this.#pick(event), onkeydown: (event) => this.#key(event),
    }, this.base, this.over);
    this.tip = h("div", { class: "tip hidden", role: "presentation" });
    place.replaceChildren(this.frame, this.tip);
    this.place = place;
    this.hovered = null;
  }

  /** Draw. field: of FIELDS. scale: see scale.js. height: that is free. chosen: {layer, iteration}. */
  draw({ field, scale, height, chosen }) {
    Object.assign(this, { field, scale, chosen });
    const { run } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(this.place.clientWidth, 160);
    const rows = run.layers.length;
    this.row = Math.min(ROW_MOST, Math.max(ROW_LEAST, (height - AXIS - TOP) / Math.max(rows, 1)));
    this.left = this.#labelWidth(width);
    this.width = width - this.left - RIGHT;
    this.height = this.row * rows;
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round((TOP + this.height + AXIS) * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${TOP + this.height + AXIS}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, TOP * ratio);
    }
    const pen = this.base.getContext("2d");
    this.#cells(pen);
    this.#labels(pen);
    this.#axis(pen);
    this.#cursor();
  }

  get #looks() {
    return this.run.looks.rows;
  }

  get #column() {
    return this.width / Math.max(this.#looks.length, 1);
  }

  #labelWidth(width) {
    const pen = this.base.getContext("2d");
    pen.font = "11px system-ui, sans-serif";
    const widest = Math.max(24, ...this.run.layers.map((layer) => pen.measureText(layerText(layer)).width));
    return Math.ceil(Math.min(widest + 8, width * 0.36));
  }

  #cells(pen) {
    const looks = this.#looks;
    const rows = this.run.layers.length;
    pen.fillStyle = colour("--raised");
    pen.fillRect(this.left, 0, this.width, this.height);
    if (!looks.length || !rows) return;
    const image = new ImageData(looks.length, rows);
    looks.forEach((look, x) => {
      const values = look.values[this.field];
      if (!values) return;
      for (let y = 0; y < rows; y += 1) {
        const rgb = this.scale.rgb(values[y]);
        if (rgb !== null) image.data.set([rgb[0], rgb[1], rgb[2], 255], 4 * (y * looks.length + x));
      }
    });
    const small = new OffscreenCanvas(looks.length, rows);
    small.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, this.left, 0, this.width, this.height);
    this.#marks(pen);
    if (this.#column >= CELL_TEXT[0] && this.row >= CELL_TEXT[1]) this.#texts(pen);
  }

  /** Hatching, so that what is wrong is seen without colours: crosses, slanted lines, dots. */
  #marks(pen) {
    const zero = (look, y) => this.scale.log && look.values[this.field]?.[y] <= 0;
    this.#hatch(pen, zero, patternOf("dots", colour("--ink-soft")));
    this.#hatch(pen, (look, y) => look.values.dead?.[y] >= DEAD, patternOf("lines", colour("--back"), colour("--surface")));
    this.#hatch(pen, (look, y) => look.values.bad?.[y] > 0, patternOf("crosses", colour("--bad"), colour("--surface")));
  }

  #hatch(pen, marked, pattern) {
    const looks = this.#looks;
    const column = this.#column;
    pen.fillStyle = pattern;
    for (let y = 0; y < this.run.layers.length; y += 1) {
      for (let x = 0; x < looks.length; x += 1) {
        if (!marked(looks[x], y)) continue;
        const begin = x;
        while (x + 1 < looks.length && marked(looks[x + 1], y)) x += 1;
        pen.fillRect(this.left + begin * column, y * this.row, Math.max(1.5, (x + 1 - begin) * column), this.row);
      }
    }
  }

  #texts(pen) {
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    this.#looks.forEach((look, x) => {
      const values = look.values[this.field];
      if (!values) return;
      values.forEach((value, y) => {
        const rgb = this.scale.rgb(value);
        const text = this.#fitting(pen, value);
        const [middle, height] = [this.left + (x + 0.5) * this.#column, (y + 0.5) * this.row + 0.5];
        const light = rgb !== null && 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 128;
        const hatched = look.values.bad?.[y] > 0 || look.values.dead?.[y] >= DEAD;
        if (hatched && text) { // digits on a hatching cannot be read
          const width = pen.measureText(text).width + 4;
          pen.fillStyle = colour("--surface");
          pen.fillRect(middle - width / 2, height - 7, width, 13);
        }
        pen.fillStyle = hatched || rgb === null ? colour("--ink") : light ? "#000" : "#fff";
        pen.fillText(text, middle, height);
      });
    });
  }

  /** A number as a cell has room for it: with three digits, with one, or not at all. */
  #fitting(pen, value) {
    const texts = [numberText(value), Number.isFinite(value) ? numberText(Number(value.toPrecision(1))) : ""];
    return texts.find((text) => pen.measureText(text).width <= this.#column - 4) ?? "";
  }

  #labels(pen) {
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = colour("--ink-soft");
    const step = Math.ceil(ROW_TEXT / this.row);
    for (let y = 0; y < this.run.layers.length; y += step) {
      const size = this.left - 6;
      let text = layerText(this.run.layers[y]);
      while (text.length > 3 && pen.measureText(text).width > size) text = `${text.slice(0, -2)}…`;
      pen.fillText(text, size, (y + 0.5) * this.row + 0.5);
    }
  }

  #axis(pen) {
    const looks = this.#looks;
    pen.fillStyle = colour("--ink-soft");
    pen.textBaseline = "top";
    pen.textAlign = "center";
    const count = Math.max(1, Math.floor(this.width / 70));
    const step = Math.max(1, Math.ceil(looks.length / count));
    for (let x = 0; x < looks.length; x += step) {
      const at = this.left + (x + 0.5) * this.#column;
      const text = String(looks[x].i);
      const half = pen.measureText(text).width / 2;
      pen.fillRect(at - 0.5, this.height, 1, 4);
      pen.fillText(text, Math.min(Math.max(at, this.left + half), this.left + this.width - half), this.height + 6);
    }
  }

  // --- what is pointed at ------------------------------------------------------------------------------

  #cell(event) {
    const box = this.frame.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left - this.left) / this.#column);
    const y = Math.floor((event.clientY - box.top - TOP) / this.row);
    const inside = x < this.#looks.length && y >= 0 && y < this.run.layers.length && this.#looks.length;
    return inside ? { layer: y, look: this.#looks[Math.max(x, 0)] } : null;
  }

  #hover(event) {
    this.hovered = this.#cell(event);
    this.#cursor();
    if (!this.hovered) return this.#leave();
    const { layer, look } = this.hovered;
    this.tip.textContent = this.words(layer, look);
    this.tip.classList.remove("hidden");
    const box = this.place.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, this.place.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 18 + this.tip.offsetHeight > this.height + AXIS ? y - this.tip.offsetHeight - 8 : y + 18}px`;
    return undefined;
  }

  /** A cell in words: its number first, then what is wrong there. */
  words(layer, look) {
    const value = look.nan.has(`${this.field} ${layer}`) ? "nan" : numberText(look.values[this.field]?.[layer]);
    const wrong = [];
    if (look.values.bad?.[layer] > 0) wrong.push(`${look.values.bad[layer]} values not finite`);
    if (look.values.dead?.[layer] >= DEAD) wrong.push(`${Math.round(100 * look.values.dead[layer])}% of its channels dead`);
    for (const [kind, at, text] of look.marks) if (at === layer && kind !== "dead") wrong.push(`${kind}: ${text}`);
    const parts = [`${value} at ${layerText(this.run.layers[layer])}, iteration ${look.i}`, ...wrong];
    return parts.join("; ");
  }

  #leave() {
    this.hovered = null;
    this.tip.classList.add("hidden");
    this.#cursor();
  }

  #pick(event) {
    const cell = this.#cell(event);
    if (cell) this.choose(cell.layer, cell.look.i);
  }

  #key(event) {
    const looks = this.#looks;
    if (!looks.length || event.ctrlKey || event.altKey || event.metaKey) return;
    const much = event.shiftKey ? 10 : 1;
    const steps = {
      ArrowLeft: [-much, 0], ArrowRight: [much, 0], ArrowUp: [0, -much], ArrowDown: [0, much],
      Home: [-Infinity, 0], End: [Infinity, 0], PageUp: [0, -10], PageDown: [0, 10],
    }[event.key];
    if (!steps) return;
    event.preventDefault();
    const within = (value, count) => Math.min(count - 1, Math.max(0, value));
    const now = looks.indexOf(this.run.lookAt(this.chosen.iteration));
    this.choose(within(this.chosen.layer + steps[1], this.run.layers.length), looks[within(now + steps[0], looks.length)].i);
  }

  /** The chosen cell, and the row and column that the pointer is in. */
  #cursor() {
    const pen = this.over.getContext("2d");
    pen.clearRect(0, -TOP, this.left + this.width + RIGHT, TOP + this.height + AXIS);
    const look = this.run.lookAt(this.chosen.iteration);
    const x = this.#looks.indexOf(look);
    if (x >= 0 && this.chosen.layer < this.run.layers.length) this.#outline(pen, x, this.chosen.layer, true);
    if (this.hovered) this.#outline(pen, this.#looks.indexOf(this.hovered.look), this.hovered.layer, false);
  }

  #outline(pen, x, y, strong) {
    const column = this.#column;
    const [left, top] = [this.left + x * column, y * this.row];
    const [wide, high] = [Math.max(column, 3), Math.max(this.row, 3)];
    for (const [style, width] of strong ? [["#fff", 4], ["#000", 2]] : [["#000", 3], ["#fff", 1]]) {
      pen.strokeStyle = style;
      pen.lineWidth = width;
      pen.strokeRect(left, top, wide, high);
    }
    if (!strong) return;
    pen.fillStyle = colour("--ink");
    const middle = top + high / 2;
    pen.beginPath();
    pen.moveTo(this.left - 5, middle - 4);
    pen.lineTo(this.left - 0.5, middle);
    pen.lineTo(this.left - 5, middle + 4);
    pen.moveTo(left + wide / 2 - 4, this.height + 5);
    pen.lineTo(left + wide / 2, this.height + 0.5);
    pen.lineTo(left + wide / 2 + 4, this.height + 5);
    pen.fill();
  }
}

const patterns = new Map();

/** A hatching as a canvas pattern. kind: dots, lines or crosses; ground: behind it, see-through unless given. */
export function patternOf(kind, ink, ground = null) {
  const key = `${kind} ${ink} ${ground}`;
  if (patterns.has(key)) return patterns.get(key);
  const tile = new OffscreenCanvas(6, 6);
  const pen = tile.getContext("2d");
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, 6, 6);
  }
  pen.strokeStyle = ink;
  pen.fillStyle = ink;
  pen.lineWidth = 1.5;
  pen.beginPath();
  if (kind === "dots") pen.arc(3, 3, 0.9, 0, 7);
  else {
    for (const shift of [-6, 0, 6]) {
      pen.moveTo(shift - 1, 7);
      pen.lineTo(shift + 7, -1);
      if (kind === "crosses") {
        pen.moveTo(shift - 1, -1);
        pen.lineTo(shift + 7, 7);
      }
    }
  }
  if (kind === "dots") pen.fill();
  else pen.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  patterns.set(key, pattern);
  return pattern;
}

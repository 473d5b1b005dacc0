// From numbers to colours, and the legend that says which is which.

import { LEAST } from "scope/axes";
import { numberText } from "scope/numbers";
import { colour } from "scope/theme";

// Cividis (Nuñez, Anderton, Renslow 2018): grows evenly in lightness, also for those who see fewer colours.
const SEQUENTIAL = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
// Around 0: dark blue, grey, dark orange, as dark at one end as at the other.
const AROUND_ZERO = ["#0b4a7a", "#3b7ea8", "#86b3cf", "#d9dde0", "#e9b48a", "#c9742f", "#8a3c05"];
const STEPS = 256;

function table(stops) {
  const parts = stops.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
  return Array.from({ length: STEPS }, (_, step) => {
    const place = (step / (STEPS - 1)) * (parts.length - 1);
    const low = Math.min(Math.floor(place), parts.length - 2);
    return parts[low].map((value, i) => Math.round(value + (parts[low + 1][i] - value) * (place - low)));
  });
}

const TABLES = { sequential: table(SEQUENTIAL), signed: table(AROUND_ZERO) };

/** A scale for numbers between low and high; log: over powers of ten, where 0 and less have no place. */
export class Scale {
  constructor(low, high, { log = false, signed = false } = {}) {
    this.log = log;
    this.colours = signed ? TABLES.signed : TABLES.sequential;
    if (signed) [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
    if (log) [low, high] = [Math.max(low, LEAST), Math.max(high, LEAST)];
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
    this.low = low;
    this.high = high;
    this.from = this.#place(low);
    this.span = this.#place(high) - this.from;
  }

  /** For the values of these iterables, between all of them. */
  static over(rows, kind, log) {
    if (kind === "share") return new Scale(0, 1);
    let low = Infinity;
    let high = -Infinity;
    for (const row of rows) {
      for (const value of row) {
        if (!Number.isFinite(value) || (log && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
    if (kind === "count") low = 0;
    return new Scale(low, high, { log, signed: kind === "signed" });
  }

  #place(value) {
    return this.log ? Math.log10(value) : value;
  }

  /** [r, g, b]; null for what has no place on the scale. */
  rgb(value) {
    if (Number.isNaN(value) || (this.log && value <= 0)) return null;
    const share = (this.#place(value) - this.from) / this.span;
    return this.colours[Math.min(STEPS - 1, Math.max(0, Math.round(share * (STEPS - 1))))];
  }

  /** Values for the legend, with their places 0..1. */
  ticks() {
    const found = [];
    if (this.log) {
      const step = Math.max(1, Math.ceil(this.span / 5));
      for (let power = Math.ceil(this.from - 1e-9); power <= this.from + this.span + 1e-9; power += step) found.push(10 ** power);
    }
    if (found.length < 3) {
      found.length = 0;
      for (let i = 0; i <= 4; i += 1) {
        const place = this.from + (this.span * i) / 4;
        found.push(this.log ? 10 ** place : place);
      }
    }
    return found.map((value) => [value, (this.#place(value) - this.from) / this.span]);
  }
}

/** Draws the bar of a scale with its numbers into a canvas; the caller says how wide it is. */
export function drawLegend(canvas, scale, width) {
  const ratio = window.devicePixelRatio || 1;
  const height = 30;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const margin = 22;
  const length = width - 2 * margin;
  for (let x = 0; x < length; x += 1) {
    const [r, g, b] = scale.colours[Math.round((x / (length - 1)) * (STEPS - 1))];
    pen.fillStyle = `rgb(${r} ${g} ${b})`;
    pen.fillRect(margin + x, 0, 1.5, 12);
  }
  pen.strokeStyle = colour("--line-strong");
  pen.strokeRect(margin + 0.5, 0.5, length - 1, 11);
  pen.fillStyle = colour("--ink");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const { x, text, half } of apart(pen, scale.ticks(), margin, length)) {
    pen.fillRect(x - 0.5, 12, 1, 4);
    pen.fillText(text, Math.min(Math.max(x, half), width - half), 17);
  }
}

/** Ticks with their places, as many (all, every second, every third...) as do not touch each other. */
function apart(pen, ticks, margin, length) {
  const all = ticks.map(([value, share]) => {
    const text = numberText(value);
    return { x: margin + share * length, text, half: pen.measureText(text).width / 2 + 3 };
  });
  for (let every = 1; ; every += 1) {
    const kept = all.filter((_, i) => i % every === 0);
    if (kept.every((one, i) => i === 0 || one.x - one.half >= kept[i - 1].x + kept[i - 1].half)) return kept;
  }
}

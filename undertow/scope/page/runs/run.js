// One run: its header and records, in memory, kept short enough to be drawn.

import { exactText } from "runs/fields";

const MOST_ITERATIONS = 8000;
const MOST_LOOKS = 2000;

/** JSON's words for numbers back to numbers; null, for "has none", to NaN. */
function number(value) {
  if (typeof value === "number") return value;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;
}

function numbers(values) {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, number(value)]));
}

/** Records with growing i; each take() puts one in its place. */
class Sorted {
  constructor(most, step = 1) {
    this.most = most;
    this.step = step;
    this.every = 1;
    this.rows = [];
  }

  take(row) {
    const rows = this.rows;
    if (!rows.length || rows[rows.length - 1].i < row.i) rows.push(row);
    else {
      const place = this.from(row.i);
      rows.splice(place, rows[place].i === row.i ? 1 : 0, row);
    }
    while (rows.length > this.most) this.#thin();
  }

  /** Index of the first row at or behind an iteration. */
  from(iteration) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].i < iteration) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  forgetAfter(iteration) {
    this.rows.length = this.from(iteration + 1);
  }

  #thin() {
    this.every *= 2;
    const last = this.rows[this.rows.length - 1];
    const kept = this.rows.filter((row) => Math.floor(row.i / this.step) % this.every === 0 || row === last);
    this.rows.splice(0, this.rows.length, ...kept);
  }
}

export class Run {
  /** letter: A or B. lines: of the history, the first about offset and thinning, the second the header. */
  constructor(letter, lines) {
    const [told, header, ...records] = lines.map((line) => JSON.parse(line));
    this.letter = letter;
    this.header = header;
    this.offset = told.offset;
    this.file = told.file;
    this.folder = told.folder;
    this.damaged = told.damaged;
    this.layers = header.layers;
    this.iterations = new Sorted(MOST_ITERATIONS);
    this.looks = new Sorted(MOST_LOOKS, header.every);
    [this.iterations.every, this.looks.every] = told.thinned;
    this.measures = new Sorted(MOST_ITERATIONS);
    this.notes = [];
    this.end = null;
    for (const record of records) this.take(record);
  }

  /** One record more. */
  take(record) {
    const i = record.i;
    if (record.k === "iteration") {
      const { k, i: at, ...values } = record;
      this.iterations.take({ i, ...numbers(values) });
      this.end = null;
    } else if (record.k === "layers") {
      const values = Object.entries(record.values).map(([key, row]) => [key, Float64Array.from(row, number)]);
      const words = Object.entries(record.values).flatMap(([key, row]) => row.flatMap((value, layer) => (value === "nan" ? [`${key} ${layer}`] : [])));
      this.looks.take({ i, values: Object.fromEntries(values), nan: new Set(words), marks: record.marks });
    } else if (record.k === "measure") this.measures.take({ i, values: numbers(record.values) });
    else if (record.k === "note") this.notes.push(record);
    else if (record.k === "end") this.end = record;
    else if (record.k === "from") {
      for (const kept of [this.iterations, this.looks, this.measures]) kept.forgetAfter(i);
      this.notes = this.notes.filter((note) => note.i <= i);
      this.end = null;
    }
  }

  /** Where it broke off, and why; null for a run that did not. */
  get broken() {
    return this.end?.reason ? this.end : null;
  }

  /** From which iteration on the loss has not been finite again; null where it is, or was again. */
  get lossGone() {
    const { rows } = this.iterations;
    const last = rows.findLastIndex((row) => Number.isFinite(row.loss));
    return last === rows.length - 1 || rows[last + 1].loss === undefined ? null : rows[last + 1].i;
  }

  get last() {
    return this.iterations.rows[this.iterations.rows.length - 1];
  }

  /** The number of a layer at the look nearest to an iteration; NaN without one. */
  at(field, layer, look) {
    const row = look?.values[field];
    return row === undefined ? NaN : row[layer];
  }

  /** The same as it stands in the file: NaN that is the number is no "-", which says that there is none. */
  text(field, layer, look) {
    return look?.nan.has(`${field} ${layer}`) ? "nan" : exactText(this.at(field, layer, look));
  }

  /** The look nearest to an iteration. */
  lookAt(iteration) {
    const rows = this.looks.rows;
    const place = this.looks.from(iteration);
    const before = rows[place - 1];
    const after = rows[place];
    if (!before || !after) return before ?? after;
    return iteration - before.i < after.i - iteration ? before : after;
  }
}

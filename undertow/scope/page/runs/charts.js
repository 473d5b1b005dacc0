// Loss, rate, measures and speed over iterations, of all runs in the same charts.

import { h, s, show } from "scope/dom";
import { SERIES, lineChart } from "scope/chart";
import { valueText } from "runs/fields";

const HEIGHT = 132;

/** [x, y of each line] for lines that are [xs, ys]: all x together; between its ends a line keeps its last value. */
export function joined(lines) {
  const xs = [...new Set(lines.flatMap(([x]) => x))].sort((a, b) => a - b);
  const columns = lines.map(([x, y]) => {
    let place = -1;
    return xs.map((at) => {
      while (place + 1 < x.length && x[place + 1] <= at) place += 1;
      const value = place < 0 || at > x[x.length - 1] ? null : y[place];
      return value === null || !Number.isFinite(value) ? null : value;
    });
  });
  return [xs, ...columns];
}

/** 15000 as 15k: axes have little room. */
export function iterationText(value) {
  if (value === null || !Number.isInteger(value)) return "";
  if (Math.abs(value) >= 1e6) return `${value / 1e6}M`;
  return Math.abs(value) >= 1e4 ? `${value / 1e3}k` : String(value);
}

/** A piece of a line as charts draw it, for keys. */
export function sample(number) {
  const { stroke, dash } = SERIES[number % SERIES.length];
  return s("svg", { width: 20, height: 8, "aria-hidden": "true" },
    s("line", { x1: 0, x2: 20, y1: 4, y2: 4, style: `stroke: var(${stroke})`, "stroke-width": 2, "stroke-dasharray": dash.join(" ") }));
}

/** Why there are no measures, and where they would come from. */
function advice(runs) {
  if (runs.every((run) => run.header.format === "darknet")) return "no validation recorded (detector train -map measures mAP)";
  if (runs.every((run) => run.header.format === "caffe")) return "no test recorded (test_interval and test_iter in the solver ask for it)";
  return "no validation recorded";
}

/** A card with a chart. lines(): [[name, xs, ys], ...] as they are now. log: offers a log scale, and with "first" begins with it.
 *  points: marks values. */
class Card {
  constructor(title, lines, { log = false, empty = "nothing recorded yet", points = false, tools = [] } = {}) {
    this.lines = lines;
    this.empty = empty;
    this.points = points;
    this.place = h("div", { class: "plot" });
    this.log = log === "first";
    const button = log && h("button", { type: "button", class: "small", "aria-pressed": String(this.log), "aria-label": `${title}: log scale`,
      title: "Powers of ten on the vertical axis", onclick: () => {
        this.log = !this.log;
        button.setAttribute("aria-pressed", String(this.log));
        this.#forget();
        this.draw();
      } }, "log");
    this.key = h("div", { class: "key-line" });
    this.title = h("h2", {}, title);
    this.card = h("section", { class: "card chart", "aria-label": title },
      h("header", {}, this.title, h("span", { class: "grow" }), tools, button || null), this.key, this.place);
  }

  #forget() {
    this.chart?.destroy();
    this.chart = null;
    this.names = null;
  }

  draw() {
    const lines = this.lines().filter(([, xs]) => xs.length);
    if (!lines.some(([, , ys]) => ys.some(Number.isFinite))) {
      this.#forget();
      show(this.key);
      show(this.place, h("p", { class: "soft empty" }, typeof this.empty === "function" ? this.empty() : this.empty));
      return;
    }
    this.told = lines.map(([, xs, ys]) => [xs, ys]);
    this.columns = joined(lines.map(([, xs, ys]) => [xs, this.log ? ys.map((y) => (y > 0 ? y : NaN)) : ys]));
    const names = lines.map(([name]) => name);
    if (this.chart && String(names) === String(this.names)) this.chart.update(this.columns);
    else {
      this.#forget();
      show(this.place);
      this.names = names;
      this.chart = lineChart(this.place, names, this.columns, {
        xText: iterationText, yText: valueText, log: this.log, height: HEIGHT, points: this.points, legend: false, ySize: 60,
        hooks: { setCursor: [() => this.#say()] },
      });
    }
    this.#say();
  }

  /** The key: every line with its value under the pointer, or else its last one; also one that cannot be drawn. */
  #say() {
    const pointed = this.chart?.plot.cursor.idx ?? null;
    const [xs] = this.columns;
    const at = pointed === null ? Infinity : xs[pointed];
    const value = ([x, y]) => (pointed !== null && at > x[x.length - 1] ? null : y[x.findLastIndex((one) => one <= at)]);
    show(this.key, this.told.map((line, i) => h("span", { class: "key" }, sample(i), this.names[i], h("b", {}, valueText(value(line)) || "-"))),
      h("span", { class: "at" }, `at ${pointed === null ? xs[xs.length - 1] : at}`));
  }
}

/** The four cards. runs(): all runs as they are now. */
export class Charts {
  constructor(place, runs) {
    const several = () => runs().length > 1;
    const named = (run, name) => (several() ? run.letter : name);
    const column = (run, key) => [run.iterations.rows.map((row) => row.i), run.iterations.rows.map((row) => row[key])];
    const of = (key, name) => () => runs().map((run) => [named(run, name), ...column(run, key)]);
    const loss = () => runs().flatMap((run) => {
      const average = [named(run, "average loss"), ...column(run, "average")];
      if (several()) return [average];
      const own = ["loss", ...column(run, "loss")];
      const tellsMore = average[2].some((value, i) => Number.isFinite(value) && value !== own[2][i]);
      return tellsMore ? [own, average] : [own];
    });
    this.choice = h("select", { "aria-label": "Which measure", class: "small", onchange: () => this.draw() });
    const measure = () => runs().map((run) => {
      const rows = run.measures.rows.filter((row) => this.choice.value in row.values);
      return [named(run, this.choice.value), rows.map((row) => row.i), rows.map((row) => row.values[this.choice.value])];
    });
    this.runs = runs;
    this.cards = [
      new Card("Loss", loss, { log: "first" }),
      new Card("Measured", measure, { points: true, tools: [this.choice], empty: () => advice(runs()) }),
      new Card("Learning rate", of("rate", "rate"), { log: true }),
      new Card("Speed", of("speed", "images/s"), { empty: "no speed recorded" }),
    ];
    place.append(...this.cards.map((card) => card.card));
  }

  draw() {
    this.#choices();
    this.cards[0].title.textContent = this.runs().length > 1 ? "Average loss" : "Loss";
    for (const card of this.cards) card.draw();
  }

  #choices() {
    const names = [...new Set(this.runs().flatMap((run) => run.measures.rows.flatMap((row) => Object.keys(row.values))))];
    this.choice.classList.toggle("hidden", names.length < 2);
    if (String(names) === String([...this.choice.options].map((option) => option.value))) return;
    const before = this.choice.value;
    const first = ["mAP", ...names].find((name) => names.includes(name) && /^mAP$|acc/i.test(name)) ?? names[0];
    show(this.choice, names.map((name) => h("option", { value: name }, name)));
    this.choice.value = names.includes(before) ? before : first ?? "";
  }
}

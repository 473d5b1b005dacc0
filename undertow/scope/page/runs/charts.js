// Loss, rate, measures and speed over iterations, of all runs in the same charts.

import { h, show } from "scope/dom";
import { lineChart } from "scope/chart";
import { numberText } from "scope/numbers";

const HEIGHT = 168;

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

/** A card with a chart. lines(): [[name, xs, ys], ...] as they are now. options: of lineChart; log: offers log scale. */
class Card {
  constructor(title, lines, { log = false, empty = "nothing recorded yet", points = false, tools = [] } = {}) {
    this.lines = lines;
    this.empty = empty;
    this.points = points;
    this.place = h("div", { class: "plot" });
    this.log = false;
    const button = log && h("button", { type: "button", class: "small", "aria-pressed": "false", title: "Powers of ten on the vertical axis",
      onclick: () => {
        this.log = !this.log;
        button.setAttribute("aria-pressed", String(this.log));
        this.#forget();
        this.draw();
      } }, "log");
    this.now = h("span", { class: "now" });
    this.card = h("section", { class: "card chart", "aria-label": title },
      h("header", {}, h("h2", {}, title), this.now, h("span", { class: "grow" }), tools, button || null), this.place);
  }

  #forget() {
    this.chart?.destroy();
    this.chart = null;
    this.names = null;
  }

  draw() {
    const lines = this.lines().filter(([, xs]) => xs.length);
    if (!lines.length) {
      this.#forget();
      show(this.place, h("p", { class: "soft empty" }, this.empty));
      return;
    }
    this.now.textContent = lines.map(([, , ys]) => numberText(ys[ys.length - 1])).join("  |  ");
    const columns = joined(lines.map(([, xs, ys]) => [xs, this.log ? ys.map((y) => (y > 0 ? y : NaN)) : ys]));
    const names = lines.map(([name]) => name);
    if (this.chart && String(names) === String(this.names)) {
      this.chart.update(columns);
      return;
    }
    this.#forget();
    show(this.place);
    this.names = names;
    this.chart = lineChart(this.place, names, columns, { x: "iteration", log: this.log, height: HEIGHT, points: this.points });
  }
}

/** The four cards. runs(): all runs as they are now. */
export class Charts {
  constructor(place, runs) {
    const several = () => runs().length > 1;
    const named = (run, name) => (several() ? `${run.letter}: ${name}` : name);
    const column = (run, key) => [run.iterations.rows.map((row) => row.i), run.iterations.rows.map((row) => row[key] ?? NaN)];
    const of = (key, name) => () => runs().map((run) => [named(run, name), ...column(run, key)]);
    const loss = () => runs().flatMap((run) => {
      const average = [named(run, "average loss"), ...column(run, "average")];
      return several() ? [average] : [average, ["loss", ...column(run, "loss")]];
    });
    this.choice = h("select", { "aria-label": "Which measure", class: "small", onchange: () => this.draw() });
    const measure = () => runs().map((run) => {
      const rows = run.measures.rows.filter((row) => this.choice.value in row.values);
      return [named(run, this.choice.value), rows.map((row) => row.i), rows.map((row) => row.values[this.choice.value])];
    });
    this.runs = runs;
    this.cards = [
      new Card("Loss", loss, { log: true }),
      new Card("Measured", measure, { points: true, tools: [this.choice], empty: "no validation recorded (detector train -map measures mAP)" }),
      new Card("Learning rate", of("rate", "rate"), { log: true }),
      new Card("Speed", of("speed", "images/s"), { empty: "no speed recorded" }),
    ];
    place.append(...this.cards.map((card) => card.card));
  }

  draw() {
    this.#choices();
    for (const card of this.cards) card.draw();
  }

  #choices() {
    const names = [...new Set(this.runs().flatMap((run) => run.measures.rows.flatMap((row) => Object.keys(row.values))))];
    if (String(names) === String([...this.choice.options].map((option) => option.value))) return;
    const before = this.choice.value;
    const first = ["mAP", ...names].find((name) => names.includes(name) && /^mAP$|acc/i.test(name)) ?? names[0];
    show(this.choice, names.map((name) => h("option", { value: name }, name)));
    this.choice.value = names.includes(before) ? before : first ?? "";
    this.choice.classList.toggle("hidden", names.length < 2);
  }
}

// The chosen cell: every number of its layer, and the shown statistic of the layer over iterations.

import { h, show } from "scope/dom";
import { lineChart } from "scope/chart";
import { iterationText, joined, sample } from "runs/charts";
import { FIELDS, layerText } from "runs/fields";

export class Detail {
  /** go(layer, iteration): called when a mark is clicked. */
  constructor(place, go) {
    this.go = go;
    this.title = h("h2", { id: "chosen" });
    this.table = h("table", { "aria-labelledby": "chosen" });
    this.line = h("div", { class: "plot" });
    this.lineTitle = h("h3");
    this.gaps = h("p", { class: "soft note hidden" });
    this.marks = h("div", { class: "marks" });
    place.append(this.title, this.table, this.lineTitle, this.line, this.gaps, h("h3", {}, "What stands out there"), this.marks);
  }

  draw({ runs, field, layer, iteration, log }) {
    const looks = runs.map((run) => run.lookAt(iteration));
    const named = runs.find((run) => layer < run.layers.length);
    this.title.textContent = named ? layerText(named.layers[layer]) : "no layers";
    const fields = Object.keys(FIELDS).filter((key) => runs.some((run) => run.header.fields.includes(key)));
    const head = runs.map((run, i) => h("th", { class: "number", scope: "col" },
      runs.length > 1 ? `${run.letter}: ${looks[i]?.i ?? "-"}` : String(looks[i]?.i ?? "-")));
    show(this.table, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "iteration"), head)),
      h("tbody", {}, fields.map((key) => h("tr", { class: key === field ? "shown" : null, "data-field": key },
        h("th", { scope: "row" }, FIELDS[key].short),
        runs.map((run, i) => h("td", { class: "number" }, run.text(key, layer, looks[i])))))));
    this.#line(runs, field, layer, log);
    this.#marks(runs, looks);
  }

  #line(runs, field, layer, log) {
    show(this.lineTitle, `Its ${FIELDS[field].short} over iterations`,
      runs.length > 1 ? runs.map((run, i) => h("span", { class: "key" }, sample(i), run.letter)) : null);
    const lines = runs.map((run) => {
      const rows = run.looks.rows;
      const ys = rows.map((row) => run.at(field, layer, row));
      return [rows.map((row) => row.i), log ? ys.map((y) => (y > 0 ? y : NaN)) : ys];
    });
    const gaps = runs.some((run) => run.looks.rows.some((row) => !(log ? run.at(field, layer, row) > 0 : Number.isFinite(run.at(field, layer, row)))));
    this.gaps.classList.toggle("hidden", !gaps);
    this.gaps.textContent = log ? "Gaps: 0, which a scale of powers of ten does not have, or no number at all." : "Gaps: no number at all.";
    const any = lines.some(([, ys]) => ys.some(Number.isFinite));
    const key = `${lines.length} ${log}`;
    if (this.chart && this.key === key && any) return this.chart.update(joined(lines));
    this.chart?.destroy();
    this.chart = null;
    this.key = key;
    if (!any) this.gaps.classList.add("hidden");
    if (!any) return show(this.line, h("p", { class: "soft empty" }, "this layer has no such number"));
    show(this.line);
    this.chart = lineChart(this.line, runs.map((run) => run.letter), joined(lines), { xText: iterationText, log, height: 120, legend: false });
    return undefined;
  }

  #marks(runs, looks) {
    const found = runs.flatMap((run, i) => (looks[i]?.marks ?? []).map(([kind, layer, text]) =>
      h("li", {}, h("button", { type: "button", class: "mark", onclick: () => this.go(layer, looks[i].i) },
        h("span", { class: kind === "non-finite" ? "tag bad" : "tag back" }, kind),
        ` ${runs.length > 1 ? `${run.letter}, ` : ""}${layerText(run.layers[layer] ?? [layer, ""])}: ${text}`))));
    show(this.marks, found.length ? h("ul", {}, found) : h("p", { class: "soft" }, finding(runs, looks)));
  }
}

/** What there is to say of looks without marks. Runs of one's own tell of parameters alone. */
function finding(runs, looks) {
  if (looks.every((look) => !look)) return "the layers have not been looked at";
  if (looks.some((look) => look?.values.bad?.some((count) => count > 0))) return "not all values are finite";
  const later = runs.some((run, i) => looks[i] && run.broken && looks[i].i < run.broken.i) ? "; the run broke off later" : "";
  if (!looks.every((look) => !look || look.values.bad)) return `whether all values are finite was not looked at${later}`;
  if (runs.every((run) => run.header.fields.includes("dead"))) return `nothing vanishes, explodes or is dead; all values are finite${later}`;
  return `all values are finite${later}`;
}

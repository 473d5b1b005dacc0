// Buttons, slider and chart that walk along the way back.

import { LEAST } from "scope/axes";
import { lineChart } from "scope/chart";
import { h } from "scope/dom";
import { title } from "scope/graph";
import { countText, numberText } from "scope/numbers";
import { colour } from "scope/theme";

const PAUSE = 700;

export class Player {
  constructor(network, store) {
    Object.assign(this, { network, store, timer: null });
    const last = network.order.length;
    const button = (id, text, label, run) =>
      h("button", { type: "button", class: "icon", id, "aria-label": label, title: label, onclick: run }, text);
    this.play = button("play", "▶", "Play the way back (space)", () => this.toggle());
    this.slider = h("input", {
      type: "range",
      id: "slider",
      min: 0,
      max: last,
      value: 0,
      "aria-label": "Step of the way back",
      oninput: () => this.go(Number(this.slider.value)),
    });
    this.text = h("div", { class: "player-text", id: "sentence" });
    this.place = h("div", { class: "player-chart", "aria-hidden": "true" });
    this.element = h(
      "footer",
      { class: "player", "aria-label": "The way back, step by step" },
      h(
        "div",
        { class: "player-controls" },
        h(
          "div",
          { class: "player-buttons" },
          button("first", "«", "Before the way back (Home)", () => this.go(0)),
          button("back", "‹", "One step back (left arrow)", () => this.go(store.values.step - 1)),
          this.play,
          button("on", "›", "One step on (right arrow)", () => this.go(store.values.step + 1)),
          button("last", "»", "All the way back (End)", () => this.go(last)),
        ),
        this.slider,
        this.text,
      ),
      this.place,
    );
    store.watch((values, changed) => {
      if (changed.has("step") || changed.has("run")) this.draw();
    });
  }

  go(step) {
    this.store.set({ step: Math.min(Math.max(step, 0), this.network.order.length) });
  }

  toggle() {
    if (this.timer !== null) {
      this.stop();
      return;
    }
    if (this.store.values.step === this.network.order.length) this.go(0);
    this.play.textContent = "❚❚";
    this.play.setAttribute("aria-label", "Pause (space)");
    this.timer = setInterval(() => {
      this.go(this.store.values.step + 1);
      if (this.store.values.step === this.network.order.length) this.stop();
    }, PAUSE);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "▶";
    this.play.setAttribute("aria-label", "Play the way back (space)");
  }

  /** The present step in words. */
  sentence() {
    const { step, run } = this.store.values;
    const last = this.network.order.length;
    if (step === 0) {
      const { loss } = this.network.runs[run];
      const told = this.network.lossless ? "no loss" : `loss ${typeof loss === "number" ? Number(loss.toPrecision(6)) : loss}`;
      return `Forward pass done, ${told}. ${last} steps back`;
    }
    const layer = this.network.layer(this.network.order[step - 1]);
    const norm = this.network.gradient(run, layer.index);
    const bad = this.network.bad(run, layer.index);
    const wrong = bad > 0 ? `, ${countText(bad)} of its values not finite` : "";
    const what = norm === null ? this.without(layer) : `gradient norm ${numberText(norm)}${wrong}`;
    return `Step ${step} of ${last}: layer ${title(layer)}, ${what}`;
  }

  /** Why no gradient arrives at a layer. */
  without(layer) {
    const begins = layer.formula.length > 0 && this.network.readers.get(layer.index).length === 0;
    return begins ? "its loss begins here" : "no gradient arrives";
  }

  draw() {
    const { step } = this.store.values;
    this.slider.value = step;
    this.slider.setAttribute("aria-valuetext", this.sentence());
    this.text.textContent = this.sentence();
    if (!this.chart) this.chart = this.makeChart();
    this.chart.plot.redraw(false);
    if (this.store.values.step > 0) this.chart.plot.setLegend({ idx: this.store.values.step - 1 });
  }

  makeChart() {
    const { network } = this;
    const steps = network.order.map((_, place) => place + 1);
    const columns = network.runs.map((_, run) => network.order.map((index) => network.gradient(run, index)));
    const options = {
      log: true,
      whole: true,
      height: 96,
      x: "step",
      y: "|gradient|",
      ySize: 54,
      xSize: 18,
      legend: network.runs.length > 1,
      click: (place) => this.go(place + 1),
      hooks: { draw: [(plot) => this.line(plot)] },
    };
    const chart = lineChart(
      this.place,
      network.runs.map((run) => run.name),
      [steps, ...columns],
      options,
    );
    const drawn = columns.flat();
    if (!drawn.every((norm) => norm > 0 && norm < Infinity)) this.note(`gaps${options.legend ? "" : " alone"}`, this.gaps(), "No gradient arrives at these layers, or it is 0 or not finite");
    if (drawn.some((norm) => norm > 0 && norm < LEAST))
      this.note("lowest", `lowest: below ${numberText(LEAST)}`, "What is smaller than the chart can show stands at its lower edge");
    return chart;
  }

  /** A remark on the chart. */
  note(name, text, title) {
    this.place.append(h("div", { class: `soft ${name}`, title }, text));
  }

  /** What the gaps of the line stand for. */
  gaps() {
    const wrong = this.network.runs.some((_, run) => this.network.order.some((index) => this.network.bad(run, index) > 0));
    return wrong ? "gaps: none, or not finite" : "gaps: no gradient";
  }

  line(plot) {
    const { step } = this.store.values;
    if (step === 0) return;
    const x = Math.round(plot.valToPos(step, "x", true));
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("--back");
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }
}

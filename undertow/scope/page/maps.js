// Feature maps and gradient maps as images, laid over the input picture.

import { barChart } from "scope/chart";
import { h, show } from "scope/dom";
import { card } from "scope/panel";
import { numberText } from "scope/numbers";
import { colour } from "scope/theme";

const remembered = { over: 0.35, channel: new Map(), first: new Map() };

export function mapsTab(place, network, store) {
  const { run, selected } = store.values;
  const layer = network.layer(selected);
  const numbers = network.numbers(run, selected);
  if (numbers.values.output) return vectors(place, network, numbers);
  if (!network.maps(run, selected).output) {
    place.append(
      h(
        "p",
        { class: "soft" },
        "The output of this layer is no image, and has too many values to show one by one; see Numbers.",
      ),
    );
    return null;
  }
  return new Maps(place, network, layer, run).leave;
}

/** Outputs without maps: a bar for each value. */
function vectors(place, network, numbers) {
  const charts = [];
  const spots = ["output", "gradient"].map((kind) => {
    const spot = h("div", {});
    return { kind, spot, card: card(kind === "output" ? "Output, first sample" : "Gradient, first sample", spot) };
  });
  place.append(h("div", { class: "columns" }, ...spots.map((one) => one.card)));
  for (const { kind, spot } of spots) {
    const values = numbers.values[kind];
    if (!values) {
      spot.append(h("p", { class: "soft" }, "There is none."));
      continue;
    }
    if (values.length === 1) {
      spot.append(h("p", {}, `A single number: ${numberText(values[0])}`));
      continue;
    }
    const finite = values.filter(Number.isFinite);
    const low = Math.min(0, ...finite);
    const high = Math.max(0, ...finite);
    charts.push(
      barChart(spot, kind, [values.map((_, i) => i), values.map((value) => (Number.isFinite(value) ? value : null))], {
        height: 220,
        x: "unit",
        colour: kind === "output" ? "--series-1" : "--series-2",
        range: [low, high === low ? 1 : high],
        ySize: 60,
      }),
    );
    spot.append(
      h(
        "p",
        { class: "soft" },
        values.length <= 16
          ? values.map((value, i) => `${i}: ${numberText(value)}`).join(", ")
          : `${values.length} values, ${finite.length < values.length ? "the finite ones " : ""}from ${numberText(Math.min(...finite))} to ${numberText(Math.max(...finite))}`,
      ),
    );
  }
  return () => charts.forEach((chart) => chart.destroy());
}

class Maps {
  constructor(place, network, layer, run) {
    Object.assign(this, { network, layer, run, over: remembered.over });
    this.count = layer.outputs[0][1];
    this.channels = layer.channels;
    this.sheets = network.maps(run, layer.index);
    this.chosen = this.channels.includes(remembered.channel.get(layer.index))
      ? remembered.channel.get(layer.index)
      : this.channels[0];
    this.shown = true;
    this.leave = () => {
      this.shown = false;
    };
    this.large = { output: h("canvas", { class: "map large" }), gradient: h("canvas", { class: "map large" }) };
    this.grids = { output: h("div", { class: "map-grid" }), gradient: h("div", { class: "map-grid" }) };
    this.captions = { output: h("p", { class: "soft" }), gradient: h("p", { class: "soft" }) };
    const slider = h("input", {
      type: "range",
      min: 0,
      max: 1,
      step: 0.05,
      value: this.over,
      "aria-label": "How much of the input picture shows",
      oninput: () => {
        this.over = remembered.over = Number(slider.value);
        this.draw();
      },
    });
    place.append(
      h(
        "div",
        { class: "map-tools" },
        network.picture && h("label", {}, "Input picture ", slider),
        network.live && this.count > this.channels.length && this.pager(),
        h("span", { class: "soft" }, this.legend()),
        network.fewer &&
          h("span", { class: "soft", id: "fewer" }, `A long network: this page holds ${network.fewer.most} of a layer's maps, at most ${network.fewer.side} pixels wide, to stay small; a served one has all of them.`),
      ),
      h(
        "div",
        { class: "columns" },
        ...["output", "gradient"].map((kind) =>
          h(
            "div",
            { class: "card maps-card" },
            h("h3", {}, kind === "output" ? "Feature maps" : "Gradient maps"),
            this.sheets[kind]
              ? [this.captions[kind], this.large[kind], this.grids[kind]]
              : h("p", { class: "soft" }, "No gradient arrives here."),
          ),
        ),
      ),
    );
    this.start();
  }

  legend() {
    return "Blue and hatched: below 0. Orange: above 0. Clear: 0.";
  }

  pager() {
    const total = Math.ceil(this.count / 16);
    const options = [
      h("option", { value: "strongest" }, "with the largest gradients"),
      ...Array.from({ length: total }, (_, page) =>
        h("option", { value: page }, `${16 * page} to ${Math.min(16 * page + 15, this.count - 1)}`),
      ),
    ];
    return h(
      "label",
      {},
      "Channels ",
      h("select", { id: "channels", onchange: (event) => this.turn(event.target.value) }, ...options),
    );
  }

  async turn(page) {
    this.channels =
      page === "strongest"
        ? this.layer.channels
        : Array.from({ length: Math.min(16, this.count - 16 * page) }, (_, i) => 16 * Number(page) + i);
    [this.chosen] = this.channels;
    await this.start();
  }

  /** Full maps from the server where there is one, else the thumbnails of the page. */
  async start() {
    this.picture ??= this.network.picture && (await image(this.network.picture));
    if (this.network.live) {
      for (const kind of ["output", "gradient"]) {
        if (!this.sheets[kind]) continue;
        const reply = await fetch(
          `/maps?run=${this.run}&layer=${this.layer.index}&kind=${kind}&channels=${this.channels.join(",")}`,
        );
        if (reply.ok) this.sheets[kind] = await reply.json();
      }
    }
    this.levels = {};
    for (const kind of ["output", "gradient"])
      if (this.sheets[kind]) this.levels[kind] = await levelsOf(this.sheets[kind]);
    if (this.shown) this.draw();
  }

  draw() {
    for (const kind of Object.keys(this.levels ?? {})) {
      const place = this.channels.indexOf(this.chosen);
      this.paint(this.large[kind], kind, place, 320, this.over);
      const sheet = this.sheets[kind];
      this.captions[kind].textContent =
        `Channel ${this.chosen}, ${sheet.size.join("x")} pixels; full colour is ${numberText(sheet.limit)}`;
      show(
        this.grids[kind],
        this.channels.map((channel, i) => this.thumbnail(kind, channel, i)),
      );
    }
  }

  thumbnail(kind, channel, place) {
    const canvas = h("canvas", { class: "map" });
    this.paint(canvas, kind, place, 64, Math.min(this.over, 0.35));
    const choose = () => {
      this.chosen = channel;
      remembered.channel.set(this.layer.index, channel);
      this.draw();
    };
    return h(
      "button",
      {
        type: "button",
        class: "thumbnail",
        "aria-pressed": String(channel === this.chosen),
        "aria-label": `Channel ${channel}`,
        onclick: choose,
      },
      canvas,
      h("span", {}, channel),
    );
  }

  paint(canvas, kind, place, side, over) {
    const what = kind === "output" ? "Feature map" : "Gradient map";
    const label = `${what} of channel ${this.channels[place]}`;
    paint(canvas, this.levels[kind], this.sheets[kind], place, side, { label, over, picture: this.picture });
  }
}

/** The gradient maps of a layer in a row, as they stand in the page. */
export async function strip(place, network, run, layer) {
  const sheet = network.maps(run, layer.index).gradient;
  const picture = network.picture && (await image(network.picture));
  const levels = await levelsOf(sheet);
  show(
    place,
    layer.channels.map((channel, i) => {
      const canvas = h("canvas", { class: "map" });
      paint(canvas, levels, sheet, i, 64, { label: `Gradient map of channel ${channel}`, over: 0.3, picture });
      return h("figure", { class: "thumbnail" }, canvas, h("figcaption", {}, channel));
    }),
  );
}

/** One map of a sheet over the picture. side: of the canvas, in pixels of the page. */
function paint(canvas, levels, sheet, place, side, { label, over, picture }) {
  const {
    size: [height, width],
  } = sheet;
  const scale = side / Math.max(height, width);
  const dense = Math.min(devicePixelRatio || 1, 2);
  canvas.width = Math.max(Math.round(width * scale * dense), 1);
  canvas.height = Math.max(Math.round(height * scale * dense), 1);
  canvas.style.aspectRatio = `${width} / ${height}`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const context = canvas.getContext("2d");
  context.fillStyle = colour("--raised");
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (picture && over > 0) {
    context.globalAlpha = over;
    context.filter = "grayscale(1)";
    context.imageSmoothingEnabled = picture.width > canvas.width / 4;
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    context.filter = "none";
    context.globalAlpha = 1;
  }
  context.imageSmoothingEnabled = width > 40;
  context.drawImage(coloured(levels, sheet, place), 0, 0, canvas.width, canvas.height);
  if (side > 100) hatch(context, levels, sheet, place, canvas);
}

function image(address) {
  return new Promise((done, failed) => {
    const found = new Image();
    found.onload = () => done(found);
    found.onerror = failed;
    found.src = address;
  });
}

/** The grey levels of a sheet of maps: {width, data}. */
export async function levelsOf(sheet) {
  const source = await image(sheet.image);
  const canvas = h("canvas", { width: source.width, height: source.height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(source, 0, 0);
  return { width: source.width, data: context.getImageData(0, 0, source.width, source.height).data };
}

/** One map of a sheet, coloured: blue below 0, orange above, the stronger the less transparent. */
export function coloured(levels, sheet, place) {
  const [height, width] = sheet.size;
  const canvas = h("canvas", { width, height });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  const [low, high] = [rgb("--series-1"), rgb("--series-2")];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const value = (levels.data[4 * (y * levels.width + place * sheet.stride + x)] - 128) / 127;
      const at = 4 * (y * width + x);
      const hue = value < 0 ? low : high;
      [pixels.data[at], pixels.data[at + 1], pixels.data[at + 2]] = hue;
      pixels.data[at + 3] = 255 * Math.min(Math.abs(value), 1) ** 0.6;
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** Thin diagonal lines where values are clearly below 0, for eyes that do not tell the colours. */
function hatch(context, levels, sheet, place, canvas) {
  const [height, width] = sheet.size;
  context.strokeStyle = colour("--ink");
  context.globalAlpha = 0.5;
  context.lineWidth = 1;
  const step = 8;
  context.beginPath();
  for (let y = 0; y < canvas.height; y += step) {
    for (let x = 0; x < canvas.width; x += step) {
      const [column, row] = [
        Math.floor(((x + step / 2) * width) / canvas.width),
        Math.floor(((y + step / 2) * height) / canvas.height),
      ];
      const level =
        levels.data[
          4 * (Math.min(row, height - 1) * levels.width + place * sheet.stride + Math.min(column, width - 1))
        ];
      if (level < 104) {
        context.moveTo(x + 1, y + step - 1);
        context.lineTo(x + step - 1, y + 1);
      }
    }
  }
  context.stroke();
  context.globalAlpha = 1;
}

function rgb(name) {
  const text = colour(name);
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

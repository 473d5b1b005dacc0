// Two dialects side by side: where they part, and the gradients that one of them loses.

import { h } from "scope/dom";
import { title } from "scope/graph";
import { numberText } from "scope/numbers";

export function dialectsTab(place, network, store) {
  for (const [number, found] of network.comparisons.entries())
    place.append(comparison(network, store, found, number + 1));
}

function comparison(network, store, found, other) {
  const [one, two] = [network.runs[0].name, network.runs[other].name];
  const lost = found.paths.filter((path) => path.lost);
  const kinds = [...new Set(found.paths.map((path) => path.type))];
  const counted = kinds.map((kind) => {
    const of = found.paths.filter((path) => path.type === kind);
    return `${of.filter((path) => path.lost).length} of ${of.length} in ${kind} layers`;
  });
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "card" },
      h("h3", {}, `${one} and ${two}: where they part`),
      h("ul", {}, ...found.verdict.map((line) => h("li", {}, line))),
    ),
    found.paths.length > 0 &&
      h(
        "div",
        { class: "card" },
        h("h3", {}, "Gradients sent past layers, and lost in one of the two"),
        h("p", { id: "lost" }, lost.length ? h("span", { class: "tag bad" }, counted.join(", ")) : "None is lost."),
        lost.length > 0 && paths(network, store, lost, one, two),
      ),
    h(
      "div",
      { class: "card" },
      h("h3", {}, "Gradient of every layer's output"),
      layers(network, store, found, other, one, two),
    ),
  );
}

function paths(network, store, lost, one, two) {
  return h(
    "table",
    { id: "paths" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "from"),
        h("th", { scope: "col" }, "to"),
        h("th", { scope: "col", class: "number" }, one),
        h("th", { scope: "col", class: "number" }, two),
        h("th", { scope: "col" }, ""),
      ),
    ),
    h(
      "tbody",
      {},
      ...lost.map((path) =>
        h(
          "tr",
          {},
          h("td", {}, title(network.layer(path.layer))),
          h("td", {}, title(network.layer(path.source))),
          h("td", { class: "number" }, numberText(path.one)),
          h("td", { class: "number" }, numberText(path.other)),
          h("td", {}, goTo(network, store, path.source)),
        ),
      ),
    ),
  );
}

function goTo(network, store, index) {
  const show = () => store.set({ selected: index, step: network.stepOf.get(index), tab: "back" });
  return h(
    "button",
    { type: "button", class: "small", onclick: show, "aria-label": `Show layer ${title(network.layer(index))}` },
    "Show",
  );
}

function layers(network, store, found, other, one, two) {
  const rows = network.order.map((index) => {
    const [a, b] = [network.gradient(0, index), network.gradient(other, index)];
    const apart = found.apart[index][1];
    return h(
      "tr",
      {},
      h("td", {}, title(network.layer(index))),
      h("td", { class: "number" }, numberText(a)),
      h("td", { class: "number" }, numberText(b)),
      h(
        "td",
        { class: "number" },
        apart === null ? "-" : apart === "inf" ? "other" : `${(100 * apart).toPrecision(3)}%`,
      ),
      h("td", {}, apart > found.tolerance ? h("span", { class: "tag back" }, "parts") : ""),
      h("td", {}, goTo(network, store, index)),
    );
  });
  return h(
    "table",
    { id: "apart" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ...["layer", one, two, "apart"].map((words, i) => h("th", { scope: "col", class: i ? "number" : null }, words)),
        h("th", {}),
        h("th", {}),
      ),
    ),
    h("tbody", {}, ...rows),
  );
}

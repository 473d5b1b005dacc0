// The page about one network: its graph, the way back step by step, and what each layer does.

import { boxesTab } from "scope/boxes";
import { dialectsTab } from "scope/dialects";
import { embedded, h, show } from "scope/dom";
import { GraphView, title } from "scope/graph";
import { mapsTab } from "scope/maps";
import { numbersTab, storyTab, wayBackTab } from "scope/panel";
import { Player } from "scope/player";
import { Network, Store } from "scope/state";
import { themeButton } from "scope/theme";

const network = new Network(await embedded("data"));
const store = new Store({ run: 0, step: 0, selected: network.order[0], tab: "back" });

/** Tabs about the chosen layer, then those about the network. */
const TABS = [
  { id: "back", name: "Way back", draw: wayBackTab },
  { id: "numbers", name: "Numbers", draw: numbersTab },
  { id: "maps", name: "Maps", draw: mapsTab },
  { id: "story", name: "Formula", draw: storyTab },
  network.runs[0].heads && { id: "boxes", name: "Boxes", draw: boxesTab, whole: true },
  network.runs.length > 1 && { id: "dialects", name: "Dialects", draw: dialectsTab, whole: true },
].filter(Boolean);

const graph = new GraphView(network, store);
const player = new Player(network, store);
const heading = h("div", { class: "panel-heading" });
const content = h("div", { class: "panel-content", role: "tabpanel", id: "content", tabindex: "0" });
const said = h("div", { class: "visually-hidden", role: "status", "aria-live": "polite", id: "said" });
const tabs = TABS.map((tab) =>
  h(
    "button",
    {
      type: "button",
      role: "tab",
      id: `tab-${tab.id}`,
      "aria-controls": "content",
      onclick: () => store.set({ tab: tab.id }),
    },
    tab.name,
  ),
);
const runs = network.runs.map((run, place) =>
  h(
    "button",
    { type: "button", id: `run-${run.name}`, "aria-pressed": "false", onclick: () => store.set({ run: place }) },
    run.name,
  ),
);

/** A remark that must not be cut off where there is little room. */
const RANDOM = ", random truth";
const random = network.about.endsWith(RANDOM);
const about = random ? network.about.slice(0, -RANDOM.length) : network.about;

document.body.append(
  h(
    "header",
    { class: "bar" },
    h("h1", {}, h("span", { class: "mark", "aria-hidden": "true" }), "Undertow"),
    h(
      "div",
      { class: "about" },
      h("strong", {}, network.source.split("/").pop()),
      h("span", { class: "soft", title: network.about }, about),
    ),
    random && h("span", { class: "tag", id: "random", title: "No truth was given: classes and boxes are made up" }, "random truth"),
    h("span", { class: "grow" }),
    network.kind !== "function" && h(
      "div",
      { class: "switch", role: "group", "aria-label": "Dialect: whose arithmetic" },
      h("span", { class: "soft" }, "Dialect"),
      ...runs,
    ),
    h("button", { type: "button", id: "help", "aria-label": "Keys", onclick: () => keys.showModal() }, "?"),
    themeButton(),
  ),
  h(
    "main",
    {},
    graph.element,
    h(
      "section",
      { class: "panel", "aria-label": "Details" },
      h("div", { class: "tabs", role: "tablist", "aria-label": "What is shown" }, ...tabs),
      heading,
      content,
    ),
  ),
  player.element,
  said,
);

const keys = h(
  "dialog",
  { "aria-label": "Keys", class: "card" },
  h("h2", {}, "Keys"),
  h(
    "table",
    {},
    ...[
      ["→  ←", "one step on, one step back"],
      ["Home  End", "before the way back, after it"],
      ["Space", "play and pause"],
      ["↑  ↓", "the layer above, the layer below"],
      ["/", "search"],
      ["f", "fold and unfold"],
      ["+  −", "larger, smaller"],
      ["0  w", "the whole network, its whole width"],
      ["d", "next dialect"],
      [`1 to ${TABS.length}`, "tabs"],
    ].map(([key, what]) => h("tr", {}, h("td", {}, h("code", {}, key)), h("td", {}, what))),
  ),
  h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")),
);
document.body.append(keys);

let leave = null;

function drawTab() {
  leave?.();
  const { tab, selected } = store.values;
  const shown = TABS.find((one) => one.id === tab);
  const layer = network.layer(selected);
  show(heading, shown.whole ? null : [h("h2", {}, `Layer ${title(layer)}`), marks(layer)]);
  heading.classList.toggle("hidden", Boolean(shown.whole));
  content.replaceChildren();
  content.setAttribute("aria-labelledby", `tab-${tab}`);
  leave = shown.draw(content, network, store) ?? null;
  tabs.forEach((button, place) => button.setAttribute("aria-selected", String(TABS[place].id === tab)));
}

function marks(layer) {
  const found = network.numbers(store.values.run, layer.index).marks;
  return found.map((mark) => h("span", { class: "tag bad", title: mark }, `⚠ ${mark.split(":")[0]} begins here`));
}

store.watch((values, changed) => {
  if (changed.has("step") && values.step > 0 && !changed.has("selected"))
    store.set({ selected: network.order[values.step - 1] });
});
store.watch((values, changed) => {
  runs.forEach((button, place) => button.setAttribute("aria-pressed", String(place === values.run)));
  const whole = TABS.find((one) => one.id === values.tab).whole;
  if (
    changed.has("tab") ||
    changed.has("run") ||
    (changed.has("selected") && !whole) ||
    (changed.has("step") && values.tab === "back")
  )
    drawTab();
  if (changed.has("step")) said.textContent = player.sentence();
});

const ACTIONS = {
  ArrowRight: () => player.go(store.values.step + 1),
  ArrowLeft: () => player.go(store.values.step - 1),
  Home: () => player.go(0),
  End: () => player.go(network.order.length),
  " ": () => player.toggle(),
  ArrowUp: () => graph.move(-1),
  ArrowDown: () => graph.move(1),
  "/": () => graph.search.focus(),
  f: () => network.folds.length && graph.foldAll(),
  "+": () => graph.zoomBy(1.25),
  "=": () => graph.zoomBy(1.25),
  "-": () => graph.zoomBy(0.8),
  0: () => graph.fit(),
  w: () => graph.fitWidth(),
  d: () => store.set({ run: (store.values.run + 1) % network.runs.length }),
  "?": () => keys.showModal(),
  ...Object.fromEntries(TABS.map((tab, place) => [String(place + 1), () => store.set({ tab: tab.id })])),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  const at = event.target;
  if (at.matches("input[type=search], select")) {
    if (event.key === "Escape") {
      if (at === graph.search) graph.endSearch();
      at.blur();
    }
    return;
  }
  if (event.key === " " && at.matches("button, .fold-button, input")) return; // a layer is chosen already: it plays
  if (at.matches("input[type=range]") && /^(Arrow|Home|End)/.test(event.key)) return;
  if (at.matches("[role=tab]") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    const place = (tabs.indexOf(at) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length;
    store.set({ tab: TABS[place].id });
    tabs[place].focus();
    event.preventDefault();
    return;
  }
  if (["ArrowUp", "ArrowDown"].includes(event.key) && at.closest(".panel-content")) return;
  const action = ACTIONS[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});

drawTab();
runs[0].setAttribute("aria-pressed", "true");
player.draw();
graph.begin(store.values.selected); // last: the other parts take their room first
document.documentElement.dataset.ready = String(Math.round(performance.now()));

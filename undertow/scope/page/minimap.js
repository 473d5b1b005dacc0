// The whole network, small, with a frame around what is in view; a click goes there. It stands beside the graph of a
// tall network, below that of a wide one, and nowhere while all of the network is in view.

import { s } from "scope/dom";

const [WIDTH, HEIGHT, MARGIN] = [52, 90, 16];
const SLACK = 24; // margins of the network that may lie outside

export class Minimap {
  constructor(go) {
    this.view = s("rect", { class: "mini-frame" });
    this.now = s("rect", { class: "mini-now", width: 0, height: 0 });
    this.nodes = s("g");
    this.element = s(
      "svg",
      { class: "minimap", "aria-hidden": "true", preserveAspectRatio: "xMidYMid meet" },
      this.nodes,
      this.now,
      this.view,
    );
    const jump = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.element.getScreenCTM().inverse());
      go(point.x, point.y);
    };
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      jump(event);
    });
    this.element.addEventListener("pointermove", (event) => event.buttons && jump(event));
  }

  draw(plan) {
    this.plan = plan;
    this.element.setAttribute("viewBox", `0 0 ${plan.width} ${plan.height}`);
    this.nodes.replaceChildren(
      ...[...plan.nodes.values()].map((node) =>
        s("rect", {
          class: "mini-node",
          x: node.x - node.width / 2,
          y: node.y - node.height / 2,
          width: node.width,
          height: node.height,
        }),
      ),
    );
  }

  frame(frame) {
    this.arrange(frame);
    for (const [key, value] of Object.entries(frame)) this.view.setAttribute(key, value);
  }

  /** Where it stands, and how large: as large as the network's form fills. */
  arrange({ x, y, width, height }) {
    const stage = this.element.parentElement;
    if (!stage || stage.clientWidth === 0) return;
    const { plan } = this;
    const whole =
      x <= SLACK && y <= SLACK && x + width >= plan.width - SLACK && y + height >= plan.height - SLACK;
    const wide = plan.width > plan.height;
    stage.dataset.map = whole ? "none" : wide ? "below" : "side";
    const [most, tallest] = wide
      ? [stage.clientWidth - MARGIN, HEIGHT]
      : [WIDTH, stage.clientHeight - MARGIN];
    const scale = Math.min(most / plan.width, tallest / plan.height);
    this.element.style.width = `${wide ? most : WIDTH}px`;
    this.element.style.height = `${Math.max(Math.ceil(plan.height * scale), 24)}px`;
    stage.style.setProperty("--map-height", this.element.style.height);
  }

  mark(node) {
    const place = node
      ? {
          x: node.x - node.width / 2 - 20,
          y: node.y - node.height / 2 - 8,
          width: node.width + 40,
          height: node.height + 16,
        }
      : { width: 0, height: 0 };
    for (const [key, value] of Object.entries(place)) this.now.setAttribute(key, value);
  }
}

// The whole network, small, with a frame around what is in view; a click goes there.

import { s } from "scope/dom";

export class Minimap {
  constructor(go) {
    this.view = s("rect", { class: "mini-frame" });
    this.now = s("rect", { class: "mini-now", width: 0, height: 0 });
    this.nodes = s("g");
    this.element = s(
      "svg",
      { class: "minimap", "aria-hidden": "true", preserveAspectRatio: "xMidYMin meet" },
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
    for (const [key, value] of Object.entries(frame)) this.view.setAttribute(key, value);
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

// Making elements, without a framework: h("button", {class: "main", onclick: run}, "Play").

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that are functions are listeners (onclick); null, undefined and false are left out. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** A name or path that may break after its dots, slashes and underscores rather than within words. */
export function breakable(text) {
  return String(text)
    .split(/(?<=[/._-])/)
    .flatMap((part) => [part, h("wbr")]);
}

/** What an element holds, replaced. */
export function show(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** The JSON that the page was made with: an element <script id="...">, packed in pages that are one file. */
export async function embedded(id) {
  const element = document.getElementById(id);
  if (element === null) return null;
  return JSON.parse("packed" in element.dataset ? await unpacked(element.textContent) : element.textContent);
}

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

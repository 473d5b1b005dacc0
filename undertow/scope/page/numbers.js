// Numbers as the terminal prints them: undertow/inspect/text.py.

/** Three digits, as Python's format(x, ".3g"); "-" for what is not there. What is not finite comes as a word. */
export function numberText(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (value === "nan") return value;
  if (value === Infinity || value === "inf") return "inf";
  if (value === -Infinity || value === "-inf") return "-inf";
  if (value === 0) return "0";
  const [digits, power] = value.toExponential(2).split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 3) {
    const sign = exponent < 0 ? "-" : "+";
    return `${shorter(digits)}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  return shorter(value.toFixed(2 - exponent));
}

function shorter(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A share as percent. */
export function shareText(value) {
  if (value === "nan") return value;
  return value === null || value === undefined || Number.isNaN(value) ? "-" : `${Math.round(100 * value)}%`;
}

/** A whole number with commas. */
export function countText(value) {
  return value.toLocaleString("en-US");
}

/** A number of bytes. */
export function bytesText(count) {
  let size = count;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (size < 1024) return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(2)} GiB`;
}

/** 64x3x416x416; several with a plus sign between them. */
export function shapesText(shapes) {
  return shapes.length ? shapes.map((shape) => shape.join("x") || "1").join(" + ") : "-";
}

// What is recorded of every layer: names, and how each is best shown.

import { numberText } from "scope/numbers";

/** key -> {name, short, kind}. kind: size (positive, over powers of ten), share (0..1), signed (around 0), count. */
export const FIELDS = {
  output: { name: "Activation: norm", short: "activation norm", kind: "size" },
  mean: { name: "Activation: mean", short: "activation mean", kind: "signed" },
  deviation: { name: "Activation: deviation", short: "activation deviation", kind: "size" },
  zeros: { name: "Activation: share of zeros", short: "zeros", kind: "share" },
  saturated: { name: "Activation: share saturated", short: "saturated", kind: "share" },
  dead: { name: "Activation: share of dead channels", short: "dead channels", kind: "share" },
  gradient: { name: "Gradient of the output: norm", short: "gradient norm", kind: "size" },
  weights: { name: "Parameters: norm", short: "parameter norm", kind: "size" },
  weight_gradient: { name: "Gradient of the parameters: norm", short: "parameter gradient", kind: "size" },
  update: { name: "Update / weights", short: "update / weights", kind: "size" },
  bad: { name: "Values that are not finite", short: "not finite", kind: "count" },
};

/** From this share of dead channels on a layer is marked, as in traces. */
export const DEAD = 0.5;

/** A recorded number as it stands in the file; "-" where there is none. */
export function exactText(value) {
  if (value === undefined || Number.isNaN(value)) return "-";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return String(value);
}

/** Three digits; thousands are written out. "" for what an axis leaves blank. */
export function valueText(value) {
  if (value === null || value === undefined) return "";
  if (Number.isNaN(value)) return "nan"; // losses and rates are never missing in a line that has them
  return Math.abs(value) >= 1000 && Math.abs(value) < 1e6 ? Math.round(value).toLocaleString("en-US") : numberText(value);
}

/** The name of a layer as rows show it. */
export function layerText([name, type]) {
  return `${name} ${type}`.trim();
}

// Charts by uPlot in the colours of the page. Lines differ by their dashes too, so that nobody has to tell colours.

import uPlot from "uplot";
import { Even, Powers } from "scope/axes";
import { colour, onTheme } from "scope/theme";
import { numberText } from "scope/numbers";

export const SERIES = [
  { stroke: "--series-1", dash: [] },
  { stroke: "--series-2", dash: [8, 4] },
  { stroke: "--series-3", dash: [2, 3] },
  { stroke: "--series-4", dash: [10, 3, 2, 3] },
];

// Distances of marks on an axis that counts something.
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

const open = new Set();

/** A line chart in `place`, as wide as it is. names: of the lines. columns: [x, y1, y2, ...]; null leaves a gap.
 *  options: x and y (labels), log (y axis), height, points (marks each value), click(x index),
 *  xText, yText (from a number on an axis to its text), legend (false for none), hooks (uPlot's). Returns {update(columns), destroy()}.
 */
export function lineChart(place, names, columns, options = {}) {
  const series = names.map((label, i) => {
    const look = SERIES[i % SERIES.length];
    return {
      label,
      stroke: () => colour(look.stroke),
      dash: look.dash,
      width: 1.75,
      spanGaps: false,
      points: { show: options.points === true, size: 6, ...(!options.points && { filter: alone }) },
    };
  });
  const across = options.log ? new Powers() : new Even();
  const scales = { x: { time: false }, y: options.log ? { range: across.range } : {} };
  const drawn = ([x, ...lines]) => [x, ...across.take(lines)];
  return chart(place, { ...options, series, scales, drawn, up: across }, columns);
}

/** A chart of bars: x are the middles, y their heights. options: those of lineChart, colour, range of the y axis. */
export function barChart(place, name, columns, options = {}) {
  const series = [
    {
      label: name,
      stroke: () => colour(options.colour ?? "--series-1"),
      fill: () => colour(options.colour ?? "--series-1"),
      width: 0,
      paths: uPlot.paths.bars({ size: [0.95, 100], align: 0 }),
      points: { show: false },
    },
  ];
  const along = new Even();
  const drawn = ([x, ...heights]) => [...along.take([x]), ...heights];
  const [[first, second]] = drawn(columns);
  const half = second === undefined ? 0.5 : (second - first) / 2; // the outer bars are whole too
  const scales = {
    x: { time: false, range: (_, first, last) => [first - half, last + half] },
    y: { range: (_, low, high) => options.range ?? [0, high || 1] },
  };
  return chart(place, { ...options, series, scales, drawn, along, legend: false }, columns);
}

/** options: also drawn (from columns to those that uPlot draws), up and along (where numbers stand on the axes). */
function chart(place, options, columns) {
  let told = columns;
  const axis = (label, numbers, text, extra) => ({
    label,
    labelSize: label ? 16 : 0,
    labelGap: 2,
    labelFont: "12px system-ui",
    font: "12px system-ui",
    stroke: () => colour("--ink-soft"),
    gap: 3,
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { stroke: () => colour("--grid"), size: 4 },
    values: (_, places) => places.map((at) => (at === null ? "" : numbers?.text?.(at, text) ?? text(numbers?.value(at) ?? at))),
    ...(numbers?.marks && { splits: (_, __, low, high) => numbers.marks(low, high) }),
    ...extra,
  });
  const settings = {
    width: Math.max(roomIn(place), 120),
    height: options.height ?? 160,
    legend: {
      show: options.legend !== false,
      markers: { dash: (_, line) => ["solid", "dashed", "dotted", "double"][(line - 1) % 4] },
    },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: options.scales,
    axes: [
      axis(options.whole ? "" : options.x, options.along, options.xText ?? numberText, {
        size: options.xSize ?? 26,
        ...(options.whole && { incrs: WHOLE }),
      }),
      axis(options.y, options.up, options.yText ?? numberText, { space: 24, size: options.ySize ?? 52 }),
    ],
    series: [{ label: options.x ?? "" }, ...options.series].map((one) => ({
      ...one,
      value: (_, __, line, at) => numberText(told[line]?.[at]),
    })),
    hooks: options.hooks ?? {},
  };
  const plot = new uPlot(settings, options.drawn(columns), place);
  if (options.click)
    plot.over.addEventListener("click", () => plot.cursor.idx !== null && options.click(plot.cursor.idx));
  const watch = new ResizeObserver(() => {
    if (place.clientWidth > 0) plot.setSize({ width: roomIn(place), height: settings.height });
  });
  watch.observe(place);
  open.add(plot);
  return {
    plot,
    update: (fresh) => {
      told = fresh;
      plot.setData(options.drawn(fresh));
    },
    destroy: () => {
      watch.disconnect();
      open.delete(plot);
      plot.destroy();
    },
  };
}

/** Which values of a line have a gap on both sides: without a mark they would not be seen. */
function alone(plot, line) {
  const values = plot.data[line];
  const found = values.flatMap((value, i) => (value !== null && (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null ? [i] : []));
  return found.length ? found : null;
}

/** The width of an element between its paddings. */
function roomIn(place) {
  const style = getComputedStyle(place);
  return Math.floor(place.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
}

onTheme(() => {
  for (const plot of open) plot.redraw(false);
});

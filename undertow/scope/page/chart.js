// Charts by uPlot in the colours of the page. Lines differ by their dashes too, so that nobody has to tell colours.

import uPlot from "uplot";
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
      points: { show: options.points === true, size: 6 },
      value: (_, value) => numberText(value),
    };
  });
  const scales = { x: { time: false }, y: options.log ? { distr: 3 } : {} };
  return chart(place, { ...options, series, scales }, columns);
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
      value: (_, value) => numberText(value),
    },
  ];
  const half = columns[0].length > 1 ? (columns[0][1] - columns[0][0]) / 2 : 0.5; // the outer bars are whole too
  const scales = {
    x: { time: false, range: (_, first, last) => [first - half, last + half] },
    y: { range: (_, low, high) => options.range ?? [0, high || 1] },
  };
  return chart(place, { ...options, series, scales, legend: false }, columns);
}

function chart(place, options, columns) {
  const axis = (label, extra) => ({
    label,
    labelSize: label ? 16 : 0,
    labelGap: 2,
    labelFont: "12px system-ui",
    font: "12px system-ui",
    stroke: () => colour("--ink-soft"),
    gap: 3,
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { stroke: () => colour("--grid"), size: 4 },
    ...(extra.filter && { grid: { stroke: () => colour("--grid"), width: 1, filter: extra.filter } }),
    values: (_, values) => values.map((value) => (value === null ? "" : numberText(value))),
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
      axis(options.whole ? "" : options.x, {
        size: options.xSize ?? 26,
        ...texts(options.xText),
        ...(options.whole && { incrs: WHOLE }),
      }),
      axis(options.y, { space: 24, size: options.ySize ?? 52, ...texts(options.yText), ...(options.log && { filter: decades }) }),
    ],
    series: [{ label: options.x ?? "", value: (_, value) => numberText(value) }, ...options.series],
    hooks: options.hooks ?? {},
  };
  const plot = new uPlot(settings, columns, place);
  if (options.click)
    plot.over.addEventListener("click", () => plot.cursor.idx !== null && options.click(plot.cursor.idx));
  const watch = new ResizeObserver(() => {
    if (place.clientWidth > 0) plot.setSize({ width: roomIn(place), height: settings.height });
  });
  watch.observe(place);
  open.add(plot);
  return {
    plot,
    update: (fresh) => plot.setData(fresh),
    destroy: () => {
      watch.disconnect();
      open.delete(plot);
      plot.destroy();
    },
  };
}

/** The width of an element between its paddings. */
function roomIn(place) {
  const style = getComputedStyle(place);
  return Math.floor(place.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
}

function texts(text) {
  return text ? { values: (_, values) => values.map((value) => (value === null ? "" : text(value))) } : {};
}

/** Of the marks of a logarithmic axis the powers of ten, at most five of them; where there is but one, 2 and 5 too. */
function decades(_, marks) {
  const digit = (mark) => Math.round(mark / 10 ** Math.floor(Math.log10(mark) + 1e-9));
  const powers = marks.filter((mark) => digit(mark) === 1);
  if (powers.length < 2) return marks.map((mark) => ([1, 2, 5].includes(digit(mark)) ? mark : null));
  const every = Math.ceil(powers.length / 5);
  const kept = new Set(powers.filter((_mark, i) => i % every === 0));
  return marks.map((mark) => (kept.has(mark) ? mark : null));
}

onTheme(() => {
  for (const plot of open) plot.redraw(false);
});

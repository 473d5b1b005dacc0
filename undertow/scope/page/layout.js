// Where nodes and lines lie: dagre lays out what is visible, folded blocks as one node.

import { Graph, layout } from "dagre";
import { numberText } from "scope/numbers";

export const WIDTH = 176; // three side by side are legible on a small laptop
const HEIGHT = 46;
const FOLD_HEIGHT = 62; // a line more
const MARGIN = 10;
const BESIDE = 12; // room for the button that unfolds
const ASIDE = 60; // and for the one that folds, with its number

/** Nodes {id, layers, fold, x, y, width, height}, edges {from, to, links, points}, groups, width, height.
 *  id: "n12" of layer 12, "f3" of fold 3. links: pairs [reader, source]; an edge runs from source to reader.
 *  open: the numbers of the folds that are shown layer by layer.
 */
export function place(network, open) {
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 30, edgesep: 10, marginx: MARGIN, marginy: 20 });
  graph.setDefaultEdgeLabel(() => ({}));
  const nodes = new Map();
  const idOf = (index) => {
    const fold = network.foldOf.get(index);
    return fold !== undefined && !open.has(fold) ? `f${fold}` : `n${index}`;
  };
  for (const layer of network.shown) {
    const id = idOf(layer.index);
    if (!nodes.has(id)) nodes.set(id, { id, layers: [], fold: id[0] === "f" ? Number(id.slice(1)) : null });
    nodes.get(id).layers.push(layer.index);
  }
  for (const [id, node] of nodes)
    graph.setNode(
      id,
      node.fold === null
        ? { width: WIDTH, height: HEIGHT }
        : { width: WIDTH + 2 * BESIDE, height: FOLD_HEIGHT },
    );
  const edges = new Map();
  for (const layer of network.shown) {
    for (const source of layer.reads) {
      if (source < 0) continue;
      const [from, to] = [idOf(source), idOf(layer.index)];
      if (from === to) continue;
      const key = `${from} ${to}`;
      if (!edges.has(key)) edges.set(key, { from, to, links: [] });
      edges.get(key).links.push([layer.index, source]);
    }
  }
  for (const edge of edges.values()) graph.setEdge(edge.from, edge.to, {});
  layout(graph);
  for (const [id, node] of nodes) Object.assign(node, graph.node(id), { width: WIDTH });
  for (const edge of edges.values())
    edge.points = joined(graph.edge(edge.from, edge.to).points, nodes.get(edge.from), nodes.get(edge.to));
  inside([...nodes.values()], [...edges.values()]);
  const size = graph.graph();
  const frames = groups(network, nodes, open);
  return {
    nodes,
    edges: [...edges.values()],
    groups: frames,
    idOf,
    width: Math.max(
      ...[...nodes.values()].map((node) => node.x + WIDTH / 2 + MARGIN),
      ...ends([...edges.values()]).map((x) => x + MARGIN),
      ...frames.map((frame) => frame.x + frame.width + ASIDE),
    ),
    height: size.height,
  };
}

/** Moves everything to the right where lines lie left of the first node: dagre counts nodes alone. */
function inside(nodes, edges) {
  const beyond = MARGIN - Math.min(MARGIN, ...ends(edges));
  for (const point of [...nodes, ...edges.flatMap((edge) => edge.points)]) point.x += beyond;
}

/** All x of the points of edges. */
function ends(edges) {
  return edges.flatMap((edge) => edge.points.map((point) => point.x));
}

/** The points of an edge, its ends on the lower side of one node and the upper side of the other. */
function joined(points, from, to) {
  const end = (node, point, side) => ({
    x: Math.min(Math.max(point.x, node.x - WIDTH / 2 + 12), node.x + WIDTH / 2 - 12),
    y: node.y + (side * node.height) / 2,
  });
  return [end(from, points[0], 1), ...points.slice(1, -1), end(to, points[points.length - 1], -1)];
}

/** Frames around the layers of folds that are open; around the first of branches that stand side by side. */
function groups(network, nodes, open) {
  return [...open].map((fold) => {
    const { layers, size, beside } = network.folds[fold];
    const inside = layers.slice(0, beside ? size : layers.length).map((index) => nodes.get(`n${index}`));
    const left = Math.min(...inside.map((n) => n.x)) - WIDTH / 2 - 10;
    const right = Math.max(...inside.map((n) => n.x)) + WIDTH / 2 + 10;
    const top = Math.min(...inside.map((n) => n.y)) - HEIGHT / 2 - 9;
    const bottom = Math.max(...inside.map((n) => n.y)) + HEIGHT / 2 + 9;
    return { fold, x: left, y: top, width: right - left, height: bottom - top };
  });
}

/** A smooth path through points. */
export function pathThrough(points) {
  let path = `M${points[0].x},${points[0].y}`;
  for (let i = 1; i < points.length - 1; i += 1) {
    const [p, q] = [points[i], points[i + 1]];
    const end = i === points.length - 2 ? q : { x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 };
    path += `Q${p.x},${p.y} ${end.x},${end.y}`;
  }
  if (points.length === 2) path += `L${points[1].x},${points[1].y}`;
  return path;
}

/** From norms to 0..1, by their logarithm, over all layers of all runs. */
export function scaleOf(network) {
  let [low, high] = [Infinity, -Infinity];
  for (const run of network.runs) {
    for (const layer of run.layers) {
      const ofParameters = Object.values(layer.parameters).map((numbers) => numbers[1]);
      for (const norm of [layer.gradient.norm, ...Object.values(layer.sent), ...ofParameters]) {
        if (typeof norm === "number" && norm > 0) {
          low = Math.min(low, norm);
          high = Math.max(high, norm);
        }
      }
    }
  }
  const span = Math.log(high) - Math.log(low);
  const share = (norm) => (span > 0 ? 0.08 + (0.92 * (Math.log(norm) - Math.log(low))) / span : 1);
  return (norm) => (norm > 0 ? Math.min(1, Math.max(0.02, share(norm))) : 0);
}

/** The norm of a gradient as a node shows it. */
export function normText(norm) {
  return norm === null ? "" : numberText(norm);
}

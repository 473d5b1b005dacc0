"""Pictures of a NetParameter: layers, the blobs between them, and what layers are set to.

`draw_net_to_file(net, "net.png")` needs Graphviz's program `dot`; the endings .dot, .gv and .raw give its text, which
`dot_text` gives too. net: a NetParameter of protobuf or of this project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undertow.caffe.arguments import WrongKind, WrongValue, path_of, shown, text_of
from undertow.caffe.proto import caffe_pb2 as caffe_pb2  # scripts find it here
from undertow.errors import FormatError, MissingPackage, UndertowError
from undertow.files import atomic_write

LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}

_COLORS = {
    "Convolution": "#FF5050",
    "Deconvolution": "#FF5050",
    "Pooling": "#FF9900",
    "InnerProduct": "#CC33FF",
}
_DIRECTIONS = ("LR", "TB", "BT", "RL")
_TEXT_FORMATS = ("dot", "gv", "raw")
_SECONDS_ALLOWED = 120
_POOLS = {0: "MAX", 1: "AVE", 2: "STOCHASTIC"}
_PHASES = {0: "TRAIN", 1: "TEST"}


def choose_color_by_layertype(layertype: str) -> str:
    """The colour of a layer's box."""
    return _COLORS.get(layertype, str(LAYER_STYLE_DEFAULT["fillcolor"]))


def get_pooling_types_dict() -> dict[int, str]:
    """The names of the pooling methods by their numbers."""
    return dict(_POOLS)


def get_edge_label(layer: Any) -> str:
    """What stands on the lines to a layer's tops: the batch size or the number of outputs."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in ("Convolution", "Deconvolution"):
        return str(layer.convolution_param.num_output)
    if layer.type == "InnerProduct":
        return str(layer.inner_product_param.num_output)
    return '""'


def get_layer_lr_mult(layer: Any) -> tuple[float, float]:
    """The factors on the learning rates of weights and biases. Raises ValueError for layers without them."""
    if layer.type not in ("Convolution", "Deconvolution", "InnerProduct"):
        raise ValueError(f"{layer.type} layers do not have a learning rate multiplier")
    if len(layer.param) > 2:
        raise ValueError("Could not parse the learning rate multiplier")
    given = [float(param.lr_mult) for param in layer.param]
    weights, biases = given + [1.0] * (2 - len(given))
    return weights, biases


def get_layer_label(layer: Any, rankdir: str, display_lrm: bool = False) -> str:
    """The text in a layer's box, in double quotes: name, type, window, and with display_lrm the rates' factors."""
    separator = " " if rankdir in ("TB", "BT") else r"\n"
    kind = str(layer.type)
    parts = [str(layer.name)]
    if kind == "Pooling":
        p = layer.pooling_param
        parts.append(f"(Pooling {_POOLS.get(p.pool, p.pool)})")
        parts += [f"kernel size: {p.kernel_size}", f"stride: {p.stride}", f"pad: {p.pad}"]
    else:
        parts.append(f"({kind})")
    if kind in ("Convolution", "Deconvolution"):
        p = layer.convolution_param
        fields = (("kernel size", p.kernel_size, 1), ("stride", p.stride, 1), ("pad", p.pad, 0))
        parts += [f"{name}: {values[0] if len(values) else default}" for name, values, default in fields]
    if display_lrm and kind in ("Convolution", "Deconvolution", "InnerProduct"):
        weights, biases = get_layer_lr_mult(layer)
        if weights or biases:
            parts.append(f"lr mult: {weights:.1f}, {biases:.1f}")
    return '"' + separator.join(parts) + '"'


def _included(layer: Any, phase: Any) -> bool:
    """Whether a layer belongs to a phase, as far as its rules name phases."""
    if phase is None:
        return True
    if len(layer.include) and len(layer.exclude):
        raise ValueError(f"layer {layer.name} has both include and exclude specified.")
    wanted = _PHASES.get(phase, phase)
    included = not len(layer.include) or any(_PHASES.get(r.phase, r.phase) == wanted for r in layer.include)
    return included and not any(_PHASES.get(r.phase, r.phase) == wanted for r in layer.exclude)


def _nodes_and_edges(
    net: Any, rankdir: str, label_edges: bool, phase: Any, display_lrm: bool
) -> tuple[dict[str, tuple[str, dict[str, str]]], list[tuple[str, str, str]]]:
    """Nodes by name as (label, style), and edges as (source, target, label)."""
    if not hasattr(net, "layer"):
        raise WrongKind(
            f"a NetParameter is drawn, not {shown(net)}", remedy="read one: text_format.Merge, read_prototxt"
        )
    if text_of(rankdir, "rankdir") not in _DIRECTIONS:
        raise WrongValue(f"rankdir is {', '.join(_DIRECTIONS)}, not {rankdir!r}", remedy="use LR")
    nodes: dict[str, tuple[str, dict[str, str]]] = {}
    edges: list[tuple[str, str, str]] = []
    for layer in net.layer:
        if not _included(layer, phase):
            continue
        name = f"{layer.name}_{layer.type}"
        in_place = len(layer.bottom) == len(layer.top) == 1 and layer.bottom[0] == layer.top[0]
        style = NEURON_LAYER_STYLE if in_place else {
            **LAYER_STYLE_DEFAULT, "fillcolor": choose_color_by_layertype(layer.type)
        }  # fmt: skip
        nodes[name] = (get_layer_label(layer, rankdir, display_lrm), style)
        for blob in layer.bottom:
            nodes[f"{blob}_blob"] = (str(blob), BLOB_STYLE)
            edges.append((f"{blob}_blob", name, '""'))
        for blob in layer.top:
            nodes[f"{blob}_blob"] = (str(blob), BLOB_STYLE)
            edges.append((name, f"{blob}_blob", get_edge_label(layer) if label_edges else '""'))
    return nodes, edges


def dot_text(
    caffe_net: Any, rankdir: str = "LR", label_edges: bool = True, phase: Any = None, display_lrm: bool = False
) -> str:
    """The net in Graphviz's language. rankdir: "LR", "TB" or "BT". phase: only its layers; None for all."""
    nodes, edges = _nodes_and_edges(caffe_net, rankdir, label_edges, phase, display_lrm)
    return "\n".join(_lines(str(caffe_net.name) or "Net", rankdir, nodes, edges)) + "\n"


def _lines(
    name: str, rankdir: str, nodes: dict[str, tuple[str, dict[str, str]]], edges: list[tuple[str, str, str]]
) -> Iterator[str]:
    yield f"digraph {_quoted(name)} {{"
    yield f"rankdir={_quoted(rankdir)};"
    for node, (label, style) in nodes.items():
        attributes = ", ".join(f"{key}={_quoted(value)}" for key, value in style.items())
        yield f"{_quoted(node)} [label={_quoted(label.strip(chr(34)))}, {attributes}];"
    for source, target, label in edges:
        yield f"{_quoted(source)} -> {_quoted(target)} [label={_quoted(label.strip(chr(34)))}];"
    yield "}"


def _quoted(text: str) -> str:
    escaped = text.replace('"', r"\"").replace("{", r"\{").replace("}", r"\}").replace("|", r"\|")
    return f'"{escaped}"'


def get_pydot_graph(
    caffe_net: Any, rankdir: str, label_edges: bool = True, phase: Any = None, display_lrm: bool = False
) -> Any:
    """The net as a graph of the package pydot (or pydotplus), which must be installed for this function alone."""
    pydot = _pydot()
    graph = pydot.Dot(str(caffe_net.name) or "Net", graph_type="digraph", rankdir=rankdir)
    nodes, edges = _nodes_and_edges(caffe_net, rankdir, label_edges, phase, display_lrm)
    made = {
        name: pydot.Node(_quoted(name), label=_quoted(label.strip('"')), **style)
        for name, (label, style) in nodes.items()
    }
    for node in made.values():
        graph.add_node(node)
    for source, target, label in edges:
        graph.add_edge(pydot.Edge(made[source], made[target], label=label))
    return graph


def _pydot() -> Any:
    import importlib

    for name in ("pydotplus", "pydot"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingPackage(
        "pydot", "draw", "get_pydot_graph", remedy="pip install 'undertow[draw]'; draw_net works without"
    )


def draw_net(caffe_net: Any, rankdir: str, ext: str = "png", phase: Any = None, display_lrm: bool = False) -> bytes:
    """A picture of the net as the bytes of a file. ext: its format, "png", "svg", "pdf"...; "dot" and "raw" are text.

    Raises UndertowError where Graphviz is not installed, FormatError for a format that it does not know.
    """
    text, ext = dot_text(caffe_net, rankdir, phase=phase, display_lrm=display_lrm).encode(), text_of(ext, "ext")
    if ext in _TEXT_FORMATS:
        return text
    if not ext.isalnum():
        raise FormatError(f"there is no picture format '{ext}'", remedy="use png, svg, pdf or dot")
    program = shutil.which("dot")
    if program is None:
        raise UndertowError(
            "drawing needs Graphviz, whose program 'dot' is not found",
            remedy="install Graphviz, or write a .dot file and draw it elsewhere",
        )
    try:
        done = subprocess.run([program, f"-T{ext}"], input=text, capture_output=True, timeout=_SECONDS_ALLOWED)
    except subprocess.TimeoutExpired:
        raise UndertowError(
            f"Graphviz was not done after {_SECONDS_ALLOWED} seconds",
            remedy="write a .dot file and draw it elsewhere, or draw a part of the net",
        ) from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()[:300]
        raise FormatError(f"Graphviz cannot draw {ext}: {reason}", remedy="use png, svg, pdf or dot")
    return done.stdout


def draw_net_to_file(
    caffe_net: Any,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: Any = None,
    display_lrm: bool = False,
) -> None:
    """A picture of the net in a file, in the format of its ending."""
    filename = path_of(filename)
    picture = draw_net(caffe_net, rankdir, Path(filename).suffix.removeprefix("."), phase, display_lrm)
    with atomic_write(filename) as stream:
        stream.write(picture)

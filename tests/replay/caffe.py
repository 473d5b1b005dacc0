"""Replaying traces of Caffe: one forward and backward pass, reshaping, wiring rules, calls from Python, fillers."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.replay.compare import Comparison
from undertow.caffe.fillers import fill
from undertow.caffe.layers_neuron import Dropout
from undertow.caffe.layers_python import PythonLayer
from undertow.caffe.net import Net
from undertow.caffe.proto import new_message, parse_text, read_prototxt, read_solver
from undertow.core.modes import current_precision, precision
from undertow.errors import UndertowError

# |ours - recorded| <= ATOL + RTOL |recorded|, element by element; gradients of LeNet (6e-2 and less): ATOL_LENET.
RTOL = 1e-4
ATOL = 1e-5
ATOL_LARGE_BATCH = 1e-6

Arrays = dict[str, np.ndarray]
Case = dict[str, Any]

_PARAM = re.compile(r"param/(.+)/(\d+)/(data|diff)")
_BLOB = re.compile(r"blob/(.+)/(data|diff)")


@dataclass
class Closeness(Comparison):
    """A comparison whose error is in units of what is allowed: 1 is the most."""

    tolerance: float = 1.0
    atol: float = ATOL

    def arrays(
        self,
        name: str,
        ours: Any,
        recorded: np.ndarray,
        scale: float | None = None,
        tolerance: float | None = None,
    ) -> None:
        self.compared += 1
        found = np.asarray(ours)
        if found.shape != recorded.shape:
            self.problems.append(f"{name}: shape {found.shape} instead of {recorded.shape}")
            return
        a, b = found.astype(np.float64), recorded.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            shares = np.where(same, 0.0, np.abs(a - b) / (self.atol + RTOL * np.abs(b)))
        error = float(shares.max()) if shares.size else 0.0
        if not error <= self.worst:
            self.worst, self.worst_name = error, name
        if not error <= self.tolerance:
            self.problems.append(f"{name}: {error:.3g} times what is allowed")


def case_folders(folder: Path) -> list[Path]:
    """Folders with a recorded case, in order."""
    if any(folder.glob("*.prototxt")) or (folder / "trace.npz").is_file():
        return [folder]
    return sorted(path for path in folder.iterdir() if path.is_dir() and _is_case(path))


def _is_case(folder: Path) -> bool:
    return any(folder.rglob("*.prototxt")) or (folder / "trace.npz").is_file()


def replay(folder: Path) -> Comparison | None:
    """Replay one case folder; None for a kind of case that has no replay yet."""
    folder = folder.resolve()
    kind = caffe_data_kind(folder) or caffe_solver_kind(folder) or kind_of(folder)
    if kind is None:
        return None
    large = (_group_folder(folder) / "images.npz").is_file()
    result = Closeness(atol=ATOL_LARGE_BATCH if large else ATOL)
    # Digits have windows full of background that tie in a maximum; "fast" rounds them apart and takes another one.
    with contextlib.chdir(folder), precision("precise" if large else current_precision()):
        kind(folder, result)
    return result


def caffe_data_kind(folder: Path) -> Callable[[Path, Closeness], None] | None:
    """The same for cases of data, which have a file of their own."""
    from tests.replay import caffe_data

    return caffe_data.kind_of(folder)


def caffe_solver_kind(folder: Path) -> Callable[[Path, Closeness], None] | None:
    """The same for cases of training, and for calls of Python classes."""
    from tests.replay import caffe_pycaffe, caffe_solver

    return caffe_solver.kind_of(folder) or caffe_pycaffe.kind_of(folder)


def kind_of(folder: Path) -> Callable[[Path, Closeness], None] | None:
    """How a case is replayed, told from its files and the names of its arrays."""
    for name, kind in (("rules.json", replay_rules), ("refused.json", replay_refused), ("stats.json", replay_fillers)):
        if (folder / name).is_file():
            return kind
    if any(folder.glob("*.upgraded.prototxt")) and not (folder / "trace.npz").is_file():
        return replay_upgrades
    names = set(load_trace(folder)) if (folder / "trace.npz").is_file() else set()
    if (folder / "solver.prototxt").is_file() or "lr" in names or _feeds_itself(folder):
        return None
    if any(name.startswith("forward_end/") for name in names):
        return replay_calls
    if any(name.startswith("shape0/") for name in names):
        return replay_shapes
    return replay_pass if "loss" in names and (folder / "net.prototxt").is_file() else None


def _feeds_itself(folder: Path) -> bool:
    """Whether a net reads or writes databases or files, or is one of several variants."""
    types_ = {"Data", "HDF5Data", "HDF5Output", "ImageData", "MemoryData", "WindowData"}
    path = folder / "net.prototxt"
    return path.is_file() and any(layer.type in types_ for layer in read_prototxt(path).layer)


def load_trace(folder: Path) -> Arrays:
    """All arrays of a case, and what LeNet's cases keep in a file of their own."""
    with np.load(folder / "trace.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    images = _group_folder(folder) / "images.npz"
    if images.is_file():
        with np.load(images, allow_pickle=False) as archive:
            arrays["input/data"] = archive["images"].reshape(-1, 1, 28, 28).astype(np.float32) * np.float32(0.00390625)
    return arrays


def _group_folder(folder: Path) -> Path:
    """Where the files of a case lie that it shares with the case named like its group (`lenet` for `lenet_...`)."""
    group = folder.parent / folder.name.partition("_")[0]
    return group if group.is_dir() else folder


def load_net(folder: Path, file: str = "net.prototxt", **options: Any) -> Net:
    """The case's net in Caffe's dialect, with its initial parameters."""
    net = Net(folder / file, dialect="caffe", python=_python_layer, **options)
    for place in (folder, _group_folder(folder)):
        if (place / "init.caffemodel").is_file():
            net.copy_from(place / "init.caffemodel")
            break
    return net


def _python_layer(module: str, name: str) -> Any:
    """A layer class from a module in the working folder, which imports `caffe` for its base class."""
    stand_in: Any = types.ModuleType("caffe")
    stand_in.Layer = PythonLayer
    with _modules(caffe=stand_in), _first_on_path(str(Path.cwd())):
        sys.modules.pop(module, None)
        return getattr(importlib.import_module(module), name)


@contextlib.contextmanager
def _modules(**modules: Any) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


@contextlib.contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


# --- one forward and backward pass ----------------------------------------------------------------------


def replay_pass(folder: Path, result: Closeness) -> None:
    """Set the inputs, forward (several times where recorded), write the diffs of tops, backward; compare everything."""
    case = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    arrays = load_trace(folder)
    net = load_net(folder, phase=case["phase"], level=case.get("level", 0), stages=case.get("stages", ()))
    compare_wiring(net, case, result)
    _give_masks(net, arrays)
    compare_params(net, arrays, "", "data", result)
    set_inputs(net, arrays, "input/")
    loss = 0.0
    for number in range(1, case.get("forward_passes", 1) + 1):
        loss = net.forward()
        compare_blobs(net, arrays, f"fwd{number}/", "data", result)
    result.arrays("loss", np.float32(loss), arrays["loss"])
    compare_blobs(net, arrays, "", "data", result)
    if case["backward"]:
        net.clear_param_diffs()
        for name in case["topdiff"]:
            net.blobs[name].diff[...] = arrays[f"topdiff/{name}"]
        net.backward()
        compare_blobs(net, arrays, "", "diff", result)
        compare_params(net, arrays, "", "diff", result)
    compare_params(net, arrays, "after/", "data", result)


def set_inputs(net: Net, arrays: Arrays, prefix: str) -> None:
    """Put the recorded inputs into the input blobs."""
    for name, array in arrays.items():
        if name.startswith(prefix):
            net.blobs[name.removeprefix(prefix)].data[...] = array


def _give_masks(net: Net, arrays: Arrays) -> None:
    """Let Dropout keep what was kept: uniform numbers of 1 where kept, 0 where dropped."""
    if "mask" in arrays:
        for layer in net.layers:
            if isinstance(layer, Dropout):
                layer.draw = lambda shape: arrays["mask"].reshape(shape).astype(np.float32)  # type: ignore[method-assign]


def compare_wiring(net: Net, case: Case, result: Closeness) -> None:
    """Layers, blobs, shapes, loss weights, inputs and outputs."""
    layers = [
        {
            "name": layer.name,
            "type": layer.type,
            "bottoms": [net.blob_names[j] for j in net.bottom_ids[i]],
            "tops": [net.blob_names[j] for j in net.top_ids[i]],
            "param_shapes": [list(blob.shape) for blob in layer.blobs],
        }
        for i, layer in enumerate(net.layers)
    ]
    result.text("layers", layers, [{key: layer[key] for key in layers[0]} for layer in case["layers"]])
    names = [blob["name"] for blob in case["blobs"]]
    result.text("blobs", net.blob_names, names)
    result.text("loss weights", net.blob_loss_weights, [blob["loss_weight"] for blob in case["blobs"]])
    result.text("inputs", net.inputs, case["inputs"])
    result.text("outputs", net.outputs, case["outputs"])


def compare_blobs(net: Net, arrays: Arrays, prefix: str, kind: str, result: Closeness) -> None:
    """Every recorded value or gradient of a blob under a prefix."""
    for name, recorded in arrays.items():
        match = _BLOB.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match and match[2] == kind:
            result.arrays(name, getattr(net.blobs[match[1]], kind), recorded)


def compare_params(net: Net, arrays: Arrays, prefix: str, kind: str, result: Closeness) -> None:
    """Every recorded value or gradient of a parameter under a prefix."""
    for name, recorded in arrays.items():
        match = _PARAM.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match and match[3] == kind:
            result.arrays(name, getattr(net.params[match[1]][int(match[2])], kind), recorded)


# --- other kinds ----------------------------------------------------------------------------------------


def replay_shapes(folder: Path, result: Closeness) -> None:
    """Several input shapes in turn."""
    arrays = load_trace(folder)
    net = load_net(folder)
    for prefix in sorted({name.partition("/")[0] for name in arrays}):
        for name, array in arrays.items():
            if name.startswith(f"{prefix}/input/"):
                net.blobs[name.rpartition("/")[2]].reshape(*array.shape)
        net.reshape()
        set_inputs(net, arrays, f"{prefix}/input/")
        net.forward()
        compare_blobs(net, arrays, f"{prefix}/", "data", result)


def replay_rules(folder: Path, result: Closeness) -> None:
    """Which layers are alive in every state."""
    for rule in json.loads((folder / "rules.json").read_text(encoding="utf-8")):
        net = Net(folder / "net.prototxt", rule["phase"], level=rule["level"], stages=rule["stages"])
        state = f"{rule['phase']} level {rule['level']} stages {rule['stages']}"
        for name, ours in (("layers", net.layer_names), ("blobs", net.blob_names), ("outputs", net.outputs)):
            result.text(f"{name} in {state}", ours, rule[name])


def replay_refused(folder: Path, result: Closeness) -> None:
    """Whether a net is refused, and at which stage: building, forward or backward."""
    recorded = json.loads((folder / "refused.json").read_text(encoding="utf-8"))
    for name, case in recorded.items():
        stage = stage_refused(folder / f"{name}.prototxt", case["phase"])
        result.text(name, stage, case["stage"] if case["refused"] else None)


def stage_refused(path: Path, phase: str) -> str | None:
    """The stage at which a net is refused by a message that says where and what to do; None when it is not."""
    stage = "init"
    try:
        net = Net(path, phase, dialect="caffe")
        stage = "forward"
        net.forward()
        stage = "backward"
        net.backward()
    except UndertowError as error:
        placed = error.file is not None and error.line is not None
        return stage if placed and error.reason else f"{stage}, without a place: {error}"
    return None


def replay_upgrades(folder: Path, result: Closeness) -> None:
    """Old texts brought up to date."""
    for path in sorted(folder.glob("*.upgraded.prototxt")):
        old = path.with_name(path.name.replace(".upgraded", ""))
        if old.name.startswith("solver"):
            ours = read_solver(old)
            expected = parse_text(path.read_text(encoding="utf-8"), "SolverParameter")
            if not expected.has_field("snapshot_prefix"):
                ours.clear_field("snapshot_prefix")
        else:
            ours = read_prototxt(old)
            expected = parse_text(path.read_text(encoding="utf-8"), "NetParameter")
        result.text(old.name, ours.to_text(), expected.to_text())


def replay_fillers(folder: Path, result: Closeness) -> None:
    """Kernels and default values exactly; of random fillers what must hold whatever the generator."""
    arrays = load_trace(folder)
    net = Net(folder / "defaults.prototxt", "TRAIN")
    for name, recorded in arrays.items():
        kind, _, rest = name.partition("/")
        if kind == "defaults":
            layer, index, _ = rest.split("/")
            result.arrays(name, net.params[layer][int(index)].data, recorded)
        elif kind == "bilinear":
            filler = new_message("FillerParameter", type="bilinear")
            result.arrays(name, fill(filler, recorded.shape, np.random.default_rng(0)), recorded)
    for name, stats in json.loads((folder / "stats.json").read_text(encoding="utf-8")).items():
        filler = parse_text(stats["filler"], "FillerParameter")
        values = fill(filler, tuple(stats["blob"]), np.random.default_rng(1)).astype(np.float32)
        # Means and deviations of n numbers scatter by deviation / sqrt(n) or so; five times that on both sides.
        scatter = 10 * max(stats["std"], 1e-9) / np.sqrt(values.size) + 1e-6
        for what, ours in (("mean", values.mean()), ("std", values.std())):
            result.text(f"{name} {what} {ours} near {stats[what]}", abs(ours - stats[what]) <= scatter, True)
        zeros = float((values == 0).mean()), stats["zeros"] / values.size
        result.text(f"{name} zeros {zeros}", abs(zeros[0] - zeros[1]) <= 0.02, True)


def replay_calls(folder: Path, result: Closeness) -> None:
    """Partial passes, accumulating gradients, batches padded at the end, another batch size."""
    arrays = load_trace(folder)
    net = load_net(folder)
    data, y = net.blobs["data"], net.outputs[0]

    def gradients(prefix: str) -> None:
        for name, recorded in arrays.items():
            if not name.startswith(f"{prefix}/"):
                continue
            rest = name.removeprefix(f"{prefix}/")
            match = _PARAM.fullmatch(rest)
            ours = net.params[match[1]][int(match[2])].diff if match else net.blobs[rest].diff
            result.arrays(name, ours, recorded)

    def values(prefix: str, rows: int | None = None) -> None:
        for name, recorded in arrays.items():
            if name.startswith(f"{prefix}/"):
                result.arrays(name, net.blobs[name.partition("/")[2]].data[:rows], recorded)

    data.data[...] = arrays["input/data"]
    net.forward()
    values("forward")
    seed = arrays["set/y_diff"]
    net.forward(end="tanh")
    values("forward_end")
    net.blobs["t"].data[...] = arrays["set/t"]
    net.forward(start="ip2")
    values("forward_start")
    net.forward()
    net.clear_param_diffs()
    net.blobs[y].diff[...] = seed
    net.backward()
    gradients("backward")
    net.blobs[y].diff[...] = seed
    net.backward()
    gradients("backward_twice")
    net.clear_param_diffs()
    net.blobs[y].diff[...] = seed
    net.backward(end="tanh")
    gradients("backward_end")
    _forward_all(net, arrays, result)
    data.reshape(*arrays["reshape/data"].shape)
    data.data[...] = arrays["reshape/data"]
    net.forward()
    result.arrays("reshape/y", net.blobs[y].data, arrays["reshape/y"])


def _forward_all(net: Net, arrays: Arrays, result: Closeness) -> None:
    """All rows in batches, the last one filled up."""
    big, batch = arrays["input/big"], len(net.blobs["data"].data)
    found: dict[str, list[np.ndarray]] = {"t": [], "y": []}
    for start in range(0, len(big), batch):
        rows = big[start : start + batch]
        net.blobs["data"].data[: len(rows)] = rows
        net.forward()
        for name, parts in found.items():
            parts.append(net.blobs[name].data[: len(rows)].copy())
    for name, parts in found.items():
        result.arrays(f"forward_all/{name}", np.concatenate(parts), arrays[f"forward_all/{name}"])

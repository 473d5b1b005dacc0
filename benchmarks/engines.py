"""Engines that run ONNX models, in float32, each with the same number of threads. They see only the heads' raw values:

the sigmoids and exponentials of yolo layers are done by Undertow alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from undertow.darknet.network import Network

Run = Callable[[], list[np.ndarray]]


def onnx_model(net: Network, images: np.ndarray) -> bytes:
    """The net, as PyTorch exports it, for exactly this input shape."""
    import torch

    from benchmarks.torch_nets import TorchNet

    file: Any = io.BytesIO()  # PyTorch's annotation knows paths only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            TorchNet(net).eval(), (torch.from_numpy(images),), file, dynamo=False, input_names=["x"], opset_version=13
        )
    return bytes(file.getvalue())


def onnxruntime(model: bytes, images: np.ndarray, threads: int) -> Run:
    """ONNX Runtime; its threads stop spinning when a run ends, as they would slow the next contender."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, {"x": images}))


def openvino(model: bytes, images: np.ndarray, threads: int) -> Run:
    """OpenVINO, one stream, tuned for latency."""
    core: Any = importlib.import_module("openvino").Core()
    compiled = core.compile_model(
        core.read_model(model),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()

    def run() -> list[np.ndarray]:
        request.infer([images], share_inputs=True)
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


def opencv(model: bytes, images: np.ndarray, threads: int) -> Run:
    """OpenCV's dnn module."""
    import cv2

    cv2.setNumThreads(threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(model)
        net: Any = cv2.dnn.readNetFromONNX(str(path))
    names = net.getUnconnectedOutLayersNames()

    def run() -> list[np.ndarray]:
        net.setInput(images)
        return list(net.forward(names))

    return run


ENGINES: dict[str, Callable[[bytes, np.ndarray, int], Run]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "opencv": opencv,
}
MODULES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "opencv": "cv2"}


def installed() -> list[str]:
    """The engines that are there; the model comes by way of PyTorch and the package onnx."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "onnx")):
        return []
    return [name for name, module in MODULES.items() if importlib.util.find_spec(module) is not None]

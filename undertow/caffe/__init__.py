"""Caffe: its file formats, nets and solvers; and pycaffe's names, for `import undertow.caffe as caffe`.

    net = caffe.Net("deploy.prototxt", caffe.TEST, weights="model.caffemodel")
    net.blobs["data"].data[...] = images
    net.forward()["prob"]

    solver = caffe.get_solver("solver.prototxt")
    solver.step(100)

Scripts that say `import caffe` run after `undertow.caffe.install()`, or with `python -m undertow.caffe script.py`.
Nets made with these names compute in dialect "caffe"; `undertow.caffe.net.Net` and `undertow.caffe.solver.Solver` are
what they are made of, in dialect "exact" unless told otherwise.
"""

from undertow.caffe import _caffe as _caffe
from undertow.caffe import io, proto
from undertow.caffe.blob import Blob
from undertow.caffe.classifier import Classifier
from undertow.caffe.detector import Detector
from undertow.caffe.install import install, uninstall
from undertow.caffe.layers_python import PythonLayer as Layer
from undertow.caffe.layers_python import import_layer
from undertow.caffe.net import infer_shapes
from undertow.caffe.net_spec import NetSpec, layers, params, to_proto
from undertow.caffe.pycaffe import Net
from undertow.caffe.pysolver import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    get_solver,
)
from undertow.caffe.runtime import (
    CAFFE_VERSION,
    NCCL,
    TEST,
    TRAIN,
    Timer,
    has_nccl,
    init_log,
    layer_type_list,
    log,
    set_device,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from undertow.caffe.table import register_layer

__version__ = CAFFE_VERSION

__all__ = [
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "Classifier",
    "Detector",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
    "__version__",
    "get_solver",
    "has_nccl",
    "import_layer",
    "infer_shapes",
    "init_log",
    "install",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "params",
    "proto",
    "register_layer",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
    "uninstall",
]

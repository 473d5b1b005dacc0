"""Networks in Darknet's formats: read, run, trained and measured as the C program does it.

    net = load("yolov3-tiny.cfg", "yolov3-tiny.weights", names="coco.names")
    for found in net.detect("dog.jpg", threshold=0.5, nms=0.45):
        found.name, found.confidence, found.pixel_box

    result = train("obj.data", "obj.cfg", "darknet53.conv.74")
"""

from undertow.darknet.detection.boxes import Box as Box
from undertow.darknet.detection.boxes import Detection as Detection
from undertow.darknet.detection.detector import detect as detect
from undertow.darknet.detection.draw import draw_detections as draw_detections
from undertow.darknet.detection.evaluate import Evaluation as Evaluation
from undertow.darknet.dialect import DIALECTS as DIALECTS
from undertow.darknet.dialect import Dialect as Dialect
from undertow.darknet.files.cfg import Config as Config
from undertow.darknet.files.cfg import read_cfg as read_cfg
from undertow.darknet.files.datafile import read_data as read_data
from undertow.darknet.files.names import read_names as read_names
from undertow.darknet.fold import fold_batch_norm as fold_batch_norm
from undertow.darknet.layers.layer import Layer as Layer
from undertow.darknet.learning.trainer import Trainer as Trainer
from undertow.darknet.learning.trainer import TrainingWatcher as TrainingWatcher
from undertow.darknet.learning.trainer import TrainOptions as TrainOptions
from undertow.darknet.learning.trainer import TrainResult as TrainResult
from undertow.darknet.network import Network as Network
from undertow.darknet.runs import load as load
from undertow.darknet.runs import train as train
from undertow.darknet.runs import training as training
from undertow.darknet.runs import validate as validate

__all__ = [
    "DIALECTS",
    "Box",
    "Config",
    "Detection",
    "Dialect",
    "Evaluation",
    "Layer",
    "Network",
    "TrainOptions",
    "TrainResult",
    "Trainer",
    "TrainingWatcher",
    "detect",
    "draw_detections",
    "fold_batch_norm",
    "load",
    "read_cfg",
    "read_data",
    "read_names",
    "train",
    "training",
    "validate",
]

"""The one table of layer types: name in a prototxt -> options, numbers of bottoms and tops, and the class that does it.

The class holds the shape rule (`top_shapes`) and the computation (`compute`); building, checking, listing, the
documentation and the tests all read this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from undertow.caffe import (
    layers_bn,
    layers_data,
    layers_dense,
    layers_detection,
    layers_forks,
    layers_input,
    layers_loss,
    layers_multibox,
    layers_neuron,
    layers_norm,
    layers_python,
    layers_recurrent,
    layers_reduce,
    layers_regions,
    layers_shape,
    layers_window,
)
from undertow.caffe.layer import Layer

MANY = 1 << 30


@dataclass(frozen=True)
class LayerType:
    """One layer type. options: the field of LayerParameter that holds them, "" for none.

    bottoms, tops: smallest and largest number.
    """

    build: type[Layer]
    options: str = ""
    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)


LAYER_TYPES: dict[str, LayerType] = {
    "AbsVal": LayerType(layers_neuron.AbsVal),
    "Accuracy": LayerType(layers_reduce.Accuracy, "accuracy_param", (2, 2), (1, 2)),
    "ArgMax": LayerType(layers_reduce.ArgMax, "argmax_param"),
    "BNLL": LayerType(layers_neuron.BNLL),
    "BatchNorm": LayerType(layers_norm.BatchNorm, "batch_norm_param"),
    "BatchReindex": LayerType(layers_shape.BatchReindex, "", (2, 2)),
    "Bias": LayerType(layers_dense.Bias, "bias_param", (1, 2)),
    "Clip": LayerType(layers_neuron.Clip, "clip_param"),
    "Concat": LayerType(layers_shape.Concat, "concat_param", (1, MANY)),
    "ContrastiveLoss": LayerType(layers_loss.ContrastiveLoss, "contrastive_loss_param", (3, 3)),
    "Convolution": LayerType(layers_window.Convolution, "convolution_param", (1, MANY), (1, MANY)),
    "Crop": LayerType(layers_shape.Crop, "crop_param", (2, 2)),
    "Data": LayerType(layers_data.Data, "data_param", (0, 0), (1, 2)),
    "Deconvolution": LayerType(layers_window.Deconvolution, "convolution_param", (1, MANY), (1, MANY)),
    "Dropout": LayerType(layers_neuron.Dropout, "dropout_param"),
    "DummyData": LayerType(layers_input.DummyData, "dummy_data_param", (0, 0), (1, MANY)),
    "ELU": LayerType(layers_neuron.ELU, "elu_param"),
    "Eltwise": LayerType(layers_reduce.Eltwise, "eltwise_param", (2, MANY)),
    "Embed": LayerType(layers_dense.Embed, "embed_param"),
    "EuclideanLoss": LayerType(layers_loss.EuclideanLoss, "", (2, 2)),
    "Exp": LayerType(layers_neuron.Exp, "exp_param"),
    "Filter": LayerType(layers_shape.Filter, "", (2, MANY), (1, MANY)),
    "Flatten": LayerType(layers_shape.Flatten, "flatten_param"),
    "HDF5Data": LayerType(layers_data.HDF5Data, "hdf5_data_param", (0, 0), (1, MANY)),
    "HDF5Output": LayerType(layers_data.HDF5Output, "hdf5_output_param", (2, 2), (0, 0)),
    "HingeLoss": LayerType(layers_loss.HingeLoss, "hinge_loss_param", (2, 2)),
    "ImageData": LayerType(layers_data.ImageData, "image_data_param", (0, 0), (2, 2)),
    "Im2col": LayerType(layers_window.Im2col, "convolution_param"),
    "InfogainLoss": LayerType(layers_loss.InfogainLoss, "infogain_loss_param", (2, 3), (1, 2)),
    "InnerProduct": LayerType(layers_dense.InnerProduct, "inner_product_param"),
    "Input": LayerType(layers_input.Input, "input_param", (0, 0), (1, MANY)),
    "LRN": LayerType(layers_window.LRN, "lrn_param"),
    "LSTM": LayerType(layers_recurrent.LSTM, "recurrent_param", (2, 5), (1, 3)),
    "LSTMUnit": LayerType(layers_recurrent.LSTMUnit, "", (3, 3), (2, 2)),
    "Log": LayerType(layers_neuron.Log, "log_param"),
    "MVN": LayerType(layers_norm.MVN, "mvn_param"),
    "MemoryData": LayerType(layers_input.MemoryData, "memory_data_param", (0, 0), (2, 2)),
    "MultinomialLogisticLoss": LayerType(layers_loss.MultinomialLogisticLoss, "", (2, 2)),
    "PReLU": LayerType(layers_neuron.PReLU, "prelu_param"),
    "Parameter": LayerType(layers_dense.Parameter, "parameter_param", (0, 0)),
    "Pooling": LayerType(layers_window.Pooling, "pooling_param", (1, 1), (1, 2)),
    "Power": LayerType(layers_neuron.Power, "power_param"),
    "Python": LayerType(layers_python.Python, "python_param", (0, MANY), (0, MANY)),
    "RNN": LayerType(layers_recurrent.RNN, "recurrent_param", (2, 4), (1, 2)),
    "ReLU": LayerType(layers_neuron.ReLU, "relu_param"),
    "Reduction": LayerType(layers_reduce.Reduction, "reduction_param"),
    "Reshape": LayerType(layers_shape.Reshape, "reshape_param"),
    "SPP": LayerType(layers_window.SPP, "spp_param"),
    "Scale": LayerType(layers_dense.Scale, "scale_param", (1, 2)),
    "Sigmoid": LayerType(layers_neuron.Sigmoid),
    "SigmoidCrossEntropyLoss": LayerType(layers_loss.SigmoidCrossEntropyLoss, "loss_param", (2, 2)),
    "Silence": LayerType(layers_shape.Silence, "", (1, MANY), (0, 0)),
    "Slice": LayerType(layers_shape.Slice, "slice_param", (1, 1), (1, MANY)),
    "Softmax": LayerType(layers_norm.Softmax, "softmax_param"),
    "SoftmaxWithLoss": LayerType(layers_loss.SoftmaxWithLoss, "loss_param", (2, 2), (1, 2)),
    "Split": LayerType(layers_shape.Split, "", (1, 1), (1, MANY)),
    "Swish": LayerType(layers_neuron.Swish, "swish_param"),
    "TanH": LayerType(layers_neuron.TanH),
    "Threshold": LayerType(layers_neuron.Threshold, "threshold_param"),
    "Tile": LayerType(layers_shape.Tile, "tile_param"),
    "WindowData": LayerType(layers_data.WindowData, "window_data_param", (0, 0), (2, 2)),
    # Layers of forks.
    "AnnotatedData": LayerType(layers_data.AnnotatedData, "annotated_data_param", (0, 0), (1, 2)),
    "BN": LayerType(layers_bn.BN, "bn_param", (1, 1), (1, 3)),
    "Axpy": LayerType(layers_forks.Axpy, "", (3, 3)),
    "ConvolutionDepthwise": LayerType(layers_forks.ConvolutionDepthwise, "convolution_param"),
    "DepthwiseConvolution": LayerType(layers_window.Convolution, "convolution_param", (1, MANY), (1, MANY)),
    "DetectionEvaluate": LayerType(layers_detection.DetectionEvaluate, "detection_evaluate_param", (2, 2)),
    "DetectionOutput": LayerType(layers_detection.DetectionOutput, "detection_output_param", (3, 4)),
    "Interp": LayerType(layers_forks.Interp, "interp_param", (1, 2)),
    "MultiBoxLoss": LayerType(layers_multibox.MultiBoxLoss, "multibox_loss_param", (4, 4)),
    "Normalize": LayerType(layers_forks.Normalize, "norm_param"),
    "PSROIPooling": LayerType(layers_regions.PSROIPooling, "psroi_pooling_param", (2, 2)),
    "Permute": LayerType(layers_forks.Permute, "permute_param"),
    "PriorBox": LayerType(layers_detection.PriorBox, "prior_box_param", (2, 2)),
    "ROIPooling": LayerType(layers_regions.ROIPooling, "roi_pooling_param", (2, 2)),
    "ReLU6": LayerType(layers_forks.ReLU6, "relu6_param"),
    "ShuffleChannel": LayerType(layers_forks.ShuffleChannel, "shuffle_channel_param"),
    "SmoothL1Loss": LayerType(layers_regions.SmoothL1Loss, "smooth_l1_loss_param", (2, 4)),
    "Upsample": LayerType(layers_forks.Upsample, "upsample_param", (1, 2)),
    "VideoData": LayerType(layers_data.VideoData, "video_data_param", (0, 0), (1, 2)),
}


def register_layer(name: str, layer_type: LayerType) -> None:
    """Add a layer type, or replace one; nets built afterwards know it."""
    LAYER_TYPES[name] = layer_type

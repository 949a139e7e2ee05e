"""The registry: layer type → class."""

from __future__ import annotations

import difflib
from typing import Any

from caffe_on_grid.engine.torch import (
    layers_activation,
    layers_convolution,
    layers_forks,
    layers_io,
    layers_labels,
    layers_loss,
    layers_normalisation,
    layers_pooling,
    layers_python,
    layers_recurrent,
    layers_select,
    layers_shape,
)
from caffe_on_grid.engine.torch.layers_base import Context, Layer
from caffe_on_grid.errors import ConfigError

CAFFE: dict[str, type[Layer]] = {
    "AbsVal": layers_activation.AbsVal,
    "Accuracy": layers_labels.Accuracy,
    "ArgMax": layers_select.ArgMax,
    "BNLL": layers_activation.BNLL,
    "BatchNorm": layers_normalisation.BatchNorm,
    "BatchReindex": layers_select.BatchReindex,
    "Bias": layers_normalisation.Bias,
    "Clip": layers_activation.Clip,
    "Concat": layers_shape.Concat,
    "ContrastiveLoss": layers_loss.ContrastiveLoss,
    "Convolution": layers_convolution.Convolution,
    "Crop": layers_shape.Crop,
    "Deconvolution": layers_convolution.Deconvolution,
    "Dropout": layers_activation.Dropout,
    "DummyData": layers_io.DummyData,
    "ELU": layers_activation.ELU,
    "Eltwise": layers_shape.Eltwise,
    "Embed": layers_convolution.Embed,
    "EuclideanLoss": layers_loss.EuclideanLoss,
    "Exp": layers_activation.Exp,
    "Filter": layers_select.Filter,
    "Flatten": layers_shape.Flatten,
    "HDF5Output": layers_io.HDF5Output,
    "HingeLoss": layers_loss.HingeLoss,
    "Im2col": layers_convolution.Im2col,
    "InfogainLoss": layers_loss.InfogainLoss,
    "InnerProduct": layers_convolution.InnerProduct,
    "Input": layers_io.Input,
    "LRN": layers_normalisation.LRN,
    "LSTM": layers_recurrent.LSTM,
    "LSTMUnit": layers_recurrent.LSTMUnit,
    "Log": layers_activation.Log,
    "MVN": layers_normalisation.MVN,
    "MultinomialLogisticLoss": layers_loss.MultinomialLogisticLoss,
    "PReLU": layers_activation.PReLU,
    "Parameter": layers_io.ParameterLayer,
    "Pooling": layers_pooling.Pooling,
    "Power": layers_activation.Power,
    "Python": layers_python.Python,
    "RNN": layers_recurrent.RNN,
    "ReLU": layers_activation.ReLU,
    "Reduction": layers_shape.Reduction,
    "Reshape": layers_shape.Reshape,
    "SPP": layers_pooling.SPP,
    "Scale": layers_normalisation.Scale,
    "Sigmoid": layers_activation.Sigmoid,
    "SigmoidCrossEntropyLoss": layers_loss.SigmoidCrossEntropyLoss,
    "Silence": layers_shape.Silence,
    "Slice": layers_shape.Slice,
    "Softmax": layers_activation.Softmax,
    "SoftmaxWithLoss": layers_loss.SoftmaxWithLoss,
    "Split": layers_shape.Split,
    "Swish": layers_activation.Swish,
    "TanH": layers_activation.TanH,
    "Threshold": layers_activation.Threshold,
    "Tile": layers_shape.Tile,
}
"""Types of Caffe 1.0."""

FORKS: dict[str, type[Layer]] = {
    "Axpy": layers_forks.Axpy,
    "ConvolutionDepthwise": layers_convolution.DepthwiseConvolution,
    "DepthwiseConvolution": layers_convolution.DepthwiseConvolution,
    "Interp": layers_forks.Interp,
    "Normalize": layers_normalisation.Normalize,
    "Permute": layers_forks.Permute,
    "PriorBox": layers_forks.PriorBox,
    "ROIPooling": layers_forks.ROIPooling,
    "ReLU6": layers_forks.ReLU6,
    "Reorg": layers_forks.Reorg,
    "ShuffleChannel": layers_forks.ShuffleChannel,
    "SmoothL1Loss": layers_forks.SmoothL1Loss,
    "Upsample": layers_forks.Upsample,
}
"""Types of forks."""

LAYERS: dict[str, type[Layer]] = {**CAFFE, **FORKS}

DATA = ("Data", "HDF5Data", "ImageData", "MemoryData", "WindowData", "CoSData")
"""Types that read data: a job's own sources stand in for them."""

OWNERS: dict[str, str] = {
    **dict.fromkeys(
        ("AnnotatedData", "DetectionEvaluate", "DetectionOutput", "MultiBoxLoss", "VideoData"), "SSD Caffe"
    ),
    **dict.fromkeys(("PSROIPooling", "BoxAnnotatorOHEM", "SmoothL1LossOHEM", "SoftmaxWithLossOHEM"), "R-FCN's Caffe"),
    **dict.fromkeys(("RegionLoss", "Yolov3", "YoloDetectionOutput", "BoxData"), "the Caffe ports of YOLO"),
    **dict.fromkeys(("DenseImageData", "SegAccuracy"), "SegNet's Caffe"),
    **dict.fromkeys(("ImageSegData", "DenseCRF", "DomainTransform", "MatRead", "MatWrite"), "DeepLab's Caffe"),
    **dict.fromkeys(("MultiAccuracy", "SplitConcat", "LabelRanking", "DetectNetTransformation"), "NVCaffe"),
    "BN": "PSPNet's and SegNet's Caffe (their blobs differ)",
    "CenterLoss": "caffe-face",
    "MarginInnerProduct": "SphereFace's Caffe",
    "MKLReLU": "Intel Caffe",
}
"""Types of forks that are not built, and whose they are."""


def create(spec: Any, context: Context) -> Layer:
    """The layer of a LayerParameter, before setup; raises ConfigError for a type that is not known."""
    if spec.type not in LAYERS:
        raise ConfigError(f"layer '{spec.name}': {_unknown(spec.type)}")
    return LAYERS[spec.type](spec, context)


def _unknown(name: str) -> str:
    if name in DATA:
        return f"type {name!r} reads data itself; in this engine its blobs are inputs: replace it by an Input layer"
    owner = f" (of {OWNERS[name]})" if name in OWNERS else ""
    lower = {known.lower(): known for known in LAYERS}
    near = [lower[found] for found in difflib.get_close_matches(name.lower(), lower, 3, 0.7)]
    hint = f": did you mean {', '.join(near)}?" if near else ""
    return f"unknown layer type {name!r}{owner}{hint}; a Python layer can stand in for it"

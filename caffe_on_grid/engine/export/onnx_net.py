"""A net with its parameters as an ONNX model: the table of layer types, and the walk over the layers."""

from __future__ import annotations

from typing import Any

import onnx

from caffe_on_grid import __version__
from caffe_on_grid.engine.export import onnx_elementwise as elementwise
from caffe_on_grid.engine.export import onnx_shape as shape
from caffe_on_grid.engine.export import onnx_windows as windows
from caffe_on_grid.engine.export.deploy import ends
from caffe_on_grid.engine.export.onnx_graph import Graph, Shape, Site
from caffe_on_grid.engine.export.parameters import Parameters
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto.shapes_base import NetShapes

LARGEST = 2**31 - 1
"""Most bytes of a binary protobuf message."""

TYPES: dict[str, elementwise.Translate] = {
    "AbsVal": elementwise.same("Abs"),
    "ArgMax": shape.arg_max,
    "Axpy": elementwise.axpy,
    "BNLL": elementwise.same("Softplus"),
    "BatchNorm": elementwise.batch_norm,
    "Bias": elementwise.bias,
    "Clip": elementwise.clip,
    "Concat": shape.concat,
    "Convolution": windows.convolution,
    "ConvolutionDepthwise": windows.depthwise,
    "Crop": shape.crop,
    "Deconvolution": windows.deconvolution,
    "DepthwiseConvolution": windows.depthwise,
    "Dropout": elementwise.split,
    "ELU": elementwise.elu,
    "Eltwise": elementwise.eltwise,
    "Embed": windows.embed,
    "Exp": elementwise.exponential,
    "Flatten": shape.reshaped,
    "InnerProduct": windows.inner_product,
    "Interp": shape.interp,
    "LRN": elementwise.lrn,
    "Log": elementwise.logarithm,
    "MVN": elementwise.mvn,
    "Normalize": elementwise.normalize,
    "PReLU": elementwise.prelu,
    "Parameter": shape.parameter,
    "Permute": shape.permute,
    "Pooling": windows.pooling,
    "Power": elementwise.power,
    "ReLU": elementwise.relu,
    "ReLU6": elementwise.relu6,
    "Reduction": shape.reduction,
    "Reshape": shape.reshaped,
    "Scale": elementwise.scale,
    "ShuffleChannel": shape.shuffle,
    "Sigmoid": elementwise.same("Sigmoid"),
    "Slice": shape.sliced,
    "Softmax": elementwise.softmax,
    "Split": elementwise.split,
    "Swish": elementwise.swish,
    "TanH": elementwise.same("Tanh"),
    "Threshold": elementwise.threshold,
    "Tile": shape.tile,
}
"""Layer type → its translation. All else is refused by name."""


def check(net: Any) -> None:
    """Raise ConfigError naming every layer of `net` that has no translation."""
    foreign = [f"{layer.name!r} ({layer.type})" for layer in net.layer if layer.type not in ("Input", *TYPES)]
    if foreign:
        raise ConfigError(f"no form in ONNX for layer {', '.join(foreign)}: leave them out with --outputs")


def model(net: Any, known: NetShapes, parameters: Parameters) -> Any:
    """The ModelProto of a deployed net (see `deploy`); blobs keep their names.

    `known` are the net's shapes. Raises ConfigError naming the layer that has no form in ONNX.
    """
    check(net)
    graph, walk = Graph(), _Walk(net)
    inputs: dict[str, Shape] = {}
    for layer, made in zip(net.layer, known.layers):
        if layer.type == "Input":
            inputs.update(zip(layer.top, made.top_shapes))
        site = walk.site(layer, made.top_shapes, parameters.get(layer.name, []))
        if layer.type != "Input":
            TYPES[layer.type](graph, site)
    outputs = {walk.value(name): known.blobs[name] for name in ends(net)}
    return graph.model(net.name, inputs, outputs, "caffe-on-grid", __version__)


def content(net: Any, known: NetShapes, parameters: Parameters) -> bytes:
    """The file's bytes, checked by onnx; raises ConfigError above protobuf's 2 GiB."""
    made = model(net, known, parameters)
    if made.ByteSize() > LARGEST:
        raise ConfigError(f"the ONNX model would have {made.ByteSize()} bytes, at most 2 GiB fit in one file")
    found = bytes(made.SerializeToString())
    onnx.checker.check_model(found)
    return found


class _Walk:
    """Names of values: the last form of a blob that layers change in place has the blob's name."""

    def __init__(self, net: Any) -> None:
        self._left: dict[str, int] = {}
        for layer in net.layer:
            for top in layer.top:
                self._left[top] = self._left.get(top, 0) + 1
        self._fixed = {top for layer in net.layer if layer.type == "Input" for top in layer.top}
        self._now: dict[str, str] = {}
        self._shapes: dict[str, Shape] = {}

    def value(self, blob: str) -> str:
        """The present value of a blob."""
        return self._now[blob]

    def site(self, layer: Any, made: tuple[Shape, ...], blobs: Any) -> Site:
        """The layer's place; its tops are known from here on."""
        bottoms = tuple(self._now[name] for name in layer.bottom)
        shapes = tuple(self._shapes[name] for name in layer.bottom)
        tops = tuple(self._top(name, layer) for name in layer.top)
        self._shapes.update(zip(layer.top, made))
        return Site(layer, bottoms, tops, shapes, made, blobs)

    def _top(self, name: str, layer: Any) -> str:
        self._left[name] -= 1
        plain = layer.type == "Input" or (self._left[name] == 0 and name not in self._fixed)
        self._now[name] = name if plain else f"{name}@{layer.name}"
        return self._now[name]

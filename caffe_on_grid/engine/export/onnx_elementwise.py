"""Activations, normalisations and sums in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from caffe_on_grid.engine.api import Array
from caffe_on_grid.engine.export.onnx_graph import Graph, Shape, Site
from caffe_on_grid.engine.export.onnx_windows import average
from caffe_on_grid.engine.export.state_dict import statistics
from caffe_on_grid.proto import schema
from caffe_on_grid.proto.shapes_base import axis_of

Translate = Callable[[Graph, Site], None]
_ELTWISE = schema.ENUMS["EltwiseParameter.EltwiseOp"]
_WITHIN = schema.ENUMS["LRNParameter.NormRegion"]["WITHIN_CHANNEL"]


def same(op: str) -> Translate:
    """One operator without attributes."""

    def translate(graph: Graph, site: Site) -> None:
        graph.node(op, site.bottoms, site.tops[0])

    return translate


def split(graph: Graph, site: Site) -> None:
    """Tops that are the bottom."""
    for top in site.tops:
        graph.node("Identity", site.bottoms, top)


def relu(graph: Graph, site: Site) -> None:
    """Relu, or LeakyRelu with a negative_slope."""
    slope = site.layer.relu_param.negative_slope
    if slope:
        graph.node("LeakyRelu", site.bottoms, site.tops[0], alpha=slope)
    else:
        graph.node("Relu", site.bottoms, site.tops[0])


def prelu(graph: Graph, site: Site) -> None:
    """PRelu with a slope for each channel, or one."""
    slope = site.blobs[0].reshape(-1, *[1] * (len(site.shapes[0]) - 2))
    graph.node("PRelu", [*site.bottoms, graph.constant(slope, site.named("weight"))], site.tops[0])


def elu(graph: Graph, site: Site) -> None:
    """Elu."""
    graph.node("Elu", site.bottoms, site.tops[0], alpha=site.layer.elu_param.alpha)


def affine(graph: Graph, value: str, scale: float, shift: float) -> str:
    """`scale` times the value plus `shift`."""
    if scale != 1:
        value = graph.node("Mul", [value, graph.number(scale)])
    return graph.node("Add", [value, graph.number(shift)]) if shift else value


def power(graph: Graph, site: Site) -> None:
    """(shift + scale·x)^power."""
    param = site.layer.power_param
    inner = affine(graph, site.bottoms[0], param.scale, param.shift)
    graph.node("Pow", [inner, graph.number(param.power)], site.tops[0])


def _log(base: float) -> float:
    return 1.0 if base == -1 else math.log(base)


def exponential(graph: Graph, site: Site) -> None:
    """base^(shift + scale·x)."""
    param = site.layer.exp_param
    factor = _log(param.base)
    graph.node("Exp", [affine(graph, site.bottoms[0], factor * param.scale, factor * param.shift)], site.tops[0])


def logarithm(graph: Graph, site: Site) -> None:
    """log_base(shift + scale·x)."""
    param = site.layer.log_param
    natural = graph.node("Log", [affine(graph, site.bottoms[0], param.scale, param.shift)])
    graph.node("Mul", [natural, graph.number(1 / _log(param.base))], site.tops[0])


def clip(graph: Graph, site: Site) -> None:
    """Clip between min and max."""
    bounds = [graph.number(site.layer.clip_param.min), graph.number(site.layer.clip_param.max)]
    graph.node("Clip", [*site.bottoms, *bounds], site.tops[0])


def relu6(graph: Graph, site: Site) -> None:
    """Clip between 0 and 6."""
    graph.node("Clip", [*site.bottoms, graph.number(0), graph.number(6)], site.tops[0])


def swish(graph: Graph, site: Site) -> None:
    """x·sigmoid(beta·x)."""
    inner = affine(graph, site.bottoms[0], site.layer.swish_param.beta, 0)
    graph.node("Mul", [site.bottoms[0], graph.node("Sigmoid", [inner])], site.tops[0])


def threshold(graph: Graph, site: Site) -> None:
    """1 above the threshold, 0 elsewhere."""
    above = graph.node("Greater", [*site.bottoms, graph.number(site.layer.threshold_param.threshold)])
    graph.cast(above, TensorProto.FLOAT, site.tops[0])


def softmax(graph: Graph, site: Site) -> None:
    """Softmax along its axis."""
    axis = axis_of(site.layer.softmax_param.axis, site.shapes[0])
    graph.fixed(axis)
    graph.node("Softmax", site.bottoms, site.tops[0], axis=axis)


def eltwise(graph: Graph, site: Site) -> None:
    """Products, sums (with coefficients) or maxima."""
    param = site.layer.eltwise_param
    if param.operation == _ELTWISE["MAX"]:
        graph.node("Max", site.bottoms, site.tops[0])
        return
    values = list(site.bottoms)
    if param.operation == _ELTWISE["SUM"] and param.coeff:
        values = [affine(graph, value, factor, 0) for value, factor in zip(values, param.coeff)]
    op = "Add" if param.operation == _ELTWISE["SUM"] else "Mul"
    total = values[0]
    for value in values[1:-1]:
        total = graph.node(op, [total, value])
    graph.node(op, [total, values[-1]], site.tops[0])


def batch_norm(graph: Graph, site: Site) -> None:
    """BatchNormalization by the statistics that the model has."""
    param, shape = site.layer.batch_norm_param, site.shapes[0]
    stored = param.use_global_stats or not param.HasField("use_global_stats")
    site.need(stored, "use_global_stats: false takes each batch's own statistics")
    site.need(len(shape) >= 2, "it has no channels")
    mean, variance = statistics(site.blobs)
    ones = graph.constant(np.ones_like(mean))
    zeros = graph.constant(np.zeros_like(mean))
    held = [graph.constant(mean, site.named("running_mean")), graph.constant(variance, site.named("running_var"))]
    graph.node("BatchNormalization", [*site.bottoms, ones, zeros, *held], site.tops[0], epsilon=param.eps)


def scale(graph: Graph, site: Site) -> None:
    """A product with a blob or the second bottom, and a sum with the bias."""
    param = site.layer.scale_param
    factor, blobs = _laid(graph, site, param.axis)
    if not (param.bias_term and blobs):
        graph.node("Mul", [site.bottoms[0], factor], site.tops[0])
        return
    shape = site.shapes[1] if len(site.bottoms) > 1 else site.blobs[0].shape
    bias = graph.constant(blobs[0].reshape(_view(site, param.axis, shape)), site.named("bias"))
    graph.node("Add", [graph.node("Mul", [site.bottoms[0], factor]), bias], site.tops[0])


def bias(graph: Graph, site: Site) -> None:
    """A sum with a blob or the second bottom."""
    graph.node("Add", [site.bottoms[0], _laid(graph, site, site.layer.bias_param.axis)[0]], site.tops[0])


def _laid(graph: Graph, site: Site, axis: int) -> tuple[str, list[Array]]:
    """The factor so that it broadcasts from `axis` on, and the blobs that are left."""
    if len(site.bottoms) > 1:
        view = _view(site, axis, site.shapes[1])
        return graph.reshape(site.bottoms[1], site.shapes[1], view), list(site.blobs)
    view = _view(site, axis, site.blobs[0].shape)
    graph.fixed(axis if view else 1)
    return graph.constant(site.blobs[0].reshape(view), site.named("weight")), list(site.blobs[1:])


def _view(site: Site, axis: int, factor: Shape) -> Shape:
    rank = len(site.shapes[0])
    start = axis_of(axis, site.shapes[0]) if factor else rank
    return (*factor, *[1] * (rank - start - len(factor)))


def axpy(graph: Graph, site: Site) -> None:
    """A factor for each sample and channel times x, plus y."""
    shape = site.shapes[1]
    factor = graph.reshape(site.bottoms[0], site.shapes[0], (*shape[:2], *[1] * (len(shape) - 2)))
    graph.node("Add", [graph.node("Mul", [factor, site.bottoms[1]]), site.bottoms[2]], site.tops[0])


def lrn(graph: Graph, site: Site) -> None:
    """LRN over channels; within one, x·(1 + alpha·mean of squares)^−beta, as Caffe puts it together."""
    param, shape = site.layer.lrn_param, site.shapes[0]
    size = param.local_size
    if param.norm_region != _WITHIN:
        held = {"size": size, "alpha": param.alpha, "beta": param.beta, "bias": param.k}
        graph.node("LRN", site.bottoms, site.tops[0], **held)
        return
    half = (size - 1) // 2
    squares = graph.node("Mul", [site.bottoms[0], site.bottoms[0]])
    means = average(graph, squares, shape, (shape[2:], (size, size), (1, 1), (half, half)))
    power = graph.node("Pow", [affine(graph, means, param.alpha, 1), graph.number(-param.beta)])
    graph.node("Mul", [site.bottoms[0], power], site.tops[0])


def mvn(graph: Graph, site: Site) -> None:
    """Each channel of each sample (or each sample) less its mean, over its deviation; the top has four axes."""
    param, shape, bottom = site.layer.mvn_param, site.shapes[0], site.bottoms[0]
    if len(shape) < 4:
        bottom = graph.reshape(bottom, shape, (*shape, 1, 1, 1, 1)[:4])
    axes = list(range(1 if param.across_channels else 2, 4))
    mean = graph.node("ReduceMean", [bottom], axes=axes)
    if not param.normalize_variance:
        graph.node("Sub", [bottom, mean], site.tops[0])
        return
    centred = graph.node("Sub", [bottom, mean])
    variance = graph.node("ReduceMean", [graph.node("Mul", [centred, centred])], axes=axes)
    spread = graph.node("Add", [graph.node("Sqrt", [variance]), graph.number(param.eps)])
    graph.node("Div", [centred, spread], site.tops[0])


def normalize(graph: Graph, site: Site) -> None:
    """s·x/√(Σx² + eps), over channels or the whole sample."""
    param, rank = site.layer.norm_param, len(site.shapes[0])
    axes = list(range(1, rank)) if param.across_spatial else [1]
    squares = graph.node("ReduceSumSquare", site.bottoms, axes=axes)
    norm = graph.node("Sqrt", [affine(graph, squares, 1, param.eps)])
    factor = graph.constant(site.blobs[0].reshape(-1, *[1] * (rank - 2)), site.named("weight"))
    graph.node("Mul", [graph.node("Div", [site.bottoms[0], norm]), factor], site.tops[0])

"""Convolutions, inner products and poolings in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from caffe_on_grid.engine.api import Array
from caffe_on_grid.engine.export.onnx_graph import Graph, Shape, Site
from caffe_on_grid.proto import schema
from caffe_on_grid.proto.shapes_base import axis_of
from caffe_on_grid.proto.shapes_windows import grid_of, pooling_of

_POOL = schema.ENUMS["PoolingParameter.PoolMethod"]


def convolution(graph: Graph, site: Site) -> None:
    """Conv, with the weights shared by all bottoms."""
    _convolved(graph, site, "Conv", site.layer.convolution_param.group)


def depthwise(graph: Graph, site: Site) -> None:
    """Conv with a group for each channel."""
    _convolved(graph, site, "Conv", site.shapes[0][1])


def deconvolution(graph: Graph, site: Site) -> None:
    """ConvTranspose, whose weights lie as Caffe's do."""
    _convolved(graph, site, "ConvTranspose", site.layer.convolution_param.group)


def _convolved(graph: Graph, site: Site, op: str, group: int) -> None:
    grid = grid_of(site.layer.convolution_param, site.shapes[0])
    site.need(grid.channel == 1, f"its channels are axis {grid.channel}, ONNX has them on axis 1")
    sizes = zip(site.shapes[0][2:], grid.pad, grid.extents)
    site.need(op != "Conv" or all(n + 2 * p >= e for n, p, e in sizes), "the window is larger than its input")
    held = [graph.constant(values, site.named(name)) for name, values in zip(("weight", "bias"), site.blobs)]
    for bottom, top in zip(site.bottoms, site.tops):
        graph.node(
            op,
            [bottom, *held],
            top,
            group=group,
            kernel_shape=grid.kernel,
            strides=grid.stride,
            pads=[*grid.pad, *grid.pad],
            dilations=grid.dilation,
        )


def inner_product(graph: Graph, site: Site) -> None:
    """Gemm over the axes from 1 on; over later ones a product of the rows."""
    param, shape = site.layer.inner_product_param, site.shapes[0]
    axis = axis_of(param.axis, shape)
    if axis == 1:
        flat = site.bottoms[0] if len(shape) == 2 else graph.node("Flatten", [site.bottoms[0]], axis=1)
        held = [graph.constant(values, site.named(name)) for name, values in zip(("weight", "bias"), site.blobs)]
        graph.node("Gemm", [flat, *held], site.tops[0], transB=int(not param.transpose))
        return
    graph.fixed(axis)
    weight = site.blobs[0] if param.transpose else site.blobs[0].T
    rows = graph.reshape(site.bottoms[0], shape, (*shape[:axis], weight.shape[0]))
    product = [rows, graph.constant(weight, site.named("weight"))]
    if len(site.blobs) == 1:
        graph.node("MatMul", product, site.tops[0])
    else:
        bias = graph.constant(site.blobs[1], site.named("bias"))
        graph.node("Add", [graph.node("MatMul", product), bias], site.tops[0])


def embed(graph: Graph, site: Site) -> None:
    """Gather of the table's rows."""
    ids = graph.cast(site.bottoms[0], TensorProto.INT64)
    table = graph.constant(site.blobs[0], site.named("weight"))
    if len(site.blobs) == 1:
        graph.node("Gather", [table, ids], site.tops[0])
    else:
        bias = graph.constant(site.blobs[1], site.named("bias"))
        graph.node("Add", [graph.node("Gather", [table, ids]), bias], site.tops[0])


def pooling(graph: Graph, site: Site) -> None:
    """MaxPool or AveragePool with Caffe's rounding, as padding after the end, and its divisor."""
    param, shape = site.layer.pooling_param, site.shapes[0]
    site.need(param.pool in (_POOL["MAX"], _POOL["AVE"]), "STOCHASTIC pooling has no form in ONNX")
    site.need(len(site.tops) == 1, "the mask (second top) has another form in ONNX")
    largest = param.pool == _POOL["MAX"]
    if param.global_pooling:
        graph.node("GlobalMaxPool" if largest else "GlobalAveragePool", site.bottoms, site.tops[0])
        return
    kernel, stride, pad = pooling_of(param, shape)
    out = site.made[0][2:]
    inside = all((o - 1) * s < n + p for o, s, n, p in zip(out, stride, shape[2:], pad))
    site.need(inside, "a window begins beyond its input")
    if largest:
        graph.node("MaxPool", site.bottoms, to=site.tops[0], **_windows(shape, out, kernel, stride, pad))
    else:
        average(graph, site.bottoms[0], shape, (out, kernel, stride, pad), site.tops[0])


def _windows(shape: Shape, out: Shape, kernel: Shape, stride: Shape, pad: Shape) -> dict[str, Any]:
    """Attributes of a pooling that makes exactly `out`: what is missing at the end is padded."""
    after = [max(0, (o - 1) * s + k - n - p) for o, s, k, n, p in zip(out, stride, kernel, shape[2:], pad)]
    return {"kernel_shape": kernel, "strides": stride, "pads": [*pad, *after]}


def average(graph: Graph, value: str, shape: Shape, windows: tuple[Shape, Shape, Shape, Shape], to: str = "") -> str:
    """Means over windows (out, kernel, stride, pad) of an image: Caffe counts the padding, but not beyond it."""
    out, kernel, stride, pad = windows
    attributes = _windows(shape, out, kernel, stride, pad)
    factor = _factor(shape, windows)
    if np.all(factor == 1):
        return graph.node("AveragePool", [value], to, count_include_pad=1, **attributes)
    means = graph.node("AveragePool", [value], count_include_pad=1, **attributes)
    return graph.node("Mul", [means, graph.constant(factor)], to)


def _factor(shape: Shape, windows: tuple[Shape, Shape, Shape, Shape]) -> Array:
    """Values of a whole window over those that Caffe divides by, (1, 1, height, width)."""
    lengths = []
    for o, k, s, p, n in zip(*windows, shape[2:]):
        start = np.arange(o) * s - p
        lengths.append(k / (np.minimum(start + k, n + p) - start))
    return np.asarray(np.outer(*lengths)[None, None], np.float32)

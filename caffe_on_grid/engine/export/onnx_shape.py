"""Layers that move values in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from caffe_on_grid.engine.export.onnx_elementwise import affine
from caffe_on_grid.engine.export.onnx_graph import Graph, Site
from caffe_on_grid.proto import schema
from caffe_on_grid.proto.shapes_base import axis_of, axis_or_dim, count

_REDUCE = {
    schema.ENUMS["ReductionParameter.ReductionOp"][name]: op
    for name, op in (("SUM", "ReduceSum"), ("ASUM", "ReduceL1"), ("SUMSQ", "ReduceSumSquare"), ("MEAN", "ReduceMean"))
}


def reshaped(graph: Graph, site: Site) -> None:
    """Flatten and Reshape: the top's shape is known."""
    graph.reshape(site.bottoms[0], site.shapes[0], site.made[0], site.tops[0])


def concat(graph: Graph, site: Site) -> None:
    """Concat along its axis."""
    axis = axis_or_dim(site.layer.concat_param, "concat_dim", site.shapes[0])
    graph.fixed(axis)
    graph.node("Concat", site.bottoms, site.tops[0], axis=axis)


def sliced(graph: Graph, site: Site) -> None:
    """Split into the tops' sizes."""
    axis = axis_or_dim(site.layer.slice_param, "slice_dim", site.shapes[0])
    graph.fixed(axis)
    if len(site.tops) == 1:
        graph.node("Identity", site.bottoms, site.tops[0])
        return
    sizes = graph.integers([shape[axis] for shape in site.made])
    graph.nodes_of("Split", [site.bottoms[0], sizes], site.tops, axis=axis)


def permute(graph: Graph, site: Site) -> None:
    """Transpose; axes that are not named follow in their order."""
    given = list(site.layer.permute_param.order)
    order = given + [axis for axis in range(len(site.shapes[0])) if axis not in given]
    graph.any_batch = graph.any_batch and order[0] == 0
    graph.node("Transpose", site.bottoms, site.tops[0], perm=order)


def crop(graph: Graph, site: Site) -> None:
    """Slice of bottom 0 with bottom 1's sizes."""
    param, shape, wanted = site.layer.crop_param, site.shapes[0], site.made[0]
    start = axis_of(param.axis, shape)
    graph.fixed(start)
    axes = range(start, len(shape))
    given = list(param.offset) or [0]
    offsets = given * len(axes) if len(given) == 1 else given
    ends = [offset + wanted[axis] for axis, offset in zip(axes, offsets)]
    bounds: list[Sequence[int]] = [offsets, ends, axes]
    graph.node("Slice", [site.bottoms[0], *map(graph.integers, bounds)], site.tops[0])


def tile(graph: Graph, site: Site) -> None:
    """Tile along one axis."""
    axis = axis_of(site.layer.tile_param.axis, site.shapes[0])
    graph.fixed(axis)
    repeats = [site.layer.tile_param.tiles if at == axis else 1 for at in range(len(site.shapes[0]))]
    graph.node("Tile", [*site.bottoms, graph.integers(repeats)], site.tops[0])


def reduction(graph: Graph, site: Site) -> None:
    """Sums or means over the axes from `axis` on, times coeff."""
    param, shape = site.layer.reduction_param, site.shapes[0]
    axis = axis_of(param.axis, shape)
    graph.fixed(axis)
    op, axes = _REDUCE[param.operation], list(range(axis, len(shape)))
    if op == "ReduceSum":  # its axes are an input since version 13
        value = graph.node(op, [*site.bottoms, graph.integers(axes)], keepdims=0)
    else:
        value = graph.node(op, site.bottoms, axes=axes, keepdims=0)
    graph.node("Identity", [affine(graph, value, param.coeff, 0)], site.tops[0])


def arg_max(graph: Graph, site: Site) -> None:
    """ArgMax; a tie goes to the larger index, as in Caffe."""
    param, shape = site.layer.argmax_param, site.shapes[0]
    site.need(param.top_k == 1 and not param.out_max_val, "only top_k: 1 without out_max_val has a form in ONNX")
    value, axis = site.bottoms[0], 1
    if param.HasField("axis"):
        axis = axis_of(param.axis, shape)
        graph.fixed(axis)
    else:
        value = graph.reshape(value, shape, (shape[0], count(shape[1:])))
    index = graph.node("ArgMax", [value], axis=axis, keepdims=1, select_last_index=1)
    if param.HasField("axis"):
        graph.cast(index, TensorProto.FLOAT, site.tops[0])
    else:
        graph.reshape(graph.cast(index, TensorProto.FLOAT), (shape[0], 1), site.made[0], site.tops[0])


def shuffle(graph: Graph, site: Site) -> None:
    """Channels (group, C/group) transposed."""
    (n, c, *rest), group = site.shapes[0], site.layer.shuffle_channel_param.group
    apart = (n, group, c // group, count(rest))
    split = graph.reshape(site.bottoms[0], site.shapes[0], apart)
    turned = graph.node("Transpose", [split], perm=[0, 2, 1, 3])
    graph.reshape(turned, (n, apart[2], group, apart[3]), site.made[0], site.tops[0])


def interp(graph: Graph, site: Site) -> None:
    """Resize, bilinear with aligned corners."""
    param, value = site.layer.interp_param, site.bottoms[0]
    if param.pad_beg or param.pad_end:
        ends = [n + param.pad_end for n in site.shapes[0][2:]]
        bounds: list[Sequence[int]] = [[-param.pad_beg] * 2, ends, [2, 3]]
        value = graph.node("Slice", [value, *map(graph.integers, bounds)])
    ahead = graph.node("Shape", [value], end=2)
    sizes = graph.node("Concat", [ahead, graph.integers(site.made[0][2:])], axis=0)
    how = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    graph.node("Resize", [value, "", "", sizes], site.tops[0], **how)


def parameter(graph: Graph, site: Site) -> None:
    """A constant."""
    graph.any_batch = False
    graph.node("Identity", [graph.constant(site.blobs[0], site.named("weight"))], site.tops[0])

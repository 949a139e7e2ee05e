"""Shapes of layers that move values about: Concat, Slice, Reshape, Crop and their like."""

from __future__ import annotations

from caffe_on_grid.proto.shapes_base import (
    Given,
    Made,
    Rule,
    Shape,
    axis_of,
    axis_or_dim,
    count,
    need,
    shown,
)


def _concat(given: Given) -> Made:
    shape = given.first
    axis = axis_or_dim(given.layer.concat_param, "concat_dim", shape)
    for at, other in enumerate(given.bottoms):
        need(len(other) == len(shape), f"all bottoms must have as many axes as bottom 0, and bottom {at} has not")
        fits = all(a == b for i, (a, b) in enumerate(zip(shape, other)) if i != axis)
        need(fits, f"all bottoms must be equal but for axis {axis}, and bottom {at} differs from bottom 0")
    return Made(((*shape[:axis], sum(other[axis] for other in given.bottoms), *shape[axis + 1 :]),))


def _slice(given: Given) -> Made:
    shape, param = given.first, given.layer.slice_param
    axis = axis_or_dim(param, "slice_dim", shape)
    sizes = _pieces(shape[axis], list(param.slice_point), given.tops)
    return Made(tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes))


def _pieces(size: int, points: list[int], tops: int) -> list[int]:
    if not points:
        need(size % tops == 0, f"{tops} tops must divide the axis of {size} evenly, or slice_point must be given")
        return [size // tops] * tops
    need(len(points) == tops - 1, f"{len(points)} slice_point for {tops} tops, which need {tops - 1}")
    need(tops <= size, f"{tops} tops must not be more than the axis' {size}")
    edges = [0, *points, size]
    pieces = [b - a for a, b in zip(edges, edges[1:])]
    need(min(pieces[:-1]) > 0, f"slice_point must rise from above 0: {points}")
    need(pieces[-1] >= 0, f"slice_point {points[-1]} is beyond the axis of {size}")
    return pieces


def _split(given: Given) -> Made:
    return Made((given.first,) * given.tops)


def _flatten(given: Given) -> Made:
    shape, param = given.first, given.layer.flatten_param
    first, last = axis_of(param.axis, shape), axis_of(param.end_axis, shape, "end_axis")
    need(first <= last + 1, f"axis {first} must not be after end_axis {last}")
    return Made(((*shape[:first], count(shape[first : last + 1]), *shape[last + 1 :]),))


def _reshape(given: Given) -> Made:
    shape, param = given.first, given.layer.reshape_param
    dims = list(param.shape.dim)
    need(dims.count(-1) <= 1, "at most one dim may be -1")
    first = param.axis if param.axis >= 0 else len(shape) + param.axis + 1
    need(0 <= first <= len(shape), f"axis {param.axis} must be within the {len(shape)} axes, or just after")
    need(param.num_axes >= -1, "num_axes must be >= 0, or -1 for all that follow")
    last = len(shape) if param.num_axes == -1 else first + param.num_axes
    need(last <= len(shape), f"axis {first} + num_axes {param.num_axes} is beyond the {len(shape)} axes")
    made = [_copied(dim, shape, first + at) for at, dim in enumerate(dims)]
    around = count(shape[:first]) * count(shape[last:])
    if -1 in made:
        made[made.index(-1)] = _inferred(count(shape), around * -count(made))
    top = (*shape[:first], *made, *shape[last:])
    need(all(n >= 0 for n in top), f"the dims {shown(top)} must not be negative")
    need(count(top) == count(shape), f"{shown(top)} holds {count(top)} values, and the input {count(shape)}")
    return Made((top,))


def _copied(dim: int, shape: Shape, axis: int) -> int:
    """A dim of 0 is the input's at the same place."""
    need(dim != 0 or axis < len(shape), f"dim 0 copies axis {axis}, and the input has {len(shape)} axes")
    return int(shape[axis] if dim == 0 else dim)


def _inferred(values: int, explicit: int) -> int:
    need(explicit > 0 and values % explicit == 0, f"{values} values must be a multiple of the other dims, {explicit}")
    return values // explicit


def _crop(given: Given) -> Made:
    shape, wanted = given.bottoms
    axis = axis_of(given.layer.crop_param.axis, shape)
    offsets = _offsets(list(given.layer.crop_param.offset), len(shape) - axis)
    need(len(wanted) >= len(shape), f"bottom 1 must have the {len(shape)} axes of bottom 0, not {len(wanted)}")
    for i, offset in zip(range(axis, len(shape)), offsets):
        fits = shape[i] - offset >= wanted[i]
        need(fits, f"the crop of axis {i} is out of bounds: offset {offset} + size {wanted[i]} > {shape[i]}")
    return Made(((*shape[:axis], *wanted[axis : len(shape)]),))


def _offsets(given: list[int], axes: int) -> list[int]:
    need(len(given) in (0, 1, axes), f"{len(given)} offset for {axes} cropped axes: give none, one, or one for each")
    return (given or [0]) * axes if len(given) < 2 else given


def _tile(given: Given) -> Made:
    shape, param = given.first, given.layer.tile_param
    axis = axis_of(param.axis, shape)
    need(param.HasField("tiles"), "the number of tiles must be given")
    need(param.tiles > 0, f"tiles must be > 0, not {param.tiles}")
    return Made(((*shape[:axis], shape[axis] * param.tiles, *shape[axis + 1 :]),))


def _reduction(given: Given) -> Made:
    axis = axis_of(given.layer.reduction_param.axis, given.first)
    return Made((given.first[:axis],), buffers=count(given.first[axis:]))


def _argmax(given: Given) -> Made:
    shape, param = given.first, given.layer.argmax_param
    need(param.top_k >= 1, "top_k must be >= 1")
    if param.HasField("axis"):
        axis = axis_of(param.axis, shape)
        need(param.top_k <= shape[axis], f"top_k {param.top_k} must be <= the {shape[axis]} values of axis {axis}")
        return Made(((*shape[:axis], param.top_k, *shape[axis + 1 :]),))
    need(len(shape) > 0, "the input must have at least one axis")
    need(param.top_k <= count(shape[1:]), f"top_k {param.top_k} must be <= the {count(shape[1:])} values of an item")
    top = [1] * max(3, len(shape))
    top[0], top[1], top[2] = shape[0], 2 if param.out_max_val else 1, param.top_k
    return Made((tuple(top),))


def _batch_reindex(given: Given) -> Made:
    shape, index = given.bottoms
    need(len(index) == 1, f"bottom 1 (the index) must have one axis, not {len(index)}")
    need(len(shape) > 0, "bottom 0 must have at least one axis")
    return Made(((index[0], *shape[1:]),))


def _filter(given: Given) -> Made:
    *bottoms, selector = given.bottoms
    need(given.tops == len(bottoms), f"{given.tops} tops for {len(bottoms)} bottoms and a selector")
    need(len(selector) > 0, "the selector (the last bottom) must have at least one axis")
    need(set(selector[1:]) <= {1}, "the selector's axes must be 1, but for the first")
    for at, shape in enumerate(bottoms):
        fits = len(shape) > 0 and shape[0] == selector[0]
        need(fits, f"bottom {at} must have the selector's {selector[0]} items")
    return Made(tuple(bottoms), buffers=selector[0])


def _nothing(given: Given) -> Made:
    return Made(())


RULES: dict[str, Rule] = {
    "ArgMax": Rule(_argmax, backward=False),
    "BatchReindex": Rule(_batch_reindex, (2, 2)),
    "Concat": Rule(_concat, (1, None)),
    "Crop": Rule(_crop, (2, 2)),
    "Filter": Rule(_filter, (2, None), (1, None)),
    "Flatten": Rule(_flatten, in_place=False, shares=True),
    "HDF5Output": Rule(_nothing, (2, 2), (0, 0), backward=False),
    "Reduction": Rule(_reduction),
    "Reshape": Rule(_reshape, in_place=False, shares=True),
    "Silence": Rule(_nothing, (1, None), (0, 0)),
    "Slice": Rule(_slice, (1, 1), (1, None)),
    "Split": Rule(_split, (1, 1), (1, None), in_place=False, shares=True),
    "Tile": Rule(_tile),
}

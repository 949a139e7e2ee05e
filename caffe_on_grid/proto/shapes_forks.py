"""Shapes of the layers of forks that are met most; their sources are named with each."""

from __future__ import annotations

from typing import Any

from caffe_on_grid.proto.shapes_base import Given, Made, Rule, Shape, axis_of, count, need, planes, same, shown
from caffe_on_grid.proto.shapes_windows import convolved


def _depthwise(given: Given) -> Made:
    """A group for each channel (MobileNet's Caffe)."""
    return convolved(given, False, given.first[axis_of(given.layer.convolution_param.axis, given.first)])


def _permute(given: Given) -> Made:
    """Axes in the order given, then the others (SSD)."""
    shape, order = given.first, [int(axis) for axis in given.layer.permute_param.order]
    need(len(set(order)) == len(order), f"order {order} names an axis twice")
    need(all(axis < len(shape) for axis in order), f"order {order} must name axes of {shown(shape)}")
    order += [axis for axis in range(len(shape)) if axis not in order]
    return Made((tuple(shape[axis] for axis in order),))


def _shuffle(given: Given) -> Made:
    """Channels in groups, transposed (ShuffleNet)."""
    group, shape = given.layer.shuffle_channel_param.group, given.first
    need(len(shape) > 1, "there must be an axis of channels after the first")
    need(group > 0, "group must be > 0")
    need(shape[1] % group == 0, f"the {shape[1]} channels must be a multiple of group {group}")
    return same(given)


def _axpy(given: Given) -> Made:
    """a * x + y with a factor for each channel (SENet)."""
    factor, shape, other = given.bottoms
    fits = len(shape) > 1 and factor[:2] == shape[:2] and count(factor[2:]) == 1
    need(fits, "bottom 0 must be one factor for each channel of bottom 1")
    need(shape == other, "bottoms 1 and 2 must have one shape")
    return Made((shape,))


def _normalize(given: Given) -> Made:
    """L2 over channels, or over a whole sample, with learnt factors (SSD)."""
    need(len(given.first) > 1, "there must be an axis of channels after the first")
    factor = (1,) if given.layer.norm_param.channel_shared else (given.first[1],)
    return Made((given.first,), (factor,), buffers=2 * count(given.first))


def _interp(given: Given) -> Made:
    """Resizing with aligned corners, to a size or by whole factors (DeepLab)."""
    planes(given.first)
    param = given.layer.interp_param
    need(param.pad_beg <= 0 and param.pad_end <= 0, "pad_beg and pad_end must be <= 0 (they crop)")
    cropped = tuple(size + param.pad_beg + param.pad_end for size in given.first[2:])
    sizes = tuple(_zoomed(param, size) for size in cropped) if _by_factor(param) else (param.height, param.width)
    need(
        min(*cropped, *sizes) > 0, f"neither the input less its crop, {shown(cropped)}, nor {shown(sizes)} may be empty"
    )
    return Made(((*given.first[:2], *sizes),))


def _by_factor(param: Any) -> bool:
    given = bool(param.HasField("shrink_factor") or param.HasField("zoom_factor"))
    need(given or (param.height > 0 and param.width > 0), "it needs height and width, shrink_factor or zoom_factor")
    least = min(param.shrink_factor, param.zoom_factor)
    need(not given or least >= 1, "shrink_factor and zoom_factor must be at least 1")
    return given


def _zoomed(param: Any, size: int) -> int:
    shrunk = (size - 1) // param.shrink_factor + 1
    return int(shrunk + (shrunk - 1) * (param.zoom_factor - 1))


def _upsample(given: Given) -> Made:
    """Values put back where the mask of a pooling says (SegNet)."""
    param, shape = given.layer.upsample_param, given.first
    planes(shape)
    need(given.bottoms[1] == shape, "bottom 1 (the mask) must have the shape of bottom 0")
    scales = (param.scale_h or param.scale, param.scale_w or param.scale)
    need(min(scales) > 0, "scale must be > 0")
    trimmed = (int(param.pad_out_h), int(param.pad_out_w))
    fixed = (param.upsample_h, param.upsample_w)
    sizes: Shape = tuple(f or n * s - t for f, n, s, t in zip(fixed, shape[2:], scales, trimmed))
    return Made(((*shape[:2], *sizes),))


def _reorg(given: Given) -> Made:
    """Space to channels, or back (YOLO)."""
    param, shape = given.layer.reorg_param, given.first
    planes(shape)
    s, (n, c, h, w) = param.stride, shape
    need(s > 0, "stride must be > 0")
    need(c % (s * s) == 0, f"the {c} channels must be a multiple of stride * stride = {s * s}")
    if param.reverse:
        return Made(((n, c // (s * s), h * s, w * s),))
    need(h % s == 0 and w % s == 0, f"height and width {h}x{w} must be multiples of stride {s}")
    return Made(((n, c * s * s, h // s, w // s),))


def _prior_box(given: Given) -> Made:
    """Boxes at each place of a map, and their variances (SSD)."""
    param = given.layer.prior_box_param
    for shape in given.bottoms:
        planes(shape)
    need(len(param.min_size) > 0, "min_size must be given")
    need(min(param.min_size) > 0, f"min_size must be > 0, not {min(param.min_size):g}")
    need(len(param.max_size) in (0, len(param.min_size)), "there must be as many max_size as min_size, or none")
    wider = all(low < high for low, high in zip(param.min_size, param.max_size))
    need(wider, "each max_size must be > its min_size")
    ratios = [1.0]
    for ratio in param.aspect_ratio:
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if param.flip else [ratio]
    boxes = len(param.min_size) * len(ratios) + len(param.max_size)
    return Made(((1, 2, count(given.first[2:]) * boxes * 4),))


def _roi_pooling(given: Given) -> Made:
    """Maxima over the bins of regions (Faster R-CNN)."""
    param, (shape, regions) = given.layer.roi_pooling_param, given.bottoms
    planes(shape)
    need(count(regions[1:]) == 5, "bottom 1 (the regions) must have 5 values each")
    need(param.pooled_h > 0 and param.pooled_w > 0, "pooled_h and pooled_w must be > 0")
    top = (regions[0], shape[1], param.pooled_h, param.pooled_w)
    return Made((top,), buffers=count(top))


def _smooth_l1(given: Given) -> Made:
    """Weights inside and outside are bottoms 2 and 3 (Faster R-CNN)."""
    for at, shape in enumerate(given.bottoms):
        need(count(shape) == count(given.first), f"all bottoms must hold as many values, and bottom {at} does not")
    return Made(((),), buffers=3 * count(given.first))


_CONVOLUTION = Rule(
    _depthwise, (1, None), (1, None), pairs=True, fillers=("convolution_param", "weight_filler", "bias_filler")
)

RULES: dict[str, Rule] = {
    "Axpy": Rule(_axpy, (3, 3)),
    "ConvolutionDepthwise": _CONVOLUTION,
    "DepthwiseConvolution": _CONVOLUTION,
    "Interp": Rule(_interp),
    "Normalize": Rule(_normalize),
    "Permute": Rule(_permute),
    "PriorBox": Rule(_prior_box, (2, 2), backward=False),
    "ROIPooling": Rule(_roi_pooling, (2, 2)),
    "ReLU6": Rule(same),
    "Reorg": Rule(_reorg),
    "ShuffleChannel": Rule(_shuffle),
    "SmoothL1Loss": Rule(_smooth_l1, (2, 4), loss=True),
    "Upsample": Rule(_upsample, (2, 2)),
}

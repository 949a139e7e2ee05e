"""Shapes of sliding windows: Convolution, Deconvolution, Im2col, Pooling, SPP, LRN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from caffe_on_grid.proto import schema
from caffe_on_grid.proto.shapes_base import (
    INT_MAX,
    Given,
    Made,
    Rule,
    Shape,
    Window,
    axis_of,
    bias,
    count,
    legacy,
    need,
    planes,
    shown,
)

_POOL = schema.ENUMS["PoolingParameter.PoolMethod"]
_FLOOR = schema.ENUMS["PoolingParameter.RoundMode"]["FLOOR"]
_WITHIN = schema.ENUMS["LRNParameter.NormRegion"]["WITHIN_CHANNEL"]


@dataclass(frozen=True)
class Grid:
    """convolution_param's windows over the spatial axes of a shape."""

    channel: int
    kernel: Shape
    stride: Shape
    pad: Shape
    dilation: Shape

    @property
    def extents(self) -> Shape:
        """Values that a window covers on each axis, dilation included."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel))

    @property
    def pointwise(self) -> bool:
        """A convolution that needs no im2col."""
        return all(k == s == 1 and p == 0 for k, s, p in zip(self.kernel, self.stride, self.pad))

    def down(self, shape: Shape) -> tuple[Window, ...]:
        """The windows that Convolution and Im2col slide over `shape`."""
        sizes = shape[self.channel + 1 :]
        values = zip(sizes, self.extents, self.stride, self.pad)
        return tuple(
            Window(self.channel + 1 + i, n, e, s, p, False, _divided(n + 2 * p - e, s) + 1)
            for i, (n, e, s, p) in enumerate(values)
        )

    def up(self, shape: Shape) -> Shape:
        """The sizes that Deconvolution makes."""
        sizes = shape[self.channel + 1 :]
        return tuple(s * (n - 1) + e - 2 * p for n, e, s, p in zip(sizes, self.extents, self.stride, self.pad))


def _divided(value: int, by: int) -> int:
    """C's division, towards 0: a window a little larger than its input has an output of 1."""
    return value // by if value >= 0 else -(-value // by)


def grid_of(param: Any, shape: Shape) -> Grid:
    """The windows of a convolution_param over `shape`; raises Refused where Caffe refuses them."""
    channel = axis_of(param.axis, shape)
    spatial = len(shape) - channel - 1
    kernel = _each(param, "kernel", list(param.kernel_size), spatial, None)
    stride = _each(param, "stride", list(param.stride), spatial, 1)
    need(all(k > 0 for k in kernel), f"kernel_size must be > 0, not {shown(kernel)}")
    need(all(s > 0 for s in stride), f"stride must be > 0, not {shown(stride)}")
    pad = _each(param, "pad", list(param.pad), spatial, 0)
    dilation = _repeated("dilation", list(param.dilation), spatial, 1)
    largest = max((*kernel, *stride, *pad, *dilation), default=0)
    need(largest <= INT_MAX, f"kernel_size, stride, pad and dilation must be at most {INT_MAX}, not {largest}")
    return Grid(channel, kernel, stride, pad, dilation)


def _each(param: Any, name: str, values: Sequence[int], spatial: int, default: Optional[int]) -> Shape:
    """One value for each spatial axis, from the repeated field or the _h/_w pair."""
    plain = "kernel_size" if name == "kernel" else name
    if not (param.HasField(f"{name}_h") or param.HasField(f"{name}_w")):
        return _repeated(plain, values, spatial, default)
    need(spatial == 2, f"{name}_h and {name}_w are for 2 spatial axes, and there are {spatial}")
    need(not values, f"{plain} and {name}_h, {name}_w exclude each other")
    return (getattr(param, f"{name}_h"), getattr(param, f"{name}_w"))


def _repeated(name: str, values: Sequence[int], spatial: int, default: Optional[int]) -> Shape:
    allowed = (1, spatial) if default is not None or spatial else (0, 1)
    if default is not None and not values:
        return (default,) * spatial
    need(
        len(values) in allowed, f"{name} must be given once, or for each of {spatial} spatial axes, not {len(values)}x"
    )
    return (values[0],) * spatial if len(values) == 1 else tuple(values)


def convolved(given: Given, transposed: bool, group: Optional[int] = None) -> Made:
    """Convolution, or Deconvolution where `transposed`; `group` replaces the field's."""
    param, shape = given.layer.convolution_param, given.first
    grid = grid_of(param, shape)
    channels, outputs = shape[grid.channel], param.num_output
    groups = param.group if group is None else group
    need(outputs > 0, "num_output must be > 0")
    need(groups > 0, "group must be > 0")
    need(channels % groups == 0, f"the {channels} input channels must be a multiple of group {groups}")
    need(outputs % groups == 0, f"num_output {outputs} must be a multiple of group {groups}")
    for at, other in enumerate(given.bottoms):
        need(other == shape, f"all bottoms must have one shape, and bottom {at} is {shown(other)}")
    windows = () if transposed else grid.down(shape)
    sizes = grid.up(shape) if transposed else tuple(w.out for w in windows)
    need(all(n > 0 for n in sizes), f"{_sizes(grid, shape, windows)}, and no size may be less than 1")
    top = (*shape[: grid.channel], outputs, *sizes)
    wide, narrow = (channels, outputs) if transposed else (outputs, channels)
    weight = (wide, narrow // groups, *grid.kernel)
    where = shape if transposed else top
    products = count(weight) * count(where[: grid.channel]) * count(where[grid.channel + 1 :])
    column = narrow * count(grid.kernel) * count(where[grid.channel + 1 :])
    return Made(
        tops=(top,) * len(given.bottoms),
        params=(weight, *bias(param.bias_term, (outputs,))),
        flops=2 * products * len(given.bottoms),
        buffers=(0 if grid.pointwise else column) + (count(sizes) if param.bias_term else 0),
        windows=windows,
    )


def _sizes(grid: Grid, shape: Shape, windows: tuple[Window, ...]) -> str:
    if windows:
        return "the output is " + " by ".join(w.formula() for w in windows)
    return f"the output is {shown(grid.up(shape))}: stride * (size - 1) + kernel - 2 * pad"


def _im2col(given: Given) -> Made:
    shape = given.first
    grid = grid_of(given.layer.convolution_param, shape)
    need(len(grid.kernel) >= 1, "there must be at least one spatial axis after the channels")
    windows = grid.down(shape)
    need(all(w.out > 0 for w in windows), f"{_sizes(grid, shape, windows)}, and no size may be less than 1")
    channels = shape[grid.channel] * count(grid.kernel)
    return Made(((*shape[: grid.channel], channels, *(w.out for w in windows)),), windows=windows)


def _pooled(given: Given) -> Made:
    param, shape = given.layer.pooling_param, given.first
    kernel, stride, pad = pooling_of(param, shape)
    need(all(k > 0 for k in kernel), "kernel_size must be > 0")
    need(all(s > 0 for s in stride), "stride must be > 0")
    if any(pad):
        need(param.pool in (_POOL["AVE"], _POOL["MAX"]), "pad is for MAX and AVE pooling")
        need(all(p < k for p, k in zip(pad, kernel)), f"pad {shown(pad)} must be less than the kernel {shown(kernel)}")
    planes(shape)
    limit = 2 if param.pool == _POOL["MAX"] else 1
    need(given.tops <= limit, f"{given.tops} tops: a second one (the mask) is for MAX pooling")
    up = param.round_mode != _FLOOR
    windows = tuple(
        _pool(2 + i, n, k, s, p, up, any(pad)) for i, (n, k, s, p) in enumerate(zip(shape[2:], kernel, stride, pad))
    )
    need(
        all(w.out > 0 for w in windows), " by ".join(w.formula() for w in windows) + ", and no size may be less than 1"
    )
    top = (*shape[:2], *(w.out for w in windows))
    own = 0 if given.tops > 1 or param.pool == _POOL["AVE"] else count(top)
    return Made((top,) * given.tops, buffers=own, windows=() if param.global_pooling else windows)


def pooling_of(param: Any, shape: Shape) -> tuple[Shape, Shape, Shape]:
    """Kernel, stride and pad as (height, width)."""
    pair = param.HasField("kernel_h") and param.HasField("kernel_w")
    if param.global_pooling:
        told = any(param.HasField(name) for name in ("kernel_size", "kernel_h", "kernel_w"))
        need(not told, "global_pooling: the kernel is the whole plane, so no kernel_size may be given")
    else:
        need(param.HasField("kernel_size") != pair, "the kernel is kernel_size, or kernel_h and kernel_w")
    single = (param.kernel_size,) * 2 if param.HasField("kernel_size") else (param.kernel_h, param.kernel_w)
    kernel = legacy(shape, 0)[2:] if param.global_pooling else single
    stride, pad = _pair(param, "stride"), _pair(param, "pad")
    if param.global_pooling:
        need(stride == (1, 1) and pad == (0, 0), "global_pooling goes with stride 1 and pad 0 only")
    return kernel, stride, pad


def _pair(param: Any, name: str) -> Shape:
    tall, wide = param.HasField(f"{name}_h"), param.HasField(f"{name}_w")
    need(not ((tall or wide) and param.HasField(name)), f"{name} and {name}_h, {name}_w exclude each other")
    need(tall == wide, f"{name}_h and {name}_w are needed together")
    return (getattr(param, f"{name}_h"), getattr(param, f"{name}_w")) if tall else (getattr(param, name),) * 2


def _pool(axis: int, size: int, kernel: int, stride: int, pad: int, up: bool, padded: bool) -> Window:
    """Caffe's pooled size: rounded up, less a window that would begin in the padding after the plane."""
    reach = size + 2 * pad - kernel
    out = (-(-reach // stride) if up else reach // stride) + 1
    if padded and (out - 1) * stride >= size + pad:
        out -= 1
    need(not padded or (out - 1) * stride < size + pad, f"the last window begins after the padded plane of size {size}")
    return Window(axis, size, kernel, stride, pad, up, out)


def _pyramid(given: Given) -> Made:
    height, shape = given.layer.spp_param.pyramid_height, given.first
    need(height > 0, "pyramid_height must be > 0")
    need(min(legacy(shape, 0)[2:]) > 0, "height and width must be > 0")
    planes(shape)
    levels = [_level(shape, 2**level) for level in range(height)]
    if height == 1:
        return Made((levels[0],))
    flat = [count(level[1:]) for level in levels]
    return Made(((shape[0], sum(flat)),), buffers=4 * shape[0] * sum(flat))


def _level(shape: Shape, bins: int) -> Shape:
    """Shape of the pool that makes `bins` x `bins` of each plane."""
    sizes = []
    for axis in (2, 3):
        kernel = -(-shape[axis] // bins)
        pad = (kernel * bins - shape[axis] + 1) // 2
        need(pad < kernel, f"pyramid level of {bins} bins: pad {pad} must be less than the kernel {kernel}")
        sizes.append((kernel, pad))
    padded = any(pad for _, pad in sizes)
    windows = [_pool(a, shape[a], k, k, p, True, padded) for a, (k, p) in zip((2, 3), sizes)]
    return (*shape[:2], *(w.out for w in windows))


def _lrn(given: Given) -> Made:
    param, shape = given.layer.lrn_param, given.first
    need(param.local_size % 2 == 1, f"local_size must be odd, not {param.local_size}")
    planes(shape)
    values = count(shape)
    own = 7 * values if param.norm_region == _WITHIN else values + 3 * count(shape[1:])
    return Made((shape,), buffers=own)


RULES: dict[str, Rule] = {
    "Convolution": Rule(
        lambda given: convolved(given, False),
        (1, None),
        (1, None),
        pairs=True,
        fillers=("convolution_param", "weight_filler", "bias_filler"),
    ),
    "Deconvolution": Rule(
        lambda given: convolved(given, True),
        (1, None),
        (1, None),
        pairs=True,
        fillers=("convolution_param", "weight_filler", "bias_filler"),
    ),
    "Im2col": Rule(_im2col),
    "LRN": Rule(_lrn),
    "Pooling": Rule(_pooled, (1, 1), (1, 2)),
    "SPP": Rule(_pyramid),
}

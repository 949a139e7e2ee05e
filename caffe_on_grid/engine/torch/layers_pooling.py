"""Pooling by Caffe's rounding and divisors, and SPP."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from caffe_on_grid.engine.torch.layers_base import FLT_MAX, Layer, Shape, Tops

MAX, AVE, STOCHASTIC = 0, 1, 2
Pair = tuple[int, int]


class Plan:
    """Windows of a pooling over one image size."""

    def __init__(self, size: Pair, kernel: Pair, stride: Pair, pad: Pair, floor: bool = False) -> None:
        self.size, self.kernel, self.stride, self.pad, self.floor = size, kernel, stride, pad, floor
        padded = any(pad)
        self.out: Pair = (self._out(0, padded), self._out(1, padded))
        """Caffe rounds up, and drops a last window that starts beyond the padded image only if some pad is not 0."""
        same = all(self._out(i, True) == self.out[i] for i in (0, 1))
        fits = all(2 * p <= k <= n + 2 * p for p, k, n in zip(pad, kernel, size))
        self.native = same and fits
        """Whether torch's own pooling has the same windows."""
        spans = [(self.out[i] - 1) * stride[i] + kernel[i] - pad[i] - size[i] for i in (0, 1)]
        self.margins = [pad[1], spans[1], pad[0], spans[0]]
        """What to pad by hand (left, right, top, bottom) for windows that fit exactly; negative: cut."""

    def _out(self, i: int, drop: bool) -> int:
        room = self.size[i] + 2 * self.pad[i] - self.kernel[i]
        steps = room // self.stride[i] if self.floor else -(-room // self.stride[i])
        out = steps + 1
        return out - 1 if drop and (out - 1) * self.stride[i] >= self.size[i] + self.pad[i] else out

    def divisor(self, device: torch.device) -> torch.Tensor:
        """Window sizes before clipping to the image (padding counts, the overhang does not), (1, 1, oh, ow)."""
        lengths = []
        for i in (0, 1):
            start = torch.arange(self.out[i], device=device) * self.stride[i] - self.pad[i]
            lengths.append((start + self.kernel[i]).clamp(max=self.size[i] + self.pad[i]) - start)
        return (lengths[0][:, None] * lengths[1][None, :]).float()[None, None]


def max_pool(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Maxima; the first in row-major order wins. A window outside the image gives −FLT_MAX and has no gradient."""
    if plan.native:
        return functional.max_pool2d(x, plan.kernel, plan.stride, plan.pad, 1, not plan.floor)
    padded = functional.pad(x, plan.margins, value=-FLT_MAX)
    return functional.max_pool2d(padded, plan.kernel, plan.stride)


def max_pool_mask(x: torch.Tensor, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """Maxima, and their index h·W + w in the image as float (−1 for a window outside it)."""
    padded = functional.pad(x, plan.margins, value=-FLT_MAX)
    y, index = functional.max_pool2d(padded, plan.kernel, plan.stride, return_indices=True)
    width = padded.shape[3]
    h, w = index // width - plan.pad[0], index % width - plan.pad[1]
    inside = (h >= 0) & (h < plan.size[0]) & (w >= 0) & (w < plan.size[1])
    return y, torch.where(inside, h * plan.size[1] + w, -1).to(x.dtype)


def average_pool(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Means by Caffe's divisor; a window outside the image gives NaN, as 0/0 does in Caffe."""
    if plan.native:
        return functional.avg_pool2d(x, plan.kernel, plan.stride, plan.pad, not plan.floor, True)
    padded = functional.pad(x, plan.margins)
    sums = functional.avg_pool2d(padded, plan.kernel, plan.stride, divisor_override=1)
    return sums / plan.divisor(x.device)


def stochastic_pool(x: torch.Tensor, plan: Plan, train: bool) -> torch.Tensor:
    """TRAIN: one value of the window, chosen with its share of the sum; TEST: Σa²/Σa (Caffe: on GPUs only)."""
    padded = functional.pad(x, plan.margins)
    windows = padded.unfold(2, plan.kernel[0], plan.stride[0]).unfold(3, plan.kernel[1], plan.stride[1]).flatten(4)
    sums = windows.sum(-1)
    if not train:
        return (windows * windows).sum(-1) / (sums + torch.finfo(torch.float32).tiny)
    threshold = torch.rand_like(sums) * sums
    chosen = (windows.detach().cumsum(-1) < threshold.detach()[..., None]).sum(-1, keepdim=True)
    return windows.gather(-1, chosen.clamp(max=windows.shape[-1] - 1)).squeeze(-1)


class Pooling(Layer):
    """MAX (second top: mask), AVE or STOCHASTIC over (N, C, H, W)."""

    tops = (1, 2)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Kernel, stride and pad; raises ConfigError for what Caffe refuses."""
        p = self.spec.pooling_param
        self.method = p.pool
        self.check(len(self.spec.top) == 1 or self.method == MAX, "only MAX pooling has a second top")
        sized = p.HasField("kernel_size") or (p.HasField("kernel_h") and p.HasField("kernel_w"))
        both = p.HasField("kernel_size") and (p.HasField("kernel_h") or p.HasField("kernel_w"))
        if p.global_pooling:
            any_size = p.HasField("kernel_size") or p.HasField("kernel_h") or p.HasField("kernel_w")
            self.check(not any_size, "with global_pooling: true, filter size cannot be specified")
        else:
            self.check(not both, "filter size is kernel_size OR kernel_h and kernel_w; not both")
            self.check(sized, "for non-square filters both kernel_h and kernel_w are required")
        self.kernel = self._pair("kernel_size", "kernel_h", "kernel_w")
        self.stride = self._pair("stride", "stride_h", "stride_w")
        self.pad = self._pair("pad", "pad_h", "pad_w")
        self._check_windows()

    def _pair(self, both: str, height: str, width: str) -> Pair:
        p = self.spec.pooling_param
        separate = p.HasField(height) or p.HasField(width)
        self.check(not (separate and p.HasField(both)), f"{both} OR {height} and {width}, not both")
        return (getattr(p, height), getattr(p, width)) if separate else (getattr(p, both),) * 2

    def _check_windows(self) -> None:
        if self.spec.pooling_param.global_pooling:
            self.check(self.pad == (0, 0) and self.stride == (1, 1), "with global_pooling pad must be 0 and stride 1")
            return
        self.check(min(self.kernel) > 0, "filter dimensions cannot be zero")
        self.check(min(self.stride) > 0, "stride cannot be zero")
        self.check(not any(self.pad) or self.method in (MAX, AVE), "padding only for average and max pooling")
        self.check(all(p < k for p, k in zip(self.pad, self.kernel)), "pad must be less than the kernel")

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The windows of this image size."""
        shape = shapes[0]
        self.check(len(shape) == 4, f"input must have 4 axes (num, channels, height, width), has {len(shape)}")
        size = (shape[2], shape[3])
        kernel = size if self.spec.pooling_param.global_pooling else self.kernel
        self.plan = Plan(size, kernel, self.stride, self.pad, self.spec.pooling_param.round_mode == 1)
        self.check(min(self.plan.out) > 0, f"kernel {kernel} is larger than the padded input {size}")
        self.whole = kernel == size and not any(self.pad) and self.plan.out == (1, 1)
        return [(shape[0], shape[1], *self.plan.out)] * len(self.spec.top)

    def forward(self, x: torch.Tensor) -> Tops:
        """By the method."""
        if len(self.spec.top) == 2:
            return max_pool_mask(x, self.plan)
        if self.method == MAX:
            return max_pool(x, self.plan)
        if self.method == STOCHASTIC:
            return stochastic_pool(x, self.plan, self.context.train)
        return x.mean((2, 3), keepdim=True) if self.whole else average_pool(x, self.plan)


class SPP(Layer):
    """Pyramid of poolings into 1, 4, 16 … bins, flattened and concatenated; a height of 1 is one plain pooling."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Read the height."""
        self.height = self.spec.spp_param.pyramid_height
        self.check(self.height > 0, "pyramid_height must be positive")
        self.method = self.spec.spp_param.pool

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """2^level bins each way; kernel, pad and stride as Caffe derives them."""
        n, c, h, w = self._four(shapes[0])
        self.plans = [self._level(h, w, 2**level) for level in range(self.height)]
        if self.height == 1:
            return [(n, c, *self.plans[0].out)]
        return [(n, c * sum(plan.out[0] * plan.out[1] for plan in self.plans))]

    def _four(self, shape: Shape) -> Shape:
        self.check(len(shape) == 4, f"input must have 4 axes (num, channels, height, width), has {len(shape)}")
        return shape

    def _level(self, h: int, w: int, bins: int) -> Plan:
        kernel = (-(-h // bins), -(-w // bins))
        pad = ((kernel[0] * bins - h + 1) // 2, (kernel[1] * bins - w + 1) // 2)
        fits = all(p < k for p, k in zip(pad, kernel))
        self.check(fits, f"pad {pad} is not less than kernel {kernel} at {bins} bins: pyramid_height is too large")
        return Plan((h, w), kernel, kernel, pad)

    def _pool(self, x: torch.Tensor, plan: Plan) -> torch.Tensor:
        if self.method == MAX:
            return max_pool(x, plan)
        return average_pool(x, plan) if self.method == AVE else stochastic_pool(x, plan, self.context.train)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Level by level."""
        if self.height == 1:
            return self._pool(x, self.plans[0])
        return torch.cat([self._pool(x, plan).flatten(1) for plan in self.plans], 1)

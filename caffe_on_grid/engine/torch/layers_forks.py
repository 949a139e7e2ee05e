"""Layers of well-known forks of Caffe, by their published formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from caffe_on_grid.engine.torch.layers_base import FLT_MAX, Elementwise, Layer, Shape, count
from caffe_on_grid.engine.torch.layers_labels import SCALAR
from caffe_on_grid.engine.torch.layers_loss import Loss


class ReLU6(Elementwise):
    """min(max(x, 0), 6)."""

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's relu6."""
        return functional.relu6(x)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Strictly between the bounds."""
        return dy * ((x > 0) & (x < 6))


class Permute(Layer):
    """Axes in the order given; those not named follow in their own order (SSD)."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """No axis twice."""
        given, rank = list(self.spec.permute_param.order), len(shapes[0])
        self.check(all(0 <= a < rank for a in given), f"order {given} is beyond the bottom's {rank} axes")
        self.check(len(set(given)) == len(given), f"there are duplicate orders: {given}")
        self.order = given + [a for a in range(rank) if a not in given]
        return [tuple(shapes[0][a] for a in self.order)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A copy in row-major order."""
        return x.permute(self.order).contiguous()


class ShuffleChannel(Layer):
    """Channels (group, C/group) transposed (ShuffleNet)."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The channels divide."""
        self.group = self.spec.shuffle_channel_param.group
        self.check(len(shapes[0]) >= 2, "needs a channel axis")
        self.check(shapes[0][1] % self.group == 0, f"{shapes[0][1]} channels are not a multiple of {self.group}")
        return [shapes[0]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """torch's transpose."""
        split = x.reshape(x.shape[0], self.group, x.shape[1] // self.group, count(x.shape[2:]))
        return split.transpose(1, 2).reshape(x.shape)


class Axpy(Layer):
    """a·x + y with a factor for each sample and channel (SENet); bottoms a (N, C[, 1, 1]), x, y."""

    bottoms = (3, 3)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """x and y of one shape."""
        a, x, y = shapes
        self.check(len(x) >= 2 and a[:2] == x[:2] and count(a[2:]) == 1, f"the factor must be {x[:2]}, is {a}")
        self.check(x == y, f"x {x} and y {y} differ")
        return [x]

    def forward(self, a: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One fused operation."""
        return torch.addcmul(y, a.reshape(*x.shape[:2], *[1] * (x.dim() - 2)), x)


class Interp(Layer):
    """Bilinear resizing with aligned corners: to height × width, or by zoom and shrink factors (DeepLab, PSPNet)."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """pad_beg and pad_end are 0 or negative: they crop."""
        p, shape = self.spec.interp_param, shapes[0]
        self.check(len(shape) == 4, f"input must have 4 axes, has {len(shape)}")
        self.check(p.pad_beg <= 0 and p.pad_end <= 0, "only supports non-positive padding (cropping)")
        self.pads = [p.pad_beg, p.pad_end] * 2
        sizes = [n + p.pad_beg + p.pad_end for n in shape[2:]]
        self.check(min(sizes) > 0, f"nothing is left of {shape[2:]}")
        self.out = self._out(sizes)
        return [(*shape[:2], *self.out)]

    def _out(self, sizes: list[int]) -> tuple[int, int]:
        p = self.spec.interp_param
        zoom, shrink = p.HasField("zoom_factor"), p.HasField("shrink_factor")
        if not (zoom or shrink):
            self.check(p.height > 0 and p.width > 0, "needs height and width, zoom_factor or shrink_factor")
            return p.height, p.width
        self.check(p.zoom_factor >= 1 and p.shrink_factor >= 1, "zoom_factor and shrink_factor must be at least 1")
        shrunk = [(n - 1) // p.shrink_factor + 1 for n in sizes]
        height, width = (n + (n - 1) * (p.zoom_factor - 1) for n in shrunk)
        return height, width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """torch's bilinear interpolation."""
        if any(self.pads):
            x = functional.pad(x, self.pads)
        return functional.interpolate(x, self.out, mode="bilinear", align_corners=True)


class Upsample(Layer):
    """Each value at the place that the pooling mask (bottom 1) gives, zeros elsewhere (SegNet)."""

    bottoms = (2, 2)
    not_forced = frozenset({1})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """upsample_h × upsample_w, or the scale less pad_out."""
        p, shape = self.spec.upsample_param, shapes[0]
        self.check(len(shape) == 4 and shapes[1] == shape, f"bottom {shape} and mask {shapes[1]} must be alike, 4 axes")
        scales = (p.scale_h or p.scale, p.scale_w or p.scale)
        given = (p.upsample_h, p.upsample_w)
        trimmed = (p.pad_out_h, p.pad_out_w)
        h, w = (g or n * s - int(t) for g, n, s, t in zip(given, shape[2:], scales, trimmed))
        self.out = (*shape[:2], h, w)
        return [self.out]

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Raises DataError for a place outside the top."""
        size = self.out[2] * self.out[3]
        places = self.labels(mask, size, what="mask").flatten(2)
        return x.new_zeros(*self.out[:2], size).scatter(2, places, x.flatten(2)).view(self.out)


class Reorg(Layer):
    """Space to channels as darknet does it, in its own memory order (YOLO); `reverse`: channels to space."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """(N, C·s², H/s, W/s), or the inverse."""
        p, shape = self.spec.reorg_param, shapes[0]
        self.check(len(shape) == 4, f"input must have 4 axes, has {len(shape)}")
        s, (n, c, h, w) = p.stride, shape
        self.check(c % (s * s) == 0, f"{c} channels are not a multiple of stride² = {s * s}")
        if p.reverse:
            self.out = (n, c // (s * s), h * s, w * s)
        else:
            self.check(h % s == 0 and w % s == 0, f"{h}×{w} is not a multiple of stride {s}")
            self.out = (n, c * s * s, h // s, w // s)
        return [self.out]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The blob's memory read as (N, C/s², H·s, W·s)."""
        s, (n, c, h, w) = self.spec.reorg_param.stride, x.shape
        if self.spec.reorg_param.reverse:
            return x.reshape(n, s, s, c // (s * s), h, w).permute(0, 3, 4, 1, 5, 2).reshape(self.out)
        return x.reshape(n, c // (s * s), h, s, w, s).permute(0, 3, 5, 1, 2, 4).reshape(self.out)


class PriorBox(Layer):
    """Default boxes of a map (bottom 0) on an image (bottom 1) and their variances: (1, 2, H·W·priors·4) (SSD)."""

    bottoms = (2, 2)
    backward = False
    not_forced = frozenset({0, 1})

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Aspect ratios without repeats, each with its inverse if `flip`."""
        p = self.spec.prior_box_param
        self.check(len(p.min_size) > 0, "must provide min_size")
        self.check(not p.max_size or len(p.max_size) == len(p.min_size), "as many max_size as min_size are needed")
        self.check(len(p.variance) in (0, 1, 4), "must provide no, one or 4 variances")
        ratios: list[float] = [1.0]
        for ratio in p.aspect_ratio:
            if all(abs(ratio - known) >= 1e-6 for known in ratios):
                ratios += [ratio, 1 / ratio] if p.flip else [ratio]
        self.sizes = [size for at, low in enumerate(p.min_size) for size in self._sizes(at, low, ratios)]

    def _sizes(self, at: int, low: float, ratios: list[float]) -> list[tuple[float, float]]:
        """Widths and heights that come of one min_size."""
        p = self.spec.prior_box_param
        between = [math.sqrt(low * p.max_size[at])] if p.max_size else []
        others = [(low * math.sqrt(r), low / math.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
        return [(low, low), *((size, size) for size in between), *others]

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The map's sizes and the image's."""
        p, (shape, image) = self.spec.prior_box_param, shapes
        self.check(len(shape) == 4 and len(image) == 4, "both bottoms must have 4 axes")
        self.map = shape[2:]
        self.image = (p.img_h or p.img_size or image[2], p.img_w or p.img_size or image[3])
        steps = (p.step_h or p.step, p.step_w or p.step)
        self.steps = [step or side / n for step, side, n in zip(steps, self.image, self.map)]
        return [(1, 2, count(self.map) * len(self.sizes) * 4)]

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        """Corners relative to the image: xmin, ymin, xmax, ymax."""
        p, device = self.spec.prior_box_param, x.device
        ys, xs = ((torch.arange(n, device=device) + p.offset) * s for n, s in zip(self.map, self.steps))
        centres = torch.stack(torch.meshgrid(ys, xs, indexing="ij")[::-1], -1)[:, :, None]
        halves = torch.tensor(self.sizes, device=device) / 2
        sides = torch.tensor([self.image[1], self.image[0]], device=device)
        boxes = torch.cat([(centres - halves) / sides, (centres + halves) / sides], -1).reshape(-1)
        boxes = boxes.clamp(0, 1) if p.clip else boxes
        variance = list(p.variance) or [0.1]
        spread = torch.tensor(variance if len(variance) == 4 else variance * 4, device=device)
        return torch.stack([boxes, spread.repeat(boxes.numel() // 4)])[None]


class SmoothL1Loss(Loss):
    """Σ w_out·f(w_in·(a − b))/N; f(d) is σ²d²/2 where |d| < 1/σ², else |d| − 1/(2σ²) (Faster R-CNN, SSD)."""

    bottoms = (2, 4)
    not_forced = frozenset({2, 3})
    no_gradient = frozenset({2, 3})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """All alike."""
        same = all(count(s) == count(shapes[0]) for s in shapes)
        self.check(same and bool(shapes[0]), f"bottoms must be alike: {list(shapes)}")
        self.samples = shapes[0][0]
        return [SCALAR]

    def forward(self, a: torch.Tensor, b: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
        """Inside weights come third, outside weights fourth."""
        square = self.spec.smooth_l1_loss_param.sigma**2
        d = a - b.reshape(a.shape)
        if factors:
            d = d * factors[0].detach().reshape(a.shape)
        size = d.abs()
        items = torch.where(size < 1 / square, 0.5 * square * d * d, size - 0.5 / square)
        if len(factors) > 1:
            items = items * factors[1].detach().reshape(a.shape)
        return items.sum() / self.samples


class ROIPooling(Layer):
    """Maxima over pooled_h × pooled_w bins of regions (R, 5): sample, x1, y1, x2, y2 (Faster R-CNN)."""

    bottoms = (2, 2)
    not_forced = frozenset({1})
    no_gradient = frozenset({1})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """(R, C, pooled_h, pooled_w)."""
        p, (shape, regions) = self.spec.roi_pooling_param, shapes
        self.check(len(shape) == 4, f"input must have 4 axes, has {len(shape)}")
        self.check(count(regions[1:]) == 5, f"regions must be (R, 5), are {regions}")
        self.check(p.pooled_h > 0 and p.pooled_w > 0, "pooled_h and pooled_w must be > 0")
        return [(regions[0], shape[1], p.pooled_h, p.pooled_w)]

    def forward(self, x: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        """Region by region; an empty bin gives 0."""
        rows = regions.detach().reshape(-1, 5).cpu()
        samples = self.labels(rows[:, 0], x.shape[0], what="sample index").tolist()
        corners = [[_round(v * self.spec.roi_pooling_param.spatial_scale) for v in row[1:].tolist()] for row in rows]
        found = [self._region(x[n], corner) for n, corner in zip(samples, corners)]
        p = self.spec.roi_pooling_param
        return torch.stack(found) if found else x.new_zeros(0, x.shape[1], p.pooled_h, p.pooled_w)

    def _region(self, image: torch.Tensor, corner: Sequence[int]) -> torch.Tensor:
        p = self.spec.roi_pooling_param
        x1, y1, x2, y2 = corner
        across = _bins(x1, max(x2 - x1 + 1, 1), p.pooled_w, image.shape[2])
        down = _bins(y1, max(y2 - y1 + 1, 1), p.pooled_h, image.shape[1])
        bins = [self._bin(image[:, top:bottom, left:right]) for top, bottom in down for left, right in across]
        return torch.stack(bins, -1).view(-1, p.pooled_h, p.pooled_w)

    @staticmethod
    def _bin(piece: Any) -> torch.Tensor:
        if not piece.numel():
            return piece.new_zeros(piece.shape[0])
        return piece.flatten(1).clamp(min=-FLT_MAX).max(1).values


def _round(value: float) -> int:
    """Halves away from zero, as C's round."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _bins(start: int, length: int, bins: int, size: int) -> list[tuple[int, int]]:
    """Begin and end of each bin, inside 0..size."""
    step = length / bins
    edges = [(math.floor(i * step) + start, math.ceil((i + 1) * step) + start) for i in range(bins)]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]

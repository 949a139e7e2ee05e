"""BatchNorm (sums and factor), Scale, Bias, LRN, MVN, and the forks' Normalize and BN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

from caffe_on_grid.engine.torch.layers_base import Elementwise, Layer, Shape, count
from caffe_on_grid.engine.torch.layers_pooling import Plan, average_pool
from caffe_on_grid.proto import schema


class BatchNorm(Layer):
    """(x − μ)/√(σ² + eps) by the batch's statistics (TRAIN) or by the blobs mean_sum/factor, var_sum/factor.

    After a pass in batch mode factor ← f·factor + 1, mean_sum ← f·mean_sum + μ, var_sum ← f·var_sum + σ²·m/(m − 1). A
    Scale layer in place right after it is computed in the same pass (`scale`).
    """

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Three blobs, zero at first, that never learn."""
        param = self.spec.batch_norm_param
        given = param.HasField("use_global_stats")
        self.use_global: bool = param.use_global_stats if given else not self.context.train
        self.fraction: float = param.moving_average_fraction
        self.channels = self._channels(shapes[0])
        self.scale: Optional[Scale] = None
        learning = [p for p in self.spec.param if p.lr_mult != 0]
        self.check(not learning, "cannot configure batch normalization statistics as layer parameters: set lr_mult: 0")
        for shape in ((self.channels,), (self.channels,), (1,)):
            self.add_param(shape, learns=False)

    def _channels(self, shape: Shape) -> int:
        return shape[1] if len(shape) > 1 else 1

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The channels are fixed at setup."""
        found = self._channels(shapes[0])
        self.check(found == self.channels, f"{found} channels, statistics are for {self.channels}")
        self.flat = len(shapes[0]) < 2
        self.samples = count(shapes[0]) // max(self.channels, 1)
        return [shapes[0]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """torch's batch_norm, whose running statistics with momentum 1 are Caffe's addends."""
        weight, bias = (None, None) if self.scale is None else self.scale.factors()
        mean, variance = self._global() if self.use_global else torch.zeros(2, self.channels, device=x.device)
        batch, eps = not self.use_global, self.spec.batch_norm_param.eps
        if batch and self.samples == 1:
            return self._single(x)
        at = x.view(-1, 1) if self.flat else x
        y = torch.batch_norm(at, weight, bias, mean, variance, batch, 1.0, eps, x.is_cuda)
        if batch:
            self._add(mean, variance)
        return y.view(x.shape) if self.flat else y

    def _single(self, x: torch.Tensor) -> torch.Tensor:
        """One value for each channel, less itself: 0 to the last bit, where torch's batch_norm leaves rounding.

        It has no unbiased variance: there Caffe adds its biased one, 0.
        """
        mean = x.detach().reshape(-1)
        self._add(mean, torch.zeros_like(mean))
        y = x - x
        if self.scale is None:
            return y
        weight, bias = self.scale.factors()
        y = y * self.scale.laid(weight)
        return y if bias is None else y + self.scale.laid(bias)

    def _global(self) -> tuple[torch.Tensor, torch.Tensor]:
        mean, variance, factor = (p.data for p in self.params)
        share = torch.where(factor == 0, factor, 1 / factor)
        return mean * share, variance * share

    def _add(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        sums = [p.data for p in self.params]
        torch._foreach_mul_(sums, self.fraction)
        sums[0].add_(mean)
        sums[1].add_(variance)
        sums[2].add_(1)


def _span(layer: Layer, shapes: Sequence[Shape], axis: int, axes: int) -> Shape:
    """Shape of the factor that broadcasts from `axis` over `axes` axes (−1: through the last)."""
    shape = shapes[0]
    layer.check(axes >= -1, "num_axes must be non-negative, or -1 to extend to the end of the bottom")
    if axes == 0:
        return ()
    start = layer.axis(axis, len(shape))
    end = len(shape) if axes == -1 else start + axes
    layer.check(end <= len(shape), f"blob's shape {shape} extends past bottom[0]'s when applied from axis {axis}")
    return shape[start:end]


class Broadcast(Layer):
    """Shared by Scale and Bias: a factor, blob or second bottom, laid along the axes from `axis` on."""

    bottoms = (1, 2)

    def read(self, param: Any) -> None:
        """Keep the parameter message."""
        self.param = param
        self.blob = len(self.spec.bottom) == 1

    def lay(self, shapes: Sequence[Shape], factor: Shape) -> None:
        """Find the view in which the factor broadcasts; raises ConfigError where its shape does not match."""
        shape, axis = shapes[0], self.param.axis
        start = self.axis(axis, len(shape)) if factor and shape else 0
        words = f"shape {factor} does not match the bottom's {shape} from axis {axis}"
        self.check(shape[start : start + len(factor)] == factor, words)
        self.view = (*factor, *[1] * (len(shape) - start - len(factor))) if factor else ()
        self.trivial = self.view == factor

    def laid(self, factor: torch.Tensor) -> torch.Tensor:
        """The factor in that view."""
        return factor if self.trivial else factor.reshape(self.view)


class Scale(Broadcast):
    """x times a factor, plus a bias with bias_term; the factor is a blob, or the second bottom."""

    absorbed = False
    """Computed by the BatchNorm before it."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Factor (filled with 1 by default) and bias blobs."""
        self.read(self.spec.scale_param)
        p = self.param
        factor = _span(self, shapes, p.axis, p.num_axes) if self.blob else shapes[1]
        if self.blob:
            filler = p.filler if p.HasField("filler") else schema.message("FillerParameter")(value=1)
            self.add_param(factor, filler)
        if p.bias_term:
            self.add_param(factor, p.bias_filler)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The factor must match the bottom's axes."""
        self.lay(shapes, self.params[0].shape if self.blob else shapes[1])
        return [shapes[0]]

    def factors(self) -> tuple[torch.Tensor, Optional[torch.Tensor]]:
        """Factor and bias blobs."""
        return self.weights[0], self.weights[1] if len(self.weights) > 1 else None

    def forward(self, x: torch.Tensor, *other: torch.Tensor) -> torch.Tensor:
        """A product, and a sum."""
        if self.absorbed:
            return x
        blobs = self.weights if self.blob else (*other, *self.weights)
        if len(blobs) > 1:
            return torch.addcmul(self.laid(blobs[1]), x, self.laid(blobs[0]))
        return x * self.laid(blobs[0])


class Bias(Broadcast):
    """x plus a blob (filled with 0 by default), or plus the second bottom."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """The blob."""
        self.read(self.spec.bias_param)
        if self.blob:
            self.add_param(_span(self, shapes, self.param.axis, self.param.num_axes), self.param.filler)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The bias must match the bottom's axes."""
        self.lay(shapes, self.params[0].shape if self.blob else shapes[1])
        return [shapes[0]]

    def forward(self, x: torch.Tensor, *other: torch.Tensor) -> torch.Tensor:
        """A sum."""
        return x + self.laid(self.weights[0] if self.blob else other[0])


class _AcrossChannels(torch.autograd.Function):
    """x·s^−beta, s = k + alpha/n·Σ x² over a window of channels."""

    @staticmethod
    def window(x: torch.Tensor, size: int) -> torch.Tensor:
        """Means over `size` neighbouring channels, zeros beyond the ends."""
        flat = x.reshape(x.shape[0], 1, x.shape[1], count(x.shape[2:]))
        return torch.nn.functional.avg_pool2d(flat, (size, 1), 1, (size // 2, 0)).view(x.shape)

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, size: int, alpha: float, beta: float, k: float) -> torch.Tensor:
        """The mean over the window times alpha is the sum times alpha/n."""
        scale = _AcrossChannels.window(x * x, size).mul_(alpha).add_(k)
        if beta == 0.75:
            root = scale.rsqrt()
            power = root.mul_(root.sqrt())
        else:
            power = scale.pow(-beta)
        ctx.save_for_backward(x, scale, power)
        ctx.args = (size, alpha, beta)
        return x * power

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        """dy·s^−beta − 2·alpha·beta/n·x·Σ dy·y/s."""
        x, scale, power = ctx.saved_tensors
        size, alpha, beta = ctx.args
        direct = dy * power
        ratio = (direct * x).div_(scale)
        crossed = _AcrossChannels.window(ratio, size).mul_(x)
        return direct.sub_(crossed, alpha=2 * alpha * beta), None, None, None, None


class LRN(Elementwise):
    """Local response normalisation over channels, or within one (where k is 1 and alpha is not divided)."""

    keeps_top = True

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Only odd windows."""
        self.p = self.spec.lrn_param
        self.size = self.p.local_size
        self.check(self.size % 2 == 1, "LRN only supports odd values for local_size")

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Images only."""
        shape = shapes[0]
        self.check(len(shape) == 4, f"input must have 4 axes (num, channels, height, width), has {len(shape)}")
        half = (self.size - 1) // 2
        self.plan = Plan((shape[2], shape[3]), (self.size,) * 2, (1, 1), (half, half))
        return [shape]

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """By the region."""
        if self.p.norm_region == 0 and self.context.strict and self.spec.top[0] == self.spec.bottom[0]:
            return self.scales.pow(
                -2 * self.p.beta
            )  # in place, Caffe has overwritten x by the power when it multiplies
        if self.p.norm_region == 0:
            return _AcrossChannels.apply(x, self.size, self.p.alpha, self.p.beta, self.p.k)
        return x * (average_pool(x * x, self.plan) * self.p.alpha + 1).pow(-self.p.beta)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads both blobs, and the scales that it kept."""
        if self.p.norm_region == 0:
            power = self.scales.pow(-self.p.beta)
            in_place = self.spec.top[0] == self.spec.bottom[0]
            direct = power * (power if in_place else dy)
            source = direct if in_place else dy  # in place, the one has overwritten the other by then
            crossed = _AcrossChannels.window(source * y / self.scales, self.size) * x
            return direct - crossed * (2 * self.p.alpha * self.p.beta)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(self.compute(leaf), leaf, dy)[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Strict mode keeps the scales, as Caffe does."""
        if self.context.strict and self.p.norm_region == 0:
            data = x.detach()
            self.scales = _AcrossChannels.window(data * data, self.size) * self.p.alpha + self.p.k
        return super().forward(x)


class _MeanVariance(torch.autograd.Function):
    """(x − μ)/(√σ² + eps) by rows, with Caffe's own gradient (dy − mean(dy) − y·mean(dy·y))/(√σ² + eps)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, eps: float) -> torch.Tensor:
        """x is (rows, values)."""
        centred = x - x.mean(1, keepdim=True)
        spread = (centred * centred).mean(1, keepdim=True).sqrt_().add_(eps)
        y = centred.div_(spread)
        ctx.save_for_backward(y, spread)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Not autograd's where eps matters."""
        y, spread = ctx.saved_tensors
        return (dy - dy.mean(1, keepdim=True) - y * (dy * y).mean(1, keepdim=True)) / spread, None


class MVN(Elementwise):
    """Each channel of each sample (or each sample) less its mean, over its deviation unless told not to.

    The top always has four axes (num, channels, height, width): the bottom's, and 1 for each that it lacks.
    """

    keeps_top = True

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Up to four axes."""
        shape = shapes[0]
        self.check(len(shape) <= 4, f"input must have at most 4 axes (num, channels, height, width), has {len(shape)}")
        self.shape = (*shape, 1, 1, 1, 1)[:4]
        return [self.shape]

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, values): a row is what is normalised together."""
        heads = 1 if self.spec.mvn_param.across_channels else 2
        return x.reshape(count(x.shape[:heads]), count(x.shape[heads:]))

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """By rows."""
        rows = self.rows(x)
        if not self.spec.mvn_param.normalize_variance:
            return (rows - rows.mean(1, keepdim=True)).view(x.shape)
        return _MeanVariance.apply(rows, self.spec.mvn_param.eps).view(x.shape)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the top, and the deviation that it kept; in place, products overwrite the incoming gradient."""
        back, top = self.rows(dy), self.rows(y)
        centred = back - back.mean(1, keepdim=True)
        if not self.spec.mvn_param.normalize_variance:
            return centred.view(dy.shape)
        if self.spec.top[0] == self.spec.bottom[0]:
            product = top * (back * top).sum(1, keepdim=True)
            left = product + product.sum(1, keepdim=True)
            return (left * (-2 / left.shape[1]) / self.spread).view(dy.shape)
        return ((centred - top * (back * top).mean(1, keepdim=True)) / self.spread).view(dy.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Strict mode keeps the deviation, as Caffe does."""
        x = x.reshape(self.shape)
        if self.buffers is not None:
            rows = self.rows(x.detach())
            self.spread = rows.var(1, unbiased=False, keepdim=True).sqrt() + self.spec.mvn_param.eps
        return super().forward(x)


class Normalize(Layer):
    """s·x/√(Σx² + eps) over channels, or over the whole sample (SSD); s per channel or shared, filled with 1."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """The scale blob."""
        p = self.spec.norm_param
        self.check(len(shapes[0]) >= 2, "needs a channel axis")
        filler = p.scale_filler if p.HasField("scale_filler") else schema.message("FillerParameter")(value=1)
        self.add_param((1,) if p.channel_shared else (shapes[0][1],), filler)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """eps is added once to each sum."""
        p = self.spec.norm_param
        axes = tuple(range(1, x.dim())) if p.across_spatial else (1,)
        norm = ((x * x).sum(axes, keepdim=True) + p.eps).sqrt()
        return x / norm * self.weights[0].view(-1, *[1] * (x.dim() - 2))

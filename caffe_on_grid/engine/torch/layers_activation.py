"""Elementwise layers: activations, Power, Exp, Log, Clip, Threshold, Dropout, PReLU, Softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from caffe_on_grid.engine.torch.layers_base import Elementwise, Layer, Shape
from caffe_on_grid.proto import schema


class ReLU(Elementwise):
    """x, or negative_slope·x where x ≤ 0."""

    in_place_ok = True

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Read the slope."""
        self.slope: float = self.spec.relu_param.negative_slope

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """In place where the net allows it."""
        if self.slope:
            return functional.leaky_relu(x, self.slope)
        return torch.relu_(x) if self.in_place else torch.relu(x)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the bottom."""
        return torch.where(x > 0, dy, dy * self.slope)


class PReLU(Layer):
    """x, or slope_c·x where x ≤ 0; slope per channel (axis 1) or shared."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """One blob; its filler is constant 0.25 by default."""
        self.check(len(shapes[0]) >= 2, "number of axes of bottom must be at least 2")
        param = self.spec.prelu_param
        filler = param.filler if param.HasField("filler") else schema.message("FillerParameter")(value=0.25)
        self.add_param(() if param.channel_shared else (shapes[0][1],), filler)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The channels are fixed at setup."""
        shared = self.spec.prelu_param.channel_shared
        self.check(shared or self.params[0].shape == (shapes[0][1],), "channels differ from those of the slope blob")
        return [shapes[0]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """torch's prelu."""
        return functional.prelu(x, self.weights[0].reshape(-1))


class ELU(Elementwise):
    """x, or alpha·(eˣ − 1) where x ≤ 0."""

    keeps_top = True

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's elu."""
        return functional.elu(x, self.spec.elu_param.alpha)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads both blobs."""
        return torch.where(x > 0, dy, dy * (self.spec.elu_param.alpha + y))


class Sigmoid(Elementwise):
    """1/(1 + e⁻ˣ)."""

    keeps_top = True

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's sigmoid."""
        return torch.sigmoid(x)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the top."""
        return dy * y * (1 - y)


class TanH(Elementwise):
    """tanh x."""

    keeps_top = True

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's tanh."""
        return torch.tanh(x)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the top."""
        return dy * (1 - y * y)


class Swish(Elementwise):
    """x·sigmoid(beta·x)."""

    keeps_top = True

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """silu where beta is 1."""
        beta = self.spec.swish_param.beta
        if self.buffers is not None:
            self.sigmoid = torch.sigmoid(beta * x.detach())
        return functional.silu(x) if beta == 1 else x * torch.sigmoid(beta * x)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the top, and the sigmoid, which has a blob of its own."""
        inner = self.spec.swish_param.beta * y
        return dy * (inner + self.sigmoid.reshape(dy.shape) * (1 - inner))


class BNLL(Elementwise):
    """log(1 + eˣ), stable."""

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """Without overflow on either side."""
        return functional.softplus(x, threshold=40)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the bottom; the exponent is capped at 50, as in Caffe."""
        e = torch.exp(x.clamp(max=50))
        return dy * e / (e + 1)


class AbsVal(Elementwise):
    """|x|; gradient 0 at 0."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Caffe forbids it in place."""
        self.check(self.spec.top[0] != self.spec.bottom[0], "does not allow in-place computation")
        return [shapes[0]]

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's abs."""
        return torch.abs(x)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the bottom."""
        return dy * torch.sign(x)


class Power(Elementwise):
    """(shift + scale·x)^power; constant with gradient 0 where power·scale is 0."""

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """Powers 0, 1 and 2 without `pow`."""
        p = self.spec.power_param
        if p.power * p.scale == 0:
            with np.errstate(all="ignore"):  # infinite or NaN as in Caffe
                return x * 0 + (1.0 if p.power == 0 else float(np.power(np.float32(p.shift), np.float32(p.power))))
        base = x * p.scale if p.scale != 1 else x
        base = base + p.shift if p.shift else base
        if p.power == 1:
            return base
        return base * base if p.power == 2 else torch.pow(base, p.power)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """As Caffe computes it; in place, the factor has overwritten the incoming gradient by then."""
        factor = self._factor(x, y)
        return factor * (factor if self.spec.top[0] == self.spec.bottom[0] else dy)

    def _factor(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = self.spec.power_param
        slope = p.power * p.scale
        if slope == 0 or p.power == 1:
            return torch.full_like(x, slope)
        if p.power == 2:
            return slope * (p.scale * x + p.shift)
        return p.power * y / x if p.shift == 0 else slope * y / (p.scale * x + p.shift)


class Exp(Elementwise):
    """base^(shift + scale·x); base −1 is e."""

    keeps_top = True

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Check the base."""
        p = self.spec.exp_param
        self.check(p.base == -1 or p.base > 0, "base must be strictly positive or -1 (e)")
        log_base = 1.0 if p.base == -1 else math.log(p.base)
        self.inner = log_base * p.scale
        self.outer = math.exp(log_base * p.shift)

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """outer·e^(inner·x)."""
        y = torch.exp(x * self.inner if self.inner != 1 else x)
        return y * self.outer if self.outer != 1 else y

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the top."""
        return dy * y * self.inner


class Log(Elementwise):
    """log_base(shift + scale·x); base −1 is e."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Check the base."""
        p = self.spec.log_param
        self.check(p.base == -1 or p.base > 0, "base must be strictly positive or -1 (e)")
        log_base = 1.0 if p.base == -1 else math.log(p.base)
        self.check(log_base != 0, "log(base) must not be 0")
        self.factor = 1 / log_base

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """Natural logarithm, scaled; scale 0 makes a constant, whose gradient is 0 even where it is infinite."""
        p = self.spec.log_param
        if p.scale == 0:
            return x * 0 + torch.log(x.new_tensor(p.shift)) * self.factor
        return torch.log(x * p.scale + p.shift) * self.factor

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the bottom; in place, the factor has overwritten the incoming gradient by then."""
        p = self.spec.log_param
        factor = self.factor * p.scale / (x * p.scale + p.shift) if p.scale else torch.zeros_like(x)
        return factor * (factor if self.spec.top[0] == self.spec.bottom[0] else dy)


class _Clipped(torch.autograd.Function):
    """max(min, min(x, max)); the gradient passes on the bounds too, where versions of torch's clamp differ."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
        """Where low > high, low everywhere."""
        ctx.save_for_backward(x)
        ctx.bounds = float(np.nextafter(np.float32(low), -np.inf)), float(np.nextafter(np.float32(high), np.inf))
        return torch.clamp(x, low, max(low, high))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Strictly between the numbers next to the bounds, in one pass."""
        return torch.ops.aten.hardtanh_backward(dy, ctx.saved_tensors[0], *ctx.bounds), None, None


class Clip(Elementwise):
    """max(min, min(x, max)); the gradient passes on the bounds too."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Both bounds are required in a clip_param; without one they are 0."""
        p = self.spec.clip_param
        told = not self.spec.HasField("clip_param") or (p.HasField("min") and p.HasField("max"))
        self.check(told, "clip_param needs min and max")

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's clamp."""
        found: torch.Tensor = _Clipped.apply(x, self.spec.clip_param.min, self.spec.clip_param.max)
        return found

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the bottom."""
        p = self.spec.clip_param
        return dy * ((x >= p.min) & (x <= p.max))


class Threshold(Layer):
    """1 where x > threshold, else 0; no gradient."""

    backward = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A comparison."""
        return (x.detach() > self.spec.threshold_param.threshold).to(x.dtype)


class Dropout(Layer):
    """TRAIN: x·mask/(1 − ratio); TEST: x.

    On a CPU the mask is drawn from the net's stream, one draw for each value in blob order, with Caffe's bits; on a GPU
    torch's own generator gives it (Caffe's cuRAND stream there cannot be reproduced).
    """

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Check the ratio."""
        self.ratio: float = self.spec.dropout_param.dropout_ratio
        self.check(0 < self.ratio < 1, f"dropout_ratio {self.ratio:g} is not between 0 and 1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One multiplication by the scaled mask."""
        if not self.context.train:
            return x
        if x.is_cuda:
            return functional.dropout(x, self.ratio)
        kept = self.context.stream.bernoulli(x.numel(), 1.0 - self.ratio)
        mask = torch.from_numpy(kept.astype("float32")).view(x.shape)
        return x * mask.mul_(1 / (1 - self.ratio))


class Softmax(Elementwise):
    """eˣ/Σeˣ along an axis, maximum subtracted."""

    keeps_top = True

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Find the axis."""
        self.along = self.axis(self.spec.softmax_param.axis, len(shapes[0]))
        return [shapes[0]]

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """torch's softmax."""
        return torch.softmax(x, self.along)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Reads the top."""
        return (dy - (dy * y).sum(self.along, keepdim=True)) * y

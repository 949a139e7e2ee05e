"""Convolution, Deconvolution, Im2col over any number of spatial axes, and InnerProduct, Embed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from caffe_on_grid.engine.torch.layers_base import Count, Layer, Shape, count

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def filled(bottom: Any, name: str) -> Any:
    """The filler message `name`, its defaults where the net gives none (constant 0)."""
    return getattr(bottom, name)


class Windows(Layer):
    """Kernel, stride, pad and dilation per spatial axis, as `convolution_param` gives them."""

    bottoms: Count = (1, None)
    tops: Count = (1, None)

    def read_windows(self, shape: Shape) -> None:
        """From the shape of the first bottom; raises ConfigError for what Caffe refuses."""
        param = self.spec.convolution_param
        self.param = param
        self.channel_axis = self.axis(param.axis, len(shape))
        self.spatial = len(shape) - self.channel_axis - 1
        self.kernel = self._values("kernel_size", "kernel_h", "kernel_w", None)
        self.stride = self._values("stride", "stride_h", "stride_w", 1)
        self.pad = self._values("pad", "pad_h", "pad_w", 0)
        self.dilation = self._values("dilation", None, None, 1)
        self.check(all(k > 0 for k in self.kernel), "filter dimensions must be nonzero")
        self.check(all(s > 0 for s in self.stride), "stride dimensions must be nonzero")
        self.extent = tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))

    def _values(self, name: str, height: Any, width: Any, default: Any) -> tuple[int, ...]:
        """One value for each spatial axis."""
        param, axes = self.param, self.spatial
        given = [int(v) for v in getattr(param, name)]
        if height and (param.HasField(height) or param.HasField(width)):
            self.check(axes == 2, f"{height} and {width} can only be used for 2D convolution")
            self.check(not given, f"either {name} or {height}/{width} should be specified; not both")
            return int(getattr(param, height)), int(getattr(param, width))
        if not given and default is not None:
            given = [default]
        fits = len(given) in (1, axes) or (not axes and not given)
        self.check(fits, f"{name} must be specified once, or once per spatial dimension ({len(given)} for {axes})")
        return tuple(given * axes if len(given) == 1 else given)

    def windows(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Output sizes of a convolution over spatial sizes."""
        found = tuple((n + 2 * p - e) // s + 1 for n, p, e, s in zip(sizes, self.pad, self.extent, self.stride))
        self.check(all(n > 0 for n in found), f"kernel {self.kernel} does not fit the bottom's {tuple(sizes)}")
        return found

    def offsets(self, outs: Sequence[int], heads: int = 2) -> Iterator[tuple[Any, Any]]:
        """For each kernel position: its index in the weights, and that of what it meets in the padded blob.

        `heads` axes come before the spatial ones.
        """
        whole = (slice(None),) * heads
        for at in itertools.product(*map(range, self.kernel)):
            starts = [i * d for i, d in zip(at, self.dilation)]
            met = [slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, self.stride, outs)]
            yield (*whole[:2], *at), (*whole, *met)

    def padding(self) -> list[int]:
        """Both sides of each spatial axis, last axis first, as functional.pad takes it."""
        return [p for pad in reversed(self.pad) for p in (pad, pad)]


class Convolution(Windows):
    """Cross-correlation with weights (num_output, C/group, k…) and bias (num_output)."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Weight and bias blobs."""
        self.read_windows(shapes[0])
        self.channels = shapes[0][self.channel_axis]
        self.group, self.outputs = self.groups()
        self.check(self.outputs > 0, "num_output must be positive")
        self.check(
            self.channels % self.group == 0, f"{self.channels} channels are not a multiple of group {self.group}"
        )
        self.check(self.outputs % self.group == 0, "num_output should be multiples of group")
        self.add_param(self.weight_shape(), self.param.weight_filler)
        if self.param.bias_term:
            self.add_param((self.outputs,), self.param.bias_filler)
        want = self.weight_shape()
        self.check(self.params[0].shape == want, f"weight blob has shape {self.params[0].shape}, expected {want}")

    def groups(self) -> tuple[int, int]:
        """group and num_output."""
        return self.param.group, self.param.num_output

    def weight_shape(self) -> Shape:
        """Shape of the weights."""
        return (self.outputs, self.channels // self.group, *self.kernel)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """One top for each bottom; all bottoms have one shape."""
        self.check(len(shapes) == len(self.spec.top), "as many tops as bottoms are needed")
        self.check(all(s == shapes[0] for s in shapes), f"all inputs must have the same shape: {list(shapes)}")
        at = self.channel_axis
        self.check(len(shapes[0]) == at + 1 + self.spatial, "bottom num_axes may not change")
        self.check(shapes[0][at] == self.channels, f"input channels {shapes[0][at]}, weights are for {self.channels}")
        outs = self.out_sizes(shapes[0][at + 1 :])
        self.flat = at != 1 or self.spatial > 3 or self.spatial == 0
        return [(*shapes[0][:at], self.outputs, *outs)] * len(shapes)

    def out_sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Spatial sizes of the tops."""
        return self.windows(sizes)

    def forward(self, *bottoms: torch.Tensor) -> Any:
        """The same weights over each bottom."""
        if len(bottoms) == 1:
            return self._one(bottoms[0])
        return tuple(self._one(x) for x in bottoms)

    def _one(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weights[0], self.weights[1] if len(self.weights) > 1 else None
        if not self.flat:
            return self.apply(x, weight, bias)
        at = self.channel_axis
        y = self.apply_any(x.reshape(count(x.shape[:at]), *x.shape[at:]), weight, bias)
        return y.reshape(*x.shape[:at], *y.shape[1:])

    def apply(self, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        """Over (N, C, spatial…) with one to three spatial axes."""
        return _CONV[self.spatial](x, weight, bias, self.stride, self.pad, self.dilation, self.group)

    def apply_any(self, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        """Over (N, C, spatial…) with any number of spatial axes."""
        if 1 <= self.spatial <= 3:
            return self.apply(x, weight, bias)
        outs = self.windows(x.shape[2:])
        padded = functional.pad(x, self.padding())
        y: Any = 0
        for at, met in self.offsets(outs):
            y = y + self.mix(padded[met], weight[at])
        return y if bias is None else y + bias.view(-1, *[1] * self.spatial)

    def mix(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Channels of (N, C, …) mixed by (outputs, C/group), group by group."""
        split = x.reshape(x.shape[0], self.group, -1, count(x.shape[2:]))
        mixed = weight.reshape(self.group, -1, weight.shape[1]) @ split
        return mixed.reshape(x.shape[0], -1, *x.shape[2:])


class Deconvolution(Convolution):
    """The convolution's gradient with weights (C, num_output/group, k…): size s(n − 1) + d(k − 1) + 1 − 2p."""

    def weight_shape(self) -> Shape:
        """Bottom channels come first."""
        return (self.channels, self.outputs // self.group, *self.kernel)

    def out_sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The sizes whose convolution has the bottom's sizes, without output padding."""
        found = tuple(s * (n - 1) + e - 2 * p for n, s, e, p in zip(sizes, self.stride, self.extent, self.pad))
        self.check(all(n > 0 for n in found), f"pad {self.pad} leaves nothing of the top")
        return found

    def apply(self, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        """torch's transposed convolution."""
        transposed = _TRANSPOSED[self.spatial]
        return transposed(x, weight, bias, self.stride, self.pad, 0, self.group, self.dilation)

    def apply_any(self, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        """Each kernel position adds its share to the padded top."""
        if 1 <= self.spatial <= 3:
            return self.apply(x, weight, bias)
        outs = [n + 2 * p for n, p in zip(self.out_sizes(x.shape[2:]), self.pad)]
        y = x.new_zeros(x.shape[0], self.outputs, *outs)
        for at, met in self.offsets(x.shape[2:]):
            kernel = weight[at].reshape(self.group, -1, self.outputs // self.group)
            mixed = self.mix(x, kernel.transpose(1, 2).reshape(self.outputs, -1))
            y[met] += mixed
        for axis, (pad, size) in enumerate(zip(self.pad, outs), 2):
            y = y.narrow(axis, pad, size - 2 * pad)
        return y if bias is None else y + bias.view(-1, *[1] * self.spatial)


class DepthwiseConvolution(Convolution):
    """A convolution with a group for each channel (MobileNet forks); weights (num_output, 1, k…)."""

    def groups(self) -> tuple[int, int]:
        """As many groups as channels, whatever `group` says; num_output defaults to the channels."""
        return self.channels, self.param.num_output or self.channels


class Im2col(Windows):
    """The windows of a convolution laid out as channels: (N, C·k…, out…)."""

    bottoms = (1, 1)
    tops = (1, 1)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Read the windows."""
        self.read_windows(shapes[0])

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Channels times the kernel's size; spatial sizes of the convolution."""
        at = self.channel_axis
        shape = shapes[0]
        self.outs = self.windows(shape[at + 1 :])
        self.shape: Shape = (*shape[:at], shape[at] * count(self.kernel), *self.outs)
        return [self.shape]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One slice for each kernel position, stacked after the channel axis."""
        at = self.channel_axis
        padded = functional.pad(x, self.padding())
        slices = [padded[met] for _, met in self.offsets(self.outs, at + 1)]
        return torch.stack(slices, at + 1).reshape(self.shape)


class InnerProduct(Layer):
    """x·Wᵀ + b over the axes from `axis` on; W (N, K), or (K, N) with transpose."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """K is fixed here."""
        param = self.spec.inner_product_param
        self.transpose = param.transpose
        self.from_axis = self.axis(param.axis, len(shapes[0]))
        self.outputs = param.num_output
        self.inputs = count(shapes[0][self.from_axis :])
        shape = (self.inputs, self.outputs) if self.transpose else (self.outputs, self.inputs)
        self.add_param(shape, param.weight_filler)
        if param.bias_term:
            self.add_param((self.outputs,), param.bias_filler)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The axes before `axis`, and num_output."""
        self.from_axis = self.axis(self.spec.inner_product_param.axis, len(shapes[0]))
        found = count(shapes[0][self.from_axis :])
        words = f"input size incompatible with inner product parameters ({found}, weights are for {self.inputs})"
        self.check(found == self.inputs, words)
        self.head = shapes[0][: self.from_axis]
        self.rows = count(self.head)
        return [(*self.head, self.outputs)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One matrix product."""
        flat = x.reshape(self.rows, self.inputs)
        bias = self.weights[1] if len(self.weights) > 1 else None
        weight = self.weights[0].t() if self.transpose else self.weights[0]
        y = functional.linear(flat, weight, bias)
        return y if len(self.head) == 1 else y.view(*self.head, self.outputs)


class Embed(Layer):
    """Rows of a table W (input_dim, N) by index, plus a bias; the indices get no gradient."""

    no_gradient = frozenset({0})
    not_forced = frozenset({0})

    def setup(self, shapes: Sequence[Shape]) -> None:
        """The table and the bias."""
        param = self.spec.embed_param
        self.check(param.num_output > 0 and param.input_dim > 0, "num_output and input_dim must be positive")
        self.add_param((param.input_dim, param.num_output), param.weight_filler)
        if param.bias_term:
            self.add_param((param.num_output,), param.bias_filler)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The indices' shape, and num_output."""
        return [(*shapes[0], self.spec.embed_param.num_output)]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Raises DataError for an index outside the table."""
        y = functional.embedding(self.labels(ids, self.spec.embed_param.input_dim, what="index"), self.weights[0])
        return y + self.weights[1] if len(self.weights) > 1 else y

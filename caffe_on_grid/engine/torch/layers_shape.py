"""Layers that route and rearrange: Concat, Slice, Split, Flatten, Reshape, Crop, Tile, Reduction, Eltwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from caffe_on_grid.engine.torch.layers_base import Layer, Shape, Tops, count

PROD, SUM, MAX = 0, 1, 2


class Split(Layer):
    """Copies of the bottom; the gradient is the sum of theirs."""

    tops = (1, None)
    shares = True

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """As many as tops; not in place."""
        self.check(self.spec.bottom[0] not in self.spec.top, "does not allow in-place computation")
        return [shapes[0]] * len(self.spec.top)

    def forward(self, x: torch.Tensor) -> Tops:
        """The same tensor."""
        return (x,) * len(self.spec.top)


class Silence(Layer):
    """Takes blobs that nobody wants."""

    bottoms = (1, None)
    tops = (0, 0)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """No tops."""
        return []

    def forward(self, *bottoms: torch.Tensor) -> Tops:
        """Nothing."""
        return ()


class Concat(Layer):
    """Bottoms one after the other along an axis."""

    bottoms = (1, None)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """`axis`, or the old `concat_dim`."""
        p = self.spec.concat_param
        self.check(not (p.HasField("axis") and p.HasField("concat_dim")), "either axis or concat_dim; not both")
        self.shares = len(shapes) == 1

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """All other axes must agree."""
        p, first = self.spec.concat_param, shapes[0]
        self.along = self.axis(p.concat_dim if p.HasField("concat_dim") else p.axis, len(first))
        at = self.along
        for i, shape in enumerate(shapes):
            same = len(shape) == len(first) and shape[:at] == first[:at] and shape[at + 1 :] == first[at + 1 :]
            self.check(same, f"all inputs must have the same shape, except at axis {at}: bottom {i} {shape}, {first}")
        return [(*first[:at], sum(shape[at] for shape in shapes), *first[at + 1 :])]

    def forward(self, *bottoms: torch.Tensor) -> torch.Tensor:
        """torch's cat."""
        return bottoms[0] if len(bottoms) == 1 else torch.cat(bottoms, self.along)


class Slice(Layer):
    """The bottom cut along an axis at slice_points, or into even parts."""

    tops = (1, None)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """`axis`, or the old `slice_dim`."""
        p = self.spec.slice_param
        self.check(not (p.HasField("axis") and p.HasField("slice_dim")), "either axis or slice_dim; not both")
        self.shares = len(self.spec.top) == 1

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Cut points must rise strictly and stay inside."""
        p, shape = self.spec.slice_param, shapes[0]
        self.along = at = self.axis(p.slice_dim if p.HasField("slice_dim") else p.axis, len(shape))
        size, tops, points = shape[at], len(self.spec.top), list(p.slice_point)
        if points:
            self.check(len(points) == tops - 1, f"{len(points)} slice points for {tops} tops, expected {tops - 1}")
            edges = [0, *points, size]
            self.sizes = [b - a for a, b in zip(edges, edges[1:])]
            self.check(min(self.sizes) > 0, f"slice points {points} do not rise strictly within 0..{size}")
        else:
            self.check(size % tops == 0, f"number of top blobs ({tops}) should evenly divide input slice axis ({size})")
            self.sizes = [size // tops] * tops
        return [(*shape[:at], part, *shape[at + 1 :]) for part in self.sizes]

    def forward(self, x: torch.Tensor) -> Tops:
        """torch's split."""
        parts = torch.split(x, self.sizes, self.along)
        return parts if len(parts) > 1 else parts[0]


class Viewing(Layer):
    """Shared by Flatten and Reshape: the bottom's memory in another shape."""

    shares = True

    def shape(self, shape: Shape) -> Shape:
        """The top's shape."""
        raise NotImplementedError(self.type)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Not in place; as many values as before."""
        self.check(self.spec.top[0] != self.spec.bottom[0], "does not allow in-place computation")
        self.out = self.shape(shapes[0])
        words = f"output count must match input count: {shapes[0]} → {self.out}"
        self.check(count(self.out) == count(shapes[0]), words)
        return [self.out]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A view."""
        return x.reshape(self.out)


class Flatten(Viewing):
    """Axes from `axis` to `end_axis` as one."""

    def shape(self, shape: Shape) -> Shape:
        """Raises ConfigError if the axes are out of order."""
        p = self.spec.flatten_param
        start, end = self.axis(p.axis, len(shape)), self.axis(p.end_axis, len(shape), "end_axis")
        self.check(start <= end + 1, f"axis {p.axis} comes after end_axis {p.end_axis}")
        return (*shape[:start], count(shape[start : end + 1]), *shape[end + 1 :])


class Reshape(Viewing):
    """Axes from `axis` on (`num_axes` of them) replaced; 0 copies the bottom's, −1 is inferred."""

    def shape(self, shape: Shape) -> Shape:
        """Raises ConfigError for two inferred axes, or one that does not divide."""
        p, rank = self.spec.reshape_param, len(shape)
        start = p.axis if p.axis >= 0 else rank + p.axis + 1
        self.check(0 <= start <= rank, f"axis {p.axis} out of range for a blob of {rank} axes")
        self.check(p.num_axes >= -1, "num_axes must be >= 0, or -1 for all")
        end = rank if p.num_axes == -1 else start + p.num_axes
        self.check(end <= rank, f"axis {start} and num_axes {p.num_axes} reach past the {rank} axes")
        dims = list(p.shape.dim)
        self.check(dims.count(-1) <= 1, "new shape contains multiple -1 dims; at most a single (1) value of -1")
        copied = [i for i, dim in enumerate(dims) if dim == 0]
        self.check(all(start + i < rank for i in copied), "new shape contains a 0, but there is no bottom axis to copy")
        new = [shape[start + i] if dim == 0 else dim for i, dim in enumerate(dims)]
        head, tail = shape[:start], shape[end:]
        if -1 in new:
            known = count([dim for dim in new if dim != -1]) * count(head) * count(tail)
            total = count(shape)
            divides = known > 0 and total % known == 0
            self.check(divides, f"bottom count ({total}) must be divisible by the product of the other dims ({known})")
            new[new.index(-1)] = total // known
        return (*head, *new, *tail)


class Crop(Layer):
    """A piece of bottom 0 with the sizes of bottom 1 on the axes from `axis` on."""

    bottoms = (2, 2)
    not_forced = frozenset({1})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Offsets: none (0), one for all, or one for each cropped axis."""
        p, (shape, wanted) = self.spec.crop_param, shapes
        start = self.axis(p.axis, len(shape))
        self.check(len(shape) == len(wanted), f"bottoms of {len(shape)} and {len(wanted)} axes")
        axes = range(start, len(shape))
        given = list(p.offset) or [0]
        fits = len(given) in (1, len(axes))
        self.check(fits, "number of offset values specified must be equal to the number of dimensions following axis")
        offsets = given * len(axes) if len(given) == 1 else given
        self.pieces = list(zip(axes, offsets, wanted[start:]))
        for axis, offset, size in self.pieces:
            self.check(offset + size <= shape[axis], f"axis {axis}: offset {offset} + {size} is beyond {shape[axis]}")
        return [(*shape[:start], *wanted[start:])]

    def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Bottom 1 gives only sizes."""
        for axis, offset, size in self.pieces:
            x = x.narrow(axis, offset, size)
        return x.contiguous()


class Tile(Layer):
    """The bottom `tiles` times along an axis."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The axis, multiplied."""
        p, shape = self.spec.tile_param, shapes[0]
        self.check(p.HasField("tiles") and p.tiles > 0, "number of tiles must be specified and positive")
        at = self.axis(p.axis, len(shape))
        self.repeats = [p.tiles if i == at else 1 for i in range(len(shape))]
        return [(*shape[:at], shape[at] * p.tiles, *shape[at + 1 :])]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """torch's repeat."""
        return x.repeat(self.repeats)


class Reduction(Layer):
    """coeff times the SUM, ASUM, SUMSQ or MEAN over all axes from `axis` on."""

    TERMS: dict[int, Any] = {1: lambda x: x, 2: torch.abs, 3: torch.square, 4: lambda x: x}

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The axes before `axis`."""
        p, shape = self.spec.reduction_param, shapes[0]
        self.out = shape[: self.axis(p.axis, len(shape))]
        self.rows = count(self.out)
        self.values = values = count(shape[len(self.out) :])
        self.factor = p.coeff / values if p.operation == 4 and values else p.coeff
        return [self.out]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Row by row."""
        y = self.TERMS[self.spec.reduction_param.operation](x).reshape(self.rows, self.values).sum(1).view(self.out)
        return y * self.factor if self.factor != 1 else y


class _QuotientProduct(torch.autograd.Function):
    """A product whose gradient is y/x·dy, as stable_prod_grad: false asks (NaN at 0)."""

    @staticmethod
    def forward(ctx: Any, *bottoms: torch.Tensor) -> torch.Tensor:
        """The product."""
        y = bottoms[0]
        for x in bottoms[1:]:
            y = y * x
        ctx.save_for_backward(y, *bottoms)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """By quotients."""
        y, *bottoms = ctx.saved_tensors
        return tuple(y / x * dy for x in bottoms)


class Eltwise(Layer):
    """PROD, SUM (with coeff) or MAX of bottoms of one shape."""

    bottoms = (2, None)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Coefficients are for SUM, refused for PROD, and without effect for MAX."""
        p = self.spec.eltwise_param
        self.coeff = list(p.coeff)
        fits = not self.coeff or len(self.coeff) == len(shapes)
        self.check(fits, f"takes one coefficient per bottom blob ({len(self.coeff)} for {len(shapes)})")
        self.check(not self.coeff or p.operation in (SUM, MAX), "only takes coefficients for summation")
        self.plain = all(c == 1 for c in self.coeff)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """No broadcasting."""
        for i, shape in enumerate(shapes):
            words = (
                f"bottom[{i}] '{self.spec.bottom[i]}' has shape {shape}, bottom[0] '{self.spec.bottom[0]}' {shapes[0]}"
                " (pooling rounds sizes up, convolution down)"
            )
            self.check(shape == shapes[0], words)
        return [shapes[0]]

    def forward(self, *bottoms: torch.Tensor) -> torch.Tensor:
        """By the operation."""
        operation = self.spec.eltwise_param.operation
        if operation == SUM:
            return self._sum(bottoms)
        if operation == MAX:
            return self._max(bottoms)
        if not self.spec.eltwise_param.stable_prod_grad:
            return _QuotientProduct.apply(*bottoms)
        y = bottoms[0] * bottoms[1]
        for x in bottoms[2:]:
            y = y * x
        return y

    def _sum(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        if self.plain:
            y = bottoms[0] + bottoms[1]
            for x in bottoms[2:]:
                y = y + x
            return y
        y = bottoms[0] * self.coeff[0]
        for x, c in zip(bottoms[1:], self.coeff[1:]):
            y = torch.add(y, x, alpha=c)
        return y

    def _max(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        """On a tie of bottoms 0 and 1 the later wins, of further ones the earlier; one winner has all the gradient."""
        y = torch.where(bottoms[0] > bottoms[1], bottoms[0], bottoms[1])
        for x in bottoms[2:]:
            y = torch.where(x > y, x, y)
        return y

"""Layers that choose: ArgMax, BatchReindex, Filter."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from caffe_on_grid.engine.torch.layers_base import Layer, Shape, Tops, count


class ArgMax(Layer):
    """The top_k indices (or values, or both) along an axis, or over each sample; a tie goes to the largest index."""

    backward = False

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """With an axis: its size becomes top_k; without: (N, 1 or 2, top_k)."""
        p, shape = self.spec.argmax_param, shapes[0]
        self.along = self.axis(p.axis, len(shape)) if p.HasField("axis") else None
        size = count(shape[1:]) if self.along is None else shape[self.along]
        self.check(1 <= p.top_k <= size, f"top_k {p.top_k} must be within 1..{size}")
        if self.along is None:
            return [(shape[0], 2 if p.out_max_val else 1, p.top_k, *[1] * max(len(shape) - 3, 0))]
        return [(*shape[: self.along], p.top_k, *shape[self.along + 1 :])]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A stable sort of the reversed values."""
        p = self.spec.argmax_param
        along = 1 if self.along is None else self.along
        rows = x.detach().reshape(x.shape[0], count(x.shape[1:])) if self.along is None else x.detach()
        values, order = torch.sort(rows.flip(along), dim=along, descending=True, stable=True)
        values = values.narrow(along, 0, p.top_k)
        indices = (rows.shape[along] - 1 - order.narrow(along, 0, p.top_k)).to(x.dtype)
        if self.along is not None:
            return values.contiguous() if p.out_max_val else indices
        top = torch.stack([indices, values], 1) if p.out_max_val else indices[:, None]
        return top.reshape(*top.shape, *[1] * max(x.dim() - 3, 0))


class BatchReindex(Layer):
    """Samples of bottom 0 in the order that bottom 1 gives."""

    bottoms = (2, 2)
    not_forced = frozenset({1})
    no_gradient = frozenset({1})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """As many samples as indices."""
        self.check(len(shapes[1]) == 1, f"the indices must have 1 axis, have {len(shapes[1])}")
        return [(shapes[1][0], *shapes[0][1:])]

    def forward(self, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """Raises DataError for an index outside the batch."""
        return x.index_select(0, self.labels(order, x.shape[0], what="index"))


class Filter(Layer):
    """The samples of each bottom whose selector (the last bottom) is not 0: there may be none."""

    bottoms = (2, None)
    tops = (1, None)
    dynamic = True

    def setup(self, shapes: Sequence[Shape]) -> None:
        """The selector never gets a gradient."""
        self.not_forced = self.no_gradient = frozenset({len(shapes) - 1})
        self.check(len(self.spec.top) == len(shapes) - 1, "number of tops must be number of bottoms - 1")

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Before the first pass Caffe takes all samples for selected."""
        *items, selector = shapes
        self.check(all(d == 1 for d in selector[1:]), f"selector blob dimensions must be singletons: {selector}")
        self.check(
            all(s[0] == selector[0] for s in items), "each bottom should have the same 0th dimension as selector"
        )
        return [tuple(shape) for shape in items]

    def forward(self, *bottoms: torch.Tensor) -> Tops:
        """Rows by the selector."""
        chosen = bottoms[-1].detach().reshape(-1).nonzero().flatten()
        found = tuple(x.index_select(0, chosen) for x in bottoms[:-1])
        return found if len(found) > 1 else found[0]

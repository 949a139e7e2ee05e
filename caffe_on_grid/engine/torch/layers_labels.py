"""Layers over class labels, and Accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch

from caffe_on_grid.engine.torch.layers_base import Layer, Shape, Tops, count

SCALAR: Shape = ()


class Labelled(Layer):
    """Bottom 0: scores, along an axis; bottom 1: labels, one for each other position."""

    bottoms = (2, 2)
    not_forced = frozenset({1})
    no_gradient = frozenset({1})
    outer: int
    """Positions before the axis."""
    classes: int
    inner: int
    """Positions after the axis."""
    ignore: Optional[int]
    """The label that does not count."""

    def along_axis(self, shapes: Sequence[Shape], axis: int) -> None:
        """Scores along `axis`, one label for each other position."""
        self.along = self.axis(axis, len(shapes[0]))
        shape = shapes[0]
        self.outer, self.classes = count(shape[: self.along]), shape[self.along]
        self.inner = count(shape[self.along + 1 :])
        words = (
            f"number of labels must match number of predictions; e.g., if softmax axis == 1 and prediction shape is "
            f"(N, C, H, W), label count must be N*H*W ({count(shapes[1])} labels for {self.outer * self.inner})"
        )
        self.check(self.outer * self.inner == count(shapes[1]), words)

    def classed(self, labels: torch.Tensor) -> tuple[torch.Tensor, Optional[torch.Tensor]]:
        """Labels as (outer, 1, inner) indices, with a mask of those that are not ignored."""
        found = self.labels(labels, self.classes, self.ignore).view(self.outer, 1, self.inner)
        if self.ignore is None:
            return found, None
        mask = found != self.ignore
        return (found * mask).clamp_(0, self.classes - 1), mask


class Accuracy(Labelled):
    """Share of labels whose score is among the top_k; second top: the same for each class.

    A label counts as hit if fewer than top_k other scores are at least its own: a tie is a miss, NaN is a hit.
    """

    tops = (1, 2)
    backward = False
    not_forced = frozenset({0, 1})
    no_gradient = frozenset({0, 1})

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Read top_k and the ignored label."""
        p = self.spec.accuracy_param
        self.ignore = p.ignore_label if p.HasField("ignore_label") else None

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """A scalar, and one value for each class."""
        self.along_axis(shapes, self.spec.accuracy_param.axis)
        top_k = self.spec.accuracy_param.top_k
        self.check(top_k <= self.classes, "top_k must be at most the number of classes")
        return [SCALAR, (self.classes,)][: len(self.spec.top)]

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> Tops:
        """Counting."""
        labels, mask = self.classed(label)
        scores = x.detach().reshape(self.outer, self.classes, self.inner)
        better = (scores >= scores.gather(1, labels)).sum(1, keepdim=True) - 1
        hits = (better < self.spec.accuracy_param.top_k).float()
        counted = torch.ones_like(hits) if mask is None else mask.float()
        hits = hits * counted
        total = hits.sum() / counted.sum().clamp(min=1)
        return (total, self._by_class(labels, hits, counted)) if len(self.spec.top) > 1 else total

    def _by_class(self, labels: torch.Tensor, hits: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        """0 for a class without labels."""
        sums = hits.new_zeros(2, self.classes)
        sums[0].scatter_add_(0, labels.flatten(), hits.flatten())
        sums[1].scatter_add_(0, labels.flatten(), counted.flatten())
        return sums[0] / sums[1].clamp(min=1)

"""Losses, with every normalisation and ignored labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch
from torch.nn import functional

from caffe_on_grid.engine.torch.layers_base import FLT_MIN, Shape, Tops, count
from caffe_on_grid.engine.torch.layers_labels import SCALAR, Labelled
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, weights

FULL, VALID, BATCH_SIZE, NONE = 0, 1, 2, 3
Norm = Union[float, torch.Tensor]


class Loss(Labelled):
    """Bottom 0: predictions; bottom 1: labels, which get no gradient; the top is a scalar."""

    is_loss = True

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Ignored label and normalisation."""
        p = self.spec.loss_param
        self.ignore = p.ignore_label if p.HasField("ignore_label") else None
        self.normalization = self.read_normalization()

    def read_normalization(self) -> int:
        """`normalization`, else the legacy `normalize`, else VALID."""
        p = self.spec.loss_param
        if p.HasField("normalization") or not p.HasField("normalize"):
            return int(p.normalization)
        return VALID if p.normalize else BATCH_SIZE

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """A scalar; samples must agree."""
        self.check(bool(shapes[0]) and bool(shapes[1]), "both bottoms need a batch axis")
        self.check(shapes[0][0] == shapes[1][0], "the data and label should have the same first dimension")
        return [SCALAR]

    def norm(self, mask: Optional[torch.Tensor]) -> Norm:
        """What the sum is divided by: at least 1. `mask` marks the values that count (None: all)."""
        everything = self.outer * self.inner
        if self.normalization == VALID and mask is not None:
            return mask.sum().clamp(min=1)
        found = {FULL: everything, VALID: everything, BATCH_SIZE: self.outer, NONE: 1}[self.normalization]
        return max(1.0, float(found))


class _SoftmaxLoss(torch.autograd.Function):
    """−Σ log max(p, FLT_MIN)/norm; gradient (p − onehot)/norm, 0 where masked out."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, labels: torch.Tensor, mask: Any, norm: Norm) -> torch.Tensor:
        """Scores (outer, classes, inner); the top, with the log-probabilities kept."""
        logs = torch.log_softmax(scores, 1)
        items = logs.gather(1, labels).neg_().clamp_(max=-math_log(FLT_MIN))
        if mask is not None:
            items = items * mask
        ctx.save_for_backward(logs, labels, *([] if mask is None else [mask]))
        ctx.norm = norm
        return items.sum() / norm

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        """The clamp in the loss has no part in it, as in Caffe."""
        logs, labels, *mask = ctx.saved_tensors
        factor = dy / ctx.norm
        ones = factor.neg().expand(labels.shape)
        dx = torch.exp(logs).mul_(factor).scatter_add_(1, labels, ones)
        return (dx.mul_(mask[0]) if mask else dx), None, None, None


def math_log(value: float) -> float:
    """Natural logarithm in float32, as Caffe takes it."""
    return float(torch.tensor(value).log())


class SoftmaxWithLoss(Loss):
    """Softmax and logistic loss over int labels; second top: the probabilities."""

    tops = (1, 2)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Labels of any shape, as many as predictions."""
        super().reshape(shapes)
        self.along_axis(shapes, self.spec.softmax_param.axis)
        return [SCALAR, shapes[0]][: max(1, len(self.spec.top))]

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> Tops:
        """The probabilities are values only."""
        labels, mask = self.classed(label)
        scores = x.reshape(self.outer, self.classes, self.inner)
        loss = _SoftmaxLoss.apply(scores, labels, mask, self.norm(mask))
        return (loss, torch.softmax(x.detach(), self.along)) if len(self.spec.top) > 1 else loss


class _InfogainLoss(torch.autograd.Function):
    """−Σ_k H[l, k]·log max(p_k, 1e-20)/norm; gradient (p·ΣH[l] − H[l])/norm."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rows: torch.Tensor, mask: Any, norm: Norm) -> torch.Tensor:
        """Scores and rows of H are (outer, classes, inner)."""
        probabilities = torch.softmax(x, 1)
        items = rows * probabilities.clamp(min=1e-20).log()
        ctx.save_for_backward(probabilities, rows, *([] if mask is None else [mask]))
        ctx.norm = norm
        return -(items if mask is None else items * mask).sum() / norm

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        """The clamp has no part in it."""
        probabilities, rows, *mask = ctx.saved_tensors
        dx = (probabilities * rows.sum(1, keepdim=True) - rows) * (dy / ctx.norm)
        return (dx * mask[0] if mask else dx), None, None, None


class InfogainLoss(Loss):
    """Logistic loss weighted by a matrix H from the third bottom or the binaryproto `source`."""

    bottoms = (2, 3)
    tops = (1, 2)
    no_gradient = frozenset({1, 2})
    not_forced = frozenset({1, 2})

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Without a third bottom, read H."""
        super().setup(shapes)
        self.check(not self.spec.loss_param.HasField("normalize"), "normalize is deprecated; use normalization")
        self.matrix: Optional[torch.Tensor] = None
        if len(shapes) < 3:
            self.matrix = self._read(self.spec.infogain_loss_param.source)

    def _read(self, source: str) -> torch.Tensor:
        self.check(bool(source), "infogain matrix source must be specified")
        blob = schema.BlobProto()
        try:
            blob.ParseFromString(Path(source).read_bytes())
        except OSError as error:
            raise ConfigError(f"layer '{self.name}' (InfogainLoss): {source}: {error.strerror}") from error
        shape, values = weights.blob_array(blob, source)
        return torch.from_numpy(values.reshape(shape)).to(self.context.device)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """H is classes × classes, in the last two of at most four axes."""
        super().reshape(shapes)
        self.along_axis(shapes, self.spec.infogain_loss_param.axis)
        found = shapes[2] if len(shapes) > 2 else tuple(self.matrix.shape)  # type: ignore[union-attr]
        size = self.classes
        self.check(count(found) == size * size, f"infogain matrix has shape {found}, expected {size}×{size}")
        return [SCALAR, shapes[0]][: max(1, len(self.spec.top))]

    def forward(self, x: torch.Tensor, label: torch.Tensor, *given: torch.Tensor) -> Tops:
        """Rows of H by label."""
        labels, mask = self.classed(label)
        matrix = (given[0].detach() if given else self.matrix).view(self.classes, self.classes)  # type: ignore[union-attr]
        rows = matrix[labels[:, 0]].movedim(-1, 1)
        scores = x.reshape(self.outer, self.classes, self.inner)
        loss = _InfogainLoss.apply(scores, rows, mask, self.norm(mask))
        return (loss, torch.softmax(x.detach(), self.along)) if len(self.spec.top) > 1 else loss


class SigmoidCrossEntropyLoss(Loss):
    """Σ log-loss of sigmoid(x) against soft targets; normalised by BATCH_SIZE unless told otherwise."""

    def read_normalization(self) -> int:
        """The default differs from other losses'."""
        p = self.spec.loss_param
        unset = not p.HasField("normalization") and not p.HasField("normalize")
        return BATCH_SIZE if unset else super().read_normalization()

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """As many targets as inputs."""
        super().reshape(shapes)
        self.check(count(shapes[0]) == count(shapes[1]), "inputs must have the same count")
        self.outer = shapes[0][0] if shapes[0] else 1
        self.inner = count(shapes[0]) // max(self.outer, 1)
        return [SCALAR]

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """A target is ignored if its integer part is ignore_label."""
        wanted = target.detach().reshape(x.shape)
        items = functional.binary_cross_entropy_with_logits(x, wanted, reduction="none")
        if self.ignore is None:
            return items.sum() / self.norm(None)
        mask = wanted.to(torch.int64) != self.ignore
        return torch.where(mask, items, torch.zeros_like(items)).sum() / self.norm(mask)


class EuclideanLoss(Loss):
    """Σ(a − b)²/(2N); both bottoms get gradients."""

    not_forced = frozenset()
    no_gradient = frozenset()

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Samples of one size."""
        super().reshape(shapes)
        same = count(shapes[0][1:]) == count(shapes[1][1:])
        self.check(same, f"inputs must have the same dimension: {shapes[0]} and {shapes[1]}")
        self.samples = shapes[0][0]
        return [SCALAR]

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """N is the first axis, not the number of values."""
        difference = a - b.reshape(a.shape)
        return (difference * difference).sum() / (2.0 * self.samples)


class HingeLoss(Loss):
    """Σ max(0, 1 − t·x)/N (L1), or of the squares (L2); t is 1 at the label and −1 elsewhere."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """One label for each sample."""
        super().reshape(shapes)
        self.rows = shapes[0][0]
        self.check(count(shapes[1]) == self.rows, f"{count(shapes[1])} labels for {self.rows} samples")
        return [SCALAR]

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """One against all."""
        scores = x.reshape(self.rows, count(x.shape[1:]))
        labels = self.labels(label, scores.shape[1]).view(-1, 1)
        sign = torch.ones_like(scores).scatter_(1, labels, -1.0)
        margins = torch.relu(1 + sign * scores)
        items = margins if self.spec.hinge_loss_param.norm == 1 else margins * margins
        return items.sum() / self.rows


class _LogLoss(torch.autograd.Function):
    """−Σ log max(p, 1e-20)/N; gradient −1/max(p, 1e-20)/N."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Probabilities (N, classes), labels (N, 1)."""
        chosen = x.gather(1, labels).clamp(min=1e-20)
        ctx.save_for_backward(chosen, labels)
        ctx.shape = x.shape
        return -chosen.log().sum() / x.shape[0]

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Also below the clamp."""
        chosen, labels = ctx.saved_tensors
        dx = chosen.new_zeros(ctx.shape)
        return dx.scatter_(1, labels, -dy / ctx.shape[0] / chosen), None


class MultinomialLogisticLoss(HingeLoss):
    """Logistic loss of probabilities."""

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Rows are samples."""
        rows = x.reshape(self.rows, count(x.shape[1:]))
        return _LogLoss.apply(rows, self.labels(label, rows.shape[1]).view(-1, 1))


class _Contrast(torch.autograd.Function):
    """Σ over pairs of d² (similar) or max(0, margin − d)² (legacy: max(0, margin − d²)), over 2N."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, similar: Any, margin: float, legacy: bool) -> torch.Tensor:
        """a and b are (N, C), similar is (N) of bool."""
        difference = a - b
        square = (difference * difference).sum(1)
        room = (margin - (square if legacy else square.sqrt())).clamp(min=0)
        ctx.save_for_backward(difference, square, similar, room)
        ctx.legacy = legacy
        return torch.where(similar, square, room if legacy else room * room).sum() / (2.0 * a.shape[0])

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        """Caffe divides by d + 1e-4."""
        difference, square, similar, room = ctx.saved_tensors
        pull = -(room > 0).to(room.dtype) if ctx.legacy else -room / (square.sqrt() + 1e-4)
        da = torch.where(similar, torch.ones_like(pull), pull)[:, None] * difference * (dy / difference.shape[0])
        return da, -da, None, None, None


class ContrastiveLoss(Loss):
    """Pairs of samples (bottoms 0 and 1) that are similar (bottom 2 not 0) or not."""

    bottoms = (3, 3)
    not_forced = frozenset({2})
    no_gradient = frozenset({2})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """(N, C) with further axes of 1, or (N); one flag for each pair."""
        a, b, flags = shapes
        fits = bool(a) and bool(b) and count(a[2:]) == 1 and count(b[2:]) == 1
        self.check(fits, "bottoms must be (N, C, 1, 1)")
        self.check((*a, 1)[:2] == (*b, 1)[:2], f"bottoms differ: {a} and {b}")
        self.check(count(flags) == a[0], f"{count(flags)} flags for {a[0]} pairs")
        return [SCALAR]

    def forward(self, a: torch.Tensor, b: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        """Flags are cast to int, as in Caffe."""
        p = self.spec.contrastive_loss_param
        similar = flags.detach().to(torch.int64).reshape(-1) != 0
        rows = a.reshape(len(a), -1), b.reshape(len(a), -1)
        return _Contrast.apply(*rows, similar, p.margin, p.legacy_version)

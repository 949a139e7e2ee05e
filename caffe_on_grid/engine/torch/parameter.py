"""Parameter blobs of a net."""

from __future__ import annotations

from typing import Optional

import torch


class Parameter:
    """One parameter blob, shared by all layers that name it: float32 values and their gradient.

    `leaf` is the same storage under autograd: what layers compute with. `diff` is accumulated by backward passes until
    it is zeroed in place, or dropped by `clear`, after which the next backward pass gives its own tensor without a sum.
    """

    __slots__ = ("data", "decay_mult", "leaf", "learns", "lr_mult", "name")

    def __init__(self, name: str, data: torch.Tensor, learns: bool = True) -> None:
        self.name = name
        """`layer/index` of its owner."""
        self.data = data
        self.leaf = data.detach().requires_grad_()
        self.lr_mult = 1.0
        self.decay_mult = 1.0
        self.learns = learns
        """False: statistics (BatchNorm's sums), which change without gradients."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return tuple(self.data.shape)

    @property
    def diff(self) -> torch.Tensor:
        """The gradient, zero before the first backward pass; the same tensor until `clear`."""
        if self.leaf.grad is None:
            self.leaf.grad = torch.zeros_like(self.data)
        return self.leaf.grad

    def clear(self) -> None:
        """Drop the gradient."""
        self.leaf.grad = None

    def assign(self, values: torch.Tensor) -> None:
        """Copy values of the same count over the present ones."""
        self.data.copy_(values.reshape(self.data.shape))

    def owned_by(self, lr_mult: Optional[float], decay_mult: Optional[float]) -> None:
        """Take the multipliers that a `param` entry gives (None: it gives none)."""
        self.lr_mult = self.lr_mult if lr_mult is None else lr_mult
        self.decay_mult = self.decay_mult if decay_mult is None else decay_mult

"""Caffe's solvers (`caffe/solvers/*.cpp`): the same formulas in the same order, in single precision.

What Caffe computes in float is rounded to float32 here too. The blobs are updated together (`torch._foreach_*`), those
with equal multipliers in one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from caffe_on_grid.engine.native import SOLVER_TYPES
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.proto import schedule

Tensors = list[torch.Tensor]
ONE = np.float32(1)


class Solver:
    """Changes `learnable` by their gradients; `iteration`, `current_step` and `history` are what a snapshot holds."""

    def __init__(self, message: Any, learnable: Sequence[Parameter]) -> None:
        """`message`: SolverParameter; raises ConfigError for what Caffe refuses."""
        schedule.check(message)
        self.message = message
        self.learnable = list(learnable)
        self.iteration = 0
        self.current_step = 0
        copies = SOLVER_TYPES[message.type]
        self.history: Tensors = [torch.zeros_like(p.data) for _ in range(copies) for p in self.learnable]
        """One blob for each of `learnable`, then, where the rule keeps two, the second ones."""
        self._rule = RULES[message.type]
        self._groups = [self._group(members) for members in _alike(self.learnable)]

    def _group(self, members: list[int]) -> Group:
        second = members if len(self.history) == len(self.learnable) else [len(self.learnable) + i for i in members]
        return Group(
            [self.learnable[i] for i in members], [self.history[i] for i in members], [self.history[i] for i in second]
        )

    def rate(self) -> float:
        """The learning rate of the present iteration, as the update will ask for it; see `update`."""
        return schedule.learning_rate(self.message, self.iteration, self.current_step)

    def update(self) -> float:
        """One step (`ApplyUpdate`): the gradients, summed over iter_size passes, become changes; returns the rate."""
        rate = self.rate()
        self._advance()
        self._clip()
        for group in self._groups:
            self._change(group, np.float32(rate))
        self.iteration += 1
        return rate

    def _advance(self) -> None:
        """`current_step`, which Caffe moves when it asks for the rate."""
        if self.message.lr_policy == "multistep":
            self.current_step = schedule.multistep(self.message, self.iteration, self.current_step)
        elif self.message.lr_policy == "step":
            self.current_step = self.iteration // self.message.stepsize

    def _clip(self) -> None:
        """Scale the summed gradients where their L2 norm over all blobs exceeds clip_gradients."""
        limit = self.message.clip_gradients
        if limit < 0 or not self.learnable:
            return
        diffs = [p.diff for p in self.learnable]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(diffs)))
        scale = torch.where(norm > limit, limit / norm, torch.ones_like(norm))  # stays on the device
        for diff in diffs:
            diff.mul_(scale)

    def _change(self, group: Group, rate: np.float32) -> None:
        diffs, data = [p.diff for p in group.members], [p.data for p in group.members]
        if self.message.iter_size > 1:
            torch._foreach_mul_(diffs, float(ONE / np.float32(self.message.iter_size)))
        decay = float(np.float32(self.message.weight_decay) * np.float32(group.members[0].decay_mult))
        if decay:
            added = [w.sign() for w in data] if self.message.regularization_type == "L1" else data
            torch._foreach_add_(diffs, added, alpha=decay)
        change = self._rule(self, diffs, group.first, group.second, rate * np.float32(group.members[0].lr_mult))
        torch._foreach_sub_(data, change)


class Group:
    """Blobs with equal multipliers, and their histories (`second` is `first` where the rule keeps one)."""

    def __init__(self, members: list[Parameter], first: Tensors, second: Tensors) -> None:
        self.members, self.first, self.second = members, first, second


def _alike(learnable: Sequence[Parameter]) -> list[list[int]]:
    """Indices of the blobs that have equal multipliers."""
    found: dict[tuple[float, float], list[int]] = {}
    for at, parameter in enumerate(learnable):
        found.setdefault((parameter.lr_mult, parameter.decay_mult), []).append(at)
    return list(found.values())


def _sgd(solver: Solver, diffs: Tensors, history: Tensors, _: Tensors, rate: np.float32) -> Tensors:
    """The rate stands inside the history: a change of the rate does not rescale past steps."""
    torch._foreach_mul_(history, _single(solver.message.momentum))
    torch._foreach_add_(history, diffs, alpha=float(rate))
    return history


def _nesterov(solver: Solver, diffs: Tensors, history: Tensors, _: Tensors, rate: np.float32) -> Tensors:
    momentum = np.float32(solver.message.momentum)
    before = torch._foreach_mul(history, float(momentum))
    _sgd(solver, diffs, history, history, rate)
    change: Tensors = torch._foreach_mul(history, float(ONE + momentum))
    torch._foreach_sub_(change, before)
    return change


def _adagrad(solver: Solver, diffs: Tensors, history: Tensors, _: Tensors, rate: np.float32) -> Tensors:
    torch._foreach_addcmul_(history, diffs, diffs)
    return _over_root(diffs, history, solver.message.delta, rate)


def _rmsprop(solver: Solver, diffs: Tensors, history: Tensors, _: Tensors, rate: np.float32) -> Tensors:
    _mix_squares(history, diffs, np.float32(solver.message.rms_decay))
    return _over_root(diffs, history, solver.message.delta, rate)


def _adadelta(solver: Solver, diffs: Tensors, squares: Tensors, changes: Tensors, rate: np.float32) -> Tensors:
    momentum, delta = np.float32(solver.message.momentum), _single(solver.message.delta)
    _mix_squares(squares, diffs, momentum)
    change: Tensors = torch._foreach_add(changes, delta)
    torch._foreach_div_(change, torch._foreach_add(squares, delta))
    torch._foreach_sqrt_(change)
    torch._foreach_mul_(change, diffs)
    _mix_squares(changes, change, momentum)
    torch._foreach_mul_(change, _known(rate))
    return change


def _adam(solver: Solver, diffs: Tensors, means: Tensors, squares: Tensors, rate: np.float32) -> Tensors:
    """delta stands outside the root and before the correction of the second moment, unlike torch.optim's eps."""
    beta1, beta2 = np.float32(solver.message.momentum), np.float32(solver.message.momentum2)
    step = solver.iteration + 1
    correction = math.sqrt(1 - float(beta2) ** step) / (1 - float(beta1) ** step)  # in double precision there too
    torch._foreach_mul_(means, float(beta1))
    torch._foreach_add_(means, diffs, alpha=float(ONE - beta1))
    _mix_squares(squares, diffs, beta2)
    return _over_root(means, squares, solver.message.delta, np.float32(_known(rate * np.float32(correction))))


def _known(rate: np.float32) -> float:
    """0 for a rate that is NaN (poly beyond max_iter), as there: its `scal` leaves the parameters where they are."""
    return 0.0 if np.isnan(rate) else float(rate)


def _mix_squares(history: Tensors, values: Tensors, kept: np.float32) -> None:
    """history = kept · history + (1 − kept) · values²"""
    torch._foreach_mul_(history, float(kept))
    torch._foreach_addcmul_(history, values, values, value=float(ONE - kept))


def _over_root(values: Tensors, squares: Tensors, delta: float, rate: np.float32) -> Tensors:
    """rate · values / (√squares + delta)"""
    root = torch._foreach_sqrt(squares)
    torch._foreach_add_(root, _single(delta))
    change: Tensors = torch._foreach_div(values, root)
    torch._foreach_mul_(change, float(rate))
    return change


def _single(value: float) -> float:
    return float(np.float32(value))


RULES: dict[str, Callable[[Solver, Tensors, Tensors, Tensors, np.float32], Tensors]] = {
    "SGD": _sgd,
    "Nesterov": _nesterov,
    "AdaGrad": _adagrad,
    "RMSProp": _rmsprop,
    "AdaDelta": _adadelta,
    "Adam": _adam,
}
"""Solver type → what is subtracted from the blobs."""

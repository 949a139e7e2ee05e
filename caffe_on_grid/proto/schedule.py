"""Caffe's learning rate policies (SGDSolver::GetLearningRate), and what no solver steps with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto.upgrade import SOLVER_TYPES
from caffe_on_grid.spec.codec import suggestion


def check(solver: Any) -> None:
    """Raise ConfigError for what Caffe's solvers CHECK, or divide by, before their first step."""
    check_type(solver)
    if solver.type in ("AdaGrad", "RMSProp") and solver.momentum:
        raise ConfigError(f"solver: momentum is {solver.momentum:g}: it cannot be used with {solver.type}")
    if solver.type == "RMSProp" and not 0 <= solver.rms_decay < 1:
        raise ConfigError(f"solver: rms_decay is {solver.rms_decay:g}, expected 0 <= rms_decay < 1")
    if solver.weight_decay and solver.regularization_type not in ("L1", "L2"):
        raise ConfigError(f"solver: unknown regularization_type {solver.regularization_type!r}; known: L1, L2")
    for name in ("iter_size", "average_loss"):
        if getattr(solver, name) < 1:
            raise ConfigError(f"solver: {name} is {getattr(solver, name)}, expected 1 or more")
    learning_rate(solver, 0)


def check_type(solver: Any) -> None:
    """Raise ConfigError for a solver type that Caffe lacks."""
    known = list(SOLVER_TYPES.values())
    if solver.type not in known:
        raise ConfigError(
            f"solver: unknown type {solver.type!r}{suggestion(solver.type, known)}; known: {', '.join(known)}"
        )


def learning_rate(solver: Any, iteration: int, current_step: Optional[int] = None) -> float:
    """The rate of the step that starts at `iteration` (steps done before it).

    Policy multistep: `current_step` is the count saved in a .solverstate, which this query advances at most by one as
    Caffe does; None: the count that querying every iteration from 0 on gives. poly beyond max_iter is what Caffe's pow
    gives (NaN for a fractional power). Raises ConfigError for an unknown or missing lr_policy, and where Caffe refuses
    stepsize or gamma.
    """
    policy = solver.lr_policy
    if policy not in _POLICIES:
        problem = f"unknown lr_policy {policy!r}{suggestion(policy, _POLICIES)}" if policy else "lr_policy is missing"
        raise ConfigError(f"solver: {problem}; known: {', '.join(_POLICIES)}")
    _check(solver)
    if policy == "multistep":
        return float(solver.base_lr) * _power(solver.gamma, multistep(solver, iteration, current_step))
    return _POLICIES[policy](solver, iteration)


def multistep(solver: Any, iteration: int, current_step: Optional[int] = None) -> int:
    """current_step after the query for `iteration` (see `learning_rate`)."""
    values = solver.stepvalue
    if current_step is not None:
        return current_step + (current_step < len(values) and iteration >= values[current_step])
    reached = -1
    for count, value in enumerate(values):
        reached = max(value, reached + 1)
        if reached > iteration:
            return count
    return len(values)


_NEEDS_STEPSIZE = ("step", "sigmoid")
_NEEDS_GAMMA = ("step", "exp", "inv", "multistep", "sigmoid")


def _check(solver: Any) -> None:
    policy = solver.lr_policy
    if policy in _NEEDS_STEPSIZE and solver.stepsize <= 0:
        raise ConfigError(f"solver: stepsize is {solver.stepsize}, expected > 0 for lr_policy {policy!r}")
    if policy in _NEEDS_GAMMA and solver.gamma < 0:
        raise ConfigError(f"solver: gamma is {solver.gamma:g}, expected >= 0 for lr_policy {policy!r}")
    if policy == "poly" and solver.max_iter <= 0:
        raise ConfigError(f"solver: max_iter is {solver.max_iter}, expected > 0 for lr_policy 'poly'")


def _power(base: float, exponent: float) -> float:
    """C's pow: NaN and infinities where Python raises."""
    try:
        value = math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.inf if base == 0 else math.nan
    return value


def _sigmoid(solver: Any, iteration: int) -> float:
    argument = -solver.gamma * (iteration - solver.stepsize)
    return float(solver.base_lr) / (1 + _power(math.e, argument))


_POLICIES: dict[str, Callable[[Any, int], float]] = {
    "fixed": lambda s, i: float(s.base_lr),
    "step": lambda s, i: float(s.base_lr * _power(s.gamma, i // s.stepsize)),
    "exp": lambda s, i: float(s.base_lr * _power(s.gamma, i)),
    "inv": lambda s, i: float(s.base_lr * _power(1 + s.gamma * i, -s.power)),
    "multistep": lambda s, i: float(s.base_lr * _power(s.gamma, multistep(s, i))),
    "poly": lambda s, i: float(s.base_lr * _power(1 - i / s.max_iter, s.power)),
    "sigmoid": _sigmoid,
}
POLICIES = tuple(_POLICIES)
"""Names that lr_policy may have."""

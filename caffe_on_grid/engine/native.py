"""What the caffe engine works out before and beside Caffe: the solver text it builds from, and which blob is which.

Nothing here imports Caffe; a `net` is a pycaffe Net, given by the door (`engine.caffe`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Optional

import numpy as np

from caffe_on_grid.engine.api import Array, EnginePlan, LayerInfo
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schedule, schema
from caffe_on_grid.spec.codec import suggestion

SOLVER_TYPES: dict[str, int] = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2}
"""Solver type → history blobs for each learnable blob (semantics of `SGDSolver` and its children)."""

NEVER = 2**31 - 1
"""A test_interval that no iteration reaches: testing is the worker's, yet Caffe demands one where TEST nets exist."""

_OURS = (
    "net",
    "train_net",
    "test_net",
    "net_param",
    "train_net_param",
    "test_net_param",
    "train_state",
    "test_state",
    "test_iter",
    "test_interval",
    "display",
    "snapshot",
    "snapshot_after_train",
    "weights",
    "solver_type",
)
"""Solver fields that must not reach Caffe: nets are given whole, the rest is the worker's business."""


def snapshot_prefix(solver: Any) -> str:
    """The bare name that snapshots begin with: the last part of snapshot_prefix, "snapshot" if unset."""
    return PurePath(solver.snapshot_prefix).name or "snapshot"


def solver_message(plan: EnginePlan) -> Any:
    """The SolverParameter that Caffe builds from: plan's solver with plan's nets inside and nothing periodic."""
    solver = schema.SolverParameter()
    solver.CopyFrom(plan.solver)
    for name in _OURS:
        if name in solver.DESCRIPTOR.fields_by_name:
            solver.ClearField(name)
    solver.train_net_param.CopyFrom(bare_net(plan.train_net))
    for net in plan.test_nets:
        solver.test_net_param.add().CopyFrom(bare_net(net))
        solver.test_iter.append(1)
    if plan.test_nets:
        solver.test_interval = NEVER
        solver.test_initialization = False
    solver.random_seed = plan.seed
    solver.solver_mode = schema.ENUMS["SolverParameter.SolverMode"]["CPU" if plan.gpu is None else "GPU"]
    solver.device_id = plan.gpu or 0
    solver.snapshot_prefix = snapshot_prefix(plan.solver)
    return solver


def bare_net(net: Any) -> Any:
    """A copy of `net` without state and rules: it is filtered already, and Caffe must not filter it again."""
    bare = schema.NetParameter()
    bare.CopyFrom(net)
    bare.ClearField("state")
    for layer in bare.layer:
        layer.ClearField("include")
        layer.ClearField("exclude")
    return bare


def check_plan(plan: EnginePlan, layer_types: Iterable[str]) -> None:
    """Raise ConfigError for what would abort Caffe at once: an unknown solver type or layer type."""
    schedule.check_type(plan.solver)
    types = sorted(layer_types)
    for net in (plan.train_net, *plan.test_nets):
        for layer in net.layer if net is not None else ():
            if layer.type not in types:
                raise ConfigError(
                    f"layer {layer.name!r}: unknown layer type {layer.type!r}{_instead(layer.type, types)}"
                )


def _instead(word: str, known: Iterable[str]) -> str:
    """The nearest known word, else all of them."""
    return suggestion(word, known) or f"; this Caffe knows: {', '.join(known)}"


@dataclass
class Param:
    """One parameter blob, listed at its first owner in net order."""

    layer: str
    layer_index: int
    index: int
    blob: Any
    type: str
    lr_mult: Optional[float]
    """Where the prototxt sets one, in the owner or a sharer."""

    @property
    def learns(self) -> bool:
        """Whether the solver changes it: not BatchNorm's sums, not lr_mult 0."""
        return self.type != "BatchNorm" and self.lr_mult != 0

    @property
    def statistic(self) -> bool:
        """Whether it is one of BatchNorm's sums."""
        return self.type == "BatchNorm"


def params(net: Any, message: Any) -> list[Param]:
    """Every parameter blob of `net` once, in net order; sharers are told by their common memory."""
    specs = {layer.name: layer.param for layer in message.layer}
    found: dict[int, Param] = {}
    for at, (name, layer) in enumerate(zip(net._layer_names, net.layers)):
        for index, blob in enumerate(layer.blobs):
            rate = _lr_mult(specs.get(name, ()), index)
            owner = found.setdefault(blob.data.ctypes.data, Param(name, at, index, blob, layer.type, rate))
            owner.lr_mult = rate if owner.lr_mult is None else owner.lr_mult
    return list(found.values())


def targets(net: Any) -> dict[str, Any]:
    """Layer name → its parameter blobs."""
    return {name: layer.blobs for name, layer in zip(net._layer_names, net.layers)}


def assign(blob: Any, values: Array) -> None:
    """Copy values of its shape into a blob."""
    blob.data[...] = values


def _lr_mult(specs: Any, index: int) -> Optional[float]:
    given = index < len(specs) and specs[index].HasField("lr_mult")
    return float(specs[index].lr_mult) if given else None


def ready_ranges(learnable: list[Param]) -> dict[int, tuple[int, int]]:
    """Layer index → first and last blob whose gradient is final after that layer's backward.

    A blob's owner is its first user in net order, and backward runs from the last layer to the first: when the owner is
    done, so are all sharers.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for at, param in enumerate(learnable):
        first, _ = ranges.get(param.layer_index, (at, at))
        ranges[param.layer_index] = (first, at)
    return ranges


def loss_terms(net: Any) -> list[tuple[Any, float]]:
    """Blobs that make up the loss, with their weights."""
    return [(blob, weight) for blob, weight in zip(net._blobs, net._blob_loss_weights) if weight]


def loss(terms: list[tuple[Any, float]]) -> float:
    """Σ weight × sum of blob, as the last forward pass left them."""
    return sum(weight * float(np.sum(blob.data, dtype=np.float64)) for blob, weight in terms)


def fill(net: Any, blobs: Mapping[str, Array]) -> None:
    """Copy `blobs` into the net's blobs of those names; raises ConfigError for a wrong name or shape."""
    for name, array in blobs.items():
        target = blob_of(net, name).data
        if target.shape != array.shape:
            raise ConfigError(f"input {name!r}: the net expects shape {target.shape}, got {array.shape}")
        target[...] = array


def blob_of(net: Any, name: str) -> Any:
    """The blob called `name`; raises ConfigError naming the nearest."""
    if name not in net.blobs:
        raise ConfigError(f"the net has no blob {name!r}{suggestion(name, net.blobs)}; it has: {', '.join(net.blobs)}")
    return net.blobs[name]


def copies(net: Any, names: Iterable[str]) -> dict[str, Array]:
    """Copies of the named blobs."""
    return {name: blob_of(net, name).data.copy() for name in names}


def describe(net: Any) -> tuple[LayerInfo, ...]:
    """The layers of a built net."""
    names, weights = list(net._blob_names), list(net._blob_loss_weights)

    def info(at: int) -> LayerInfo:
        tops, bottoms = list(net._top_ids(at)), list(net._bottom_ids(at))
        return LayerInfo(
            name=net._layer_names[at],
            type=net.layers[at].type,
            bottoms=tuple(names[b] for b in bottoms),
            tops=tuple(names[t] for t in tops),
            top_shapes=tuple(tuple(net._blobs[t].shape) for t in tops),
            param_shapes=tuple(tuple(blob.shape) for blob in net.layers[at].blobs),
            loss_weights=tuple(float(weights[t]) if t < len(weights) else 0.0 for t in tops),
        )

    return tuple(info(at) for at in range(len(net.layers)))

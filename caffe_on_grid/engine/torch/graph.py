"""How Caffe wires a net: Split layers, blobs, in-place tops, shared memory, and which layers go backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema

AUTOMATIC = "(automatic)"
"""Name of the top that a loss without a written one gets."""


def insert_splits(layers: Sequence[Any]) -> list[Any]:
    """New LayerParameters in which every blob has one consumer; a loss weight on a top counts as a consumer.

    Raises ConfigError for a bottom that no earlier layer makes. Names are Caffe's (`insert_splits.cpp`).
    """
    sources, uses, losses = _uses(layers)
    taken: dict[tuple[int, int], int] = {}
    found: list[Any] = []
    for i, layer in enumerate(layers):
        copied = schema.LayerParameter()
        copied.CopyFrom(layer)
        found.append(copied)
        for j, blob in enumerate(layer.bottom):
            source = sources[i, j]
            if uses[source] > 1:
                at = taken.setdefault(source, 0)
                copied.bottom[j] = f"{_split(layers[source[0]].name, blob, source[1])}_{at}"
                taken[source] += 1
        for j, blob in enumerate(layer.top):
            if uses.get((i, j), 0) > 1:
                found.append(_split_layer(layer.name, blob, j, uses[i, j], losses.get((i, j), 0.0)))
                if losses.get((i, j)):
                    copied.ClearField("loss_weight")
                    taken[i, j] = 1
    return found


Place = tuple[int, int]


def _uses(layers: Sequence[Any]) -> tuple[dict[Place, Place], dict[Place, int], dict[Place, float]]:
    """For each bottom its source top; for each top its number of consumers and its loss weight."""
    last: dict[str, Place] = {}
    sources: dict[Place, Place] = {}
    uses: dict[Place, int] = {}
    losses: dict[Place, float] = {}
    for i, layer in enumerate(layers):
        for j, blob in enumerate(layer.bottom):
            if blob not in last:
                raise ConfigError(f"unknown bottom blob '{blob}' (layer '{layer.name}', bottom index {j})")
            sources[i, j] = last[blob]
            uses[last[blob]] = uses.get(last[blob], 0) + 1
        last.update({blob: (i, j) for j, blob in enumerate(layer.top)})
        for blob, weight in zip(layer.top, layer.loss_weight):
            losses[last[blob]] = weight
            uses[last[blob]] = uses.get(last[blob], 0) + (weight != 0)
    return sources, uses, losses


def _split(layer: str, blob: str, top: int) -> str:
    return f"{blob}_{layer}_{top}_split"


def _split_layer(layer: str, blob: str, top: int, count: int, weight: float) -> Any:
    name = _split(layer, blob, top)
    found = schema.LayerParameter(name=name, type="Split", bottom=[blob], top=[f"{name}_{k}" for k in range(count)])
    if weight:
        found.loss_weight.extend([weight] + [0.0] * (count - 1))
    return found


@dataclass
class Node:
    """One layer's place in the net; blobs are indices into Graph.blobs."""

    spec: Any
    bottoms: tuple[int, ...] = ()
    tops: tuple[int, ...] = ()
    losses: list[float] = field(default_factory=list)
    """Loss weight of each top."""
    backward: bool = False
    """Whether the layer goes backward."""
    needs: list[bool] = field(default_factory=list)
    """For each bottom: whether its gradient is computed."""


class Graph:
    """Blobs by name and the backward plan, built layer by layer as Caffe's Net::Init does."""

    def __init__(self) -> None:
        self.blobs: list[str] = []
        self.nodes: list[Node] = []
        self.index: dict[str, int] = {}
        self._gradient: list[bool] = []
        """For each blob: whether it carries a gradient."""
        self._available: set[str] = set()

    def carries(self, blob: int) -> bool:
        """Whether some layer with a learning rate comes before the blob."""
        return self._gradient[blob]

    @property
    def outputs(self) -> list[str]:
        """Tops that no layer takes, in alphabetical order."""
        return sorted(self._available)

    def add(self, spec: Any, tops_needed: int) -> Node:
        """Connect the next layer; raises ConfigError for unknown bottoms and tops made twice."""
        given = len(spec.propagate_down)
        if given not in (0, len(spec.bottom)):
            raise ConfigError(
                f"layer '{spec.name}': propagate_down must be specified either 0 or bottom_size times "
                f"({given} for {len(spec.bottom)})"
            )
        node = Node(spec)
        node.bottoms = tuple(self._bottom(spec, j) for j in range(len(spec.bottom)))
        node.needs = [bool(v) for v in spec.propagate_down] or [self._gradient[b] for b in node.bottoms]
        missing = max(0, tops_needed - len(spec.top))
        node.tops = (
            *(self._top(spec, j) for j in range(len(spec.top))),
            *(self._new(AUTOMATIC) for _ in range(missing)),
        )
        self.nodes.append(node)
        return node

    def _bottom(self, spec: Any, at: int) -> int:
        name = spec.bottom[at]
        if name not in self._available:
            raise ConfigError(f"unknown bottom blob '{name}' (layer '{spec.name}', bottom index {at})")
        self._available.discard(name)
        return self.index[name]

    def _top(self, spec: Any, at: int) -> int:
        name = spec.top[at]
        in_place = at < len(spec.bottom) and spec.bottom[at] == name
        if name in self.index and not in_place:
            raise ConfigError(f"top blob '{name}' produced by multiple sources (layer '{spec.name}')")
        self._available.add(name)
        if in_place:
            return self.index[name]
        self.index[name] = self._new(name)
        return self.index[name]

    def _new(self, name: str) -> int:
        self.blobs.append(name)
        self._gradient.append(False)
        return len(self.blobs) - 1

    def learn(self, node: Node, any_param: bool) -> None:
        """Say whether the layer has a parameter with a learning rate; must follow `add` before the next layer."""
        node.backward = any_param or any(self._gradient[b] for b in node.bottoms)
        if node.backward:
            for top in node.tops:
                self._gradient[top] = True

    def plan_backward(self, forced: Optional[Sequence[frozenset[int]]]) -> None:
        """Drop what no loss needs; `forced` (force_backward): for each layer the bottoms that are not forced."""
        under_loss: set[int] = set()
        skipped: set[int] = set()
        for node in reversed(self.nodes):
            self._prune(node, under_loss, skipped)
        for node, free in zip(self.nodes, forced or ()):
            node.backward = True
            node.needs = [need or j not in free for j, need in enumerate(node.needs)]

    def _prune(self, node: Node, under_loss: set[int], skipped: set[int]) -> None:
        contributes = any(node.losses) or any(top in under_loss for top in node.tops)
        if node.backward and all(top in skipped for top in node.tops):
            node.backward = False
            node.needs = [False] * len(node.needs)
        if contributes:
            under_loss.update(node.bottoms)
        else:
            node.backward = False
            node.needs = [False] * len(node.needs)
        skipped.update(b for b, need in zip(node.bottoms, node.needs) if not need)

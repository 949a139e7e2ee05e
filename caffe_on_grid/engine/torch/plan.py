"""What a pass needs to know of each layer: shared memory, what may be overwritten or merged, where backward stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

from caffe_on_grid.engine.torch.graph import Graph, Node
from caffe_on_grid.engine.torch.layers_base import Layer
from caffe_on_grid.engine.torch.layers_normalisation import BatchNorm, Scale
from caffe_on_grid.engine.torch.layers_shape import SUM

_OVERWRITABLE = frozenset({"Convolution", "Deconvolution", "InnerProduct", "BatchNorm", "Scale", "Bias", "Concat"})
"""Types whose backward pass never reads their top, in torch either: a ReLU may overwrite it."""


class Step:
    """One layer in the order of a pass, with what its place in the net asks for."""

    __slots__ = ("aliases", "bottoms", "cuts", "forward", "layer", "losses", "node", "special", "tops")

    def __init__(self, layer: Layer, node: Node) -> None:
        self.layer, self.node = layer, node
        self.forward: Callable[..., Any] = layer.forward
        self.bottoms, self.tops = node.bottoms, node.tops
        wanted = [need and node.backward for need in node.needs]
        self.cuts: Optional[list[bool]] = None if all(wanted) else [not w for w in wanted]
        """Bottoms that pass no gradient on; None: there are none."""
        self.losses = [(at, w) for at, w in enumerate(node.losses) if w]
        self.aliases: list[int] = []
        """In place: other blobs that share the memory in Caffe, made before, so that they change too."""
        self.special = False


def find_aliases(steps: Sequence[Step], blobs: int) -> None:
    """Find which blobs share memory in Caffe, and what each in-place layer changes besides its own."""
    root = list(range(blobs))
    for step in steps:
        if step.layer.shares:
            for top in step.tops:
                root[top] = root[step.bottoms[0]]
        elif step.tops and step.bottoms and step.tops[0] == step.bottoms[0]:
            own = step.tops[0]
            step.aliases = [b for b, r in enumerate(root) if r == root[own] and b != own]
    for step in steps:
        step.special = bool(step.aliases or step.losses)


def overwrite(steps: Sequence[Step], allowed: bool) -> None:
    """Let in-place ReLUs overwrite what nobody else reads."""
    makers: dict[int, str] = {}
    for step in steps:
        layer = step.layer
        if layer.in_place_ok and step.tops == step.bottoms:
            layer.in_place = allowed and makers.get(step.tops[0]) in _OVERWRITABLE and not step.aliases
        sums = layer.type == "Eltwise" and layer.spec.eltwise_param.operation == SUM
        makers.update({top: "Bias" if sums else layer.type for top in step.tops})


def fuse(steps: Sequence[Step], allowed: bool) -> None:
    """Have a Scale in place right after a BatchNorm computed with it."""
    for step, after in zip(steps, steps[1:]):
        norm, scale = step.layer, after.layer
        if isinstance(norm, BatchNorm) and isinstance(scale, Scale):
            scale.absorbed = allowed and _fits(step, after, norm, scale)
            norm.scale = scale if scale.absorbed else None


def _fits(step: Step, after: Step, norm: BatchNorm, scale: Scale) -> bool:
    by_channel = scale.blob and scale.param.axis in (1, 1 - len(norm.seen[0])) and not norm.flat
    alone = after.bottoms == after.tops == step.tops and not after.aliases and not step.losses and after.cuts is None
    return by_channel and alone and scale.params[0].shape == (norm.channels,)


def refusals(steps: Sequence[Step], graph: Graph, forced: bool) -> list[tuple[Layer, str]]:
    """Where Caffe's backward pass would stop, and why; a gradient that is only `forced` may end there."""
    found = []
    for step in steps:
        layer, node = step.layer, step.node
        stops = [j for j, need in enumerate(node.needs) if need and (j in layer.no_gradient or not layer.backward)]
        names = [graph.blobs[node.bottoms[j]] for j in stops if graph.carries(node.bottoms[j])]
        if node.backward and names and (any(node.losses) or layer.backward or not forced):
            found.append((layer, f"cannot backpropagate to bottom '{names[0]}'"))
    return found

"""Parameters shared within a net (`param { name }`) and between nets, and when their gradients are final."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from caffe_on_grid.engine.torch.layers_base import Layer, Shape, count
from caffe_on_grid.engine.torch.parameter import Parameter

PERMISSIVE = 1


class Pool:
    """The parameters of a net: owners once, sharers by name."""

    def __init__(self) -> None:
        self.learnable: list[Parameter] = []
        """Owners, in net order."""
        self.shapes: dict[str, list[Shape]] = {}
        """Layer name → shapes of its blobs as the layer sees them."""
        self._named: dict[str, tuple[Parameter, str]] = {}
        self._set: dict[int, list[bool]] = {}
        """Of an owner: whether lr_mult and decay_mult were written."""

    def add(self, layer: Layer) -> None:
        """Take in a layer's blobs; where their name is known, the owner's replace them. Raises ConfigError as Caffe."""
        specs = list(layer.spec.param)
        fits = len(specs) <= len(layer.params)
        layer.check(fits, f"too many params specified: {len(specs)} for {len(layer.params)} blobs")
        self.shapes[layer.name] = [p.shape for p in layer.params]
        for at, own in enumerate(layer.params):
            spec = specs[at] if at < len(specs) else None
            if spec is not None and spec.name in self._named and spec.name:
                layer.params[at] = self._shared(layer, own, spec)
            else:
                self._own(layer, own, spec)

    def _own(self, layer: Layer, own: Parameter, spec: Any) -> None:
        self.learnable.append(own)
        self._set[id(own)] = [spec is not None and spec.HasField(f) for f in ("lr_mult", "decay_mult")]
        if spec is not None:
            own.owned_by(spec.lr_mult, spec.decay_mult)
            if spec.name:
                self._named[spec.name] = (own, layer.name)
        if not own.learns:
            own.owned_by(0.0, None)

    def _shared(self, layer: Layer, own: Parameter, spec: Any) -> Parameter:
        owner, owner_name = self._named[spec.name]
        permissive = spec.share_mode == PERMISSIVE
        same = count(own.shape) == count(owner.shape) if permissive else own.shape == owner.shape
        layer.check(
            same,
            f"cannot share param '{spec.name}' owned by layer '{owner_name}'; "
            f"{'count' if permissive else 'shape'} mismatch."
            f" Owner layer param shape is {owner.shape}; sharing layer expects shape {own.shape}",
        )
        for at, name in enumerate(("lr_mult", "decay_mult")):
            if not spec.HasField(name):
                continue
            value = getattr(spec, name)
            agrees = not self._set[id(owner)][at] or getattr(owner, name) == value
            layer.check(agrees, f"shared param '{spec.name}' has mismatched {name}")
            self._set[id(owner)][at] = True
            setattr(owner, name, value)
        return owner

    def refresh(self, layers: Sequence[Layer]) -> None:
        """Owners anew, after parameters were replaced by another net's."""
        seen: dict[int, Parameter] = {}
        for layer in layers:
            seen.update({id(p): p for p in layer.params if id(p) not in seen})
        self.learnable = list(seen.values())


def take(layer: Layer, source: Layer) -> None:
    """Use the parameters of another net's layer; raises ConfigError where the blobs differ."""
    same = len(layer.params) == len(source.params)
    layer.check(same, f"incompatible number of blobs: {len(layer.params)}, the other net has {len(source.params)}")
    for at, (own, theirs) in enumerate(zip(layer.params, source.params)):
        fits = count(own.shape) == count(theirs.shape)
        layer.check(fits, f"cannot share param {at}: shape {theirs.shape} there, {own.shape} here")
    layer.params = list(source.params)


def view(parameter: Parameter, shape: Shape, learns: bool) -> torch.Tensor:
    """A parameter as a layer computes with it: in the layer's shape, under autograd if it learns there."""
    held = parameter.leaf if learns else parameter.data
    return held if parameter.shape == shape else held.view(shape)


class Watch:
    """During one backward pass: reports each layer's own parameters as soon as all their gradients are final."""

    def __init__(
        self, layers: Sequence[Layer], position: Mapping[int, int], report: Callable[[int, int], None]
    ) -> None:
        self._report = report
        self._groups: list[set[int]] = []
        self._ranges: list[tuple[int, int]] = []
        self._handles: list[Any] = []
        self._reported: set[int] = set()
        taken: set[int] = set()
        for layer in layers:
            own = {position[id(p)] for p in layer.params} - taken
            taken |= own
            if own:
                self._ranges.append((min(own), max(own)))
                used = {position[id(p)]: p for p, w in zip(layer.params, layer.weights) if w.requires_grad}
                self._listen({index: p for index, p in used.items() if index in own})

    def _listen(self, learning: Mapping[int, Parameter]) -> None:
        """Wait for those of a layer's own parameters that get gradients (lr_mult 0: none is computed)."""
        at = len(self._groups)
        self._groups.append(set(learning))
        for index, parameter in learning.items():
            hook = getattr(parameter.leaf, "register_post_accumulate_grad_hook", None)
            if hook is not None:  # torch ≥ 2.1; without it everything is reported at the end
                self._handles.append(hook(self._hook(at, index)))

    def _hook(self, at: int, index: int) -> Callable[[torch.Tensor], None]:
        def final(leaf: torch.Tensor) -> None:
            self._groups[at].discard(index)
            if not self._groups[at]:
                self._reported.add(at)
                self._report(*self._ranges[at])

        return final

    def close(self) -> None:
        """Stop listening."""
        for handle in self._handles:
            handle.remove()

    def finish(self) -> None:
        """Report what got no gradient in this pass."""
        for at in reversed(range(len(self._groups))):
            if at not in self._reported:
                self._report(*self._ranges[at])

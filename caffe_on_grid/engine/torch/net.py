"""A net of Caffe's on PyTorch: built as Net::Init builds it, forward by layers, backward by autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np
import torch

from caffe_on_grid.engine.torch import layers, plan, sharing
from caffe_on_grid.engine.torch.faults import fault_of, faults_between, stale, unlike
from caffe_on_grid.engine.torch.graph import Graph, Node, insert_splits
from caffe_on_grid.engine.torch.layers_base import BROKEN, Context, Layer, Shape
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.engine.torch.plan import Step
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.proto import schema

Values = Union[torch.Tensor, Any]
"""A tensor or a numpy array."""


class Net:
    """A filtered NetParameter (Input layers where data comes in) for one phase on one device.

    Fillers draw from `stream` in layer order, in a TEST net too, which then takes the parameters of `share` by layer
    name. A TEST net keeps no graph unless `train_like` or force_backward. `strict` reproduces the gradients of Caffe's
    own faults; `warnings` names where they would differ, `differences` what it leaves out. Raises ConfigError, naming
    the layer, where Caffe would stop.
    """

    def __init__(
        self,
        net: Any,
        phase: int,
        device: torch.device,
        stream: Any,
        share: Optional[Net] = None,
        train_like: bool = False,
        strict: bool = False,
    ) -> None:
        self.name: str = net.name
        self.phase = phase
        self.context = Context(phase, device, stream, strict)
        self.layers: list[Layer] = []
        self.on_ready: Optional[Callable[[int, int], None]] = None
        self.differentiable = phase == schema.TRAIN or train_like or net.force_backward
        self._graph = Graph()
        self._shapes: list[Shape] = []
        self._pool = sharing.Pool()
        for spec in insert_splits(net.layer):
            self._add(spec)
        self.learnable: list[Parameter] = self._pool.learnable
        forced = [layer.not_forced for layer in self.layers] if net.force_backward else None
        self._graph.plan_backward(forced)
        if share is not None:
            self._take(share)
        self.blob_names: list[str] = list(self._graph.blobs)
        self.outputs: list[str] = self._graph.outputs
        self.warnings = [words for words in (fault_of(node) for node in self._graph.nodes) if words]
        self.warnings += [*faults_between(self._graph.nodes), *stale(self.layers)]
        self.differences = list(unlike(self._graph.nodes))
        self._plan(bool(net.force_backward))
        self._values: list[Any] = [None] * len(self._shapes)
        for at in self._inputs.values():
            self._values[at] = torch.zeros(self._shapes[at], device=device)
        self._diffs: dict[int, torch.Tensor] = {}
        self._losses: list[tuple[torch.Tensor, float]] = []

    # building

    def _add(self, spec: Any) -> None:
        """Connect and set up one layer."""
        if not spec.HasField("phase"):
            spec.phase = self.phase
        layer = layers.create(spec, self.context)
        node = self._graph.add(spec, layer.tops[0] if layer.is_loss else 0)
        _check_count(layer, "bottom", len(node.bottoms), layer.bottoms)
        _check_count(layer, "top", len(node.tops), layer.tops)
        shapes = [self._shapes[b] for b in node.bottoms]
        try:
            layer.setup(shapes)
            self._reshape(layer, node, shapes)
        except BROKEN as error:
            layer.broken(error)
        node.losses = _loss_weights(layer, len(node.tops))
        self._pool.add(layer)
        self.layers.append(layer)
        rates = [p.lr_mult for p in spec.param[: len(layer.params)]]
        rates += [1.0] * (len(layer.params) - len(rates))
        self._graph.learn(node, any(r != 0 and p.learns for r, p in zip(rates, layer.params)))

    def _reshape(self, layer: Layer, node: Node, shapes: Sequence[Shape]) -> None:
        layer.seen = list(shapes)
        found = layer.reshape(shapes)
        while len(self._shapes) < len(self._graph.blobs):
            self._shapes.append(())
        for top, shape in zip(node.tops, found):
            self._shapes[top] = tuple(shape)

    def _take(self, owner: Net) -> None:
        """Caffe's ShareTrainedLayersWith: the parameters of layers of the same name."""
        sources = {layer.name: layer for layer in owner.layers}
        for layer in self.layers:
            if layer.name in sources:
                sharing.take(layer, sources[layer.name])
        self._pool.refresh(self.layers)
        self.learnable = self._pool.learnable

    def _plan(self, forced: bool) -> None:
        """What each pass needs to know of each layer."""
        nodes = self._graph.nodes
        self._steps = [Step(layer, node) for layer, node in zip(self.layers, nodes)]
        self._inputs = {self.blob_names[t]: t for s in self._steps if s.layer.type == "Input" for t in s.tops}
        self._wanted = {b for n in nodes for b, need in zip(n.bottoms, n.needs) if need and n.backward}
        self._dynamic = any(layer.dynamic for layer in self.layers)
        for step in self._steps:
            rates = [p.lr_mult for p in step.node.spec.param]
            rates += [1.0] * len(step.layer.params)
            learns = [forced or (rate != 0 and step.node.backward) for rate in rates]
            step.layer.weights = [
                sharing.view(p, shape, on and p.learns and self.differentiable)
                for p, shape, on in zip(step.layer.params, self._pool.shapes[step.layer.name], learns)
            ]
        if self.context.strict:
            for step in self._steps:
                self._expose(step)
        plan.find_aliases(self._steps, len(self.blob_names))
        self._position = {id(p): at for at, p in enumerate(self.learnable)}
        self._stops = plan.refusals(self._steps, self._graph, forced)
        self._running = [step for step in self._steps if step.layer.type != "Input"]
        self.keep_diffs = False

    def _expose(self, step: Step) -> None:
        """Strict mode: elementwise layers look at their buffers as they are at the end."""
        if hasattr(step.layer, "gradient"):
            bottom, top = step.bottoms[0], step.tops[0]
            step.layer.buffers = lambda: (self._values[bottom], self._values[top])

    @property
    def keep_diffs(self) -> bool:
        """Whether `diff` can be asked for after a backward pass; costs memory and fusions, so off by default."""
        return self._keep

    @keep_diffs.setter
    def keep_diffs(self, keep: bool) -> None:
        self._keep = keep
        plan.overwrite(self._steps, not keep and not self.context.strict)
        plan.fuse(self._steps, not keep)

    # passing

    def forward(self, inputs: Mapping[str, Values]) -> torch.Tensor:
        """One pass: the scalar Σ loss_weight·Σ top (0 without losses); inputs not given keep their values.

        An input of another shape reshapes the net first. Labels out of range raise DataError (on a GPU: `verify`).
        """
        if self.context.pending:
            self.verify()
        given = {self._input(name): self._tensor(name, value) for name, value in inputs.items()}
        held = self._values
        self._values = [None] * len(held)
        for at in self._inputs.values():
            self._values[at] = given[at] if at in given else held[at].detach()
        del held
        if any(tuple(self._values[i].shape) != self._shapes[i] for i in given):
            self._resize(given)
        self._diffs, self._losses = {}, []
        with torch.set_grad_enabled(self.differentiable):
            self._enter()
            for step in self._running:
                self._pass(step)
        return self._total()

    def _input(self, name: str) -> int:
        if name not in self._inputs:
            raise ConfigError(f"net '{self.name}' has no input '{name}'; its inputs: {', '.join(self._inputs)}")
        return self._inputs[name]

    def _tensor(self, name: str, value: Values) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            array = np.asarray(value)
            value = torch.from_numpy(array if array.flags.writeable else array.copy())
        found = value.detach().to(self.context.device, torch.float32, non_blocking=True)
        return found.contiguous()

    def _resize(self, given: Mapping[int, torch.Tensor]) -> None:
        """Shapes of all blobs for new shapes of inputs."""
        for at, value in given.items():
            self._shapes[at] = tuple(value.shape)
        for step in self._steps:
            if step.layer.type != "Input":
                try:
                    self._reshape(step.layer, step.node, [self._shapes[b] for b in step.bottoms])
                except BROKEN as error:
                    step.layer.broken(error)

    def _pass(self, step: Step) -> None:
        values = self._values
        bottoms = [values[b] for b in step.bottoms]
        if step.cuts is not None:
            bottoms = [x.detach() if cut else x for x, cut in zip(bottoms, step.cuts)]
        if self._dynamic:
            self._follow(step, bottoms)
        try:
            found = step.forward(*bottoms)
        except BROKEN as error:
            step.layer.broken(error)
        if type(found) is tuple:
            for top, value in zip(step.tops, found):
                values[top] = value
        else:
            values[step.tops[0]] = found
        if step.special:
            self._finish(step, found if type(found) is tuple else (found,))
        if self._keep:
            self._retain(step)

    def _finish(self, step: Step, tops: Sequence[torch.Tensor]) -> None:
        """Losses, and the other blobs that an in-place layer changes."""
        values = self._values
        for other in step.aliases:
            if values[other] is not None:
                values[other] = self._changed(values[other], tops[0])
        for at, weight in step.losses:
            self._losses.append((tops[at], weight))

    def _changed(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """A blob whose memory an in-place layer has changed; in strict mode its gradient passes that layer by."""
        new = new.reshape(old.shape)
        return old + (new - old).detach() if self.context.strict else new

    def _enter(self) -> None:
        """Inputs whose gradient is wanted are leaves."""
        if self._keep and self.differentiable:
            for top in self._wanted.intersection(self._inputs.values()):
                self._values[top] = self._diffs[top] = self._values[top].detach().requires_grad_()

    def _follow(self, step: Step, bottoms: Sequence[torch.Tensor]) -> None:
        """After a layer whose tops have no fixed shape: reshape by what came."""
        shapes = [tuple(x.shape) for x in bottoms]
        if shapes != step.layer.seen:
            self._reshape(step.layer, step.node, shapes)

    def _retain(self, step: Step) -> None:
        """Keep the gradients of tops; of a blob changed in place, that of its first form, as Caffe leaves it."""
        for top in step.tops:
            value = self._values[top]
            if top in self._diffs or value is None or not value.requires_grad:
                continue
            if any(value is known for known in self._diffs.values()):
                value = self._values[top] = value.view_as(value)
            value.retain_grad()
            self._diffs[top] = value

    def _total(self) -> torch.Tensor:
        total: Any = None
        for top, weight in self._losses:
            value = top.detach() if top.dim() == 0 else top.detach().sum()
            value = value if weight == 1 else value * weight
            total = value if total is None else total + value
        return torch.zeros((), device=self.context.device) if total is None else total

    def backward(self, diffs: Optional[Mapping[str, Values]] = None) -> None:
        """Add the gradients of the last pass to Parameter.diff; `diffs` sets those of tops by name, over loss weights.

        With `on_ready` set, it is called with the first and last index of the parameters of each layer as they become
        final. Raises ConfigError where a gradient would have to reach labels or pass a layer without a backward pass.
        """
        for layer, words in self._stops:
            layer.fail(words)
        roots = {id(top): (top, torch.full_like(top, weight)) for top, weight in self._losses if top.requires_grad}
        for name, diff in (diffs or {}).items():
            top = self.blob(name)
            roots[id(top)] = (top, self._tensor(name, diff).reshape(top.shape))
        chosen = [(top, grad) for top, grad in roots.values() if top.requires_grad]
        watch = sharing.Watch(self.layers, self._position, self.on_ready) if self.on_ready else None
        try:
            if chosen:
                torch.autograd.backward([top for top, _ in chosen], [grad for _, grad in chosen])
        finally:
            if watch is not None:
                watch.close()
        if watch is not None:
            watch.finish()

    def verify(self) -> None:
        """Raise DataError for labels of earlier passes that were out of range (on a GPU; waits for the device)."""
        pending, self.context.pending[:] = list(self.context.pending), []
        for flag, words in pending:
            if bool(flag):
                raise DataError(f"{words}: check the data's labels")

    def blob(self, name: str) -> torch.Tensor:
        """A blob's value after a pass; raises ConfigError for a name that the net lacks."""
        if name not in self._graph.index:
            raise ConfigError(f"net '{self.name}' has no blob '{name}'")
        return self._values[self._graph.index[name]]

    def diff(self, name: str) -> Optional[torch.Tensor]:
        """A blob's gradient after a backward pass with `keep_diffs`; None where there is none."""
        holder = self._diffs.get(self._graph.index[name])
        return None if holder is None else holder.grad

    def param_shapes(self, layer: Layer) -> list[Shape]:
        """Shapes of a layer's parameters as it sees them (a sharer's may differ from the owner's)."""
        return self._pool.shapes[layer.name]

    def shape(self, name: str) -> Shape:
        """A blob's shape as of the last reshaping."""
        return self._shapes[self._graph.index[name]]


def _check_count(layer: Layer, what: str, found: int, allowed: tuple[int, Optional[int]]) -> None:
    low, high = allowed
    if found < low or (high is not None and found > high):
        wanted = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        layer.fail(f"takes {wanted} {what} blob(s), has {found}")


def _loss_weights(layer: Layer, tops: int) -> list[float]:
    """One for each top; a loss has 1 for its first by default."""
    given = [float(w) for w in layer.spec.loss_weight]
    if not given:
        return [1.0 if layer.is_loss and at == 0 else 0.0 for at in range(tops)]
    if len(given) != tops:
        layer.fail(f"loss_weight must be unspecified or specified once per top blob ({len(given)} for {tops})")
    return given

"""Shapes, sizes and work of every layer of a net, by Caffe's rules and without Caffe.

Source of the rules: the LayerSetUp and Reshape methods of Caffe 1.0's layers; the tests ask real Caffe for the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import (
    forks,
    schema,
    shapes_checks,
    shapes_data,
    shapes_elementwise,
    shapes_forks,
    shapes_losses,
    shapes_recurrent,
    shapes_routing,
    shapes_windows,
    shapes_wiring,
)
from caffe_on_grid.proto.graph import SolverNets
from caffe_on_grid.proto.shapes_base import (
    FLOAT,
    Given,
    LayerShapes,
    Made,
    NetShapes,
    Refused,
    Rule,
    Shape,
    count,
    need,
    shown,
)
from caffe_on_grid.proto.shapes_data import Unknown
from caffe_on_grid.spec.codec import suggestion

__all__ = ["CAFFE", "RULES", "LayerShapes", "NetShapes", "check", "infer", "rule_of", "sound"]

CAFFE: dict[str, Rule] = {
    **shapes_data.RULES,
    **shapes_elementwise.RULES,
    **shapes_losses.RULES,
    **shapes_recurrent.RULES,
    **shapes_routing.RULES,
    **shapes_windows.RULES,
}
"""The rules of Caffe 1.0's types."""

RULES: dict[str, Rule] = {**CAFFE, **shapes_forks.RULES}
"""With those of forks."""

AUTOMATIC = "(automatic)"
"""Name of a loss that the prototxt leaves without one."""


def infer(net: Any, inputs: Mapping[str, Shape] = {}) -> NetShapes:
    """The shapes of a filtered NetParameter.

    `inputs` has shapes of tops that the net does not tell: of data layers (the data top is enough), of Input layers
    without a shape, of Python layers. Raises ConfigError for what Caffe refuses, naming the layer, the shapes of its
    bottoms and the rule; for a type that is not known; and for a shape that must be given.
    """
    return _walk(net, inputs, partial=False)


def sound(net: Any) -> None:
    """Raise ConfigError, naming the layer, for what Caffe refuses of a filtered net, as far as its shapes are known."""
    _plausible(net, {})


def check(nets: SolverNets, inputs: Mapping[str, Shape] = {}) -> tuple[NetShapes, ...]:
    """The TRAIN net's shapes and then each TEST net's, as far as they are known without reading any data.

    `inputs` as for `infer`, but none is needed: layers behind an unknown shape are left out (NetShapes.unknown). Where
    only the channels of cropped records are unknown they are taken as 3, or as 1 if that does not fit. Raises
    ConfigError, naming the net, for what Caffe would refuse whatever the records are.
    """
    found = []
    for title, net in [("TRAIN net", nets.train), *((f"TEST net {i}", net) for i, net in enumerate(nets.tests))]:
        try:
            found.append(_plausible(net, inputs))
        except ConfigError as error:
            raise ConfigError(f"{title}: {error}") from None
    return tuple(found)


def _plausible(net: Any, inputs: Mapping[str, Shape]) -> NetShapes:
    colour, *others = [{**records, **inputs} for records in shapes_data.plausible(net)]
    try:
        return _walk(net, colour, partial=True)
    except ConfigError:
        for guess in others:
            with contextlib.suppress(ConfigError):  # the first error is the one to tell
                return _walk(net, guess, partial=True)
        raise


def rule_of(layer: Any) -> Rule:
    """The rule of the layer's type; raises ConfigError with the nearest type, or with the fork that has it."""
    rule = RULES.get(layer.type)
    if rule is None:
        known = forks.layer_owner(layer.type) or suggestion(layer.type, RULES)
        raise ConfigError(f"layer {layer.name!r}: unknown layer type {layer.type!r}{known}")
    return rule


def _walk(net: Any, inputs: Mapping[str, Shape], partial: bool) -> NetShapes:
    wiring = shapes_wiring.wire(net)
    walk = _Walk(net, wiring, inputs)
    for at, layer in enumerate(net.layer):
        walk.add(at, layer, partial)
    train = net.state.phase == schema.TRAIN
    return NetShapes(net.name, train, tuple(walk.layers), walk.blobs, tuple(walk.unknown))


class _Walk:
    """Goes through a net's layers in order."""

    def __init__(self, net: Any, wiring: shapes_wiring.Wiring, inputs: Mapping[str, Shape]) -> None:
        self.layers: list[LayerShapes] = []
        self.blobs: dict[str, Shape] = {}
        self.unknown: list[str] = []
        self._train = net.state.phase == schema.TRAIN
        self._wiring, self._inputs = wiring, inputs
        self._rates = {
            s.name: s.lr_mult for layer in net.layer for s in layer.param if s.name and s.HasField("lr_mult")
        }
        self._owned: dict[str, tuple[str, Shape]] = {}
        self._carrying: set[str] = set()
        self._makers: dict[str, int] = {}

    def add(self, at: int, layer: Any, partial: bool) -> None:
        """The next layer; `partial`: leave it out where its shapes cannot be known."""
        rule = rule_of(layer)
        known = all(name in self.blobs for name in layer.bottom)
        try:
            shapes_checks.arity(rule, layer)
            made = self._made(rule, Given(layer, tuple(self.blobs[b] for b in layer.bottom))) if known else None
            if made is not None:
                self._put(at, layer, rule, made)
        except Unknown as error:
            if not partial:
                wanted = ", ".join(repr(top) for top in layer.top)
                raise ConfigError(f"{_shown(layer)}: {error}: the shape of {wanted} must be given") from None
            made = None
        except Refused as error:
            raise ConfigError(f"Caffe refuses {self._with_bottoms(layer)}: {error}{self._hint(layer)}") from None
        if made is None:
            self.unknown.append(layer.name)
            for top in layer.top:
                self.blobs.pop(top, None)

    def _made(self, rule: Rule, given: Given) -> Made:
        tops = list(given.layer.top)
        if not given.bottoms or given.layer.type == "Python":
            if tops and tops[0] in self._inputs and given.layer.type in shapes_data.KINDS:
                data = tuple(self._inputs[tops[0]])
                return Made((data, self._inputs.get(tops[-1], data[:1]))[: len(tops)])
            if tops and all(top in self._inputs for top in tops):
                return Made(tuple(tuple(self._inputs[top]) for top in tops))
        return rule.infer(given)

    def _put(self, at: int, layer: Any, rule: Rule, made: Made) -> None:
        for shape in (*made.tops, *made.params):
            shapes_checks.size(shape)
        for shape in made.tops if layer.bottom else ():
            need(count(shape) > 0, f"its top {shown(shape)} would hold no values")
        for shape in (self.blobs[name] for name in layer.bottom if layer.type != "Silence"):
            need(count(shape) > 0, f"its bottom {shown(shape)} holds no values")
        need(len(layer.param) <= len(made.params), f"{len(layer.param)} param for {len(made.params)} parameter blobs")
        shapes_checks.fillers(layer, rule, made)
        owned = self._own(layer, made)
        learns = [shape for index, shape in owned if rule.learns and self._rate(layer, index)]
        names = tuple(layer.top) or (AUTOMATIC,) * len(made.tops)
        carries = bool(learns) or any(rule.learns and self._rate(layer, i) for i in range(len(made.params)))
        carries = carries or (rule.backward and any(name in self._carrying for name in layer.bottom))
        self.layers.append(
            LayerShapes(
                name=layer.name,
                type=layer.type,
                bottoms=tuple(layer.bottom),
                tops=names,
                top_shapes=made.tops,
                param_shapes=made.params,
                loss_weights=_loss_weights(rule, layer, len(made.tops)),
                flops=made.flops,
                learnable=sum(map(count, learns)),
                activation_bytes=FLOAT * sum(count(s) for s, own in self._held(layer, rule, made) if own),
                gradient_bytes=self._gradients(at, layer, rule, made) if carries and self._train else 0,
                parameter_bytes=FLOAT * sum(count(shape) for _, shape in owned),
                buffer_bytes=FLOAT * made.buffers,
                windows=made.windows,
                sources=tuple(self._makers[name] for name in layer.bottom),
            )
        )
        self._carrying -= set(names)
        if carries:
            self._carrying |= set(names)
        for name, shape in zip(names, made.tops):
            self.blobs[name] = shape
            self._makers[name] = len(self.layers) - 1

    def _own(self, layer: Any, made: Made) -> list[tuple[int, Shape]]:
        """Index and shape of the parameters that no layer before has; refuses a share of another shape."""
        owned = []
        for index, shape in enumerate(made.params):
            spec = layer.param[index] if index < len(layer.param) else schema.message("ParamSpec")()
            owner, theirs = self._owned.setdefault(spec.name, (layer.name, shape)) if spec.name else ("", shape)
            if spec.name and (owner, theirs) != (layer.name, shape):
                loose = spec.share_mode == schema.ENUMS["ParamSpec.DimCheckMode"]["PERMISSIVE"]
                fits = count(theirs) == count(shape) if loose else theirs == shape
                need(fits, f"param {spec.name!r} is {shown(theirs)} in layer {owner!r}, and {shown(shape)} here")
            if not spec.name or owner == layer.name:
                owned.append((index, shape))
        return owned

    def _rate(self, layer: Any, index: int) -> float:
        """A parameter's lr_mult, its own or a sharer's."""
        if index >= len(layer.param):
            return 1.0
        spec = layer.param[index]
        return float(spec.lr_mult if spec.HasField("lr_mult") else self._rates.get(spec.name, 1.0))

    def _held(self, layer: Any, rule: Rule, made: Made) -> list[tuple[Shape, bool]]:
        """Each top's shape, and whether it is memory of its own."""
        bottoms = list(layer.bottom)
        return [
            (shape, not rule.shares and not (i < len(layer.top) and layer.top[i] in bottoms))
            for i, shape in enumerate(made.tops)
        ]

    def _gradients(self, at: int, layer: Any, rule: Rule, made: Made) -> int:
        total = 0
        for index, (shape, own) in enumerate(self._held(layer, rule, made)):
            users = self._wiring.users.get((at, index), 0)
            total += count(shape) * (int(own) + (users if users > 1 else 0))
        return FLOAT * total

    def _with_bottoms(self, layer: Any) -> str:
        bottoms = ", ".join(f"{name} {shown(self.blobs[name])}" for name in layer.bottom if name in self.blobs)
        return f"{_shown(layer)} of {bottoms}" if bottoms else _shown(layer)

    def _hint(self, layer: Any) -> str:
        pairs = [self._makers[name] for name in layer.bottom if name in self._makers]
        return shapes_wiring.rounding_hint(self.layers, pairs) if layer.type in _JOINS else ""


_JOINS = ("Eltwise", "Concat", "Axpy")


def _shown(layer: Any) -> str:
    return f"layer {layer.name!r} ({layer.type})"


def _loss_weights(rule: Rule, layer: Any, tops: int) -> tuple[float, ...]:
    if layer.loss_weight:
        return tuple(float(weight) for weight in layer.loss_weight)
    return tuple(1.0 if rule.loss and at == 0 else 0.0 for at in range(tops))

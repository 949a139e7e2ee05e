"""A net as it is deployed: no labels, no losses, and what the losses compare with labels as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, shapes
from caffe_on_grid.spec.codec import suggestion

_INSTEAD = {"SoftmaxWithLoss": ("Softmax", "prob"), "SigmoidCrossEntropyLoss": ("Sigmoid", "prob")}
"""Losses that work out what they compare with labels → the layer that does that alone, and its top."""
_ENDS = ("Accuracy", "Silence", "HDF5Output")
"""Types that give nothing to a net that is only applied, beside the losses."""


def deploy(net: Any, outputs: Sequence[str] = ()) -> Any:
    """A new net of what `outputs` need, or all that a TEST net (inputs in place of data layers) gives without labels.

    SoftmaxWithLoss becomes Softmax with a top `prob` (where there are several, `<loss>_prob`), SigmoidCrossEntropyLoss
    Sigmoid; other losses, Accuracy, Silence and HDF5Output are left out, and inputs that nothing uses then. Raises
    ConfigError for an output that the net does not have.
    """
    made = schema.NetParameter(name=net.name)
    made.state.CopyFrom(net.state)
    several = sum(layer.type in _INSTEAD for layer in net.layer) > 1
    taken = {top for layer in net.layer for top in layer.top}
    for layer in net.layer:
        made.layer.extend(_deployed(layer, several, taken))
    wanted = list(outputs) or ends(made)
    known = [top for layer in made.layer for top in layer.top]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"the net has no blob {name!r} to give{suggestion(name, known)}")
    _keep(made, set(wanted))
    return made


def ends(net: Any) -> list[str]:
    """Tops that no layer takes and that are no inputs, in order."""
    left: dict[str, None] = {}
    for layer in net.layer:
        for name in layer.bottom:
            left.pop(name, None)
        left.update(dict.fromkeys(layer.top if layer.type != "Input" else ()))
    return list(left)


def _deployed(layer: Any, several: bool, taken: set[str]) -> Iterator[Any]:
    """The layer, what stands for it, or nothing."""
    if layer.type in _INSTEAD:
        kind, top = _INSTEAD[layer.type]
        name = f"{layer.top[0] if layer.top else layer.name}_{top}" if several or top in taken else top
        new = schema.LayerParameter(name=layer.name, type=kind, bottom=layer.bottom[:1], top=[name], phase=layer.phase)
        new.softmax_param.CopyFrom(layer.softmax_param)
        yield new
    elif layer.type not in _ENDS and not shapes.rule_of(layer).loss:
        yield layer


def _keep(net: Any, needed: set[str]) -> None:
    """Leave only the layers that blobs of `needed` come from."""
    kept = []
    for layer in reversed(net.layer):
        if needed.intersection(layer.top):
            kept.append(layer)
            needed.update(layer.bottom)
    layers = [_without_unused(layer, needed) for layer in reversed(kept)]
    net.ClearField("layer")
    net.layer.extend(layers)


def _without_unused(layer: Any, needed: set[str]) -> Any:
    """An Input layer without the tops that nothing takes; another layer as it is, copied."""
    new = schema.LayerParameter()
    new.CopyFrom(layer)
    if layer.type == "Input":
        each = list(layer.input_param.shape)
        sizes = each * len(layer.top) if len(each) == 1 else each
        pairs = [(top, shape) for top, shape in zip(layer.top, sizes) if top in needed]
        new.ClearField("top")
        new.input_param.ClearField("shape")
        new.top.extend(top for top, _ in pairs)
        new.input_param.shape.extend(shape for _, shape in pairs)
    return new

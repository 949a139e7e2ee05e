"""What a built net is: its inputs, shapes and layers, and the message that Caffe would save of it."""

from __future__ import annotations

from typing import Any

import torch

from caffe_on_grid.engine.api import LayerInfo
from caffe_on_grid.engine.torch.graph import AUTOMATIC
from caffe_on_grid.engine.torch.layers_base import Layer
from caffe_on_grid.engine.torch.memory import Inputs
from caffe_on_grid.engine.torch.net import Net
from caffe_on_grid.proto import schema

Shapes = dict[str, tuple[int, ...]]


def inputs(net: Net, device: torch.device) -> Inputs:
    """Memory for the net's inputs."""
    names = [str(top) for layer in net.layers if layer.type == "Input" for top in layer.spec.top]
    return Inputs({name: net.shape(name) for name in names}, device)


def shapes(net: Net) -> Shapes:
    """Blob name → shape as built."""
    return {name: tuple(net.shape(name)) for name in net.blob_names if name != AUTOMATIC}


def describe(net: Net, shapes: Shapes) -> tuple[LayerInfo, ...]:
    """The layers, splits included."""
    return tuple(_info(layer, shapes) for layer in net.layers)


def _info(layer: Layer, shapes: Shapes) -> LayerInfo:
    tops = tuple(map(str, layer.spec.top))
    weights = [*map(float, layer.spec.loss_weight)] or [1.0] * layer.is_loss
    return LayerInfo(
        name=layer.name,
        type=layer.type,
        bottoms=tuple(map(str, layer.spec.bottom)),
        tops=tops,
        top_shapes=tuple(shapes[top] for top in tops),
        param_shapes=tuple(tuple(held.shape) for held in layer.weights),
        loss_weights=tuple((weights + [0.0] * len(tops))[: len(tops)]),
    )


def message(net: Net) -> Any:
    """The NetParameter that Net::ToProto would write, without blobs.

    What Caffe's layers write into their own parameters is there: the phase, a loss's weight, BatchNorm's rates.
    """
    found = schema.NetParameter()
    if net.name:
        found.name = net.name
    for layer in net.layers:
        added = found.layer.add()
        added.CopyFrom(layer.spec)
        added.ClearField("blobs")
        if layer.is_loss and not added.loss_weight:
            added.loss_weight.append(1)
        if layer.type == "BatchNorm":
            _freeze(layer, added)
    return found


def _freeze(layer: Layer, added: Any) -> None:
    """What BatchNormLayer::LayerSetUp writes: lr_mult 0 for each of its sums."""
    while len(added.param) < len(layer.params):
        added.param.add(lr_mult=0)

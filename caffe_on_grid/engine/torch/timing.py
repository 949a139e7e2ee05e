"""How long each layer takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from caffe_on_grid.engine.api import LayerTime
from caffe_on_grid.engine.torch.layers_base import BROKEN
from caffe_on_grid.engine.torch.net import Net
from caffe_on_grid.engine.torch.plan import Step


def time_layers(net: Net, inputs: Mapping[str, torch.Tensor], iterations: int) -> tuple[LayerTime, ...]:
    """Mean seconds of each layer's own forward and backward over `iterations` passes, after one of the whole net."""
    net.forward(inputs)
    net.backward()
    kept, net.keep_diffs = net.keep_diffs, True  # no layer is then merged into another, or overwrites its bottom
    try:
        passes = [_one_pass(net, inputs) for _ in range(iterations)]
    finally:
        net.keep_diffs = kept
        for parameter in net.learnable:
            parameter.clear()
    sums = [[sum(times) / iterations for times in zip(*layer)] for layer in zip(*passes)]
    return tuple(LayerTime(layer.name, layer.type, *found) for layer, found in zip(net.layers, sums))


def _one_pass(net: Net, inputs: Mapping[str, torch.Tensor]) -> list[tuple[float, float]]:
    values: dict[int, torch.Tensor] = {net._inputs[name]: value for name, value in inputs.items()}
    with torch.set_grad_enabled(net.differentiable):
        return [_named(step, values) for step in net._steps]


def _named(step: Step, values: dict[int, torch.Tensor]) -> tuple[float, float]:
    try:
        return _one_layer(step, values)
    except BROKEN as error:
        step.layer.broken(error)


def _one_layer(step: Step, values: dict[int, torch.Tensor]) -> tuple[float, float]:
    """Seconds forward and backward; `values` gets the tops."""
    if step.layer.type == "Input":
        return _seconds(lambda: None)[0], _seconds(lambda: None)[0]
    wanted = [need and step.node.backward for need in step.node.needs]
    bottoms = [values[b].detach().requires_grad_(need) for b, need in zip(step.bottoms, wanted)]
    forward, found = _seconds(lambda: step.forward(*bottoms))
    tops = found if isinstance(found, tuple) else (found,)
    values.update(zip(step.tops, tops))
    roots = [top for top in tops if top.requires_grad and step.node.backward]
    leaves = [x for x in (*bottoms, *step.layer.weights) if x.requires_grad]
    ones = [torch.ones_like(top) for top in roots]
    backward, _ = _seconds(lambda: torch.autograd.grad(roots, leaves, ones, allow_unused=True) if roots else None)
    return forward, backward


def _seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    _wait()
    start = time.perf_counter()
    found = run()
    _wait()
    return time.perf_counter() - start, found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()

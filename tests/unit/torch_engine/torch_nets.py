"""Nets for the torch engine's unit tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from caffe_on_grid.engine.torch.net import Net
from caffe_on_grid.engine.torch.random import Stream
from caffe_on_grid.proto import schema, text, upgrade


def net(layers: str, phase: int = schema.TRAIN, **inputs: tuple[int, ...]) -> Net:
    """A net over Input layers of these shapes, gradients kept."""
    dims = {n: " ".join(f"dim: {d}" for d in s) for n, s in inputs.items()}
    heads = [
        f'layer {{ name: "{n}" type: "Input" top: "{n}" input_param {{ shape {{ {d} }} }} }}' for n, d in dims.items()
    ]
    return whole("force_backward: true\n" + "\n".join(heads) + layers, phase)


def whole(text_: str, phase: int = schema.TRAIN, **more: Any) -> Net:
    """A net from its text."""
    param = upgrade.upgrade_net(text.parse(schema.NetParameter, text_, "net"))
    made = Net(param, phase, torch.device("cpu"), Stream(1), **more)
    made.keep_diffs = True
    return made


def values(*shape: int, seed: int = 0) -> Any:
    """N(0, 1) as float32."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def pass_through(made: Net, top: str, given: dict[str, Any], diff: Any = None) -> Any:
    """Forward, backward from `top` with `diff` (ones by default); the top's value."""
    made.forward(given)
    found = made.blob(top).detach().numpy()
    made.backward({top: np.ones_like(found) if diff is None else diff})
    return found

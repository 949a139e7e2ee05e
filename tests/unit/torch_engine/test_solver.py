"""Every solver's rule against values of real Caffe, on a net that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from caffe_on_grid.engine.api import EnginePlan
from caffe_on_grid.engine.torch import engine
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text

pytestmark = pytest.mark.torch
NET = """
layer { name: "x" type: "Input" top: "x" top: "y" input_param { shape { dim: 4 dim: 2 } shape { dim: 4 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "p" inner_product_param { num_output: 1 }
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }
"""
BATCH = {
    "x": np.array([[1, 2], [3, -1], [0.5, 0.5], [-2, 1]], np.float32),
    "y": np.array([[1], [2], [0.5], [-1]], np.float32),
}
FIXED = 'base_lr: 0.1 lr_policy: "fixed" '
KNOWN = {
    "base_lr: 0.1 lr_policy: 'step' gamma: 0.5 stepsize: 2 momentum: 0.9 weight_decay: 0.01": (
        (0.6502781, 0.17944662, 0.6254298)
    ),
    "base_lr: 0.1 lr_policy: 'inv' gamma: 0.1 power: 0.75 momentum: 0.9 weight_decay: 0.01 regularization_type: 'L1'": (
        (0.615319, 0.1747751, 0.50823104)
    ),
    FIXED + "clip_gradients: 1 iter_size: 3 momentum: 0.9 weight_decay: 0.01": (0.60771257, 0.09532424, 0.47846144),
    "type: 'Nesterov' base_lr: 0.1 lr_policy: 'exp' gamma: 0.9 momentum: 0.9 weight_decay: 0.01": (
        (0.6027786, 0.11921158, 0.3844897)
    ),
    FIXED + "type: 'AdaGrad' weight_decay: 0.01 delta: 1e-3": (0.5733309, -0.06209827, 0.3303047),
    "type: 'RMSProp' base_lr: 0.1 lr_policy: 'poly' power: 2 max_iter: 10 rms_decay: 0.9 delta: 1e-3": (
        (0.59831226, 0.01942166, 0.2630816)
    ),
    "type: 'AdaDelta' base_lr: 1 lr_policy: 'fixed' momentum: 0.95 delta: 1e-6 weight_decay: 0.01": (
        (0.5240913, -0.27334008, 0.15154983)
    ),
    "type: 'Adam' base_lr: 0.1 lr_policy: 'multistep' gamma: 0.1 stepvalue: 2 stepvalue: 4 momentum: 0.9"
    " momentum2: 0.99 delta: 1e-3 weight_decay: 0.01": (0.6095959, -0.08931722, 0.46129167),
    "type: 'Adam' base_lr: 0.1 lr_policy: 'poly' power: 0.5 max_iter: 3 momentum: 0.9 momentum2: 0.99 delta: 1e-3": (
        (0.602839, -0.07415698, 0.47418976)  # beyond max_iter the rate is NaN: there nothing changes
    ),
    "type: 'AdaDelta' base_lr: 1 lr_policy: 'poly' power: 0.5 max_iter: 3 momentum: 0.95 delta: 1e-6": (
        (0.510472, -0.2892701, 0.12127732)
    ),
}


class Quiet:
    """Hooks that do nothing."""

    def on_start(self) -> None:
        """Nothing."""

    def on_ready(self, first: int, last: int) -> None:
        """Nothing."""

    def on_gradients(self) -> None:
        """Nothing."""


def build(solver: str) -> engine.TorchEngine:
    message = text.parse(schema.SolverParameter, solver, "solver")
    made = engine.create(EnginePlan(message, text.parse(schema.NetParameter, NET, "net"), (), seed=1, scratch=Path()))
    made.params[0][...] = [[0.5, -0.3]]
    made.params[1][...] = 0.1
    return made


@pytest.mark.parametrize("copies", [False, True], ids=["shared", "copied"])
@pytest.mark.parametrize("solver", KNOWN)
def test_six_steps(solver: str, copies: bool) -> None:
    """Caffe's parameters after six iterations; also where arrays are copies, as on a GPU."""
    made = build(solver)
    if copies:
        made.share_memory(copies=True)
    for _ in range(6):
        made.step(iter([BATCH] * 3), Quiet())
    found = np.concatenate([blob.ravel() for blob in made.params])
    np.testing.assert_allclose(found, KNOWN[solver], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (FIXED + "type: 'AdaGrad' momentum: 0.9", "cannot be used with AdaGrad"),
        (FIXED + "type: 'RMSProp' rms_decay: 1", "rms_decay is 1"),
        (FIXED + "weight_decay: 0.1 regularization_type: 'L3'", "unknown regularization_type 'L3'"),
        (FIXED + "iter_size: 0", "iter_size is 0"),
        (FIXED + "average_loss: 0", "average_loss is 0"),
        ("base_lr: 0.1", "lr_policy is missing"),
    ],
)
def test_refusals(solver: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(solver)

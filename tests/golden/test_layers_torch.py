"""Every golden layer case through the torch engine's net, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from golden.conftest import FOLDER, cases
from golden.golden_layers import errors, indexed

torch = pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from caffe_on_grid.engine.torch.net import Net  # noqa: E402
from caffe_on_grid.engine.torch.random import Stream  # noqa: E402
from caffe_on_grid.proto import schema, text, upgrade  # noqa: E402

pytestmark = pytest.mark.torch

RECORDED_AS_ZERO = {"HingeLoss", "Reshape"}
"""The recording cleared the bottoms' gradients before the backward pass; these two leave theirs there before, or share
it with the top, so the recorded bottom gradients are 0, not what training gives (see golden_layers.caffe_backward)."""


def run(case: Mapping[str, Any], device: Any) -> tuple[dict[str, Any], str]:
    """The case's arrays by this engine, and the type of the layer."""
    param = upgrade.upgrade_net(text.parse(schema.NetParameter, str(case["prototxt"]), "net"))
    phase = {"TRAIN": schema.TRAIN, "TEST": schema.TEST}[str(case["phase"])]
    net = Net(param, phase, device, Stream(5), train_like=True)
    net.keep_diffs = True
    layer = next(layer for layer in net.layers if layer.name == str(case["layer"]))
    for at, value in indexed(case, "param").items():
        layer.params[at].assign(torch.from_numpy(value))
    names = {at: str(name) for at, name in indexed(case, "bottomname").items()}
    given = {n if n in net._inputs else f"{n}_in": case[f"bottom_{at}"] for at, n in names.items()}
    net.forward(given)
    tops = {at: str(name) for at, name in indexed(case, "topname").items()}
    found = {f"top_{at}": net.blob(name).detach().cpu().numpy().copy() for at, name in tops.items()}
    found.update({f"paramafter_{at}": p.data.cpu().numpy().copy() for at, p in enumerate(layer.params)})
    diffs = indexed(case, "topdiff")
    if diffs:
        net.backward({tops[at]: value for at, value in diffs.items()})
        found.update({f"paramdiff_{at}": p.diff.cpu().numpy() for at, p in enumerate(layer.params)})
        for at, name in names.items():
            diff = net.diff(name)
            found[f"bottomdiff_{at}"] = np.zeros_like(case[f"bottom_{at}"]) if diff is None else diff.cpu().numpy()
    return found, layer.type


@pytest.mark.parametrize("name", cases("layers"))
def test_layer(name: str) -> None:
    check(name, torch.device("cpu"))


def check(name: str, device: Any) -> None:
    """Every array of a case to 1e-5 of its largest magnitude."""
    with np.load(FOLDER / "layers" / f"{name}.npz", allow_pickle=False) as file:
        case = dict(file)
    found, kind = run(case, device)
    if kind in RECORDED_AS_ZERO:
        assert not case["bottomdiff_0"].any()
        assert found["bottomdiff_0"].any()
        del case["bottomdiff_0"]
    assert any(key.startswith("top_") for key in found)
    wrong = {key: error for key, error in errors(case, found).items() if not error <= 1e-5}
    assert not wrong, wrong

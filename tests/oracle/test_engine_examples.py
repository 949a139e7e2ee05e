"""Every example's nets in real Caffe: built, one step, one test, all in one process."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

SOLVERS = {
    "caffenet/caffenet_solver.prototxt": (60_965_224, [256], {"loss": 1.0}),
    "cifar10/cifar10_full_solver.prototxt": (89_578, [100], {"loss": 1.0}),
    "cifar10/cifar10_quick_solver.prototxt": (145_578, [100], {"loss": 1.0}),
    "googlenet/googlenet_solver.prototxt": (
        13_378_280,
        [32],
        {"loss1/loss": 0.3, "loss2/loss": 0.3, "loss3/loss": 1.0},
    ),
    "lenet/lenet_solver.prototxt": (431_080, [64], {"loss": 1.0}),
    "lenet/lenet_solver_short.prototxt": (431_080, [32], {"loss": 1.0}),
    "lenet/lenet_solver_two_devices.prototxt": (431_080, [32], {"loss": 1.0}),
    "resnet50/resnet50_solver.prototxt": (25_557_032, [32], {"loss": 1.0}),
}
"""Solver → learnable values (the published counts), TRAIN batch sizes, loss weights."""


@pytest.fixture(scope="module")
def ran(in_runtime, root):
    """Solver → what its step and test gave."""
    return examples(in_runtime, root, "caffe")


def examples(run, root, engine: str) -> Any:
    program = str(root / "tests" / "oracle" / "engine_examples.py")
    return json.loads(run([program, str(root / "examples"), "1", engine], timeout=240).stdout.splitlines()[-1])


@pytest.mark.runtime
def test_every_solver_is_listed(ran) -> None:
    assert sorted(ran) == sorted(SOLVERS)


@pytest.mark.runtime
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_example(ran, solver: str) -> None:
    """The published size, a finite loss, and a gradient for every blob."""
    found, (parameters, batches, losses) = ran[solver], SOLVERS[solver]
    assert (found["parameters"], found["batches"]) == (parameters, batches)
    assert found["losses"] == pytest.approx(losses)
    assert math.isfinite(found["loss"]) and found["loss"] > 1 and found["finite"]
    assert found["moved"] == found["ready"] == found["blobs"]
    assert {"loss1/loss", "loss3/loss"} <= set(found["outputs"]) or "loss" in found["outputs"]


@pytest.mark.runtime
@pytest.mark.torch
def test_torch_gives_the_same(ran, in_torch, root) -> None:
    """From the seed: fillers, dropout, one step and a test, in every example."""
    for solver, found in examples(in_torch, root, "torch").items():
        wanted = ran[solver]
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-5), solver
        assert found["sum"] == pytest.approx(wanted["sum"], rel=1e-5), solver
        assert found["outputs"] == pytest.approx(wanted["outputs"], rel=1e-4, abs=1e-5), solver
        same = ("finite", "moved", "blobs", "ready", "parameters", "losses")
        assert [found[key] for key in same] == [wanted[key] for key in same], solver

"""What the caffe engine works out without Caffe."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from caffe_on_grid.engine import native, registry
from caffe_on_grid.engine.api import EnginePlan
from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.proto import schema, text

NET = """
name: "n" state { phase: TRAIN stage: "s" }
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 } } include { stage: "s" } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" exclude { stage: "t" } }
"""
SOLVER = """
net: "gone.prototxt" type: "SGD" base_lr: 0.5 display: 7 test_interval: 3 test_iter: 9
snapshot: 5 snapshot_prefix: "a/b/pre"
train_state { stage: "s" } test_initialization: true random_seed: 1 solver_mode: GPU iter_size: 2
"""


def net() -> object:
    return text.parse(schema.NetParameter, NET, "net")


def plan(solver: str = SOLVER, **more: object) -> EnginePlan:
    return EnginePlan(text.parse(schema.SolverParameter, solver, "solver"), net(), (net(), net()), **more)


def test_caffe_gets_its_nets_and_nothing_periodic() -> None:
    made = native.solver_message(plan(seed=8))
    assert not any(made.HasField(name) for name in ("net", "display", "snapshot", "train_state"))
    assert (made.base_lr, made.iter_size, made.random_seed) == (0.5, 2, 8)
    assert (list(made.test_iter), made.test_interval, made.test_initialization) == ([1, 1], native.NEVER, False)
    assert made.snapshot_prefix == "pre" and schema.SolverParameter.FromString(made.SerializeToString()) == made


@pytest.mark.parametrize(("gpu", "mode", "device"), [(None, "CPU", 0), (3, "GPU", 3)])
def test_mode_and_device_are_the_plans(gpu, mode, device) -> None:
    made = native.solver_message(plan(gpu=gpu))
    assert (made.solver_mode, made.device_id) == (schema.ENUMS["SolverParameter.SolverMode"][mode], device)


def test_nets_are_not_filtered_again() -> None:
    wanted, given = native.solver_message(plan()).train_net_param, net()
    assert not wanted.HasField("state") and not any(layer.include or layer.exclude for layer in wanted.layer)
    assert [layer.name for layer in wanted.layer] == ["in", "a"]
    native.bare_net(given)
    assert given.layer[0].include, "the plan's own net stays as it was"


@pytest.mark.parametrize(("prefix", "name"), [("", "snapshot"), ("pre", "pre"), ("/x/y/pre", "pre"), ("dir/", "dir")])
def test_snapshots_have_bare_names(prefix, name) -> None:
    assert native.snapshot_prefix(schema.SolverParameter(snapshot_prefix=prefix)) == name


def test_unknown_types_are_named() -> None:
    native.check_plan(plan(), ["Input", "InnerProduct"])
    with pytest.raises(ConfigError, match=r"layer 'a': unknown layer type 'InnerProduct' .did you mean 'InnerProd'"):
        native.check_plan(plan(), ["InnerProd", "Input"])
    with pytest.raises(ConfigError, match=r"unknown layer type 'Input'; this Caffe knows: ReLU$"):
        native.check_plan(plan(), ["ReLU"])
    with pytest.raises(ConfigError, match="unknown type 'sgd'"):
        native.check_plan(plan(SOLVER.replace("SGD", "sgd")), ["Input", "InnerProduct"])


def param(layer_index: int, kind: str = "InnerProduct", lr_mult: float | None = None) -> native.Param:
    return native.Param("l", layer_index, 0, None, kind, lr_mult)


def test_what_learns() -> None:
    assert [p.learns for p in (param(0), param(0, lr_mult=0.0), param(0, lr_mult=2.0), param(0, "BatchNorm"))] == [
        True,
        False,
        True,
        False,
    ]


def test_gradients_are_ready_with_their_owner() -> None:
    ranges = native.ready_ranges([param(1), param(1), param(4), param(6), param(6), param(6)])
    assert ranges == {1: (0, 1), 4: (2, 2), 6: (3, 5)}


def fake_blob(values: np.ndarray) -> SimpleNamespace:
    return SimpleNamespace(data=values)


def test_shared_blobs_are_listed_once_with_the_rate_that_is_set() -> None:
    """A sharer's lr_mult holds where the owner has none (Net::AppendParam)."""
    shared, own = np.zeros(3, np.float32), np.zeros(2, np.float32)
    layers = [SimpleNamespace(type="T", blobs=[fake_blob(v)]) for v in (shared, own, shared)]
    built = SimpleNamespace(_layer_names=["a", "b", "c"], layers=layers)
    message = schema.NetParameter()
    for name in "abc":
        message.layer.add(name=name).param.add(name="w" if name != "b" else "")
    message.layer[2].param[0].lr_mult = 0
    found = native.params(built, message)
    assert [(p.layer, p.lr_mult, p.learns) for p in found] == [("a", 0.0, False), ("b", None, True)]


def test_inputs_must_fit() -> None:
    built = SimpleNamespace(blobs={"data": fake_blob(np.zeros((2, 3), np.float32))})
    native.fill(built, {"data": np.ones((2, 3))})
    assert built.blobs["data"].data.sum() == 6
    with pytest.raises(ConfigError, match=r"input 'data': the net expects shape \(2, 3\), got \(3,\)"):
        native.fill(built, {"data": np.ones(3)})
    with pytest.raises(ConfigError, match="did you mean 'data'"):
        native.fill(built, {"dat": np.ones(3)})


def test_loss_is_the_weighted_sum() -> None:
    terms = [(fake_blob(np.array([1.0, 2.0], np.float32)), 0.5), (fake_blob(np.float32(4)), 2.0)]
    assert native.loss(terms) == 9.5


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown engine 'cafe' \(did you mean 'caffe'\?\); known: auto, caffe"):
        registry.create("cafe", plan())


def test_an_engine_that_cannot_be_loaded_is_an_environment_fault(monkeypatch) -> None:
    """Importing it does not fail the registry; only asking for it does."""
    for framework, module in (("caffe", "caffe_on_grid.engine.caffe"), ("torch", "caffe_on_grid.engine.torch.engine")):
        monkeypatch.setitem(sys.modules, framework, None)
        for loaded in [name for name in sys.modules if name == module or name.startswith("caffe_on_grid.engine.torch")]:
            monkeypatch.delitem(sys.modules, loaded)
    assert all(version.startswith(registry.MISSING) for version in registry.available().values())
    for name in ("caffe", "torch", "auto"):
        with pytest.raises(EnvironmentFault):
            registry.create(name, plan(scratch=Path()))


def test_a_folder_of_an_engine_s_name_is_not_the_engine(monkeypatch, tmp_path: Path) -> None:
    """A clone of Caffe in the user's folder, say: Python takes it for a package without a file."""
    for name in ("caffe", "torch"):
        (tmp_path / name).mkdir()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert all(version.startswith(registry.MISSING) for version in registry.available().values())
    for name in ("caffe", "torch"):
        why = f"engine '{name}' cannot be loaded in this Python: No module named '{name}'.*{tmp_path / name}: a folder"
        with pytest.raises(EnvironmentFault, match=why):
            registry.create(name, plan(scratch=Path()))
    with pytest.raises(EnvironmentFault, match="no engine can be used in this Python"):
        registry.create("auto", plan(scratch=Path()))

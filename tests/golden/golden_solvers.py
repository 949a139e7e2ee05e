"""`golden_solvers.py ENGINE FOLDER`, in the ranks' Python: twelve steps of each case of FOLDER/solvers, as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import Engine, EnginePlan
from caffe_on_grid.proto import schema, text, upgrade

SEED = 5
STEPS = 12


class Quiet:
    """Hooks that do nothing."""

    def on_start(self) -> None:
        """Nothing."""

    def on_ready(self, first: int, last: int) -> None:
        """Nothing."""

    def on_gradients(self) -> None:
        """Nothing."""


def plan(case: Mapping[str, Any]) -> EnginePlan:
    """The case's solver and net; what Caffe's defaults leave open is said."""
    solver = upgrade.upgrade_solver(text.parse(schema.SolverParameter, str(case["solver"]), "solver"))
    net = upgrade.upgrade_net(text.parse(schema.NetParameter, str(case["net"]), "net"))
    return EnginePlan(solver, net, (), seed=SEED, scratch=Path.cwd())


def create(name: str, case: Mapping[str, Any]) -> Engine:
    """The engine for a case; "torch+gpu": on GPU 0."""
    return registry.create(name.split("+")[0], replace(plan(case), gpu=0 if name.endswith("+gpu") else None))


def owners(case: Mapping[str, Any]) -> list[int]:
    """Indices of the case's parameters that are stored once: of those with one `param { name }`, the first."""
    net = text.parse(schema.NetParameter, str(case["net"]), "net")
    shared = {f"{layer.name}/{i}": p.name for layer in net.layer for i, p in enumerate(layer.param) if p.name}
    keys = [shared.get(str(name), str(name)) for name in case["param_names"]]
    return [at for at, key in enumerate(keys) if keys.index(key) == at]


def error(engine: Engine, case: Mapping[str, Any], key: str) -> float:
    """Largest difference between the engine's parameters and the case's `key_j`."""
    wanted = [case[f"{key}_{at}"] for at in owners(case)]
    assert len(wanted) == len(engine.all_params())
    return max(float(np.abs(a - b).max()) for a, b in zip(engine.all_params(), wanted))


def step(engine: Engine, case: Mapping[str, Any], at: int) -> float:
    """One step on the case's data of iteration `at`, which every pass sees."""
    batch = {"data": case["data"][at], "label": case["label"][at]}
    return engine.step(iter([batch] * 100), Quiet()).loss


def run(name: str, case: Mapping[str, Any]) -> dict[str, float]:
    """What each tolerance is held against: errors of losses, parameters, a restored state and the step after it."""
    engine = create(name, case)
    found = {"init": error(engine, case, "init"), "loss": 0.0, "params": 0.0}
    for at in range(STEPS):
        found["loss"] = max(found["loss"], abs(step(engine, case, at) - float(case["loss"][at])))
        found["params"] = max(found["params"], error(engine, case, f"param_{at + 1}"))
    restored = restore(name, case)
    found["restored"] = error(restored, case, f"param_{STEPS}")
    found["model"], found["state"] = written_again(restored, case)
    step(engine, case, 0), step(restored, case, 0)
    found["continued"] = difference(engine.all_params(), restored.all_params())
    return found


def restore(name: str, case: Mapping[str, Any]) -> Engine:
    """An engine restored from the files that Caffe wrote."""
    Path("golden.caffemodel").write_bytes(bytes(case["model_bytes"]))
    state = schema.SolverState.FromString(bytes(case["state_bytes"]))
    state.learned_net = "golden.caffemodel"
    Path("golden.solverstate").write_bytes(state.SerializeToString())
    engine = create(name, case)
    engine.restore(Path("golden.solverstate"))
    assert engine.iteration == STEPS
    return engine


def written_again(engine: Engine, case: Mapping[str, Any]) -> tuple[int, int]:
    """How many files (0 or 1) of a snapshot that was just restored differ from the bytes that Caffe wrote."""
    saved = engine.save("again")
    state = schema.SolverState.FromString(bytes(case["state_bytes"]))
    state.learned_net = saved.model.name
    wanted = (bytes(case["model_bytes"]), state.SerializeToString())
    return int(saved.model.read_bytes() != wanted[0]), int(saved.state.read_bytes() != wanted[1])


def difference(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Largest difference between two lists of blobs."""
    return max(float(np.abs(a - b).max()) for a, b in zip(left, right))


def main(engine: str, folder: Path) -> None:
    """Run every case in a folder of its own; print case → errors, or a traceback."""
    outcomes: dict[str, Any] = {}
    for path in sorted(folder.resolve().glob("solvers/*.npz")):
        with tempfile.TemporaryDirectory() as work, np.load(path, allow_pickle=False) as case:
            os.chdir(work)
            try:
                outcomes[path.stem] = run(engine, dict(case))
            except Exception:
                outcomes[path.stem] = traceback.format_exc()
            os.chdir("/")
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""`engine_examples.py FOLDER BATCH ENGINE`, in the ranks' Python: each example built, stepped and tested, as JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import EnginePlan
from caffe_on_grid.proto import graph, schema, text, upgrade

SHAPES = {"lenet": (1, 28, 28), "cifar10": (3, 32, 32)}
CLASSES = {"lenet": 10, "cifar10": 10}


class Quiet:
    """Hooks that count what is ready."""

    def __init__(self) -> None:
        self.ready = 0

    def on_start(self) -> None:
        """Nothing."""

    def on_ready(self, first: int, last: int) -> None:
        """Count."""
        self.ready += last - first + 1

    def on_gradients(self) -> None:
        """Nothing."""


def inputs(net: Any, folder: str, batch: int) -> tuple[Any, dict[str, Any]]:
    """The net with inputs of `batch` records, and random ones."""
    random, blobs = np.random.RandomState(3), {}
    for layer in graph.data_layers(net):
        crop = layer.transform.crop_size
        data = random.rand(batch, *SHAPES.get(folder, (3, crop, crop))).astype(np.float32)
        labels = random.randint(0, CLASSES.get(folder, 1000), batch).astype(np.float32)
        blobs = {layer.data_top: data, layer.label_top: labels}
    return graph.replace_data(net, {name: array.shape for name, array in blobs.items()}), blobs


def run(path: Path, batch: int, name: str) -> dict[str, Any]:
    """One step and one test of a solver's nets."""
    solver = upgrade.upgrade_solver(text.parse(schema.SolverParameter, path.read_text(), str(path)))
    nets = graph.solver_nets(solver, lambda name: (path.parent / name).read_text())
    train, batches = inputs(nets.train, path.parent.name, batch)
    test, tested = inputs(nets.tests[0], path.parent.name, batch)
    with tempfile.TemporaryDirectory() as scratch:
        plan = EnginePlan(solver, train, (test,), seed=1, scratch=Path(scratch))
        engine, hooks = registry.create(name, plan), Quiet()
        result = engine.step(iter([batches]), hooks)
        outputs = engine.evaluate(0, tested)
    weights = {top: w for layer in engine.layers() for top, w in zip(layer.tops, layer.loss_weights) if w}
    return {
        "loss": result.loss,
        "finite": all(math.isfinite(float(np.sum(blob))) for blob in engine.grads),
        "moved": sum(bool(np.any(blob)) for blob in engine.grads),
        "blobs": len(engine.params),
        "ready": hooks.ready,
        "parameters": sum(int(blob.size) for blob in engine.params),
        "batches": [layer.batch_size for layer in graph.data_layers(nets.train)],
        "losses": weights,
        "outputs": {name: float(value) for name, value in sorted(outputs.items())},
        "sum": sum(float(np.abs(blob).sum(dtype=np.float64)) for blob in engine.all_params()),
    }


if __name__ == "__main__":
    os.environ.setdefault("GLOG_minloglevel", "2")
    solvers = sorted(Path(sys.argv[1]).glob("*/*solver*.prototxt"))
    print(json.dumps({f"{p.parent.name}/{p.name}": run(p, int(sys.argv[2]), sys.argv[3]) for p in solvers}))

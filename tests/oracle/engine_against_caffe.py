"""`engine_against_caffe.py`, in the ranks' Python, in a folder with solver.prototxt and start.caffemodel.

Steps the engine through the LMDB in its own order and writes engine.caffemodel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from caffe_on_grid.data import lmdb_source
from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import EnginePlan
from caffe_on_grid.proto import graph, schema, text, upgrade


class Quiet:
    """Hooks that do nothing."""

    def on_start(self) -> None:
        """Nothing."""

    def on_ready(self, first: int, last: int) -> None:
        """Nothing."""

    def on_gradients(self) -> None:
        """Nothing."""


def batches(layer: graph.DataLayer) -> Iterator[dict[str, Any]]:
    """Batches of the source's records in turn, scaled as the layer says."""
    source, at = lmdb_source.open(layer.source), 0
    while True:
        records = [source.read((at + i) % len(source)) for i in range(layer.batch_size)]
        data = np.stack([r.pixels.astype(np.float32) * np.float32(layer.transform.scale) for r in records])
        yield {layer.data_top: data, layer.label_top: np.array([r.label for r in records], np.float32)}
        at += layer.batch_size


def main() -> None:
    """Train as the solver says."""
    solver = upgrade.upgrade_solver(text.parse(schema.SolverParameter, Path("solver.prototxt").read_text(), "solver"))
    nets = graph.solver_nets(solver, lambda name: Path(name).read_text())
    feed = batches(graph.data_layers(nets.train)[0])
    shapes = {name: array.shape for name, array in next(batches(graph.data_layers(nets.train)[0])).items()}
    train = graph.replace_data(nets.train, shapes)
    engine = registry.create("caffe", EnginePlan(solver, train, (), seed=5, scratch=Path.cwd()))
    if not Path("start.caffemodel").exists():
        engine.save_model(Path("start.caffemodel"))
        return
    engine.load_weights(Path("start.caffemodel"))
    while engine.iteration < solver.max_iter:
        engine.step(feed, Quiet())
    engine.save_model(Path("engine.caffemodel"))


if __name__ == "__main__":
    main()

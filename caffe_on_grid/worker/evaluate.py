"""One pass over a TEST net, spread over all ranks, with Caffe's averages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np

from caffe_on_grid.engine.api import Array
from caffe_on_grid.spec.report import Tested
from caffe_on_grid.worker.assemble import Assembly, Inputs
from caffe_on_grid.worker.labels import LabelCheck

Outputs = Mapping[str, Sequence[float]]


def one_pass(assembly: Assembly, index: int, inputs: Inputs) -> Optional[Tested]:
    """Evaluate TEST net `index` on this rank's batches of the pass; rank 0 gets the average, the others None."""
    begin = time.perf_counter()
    labels = LabelCheck(inputs.label_uses, assembly.engine, index)
    mine = [
        one_batch(assembly, index, inputs, labels) for _ in range(assembly.comm.rank, inputs.passes, assembly.comm.size)
    ]
    gathered = assembly.comm.gather(mine)
    if gathered is None:
        return None
    return Tested(
        rank=0,
        time=time.time(),
        iteration=assembly.engine.iteration,
        net=index,
        outputs=average(interleave(gathered, inputs.passes)),
        batches=inputs.passes,
        seconds=time.perf_counter() - begin,
    )


def one_batch(assembly: Assembly, index: int, inputs: Inputs, labels: LabelCheck) -> dict[str, list[float]]:
    """Outputs of one forward pass."""
    batch = inputs.next()
    labels.check(batch)
    return {name: list(values) for name, values in as_tuples(assembly.engine.evaluate(index, batch)).items()}


def interleave(gathered: Sequence[Sequence[Outputs]], passes: int) -> list[Outputs]:
    """Batches in the order of the source: rank r made those at places r, r + world, …"""
    world = len(gathered)
    return [gathered[place % world][place // world] for place in range(passes)]


def average(batches: Sequence[Outputs]) -> dict[str, tuple[float, ...]]:
    """Caffe's average (Solver::Test): float32 sums in order of the batches, divided by their number."""
    totals = {name: np.zeros(len(values), np.float32) for name, values in batches[0].items()}
    for outputs in batches:
        for name, values in outputs.items():
            totals[name] += np.asarray(values, np.float32)
    return {name: tuple(float(v) for v in total / np.float32(len(batches))) for name, total in totals.items()}


def as_tuples(outputs: Mapping[str, Array]) -> dict[str, tuple[float, ...]]:
    """Output blobs as flat tuples of numbers."""
    return {name: tuple(float(v) for v in np.ravel(array)) for name, array in outputs.items()}

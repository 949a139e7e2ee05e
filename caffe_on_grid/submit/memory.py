"""Memory of an executor's container in YARN beside the JVM's heap: what its ranks need, by the shapes of the nets.

`overhead = JVM + Spark's Python + devices × rank`, a rank with a quarter to spare and never less than RANK_MIB; where
the shape of the data is not known on the gateway, UNKNOWN_MIB are added to each rank. YARN kills a container that takes
more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from caffe_on_grid.proto import graph, shapes, sizing
from caffe_on_grid.spec.job import JobSpec

JVM_MIB = 256
"""Of a JVM beside its heap."""
PYTHON_MIB = 128
"""Spark's two Python processes, the guards, MPI's launcher."""
RANK_MIB = 384
SPARE = 1.25
UNKNOWN_MIB = 256


@dataclass(frozen=True)
class Memory:
    """What an executor's container is asked to have beside the heap."""

    devices: int
    rank_mib: int
    estimate: sizing.Estimate

    @property
    def overhead_mib(self) -> int:
        """The whole of it."""
        return JVM_MIB + PYTHON_MIB + self.devices * self.rank_mib

    def lines(self, heap: str) -> Iterator[str]:
        """For people: how it comes about."""
        yield (
            f"memory of an executor: heap {heap} + {self.overhead_mib} MiB = JVM {JVM_MIB} + Spark's Python "
            f"{PYTHON_MIB} + {self.devices} x {self.rank_mib} MiB for ranks"
        )
        spare = f"a quarter to spare, at least {RANK_MIB}"
        unknown = "" if self.estimate.complete else f", and {UNKNOWN_MIB} because the data's shape is not known here"
        yield f"memory of a rank: {self.estimate.mib} MiB estimated, {spare}{unknown}; largest parts:"
        yield from (f"  {line.strip()}" for line in self.estimate.lines())


def of(job: JobSpec, solver: Any, nets: graph.SolverNets) -> Memory:
    """The memory of `job`'s executors; ConfigError where a net's shapes do not fit together."""
    found = shapes.check(nets)
    trains = "train" in job.tasks
    world = job.cluster.executors * job.engine.devices
    data = job.data
    made = sizing.estimate(
        solver,
        found[0] if trains else None,
        found[1:] if trains else found[1 + job.test_net : 2 + job.test_net],
        world,
        job.sync.bucket_mib,
        data.prefetch,
        data.feeders,
    )
    rank = max(RANK_MIB, int(made.mib * SPARE)) + (0 if made.complete else UNKNOWN_MIB)
    return Memory(job.engine.devices, rank, made)

"""Which strategy is which class: the one table."""

from __future__ import annotations

from typing import Callable

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec.codec import suggestion
from caffe_on_grid.spec.job import SyncSpec
from caffe_on_grid.sync.allreduce import AllReduce
from caffe_on_grid.sync.api import Exchange, Synchroniser

STRATEGIES: dict[str, Callable[[Exchange, SyncSpec], Synchroniser]] = {
    "allreduce": lambda comm, spec: AllReduce(comm, spec.bucket_mib << 20),
}
"""Strategy → how it is made from a communicator and the job's sync settings."""


def create(name: str, comm: Exchange, spec: SyncSpec) -> Synchroniser:
    """The synchroniser called `name`; ConfigError listing the known ones."""
    if name not in STRATEGIES:
        hint = suggestion(name, STRATEGIES)
        raise ConfigError(f"--sync {name}: no such strategy{hint}; known: {', '.join(STRATEGIES)}")
    if spec.bucket_mib < 1:
        raise ConfigError(f"sync.bucket_mib {spec.bucket_mib}: a bucket holds at least 1 MiB; give a larger one")
    return STRATEGIES[name](comm, spec)

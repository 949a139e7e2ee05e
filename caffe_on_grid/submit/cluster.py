"""Where the job runs: the master, the size of the gang and of its executors, made explicit and checked. Pure."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Optional

from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec.job import Cluster

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?\Z")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]\Z")
_STANDALONE = re.compile(r"spark://[^/\s]+\Z")

CONFIGURATION = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables whose presence makes `yarn` the default master."""


@dataclass(frozen=True)
class Master:
    """A Spark master, taken apart."""

    kind: str
    """local, local-cluster, standalone or yarn."""
    slots: Optional[int] = None
    """Tasks (local) or executors (local-cluster) that there can be; None: the cluster knows."""
    cores: Optional[int] = None
    """local-cluster: cores of each executor."""
    memory_mib: Optional[int] = None
    """local-cluster: memory of each worker."""

    @property
    def here(self) -> bool:
        """Whether all of it runs on this machine."""
        return self.kind in ("local", "local-cluster")


def master(url: str, cores: int) -> Master:
    """The parts of a master URL on a machine of `cores`; UsageError for one that is not known."""
    if url == "yarn":
        return Master("yarn")
    if _STANDALONE.match(url):
        return Master("standalone")
    cluster = _LOCAL_CLUSTER.match(url)
    if cluster:
        return Master("local-cluster", int(cluster[1]), int(cluster[2]), int(cluster[3]))
    local = _LOCAL.match(url)
    if not local:
        raise UsageError(f"--master {url}: use yarn, local[N], local-cluster[N,CORES,MEMORY] or spark://HOST:PORT")
    return Master("local", cores if local[1] == "*" else int(local[1] or 1))


def place(asked: Cluster, given: Collection[str], environ: Mapping[str, str], cores: int) -> Cluster:
    """`asked` with master, executors, cores and memory filled in where they are not among the `given` leaves.

    Raises UsageError where the gang cannot fit: more executors than the master has, deploy mode cluster elsewhere
    than on YARN, or nothing to wait for it elsewhere than there.
    """
    url = asked.master if "cluster.master" in given else _default_master(asked.executors, environ)
    found = master(url, cores)
    executors = asked.executors if "cluster.executors" in given else _default_executors(found)
    if found.slots is not None and executors > found.slots:
        raise UsageError(
            f"--num-executors {executors} on --master {url}: there are only {found.slots}; raise the master's number"
        )
    if asked.deploy_mode == "cluster" and found.kind != "yarn":
        raise UsageError(f"--deploy-mode cluster on --master {url}: only yarn can run the driver in the cluster")
    if not asked.wait and asked.deploy_mode != "cluster":
        raise UsageError("--no-wait: only with --deploy-mode cluster; elsewhere the driver runs in this command")
    return dataclasses.replace(
        asked,
        master=url,
        executors=executors,
        executor_cores=_executor_cores(asked.executor_cores, found, url),
        executor_memory=asked.executor_memory or (f"{found.memory_mib}m" if found.memory_mib else None),
    )


def _default_master(executors: int, environ: Mapping[str, str]) -> str:
    return "yarn" if any(environ.get(name) for name in CONFIGURATION) else f"local[{executors}]"


def _default_executors(found: Master) -> int:
    return found.slots if found.kind == "local-cluster" and found.slots else 1


def _executor_cores(asked: Optional[int], found: Master, url: str) -> Optional[int]:
    if found.kind == "local":
        return None
    if found.cores is not None and asked not in (None, found.cores):
        raise UsageError(f"--executor-cores {asked} on --master {url}: its executors have {found.cores} cores each")
    return found.cores or asked or 1


def remarks(placed: Cluster, devices: int, cores: int) -> list[str]:
    """What the user should know before the job starts."""
    ranks = placed.executors * devices
    if not master(placed.master, cores).here or ranks <= cores:
        return []
    return [
        f"{ranks} ranks on {cores} core{'s' * (cores > 1)}: they will share them, {math.ceil(ranks / cores)} to a core"
    ]

"""rank.json: what one rank is told by the agent of its node. Holds no secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from caffe_on_grid.spec.job import JobSpec

VERSION = 1


@dataclass(frozen=True)
class Device:
    """One device of an executor."""

    kind: str
    """"cpu" or "gpu"."""
    index: int = 0
    """What the framework calls the device inside the container."""
    uuid: Optional[str] = None
    name: Optional[str] = None


@dataclass(frozen=True)
class RankSpec:
    """One rank's place in the world and where its files are."""

    job: JobSpec
    task: str
    """"train" or "test": which of the job's tasks this gang runs."""
    run_id: str
    rank: int
    world: int
    local_rank: int
    executor: int
    host: str
    device: Device
    job_dir: str
    """Folder of job.json and the shipped prototxts, on this node."""
    scratch: str
    """This rank's own folder; its working directory; removed by the agent afterwards."""
    report_socket: str
    """Unix socket (relative to `scratch`) to which the rank writes report lines."""
    progress_file: str
    """Existing file (relative to `scratch`) that the rank maps and keeps its `Progress` in."""
    run_folder: str
    """URI of the run's folder: snapshots/ goes there."""
    seed: int
    """Seed of the run: fillers, dropout and the record stream."""
    version: int = VERSION

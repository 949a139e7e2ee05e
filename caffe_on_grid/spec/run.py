"""run.json: what became of a run. Written by the driver at its start ("running") and at its end, whatever that is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import JobSpec

VERSION = 1

OUTCOMES = ("running", "done", "failed", "interrupted", "submitted")
"""What `RunRecord.outcome` may say; submitted: left to itself, and never in a run's own folder."""


def now() -> str:
    """The time, UTC: "2026-01-31T23:59:59Z"."""
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True)
class Versions:
    """What ran the job; None: not known yet."""

    tool: str
    python: str
    """Python of the driver."""
    spark: Optional[str] = None
    engine: Optional[str] = None
    """Engine of the ranks, e.g. "caffe 1.0.0"."""
    mpi: Optional[str] = None
    """MPI library and transports, as rank 0 reports them; "none" in a world of one."""


@dataclass(frozen=True)
class ExecutorRecord:
    """One executor of the gang, as its agent joined."""

    executor: int
    host: str
    pid: int
    cpus: int
    node: str = ""
    """YARN's name of its node, "host:port"; "" outside of YARN."""
    container: str = ""
    """YARN's container; "" outside of YARN."""
    devices: tuple[str, ...] = ()
    """GPUs that it may use: UUIDs, or indices where there are none."""


@dataclass(frozen=True)
class RankRecord:
    """Where one rank ran, and how far it came."""

    rank: int
    executor: int
    host: str
    local_rank: int
    device: str
    """"cpu 0", "gpu 1"."""
    pid: Optional[int] = None
    iteration: int = 0
    peak_rss_mib: Optional[int] = None


@dataclass(frozen=True)
class LastTest:
    """The last test of one TEST net."""

    net: int
    iteration: int
    outputs: dict[str, tuple[float, ...]]
    batches: int


@dataclass(frozen=True)
class Totals:
    """Sums over all ranks of one gang."""

    iterations: int = 0
    """Steps done by rank 0, those of the run that it resumed included."""
    samples: int = 0
    """Records consumed by TRAIN steps."""
    seconds: float = 0.0
    """Wall-clock from the barrier stage's start to its end."""
    images_per_second: float = 0.0
    """`samples` by the seconds since the first step of the slowest rank."""
    exchanged_bytes: int = 0
    skipped: int = 0
    """Undecodable records that were skipped."""


@dataclass(frozen=True)
class TaskRecord:
    """One of the job's tasks: one gang, from the barrier stage's start to its end."""

    task: str
    world: int = 0
    global_batch: int = 0
    """Records per step over all ranks (batch_size × iter_size × world)."""
    executors: tuple[ExecutorRecord, ...] = ()
    ranks: tuple[RankRecord, ...] = ()
    tests: tuple[LastTest, ...] = ()
    saved: tuple[str, ...] = ()
    """URIs of snapshots' manifests and of the model, in the order of their writing."""
    digest: Optional[str] = None
    """sha256 of the parameters, equal on all ranks."""
    totals: Totals = field(default_factory=Totals)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """The first failure."""

    category: str
    """Name of the class in `caffe_on_grid.errors`, or of an unexpected exception."""
    message: str
    rank: Optional[int] = None
    host: str = ""
    iteration: Optional[int] = None
    native: tuple[str, ...] = ()
    log: Optional[str] = None


@dataclass(frozen=True)
class RunRecord:
    """One run of one job."""

    run_id: str
    outcome: str
    """One of OUTCOMES."""
    started: str
    """ISO 8601, UTC."""
    run_folder: str
    """URI of the run's folder."""
    seed: Optional[int]
    """Seed of the run; None: the run ended before it was chosen."""
    job: JobSpec
    """The resolved configuration, with the origin of each value."""
    versions: Versions
    master: Optional[str] = None
    application_id: Optional[str] = None
    ended: Optional[str] = None
    exit_code: Optional[int] = None
    """None while the run is going on."""
    cause: Optional[Cause] = None
    model: Optional[str] = None
    """URI of the final model, once it has been written."""
    tasks: tuple[TaskRecord, ...] = ()
    driver_node: str = ""
    """YARN's name of the driver's node in cluster mode; "" elsewhere."""
    version: int = VERSION


def dumps(record: RunRecord) -> str:
    """The text of run.json; numbers that JSON lacks are written as the strings Caffe prints ("nan", "inf")."""
    value = codec.encode(record)
    for task in value["tasks"]:
        for test in task["tests"]:
            test["outputs"] = {name: [_word(v) for v in values] for name, values in test["outputs"].items()}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def loads(text: str, where: str = "run.json") -> RunRecord:
    """The record that `text` holds; raises ConfigError naming `where` and what is wrong."""
    value = codec.loads(dict[str, Any], text, where)
    record: RunRecord = codec.decode(RunRecord, _numbers(value), where)
    if record.outcome not in OUTCOMES:
        raise ConfigError(f"{where}: unknown outcome {record.outcome!r}; known: {', '.join(OUTCOMES)}")
    return record


_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _word(value: float) -> Any:
    return value if abs(value) < float("inf") else f"{value:g}"


def _numbers(value: Any, inside: bool = False) -> Any:
    """Words for numbers back to numbers, inside of any "outputs"."""
    if isinstance(value, dict):
        return {k: _numbers(v, inside or k == "outputs") for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v, inside) for v in value]
    return _WORDS.get(value, value) if inside and isinstance(value, str) else value

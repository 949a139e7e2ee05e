"""JobSpec: the one document that says what a job is. Made and checked on the gateway, read by driver and ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

VERSION = 1


@dataclass(frozen=True)
class Cluster:
    """Where the job runs and what Spark is asked for."""

    master: str = "local[1]"
    deploy_mode: str = "client"
    executors: int = 1
    executor_cores: Optional[int] = None
    executor_memory: Optional[str] = None
    driver_memory: Optional[str] = None
    queue: Optional[str] = None
    name: Optional[str] = None
    node_label: Optional[str] = None
    am_node_label: Optional[str] = None
    principal: Optional[str] = None
    keytab: Optional[str] = None
    proxy_user: Optional[str] = None
    properties_file: Optional[str] = None
    conf: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()
    gang_timeout_s: float = 600.0
    step_timeout_s: float = 600.0
    wait: bool = True
    """False: the command ends once YARN has the application; for deploy mode cluster only."""


@dataclass(frozen=True)
class Runtime:
    """The ranks' Python, Caffe and MPI, and how many threads their BLAS may use."""

    path: Optional[str] = None
    """A runtime archive (.tgz) or an unpacked runtime; None: the cached one."""
    blas_core: Optional[str] = None
    """OPENBLAS_CORETYPE; None: chosen on each host from its CPU."""
    blas_threads: Optional[int] = None
    """OPENBLAS_NUM_THREADS per rank; None: the host's share of cores."""


@dataclass(frozen=True)
class EngineSpec:
    """Which engine steps the net, on what."""

    name: str = "auto"
    solver_mode: str = "auto"
    """auto (the prototxt's word; unset = GPU where there are devices, else CPU), cpu, gpu."""
    devices: int = 1
    """Ranks on each executor, one per device."""
    allow_python_layers: bool = False
    on_nan: str = "stop"
    strict_caffe: bool = False
    """Reproduce the gradients of Caffe's own faults (engine caffe has them anyway)."""


@dataclass(frozen=True)
class DataSpec:
    """Where records come from and in which order."""

    input: Optional[str] = None
    """Overrides the source of the TRAIN data layer."""
    shuffle: bool = True
    seed: Optional[int] = None
    """Seed of the record stream and, where the solver has no random_seed, of everything else."""
    skip_bad_records: bool = False
    feeders: int = 1
    """Feeder processes for each rank's TRAIN net."""
    prefetch: int = 4
    """Batches held ready per feed."""
    resize: bool = False


@dataclass(frozen=True)
class SyncSpec:
    """How ranks exchange what they learn."""

    strategy: str = "allreduce"
    connection: str = "auto"
    """auto, ethernet or infiniband."""
    net_cidr: Optional[str] = None
    check_every: int = 100
    """Parameters are hashed and compared over all ranks every so many steps; 0: only at the end."""
    bucket_mib: int = 16


@dataclass(frozen=True)
class Start:
    """What the parameters start from."""

    weights: tuple[str, ...] = ()
    """.caffemodel files, copied by layer name, in order."""
    snapshot: Optional[str] = None
    """.solverstate to resume from."""


@dataclass(frozen=True)
class Output:
    """Where results go."""

    model: Optional[str] = None
    """train: the final model, exactly here. test: the model to evaluate."""
    run_folder: Optional[str] = None
    """Folder of run.json, metrics.jsonl, snapshots/ and logs/; None: beside the model, by run id."""
    text: Optional[str] = None
    """test: the file that receives one `blob: values` line per output."""
    overwrite: bool = False


@dataclass(frozen=True)
class JobSpec:
    """A whole job, resolved and checked: what the driver needs to know and nothing else."""

    tasks: tuple[str, ...]
    """In order: "train", "test"."""
    solver: str
    """The solver prototxt, relative to the job directory; every path in it is relative to that directory too."""
    cluster: Cluster = field(default_factory=Cluster)
    runtime: Runtime = field(default_factory=Runtime)
    engine: EngineSpec = field(default_factory=EngineSpec)
    data: DataSpec = field(default_factory=DataSpec)
    sync: SyncSpec = field(default_factory=SyncSpec)
    start: Start = field(default_factory=Start)
    output: Output = field(default_factory=Output)
    test_iterations: Optional[int] = None
    """The `test` task's batches; None: the solver's test_iter, or one pass over the TEST source."""
    test_net: int = 0
    ignore_unknown_fields: bool = False
    """Fields that Caffe lacks are left out of the prototxts on the gateway, and listed, instead of refused."""
    origins: dict[str, str] = field(default_factory=dict)
    """Leaf ("cluster.queue") → where its value came from ("option -queue", a file, …); the rest are built in."""
    version: int = VERSION

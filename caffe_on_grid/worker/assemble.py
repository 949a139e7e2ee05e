"""The one composition point: from rank.json to an engine, its feeds, a synchroniser and a communicator."""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.comm.api import Communicator
from caffe_on_grid.data import feed, lmdb_source, transform
from caffe_on_grid.data.api import Feed, FeedPlan
from caffe_on_grid.engine import registry as engines
from caffe_on_grid.engine.api import Array, Engine, EnginePlan
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import graph, schema, text, upgrade
from caffe_on_grid.spec.rank import RankSpec
from caffe_on_grid.spec.report import Manifest
from caffe_on_grid.storage import bulk, paths, snapshots, stage
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.sync import registry as syncs
from caffe_on_grid.sync.api import Synchroniser
from caffe_on_grid.worker.report import Reporter


@dataclass(frozen=True)
class Places:
    """Where the streams begin: global TRAIN batches and TEST passes already consumed."""

    batches: int = 0
    passes: int = 0


class Inputs:
    """The feeds of one net: one per data layer, all stepped together; none where the net makes its own data."""

    def __init__(self, given: Any, feeds: Sequence[Feed], places: Places, batch: int, passes: int) -> None:
        """Feeds for the data layers of the net `given`, which begin at `places`.

        `batch`: records per forward pass (0 without a data layer); `passes`: TEST batches in one pass, all ranks.
        """
        self.places = places
        self.feeds = feeds
        self.label_uses = graph.label_uses(given)
        self.batch = batch
        self.passes = passes
        self.net = graph.replace_data(given, {top: shape for f in feeds for top, shape in f.shapes.items()})

    def next(self) -> Mapping[str, Array]:
        """The next batch: top → float32 array, valid until the next call."""
        return {top: array for f in self.feeds for top, array in f.batch().items()}

    @property
    def records(self) -> int:
        """Records of the (first) source."""
        return self.feeds[0].records if self.feeds else 0

    @property
    def seconds(self) -> float:
        """Time spent waiting for batches."""
        return sum(f.seconds for f in self.feeds)

    @property
    def skipped(self) -> int:
        """Undecodable records replaced."""
        return sum(f.skipped for f in self.feeds)

    def close(self) -> None:
        """End the feeders."""
        for f in self.feeds:
            f.close()


@dataclass
class Assembly:
    """All that a rank works with."""

    spec: RankSpec
    solver: Any
    engine: Engine
    train: Optional[Inputs]
    tests: Sequence[Inputs]
    comm: Communicator
    sync: Synchroniser
    manifest: Optional[Manifest]

    def close(self) -> None:
        """Leave in order: synchroniser, feeders, communicator."""
        self.sync.close()
        for inputs in (*([self.train] if self.train else []), *self.tests):
            inputs.close()
        self.comm.close()


@dataclass(frozen=True)
class Prepared:
    """What is ready before Caffe and MPI are loaded: feeders are forked first, since they must inherit neither."""

    solver: Any
    train: Optional[Inputs]
    tests: Sequence[Inputs]
    resumed: Optional[snapshots.FetchedSnapshot]


def prepare(spec: RankSpec, progress: bulk.Progress = bulk.silent) -> Prepared:
    """Read solver, nets and snapshot, and start the feeds; `progress` hears of sources that are copied to this node."""
    solver = read_solver(spec)
    nets = graph.solver_nets(solver, lambda name: job_file(spec, name).decode())
    admit_python_layers(spec, (nets.train, *nets.tests))
    fetch_sources(spec, nets, progress)
    resumed = fetch_resumed(spec)
    manifest = resumed.manifest if resumed else None
    tests = test_inputs(spec, solver, nets.tests, manifest)
    training = spec.task == "train"
    train = open_inputs(spec, nets.train, "TRAIN", train_places(spec, nets.train, manifest)) if training else None
    return Prepared(solver, train, tests, resumed)


def assemble(spec: RankSpec, prepared: Prepared, comm: Communicator, reporter: Reporter) -> Assembly:
    """Build the engine and give it its starting values."""
    engine = engines.create(spec.job.engine.name, engine_plan(spec, prepared))
    begin(spec, engine, comm, prepared, reporter)
    sync = syncs.create(spec.job.sync.strategy, comm, spec.job.sync)
    manifest = prepared.resumed.manifest if prepared.resumed else None
    return Assembly(spec, prepared.solver, engine, prepared.train, prepared.tests, comm, sync, manifest)


def read_solver(spec: RankSpec) -> Any:
    """The solver message of the job, upgraded; paths in it are relative to the job directory.

    Where snapshot_prefix is unset or a folder, snapshots have the solver file's name, as Caffe's have.
    """
    where = spec.job.solver
    solver = upgrade.upgrade_solver(text.parse(schema.SolverParameter, job_file(spec, where).decode(), where))
    if not solver.snapshot_prefix or solver.snapshot_prefix.endswith("/"):
        solver.snapshot_prefix += Path(where).stem
    return solver


def job_file(spec: RankSpec, name: str) -> bytes:
    """A shipped file's content."""
    path = Path(spec.job_dir) / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: not in the job directory ({error.strerror}); submit the job again") from None


def admit_python_layers(spec: RankSpec, nets: Sequence[Any]) -> None:
    """Python layers run a user's code in every rank: only when the user says so; modules come in the job directory."""
    layers = [name for net in nets for name in graph.has_python_layer(net)]
    if layers and not spec.job.engine.allow_python_layers:
        raise ConfigError(f"layer {layers[0]!r} is a Python layer; allow it with --allow-python-layers")
    if layers:
        sys.path.insert(0, spec.job_dir)


def fetch_sources(spec: RankSpec, nets: graph.SolverNets, progress: bulk.Progress) -> None:
    """Have this node's copies of all remote sources that the task reads: they may take longer than any step."""
    tests = nets.tests if spec.task == "train" else nets.tests[spec.job.test_net :][:1]
    used = [*([("TRAIN", nets.train)] if spec.task == "train" else []), *(("TEST", net) for net in tests)]
    for phase, net in used:
        for layer in graph.data_layers(net):
            stage.stage(source_of(spec, layer, phase), copies(spec), progress)


def fetch_resumed(spec: RankSpec) -> Optional[snapshots.FetchedSnapshot]:
    """The snapshot to resume from, copied into the working directory (the state names its model by bare name)."""
    uri = spec.job.start.snapshot
    return snapshots.fetch(uri, Path()) if uri and spec.task == "train" else None


def train_places(spec: RankSpec, net: Any, manifest: Optional[Manifest]) -> Places:
    """Global batches consumed before, counted in this job's: with another world or batch_size the stream goes on where
    it stood, from the nearest earlier batch boundary.
    """
    layers = graph.data_layers(net)
    if manifest is None or not layers:
        return Places()
    records = manifest.batches * manifest.world * (manifest.batch or layers[0].batch_size)
    return Places(batches=records // (spec.world * layers[0].batch_size))


def test_inputs(spec: RankSpec, solver: Any, nets: Sequence[Any], manifest: Optional[Manifest]) -> list[Inputs]:
    """Inputs of the TEST nets that this task needs, each with its number of batches per pass."""
    if spec.task == "test":
        index = spec.job.test_net
        if index >= len(nets):
            raise ConfigError(f"{spec.job.solver}: no TEST net {index}: the solver has {len(nets)}")
        wanted = spec.job.test_iterations or iterations(solver, index)
        return [open_inputs(spec, nets[index], "TEST", Places(), wanted)]
    places = Places(passes=manifest.test_passes if manifest else 0)
    return [open_inputs(spec, net, "TEST", places, iterations(solver, i)) for i, net in enumerate(nets)]


def iterations(solver: Any, index: int) -> int:
    """test_iter of TEST net `index`; 0 (= one pass over its source) where the solver gives none."""
    return int(solver.test_iter[index]) if index < len(solver.test_iter) else 0


def open_inputs(spec: RankSpec, net: Any, phase: str, places: Places, passes: int = 0) -> Inputs:
    """Start a feed for each data layer of `net` and turn those layers into inputs."""
    layers = graph.data_layers(net)
    if phase == "TEST":
        passes = passes or pass_batches(spec, layers)
    feeds = [feed.start(feed_plan(spec, layer, phase, places, passes)) for layer in layers]
    return Inputs(net, feeds, places, layers[0].batch_size if layers else 0, passes)


def pass_batches(spec: RankSpec, layers: Sequence[graph.DataLayer]) -> int:
    """Batches that cover the first TEST source once (the last one wraps where the records do not divide)."""
    if not layers:
        return 1
    source = lmdb_source.open(source_path(spec, layers[0], "TEST"))
    try:
        return math.ceil(len(source) / layers[0].batch_size)
    finally:
        source.close()


def source_path(spec: RankSpec, layer: graph.DataLayer, phase: str) -> str:
    """Where a data layer's records are on this host; -input overrides the TRAIN source.

    A source on a remote store is copied to this node first, by one rank for all.
    """
    return staged(source_of(spec, layer, phase), str(copies(spec)))


def source_of(spec: RankSpec, layer: graph.DataLayer, phase: str) -> str:
    """The URI of a data layer's records."""
    given = spec.job.data.input
    return given if phase == "TRAIN" and given else layer.source


@lru_cache(maxsize=64)
def staged(source: str, folder: str) -> str:
    """The local path of a source; a remote one is below `folder`, asked for once by each rank."""
    return str(stage.stage(source, Path(folder)))


def copies(spec: RankSpec) -> Path:
    """Folder of this node's copies: YARN's own for the application, shared by its containers; else the executor's.

    It ends with the application.
    """
    disks = os.environ.get("LOCAL_DIRS", "").split(",")[0]
    return Path(disks or Path(spec.scratch).parent) / "caffe-on-grid-data"


def feed_plan(spec: RankSpec, layer: graph.DataLayer, phase: str, places: Places, passes: int) -> FeedPlan:
    """How this rank reads one data layer."""
    data, training = spec.job.data, phase == "TRAIN"
    return FeedPlan(
        source=source_path(spec, layer, phase),
        data_top=layer.data_top,
        label_top=layer.label_top,
        batch=layer.batch_size,
        phase=phase,
        rank=spec.rank,
        world=spec.world,
        seed=spec.seed,
        shuffle=data.shuffle and training,
        first=places.batches if training else places.passes,
        passes=passes,
        transform=transform.plan(layer.transform, lambda name: job_file(spec, name), phase),
        skip_bad=data.skip_bad_records,
        feeders=data.feeders if training else 1,
        slots=data.prefetch if training else 2,
    )


def communicator(spec: RankSpec) -> Communicator:
    """MPI's world, or nobody for a world of one (MPI is then never loaded)."""
    if spec.world == 1:
        from caffe_on_grid.comm.local import Local

        return Local()
    from caffe_on_grid.comm.mpi import World

    world = World()
    if (world.rank, world.size) != (spec.rank, spec.world):
        raise ConfigError(f"MPI says rank {world.rank} of {world.size}, the gang says {spec.rank} of {spec.world}")
    return world


def engine_seed(spec: RankSpec, solver: Any) -> int:
    """The solver's random_seed where it has one, else the run's."""
    return int(solver.random_seed) if solver.random_seed >= 0 else spec.seed


def engine_plan(spec: RankSpec, prepared: Prepared) -> EnginePlan:
    """What the engine is to build."""
    return EnginePlan(
        solver=prepared.solver,
        train_net=prepared.train.net if prepared.train else None,
        test_nets=tuple(t.net for t in prepared.tests),
        rank=spec.rank,
        world=spec.world,
        gpu=spec.device.index if spec.device.kind == "gpu" else None,
        seed=engine_seed(spec, prepared.solver),
        scratch=Path(spec.scratch),
        strict=spec.job.engine.strict_caffe,
    )


def begin(
    spec: RankSpec,
    engine: Engine,
    comm: Communicator,
    prepared: Prepared,
    reporter: Reporter,
) -> None:
    """Starting values: every rank restores its solver's history; rank 0's parameters are everyone's."""
    if prepared.resumed:
        engine.restore(prepared.resumed.state)
        engine.reseed(reseed_value(spec, engine.iteration))
    elif spec.rank == 0:
        for uri in start_weights(spec, prepared.solver):
            engine.load_weights(fetch_weights(uri))
    for blob in engine.all_params():
        comm.broadcast(blob)
    reporter.at(engine.iteration, "starting")


def start_weights(spec: RankSpec, solver: Any) -> Sequence[str]:
    """The .caffemodel files to copy from: -weights, else the solver's `weights:`; or the model that is to be tested."""
    if spec.task == "train":
        named = [name.strip() for names in solver.weights for name in names.split(",")]
        return spec.job.start.weights or [name for name in named if name]
    return [spec.job.output.model] if spec.job.output.model else []


def fetch_weights(uri: str) -> Path:
    """A model file on this host."""
    local = paths.local_path(uri)
    if local is None:
        local = Path(paths.basename(uri))
        connect(uri).fetch(uri, local)
    return local


def reseed_value(spec: RankSpec, iteration: int) -> int:
    """Seed of a rank's random stream from a snapshot point on: the first 31 bits of sha256("seed/rank/iteration")."""
    digest = hashlib.sha256(f"{spec.seed}/{spec.rank}/{iteration}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF

"""The job's folder on the gateway: everything that the prototxts name is found, checked and put into it.

::

    <folder>/job/job.json, the prototxts and their files      what driver and ranks read
    <folder>/job.zip                                          the same, as it travels
    <folder>/caffe_on_grid.zip                                this package, as it travels
    <folder>/caffe_on_grid_driver.py                          what spark-submit starts
    <folder>/log4j2.properties                                how Spark logs where it runs on this machine
    <folder>/caffe_on_grid_gpus.sh                            how Spark's executors find their GPUs
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError, GridError, SecurityFault, UsageError
from caffe_on_grid.proto import graph, lint, lint_shapes, schedule, schema, shapes, upgrade
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import Cluster, JobSpec, Output, Start
from caffe_on_grid.storage import hadoop, paths
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.submit import argv, follow, memory, package

DRIVER = """import sys

from caffe_on_grid.driver.main import main

sys.exit(main(sys.argv[1:]))
"""

LOGGING = """# A failed task is the driver's to tell, in one line; Spark would tell it again, with traces.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.network.name = org.apache.spark.network
logger.network.level = off
logger.yarn.name = org.apache.spark.deploy.yarn
logger.yarn.level = off
logger.submitted.name = org.apache.hadoop.yarn.client.api.impl.YarnClientImpl
logger.submitted.level = info
"""

GPU = 1
"""SolverParameter.SolverMode.GPU."""


@dataclass(frozen=True)
class Built:
    """The job as it was resolved while its files were put together."""

    job: JobSpec
    remarks: tuple[str, ...]
    """For the user, one line each."""
    memory: Optional[memory.Memory] = None
    """Of an executor in YARN; None elsewhere."""


def build(job: JobSpec, folder: Path, net: Optional[str] = None, local: bool = True, yarn: bool = False) -> Built:
    """Check `job` and copy what it names into `folder` (existing, empty); `write` completes it.

    `job.solver` is the solver's path here; `net` replaces the solver's `net:`. `local`: ranks run on this machine, so
    local data must exist. `yarn`: plain paths of results and inputs are the default store's. Raises ConfigError naming
    the file, and the line that wants it, for what cannot be used.
    """
    inside = folder / argv.JOB_FOLDER
    inside.mkdir()
    shipped = follow.ship(job.solver, inside, net, job.ignore_unknown_fields)
    nets = graph.solver_nets(shipped.message, shipped.read)
    remarks = [*shipped.remarks, *_check_nets(job, shipped, nets, local)]
    if yarn:
        job = _qualified(job)
    start, more = _start(job.start, "train" in job.tasks)
    resolved = replace(
        job,
        solver=shipped.solver,
        engine=replace(job.engine, solver_mode=_mode(job.engine.solver_mode, shipped.message)),
        data=replace(job.data, input=_input(job.data.input, local)),
        start=start,
        output=_output(job.output, job.tasks, [Path(job.solver), *shipped.nets.values()]),
    )
    return Built(resolved, (*remarks, *more), memory.of(resolved, shipped.message, nets) if yarn else None)


def _qualified(job: JobSpec) -> JobSpec:
    """On YARN a plain path is the default store's; what is on this machine is named with `file:`."""

    def on_store(uri: Optional[str]) -> Optional[str]:
        return None if uri is None else hadoop.qualify(uri)

    return replace(
        job,
        data=replace(job.data, input=on_store(job.data.input)),
        start=replace(
            job.start,
            weights=tuple(hadoop.qualify(uri) for uri in job.start.weights),
            snapshot=on_store(job.start.snapshot),
        ),
        output=replace(
            job.output,
            model=on_store(job.output.model),
            text=on_store(job.output.text),
            run_folder=on_store(job.output.run_folder),
        ),
    )


def write(job: JobSpec, folder: Path) -> None:
    """Put job.json beside the shipped files in `folder`, and there what travels and what starts."""
    inside = folder / argv.JOB_FOLDER
    shown = replace(job, cluster=_without_secrets(job.cluster))
    (inside / "job.json").write_text(codec.dumps(shown, indent=2) + "\n", encoding="utf-8")
    (folder / argv.JOB_ZIP).write_bytes(package.folder_zip(inside))
    (folder / argv.PACKAGE_ZIP).write_bytes(package.package_zip())
    (folder / argv.DRIVER).write_text(DRIVER, encoding="utf-8")
    (folder / argv.LOGGING).write_text(LOGGING, encoding="utf-8")
    script = (resources.files("caffe_on_grid.submit") / "gpus.sh").read_bytes()
    (folder / argv.GPUS).write_bytes(script)
    (folder / argv.GPUS).chmod(0o755)


def _without_secrets(asked: Cluster) -> Cluster:
    """spark-submit gets the user's secrets on its command line; driver and ranks need none of them."""
    conf = {key: argv.masked(f"{key}={value}").partition("=")[2] for key, value in asked.conf.items()}
    return replace(asked, conf=conf, passthrough=tuple(argv.masked(word) for word in asked.passthrough))


def _mode(asked: str, solver: Any) -> str:
    """The prototxt's solver_mode where no option has one; "auto" stays only where neither says anything."""
    if asked != "auto" or not solver.HasField("solver_mode"):
        return asked
    return "gpu" if solver.solver_mode == GPU else "cpu"


def _check_nets(job: JobSpec, shipped: follow.Shipped, nets: graph.SolverNets, local: bool) -> Iterator[str]:
    """Refuse nets that cannot be run; yields what the user should know."""
    used = [("TRAIN", nets.train)] if "train" in job.tasks else []
    used += [("TEST", net) for net in nets.tests]
    if "test" in job.tasks and job.test_net >= len(nets.tests):
        raise ConfigError(f"{job.solver}: there are {len(nets.tests)} TEST nets, and -test wants number {job.test_net}")
    _check_python_layers(job, [net for _, net in used])
    for phase, net in used:
        for layer in graph.data_layers(net):
            missing = None if phase == "TRAIN" and job.data.input else shipped.missing.get(layer.source)
            if missing and local:
                raise ConfigError(missing)
            if not (phase == "TRAIN" and job.data.input):
                _check_remote(layer)
            if missing:
                yield f"layer {layer.name!r}: {layer.source} is not on this machine; every node must have it"
    yield from _check_shapes(job, shipped.message, nets)


def _check_shapes(job: JobSpec, solver: Any, nets: graph.SolverNets) -> Iterator[str]:
    """Refuse shapes that Caffe refuses, as far as they are known without the records; yields warnings."""
    trains = "train" in job.tasks
    used = nets if trains else replace(nets, train=schema.NetParameter())
    try:
        if trains:
            solver = upgrade.upgrade_solver(solver)
            schedule.check(solver)
        found = shapes.check(used)
    except ConfigError as error:
        raise ConfigError(f"{job.solver}: {error}") from None
    lines = lint.warnings(solver, nets) if trains else []
    for net, known in zip((used.train, *used.tests), found):
        lines += lint_shapes.warnings(solver, net, known)
    yield from dict.fromkeys(lines)


def _check_remote(layer: graph.DataLayer) -> None:
    """A source on a remote store is looked for before anything is asked of a cluster."""
    remote = layer.source if paths.local_path(layer.source) is None else None
    if remote and not connect(remote).exists(remote):
        raise ConfigError(f"layer {layer.name!r}: {remote}: no such file")


def _check_python_layers(job: JobSpec, nets: Iterable[Any]) -> None:
    layers = sorted({name for net in nets for name in graph.has_python_layer(net)})
    if layers and not job.engine.allow_python_layers:
        raise ConfigError(f"{job.solver}: layer {layers[0]!r} runs Python code; allow it with --allow-python-layers")


def _input(uri: Optional[str], local: bool) -> Optional[str]:
    if uri is not None and (local or paths.local_path(uri) is None):
        _existing(uri, "-input")
    return uri and follow.absolute(uri)


def _existing(uri: str, option: str) -> str:
    if not connect(uri).exists(uri):
        raise ConfigError(f"{option} {uri}: no such file")
    path = paths.local_path(uri)
    if path is not None and not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise SecurityFault(f"{option} {uri}: permission denied; ask the owner or name another")
    return follow.absolute(uri)


def _start(asked: Start, trains: bool) -> tuple[Start, list[str]]:
    """What training starts from, absolute; and what is not used of it."""
    if not trains and (asked.weights or asked.snapshot):
        return Start(), ["-weights and -snapshot are not used by a test alone: -model is what it tests"]
    weights = tuple(_existing(uri, "-weights") for uri in asked.weights)
    if asked.snapshot is None:
        return Start(weights), []
    notes = ["-weights is not needed beside -snapshot: a snapshot has a model of its own"] if weights else []
    return Start((), _existing(asked.snapshot, "-snapshot")), notes


def _output(asked: Output, tasks: tuple[str, ...], sources: Sequence[Path]) -> Output:
    """Where results go, absolute; what is to be written must not exist (unless overwritten) and be writable.

    None may replace one of the job's `sources`, whatever --overwrite says.
    """
    if asked.model is None:
        raise UsageError("-model is missing: the model to " + ("write" if "train" in tasks else "test"))
    if "train" in tasks:
        _writable(asked.model, "-model", asked.overwrite, sources)
    else:
        _existing(asked.model, "-model")
    if asked.text is not None:
        _writable(asked.text, "-output", asked.overwrite, sources)
    return replace(
        asked,
        model=follow.absolute(asked.model),
        text=asked.text and follow.absolute(asked.text),
        run_folder=asked.run_folder and follow.absolute(asked.run_folder),
    )


def _writable(uri: str, option: str, overwrite: bool, sources: Sequence[Path]) -> None:
    storage, path = connect(uri), paths.local_path(uri)
    if storage.exists(uri):
        for source in sources:
            if path is not None and path.samefile(source):
                raise ConfigError(f"{option} {uri}: is {source} itself, which this job reads; name another file")
        if storage.is_folder(uri):
            raise ConfigError(f"{option} {uri}: is a folder; name a file")
        if not overwrite:
            raise ConfigError(f"{option} {uri}: exists; remove it, name another, or say --overwrite")
    try:
        storage.check_writable(paths.parent(uri))
    except GridError as error:
        raise type(error)(f"{option} {uri}: {error}") from None

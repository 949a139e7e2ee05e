"""From a JobSpec to a command that is ready to run: placed, found, checked, written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.storage import hadoop, runs
from caffe_on_grid.submit import argv, capacity, checks, cluster, job_dir, site, spark_conf, tickets, uploads


@dataclass(frozen=True)
class Prepared:
    """A job that can be started."""

    command: argv.SparkCommand
    job: JobSpec
    remarks: tuple[str, ...]
    explained: tuple[str, ...] = ()
    """How the containers' memory comes about, for those who ask."""


def _silent(_: str) -> None:
    return None


@contextmanager
def workspace(keep: bool) -> Iterator[Path]:
    """A fresh folder for one job, removed afterwards unless the job is only shown."""
    folder = Path(tempfile.mkdtemp(prefix="caffe-on-grid-"))
    done = False
    try:
        yield folder
        done = True
    finally:
        if not (keep and done):
            shutil.rmtree(folder, ignore_errors=True)


def forget(prepared: Prepared, application: Optional[str]) -> None:
    """Remove what local-cluster's workers leave of an application: they keep it in Spark's own folder for ever."""
    if application and cluster.master(prepared.job.cluster.master, 1).kind == "local-cluster":
        shutil.rmtree(Path(prepared.command.env["SPARK_HOME"]) / "work" / application, ignore_errors=True)


def prepare(
    job: JobSpec,
    given: Collection[str],
    net: Optional[str],
    folder: Path,
    environ: Mapping[str, str],
    dry: bool = False,
    note: Callable[[str], None] = _silent,
) -> Prepared:
    """Resolve `job` (whose `given` leaves were set by some layer) on this machine and write its folder.

    On YARN, unless `dry`, the cluster is asked whether it can run the job, and what jobs share is uploaded.
    Raises UsageError, ConfigError, EnvironmentFault or GangError for what stands in its way.
    """
    job = replace(job, cluster=cluster.place(job.cluster, given, environ, site.cores()))
    known = tickets.check(job, folder, environ)
    where = cluster.master(job.cluster.master, site.cores())
    argv.check_confs(job, where)
    built = job_dir.build(job, folder, net, where.here, where.kind == "yarn")
    found = site.find(built.job, folder, environ)
    if where.here and built.job.engine.solver_mode == "gpu":
        checks.own_gpu(environ)
    if where.kind == "standalone" and not dry:
        checks.standalone(job.cluster.master)
    on_nodes = None if found.archive else found.runtime
    final = replace(built.job, runtime=replace(built.job.runtime, path=on_nodes))
    job_dir.write(final, folder)
    remarks = (*known, *cluster.remarks(final.cluster, final.engine.devices, site.cores()), *built.remarks)
    if built.memory is None:
        return Prepared(argv.command(final, found), final, remarks)
    found = replace(found, overhead_mib=built.memory.overhead_mib)
    heap = final.cluster.executor_memory or f"{argv.HEAP_MIB}m"
    explained = tuple(built.memory.lines(heap))
    return _on_yarn(Prepared(argv.command(final, found), final, remarks, explained), found, environ, dry, note)


def _on_yarn(
    prepared: Prepared, found: argv.Site, environ: Mapping[str, str], dry: bool, note: Callable[[str], None]
) -> Prepared:
    """The same, with the uploads in it; where it is to run, asked of YARN before, and ready to be followed."""
    job = prepared.job
    notes = []
    if not dry and job.engine.solver_mode == "gpu" and checks.without_gpus(environ):
        found = replace(found, asks_gpus=False)
        notes.append("this YARN knows no yarn.io/gpu: GPUs are found by label alone, and by local rank on each node")
    settings = effective(job, found, environ)
    wanted = capacity.request(job.cluster.executors, job.cluster.deploy_mode == "cluster", settings, hadoop.user())
    remark = None if dry else checks.check(wanted, environ)
    shared = uploads.share(found, settings, environ, uploads.hub(dry, note, job.cluster.proxy_user))
    run_id = None if dry else runs.fresh_run_id()
    command = argv.command(job, replace(shared, run_id=run_id))
    if run_id is not None:
        application = argv.Application(job, run_id, runs.run_folder(job, run_id, "/"), wanted)
        command = replace(command, application=application)
    return replace(prepared, command=command, remarks=(*prepared.remarks, *notes, *([remark] if remark else [])))


def effective(job: JobSpec, found: argv.Site, environ: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings as it will see them: the site's, ours and the user's, and its options by their names."""
    asked = job.cluster
    confs = argv.confs(job, found, cluster.master(asked.master, site.cores()))
    options = {
        "spark.executor.memory": asked.executor_memory,
        "spark.executor.cores": str(asked.executor_cores) if asked.executor_cores else None,
        "spark.driver.memory": asked.driver_memory,
        "spark.yarn.queue": asked.queue,
    }
    return {
        **spark_conf.defaults(asked.properties_file, found.spark_home, environ),
        "spark.executor.memory": f"{argv.HEAP_MIB}m",
        **confs,
        **{key: value for key, value in options.items() if value is not None},
    }

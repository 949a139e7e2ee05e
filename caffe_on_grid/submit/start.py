"""From a JobSpec to a command that is ready to run: placed, found, checked, written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.submit import argv, cluster, job_dir, site


@dataclass(frozen=True)
class Prepared:
    """A job that can be started."""

    command: argv.SparkCommand
    job: JobSpec
    remarks: tuple[str, ...]


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
    job: JobSpec, given: Collection[str], net: Optional[str], folder: Path, environ: Mapping[str, str]
) -> Prepared:
    """Resolve `job` (whose `given` leaves were set by some layer) on this machine and write its folder.

    Raises UsageError, ConfigError or EnvironmentFault for what stands in its way.
    """
    job = replace(job, cluster=cluster.place(job.cluster, given, environ, site.cores()))
    where = cluster.master(job.cluster.master, site.cores())
    argv.check_confs(job, where)
    built = job_dir.build(job, folder, net, where.here)
    found = site.find(built.job, folder, environ)
    on_nodes = None if found.archive else found.runtime
    final = replace(built.job, runtime=replace(built.job.runtime, path=on_nodes))
    job_dir.write(final, folder)
    remarks = (*cluster.remarks(final.cluster, final.engine.devices, site.cores()), *built.remarks)
    return Prepared(argv.command(final, found), final, remarks)

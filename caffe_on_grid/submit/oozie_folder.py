"""A workflow application in a folder, ready to be put on HDFS.

::

    OUT/workflow.xml, job.properties
    OUT/lib/caffe_on_grid.zip                       this package
    OUT/lib/caffe_on_grid_driver.py                 spark: what spark-submit starts
    OUT/lib/caffe-on-grid.sh, lib/job.zip           shell: what the launcher starts, and the job
    OUT/lib/…                                       local --files, --py-files, --properties-file
    OUT/job.zip                                     spark: the job; not in lib/, whose files Oozie hands to --files
    OUT/caffe_on_grid.tgz, …                        the runtime's archive where it is a local file, local --archives
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError, UsageError
from caffe_on_grid.spec.job import Cluster, JobSpec
from caffe_on_grid.storage import paths
from caffe_on_grid.submit import action as actions
from caffe_on_grid.submit import argv, cluster, job_dir, oozie, site, yarn

REFUSED = {
    "cluster.keytab": "--keytab: a workflow has Oozie's delegation tokens; leave it out",
    "cluster.principal": "--principal: a workflow has Oozie's delegation tokens; leave it out",
    "cluster.proxy_user": "--proxy-user: a workflow runs as the user who starts it; leave it out",
}
"""Leaves that a workflow must not have, and why."""

APP = "${wf:appPath()}"
HERE = "."
"""The action's working directory, where Oozie links the application's files."""


@dataclass(frozen=True)
class Needs:
    """What a job has on its nodes."""

    archive: Optional[str]
    """The runtime's archive as the action names it; None: a folder on every node."""
    python: str
    """The runtime's Python, from the action's working directory."""
    overhead_mib: Optional[int] = None
    """Of an executor's container in YARN."""
    spark_home: Optional[str] = None


def write(
    kind: str, job: JobSpec, given: Collection[str], net: Optional[str], out: Path, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Write the application that runs `job` in a `kind` of action ("spark", "shell") into `out`; returns remarks.

    `${…}` in a value is Oozie's to fill in. What is not on this machine is not looked at: the workflow runs later.
    Raises UsageError or ConfigError for what cannot be rendered; then `out` is not there.
    """
    asked = _allowed(kind, _place(job, given, environ))
    if not re.fullmatch(r"[\w.-]+", out.absolute().name, re.ASCII):
        raise ConfigError(f"{out}: the folder's name becomes its name on HDFS; use letters, digits, dots and dashes")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: exists; remove it or name another folder")
    with tempfile.TemporaryDirectory(prefix="caffe-on-grid-") as scratch:
        folder, made = Path(scratch, "job"), Path(scratch, "out")
        folder.mkdir()
        (made / "lib").mkdir(parents=True)
        remarks = _fill(kind, asked, net, folder, made, environ, out.absolute().name)
        shutil.copytree(made, out, dirs_exist_ok=True)
    return remarks


def _allowed(kind: str, job: JobSpec) -> JobSpec:
    for leaf, message in REFUSED.items():
        if getattr(job.cluster, leaf.partition(".")[2]):
            raise UsageError(message)
    if kind == "spark" and job.cluster.master != "yarn":
        raise UsageError(f"--master {job.cluster.master}: a spark action runs on yarn; use --action shell")
    plain = [uri for value in _later(job).values() for uri in _each(value) if not _remote(uri)]
    if kind == "spark" and plain:
        raise UsageError(f"{plain[0]}: name its store in a spark action (hdfs://{plain[0]})")
    if kind == "spark" and actions.YARN_TAGS in job.cluster.conf:
        raise UsageError(f"--conf {actions.YARN_TAGS}: Oozie's spark action sets it, and finds the application by it")
    fixed = "\0".join(str(getattr(job, part)) for part in ("runtime", "engine", "data", "sync", "start", "output"))
    if kind == "spark" and "${" in fixed.replace(str(job.runtime.path), ""):
        raise UsageError("${…} in a spark action: job.zip holds the job as it is; use --action shell")
    return job


def _place(job: JobSpec, given: Collection[str], environ: Mapping[str, str]) -> JobSpec:
    """The job on YARN, its driver there too, unless options say otherwise: a launcher is small."""
    asked = job.cluster
    if "cluster.master" not in given:
        asked = replace(asked, master="yarn")
    if "cluster.deploy_mode" not in given and asked.master == "yarn":
        asked = replace(asked, deploy_mode="cluster")
    placed = cluster.place(asked, {*given, "cluster.master"}, environ, site.cores())
    argv.check_confs(replace(job, cluster=placed), cluster.master(placed.master, site.cores()))
    return replace(job, cluster=placed)


def _fill(
    kind: str, asked: JobSpec, net: Optional[str], folder: Path, made: Path, environ: Mapping[str, str], name: str
) -> tuple[str, ...]:
    where = cluster.master(asked.cluster.master, site.cores())
    built = job_dir.build(_seen(asked, folder), folder, net, local=False, yarn=where.kind == "yarn")
    job = _with(built.job, _later(asked))
    overhead = built.memory.overhead_mib if built.memory else None
    known = yarn.configuration(environ)
    queue, named = job.cluster.queue or "default", job.cluster.name or f"caffe-on-grid {'+'.join(job.tasks)}"
    settled = replace(
        _carried(job.cluster, kind, made), name=named, queue=oozie.QUEUE if where.kind == "yarn" else None
    )
    archive, python = _runtime(job.runtime.path, made)
    job = replace(job, cluster=settled, runtime=replace(job.runtime, path=archive or job.runtime.path))
    needs = Needs(archive, python, overhead, _spark_home(kind, environ))
    body = _ACTIONS[kind](job, needs, folder, made)
    step = "-".join(job.tasks)
    (made / "workflow.xml").write_text(
        oozie.workflow(oozie.checked(named), step, body, _fresh(kind, job)), encoding="utf-8"
    )
    texts = oozie.job_properties(kind, name, known, queue, needs.spark_home)
    (made / "job.properties").write_text(texts, encoding="ascii")
    return built.remarks


def _fresh(kind: str, job: JobSpec) -> Optional[str]:
    """The model that must not be there yet: a spark action's job is not looked over again before it runs."""
    looks = kind == "spark" and "train" in job.tasks and not job.output.overwrite
    on_hdfs = paths.scheme(job.output.model or "") in ("hdfs", "viewfs", "webhdfs")
    return job.output.model if looks and on_hdfs else None


def _spark_home(kind: str, environ: Mapping[str, str]) -> Optional[str]:
    """Where the launcher's node has Spark: where this machine has it, if it says so."""
    return environ.get("SPARK_HOME") or None if kind == "shell" else None


# --- What this machine can check of the job ---------------------------------------------------------------------------


def _remote(uri: Optional[str]) -> bool:
    """Whether `uri` is not this machine's to look at: another store's, or not known before the workflow runs."""
    return uri is not None and ("${" in uri or paths.local_path(uri) is None)


def _later(job: JobSpec) -> dict[str, Any]:
    """The leaves that are checked when the workflow runs; on YARN a plain path is a path of the cluster."""
    found = {
        "data.input": job.data.input,
        "start.weights": job.start.weights,
        "start.snapshot": job.start.snapshot,
        "output.model": job.output.model,
        "output.text": job.output.text,
        "output.run_folder": job.output.run_folder,
    }
    on_yarn = job.cluster.master == "yarn"
    return {name: value for name, value in found.items() if any(_held(uri, name, on_yarn) for uri in _each(value))}


def _each(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _held(uri: str, leaf: str, on_yarn: bool) -> bool:
    if _remote(uri) or (on_yarn and uri.startswith("/")):
        return True
    if on_yarn and not paths.scheme(uri):
        raise UsageError(f"{leaf} {uri}: name it in full; a workflow does not run in your working directory")
    return False


def _with(job: JobSpec, values: Mapping[str, Any]) -> JobSpec:
    """`job` with the leaves in `values` (all of them in a section)."""
    for name, value in values.items():
        section, _, entry = name.partition(".")
        job = replace(job, **{section: replace(getattr(job, section), **{entry: value})})
    return job


def _seen(job: JobSpec, folder: Path) -> JobSpec:
    """`job` with what is checked later replaced by what passes the gateway's checks."""
    model = folder.parent / "stand-in"
    if "train" not in job.tasks:
        model.touch()
    stands = {"start.weights": (), "output.model": model.as_uri(), "data.input": model.as_uri()}
    return _with(job, {name: stands.get(name) for name in _later(job)})


# --- What travels in the application ----------------------------------------------------------------------------------


def _carried(asked: Cluster, kind: str, made: Path) -> Cluster:
    """`asked` with its local files put into lib/ and named as the action finds them."""
    files = tuple(_copied(uri, made / "lib") for uri in asked.files)
    archives = tuple(_archive(uri, kind, made) for uri in asked.archives)
    if kind == "spark":  # Oozie itself hands the files of lib/ to --files
        files = tuple(filter(_remote, asked.files))
    return replace(
        asked,
        files=files,
        archives=archives,
        py_files=tuple(_copied(uri, made / "lib") for uri in asked.py_files),
        properties_file=asked.properties_file and _copied(asked.properties_file, made / "lib"),
    )


def _copied(uri: str, folder: Path) -> str:
    """The name of a local file that is copied into `folder`; another URI as it is."""
    if _remote(uri):
        return uri
    path, target = paths.local_path(uri), folder / paths.basename(uri)
    if path is None or not path.is_file():
        raise ConfigError(f"{uri}: no such file")
    if not re.fullmatch(r"[\w.@+-]+", target.name, re.ASCII) or target.exists():
        raise ConfigError(f"{uri}: its name in lib/ is taken, or has letters that Oozie's lists cannot have; rename it")
    shutil.copyfile(path, target)
    return target.name


def _archive(uri: str, kind: str, made: Path) -> str:
    """An archive's URI: one on this machine goes into the application, beside workflow.xml."""
    bare, sign, name = uri.partition("#")
    copied = _copied(bare, made)
    return f"{copied if copied == bare or kind == 'spark' else f'{APP}/{copied}'}{sign}{name}"


def _runtime(asked: Optional[str], made: Path) -> tuple[Optional[str], str]:
    """(The runtime's archive as the action names it, or None for a folder on every node; the Python in it.)"""
    if asked is None:
        raise UsageError("--runtime is missing: the runtime's archive on HDFS, or its folder on every node")
    if not _remote(asked) and not Path(asked).is_file():
        return None, f"{_node_folder(asked)}/bin/python"
    if paths.scheme(asked) == "local":
        raise UsageError(f"--runtime {asked}: Oozie ships no local: archives; name the folder that every node has")
    if not _remote(asked):
        shutil.copyfile(asked, made / argv.ARCHIVE)
    return (asked if _remote(asked) else argv.ARCHIVE), f"./{argv.ARCHIVE}/bin/python"


def _node_folder(asked: str) -> str:
    """A folder that every node has, be it here or not."""
    if asked.endswith((".tgz", ".tar.gz")) or not asked.startswith("/"):
        raise ConfigError(f"--runtime {asked}: no such file; name an archive that exists, or a folder in full")
    return asked.rstrip("/")


# --- The two kinds ----------------------------------------------------------------------------------------------------


def _spark(job: JobSpec, needs: Needs, folder: Path, made: Path) -> oozie.Element:
    """The command of the job, rendered; and its files."""
    on_nodes = job if needs.archive is None else replace(job, runtime=replace(job.runtime, path=None))
    job_dir.write(on_nodes, folder)
    home = needs.python[: -len("/bin/python")]
    found = argv.Site("spark-submit", "", needs.python, HERE, site.cores(), archive=needs.archive, runtime=home)
    command = argv.command(job, replace(found, overhead_mib=needs.overhead_mib))
    for name in oozie.own_files(command):
        shutil.copy(folder / name, (made if name == argv.JOB_ZIP else made / "lib") / name)
    return oozie.spark(command, oozie.Parts())


def _shell(job: JobSpec, needs: Needs, folder: Path, made: Path) -> oozie.Element:
    """The job's arguments, rendered; and its files."""
    job_dir.write(job, folder)
    for name in (argv.JOB_ZIP, argv.PACKAGE_ZIP):
        shutil.copyfile(folder / name, made / "lib" / name)
    program = made / "lib" / oozie.SCRIPT
    program.write_text(oozie.script(needs.python), encoding="utf-8")
    program.chmod(0o755)
    env = {"HADOOP_USER_NAME": "${wf:user()}", **({"SPARK_HOME": "${sparkHome}"} if needs.spark_home else {})}
    shipped = () if needs.archive is None else (f"{needs.archive}#{argv.ARCHIVE}",)
    if needs.archive == argv.ARCHIVE:
        job = replace(job, runtime=replace(job.runtime, path=f"{APP}/{needs.archive}"))
    return oozie.shell(job, oozie.Parts(archives=shipped, env=env))


_ACTIONS: dict[str, Any] = {"spark": _spark, "shell": _shell}

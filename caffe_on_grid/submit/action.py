"""Inside an Oozie shell action: the job's application carries the action's tag, what an earlier attempt left is ended,
and stdout has what `capture-output` takes.

`main` is the program of a rendered action; its working directory has what Oozie localised there. The `caffe-on-grid`
command does the same in an action of the user's own.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Optional

from caffe_on_grid.errors import ConfigError, ContactLost, GridError, UsageError
from caffe_on_grid.spec import codec, defaults
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.spec.run import RunRecord
from caffe_on_grid.submit import argv, cluster, properties, run, site, start, yarn

VARIABLE = "OOZIE_ACTION_CONF_XML"
"""Names the action's configuration; Oozie sets it in a shell action."""

TAGS = "oozie.child.mapreduce.job.tags"
YARN_TAGS = "spark.yarn.tags"
LIMIT = 2048
"""Bytes that Oozie captures unless its administrator says more."""

CAUSE = 600
"""Letters of a failure's cause that are reported."""

SPARK_CONF = "spark_conf."
"""What Spark's settings begin with among the arguments."""

SPARK_HOMES = (
    "/usr/lib/spark3",
    "/usr/lib/spark",
    "/opt/spark",
    "/opt/cloudera/parcels/SPARK3/lib/spark3",
    "/opt/cloudera/parcels/CDH/lib/spark",
    "/usr/hdp/current/spark3-client",
)
HADOOP_CONFS = ("/etc/hadoop/conf", "/etc/hadoop", "/opt/hadoop/etc/hadoop", "/usr/local/hadoop/etc/hadoop")
"""Where distributions put Spark and the configuration; a launcher's environment often names neither."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class Action:
    """The shell action that this process runs in."""

    document: Optional[Path] = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        """What Oozie finds an action's children by."""
        return tuple(tag.strip() for tag in self.settings.get(TAGS, "").split(",") if tag.strip())


def find(environ: Mapping[str, str]) -> Optional[Action]:
    """The action that `environ` tells of; EnvironmentFault where the action's configuration cannot be read."""
    named = environ.get(VARIABLE)
    return Action(Path(named), yarn.properties(Path(named))) if named else None


def found(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that the launcher's environment lacks, from the usual places; empty where it lacks none."""
    more = {}
    if not environ.get("SPARK_HOME") and not shutil.which("spark-submit", path=environ.get("PATH")):
        more["SPARK_HOME"] = _first(SPARK_HOMES, "bin/spark-submit")
    if not any(environ.get(name) for name in cluster.CONFIGURATION):
        named = environ.get("HADOOP_CLIENT_CONF_DIR")
        more["HADOOP_CONF_DIR"] = _first([*([named] if named else []), *HADOOP_CONFS], "yarn-site.xml")
    return {name: value for name, value in more.items() if value}


def _first(folders: Sequence[str], name: str) -> str:
    return next((folder for folder in folders if (Path(folder) / name).is_file()), "")


def execute(
    job: JobSpec, given: Collection[str], net: Optional[str], action: Action, note: Note, environ: Mapping[str, str]
) -> RunRecord:
    """Run `job` (whose `given` leaves some layer has set) to its end as the action's only application."""
    placed = cluster.place(job.cluster, given, environ, site.cores())
    if placed.master == "yarn" and action.tags:
        settings = yarn.configuration(environ, action.document)
        for application in yarn.end_tagged(action.tags, settings, environ):
            note(f"{application} of an earlier attempt was still there and is killed")
    with start.workspace(keep=False) as folder:
        prepared = start.prepare(inside(job, action, note), given, net, folder, environ, note=note)
        for remark in prepared.remarks:
            note(remark)
        record = run.run(prepared.command, folder, environ)
        start.forget(prepared, record.application_id)
    return record


def inside(job: JobSpec, action: Action, note: Note) -> JobSpec:
    """`job` with the action's tag beside the user's own, and without a login: the container has Oozie's tokens."""
    if job.cluster.keytab or job.cluster.principal:
        note("--principal and --keytab are not used in an Oozie action: it has Oozie's delegation tokens")
    own = [tag for tag in job.cluster.conf.get(YARN_TAGS, "").split(",") if tag]
    tags = list(dict.fromkeys([*own, *action.tags]))
    conf = {**job.cluster.conf, **({YARN_TAGS: ",".join(tags)} if tags else {})}
    return replace(job, cluster=replace(job.cluster, conf=conf, principal=None, keytab=None))


def told(call: Callable[[], RunRecord]) -> int:
    """Run `call` and print what Oozie captures, also of what fails; the exit code. The error goes on to the caller."""
    try:
        record = call()
    except GridError as error:
        sys.stdout.write(properties.within(failure(error), LIMIT))
        raise
    sys.stdout.write(properties.within(outcome(record), LIMIT))
    return ContactLost.exit_code if record.exit_code is None else record.exit_code


def failure(error: GridError) -> Iterator[tuple[str, str]]:
    """What is captured where there is no record of a run."""
    yield "exit_code", str(error.exit_code)
    yield "outcome", "failed"
    yield "cause", str(error)[:CAUSE]


def outcome(record: RunRecord) -> Iterator[tuple[str, str]]:
    """What is captured of a run, the most wanted first: its codes, its model, its last test by blob, the cause."""
    code = ContactLost.exit_code if record.exit_code is None else record.exit_code
    known = {
        "application_id": record.application_id,
        "exit_code": str(code),
        "outcome": record.outcome,
        "run_id": record.run_id,
        "model": record.model,
        "run_folder": record.run_folder,
        "iterations": str(max((task.totals.iterations for task in record.tasks), default=0)),
    }
    yield from ((name, value) for name, value in known.items() if value is not None)
    for name, value in _outputs(record).items():
        yield (f"test.{name}" if name in {*known, "cause"} else name), value
    if record.cause:
        yield "cause", record.cause.message[:CAUSE]


def _outputs(record: RunRecord) -> dict[str, str]:
    """Blob → values, comma separated, of the last test of each net; `net1.accuracy` for further nets."""
    tests = [test for task in record.tasks for test in task.tests]
    return {
        (f"net{test.net}." if test.net else "") + blob: ",".join(f"{value:.6g}" for value in values)
        for test in tests
        for blob, values in test.outputs.items()
    }


def layer(words: Sequence[str]) -> defaults.Layer:
    """The layer of a rendered action's arguments: `cluster.queue=gpu`, `spark_conf.KEY=VALUE`; `--`, Spark's words.

    UsageError names the argument that is none of them.
    """
    cut = list(words).index("--") if "--" in words else len(words)
    values: dict[str, Any] = {defaults.SPARK_CONF: {}, "cluster.passthrough": tuple(words[cut + 1 :])}
    for word in words[:cut]:
        name, sign, text = word.partition("=")
        if sign and name.startswith(SPARK_CONF):
            values[defaults.SPARK_CONF][name[len(SPARK_CONF) :]] = text
        else:
            values[name] = _value(word, name, sign, text)
    return defaults.Layer("workflow", values)


def _value(word: str, name: str, sign: str, text: str) -> Any:
    known = defaults.leaves()
    if not sign or name not in known or name == defaults.SPARK_CONF:
        raise UsageError(f"argument {word}: expected KEY=VALUE with a key of the configuration{_near(name, known)}")
    try:
        return defaults.value(known[name], text)
    except ValueError as error:
        raise UsageError(f"argument {name}: {error}") from None


def _near(name: str, known: Collection[str]) -> str:
    return codec.suggestion(name, list(known))


def main(words: Optional[Sequence[str]] = None) -> int:
    """The program of a rendered action: `job.zip` here, the job's leaves as arguments. All errors end here."""
    try:
        return told(lambda: _run(sys.argv[1:] if words is None else words))
    except GridError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code


def _run(words: Sequence[str]) -> RunRecord:
    settings = defaults.settings([layer(words)])
    os.environ.update(found(os.environ))
    action = find(os.environ) or Action()
    with _folder() as folder:
        shipped = _unpacked(Path(argv.JOB_ZIP), folder)
        job = defaults.job(settings, shipped.tasks, str(folder / shipped.solver))
        return execute(job, settings.origins, None, action, _note, os.environ)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="caffe-on-grid-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpacked(path: Path, folder: Path) -> JobSpec:
    """Put the job's files into `folder`; the job they are of, as it was rendered."""
    try:
        with zipfile.ZipFile(path) as packed:
            packed.extractall(folder)
        text = (folder / "job.json").read_text(encoding="utf-8")
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: the job's files cannot be unpacked: {error}; render the workflow again") from None
    return codec.loads(JobSpec, text, "job.json")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

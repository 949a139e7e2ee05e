"""The built command, held by golden files. To accept a change: ACCEPT=1 pytest tests/unit/submit/test_argv.py."""

from __future__ import annotations

import difflib
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec.job import Cluster, EngineSpec, JobSpec, Runtime
from caffe_on_grid.submit import argv, cluster

GOLDEN = Path(__file__).parent / "golden"
HADOOP = {"HADOOP_CONF_DIR": "/etc/hadoop"}
LOCAL = argv.Site("/opt/spark/bin/spark-submit", "/opt/spark", "/opt/tool/bin/python", "/tmp/job-1", cores=4)
YARN = replace(LOCAL, archive="/opt/caffe_on_grid.tgz", runtime="/var/cache/runtime")


def job(tasks: tuple[str, ...] = ("train",), engine: EngineSpec | None = None, **asked: object) -> JobSpec:
    placed = cluster.place(Cluster(**asked), {f"cluster.{name}" for name in asked}, {}, cores=4)  # type: ignore[arg-type]
    return JobSpec(tasks, "solver.prototxt", placed, Runtime("/opt/runtime"), engine or EngineSpec())


CASES: dict[str, tuple[JobSpec, argv.Site]] = {
    "local": (job(master="local[2]", executors=2), LOCAL),
    "local-cluster": (
        job(("train", "test"), master="local-cluster[2,1,1024]", gang_timeout_s=45.0),
        replace(LOCAL, java_home="/opt/java"),
    ),
    "standalone": (
        job(master="spark://head:7077", executors=3, executor_cores=4, executor_memory="8g", name="digits"),
        LOCAL,
    ),
    "yarn-client": (job(master="yarn", executors=2, driver_memory="2g", queue="research"), YARN),
    "yarn-cluster": (
        job(
            engine=EngineSpec(solver_mode="gpu", devices=4),
            master="yarn",
            deploy_mode="cluster",
            executors=8,
            executor_cores=8,
            executor_memory="32g",
            queue="gpu",
            node_label="gpu",
            am_node_label="cpu",
            principal="ada@EXAMPLE.ORG",
            keytab="/home/ada/ada.keytab",
            conf={"spark.log.level": "INFO", "spark.ssl.keyPassword": "s3cret", "spark.yarn.tags": "nightly run"},
            files=("hdfs:///etc/extra.conf",),
            archives=("hdfs:///libs.tgz#libs",),
            py_files=("layers.py",),
            passthrough=("--conf", "spark.hadoop.fs.s3a.secret.key=abc", "--verbose"),
        ),
        YARN,
    ),
    "yarn-nodes-runtime": (job(master="yarn", deploy_mode="cluster"), replace(YARN, archive=None)),
    "blanks-and-quotes": (
        job(
            master="yarn",
            name='it\'s "digits"',
            keytab="/home/ada l/$key.keytab",
            properties_file="my conf/it's.conf",
            conf={"spark.executor.extraJavaOptions": "-Da='b c' -Dd=$HOME"},
        ),
        replace(YARN, folder="/tmp/my jobs/a,b", archive="/sites/our grid/runtime.tgz", python="/opt/my tool/python"),
    ),
}


def rendered(name: str) -> str:
    """The golden form: one word a line, the variables first."""
    line = argv.command(*CASES[name]).line()
    return "\n".join(shlex.quote(word) for word in shlex.split(line)) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    path, now = GOLDEN / f"{name}.txt", rendered(name)
    if os.environ.get("ACCEPT"):
        path.write_text(now)
    before = path.read_text() if path.exists() else ""
    diff = "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), str(path), "now"))
    assert not diff, f"\n{diff}\nIf this is meant: ACCEPT=1 pytest {__file__}"


@pytest.mark.parametrize("name", sorted(set(CASES) - {"yarn-cluster"}))
def test_the_line_is_the_command(name: str, tmp_path: Path) -> None:
    """A shell that runs the line starts the very same words with the very same variables."""
    command = argv.command(*CASES[name])
    show = tmp_path / "show it"
    show.write_text('#!/bin/sh\nprintf "%s\\n" "$PYSPARK_PYTHON" "$SPARK_HOME" "$@"\n')
    show.chmod(0o755)
    line = argv.SparkCommand((str(show), *command.argv[1:]), command.env).line()
    said = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [command.env["PYSPARK_PYTHON"], command.env["SPARK_HOME"], *command.argv[1:]]


def test_who_does_not_wait_has_spark_not_wait() -> None:
    job, site = CASES["yarn-cluster"]
    waited = argv.command(job, site).argv
    left = argv.command(replace(job, cluster=replace(job.cluster, wait=False)), site).argv
    assert set(left) - set(waited) == {"spark.yarn.submit.waitAppCompletion=false"}


def test_secrets_are_masked_in_the_line_alone() -> None:
    command = argv.command(*CASES["yarn-cluster"])
    assert "spark.ssl.keyPassword=s3cret" in command.argv
    assert "s3cret" not in command.line()
    assert "=abc" not in command.line()
    assert "spark.yarn.tags=nightly run" in command.line()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.dynamicAllocation.enabled", "true"),
        ("spark.speculation", "true"),
        ("spark.task.cpus", "2"),
        ("spark.python.worker.reuse", "true"),
        ("spark.executor.instances", "5"),
        ("spark.master", "yarn"),
    ],
)
def test_settings_that_break_a_gang_are_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"--conf {key}={value}: "):
        argv.command(job(conf={key: value}), LOCAL)


def test_a_locked_setting_with_our_own_value_is_fine() -> None:
    assert "spark.speculation=false" in argv.command(job(conf={"spark.speculation": "false"}), LOCAL).argv


def test_the_users_settings_win_elsewhere() -> None:
    words = argv.command(job(conf={"spark.locality.wait": "3s"}), LOCAL).argv
    assert "spark.locality.wait=3s" in words
    assert "spark.locality.wait=0s" not in words


def test_the_order_does_not_depend_on_the_users() -> None:
    one = argv.command(job(conf={"a": "1", "b": "2"}), LOCAL)
    two = argv.command(job(conf={"b": "2", "a": "1"}), LOCAL)
    assert one.argv == two.argv


@pytest.mark.parametrize("timeout", [1.0, 4.5, 30.0, 600.0, 86400.0])
def test_waits_for_executors_end_with_the_gangs_timeout(timeout: float) -> None:
    asked = job(gang_timeout_s=timeout)
    settings = argv.confs(asked, LOCAL, cluster.master("local[1]", 1))
    prefix = "spark.scheduler.barrier.maxConcurrentTasksCheck."
    interval = int(settings[f"{prefix}interval"][:-1])
    assert interval >= 1
    assert timeout <= interval * int(settings[f"{prefix}maxFailures"]) < timeout + interval + 1

from __future__ import annotations

import os
import sys
from pathlib import Path

import projects
import pytest

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.spec.job import Cluster, JobSpec, Runtime
from caffe_on_grid.submit import site

ENVIRON = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME")}


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def spark(home: Path) -> Path:
    program(home / "bin" / "spark-submit", "exit 0")
    (home / "jars").mkdir()
    return home


def test_a_real_spark_and_java_are_found(tmp_path: Path) -> None:
    runtime = projects.fake_runtime(tmp_path / "runtime")
    job = JobSpec(("train",), "s", Cluster(), Runtime(str(runtime)))
    found = site.find(job, tmp_path, ENVIRON)
    assert Path(found.spark_submit).is_file()
    assert found.python == sys.executable
    assert (found.archive, found.runtime) == (None, str(runtime))
    assert found.cores >= 1


def test_spark_home_wins_over_path_and_path_over_the_package(tmp_path: Path) -> None:
    one, two = spark(tmp_path / "one"), spark(tmp_path / "two")
    path = f"{two / 'bin'}:{os.environ['PATH']}"
    assert site.spark_home({"SPARK_HOME": str(one), "PATH": path}) == one
    assert site.spark_home({"PATH": path}) == two
    assert site.spark_home({"PATH": "/nowhere"}).name == "pyspark"


def test_a_wrong_spark_home(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"SPARK_HOME=.*: there is no bin/spark-submit in it"):
        site.spark_home({"SPARK_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("echo 'java version \"1.8.0_402\"' >&2", "is Java 8, and this Spark needs 17"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11, and this Spark needs 17"),
        ("exit 3", "does not run"),
    ],
)
def test_java_too_old_or_broken(tmp_path: Path, said: str, message: str) -> None:
    program(tmp_path / "bin" / "java", said)
    for environ in ({"PATH": str(tmp_path / "bin")}, {"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}):
        with pytest.raises(EnvironmentFault, match=message) as caught:
            site.check_java(environ, 17)
        assert "install Java 17" in str(caught.value)


def test_java_17_and_8_are_read(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    assert site.check_java({"PATH": str(tmp_path / "bin")}, 17) is None
    assert site.check_java({"JAVA_HOME": str(tmp_path)}, 8) == str(tmp_path)


def test_no_java() -> None:
    with pytest.raises(EnvironmentFault, match="no Java on PATH"):
        site.check_java({"PATH": "/nowhere"}, 17)
    with pytest.raises(EnvironmentFault, match="no Java at JAVA_HOME=/nowhere"):
        site.check_java({"JAVA_HOME": "/nowhere", "PATH": os.environ["PATH"]}, 17)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "--master yarn: set HADOOP_CONF_DIR"),
        ({"HADOOP_CONF_DIR": "/nowhere"}, "HADOOP_CONF_DIR=/nowhere: no such folder"),
        ({"HADOOP_CONF_DIR": "/etc"}, "name the runtime's archive with --runtime"),
    ],
)
def test_yarn_wants_its_configuration_and_an_archive(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    job = JobSpec(("train",), "s", Cluster(master="yarn"))
    with pytest.raises(EnvironmentFault, match=message):
        site.find(job, tmp_path, {**ENVIRON, **environ})


def test_yarn_in_cluster_mode_ships_the_archive_without_unpacking_it(tmp_path: Path) -> None:
    archive = tmp_path / "runtime.tgz"
    archive.write_bytes(b"not looked into")
    job = JobSpec(("train",), "s", Cluster(master="yarn", deploy_mode="cluster"), Runtime(str(archive)))
    found = site.find(job, tmp_path, {**ENVIRON, "HADOOP_CONF_DIR": "/etc"})
    assert (found.archive, found.runtime) == (str(archive), None)


def test_no_runtime(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no runtime is there"):
        site.find(JobSpec(("train",), "s", Cluster(), Runtime(str(tmp_path))), tmp_path, ENVIRON)

"""A rendered shell action, started as Oozie's ShellMain starts it; Spark is this machine's."""

from __future__ import annotations

import os
from pathlib import Path

import nets
import oozie_rules
import pyspark
import pytest
from command import Command
from oozie_launcher import Launcher

pytestmark = [pytest.mark.spark, pytest.mark.runtime]

SPARK = str(Path(pyspark.__file__).parent)


@pytest.fixture(scope="module")
def command(runtime: Path, tmp_path_factory: pytest.TempPathFactory):
    found = Command(tmp_path_factory.mktemp("oozie"), runtime)
    yield found
    found.close()


@pytest.fixture(scope="module")
def application(command: Command, runtime: Path) -> Path:
    """Ten steps on one rank, and a test; the model's name is the workflow's."""
    lmdbs = nets.write_lmdb(command.folder / "train", 24), nets.write_lmdb(command.folder / "test", 12, seed=9)
    nets.write_job(command.folder / "job", nets.net(*lmdbs, batch=6), nets.solver(iterations=10))
    model = f"{command.folder}/${{wf:id()}}.caffemodel"
    words = ["--action", "shell", "-conf", "job/solver.prototxt", "-model", model, "--runtime", runtime.absolute()]
    words += ["--master", "local[1]", "--seed", "3", "--conf", 'spark.driver.extraJavaOptions=-Da="it\'s here"']
    said = command.run("oozie", *words, "application", SPARK_HOME=SPARK).well()
    assert said.out == "application\n"
    return command.folder / "application"


def launcher(application: Path, container: str, job: str) -> Launcher:
    known = oozie_rules.properties((application / "job.properties").read_text())
    variables = {**known, "wf:id()": job, "wf:user()": "ada", "user.name": "ada"}
    settings = {"oozie.child.mapreduce.job.tags": "oozie-0123456789abcdef0123456789abcdef"}
    return Launcher(application, application.parent / container, variables, settings)


def environment(command: Command) -> dict[str, str]:
    """What a NodeManager gives a launcher; no HOME, no Spark, no Hadoop but what the action says."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME", "LANG")}
    temporary = command.folder / "temp"
    return {**kept, "TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def test_a_shell_action_trains_and_tells_what_came_of_it(command: Command, application: Path) -> None:
    code, out, err = launcher(application, "container", "0001-W").run(environment(command))
    assert code == 0, err
    assert len(out.encode()) <= 2048
    found = oozie_rules.properties(out)
    assert (found["exit_code"], found["outcome"], found["iterations"]) == ("0", "done", "10")
    assert found["model"] == str(command.folder / "0001-W.caffemodel")
    assert Path(found["model"]).is_file()
    assert found["application_id"].startswith("local-")
    assert 0 <= float(found["accuracy"]) <= 1
    record = (Path(found["run_folder"]) / "run.json").read_text()
    assert '"spark.yarn.tags": "oozie-0123456789abcdef0123456789abcdef"' in record
    assert not [p for p in (command.folder / "temp").iterdir() if p.name.startswith("caffe-on-grid-")]


def test_what_fails_is_one_line_and_its_code(command: Command, application: Path) -> None:
    (command.folder / "0002-W.caffemodel").write_text("a model that is there")
    code, out, err = launcher(application, "container-2", "0002-W").run(environment(command))
    assert code == 3
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: -model ") and "exists" in last
    assert oozie_rules.properties(out) == {"exit_code": "3", "outcome": "failed", "cause": last[len("error: ") :]}


def test_without_spark_it_has_a_code_of_its_own(command: Command, application: Path) -> None:
    found = launcher(application, "container-3", "0003-W")
    gone = Launcher(found.application, found.container, {**found.variables, "sparkHome": "/nowhere"})
    code, out, err = gone.run(environment(command))
    assert code == 4, err
    assert oozie_rules.properties(out)["cause"].startswith("SPARK_HOME=/nowhere: there is no bin/spark-submit")

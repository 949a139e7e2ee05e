"""What a job's command does inside of an Oozie shell action."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import oozie_rules
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.errors import EnvironmentFault, GangError, UsageError
from caffe_on_grid.spec import run as records
from caffe_on_grid.spec.job import Cluster, JobSpec
from caffe_on_grid.submit import action, properties

JOB = JobSpec(("train",), "solver.prototxt")
RECORD = records.RunRecord(
    run_id="r1",
    outcome="done",
    started="2026-01-01T00:00:00Z",
    run_folder="hdfs://grid/runs/r1",
    seed=3,
    job=JOB,
    versions=records.Versions("0.1", "3.9"),
    application_id="application_1_0001",
    exit_code=0,
    model="hdfs://grid/größe.caffemodel",
    tasks=(
        records.TaskRecord("train", tests=(records.LastTest(0, 10, {"accuracy": (0.5,)}, 2),)),
        records.TaskRecord(
            "test",
            tests=(
                records.LastTest(0, 20, {"accuracy": (0.99123456,), "loss": (float("nan"),), "model": (1.0, 2.0)}, 2),
                records.LastTest(1, 20, {"accuracy": (0.25,)}, 2),
            ),
            totals=records.Totals(iterations=20),
        ),
    ),
)


def captured(record: records.RunRecord) -> dict[str, str]:
    return oozie_rules.properties(properties.within(action.outcome(record), action.LIMIT))


def test_what_a_run_leaves_to_later_nodes() -> None:
    assert captured(RECORD) == {
        "application_id": "application_1_0001",
        "exit_code": "0",
        "outcome": "done",
        "run_id": "r1",
        "model": "hdfs://grid/größe.caffemodel",
        "run_folder": "hdfs://grid/runs/r1",
        "iterations": "20",
        "accuracy": "0.991235",
        "loss": "nan",
        "test.model": "1,2",
        "net1.accuracy": "0.25",
    }


def test_what_is_too_much_is_left_out_the_most_wanted_first() -> None:
    many = {f"blob{i}": (0.5,) * 20 for i in range(100)}
    task = replace(RECORD.tasks[1], tests=(records.LastTest(0, 20, many, 2),))
    cause = records.Cause("TrainingFailed", "é" * 5000)
    record = replace(RECORD, tasks=(task,), cause=cause, exit_code=1)
    text = properties.within(action.outcome(record), action.LIMIT)
    assert len(text.encode()) <= 2048
    found = oozie_rules.properties(text)
    assert {"application_id", "exit_code", "model", "iterations", "blob0"} <= set(found)


def test_a_lost_contact_has_its_code() -> None:
    assert captured(replace(RECORD, exit_code=None))["exit_code"] == "8"


def test_a_failure_is_captured_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> records.RunRecord:
        raise GangError("only 1 of 2 executors came: no room")

    with pytest.raises(GangError):
        action.told(fail)
    assert oozie_rules.properties(capsys.readouterr().out) == {
        "exit_code": "6",
        "outcome": "failed",
        "cause": "only 1 of 2 executors came: no room",
    }


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_java_reads_what_is_written(pairs: dict[str, str]) -> None:
    text = properties.dumps(pairs)
    assert text.isascii()
    assert oozie_rules.properties(text) == pairs


def xml(folder: Path, tags: str) -> Path:
    path = folder / "action.xml"
    path.write_text(
        f"<configuration><property><name>{action.TAGS}</name><value>{tags}</value></property></configuration>"
    )
    return path


def test_the_tag_comes_from_the_actions_configuration(tmp_path: Path) -> None:
    found = action.find({"OOZIE_ACTION_CONF_XML": str(xml(tmp_path, "oozie-1, extra"))})
    assert found is not None
    assert found.tags == ("oozie-1", "extra")
    mine = replace(JOB, cluster=Cluster(conf={"spark.yarn.tags": "nightly,extra", "a": "b"}))
    conf = action.inside(mine, found, lambda _: None).cluster.conf
    assert conf == {"spark.yarn.tags": "nightly,extra,oozie-1", "a": "b"}


def test_elsewhere_there_is_no_action() -> None:
    assert action.find({}) is None
    assert action.find({"OOZIE_ACTION_CONF_XML": ""}) is None
    assert action.inside(JOB, action.Action(), lambda _: None) == JOB


def test_an_unreadable_configuration(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"gone.xml: not a Hadoop configuration"):
        action.find({"OOZIE_ACTION_CONF_XML": str(tmp_path / "gone.xml")})


def test_nobody_logs_in() -> None:
    notes: list[str] = []
    asked = replace(JOB, cluster=Cluster(principal="ada@X", keytab="ada.keytab"))
    assert action.inside(asked, action.Action(), notes.append) == JOB
    assert notes == ["--principal and --keytab are not used in an Oozie action: it has Oozie's delegation tokens"]


def test_what_the_launchers_environment_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("spark/bin/spark-submit", "conf/yarn-site.xml", "client/yarn-site.xml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(action, "SPARK_HOMES", ("/nowhere", str(tmp_path / "spark")))
    monkeypatch.setattr(action, "HADOOP_CONFS", ("/nowhere", str(tmp_path / "conf")))
    bare = {"PATH": "/nowhere"}
    spark, conf, client = (str(tmp_path / name) for name in ("spark", "conf", "client"))
    assert action.found(bare) == {"SPARK_HOME": spark, "HADOOP_CONF_DIR": conf}
    assert action.found({**bare, "HADOOP_CLIENT_CONF_DIR": client}) == {"SPARK_HOME": spark, "HADOOP_CONF_DIR": client}
    assert action.found({"SPARK_HOME": "/x", "YARN_CONF_DIR": "/y"}) == {}
    monkeypatch.setattr(action, "SPARK_HOMES", ())
    monkeypatch.setattr(action, "HADOOP_CONFS", ())
    assert action.found(bare) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cluster.queu=x"], r"argument cluster.queu=x: .*did you mean 'cluster.queue'"),
        (["queue"], "argument queue: expected KEY=VALUE"),
        (["engine.devices=0"], "argument engine.devices: expected at least 1"),
        (["cluster.conf=x"], "argument cluster.conf=x: expected KEY=VALUE with a key"),
    ],
)
def test_wrong_arguments(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        action.layer(words)


def test_without_the_jobs_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(action.VARIABLE, raising=False)
    for name in ("SPARK_HOME", "HADOOP_CONF_DIR"):
        monkeypatch.setenv(name, "/x")
    assert action.main([]) == 3
    said = capsys.readouterr()
    assert oozie_rules.properties(said.out)["exit_code"] == "3"
    assert said.err.startswith("error: job.zip: the job's files cannot be unpacked: ")
    assert said.err.count("\n") == 1

"""What a run is called, where it keeps its things, its seed, and the words for its end."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from caffe_on_grid.driver import identity, record, stage
from caffe_on_grid.errors import ConfigError, DataError, GangError, Interrupted, Terminated
from caffe_on_grid.spec.job import DataSpec, JobSpec, Output, Start
from caffe_on_grid.spec.report import Failed
from caffe_on_grid.storage import runs, snapshots


def test_run_ids_sort_by_time_in_utc():
    east = datetime(2026, 1, 2, 1, 0, 0, tzinfo=timezone(timedelta(hours=2)))
    assert runs.run_id(east, "abc123") == "20260101-230000-abc123"
    assert runs.fresh_run_id() != runs.fresh_run_id()


@pytest.mark.parametrize(
    ("tasks", "output", "folder", "pointer"),
    [
        (("train",), Output(model="/m/net.caffemodel"), "/m/net/ID", "/m/net/latest"),
        (("train",), Output(model="hdfs://nn/m/net.caffemodel"), "hdfs://nn/m/net/ID", "hdfs://nn/m/net/latest"),
        (("train", "test"), Output(model="/m/n.caffemodel", text="/r/t.txt"), "/m/n/ID", "/m/n/latest"),
        (("train",), Output(model="/m/n.caffemodel", run_folder="/r/7"), "/r/7", None),
        (("test",), Output(model="/m/n.caffemodel", text="/r/out.txt"), "/r/out/ID", "/r/out/latest"),
        (("test",), Output(model="/m/n.caffemodel"), "/cwd/caffe-on-grid-runs/ID", "/cwd/caffe-on-grid-runs/latest"),
    ],
)
def test_where_a_run_keeps_its_things(tasks, output, folder, pointer):
    job = JobSpec(tasks, "solver.prototxt", output=output)
    assert runs.run_folder(job, "ID", "/cwd") == folder
    assert runs.pointer(job, folder) == pointer


@pytest.mark.parametrize(
    ("given", "solver", "seed"),
    [(5, "random_seed: 7", 5), (None, "base_lr: 0.1 random_seed: 7", 7), (None, "random_seed: 0", 0)],
)
def test_the_seed_is_the_jobs_or_the_solvers(tmp_path, given, solver, seed):
    (tmp_path / "s.prototxt").write_text(solver)
    job = JobSpec(("train",), "s.prototxt", data=DataSpec(seed=given))
    assert identity.seed(job, tmp_path) == seed


@pytest.mark.parametrize("solver", ["random_seed: -1", "base_lr: 0.1"])
def test_an_unset_seed_is_drawn_or_the_snapshots(tmp_path, solver):
    (tmp_path / "s.prototxt").write_text(solver)
    drawn = {identity.seed(JobSpec(("train",), "s.prototxt"), tmp_path) for _ in range(3)}
    assert len(drawn) == 3
    for name in ("n_iter_5.caffemodel", "n_iter_5.solverstate"):
        (tmp_path / name).write_bytes(b"x")
    fields = {
        "iteration": 5,
        "world": 1,
        "seed": 1234,
        "run_id": "R",
        "batches": 5,
        "test_passes": 0,
        "solver_type": "SGD",
    }
    model, state = tmp_path / "n_iter_5.caffemodel", tmp_path / "n_iter_5.solverstate"
    snapshots.publish(str(tmp_path / "out"), "n", (model, state), fields)
    start = Start(snapshot=str(tmp_path / "out" / "n_iter_5.solverstate"))
    assert identity.seed(JobSpec(("train",), "s.prototxt", start=start), tmp_path) == 1234


def test_a_solver_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="the solver cannot be read"):
        identity.seed(JobSpec(("train",), "s.prototxt"), tmp_path)


def reported(rank: int) -> DataError:
    error = DataError("record 5 cannot be decoded")
    error.__cause__ = stage.Reported(Failed(rank, 1.0, 3, "DataError", "record 5\n cannot", "h", ("F",), "/log"))
    return error


@pytest.mark.parametrize(
    ("error", "stepped", "outcome", "code"),
    [
        (None, True, "done", 0),
        (reported(1), True, "failed", 3),
        (GangError("x"), False, "failed", 6),
        (Interrupted("x"), True, "interrupted", 130),
        (Terminated("x"), False, "interrupted", 143),
        (KeyError("bug"), False, "failed", 7),
        (KeyError("bug"), True, "failed", 1),
    ],
)
def test_outcome_and_exit_code(error, stepped, outcome, code):
    assert (record.outcome(error), record.exit_code(error, stepped)) == (outcome, code)


def test_the_cause_is_the_report():
    found = record.cause(reported(1))
    assert (found.rank, found.host, found.iteration, found.message) == (1, "h", 3, "record 5 cannot")
    assert record.cause(reported(-1)).rank is None
    assert record.cause(GangError("2 of 3\ncame")).message == "2 of 3 came"
    assert record.cause(KeyError("k")).message == "unexpected KeyError: 'k'"
    assert record.cause(None) is None


@pytest.mark.parametrize(
    ("joined", "slots", "words"),
    [
        (0, 2, "2 of 3 executors came within 5 s: Spark has 2 slot(s), the gang needs 3 at once"),
        (1, 3, "1 of 3 executors came within 5 s: Spark has 3 slot(s), but 2 executor(s) did not report"),
        (1, None, "1 of 3 executors came within 5 s: Spark does not answer"),
    ],
)
def test_why_a_gang_is_not_complete(joined, slots, words):
    assert stage.incomplete(joined, 3, slots, 5.2).startswith(words)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "PythonException: Traceback\n  File x\ncaffe_on_grid.errors.DataError: key 7 is broken\n\n\tat org",
            ("DataError", "key 7 is broken", True),
        ),
        (
            "Job aborted: Lost task (ExecutorLostFailure (executor 2 exited caused by one of the running tasks) "
            "Reason: Command exited with code 137\nDriver stacktrace:",
            ("TrainingFailed", "executor 2 was lost: Command exited with code 137", False),
        ),
        (
            "An error occurred.\n: org.apache.spark.SparkException: Job 3 cancelled\n\tat",
            ("TrainingFailed", "Spark ended the gang: Job 3 cancelled", False),
        ),
        ("Answer from Java side", ("TrainingFailed", "Spark ended the gang: Answer from Java side", False)),
    ],
)  # fmt: skip
def test_what_spark_says_of_a_failed_job(text, found):
    assert stage.explain(text) == found

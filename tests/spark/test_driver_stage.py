"""One gang on a real Spark, with agents that only pretend to have ranks: how it ends, and what remains."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

import pytest
from gang_support import wait_until
from pyspark import SparkContext
from pyspark.conf import SparkConf

from caffe_on_grid.driver import stage
from caffe_on_grid.driver.monitor import Monitor
from caffe_on_grid.errors import ConfigError, DataError, GangError, GridError, TrainingFailed
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.spec.job import Cluster, JobSpec

# pyspark leaves the socket of each `collect` to the garbage collector, and Python complains of it.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def sc():
    folders = os.pathsep.join([str(HERE.parent.parent), str(HERE)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", folders)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.syspath_prepend(str(HERE))
        conf = SparkConf().setMaster("local[2]").setAppName("driver tests")
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.driver.host": "localhost",
            "spark.python.worker.reuse": "false",
            "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
            "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "60",
        }.items():
            conf.set(name, value)
        context = SparkContext(conf=conf)
        yield context
        context.stop()
        gc.collect()


class Seen:
    """Keeps what the stage tells."""

    def __init__(self):
        self.reports = []
        self.ticks = 0

    def report(self, report, state):
        self.reports.append(report)

    def tick(self, state):
        self.ticks += 1


def run(sc, folder, what, executors=2, gang_s=30.0, step_s=30.0):
    import driver_agents

    monitor, seen = Monitor("train", executors, time.monotonic()), Seen()
    job = JobSpec(("train",), "solver.prototxt", cluster=Cluster(name=what))

    def plan_for(address, key):
        assert len(key) == 32
        return GangPlan(job, "train", f"run-{what}", str(folder), 1, address, key)

    limits = stage.Limits(gang_s, step_s, grace_s=3.0 if what == "late-cause" else 1.0, stop_s=2.0)
    try:
        stage.run(sc, plan_for, monitor, limits, seen, driver_agents.run)
    except GridError as error:
        return monitor, seen, error
    return monitor, seen, None


def running(sc, what):
    tracker = sc.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(f"run-{what} train")]
    return [job for job in jobs if job.status == "RUNNING"]


def none_runs(sc, what):
    """Whether no such job runs, as soon as Spark's tracker knows: it hears of an end after who waits for it."""
    return wait_until(lambda: running(sc, what) == [], 5)


def test_a_gang_that_ends_well(sc, tmp_path):
    monitor, seen, error = run(sc, tmp_path, "well")
    assert error is None
    state = monitor.state
    assert (state.world, state.samples, state.skipped, state.digest) == (2, 640, 2, "ab" * 32)
    assert state.tests[0].outputs == {"accuracy": (0.75,), "loss": (0.5,)}
    assert state.remarks == ["solver_mode is unset: the CPU is taken"]
    assert [type(r).__name__ for r in seen.reports].count("Stepped") == 10
    assert seen.ticks > 0


FAILURES = [
    ("late-cause", DataError, "undecodable record 17", 0),
    ("differ", TrainingFailed, "parameters are not equal over the ranks after iteration 1: rank 1 on node-1", 1),
    ("differ-at-the-end", TrainingFailed, "after iteration 5: rank 1 on node-1 differ(s)", 1),
    ("vanish", TrainingFailed, "executor 1 on node-1 was lost", 1),
    ("hang", TrainingFailed, "lagging: rank 1 on node-1 (iteration 3, compute)", 1),
    ("no-report", TrainingFailed, "rank(s) 1 ended without a last report", -1),
    ("bug", ConfigError, "/etc/site.yaml: what is here cannot be used", None),
]


@pytest.mark.parametrize(("what", "cls", "words", "rank"), FAILURES, ids=[f[0] for f in FAILURES])
def test_the_first_failure_is_the_cause(sc, tmp_path, what, cls, words, rank):
    _, _, error = run(sc, tmp_path, what, step_s=3.0 if what == "hang" else 30.0)
    assert type(error) is cls
    assert words in str(error)
    assert isinstance(error.__cause__, stage.Reported)
    assert rank is None or error.__cause__.failed.rank == rank
    assert none_runs(sc, what)
    if what == "late-cause":
        told = {p.name: p.read_text() for p in tmp_path.iterdir()}
        assert told == dict.fromkeys(("stopped-0", "stopped-1"), words)


def test_a_gang_that_cannot_come_together(sc, tmp_path):
    _, _, error = run(sc, tmp_path, "well", executors=3, gang_s=2.0)
    assert type(error) is GangError
    assert "2 of 3 executors came within 2 s: Spark has 2 slot(s), the gang needs 3 at once" in str(error)
    _, _, error = run(sc, tmp_path, "well")
    assert error is None, "the next gang must find the slots free"

"""The gang in real barrier stages, with real Hydra and the runtime's Python; the ranks are the tests' own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from gang_support import Driver, Gang, wait_until

from caffe_on_grid.spec import job
from caffe_on_grid.spec.report import Failed, Finished, Remarked, Started, Stepped

pytestmark = [
    pytest.mark.spark,
    pytest.mark.runtime,
    pytest.mark.mpi,
    # pyspark leaves the socket of collect() to the garbage collector
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def driver():
    made = Driver()
    yield made
    made.close()


@pytest.fixture
def gang(spark, driver, runtime, tmp_path):
    """Makes a gang of so many executors; whatever happens, nothing of it may be left."""
    made = []

    def make(executors, **changes):
        spec = job.JobSpec(("train",), "solver.prototxt", runtime=job.Runtime(str(runtime)))
        made.append(Gang(spark, driver, runtime, tmp_path, dataclasses.replace(spec, **changes), executors))
        return made[-1]

    yield make
    driver.close()  # ends whatever a failed test has left running
    spark.cancelAllJobs()
    for one in made:
        one.thread.join()
        one.await_empty()
        assert wait_until(lambda one=one: not list(one.folders.iterdir()), 20), "a gang's folder is left"


@pytest.mark.parametrize("counts", [(1,), (1, 1), (2, 1)])
def test_every_rank_reports(gang, driver, counts, tmp_path):
    done = gang(len(counts), sync=job.SyncSpec(connection="ethernet")).run("finish", ranks=counts)
    assert (done.error, done.results) == (None, [[]] * len(counts))
    assert wait_until(lambda: len(driver.of("left")) == len(counts), 20)
    world = sum(counts)
    started, finished = driver.reports(Started), driver.reports(Finished)
    assert [r.rank for r in started] == [r.rank for r in finished] == list(range(world))
    assert {r.engine for r in started} == {"python 9"}, "ranks run in the runtime's Python, not in Spark's"
    total = world * (world + 1) // 2
    assert {r.transport for r in started} == ({"none"} if world == 1 else {f"{total} {total} of {world}"})
    assert {r.mode for r in started} == {"cpu tcp,self None"}
    assert [m["executor"] for m in sorted(driver.of("joined"), key=lambda m: m["executor"])] == list(range(len(counts)))
    (placed,) = driver.of("placed")
    assert [r["executor"] for r in placed["ranks"]] == [e for e, n in enumerate(counts) for _ in range(n)]
    assert {b["iteration"] for m in driver.of("beat") for b in m["ranks"]} == {0, 101}
    assert all(m["ok"] for m in driver.of("left"))
    for rank in range(world):
        assert f"hello from rank {rank}" in (tmp_path / "run" / "logs" / f"rank-{rank}.log").read_text()


def test_a_killed_rank_ends_the_gang(gang, driver):
    done = gang(3).start("kill", bad=1)
    assert wait_until(lambda: driver.reports(Failed), 60)
    done.await_empty()
    first = min(driver.reports(Failed), key=lambda r: r.time)
    assert (first.rank, first.iteration, first.category) == (1, 103, "TrainingFailed")
    assert "was killed by SIGKILL" in first.message
    assert "memory" in first.message
    assert first.host
    done.thread.join()
    assert done.error is not None
    assert [s.iteration for s in driver.reports(Stepped)] == [101, 102, 103]


def test_a_caffe_abort_is_told_with_its_line(gang, driver, tmp_path):
    done = gang(2).run("abort", bad=0)
    first = min(driver.reports(Failed), key=lambda r: r.time)
    assert (first.rank, first.category, first.iteration) == (0, "ConfigError", 0)
    assert "net.cpp:123] Check failed: 1 == 2" in first.message
    assert first.native[0].startswith("F1129")
    assert done.error is not None
    assert first.log == str(tmp_path / "run" / "logs" / "rank-0.log")
    assert "Check failed" in Path(first.log).read_text()


def test_a_rank_that_cannot_start_is_an_environment_fault(gang, driver):
    gang(1).run("loader", bad=0)
    (failed,) = driver.reports(Failed)
    assert failed.category == "EnvironmentFault"
    assert "libmpi.so.12" in failed.message


def test_a_reported_failure_is_the_rank_s_own(gang, driver):
    done = gang(2).run("report", bad=1)
    first = min(driver.reports(Failed), key=lambda r: r.time)
    assert (first.rank, first.category, first.message) == (1, "DataError", "record 17 cannot be decoded")
    assert first.host
    assert done.error is not None


def test_a_report_that_is_none_ends_the_gang(gang, driver):
    gang(1).run("garbage", bad=0)
    (failed,) = driver.reports(Failed)
    assert "not JSON" in failed.message


def test_a_rank_that_closes_its_reports_is_dead(gang, driver):
    gang(1).run("mute", bad=0)
    (failed,) = driver.reports(Failed)
    assert (failed.iteration, failed.category) == (103, "TrainingFailed")


def test_a_rank_that_breaks_after_its_work_has_still_worked(gang, driver):
    done = gang(1).run("finish", bad=0)
    assert done.error is None
    assert wait_until(lambda: driver.reports(Remarked), 20)
    assert "exit code 3 after its work" in driver.reports(Remarked)[0].message


def test_the_driver_s_stop_ends_the_gang(gang, driver):
    done = gang(2).start("wait")
    assert wait_until(lambda: len(driver.reports(Started)) == 2, 60)
    driver.stop("enough")
    done.thread.join()
    assert "ended by the driver: enough" in str(done.error)
    assert not driver.reports(Failed)
    assert [m["ok"] for m in driver.of("left")] == [False, False]


def test_without_the_driver_the_gang_ends(gang, driver):
    done = gang(2).start("wait")
    assert wait_until(lambda: len(driver.reports(Started)) == 2, 60)
    driver.close()
    done.thread.join()
    assert "the driver is gone" in str(done.error)


def test_a_cancelled_stage_leaves_nothing(gang, driver, spark):
    """Spark's SIGKILL reaches only the Python worker; the guards see its pipe close."""
    done = gang(2).start("wait")
    assert wait_until(lambda: len(driver.reports(Started)) == 2, 60)
    assert len(done.processes()) > 4
    spark.cancelAllJobs()
    done.await_empty()
    done.thread.join()
    assert done.error is not None


def test_a_gpu_that_is_not_there(gang, driver):
    done = gang(2, engine=job.EngineSpec(solver_mode="gpu")).run("finish")
    (failed,) = driver.reports(Failed)
    assert (failed.rank, failed.category) == (-1, "EnvironmentFault")
    assert "--solver-mode cpu" in failed.message
    assert "EnvironmentFault" in str(done.error)


def test_a_runtime_that_is_not_there(gang, driver, tmp_path):
    done = gang(2, runtime=job.Runtime(str(tmp_path / "nothing"))).run("finish")
    assert {f.category for f in driver.reports(Failed)} == {"EnvironmentFault"}
    assert "nothing usable was shipped" in driver.reports(Failed)[0].message
    assert done.error is not None

"""Deaths and signals at every stage of the real command: it ends at once, says why, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import nets
import pytest
from command import Command, Ended, Running, nothing_complete

pytestmark = [pytest.mark.spark, pytest.mark.mpi, pytest.mark.runtime]
slow = pytest.mark.slow

FOREVER = nets.solver(iterations=10_000_000, test=False, more="snapshot: 200").replace("display: 5", "display: 100")


class Job:
    """A job of two ranks on two executors, running."""

    def __init__(self, command: Command, solver: str = FOREVER, master: str = "local[2]") -> None:
        self.command = command
        self.model = command.folder / "net.caffemodel"
        lmdbs = nets.write_lmdb(command.folder / "train"), nets.write_lmdb(command.folder / "test", 24)
        folder = nets.write_job(command.folder / "job", nets.net(*lmdbs, batch=6), solver)
        words = (
            "-conf",
            folder / "solver.prototxt",
            "-model",
            self.model,
            "--num-executors",
            2,
            "--json",
            "--master",
            master,
        )
        self.running: Running = command.start("train", *words)

    def trains(self) -> Job:
        """Wait until steps and a snapshot have been done, and a step is in the run's books."""
        self.running.until(r"Iteration \d+, saved")
        books = (self.command.folder / "net").glob
        self.running.wait(lambda: any('"stepped"' in b.read_text() for b in books("*/metrics.jsonl")), "step in them")
        return self

    def record(self) -> dict:
        """What run.json says."""
        (path,) = (self.command.folder / "net").glob("*/run.json")
        return json.loads(path.read_text())

    def end(self, code: int) -> Ended:
        """Its end: with this code, one line of cause, and nothing left of it."""
        ended = self.running.end()
        assert ended.code == code, ended.err
        assert ended.error
        self.running.await_nobody()
        nothing_complete(self.model)
        assert self.command.left_behind() == []
        return ended


@pytest.fixture
def command(runtime: Path, tmp_path: Path):
    started = Command(tmp_path, runtime)
    yield started
    started.close()


def test_a_rank_is_killed(command: Command) -> None:
    job = Job(command).trains()
    os.kill(job.running.rank(1), signal.SIGKILL)
    ended = job.end(1)
    found = re.match(rf"error: rank 1 on {socket.gethostname()} at iteration (\d+): was killed by SIGKILL", ended.error)
    assert found and int(found[1]) >= 100, ended.error
    cause = job.record()["cause"]
    assert (cause["rank"], cause["category"], job.record()["exit_code"]) == (1, "TrainingFailed", 1)
    assert ended.json()["outcome"] == "failed"


def test_an_executors_agent_is_killed(command: Command) -> None:
    job = Job(command).trains()
    pids = re.findall(r"\(pid (\d+)\)", job.running.said())
    os.kill(int(pids[1]), signal.SIGKILL)
    ended = job.end(1)
    assert "executor 1" in ended.error and socket.gethostname() in ended.error


@slow  # on YARN this is tested always
def test_an_executor_is_killed(command: Command) -> None:
    """With all that is in its session: its agent, its rank."""
    job = Job(command, master="local-cluster[2,1,1024]").trains()
    executors = job.running.processes("CoarseGrainedExecutorBackend")
    assert len(executors) == 2
    os.kill(min(executors), signal.SIGKILL)
    ended = job.end(1)
    assert re.search(r"executor \d", ended.error)


def test_spark_is_killed(command: Command) -> None:
    job = Job(command).trains()
    (java,) = job.running.processes("org.apache.spark.deploy.SparkSubmit")
    os.kill(java, signal.SIGKILL)
    ended = job.end(1)
    assert re.match(r"error: Spark was ended by SIGKILL in training, after \d+ iterations", ended.error)
    assert (job.record()["outcome"], job.record()["exit_code"]) == ("failed", 1)


def test_the_command_itself_is_killed(command: Command) -> None:
    """It cannot say anything; all else ends."""
    job = Job(command).trains()
    job.running.process.kill()
    assert job.running.end().code == -signal.SIGKILL
    job.running.await_nobody()
    nothing_complete(job.model)
    assert (job.record()["outcome"], job.record()["exit_code"]) == ("failed", 1)


def starting(job: Job) -> None:
    """Spark's JVM is there, the driver is not."""
    job.running.wait(lambda: job.running.processes("org.apache.spark"), "JVM")


def before_the_gang(job: Job) -> None:
    """The driver waits for executors."""
    job.running.until("0 of 2 executors are here")


def training(job: Job) -> None:
    """Steps are being done."""
    job.trains()


def last_snapshot(job: Job) -> None:
    """The last snapshot is being written: its writer is held, so that the moment lasts."""
    writers = job.running.wait(lambda: job.running.processes("caffe_on_grid.worker.publish"), "snapshot")
    for writer in writers:
        os.kill(writer, signal.SIGSTOP)


SHORT = nets.solver(iterations=3, test=False)
INT, TERM, HUP = (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)
STAGES = [
    pytest.param(starting, FOREVER, *INT, id="starting-SIGINT"),
    pytest.param(starting, FOREVER, *TERM, id="starting-SIGTERM"),
    pytest.param(before_the_gang, FOREVER, *INT, id="gang-SIGINT"),
    pytest.param(before_the_gang, FOREVER, *HUP, id="gang-SIGHUP"),
    pytest.param(before_the_gang, FOREVER, *TERM, id="gang-SIGTERM", marks=slow),
    pytest.param(training, FOREVER, *INT, id="training-SIGINT", marks=slow),
    pytest.param(training, FOREVER, *TERM, id="training-SIGTERM"),
    pytest.param(last_snapshot, SHORT, *INT, id="snapshot-SIGINT"),
    pytest.param(last_snapshot, SHORT, *TERM, id="snapshot-SIGTERM", marks=slow),
]


@pytest.mark.parametrize(("stage", "solver", "number", "code"), STAGES)
def test_signals(command: Command, stage: Callable[[Job], None], solver: str, number: int, code: int) -> None:
    job = Job(command, solver)
    stage(job)
    job.running.process.send_signal(number)
    ended = job.end(code)
    assert "signal" in ended.error or signal.Signals(number).name in ended.error

"""The driver's side in these tests: a listener that keeps what the agents say, and the barrier stage."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import uuid
from pathlib import Path

from caffe_on_grid.comm.channel import Channel, Closed, Listener
from caffe_on_grid.gang import agent
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.spec import job, report
from caffe_on_grid.spec.report import Failed

KEY = b"secret of this test's gang......"
MARK = "HADOOP_GANG_TEST_MARK"
PROGRAM = str(Path(__file__).with_name("gang_rank.py"))


class Driver:
    """Accepts agents and keeps their messages until it is closed."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.listener = Listener(host, KEY)
        self.messages: list[dict] = []
        self.channels: list[Channel] = []
        self.closed = threading.Event()
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while not self.closed.is_set():
            channel = self.listener.accept(0.05)
            if channel is not None:
                self.channels.append(channel)
                self.threads.append(threading.Thread(target=self._hear, args=(channel,)))
                self.threads[-1].start()

    def _hear(self, channel: Channel) -> None:
        try:
            while not self.closed.is_set():
                message = channel.receive(0.05)
                if message is not None:
                    self.messages.append(message)
                    self._answer(message)
        except Closed:
            return

    def _answer(self, message: dict) -> None:
        """As the driver does: the first failure stops all; when all have left, the channels close."""
        if message["type"] == "report" and isinstance(report.from_line(message["line"]), Failed):
            self.stop("a rank failed")
        if len(self.of("left")) == len(self.channels):
            for channel in self.channels:
                channel.close()

    def of(self, kind: str) -> list[dict]:
        return [m for m in list(self.messages) if m["type"] == kind]

    def reports(self, kind: type) -> list:
        said = (report.from_line(m["line"]) for m in self.of("report"))
        return sorted((r for r in said if isinstance(r, kind)), key=lambda r: r.rank)

    def stop(self, reason: str) -> None:
        for channel in self.channels:
            with contextlib.suppress(Closed):
                channel.send({"type": "stop", "reason": reason})

    def close(self) -> None:
        """End all; a second time it does nothing."""
        self.closed.set()
        for thread in self.threads:
            thread.join()
        for channel in self.channels:
            channel.close()
        self.listener.close()


class Gang:
    """One barrier stage of `executors` tasks with the tests' own rank program."""

    def __init__(self, spark, driver: Driver, runtime: Path, folder: Path, spec: job.JobSpec, executors: int) -> None:
        self.spark, self.driver, self.executors, self.mark = spark, driver, executors, uuid.uuid4().hex
        self.plan = GangPlan(spec, "train", "run-1", str(folder / "run"), 7, driver.listener.address, KEY)
        # a path longer than a Unix address: sockets must not mind
        self.folders = folder / ("gangs-" + "x" * 100)
        self.folders.mkdir()
        self.error: BaseException | None = None
        self.results: list = []
        self.thread = threading.Thread(target=self._run)

    def run(self, scenario: str, bad: int = -1, ranks: tuple[int, ...] = ()) -> Gang:
        """Run to the end."""
        self.start(scenario, bad, ranks)
        self.thread.join()
        return self

    def start(self, scenario: str, bad: int = -1, ranks: tuple[int, ...] = ()) -> Gang:
        self.program = agent.Program((PROGRAM, scenario, str(bad)), ranks)
        self.thread.start()
        return self

    def _run(self) -> None:
        task = barrier_task(self.plan, self.program, self.mark, self.folders)
        stage = self.spark.parallelize(range(self.executors), self.executors).barrier().mapPartitions(task)
        try:
            self.results = stage.collect()
        except Exception as error:
            self.error = error

    def processes(self) -> list[int]:
        """Living processes of this gang, by a mark in their environment (not the Spark workers: they set it later)."""
        return [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/environ") if self._marked(p)]

    def _marked(self, environ: Path) -> bool:
        try:
            alive = "Z" not in (environ.parent / "stat").read_text().rpartition(")")[2].split()[0]
            return alive and f"{MARK}={self.mark}".encode() in environ.read_bytes()
        except OSError:
            return False

    def await_empty(self) -> None:
        """Return once no process is left; fails with what is."""
        assert wait_until(lambda: not self.processes(), 20), self.processes()


def barrier_task(plan: GangPlan, program: agent.Program, mark: str, folders: Path):
    def task(_):
        os.environ[MARK] = mark
        tempfile.tempdir = str(folders)
        return iter([agent.conduct(plan, agent.this_task(), program)])

    return task


def wait_until(condition, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())
